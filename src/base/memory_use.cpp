#include "base/memory_use.h"

#include <sys/resource.h>

namespace lily {

std::int64_t peak_resident_bytes() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
#if defined(__APPLE__)
  return use.ru_maxrss;
#else
  return std::int64_t(use.ru_maxrss) * 1024;
#endif
}

}  // namespace lily

#include "base/memory_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

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

std::int64_t physical_memory_bytes() {
  return std::int64_t(sysconf(_SC_PHYS_PAGES)) * std::int64_t(sysconf(_SC_PAGESIZE));
}

std::int64_t usable_memory_bytes() {
  const std::int64_t machine = physical_memory_bytes();
  std::ifstream group("/sys/fs/cgroup/memory.max");  // absent, or "max", where there is no limit
  std::int64_t limit = 0;
  return group >> limit && limit > 0 ? std::min(limit, machine) : machine;
}

}  // namespace lily

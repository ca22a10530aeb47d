#include "base/memory_use.h"

#if defined(__APPLE__)
#include <mach/mach.h>
#endif
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

std::int64_t resident_bytes() {
#if defined(__APPLE__)
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const auto rc = task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return rc == KERN_SUCCESS ? std::int64_t(info.resident_size) : 0;
#else
  std::ifstream pages("/proc/self/statm");  // all, resident, …
  std::int64_t all = 0, resident = 0;
  return pages >> all >> resident ? resident * std::int64_t(sysconf(_SC_PAGESIZE)) : 0;
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

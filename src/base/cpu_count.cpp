// How many threads are worth using: physical cores, as far as this process may use them.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace lily {
namespace {

#if defined(__linux__)
int read_int(const std::string& path, int otherwise) {
  std::ifstream in(path);
  int v = otherwise;
  return in >> v ? v : otherwise;
}

// Distinct (package, core) pairs among the CPUs of the affinity mask: SMT siblings count once.
int physical_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  std::set<std::pair<int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    cores.emplace(read_int(topology + "physical_package_id", 0), read_int(topology + "core_id", -1 - cpu));
  }
  return int(cores.size());
}

// CPUs' worth of time that cgroup v2 grants this process, or 0 for no limit.
int cgroup_quota() {
  std::ifstream in("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(in >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::max(1, int(std::stod(quota) / period));
}
#endif

}  // namespace

int default_thread_count() {
  int cores = 0;
#if defined(__linux__)
  cores = physical_cores();
  if (const int quota = cgroup_quota(); quota > 0) cores = std::min(cores, quota);
#elif defined(__APPLE__)
  std::size_t size = sizeof cores;  // performance cores; the efficient ones would hold every barrier up
  if (sysctlbyname("hw.perflevel0.physicalcpu", &cores, &size, nullptr, 0) != 0) cores = 0;
#endif
  if (cores < 1) cores = int(std::thread::hardware_concurrency());
  return std::max(1, cores);
}

}  // namespace lily

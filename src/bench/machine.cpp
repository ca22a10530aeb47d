#include "bench/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/memory_use.h"
#include "base/progress.h"

namespace lily::bench {
namespace {

// The value of the first line "key : value" of a file.
std::string value_in(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind(key, 0) != 0 || colon == line.npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

std::string processor() {
#if defined(__APPLE__)
  char name[256];
  std::size_t size = sizeof name;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
  const std::string name = value_in("/proc/cpuinfo", "model name");
  if (!name.empty()) return name;
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown processor";
}

}  // namespace

std::string machine_name() {
  return fmt::format("{}, {} CPUs, {} memory", processor(), std::thread::hardware_concurrency(),
                     human_bytes(double(physical_memory_bytes())));
}

std::int64_t available_memory() {
  const std::int64_t usable = usable_memory_bytes();
  const std::string available = value_in("/proc/meminfo", "MemAvailable");  // "21000000 kB"
  return available.empty() ? usable : std::min<std::int64_t>(usable, std::atoll(available.c_str()) * 1024);
}

}  // namespace lily::bench

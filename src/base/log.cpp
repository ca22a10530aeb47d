#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace lily {
namespace {

spdlog::logger& logger() {
  static const auto log = [] {
    auto made = std::make_shared<spdlog::logger>("lily", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("lily: %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *log;
}

}  // namespace

void log_verbose(bool on) {
  logger().set_level(on ? spdlog::level::debug : spdlog::level::info);
}
void log_debug(const std::string& message) {
  logger().debug("{}", one_line(message));
}
void log_info(const std::string& message) {
  logger().info("{}", one_line(message));
}
void log_warning(const std::string& message) {
  logger().warn("warning: {}", one_line(message));
}
void log_error(const std::string& message) {
  logger().error("{}", one_line(message));
}

std::string one_line(const std::string& message) {
  std::string line;
  for (const char c : message) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (u < 0x20 || u == 0x7f) {
      line += fmt::format("\\x{:02x}", u);
    } else {
      line += c;
    }
  }
  return line;
}

std::string shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes)) + "…";
}

}  // namespace lily

#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

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

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void log_verbose(bool on) { logger().set_level(on ? spdlog::level::debug : spdlog::level::info); }
void log_debug(const std::string& message) { logger().debug("{}", one_line(message)); }
void log_info(const std::string& message) { logger().info("{}", one_line(message)); }
void log_warning(const std::string& message) { logger().warn("warning: {}", one_line(message)); }
void log_error(const std::string& message) { logger().error("{}", one_line(message)); }

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

ProgressBar::ProgressBar(std::string label, bool bytes)
    : label_(std::move(label)), bytes_(bytes), terminal_(isatty(STDERR_FILENO) != 0), begin_(now()) {
  next_ = begin_ + 0.3;  // work that is over at once draws nothing
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  if (!terminal_ || now() < next_) return;
  next_ = now() + 0.1;
  drawn_ = true;
  const double share = total ? std::min(1.0, double(done) / double(total)) : 0;
  const double rate = double(done) / (now() - begin_);
  constexpr int kWidth = 24;
  const int full = int(share * kWidth);
  const std::string bar = std::string(full, '#') + std::string(kWidth - full, '.');
  const std::string counts = bytes_ ? fmt::format("{:.0f}/{:.0f} MB, {:.1f} MB/s", done / 1e6, total / 1e6, rate / 1e6)
                                    : fmt::format("{}/{}, {:.1f}/s", done, total, rate);
  std::fputs(fmt::format("\r{} [{}] {:3.0f}% {}\x1b[K", label_, bar, share * 100, counts).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace lily

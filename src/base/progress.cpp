#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace lily {

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, kUnits[unit]);
}

Progress::Progress(std::string label, std::uint64_t total, bool enabled, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      enabled_(enabled),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      drawn_(start_) {}

Progress::~Progress() {
  if (enabled_ && terminal_ && !ended_) std::fputc('\n', stderr);
}

void Progress::add(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  const auto now = Clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - drawn_ < interval) return;
  drawn_ = now;
  draw(now, false);
}

void Progress::skip(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  skipped_ += bytes;
}

void Progress::relabel(std::string label) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  draw(Clock::now(), true);
  ended_ = true;
}

std::string Progress::amount(double n) const {
  return unit_.empty() ? human_bytes(n) : fmt::format("{:.0f} {}", n, unit_);
}

void Progress::draw(Clock::time_point now, bool last) {
  if (!enabled_) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? double(done_ - skipped_) / seconds : 0;
  const double part = total_ ? std::min(1.0, double(done_) / double(total_)) : 1.0;
  std::string line = fmt::format("{} {:3.0f}% {} of {}", label_, 100 * part, amount(double(done_)), amount(double(total_)));
  if (unit_ != "s") line += fmt::format(", {}/s", amount(rate));
  if (last)
    line += fmt::format(", {:.1f} s", seconds);
  else if (rate > 0)
    line += fmt::format(", {:.0f} s left", double(total_ - std::min(done_, total_)) / rate);
  if (terminal_) {
    constexpr int kWidth = 24;
    const int filled = int(part * kWidth);
    std::fprintf(stderr, "\r[%s%s] %s\033[K%s", std::string(std::size_t(filled), '#').c_str(),
                 std::string(std::size_t(kWidth - filled), '.').c_str(), line.c_str(), last ? "\n" : "");
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

}  // namespace lily

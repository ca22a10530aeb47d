// Progress of long work, on stderr: a bar that redraws itself on a terminal, a plain line now and then elsewhere.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace lily {

/// "1.66 GB", "12 KB": decimal units, three digits at most before the unit.
std::string human_bytes(double bytes);

class Progress {
 public:
  /// `total` bytes of work, or of what `unit` says ("tokens"); "s": seconds that the work should take, shown without a rate. `enabled` false: silent.
  Progress(std::string label, std::uint64_t total, bool enabled = true, std::string unit = "");
  ~Progress();  // ends the line on a terminal, finished or not
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(std::uint64_t bytes);   // done now; from any thread
  void skip(std::uint64_t bytes);  // was done before (resumed work): counts for the bar, not for the rate
  void relabel(std::string label); // what is under way now
  void finish();                   // the last line: bytes, seconds, rate

 private:
  void draw(Clock::time_point now, bool last);
  std::string amount(double n) const;

  std::string label_, unit_;
  std::uint64_t total_, done_ = 0, skipped_ = 0;
  bool enabled_, terminal_, ended_ = false;
  Clock::time_point start_, drawn_;
  std::mutex mutex_;
};

}  // namespace lily

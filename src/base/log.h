// What the program says about its own doings, on standard error. Results go to standard output by other ways (cli/output.h).
#pragma once

#include <cstdint>
#include <string>

namespace lily {

void log_verbose(bool on);  // whether log_debug says anything
void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// `message` with control characters (a name from a file may hold some) made visible, so that it is one line on any terminal.
std::string one_line(const std::string& message);

/// A bar on standard error for long work: drawn on a terminal a few times a second, silent elsewhere.
///
/// One thread at a time. The line is removed by the destructor.
class ProgressBar {
 public:
  /// `bytes`: counts are bytes and shown in MB.
  ProgressBar(std::string label, bool bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  bool bytes_;
  bool terminal_;
  bool drawn_ = false;
  double next_ = 0;   // seconds on the steady clock: not drawn again earlier
  double begin_ = 0;
};

}  // namespace lily

// Ctrl-C as a wish to stop the answer, not the program.
#pragma once

namespace lily::cli {

/// While one lives, SIGINT only sets a flag. At most one at a time; the former handler comes back with its end.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool wanted() const;  // since the beginning of this object's life or the last clear()
  void clear();
};

/// Ends the process as SIGINT does when nobody catches it, so that a shell sees what happened.
[[noreturn]] void die_of_interrupt();

}  // namespace lily::cli

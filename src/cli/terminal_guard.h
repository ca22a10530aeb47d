// The terminal as it was, whatever ends the program.
#pragma once

namespace lily::cli {

/// Remembers how the terminal on standard input is set. While one lives, SIGTERM, SIGHUP and SIGQUIT put that back
/// before they end the process: a line editor has it in a mode in which a shell's user would type blindly. At most one
/// at a time.
class TerminalGuard {
 public:
  TerminalGuard();
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;
};

}  // namespace lily::cli

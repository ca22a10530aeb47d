#include "cli/terminal_guard.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <iterator>

namespace lily::cli {
namespace {

constexpr int kDeadly[] = {SIGTERM, SIGHUP, SIGQUIT};

termios as_it_was;
struct sigaction former[std::size(kDeadly)];

/// Only what a signal handler may call.
void restore_and_die(int number) {
  signal(SIGTTOU, SIG_IGN);  // in the background setting a terminal would stop the process
  tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
  raise(number);  // as nobody's by now (SA_RESETHAND); it comes when this returns
}

}  // namespace

TerminalGuard::TerminalGuard() {
  const bool known = tcgetattr(STDIN_FILENO, &as_it_was) == 0;
  for (std::size_t i = 0; i < std::size(kDeadly); ++i) {
    sigaction(kDeadly[i], nullptr, &former[i]);
    if (!known || former[i].sa_handler != SIG_DFL) continue;  // nohup, say
    struct sigaction action {};
    action.sa_handler = restore_and_die;
    action.sa_flags = SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(kDeadly[i], &action, nullptr);
  }
}

TerminalGuard::~TerminalGuard() {
  for (std::size_t i = 0; i < std::size(kDeadly); ++i) sigaction(kDeadly[i], &former[i], nullptr);
}

}  // namespace lily::cli

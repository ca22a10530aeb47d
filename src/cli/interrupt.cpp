#include "cli/interrupt.h"

#include <csignal>
#include <cstdlib>

namespace lily::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
struct sigaction former;

void note(int) { interrupted = 1; }

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &former);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &former, nullptr); }

bool Interrupt::wanted() const { return interrupted != 0; }

void Interrupt::clear() { interrupted = 0; }

void die_of_interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
  std::_Exit(130);
}

}  // namespace lily::cli

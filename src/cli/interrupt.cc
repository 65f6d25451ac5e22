#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "cli/commands.h"

namespace firstlight {
namespace {

std::atomic<bool> in_scope{false};
std::atomic<int> pressed{0};  // times since the last reset
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may touch nothing else");

bool on_terminal = false;  // set before the handler can run

void handle_interrupt(int) {
  if (in_scope && ++pressed < 3) return;
  if (on_terminal) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, "\n", 1);  // leaves a progress line
  }
  _exit(kExitInterrupted);
}

/// What was ignored when the process started stays so: `nohup`, jobs in the background of a script.
void handle(int signal, void (*handler)(int)) {
  struct sigaction before {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: a read in progress returns
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_interrupt_handler() {
  on_terminal = isatty(STDERR_FILENO) == 1;
  handle(SIGINT, handle_interrupt);
  handle(SIGXFSZ, SIG_IGN);  // writing tells, by an error
}

InterruptScope::InterruptScope(Signals signals) : signals_(signals) {
  reset();
  in_scope = true;
  if (signals_ != Signals::kTermination) return;
  for (const int signal : {SIGTERM, SIGHUP}) handle(signal, handle_interrupt);
}

InterruptScope::~InterruptScope() {
  in_scope = false;
  if (signals_ != Signals::kTermination) return;
  for (const int signal : {SIGTERM, SIGHUP}) handle(signal, SIG_DFL);
}

bool InterruptScope::requested() { return pressed > 0; }

void InterruptScope::reset() { pressed = 0; }

}  // namespace firstlight

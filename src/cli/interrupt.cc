#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "cli/commands.h"

namespace firstlight {
namespace {

std::atomic<bool> in_scope{false};
std::atomic<bool> pending{false};
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may touch nothing else");

void handle_interrupt(int) {
  if (!in_scope || pending.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = handle_interrupt;  // without SA_RESTART: a read in progress returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::InterruptScope() {
  pending = false;
  in_scope = true;
}

InterruptScope::~InterruptScope() { in_scope = false; }

bool InterruptScope::requested() { return pending; }

}  // namespace firstlight

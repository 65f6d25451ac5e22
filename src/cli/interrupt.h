// Ctrl-C. It ends the process with status 130 at once, except where an InterruptScope asks for a chance to
// stop in good order.
#pragma once

namespace firstlight {

void install_interrupt_handler();

/// While one lives, the first Ctrl-C only sets requested(); a second one ends the process. Not nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] static bool requested();
};

}  // namespace firstlight

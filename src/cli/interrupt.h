// Ctrl-C. It ends the process with status 130 at once, except where an InterruptScope asks for a chance to
// stop in good order.
#pragma once

namespace firstlight {

void install_interrupt_handler();

/// While one lives, Ctrl-C only sets requested(), until the third one since reset() ends the process: two in
/// a row are impatience, three are despair. Not nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] static bool requested();
  /// Forgets what was requested so far.
  static void reset();
};

}  // namespace firstlight

// Ctrl-C. It ends the process with status 130 at once, except where an InterruptScope asks for a chance to
// stop in good order.
#pragma once

namespace firstlight {

void install_interrupt_handler();

/// While one lives, Ctrl-C only sets requested(), until the third one since reset() ends the process: two in
/// a row are impatience, three are despair. Not nested.
class InterruptScope {
 public:
  enum class Signals { kInterrupt, kTermination };
  /// kTermination: a polite end by others (SIGTERM, SIGHUP) is taken for Ctrl-C as well.
  explicit InterruptScope(Signals signals = Signals::kInterrupt);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] static bool requested();
  /// Forgets what was requested so far.
  static void reset();

 private:
  Signals signals_;
};

}  // namespace firstlight

// Errors as values. Bad input of any kind travels as an Error with one clear sentence; check() is for
// our own bugs and is never reachable from input. Exceptions do not cross a folder boundary.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace firstlight {

/// One sentence that names the file, the field and what was expected.
struct Error {
  std::string message;
};

/// Either a value or an Error. `[[nodiscard]]`: an ignored failure is a bug.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T held) : state_(std::move(held)) {}        // NOLINT(google-explicit-constructor): by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor): by design

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error, for functions without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

/// Aborts with a message when an invariant of our own does not hold.
inline void check(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "firstlight: internal error: %s\n", what);
    std::abort();
  }
}

}  // namespace firstlight

/// Returns early with the Error of `expr` (a Result or a Status).
#define FL_TRY(expr)                               \
  do {                                             \
    if (auto fl_try_ = (expr); !fl_try_) {         \
      return ::firstlight::Error(fl_try_.error()); \
    }                                              \
  } while (false)

#define FL_CONCAT_INNER(a, b) a##b
#define FL_CONCAT(a, b) FL_CONCAT_INNER(a, b)
/// `FL_ASSIGN(auto x, f());`: x is the value of f(), or the function returns f()'s Error.
#define FL_ASSIGN(declaration, expr) FL_ASSIGN_INNER(FL_CONCAT(fl_assign_, __LINE__), declaration, expr)
#define FL_ASSIGN_INNER(temporary, declaration, expr)            \
  auto temporary = (expr);                                       \
  if (!temporary) return ::firstlight::Error(temporary.error()); \
  declaration = std::move(*temporary)

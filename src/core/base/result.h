// Result<T>: a value, or an Error that says what happened, to which thing, and what to do. For ordinary failures; a
// broken invariant is a CHECK, and torch-free code does not use exceptions.
// Thread rule: a plain value, as safe as T.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace fulldeck::base {

struct Error {
  std::string message;
  int system_error = 0;  // errno if the kernel reported one, otherwise 0
};

// "what: No such file or directory", with the number in system_error. Reads errno, so call it before anything else can
// change it.
Error ErrnoError(std::string_view what);
Error ErrnoError(std::string_view what, int error_number);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *Get(); }
  const T& value() const& { return *const_cast<Result*>(this)->Get(); }
  T&& value() && { return std::move(*Get()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return Get(); }
  const T* operator->() const { return const_cast<Result*>(this)->Get(); }

  const Error& error() const {
    if (ok()) CheckFailed("!ok()", __FILE__, __LINE__);
    return *std::get_if<1>(&held_);
  }

 private:
  T* Get() {
    if (!ok()) CheckFailed("ok()", __FILE__, __LINE__);
    return std::get_if<0>(&held_);
  }
  std::variant<T, Error> held_;
};

// Success or an error, without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    if (ok_) CheckFailed("!ok()", __FILE__, __LINE__);
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace fulldeck::base

// An expected failure with words for a person and the exit code a command should end with.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace regrow {

// Exit codes of the regrow command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitUsage = 2;        // wrong usage or recipe; no such job
inline constexpr int kExitUnreachable = 3;  // no controller, or it does not answer
inline constexpr int kExitNotAllowed = 4;   // the role does not allow it

struct Error {
  int exit_code = kExitUsage;
  std::string message;  // what happened, where, what to do
};

// A value or an Error.
//   auto address = parse_address(text);
//   if (!address) return address.error();
//   use(*address);
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : value_(std::move(error)) {}

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() { return std::get<0>(value_); }
  const T& operator*() const { return std::get<0>(value_); }
  T* operator->() { return &std::get<0>(value_); }
  const T* operator->() const { return &std::get<0>(value_); }
  const Error& error() const { return std::get<1>(value_); }

 private:
  std::variant<T, Error> value_;
};

struct Nothing {};
using Status = Result<Nothing>;

}  // namespace regrow

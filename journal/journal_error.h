// Why the journal could not do something, in words for a person and in a kind for the program.
//
//   auto first = journal.append(events);
//   if (!first) return fail(first.error().message);
//   acknowledge(*first);
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "supervisors/reflect.h"

namespace regrow {

//   in_use        another process has this journal open
//   newer_format  written by a newer regrow; nothing was touched
//   corrupt       damaged, or records missing; nothing was changed
//   no_space      the file system is full; close, free space, open again
//   io            a read or write failed (EIO, permissions, missing directory)
//   refused       the request itself is impossible; the journal is as before and works on
REGROW_ENUM(JournalFault, in_use, newer_format, corrupt, no_space, io, refused)

struct JournalError {
  JournalFault fault = JournalFault::io;
  std::string message;  // what, where, what to do; one or two sentences without a final newline

  bool is_no_space() const { return fault == JournalFault::no_space; }
};

// A value or the reason why there is none. Ask before taking: value() and error() of the other kind
// throw std::bad_variant_access.
template <class T>
class [[nodiscard]] JournalResult {
 public:
  JournalResult(T value) : outcome_(std::in_place_index<0>, std::move(value)) {}
  JournalResult(JournalError error) : outcome_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return outcome_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() { return std::get<0>(outcome_); }
  const T& value() const { return std::get<0>(outcome_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const JournalError& error() const { return std::get<1>(outcome_); }
  bool is_no_space() const { return !ok() && error().is_no_space(); }

 private:
  std::variant<T, JournalError> outcome_;
};

// Success without a value.
struct Done {};

}  // namespace regrow

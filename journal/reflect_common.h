// What the Cap'n Proto and the JSON conversion of reflected structs agree on: names, and which C++
// types are written as the plain value that they wrap. Any thread; no state.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "supervisors/types.h"

namespace regrow {

// "started_us" -> "startedUs"; "RankExited" -> "rankExited". Names in .capnp files.
inline std::string camel_case(std::string_view name) {
  std::string out;
  bool upper = false;
  for (char c : name) {
    if (c == '_') {
      upper = !out.empty();
    } else {
      int letter = static_cast<unsigned char>(c);
      out += static_cast<char>(upper         ? std::toupper(letter)
                               : out.empty() ? std::tolower(letter)
                                             : letter);
      upper = false;
    }
  }
  return out;
}

// "RankExited" -> "rank_exited". The "kind" of a variant in JSON.
inline std::string snake_case(std::string_view name) {
  std::string out;
  for (char c : name) {
    int letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) && !out.empty() && out.back() != '_') out += '_';
    out += static_cast<char>(std::tolower(letter));
  }
  return out;
}

template <class T>
inline constexpr bool is_variant = false;
template <class... Ts>
inline constexpr bool is_variant<std::variant<Ts...>> = true;

// Structs that are written as their only member: a Duration is a number, not {"us": 5}.
template <class T>
inline constexpr bool is_plain_value = is_strong_id<T>;
template <>
inline constexpr bool is_plain_value<Duration> = true;
template <>
inline constexpr bool is_plain_value<Time> = true;
template <>
inline constexpr bool is_plain_value<EntityId> = true;

// The member that stands for the whole; everything else stands for itself.
template <class T>
auto& plain(T& value) {
  using U = std::remove_cv_t<T>;
  if constexpr (is_strong_id<U>) {
    return value.value;
  } else if constexpr (std::is_same_v<U, Duration> || std::is_same_v<U, Time>) {
    return value.us;
  } else if constexpr (std::is_same_v<U, EntityId>) {
    return value.path;
  } else {
    return value;
  }
}
template <class T>
using Plain = std::remove_cvref_t<decltype(plain(std::declval<T&>()))>;

}  // namespace regrow

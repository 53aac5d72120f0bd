// Field lists for plain structs, written once and used by the codec, hash, JSON, `show` and `diff`.
//
//   struct RankExited {
//     Incarnation incarnation;
//     int32_t exit_code = 0;
//     REGROW_FIELDS(RankExited, incarnation, exit_code)
//   };
//   RankExited::visit_fields(value, [](const char* name, auto& field) { ... });
//
// A reflected field is a bool, an integer, a double, a std::string, an enum made with REGROW_ENUM,
// a StrongId, another reflected struct, or a std::vector of these. Field order is declaration
// order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#define REGROW_PARENS ()
#define REGROW_EXPAND(...) REGROW_EXPAND4(REGROW_EXPAND4(REGROW_EXPAND4(__VA_ARGS__)))
#define REGROW_EXPAND4(...) REGROW_EXPAND3(REGROW_EXPAND3(REGROW_EXPAND3(__VA_ARGS__)))
#define REGROW_EXPAND3(...) REGROW_EXPAND2(REGROW_EXPAND2(REGROW_EXPAND2(__VA_ARGS__)))
#define REGROW_EXPAND2(...) REGROW_EXPAND1(REGROW_EXPAND1(REGROW_EXPAND1(__VA_ARGS__)))
#define REGROW_EXPAND1(...) __VA_ARGS__
#define REGROW_FOR_EACH(macro, ...) \
  __VA_OPT__(REGROW_EXPAND(REGROW_FOR_EACH_STEP(macro, __VA_ARGS__)))
#define REGROW_FOR_EACH_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(REGROW_FOR_EACH_AGAIN REGROW_PARENS(macro, __VA_ARGS__))
#define REGROW_FOR_EACH_AGAIN() REGROW_FOR_EACH_STEP

#define REGROW_VISIT_ONE(name) visitor(#name, self.name);
#define REGROW_STRING_ONE(name) #name,

// Inside a struct, after its members: the field list and member-wise equality.
#define REGROW_FIELDS(Type, ...)                                                              \
  static constexpr const char* kTypeName = #Type;                                             \
  template <class Self, class Visitor>                                                        \
  static void visit_fields([[maybe_unused]] Self& self, [[maybe_unused]] Visitor&& visitor) { \
    REGROW_FOR_EACH(REGROW_VISIT_ONE, __VA_ARGS__)                                            \
  }                                                                                           \
  friend bool operator==(const Type&, const Type&) = default;

// A scoped enum whose values are 0, 1, 2 ... in the order written, with their names. Append only.
#define REGROW_ENUM(Type, ...)                                                            \
  enum class Type : uint8_t { __VA_ARGS__ };                                              \
  inline constexpr auto Type##_names =                                                    \
      std::to_array<std::string_view>({REGROW_FOR_EACH(REGROW_STRING_ONE, __VA_ARGS__)}); \
  constexpr const auto& enum_names(Type) { return Type##_names; }

namespace regrow {

// An id that does not mix with ids of other kinds. `value` is the raw number or name.
template <class Tag, class T>
struct StrongId {
  using Underlying = T;
  T value{};
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  friend bool operator==(const StrongId&, const StrongId&) = default;
};

template <class T>
inline constexpr bool is_strong_id = false;
template <class Tag, class T>
inline constexpr bool is_strong_id<StrongId<Tag, T>> = true;

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <class T>
concept Reflected = requires {
  std::remove_cvref_t<T>::kTypeName;
};

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(E e) {
  enum_names(e);
};

// The name of an enum value; "?" for a number no name was given to.
template <NamedEnum E>
constexpr std::string_view to_string(E value) {
  auto index = static_cast<size_t>(value);
  return index < enum_names(value).size() ? enum_names(value)[index] : std::string_view("?");
}

// Finds an enum value by name. Returns false, and leaves `out` alone, for an unknown name.
template <NamedEnum E>
constexpr bool from_string(std::string_view name, E& out) {
  const auto& names = enum_names(E{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      out = static_cast<E>(i);
      return true;
    }
  }
  return false;
}

}  // namespace regrow

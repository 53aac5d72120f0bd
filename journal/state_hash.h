// A fingerprint of reflected values: equal contents, equal hash, on every platform and in every
// run.
//
//   uint64_t fingerprint = hash_of(job_state);
//   uint64_t layout = layout_hash<AnyState>();   // changes when a field is added, renamed or
//   retyped
//
// Fields count in the order in which they are listed. A string or vector counts with its length, a
// variant with its index; all NaNs are the same NaN. Any thread; no state.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "journal/checksum.h"
#include "journal/reflect_common.h"

namespace regrow {

inline void add_number(uint64_t number, std::string& out) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  out.append(bytes, sizeof(bytes));
}

// Appends `value` in the canonical form that is hashed.
template <class T>
void add_canonical(const T& value, std::string& out) {
  using P = Plain<T>;
  const P& raw = plain(value);
  if constexpr (std::is_same_v<P, std::monostate>) {
    return;
  } else if constexpr (std::is_floating_point_v<P>) {
    add_number(std::isnan(raw) ? ~0ull : std::bit_cast<uint64_t>(static_cast<double>(raw)), out);
  } else if constexpr (std::is_enum_v<P> || std::is_integral_v<P>) {
    add_number(static_cast<uint64_t>(raw), out);
  } else if constexpr (std::is_same_v<P, std::string>) {
    add_number(raw.size(), out);
    out += raw;
  } else if constexpr (is_vector<P>) {
    add_number(raw.size(), out);
    for (const auto& element : raw) add_canonical(element, out);
  } else if constexpr (is_variant<P>) {
    add_number(raw.index(), out);
    std::visit([&out](const auto& choice) { add_canonical(choice, out); }, raw);
  } else {
    P::visit_fields(raw, [&out](const char*, const auto& field) { add_canonical(field, out); });
  }
}

template <class T>
uint64_t hash_of(const T& value, uint64_t seed = 0) {
  std::string bytes;
  add_canonical(value, bytes);
  return xxh64(bytes, seed);
}

// Appends names and types of everything in T, depth first.
template <class T>
void add_layout(std::string& out) {
  using P = Plain<T>;
  if constexpr (std::is_same_v<P, std::monostate>) {
    out += "none ";
  } else if constexpr (NamedEnum<P>) {
    out += "enum(";
    for (auto name : enum_names(P{})) out.append(name) += ' ';
    out += ") ";
  } else if constexpr (std::is_arithmetic_v<P>) {
    out += std::is_floating_point_v<P> ? 'f' : std::is_signed_v<P> ? 'i' : 'u';
    out += std::to_string(sizeof(P)) + " ";
  } else if constexpr (std::is_same_v<P, std::string>) {
    out += "s ";
  } else if constexpr (is_vector<P>) {
    out += "list of ";
    add_layout<typename P::value_type>(out);
  } else if constexpr (is_variant<P>) {
    out += "one of(";
    [&]<class... A>(std::type_identity<std::variant<A...>>) {
      (add_layout<A>(out), ...);
    }(std::type_identity<P>{});
    out += ") ";
  } else {
    out += std::string(P::kTypeName) + "{";
    P probe{};
    P::visit_fields(probe, [&out](const char* name, auto& field) {
      out += std::string(name) + ":";
      add_layout<std::remove_cvref_t<decltype(field)>>(out);
    });
    out += "} ";
  }
}

template <class T>
uint64_t layout_hash() {
  std::string text;
  add_layout<T>(text);
  return xxh64(text);
}

}  // namespace regrow

// Converts any reflected struct (REGROW_FIELDS) to and from JSON. Any thread; no state.
//
//   nlohmann::json j = to_json(report);      // {"key": {"job": 7, ...}, "state": "running", ...}
//   RankReport back = from_json<RankReport>(j);
//
// Keys are the member names. Enums are their names, StrongId, Time, Duration (microseconds) and
// EntityId what they wrap, a std::variant {"kind": "rank_exited", ...its fields}, NaN null,
// infinities "Infinity" and "-Infinity". Reading: unknown keys are ignored, missing ones keep the
// member's default, a wrong type or an impossible value throws JsonError, which names the field
// ("spec.checkpoint.storage: ...").
#pragma once

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "journal/reflect_common.h"

namespace regrow {

struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
nlohmann::json to_json(const T& value) {
  using P = Plain<T>;
  const P& raw = plain(value);
  if constexpr (NamedEnum<P>) {
    return std::string(to_string(raw));
  } else if constexpr (std::is_floating_point_v<P>) {
    if (std::isnan(raw)) return nullptr;
    if (std::isinf(raw)) return raw > 0 ? "Infinity" : "-Infinity";
    return raw;
  } else if constexpr (std::is_arithmetic_v<P> || std::is_same_v<P, std::string>) {
    return raw;
  } else if constexpr (is_vector<P>) {
    auto out = nlohmann::json::array();
    for (const auto& element : raw) out.push_back(to_json<typename P::value_type>(element));
    return out;
  } else if constexpr (is_variant<P>) {
    return std::visit(
        []<class A>(const A& choice) {
          if constexpr (std::is_same_v<A, std::monostate>) {
            return nlohmann::json{{"kind", "unknown"}};
          } else {
            auto out = to_json(choice);
            out["kind"] = snake_case(A::kTypeName);
            return out;
          }
        },
        raw);
  } else {
    static_assert(Reflected<P>, "not a type that can be reflected");
    auto out = nlohmann::json::object();
    P::visit_fields(raw,
                    [&out](const char* name, const auto& member) { out[name] = to_json(member); });
    return out;
  }
}

// Text of a JSON value for a person or a file; bytes that are not UTF-8 become U+FFFD instead of an
// exception. `indent` < 0: one line.
inline std::string dump_json(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace json_detail {

[[noreturn]] inline void fail(const std::string& where, const std::string& what) {
  throw JsonError((where.empty() ? std::string("value") : where) + ": " + what);
}
[[noreturn]] inline void wrong_type(const std::string& where, const char* wanted,
                                    const nlohmann::json& got) {
  fail(where, std::string("expected ") + wanted + ", got " + got.type_name());
}

template <class P>
void read_integer(const nlohmann::json& from, P& out, const std::string& where) {
  bool fits = false;
  if (from.is_number_unsigned()) {
    fits = std::in_range<P>(from.get<uint64_t>());
  } else if (from.is_number_integer()) {
    fits = std::in_range<P>(from.get<int64_t>());
  } else {
    wrong_type(where, "a whole number", from);
  }
  if (!fits) fail(where, from.dump() + " is out of range");
  out = from.is_number_unsigned() ? static_cast<P>(from.get<uint64_t>())
                                  : static_cast<P>(from.get<int64_t>());
}

template <class T>
void read(const nlohmann::json& from, T& value, const std::string& where);

template <class V, size_t... I>
void read_variant(const nlohmann::json& from, V& value, const std::string& where,
                  std::index_sequence<I...>) {
  auto kind = from.find("kind");
  if (kind == from.end() || !kind->is_string()) fail(where, "\"kind\" is missing");
  auto name = kind->get<std::string>();
  auto matches = [&]<size_t J>() {
    using A = std::variant_alternative_t<J, V>;
    if constexpr (std::is_same_v<A, std::monostate>) {
      return false;
    } else {
      if (name != snake_case(A::kTypeName)) return false;
      read(from, value.template emplace<J>(), where);
      return true;
    }
  };
  if (!(matches.template operator()<I>() || ...)) fail(where, "unknown kind \"" + name + "\"");
}

template <class T>
void read(const nlohmann::json& from, T& value, const std::string& where) {
  using P = Plain<T>;
  P& raw = plain(value);
  if constexpr (std::is_same_v<P, bool>) {
    if (!from.is_boolean()) wrong_type(where, "true or false", from);
    raw = from.get<bool>();
  } else if constexpr (NamedEnum<P>) {
    if (!from.is_string()) wrong_type(where, "a name", from);
    auto name = from.get<std::string>();
    if (!from_string(name, raw)) {
      std::string known;
      for (auto candidate : enum_names(P{}))
        known += (known.empty() ? "" : ", ") + std::string(candidate);
      fail(where, "unknown name \"" + name + "\", known are: " + known);
    }
  } else if constexpr (std::is_integral_v<P>) {
    read_integer(from, raw, where);
  } else if constexpr (std::is_floating_point_v<P>) {
    if (from.is_null())
      raw = std::numeric_limits<P>::quiet_NaN();
    else if (from == "Infinity")
      raw = std::numeric_limits<P>::infinity();
    else if (from == "-Infinity")
      raw = -std::numeric_limits<P>::infinity();
    else if (from.is_number())
      raw = from.get<P>();
    else
      wrong_type(where, "a number", from);
  } else if constexpr (std::is_same_v<P, std::string>) {
    if (!from.is_string()) wrong_type(where, "a string", from);
    raw = from.get<std::string>();
  } else if constexpr (is_vector<P>) {
    if (!from.is_array()) wrong_type(where, "a list", from);
    raw.clear();
    raw.reserve(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      typename P::value_type element{};
      read(from[i], element, where + "[" + std::to_string(i) + "]");
      raw.push_back(std::move(element));
    }
  } else if constexpr (is_variant<P>) {
    if (!from.is_object()) wrong_type(where, "an object", from);
    read_variant(from, raw, where, std::make_index_sequence<std::variant_size_v<P>>{});
  } else {
    static_assert(Reflected<P>, "not a type that can be reflected");
    if (!from.is_object()) wrong_type(where, "an object", from);
    P::visit_fields(raw, [&](const char* name, auto& member) {
      auto found = from.find(name);
      if (found != from.end()) read(*found, member, where.empty() ? name : where + "." + name);
    });
  }
}

}  // namespace json_detail

template <class T>
T from_json(const nlohmann::json& from) {
  T value{};
  json_detail::read(from, value, "");
  return value;
}

}  // namespace regrow

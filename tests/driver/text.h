// Values as text for people: transcripts and failure messages.
//
//   fields_text(event)   `inc=4 process=exited report={state=exited signal=9}`: what is not at its
//   default
#pragma once

#include <cmath>
#include <sstream>
#include <string>

#include "supervisors/events.h"
#include "supervisors/inputs.h"

namespace regrow::sim {

template <class T>
std::string value_text(const T& value);

// Fields that differ from a default-made value. `incarnation` is written `inc`.
template <Reflected T>
std::string fields_text(const T& value) {
  static const T blank{};
  std::string out;
  std::vector<std::string> defaults;
  T::visit_fields(blank,
                  [&](const char*, const auto& field) { defaults.push_back(value_text(field)); });
  size_t i = 0;
  T::visit_fields(value, [&](const char* name, const auto& field) {
    std::string text = value_text(field);
    if (text == defaults[i++]) return;
    std::string label = name;
    if (label == "incarnation") label = "inc";
    out += (out.empty() ? "" : " ") + label + "=" + text;
  });
  return out;
}

inline std::string seconds_text(int64_t us) {
  std::ostringstream out;
  if (us < 0) {
    out << '-';
    us = -us;
  }
  out << us / 1000000;
  if (us % 1000000 != 0) {
    std::string digits = std::to_string(1000000 + us % 1000000).substr(1);
    digits.erase(digits.find_last_not_of('0') + 1);
    out << '.' << digits;
  }
  return out.str() + "s";
}

template <class T>
std::string value_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_same_v<T, std::string>) {
    bool plain = !value.empty() && value.find_first_of(" =\"\n{}[],") == std::string::npos;
    if (plain) return value;
    std::string quoted = "\"";
    for (char c : value) quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
    return quoted + "\"";
  } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
    return seconds_text(value.us);
  } else if constexpr (std::is_same_v<T, EntityId>) {
    return value.path;
  } else if constexpr (std::is_same_v<T, IncarnationKey>) {
    return EntityId::rank(value.job, value.rank).path + "#" +
           std::to_string(value.incarnation.value);
  } else if constexpr (std::is_same_v<T, Placement>) {
    std::string text = std::to_string(value.rank.value) + ":" + value.host.value;
    for (const auto& d : value.devices) text += "/" + d.value;
    return text;
  } else if constexpr (NamedEnum<T>) {
    return std::string(to_string(value));
  } else if constexpr (is_strong_id<T>) {
    return value_text(value.value);
  } else if constexpr (is_vector<T>) {
    std::string text = "[";
    for (const auto& item : value) text += (text.size() == 1 ? "" : " ") + value_text(item);
    return text + "]";
  } else if constexpr (std::is_floating_point_v<T>) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    static_assert(Reflected<T>);
    return "{" + fields_text(value) + "}";
  }
}

template <class Variant>
std::string variant_fields(const Variant& v) {
  return std::visit([](const auto& x) { return fields_text(x); }, v);
}

inline std::string record_text(const EventRecord& r) {
  return seconds_text(r.at.us) + " #" + std::to_string(r.seq) + " " + r.entity.path + " " +
         event_name(r.event) + " " + variant_fields(r.event) + " -- " + r.reason;
}

inline const char* effect_name(const Effect& e) {
  return std::visit([](const auto& x) { return std::decay_t<decltype(x)>::kTypeName; }, e);
}

}  // namespace regrow::sim

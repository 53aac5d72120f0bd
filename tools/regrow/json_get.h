// Reads answers of a controller that may be a little older or newer than this program: what is
// missing, null or of another type becomes the default.
//
//   get<int64_t>(job, "step", -1)      get<std::string>(job, "name")
//
// Any thread; no state.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace regrow::cli {

using Json = nlohmann::json;

template <class T>
T get(const Json& object, const char* key, T fallback = {}) {
  if (!object.is_object()) return fallback;
  auto found = object.find(key);
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return found->is_number() ? found->template get<T>() : fallback;
  } else {
    return found->is_string() ? found->template get<T>() : fallback;
  }
}

// A member that is an object or a list; a shared empty one of null otherwise.
inline const Json& child(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

// The numbers of a list ("stop": [0, 1, 3]).
inline std::vector<uint64_t> numbers_of(const Json& list) {
  std::vector<uint64_t> out;
  if (!list.is_array()) return out;
  for (const auto& item : list) {
    if (item.is_number_integer()) out.push_back(item.get<uint64_t>());
  }
  return out;
}

// Text for a program or a file; bytes that are not UTF-8 become U+FFFD.
inline std::string dump(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace regrow::cli

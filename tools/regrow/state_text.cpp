#include "tools/regrow/state_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

constexpr int64_t kYear2001Us = 978307200000000;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_time(std::string_view name) {
  return name.ends_with("_at") || name.ends_with("_since") || name.ends_with("_us") ||
         one_of(name, {"at", "since", "not_before", "first_success"});
}
bool is_duration(std::string_view name) {
  return one_of(name, {"window", "healthy_for", "initial", "cap", "grace", "start", "progress",
                       "stop_grace", "finish", "host", "max_unreachable"});
}

std::string scalar_text(std::string_view name, const Json& value) {
  if (value.is_string())
    return value.get<std::string>().empty() ? "\"\"" : one_line(value.get<std::string>());
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) {
    auto number = value.get<int64_t>();
    if (is_time(name) && number == 0) return "-";
    if (is_time(name) && number > kYear2001Us) return date_time_text(number);
    if (is_duration(name)) return number == 0 ? "0" : span_text(number);
    if (name.ends_with("_bytes"))
      return number == 0 ? "0" : bytes_text(static_cast<uint64_t>(number));
  }
  return dump(value);
}

// Simple values fit on one line: [0, 1, 2].
bool is_flat(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& item) {
    return item.is_primitive() && (!item.is_string() || item.get<std::string>().size() < 32);
  });
}

void put(std::string& out, std::string_view name, const Json& value, size_t indent);

void put_members(std::string& out, const Json& object, size_t indent) {
  for (const auto& [key, member] : object.items()) put(out, key, member, indent);
}

void put_list(std::string& out, const Json& list, size_t indent) {
  for (const auto& item : list) {
    std::string text;
    if (item.is_object() && !item.empty()) {
      put_members(text, item, indent + 2);
      text[indent] = '-';
    } else {
      text = std::string(indent, ' ') + "- " + scalar_text("", item) + "\n";
    }
    out += text;
  }
}

void put(std::string& out, std::string_view name, const Json& value, size_t indent) {
  out.append(indent, ' ');
  out += name;
  out += ':';
  if (value.is_object() && !value.empty()) {
    out += '\n';
    put_members(out, value, indent + 2);
  } else if (value.is_array() && !value.empty() && !is_flat(value)) {
    out += '\n';
    put_list(out, value, indent + 2);
  } else if (value.is_string() && value.get<std::string>().find('\n') != std::string::npos) {
    out += " |\n";
    std::string text = lines_of(value.get<std::string>());
    if (text.back() != '\n') text += '\n';
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at) + 1;
      out.append(indent + 2, ' ');
      out += text.substr(at, end - at);
      at = end;
    }
  } else if (value.is_array()) {
    std::string items;
    for (const auto& item : value) items += (items.empty() ? "" : ", ") + scalar_text("", item);
    out += " [" + items + "]\n";
  } else {
    out += ' ' + scalar_text(name, value) + '\n';
  }
}

}  // namespace

std::string state_text(const Json& value, size_t indent) {
  std::string out;
  if (value.is_object()) {
    put_members(out, value, indent);
  } else if (value.is_array()) {
    put_list(out, value, indent);
  } else {
    out = std::string(indent, ' ') + scalar_text("", value) + "\n";
  }
  return out;
}

}  // namespace regrow::cli

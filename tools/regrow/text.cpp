#include "tools/regrow/text.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace regrow::cli {

namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char out[64];
  std::snprintf(out, sizeof out, pattern, args...);
  return out;
}

// Bytes of the UTF-8 character at `at`; 1 for a byte that begins none.
size_t character_bytes(std::string_view text, size_t at) {
  auto byte = static_cast<unsigned char>(text[at]);
  size_t want = byte < 0x80 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
  if (at + want > text.size()) return 1;
  for (size_t i = 1; i < want; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 1;
  }
  return want;
}

bool local_time(int64_t us, std::tm& parts) {
  std::time_t clock = static_cast<std::time_t>(us / 1000000);
  return localtime_r(&clock, &parts) != nullptr;
}

std::string time_text(int64_t us, const char* pattern) {
  std::tm parts{};
  if (us <= 0 || !local_time(us, parts)) return "-";
  char out[64];
  return std::string(out, std::strftime(out, sizeof out, pattern, &parts));
}

std::string without_controls(std::string_view text, bool keep_lines) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t bytes = character_bytes(text, i);
    auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls are two bytes in UTF-8: 0xc2 0x80 .. 0x9f.
    bool c1 = bytes == 2 && byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (keep_lines && (byte == '\n' || byte == '\t')) {
      out += text[i];
    } else if (byte == '\n') {
      if (i + 1 < text.size()) out += " / ";
    } else if (byte == '\t') {
      out += ' ';
    } else if (byte != '\r' || i + 1 >= text.size() || text[i + 1] != '\n') {
      bool odd = byte < 0x20 || byte == 0x7f || c1 || (bytes == 1 && byte >= 0x80);
      if (odd) {
        out += "\xef\xbf\xbd";  // U+FFFD
      } else {
        out.append(text.substr(i, bytes));
      }
    }
    i += bytes;
  }
  return out;
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); i += character_bytes(text, i)) ++width;
  return width;
}

std::string fit(std::string_view text, size_t width) {
  if (width == 0 || display_width(text) <= width) return std::string(text);
  size_t end = 0;
  for (size_t kept = 0; kept + 1 < width; ++kept) end += character_bytes(text, end);
  return std::string(text.substr(0, end)) + "…";
}

std::string one_line(std::string_view text) { return without_controls(text, false); }
std::string lines_of(std::string_view text) { return without_controls(text, true); }

std::string bytes_text(uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  return format(whole || unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string span_text(int64_t us) {
  if (us < 0) us = 0;
  if (us < 1000) return format("%d µs", static_cast<int>(us));
  if (us < 1000000) return format("%d ms", static_cast<int>(us / 1000));
  int64_t seconds = us / 1000000;
  if (seconds < 10) return format("%.1f s", static_cast<double>(us) / 1e6);
  if (seconds < 60) return format("%d s", static_cast<int>(seconds));
  if (seconds < 3600) {
    return format("%dm %02ds", static_cast<int>(seconds / 60), static_cast<int>(seconds % 60));
  }
  if (seconds < 86400) {
    return format("%dh %02dm", static_cast<int>(seconds / 3600),
                  static_cast<int>(seconds / 60 % 60));
  }
  return format("%dd %dh", static_cast<int>(seconds / 86400),
                static_cast<int>(seconds / 3600 % 24));
}

std::string step_text(double step_seconds) {
  if (step_seconds <= 0) return "";
  return span_text(static_cast<int64_t>(step_seconds * 1e6)) + "/step";
}

std::string clock_text(int64_t us) { return time_text(us, "%H:%M:%S"); }
std::string date_time_text(int64_t us) { return time_text(us, "%Y-%m-%d %H:%M:%S"); }

std::string count_text(uint64_t n, std::string_view word, std::string_view plural) {
  std::string out = std::to_string(n) + " ";
  if (n == 1) return out.append(word);
  return plural.empty() ? out.append(word) + "s" : out.append(plural);
}

std::string ranges_text(const std::vector<uint64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!out.empty()) out += ",";
    out += std::to_string(numbers[i]);
    if (last > i) out += (last == i + 1 ? "," : "-") + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace regrow::cli

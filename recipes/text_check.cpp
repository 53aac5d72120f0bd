#include "recipes/text_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace regrow {
namespace {

constexpr size_t kMostProblems = 5;
// The YAML scanner keeps a few hundred bytes for each of them, all at once if a bracket stays open.
constexpr std::string_view kStructure = "[]{},";
constexpr size_t kMostStructure = 250000;

std::string hex_byte(unsigned char byte) {
  static constexpr char kHex[] = "0123456789abcdef";
  return {'0', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

bool is_utf16_or_32(std::string_view text) {
  if (text.starts_with("\xFE\xFF") || text.starts_with("\xFF\xFE")) return true;
  // Without a byte order mark, ASCII in UTF-16 has a NUL in every second byte.
  return text.size() >= 4 && (text[0] == '\0') != (text[1] == '\0') &&
         (text[0] == '\0') == (text[2] == '\0') && (text[1] == '\0') == (text[3] == '\0');
}

// Finds tabs that stand where indentation is expected, line by line. The text of a block scalar
// (after
// `|` or `>`) may contain tabs once it is indented by spaces.
class TabCheck {
 public:
  // The column (from 1) of an offending tab.
  std::optional<int> column_in(std::string_view line) {
    size_t spaces = line.find_first_not_of(' ');
    if (spaces == std::string_view::npos) return std::nullopt;
    if (in_block_) {
      if (line[spaces] == '\r') return std::nullopt;
      if (spaces > block_indent_) return std::nullopt;
      in_block_ = false;
    }
    // "- " starts a nested block, so what follows it is indentation too.
    size_t at = spaces;
    while (at < line.size() && (line[at] == ' ' || is_dash(line, at))) ++at;
    if (at < line.size() && line[at] == '\t' && line.find_first_not_of("\t \r", at) != line.npos) {
      return static_cast<int>(at) + 1;
    }
    if (opens_block(line)) {
      in_block_ = true;
      block_indent_ = spaces;
    }
    return std::nullopt;
  }

 private:
  static bool is_dash(std::string_view line, size_t at) {
    return line[at] == '-' &&
           (at + 1 == line.size() || line[at + 1] == ' ' || line[at + 1] == '\t');
  }

  static bool opens_block(std::string_view line) {
    size_t comment = line.find(" #");
    if (comment != line.npos) line = line.substr(0, comment);
    size_t end = line.find_last_not_of(" \t\r");
    if (end == line.npos) return false;
    while (end > 0 &&
           (line[end] == '-' || line[end] == '+' || (line[end] >= '1' && line[end] <= '9'))) {
      --end;
    }
    return (line[end] == '|' || line[end] == '>') && (end == 0 || line[end - 1] == ' ');
  }

  bool in_block_ = false;
  size_t block_indent_ = 0;
};

// Why the character at text[at] may not stand in a recipe; empty = it may.
std::string refuse_character(std::string_view text, size_t at, size_t length) {
  auto byte = static_cast<unsigned char>(text[at]);
  if (length == 0) return "not UTF-8: byte " + hex_byte(byte) + "; save the file as UTF-8";
  if (byte == 0) return "a NUL byte: this is no text file";
  if (byte == '\r' && (at + 1 >= text.size() || text[at + 1] != '\n')) {
    return "a carriage return without a line feed; end lines with a line feed";
  }
  bool blank = byte == '\n' || byte == '\t' || byte == '\r';
  if ((byte < 0x20 && !blank) || byte == 0x7F) return "control character " + hex_byte(byte);
  return {};
}

}  // namespace

size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (at >= text.size()) return 0;
  uint32_t first = byte(at), second = byte(at + 1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!follows(at + 1) || !follows(at + 2)) return 0;
    bool overlong = first == 0xE0 && second < 0xA0;
    bool surrogate = first == 0xED && second >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!follows(at + 1) || !follows(at + 2) || !follows(at + 3)) return 0;
    bool overlong = first == 0xF0 && second < 0x90;
    bool beyond = first == 0xF4 && second >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::vector<YamlProblem> check_text(std::string_view text) {
  std::vector<YamlProblem> problems;
  if (is_utf16_or_32(text)) {
    return {{{1, 1}, "", "not UTF-8: this looks like UTF-16; save the file as UTF-8", ""}};
  }
  TabCheck tabs;
  int line = 1;
  size_t at = 0, structure = 0;
  while (at < text.size() && problems.size() < kMostProblems) {
    size_t end = std::min(text.find('\n', at), text.size());
    int column = 1;
    for (size_t i = at; i <= end && i < text.size(); ++column) {
      size_t length = utf8_length(text, i);
      std::string why = refuse_character(text, i, length);
      if (kStructure.find(text[i]) != text.npos && ++structure > kMostStructure) {
        why = "more brackets and commas than any recipe can need; giving up here";
      }
      if (!why.empty()) {
        // What follows a wrong byte is noise: one report is enough.
        problems.push_back({{line, column}, "", why, ""});
        return problems;
      }
      i += length;
    }
    if (auto tab = tabs.column_in(text.substr(at, end - at))) {
      problems.push_back({{line, *tab}, "", "a tab in the indentation; use spaces", ""});
    }
    at = end + 1;
    ++line;
  }
  return problems;
}

}  // namespace regrow

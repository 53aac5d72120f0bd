#include "recipes/diagnostic.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace regrow {
namespace {

// Longer words are no typos, and the distance costs length times length.
constexpr size_t kLongestTypo = 48;

char fold(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

// Edits (insert, delete, replace, swap of neighbours) from a to b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = fold(a[i - 1]) == fold(b[j - 1]) ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string to_string(const Diagnostic& diagnostic) {
  std::string text = diagnostic.file;
  if (diagnostic.line > 0) {
    text += ":" + std::to_string(diagnostic.line) + ":" + std::to_string(diagnostic.column);
  }
  text += ": ";
  if (!diagnostic.key_path.empty()) text += diagnostic.key_path + ": ";
  text += diagnostic.message;
  if (!diagnostic.hint.empty()) text += " (did you mean '" + diagnostic.hint + "'?)";
  return text;
}

std::string to_string(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) text += to_string(diagnostic) + "\n";
  return text;
}

std::string printable(std::string_view text, size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  size_t end = std::min(text.size(), limit);
  // Never cut a UTF-8 character in two.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  for (char c : text.substr(0, end)) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  if (end < text.size()) out += "...";
  return out;
}

std::string_view nearest_name(std::string_view word,
                              const std::vector<std::string_view>& candidates) {
  if (word.empty() || word.size() > kLongestTypo) return {};
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (std::string_view candidate : candidates) {
    size_t allowed = std::max<size_t>(1, std::min(word.size(), candidate.size()) / 3);
    size_t gap = word.size() > candidate.size() ? word.size() - candidate.size()
                                                : candidate.size() - word.size();
    if (gap > allowed) continue;
    size_t distance = edit_distance(word, candidate);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace regrow

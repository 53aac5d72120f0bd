// Numbers, times and foreign text as words for a person. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regrow::cli {

// Columns on a terminal: one per character of valid UTF-8, one per stray byte.
size_t display_width(std::string_view text);

// At most `width` columns, the last one "…" if something was cut. 0 = no limit.
std::string fit(std::string_view text, size_t width);

// One line without control characters: a process chose some of these bytes, and they must not reach
// the terminal as commands. Line ends become " / ".
std::string one_line(std::string_view text);

// The same, but keeps line ends and tabs: for tracebacks.
std::string lines_of(std::string_view text);

std::string bytes_text(uint64_t bytes);      // "80 GiB", "1.5 MiB", "17 B"
std::string span_text(int64_t us);           // "48 ms", "2.4 s", "3m 12s", "5h 02m", "4d 3h"
std::string step_text(double step_seconds);  // "48 ms/step", "2.4 s/step"

// Local time. "-" for 0.
std::string clock_text(int64_t us);      // "22:48:01"
std::string date_time_text(int64_t us);  // "2026-11-30 22:48:01"

// "1 rank", "4 ranks"; `plural` for words that need another ending.
std::string count_text(uint64_t n, std::string_view word, std::string_view plural = {});

// "0-3,7": rank numbers in ascending order.
std::string ranges_text(const std::vector<uint64_t>& numbers);

}  // namespace regrow::cli

// Lines that scroll and, on a terminal, one line at the bottom that is rewritten in place.
//
// Main's thread only.
#pragma once

#include <string>

#include "tools/regrow/terminal.h"

namespace regrow::cli {

class StatusLine {
 public:
  explicit StatusLine(const Terminal& terminal) : terminal_(terminal) {}
  ~StatusLine() { clear(); }

  bool live() const { return terminal_.live; }
  size_t width() const { return terminal_.width; }
  // Looks at the size of the window again.
  void resized();

  // A line above the status line. False if nobody reads any more.
  bool print(const std::string& line, Tone tone = Tone::plain);
  // The status line; nothing without a terminal.
  void show(const std::string& text, Tone tone = Tone::plain);
  void clear();

 private:
  Terminal terminal_;
  std::string shown_;
};

}  // namespace regrow::cli

#include "tools/regrow/status_line.h"

#include "tools/regrow/cli.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

void StatusLine::resized() { terminal_.width = terminal_of(1).width; }

bool StatusLine::print(const std::string& line, Tone tone) {
  std::string before = shown_;
  clear();
  bool read = say(terminal_.paint(tone, line) + "\n");
  if (!before.empty() && read) read = say(before);
  shown_ = before;
  return read;
}

void StatusLine::show(const std::string& text, Tone tone) {
  if (!terminal_.live) return;
  // One column less: a full line would make some terminals scroll.
  std::string line =
      terminal_.paint(tone, fit(text, terminal_.width > 1 ? terminal_.width - 1 : 1));
  if (line == shown_) return;
  say("\r\033[K" + line);
  shown_ = line;
}

void StatusLine::clear() {
  if (shown_.empty()) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
  shown_.clear();
}

}  // namespace regrow::cli

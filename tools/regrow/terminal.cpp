#include "tools/regrow/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace regrow::cli {

std::string Terminal::paint(Tone tone, std::string_view text) const {
  std::string out(text);
  if (!colour || tone == Tone::plain || text.empty()) return out;
  const char* code = "0";
  switch (tone) {
    case Tone::good:
      code = "32";
      break;
    case Tone::warning:
      code = "33";
      break;
    case Tone::bad:
      code = "31";
      break;
    case Tone::quiet:
      code = "2";
      break;
    case Tone::strong:
      code = "1";
      break;
    case Tone::plain:
      break;
  }
  return std::string("\033[") + code + "m" + out + "\033[0m";
}

Terminal terminal_of(int fd) {
  Terminal terminal;
  if (isatty(fd) == 0) return terminal;
  const char* term = std::getenv("TERM");
  bool dumb = term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
  const char* no_colour = std::getenv("NO_COLOR");
  terminal.live = !dumb;
  terminal.colour = !dumb && (no_colour == nullptr || *no_colour == '\0');
  winsize size{};
  terminal.width = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return terminal;
}

}  // namespace regrow::cli

// What stdout is: a terminal with a width and perhaps colours, or a pipe or file that gets plain
// lines.
//
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>

namespace regrow::cli {

enum class Tone { plain, good, warning, bad, quiet, strong };

struct Terminal {
  bool live = false;    // lines may be rewritten in place
  bool colour = false;  // never without a terminal; NO_COLOR and TERM=dumb are obeyed
  size_t width = 0;     // 0 = do not cut lines

  std::string paint(Tone tone, std::string_view text) const;
};

// Of descriptor 1 or 2. Cheap: ask again after the window was resized.
Terminal terminal_of(int fd);

}  // namespace regrow::cli

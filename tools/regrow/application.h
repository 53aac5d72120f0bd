// The whole command line: arguments in, exit code out. Used by main and, for the commands that it
// lends out, by the shell.
//
// Main's thread; may be called again from inside a command.
#pragma once

#include <string>
#include <vector>

namespace regrow::cli {

// Without the program's name: {"jobs", "-o", "json"}. Never throws.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace regrow::cli

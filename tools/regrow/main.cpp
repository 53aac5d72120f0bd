// The regrow command.
#include <csignal>
#include <string>
#include <vector>

#include "tools/regrow/application.h"

int main(int argc, char** argv) {
  // A reader that closes the pipe (`regrow events | head`) is noticed when we write.
  std::signal(SIGPIPE, SIG_IGN);
  return regrow::cli::run_command_line(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

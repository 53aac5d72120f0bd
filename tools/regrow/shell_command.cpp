// shell: line editing, history and completion around ShellSession, or a script from -c or stdin.
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
// readline.h needs FILE from <cstdio>.
#include <readline/history.h>
#include <readline/readline.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/shell_session.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

constexpr int kHistoryLines = 1000;

// Readline's completion takes plain functions: this is what they work on. Set while the shell runs.
ShellSession* completing_session = nullptr;

char** complete_word(const char* text, int begin, int) {
  rl_attempted_completion_over = 1;  // never file names
  if (completing_session == nullptr) return nullptr;
  auto found = completing_session->complete(rl_line_buffer, static_cast<size_t>(begin), text);
  if (found.empty()) return nullptr;
  // Element 0 is what all have in common, then the candidates; readline frees all of it.
  std::string common = found[0];
  for (const auto& candidate : found) {
    size_t same = 0;
    while (same < common.size() && same < candidate.size() && common[same] == candidate[same])
      ++same;
    common.resize(same);
  }
  if (found.size() == 1) found.clear();
  auto** matches = static_cast<char**>(std::calloc(found.size() + 2, sizeof(char*)));
  if (matches == nullptr) return nullptr;
  matches[0] = strdup(common.c_str());
  for (size_t i = 0; i < found.size(); ++i) matches[i + 1] = strdup(found[i].c_str());
  return matches;
}

std::string history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string base;
  if (state != nullptr && *state == '/')
    base = state;
  else if (home != nullptr && *home == '/')
    base = std::string(home) + "/.local/state";
  else
    return "";
  std::error_code error;
  std::filesystem::create_directories(base + "/regrow", error);
  return error ? "" : base + "/regrow/shell_history";
}

// A failure is told and the shell goes on.
int execute_and_tell(ShellSession& session, const std::string& line) {
  try {
    return session.execute(line);
  } catch (const CommandFailed& failed) {
    complain(failed.error().message);
    return failed.error().exit_code;
  }
}

int run_terminal(Cli& cli, ShellSession& session) {
  ControllerInfo info = or_fail(cli.client().connect());
  say("cluster " + one_line(info.cluster_id) + ", you are " + one_line(info.who) + " (" +
      one_line(info.role) + "). help lists the commands, Tab completes.\n");
  completing_session = &session;
  rl_attempted_completion_function = complete_word;
  rl_basic_word_break_characters = " \t\n";
  std::string history = history_file();
  stifle_history(kHistoryLines);
  if (!history.empty()) read_history(history.c_str());
  while (!session.over()) {
    std::string prompt = "regrow " + session.here() + "> ";
    std::unique_ptr<char, decltype(&std::free)> line(readline(prompt.c_str()), &std::free);
    if (!line) {
      say("\n");
      break;
    }
    if (*line != '\0') add_history(line.get());
    execute_and_tell(session, line.get());
  }
  if (!history.empty() && write_history(history.c_str()) == 0) chmod(history.c_str(), 0600);
  completing_session = nullptr;
  return kExitOk;
}

// Scripts stop at the first command that fails, with its exit code.
int run_script(ShellSession& session, std::istream& script) {
  int code = kExitOk;
  for (std::string line; code == kExitOk && !session.over() && std::getline(script, line);) {
    code = execute_and_tell(session, line);
  }
  return code;
}

int run_shell(Cli& cli, const std::vector<std::string>& lines) {
  ShellSession session(cli);
  int code = kExitOk;
  for (const auto& line : lines) {
    if (code == kExitOk && !session.over()) code = execute_and_tell(session, line);
  }
  if (!lines.empty()) return code;
  if (isatty(0) == 0) return run_script(session, std::cin);
  return run_terminal(cli, session);
}

}  // namespace

void add_shell_command(CLI::App& app, Cli& cli) {
  auto lines = std::make_shared<std::vector<std::string>>();
  auto* command =
      add_command(app, cli,
                  {"shell", "Looking", "Walks the tree of supervisors: states, decisions, reasons",
                   "regrow shell\nregrow shell -c 'cd job/7' -c why\n"
                   "echo tree | regrow shell"});
  command
      ->add_option("-c,--command", *lines, "Run this instead of asking; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  on_run(command, cli, [&cli, lines] { return run_shell(cli, *lines); });
}

}  // namespace regrow::cli

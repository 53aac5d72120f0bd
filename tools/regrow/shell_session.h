// The commands of `regrow shell`: a walk over the tree of supervisors.
//
//   ShellSession session(cli);
//   session.execute("cd job/7");  session.execute("why");
//
// Main's thread. No terminal is needed; shell_command.cpp adds line editing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/regrow/cli.h"

namespace regrow::cli {

class ShellSession {
 public:
  explicit ShellSession(Cli& cli) : cli_(cli) {}

  // One line. Throws CommandFailed. Returns the exit code of the command; `quit` sets over().
  int execute(const std::string& line);
  bool over() const { return over_; }
  const std::string& here() const { return here_; }

  // What the word that begins at `begin` of `line` could become: commands for the first word, else
  // entities. Empty when the controller cannot be asked.
  std::vector<std::string> complete(std::string_view line, size_t begin, std::string_view word);

 private:
  struct Command {
    const char* name;
    const char* arguments;
    const char* about;
    int (ShellSession::*run)(const std::vector<std::string>& words);
  };
  static const std::vector<Command>& commands();

  int list(const std::vector<std::string>& words);
  int change(const std::vector<std::string>& words);
  int where(const std::vector<std::string>& words);
  int show(const std::vector<std::string>& words);
  int why(const std::vector<std::string>& words);
  int actor(const std::vector<std::string>& words);
  int events(const std::vector<std::string>& words);
  int tree(const std::vector<std::string>& words);
  int help(const std::vector<std::string>& words);
  int quit(const std::vector<std::string>& words);

  // The entity that the first argument names, from here; without one, here.
  std::string target(const std::vector<std::string>& words);
  std::string resolve(const std::string& text);
  Json ask(const std::string& entity);
  Json children_of(const std::string& entity);
  std::vector<std::string> known_entities(std::string_view word);
  void add_tree(std::string& out, const std::string& entity, const std::string& summary,
                size_t depth, size_t& lines);

  Cli& cli_;
  std::string here_ = "cluster";
  bool over_ = false;
};

// Words of a line; "..." keeps blanks together.
std::vector<std::string> split_words(const std::string& line);

}  // namespace regrow::cli

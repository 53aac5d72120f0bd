// What all commands share: global options, the connection to the controller, output, failure.
//
// A command family is one function that adds its commands to the parser (commands.h). Parsing only
// stores what to do in `action`; main runs it afterwards, so that a failure of a command is never
// mistaken for one of the command line.
//
//   void add_job_commands(CLI::App& app, Cli& cli) {
//     auto* jobs = add_command(app, cli, {"jobs", "Jobs", "Lists the jobs", "regrow jobs"});
//     on_run(jobs, cli, [&cli] { return list_jobs(cli); });
//   }
//
// Main's thread only.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/regrow/cluster_rule.h"
#include "tools/regrow/json_get.h"
#include "tools/regrow/terminal.h"
#include "transport/admin_client.h"
#include "transport/result.h"

namespace CLI {
class App;
}

namespace regrow::cli {

inline constexpr int kExitInterrupted =
    130;  // Ctrl-C or SIGTERM ended the command, not what it was about

// Ends a command: the message goes to stderr, the code to the caller.
class CommandFailed : public std::exception {
 public:
  explicit CommandFailed(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

[[noreturn]] inline void fail(int exit_code, std::string message) {
  throw CommandFailed({exit_code, std::move(message)});
}
template <class T>
T or_fail(Result<T> result) {
  if (!result) throw CommandFailed(result.error());
  return std::move(*result);
}

class Cli {
 public:
  std::string cluster;            // --cluster
  std::string certs;              // --certs
  std::string output = "table";   // -o
  std::vector<std::string> tail;  // what follows `--`
  bool has_tail = false;
  std::function<int()> action;
  Terminal terminal;  // of stdout

  bool json() const { return output == "json"; }

  // The controller by the rule of cluster_rule.h; connects with the first question.
  AdminClient& client();
  // For a further client (a watch beside questions), with its own patience.
  AdminClientOptions client_options();

  // Answers, or CommandFailed with the controller's own words.
  Json query(const std::string& what, const Json& args = Json::object());
  Json act(const std::string& what, const Json& args, const std::string& reason);

 private:
  std::unique_ptr<AdminClient> client_;
};

// --- output
// ---------------------------------------------------------------------------------------

// To stdout. False if nobody reads any more (a closed pipe): stop, that is no failure.
bool say(const std::string& text);
void complain(const std::string& text);  // one line to stderr

// The controller's answer to an action: its message, or all of it as JSON. Returns kExitOk.
int print_answer(const Cli& cli, const Json& answer);

// --- adding commands
// ------------------------------------------------------------------------------

struct CommandText {
  const char* name;
  const char* group;    // heading in `regrow --help`
  const char* about;    // one line
  const char* example;  // shown after "Example:"; may have several lines
};
// With --help and the example. `reaches` = talks to a controller: --cluster, --certs; `prints` =
// -o.
CLI::App* add_command(CLI::App& parent, Cli& cli, const CommandText& text, bool reaches = true,
                      bool prints = true);
void on_run(CLI::App* command, Cli& cli, std::function<int()> run);

// --- what people write
// ----------------------------------------------------------------------------

// "7" or "job/7".
uint64_t parse_job(const std::string& text);
// "7" → job/7, "7/3" → rank/7/3, "h1" → host/h1, "h1/sim0" → device/h1/sim0; full paths as they
// are.
std::string parse_entity(const std::string& text);
// "KILL", "SIGKILL", "9".
int parse_signal(const std::string& text);
// "5s", "500ms", "2m", "1.5"; seconds without a unit.
double parse_seconds(const std::string& text);

}  // namespace regrow::cli

#include "tools/regrow/application.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/diagnostic.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"

#ifndef REGROW_VERSION
#define REGROW_VERSION "0.0.0"
#endif

namespace regrow::cli {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 fine, 1 the job or the operation failed, 2 wrong usage or recipe, 3 the "
    "controller\n"
    "cannot be reached, 4 not allowed; 130 interrupted.\n"
    "Example:\n"
    "  regrow dev                     a cluster on this machine; leave it running\n"
    "  regrow run recipe.yaml         in another terminal: a job on it, with a progress bar";

void add_commands(CLI::App& app, Cli& cli) {
  add_run_commands(app, cli);
  add_recipe_commands(app, cli);
  add_list_commands(app, cli);
  add_show_commands(app, cli);
  add_log_commands(app, cli);
  add_act_commands(app, cli);
  add_fault_commands(app, cli);
  add_shell_command(app, cli);
  add_dev_command(app, cli);
  add_service_commands(app, cli);
  add_cert_commands(app, cli);
  add_journal_commands(app, cli);
}

// `regrow run -- CMD...`: what follows `--` is not ours to parse.
std::vector<std::string> split_tail(std::vector<std::string> arguments, Cli& cli) {
  bool takes_command = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    takes_command = takes_command || arguments[i] == "run" || arguments[i] == "submit";
    if (arguments[i] != "--" || !takes_command) continue;
    cli.has_tail = true;
    cli.tail.assign(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
    arguments.resize(i);
    break;
  }
  // `regrow help jobs` as well as `regrow jobs --help`.
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  return arguments;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// The word that was meant to be a command of `app`, if that is what went wrong.
std::string misspelt(const CLI::App& app, const std::vector<std::string>& arguments) {
  auto names = command_names(app);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--cluster" || word == "--certs" || word == "-o" || word == "--output") {
      ++i;
    } else if (!word.starts_with("-")) {
      return std::find(names.begin(), names.end(), word) == names.end() ? word : "";
    }
  }
  return "";
}

std::string suggestion(const CLI::App& app, const std::string& word) {
  auto names = command_names(app);
  std::vector<std::string_view> views(names.begin(), names.end());
  std::string nearest(nearest_name(word, views));
  return nearest.empty() ? "" : " (did you mean `" + nearest + "`?)";
}

int explain_usage(CLI::App& app, const CLI::ParseError& error,
                  const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  std::string path = "regrow";
  std::vector<std::string> rest = arguments;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
    auto found = std::find(rest.begin(), rest.end(), at->get_name());
    if (found != rest.end()) rest.erase(rest.begin(), found + 1);
  }
  bool needs_command = at->get_require_subcommand_min() > 0;
  std::string word = needs_command ? misspelt(*at, rest) : "";
  if (!word.empty()) {
    complain(path + ": there is no command \"" + printable(word) + "\"" + suggestion(*at, word));
  } else if (needs_command && rest.empty()) {
    complain(path + ": say what to do");
  } else {
    complain(path + ": " + error.what());
  }
  complain("`" + path + " --help` lists what it knows, with an example.");
  return kExitUsage;
}

int run_action(Cli& cli) {
  try {
    return cli.action ? cli.action() : kExitUsage;
  } catch (const CommandFailed& failed) {
    complain("regrow: " + failed.error().message);
    return failed.error().exit_code;
  } catch (const std::exception& unexpected) {
    complain(std::string("regrow: unexpected error: ") + unexpected.what());
    return kExitJobFailed;
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& all_arguments) {
  Cli cli;
  cli.terminal = terminal_of(1);
  CLI::App app("regrow keeps a training job going when its hardware does not.", "regrow");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", std::string("regrow ") + REGROW_VERSION,
                       "Print the version and exit");
  app.add_option("--cluster", cli.cluster, "Address or state directory of the controller");
  app.add_option("--certs", cli.certs, "Certificate for a controller reached by TCP");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(26);
  add_commands(app, cli);

  auto arguments = split_tail(all_arguments, cli);
  try {
    auto reversed = arguments;
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return explain_usage(app, error, arguments);
  }
  return run_action(cli);
}

}  // namespace regrow::cli

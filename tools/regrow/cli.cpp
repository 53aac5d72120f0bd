#include "tools/regrow/cli.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>

#include "tools/regrow/text.h"

#ifndef REGROW_VERSION
#define REGROW_VERSION "0.0.0"
#endif

namespace regrow::cli {

AdminClientOptions Cli::client_options() {
  auto choice = or_fail(choose_cluster(hints_of_this_process(cluster, certs)));
  AdminClientOptions options;
  options.address = choice.address;
  options.tls = choice.tls;
  options.version = REGROW_VERSION;
  return options;
}

AdminClient& Cli::client() {
  if (!client_) client_ = std::make_unique<AdminClient>(client_options());
  return *client_;
}

Json Cli::query(const std::string& what, const Json& args) {
  return or_fail(client().query(what, args));
}

Json Cli::act(const std::string& what, const Json& args, const std::string& reason) {
  return or_fail(client().act(what, args, reason));
}

bool say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  if (errno != EPIPE)
    fail(kExitJobFailed, std::string("cannot write the answer: ") + std::strerror(errno));
  return false;
}

void complain(const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", text.c_str());
}

int print_answer(const Cli& cli, const Json& answer) {
  say(cli.json() ? dump(answer, 2) + "\n"
                 : one_line(get<std::string>(answer, "message", "done")) + "\n");
  return kExitOk;
}

CLI::App* add_command(CLI::App& parent, Cli& cli, const CommandText& text, bool reaches,
                      bool prints) {
  CLI::App* command = parent.add_subcommand(text.name, text.about);
  command->group(text.group);
  std::string example = text.example;
  for (size_t at = 0; (at = example.find('\n', at)) != std::string::npos; ++at)
    example.insert(at + 1, "  ");
  command->footer("Example:\n  " + example);
  command->set_help_flag("-h,--help", "Print this help and exit");
  if (reaches) {
    command->add_option(
        "--cluster", cli.cluster,
        "Address or state directory of the controller (default: $REGROW_CLUSTER, then "
        "~/.config/regrow/cluster, then your own default socket)");
    command->add_option("--certs", cli.certs, "Certificate for a controller reached by TCP");
  }
  if (prints) {
    command->add_option("-o,--output", cli.output, "table (for people) or json (for programs)")
        ->check(CLI::IsMember({"table", "json"}));
  }
  return command;
}

void on_run(CLI::App* command, Cli& cli, std::function<int()> run) {
  command->callback([&cli, run = std::move(run)] { cli.action = run; });
}

}  // namespace regrow::cli

// cancel, pause, resume, cordon, uncordon: what people want of jobs and hosts. Who asked and why is
// journaled.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"

namespace regrow::cli {
namespace {

struct DesiredCommand {
  CommandText text;
  const char* desired;
};

void add_desired_command(CLI::App& app, Cli& cli, const DesiredCommand& what) {
  struct Options {
    std::string job;
    std::string reason;
  };
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, cli, what.text);
  command->add_option("JOB", options->job, "Number of the job")->required();
  command->add_option("--reason", options->reason, "Why; stands in the journal beside your name");
  on_run(command, cli, [&cli, options, desired = std::string(what.desired)] {
    Json args{{"job", parse_job(options->job)}, {"desired", desired}};
    return print_answer(cli, cli.act("set_desired", args, options->reason));
  });
}

void add_host_command(CLI::App& app, Cli& cli, const CommandText& text, const char* admin,
                      bool needs_reason) {
  struct Options {
    std::string host;
    std::string reason;
  };
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, cli, text);
  command->add_option("HOST", options->host, "Name of the host")->required();
  auto* reason = command->add_option("--reason", options->reason, "Why; shown by `regrow hosts`");
  if (needs_reason) reason->required();
  on_run(command, cli, [&cli, options, admin = std::string(admin)] {
    Json args{{"host", options->host}, {"admin", admin}};
    return print_answer(cli, cli.act("host_admin", args, options->reason));
  });
}

}  // namespace

void add_act_commands(CLI::App& app, Cli& cli) {
  add_desired_command(
      app, cli,
      {{"cancel", "Steering", "Ends a job for good", "regrow cancel 7 --reason \"wrong data\""},
       "cancel"});
  add_desired_command(
      app, cli,
      {{"pause", "Steering", "Stops a job's ranks and gives its devices back until it is resumed",
        "regrow pause 7 --reason \"make room\""},
       "pause"});
  add_desired_command(
      app, cli,
      {{"resume", "Steering", "Lets a paused or held job go on from its newest checkpoint",
        "regrow resume 7"},
       "run"});
  add_host_command(app, cli,
                   {"cordon", "Steering", "Places nothing new on a host; what runs there goes on",
                    "regrow cordon h3 --reason \"fan is loud\""},
                   "cordoned", true);
  add_host_command(app, cli, {"uncordon", "Steering", "Uses a host again", "regrow uncordon h3"},
                   "in_service", false);
}

}  // namespace regrow::cli

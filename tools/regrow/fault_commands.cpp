// fault device | kill-rank | cut-link: trouble on purpose, to see what regrow makes of it.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"

namespace regrow::cli {
namespace {

constexpr char kReason[] = "fault injection";

void add_device_fault(CLI::App& fault, Cli& cli) {
  struct Options {
    std::string host;
    std::string device;
    std::string text = "simulated fault";
    bool heal = false;
  };
  auto o = std::make_shared<Options>();
  auto* command = add_command(fault, cli,
                              {"device", "Faults", "Makes a simulated device faulty, or heals it",
                               "regrow fault device h1 sim0\nregrow fault device h1 sim0 --heal"});
  command->add_option("HOST", o->host, "Name of the host")->required();
  command->add_option("DEVICE", o->device, "Name of the device, as `regrow devices` lists it")
      ->required();
  auto* text = command->add_option("--text", o->text, "What the device reports");
  command->add_flag("--heal", o->heal, "It works again")->excludes(text);
  on_run(command, cli, [&cli, o] {
    if (!o->heal && o->text.empty())
      fail(kExitUsage, "--text is empty; --heal makes the device work again");
    Json args{{"host", o->host}, {"device", o->device}, {"fault", o->heal ? "" : o->text}};
    return print_answer(cli, cli.act("fault_device", args, kReason));
  });
}

void add_kill_rank(CLI::App& fault, Cli& cli) {
  struct Options {
    std::string job;
    uint32_t rank = 0;
    std::string signal = "KILL";
  };
  auto o = std::make_shared<Options>();
  auto* command =
      add_command(fault, cli,
                  {"kill-rank", "Faults", "Sends a rank's process a signal, as a stranger would",
                   "regrow fault kill-rank 7 2\nregrow fault kill-rank 7 2 --signal STOP"});
  command->add_option("JOB", o->job, "Number of the job")->required();
  command->add_option("RANK", o->rank, "Number of the rank")->required();
  command->add_option("--signal", o->signal, "Name or number");
  on_run(command, cli, [&cli, o] {
    Json args{{"job", parse_job(o->job)}, {"rank", o->rank}, {"signal", parse_signal(o->signal)}};
    return print_answer(cli, cli.act("fault_kill_rank", args, kReason));
  });
}

void add_cut_link(CLI::App& fault, Cli& cli) {
  struct Options {
    std::string host;
    std::string time = "5s";
  };
  auto o = std::make_shared<Options>();
  auto* command =
      add_command(fault, cli,
                  {"cut-link", "Faults", "Cuts the connection between a host and the controller",
                   "regrow fault cut-link h2 --for 5s"});
  command->add_option("HOST", o->host, "Name of the host")->required();
  command->add_option("--for", o->time, "How long: 500ms, 5s, 2m");
  on_run(command, cli, [&cli, o] {
    Json args{{"host", o->host}, {"seconds", parse_seconds(o->time)}};
    return print_answer(cli, cli.act("fault_cut_link", args, kReason));
  });
}

}  // namespace

void add_fault_commands(CLI::App& app, Cli& cli) {
  auto* fault =
      add_command(app, cli,
                  {"fault", "Faults", "Makes trouble on purpose: a device, a rank, a link",
                   "regrow fault kill-rank 7 2"},
                  false, false);
  fault->require_subcommand(1);
  add_device_fault(*fault, cli);
  add_kill_rank(*fault, cli);
  add_cut_link(*fault, cli);
}

}  // namespace regrow::cli

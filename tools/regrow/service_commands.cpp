// controller and agent: the two services. They log to stderr and end with SIGTERM.
#include <sys/prctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "actors/agent/agent.h"
#include "actors/controller/controller.h"
#include "actors/controller/fault_points.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/dev_layout.h"

#ifndef REGROW_VERSION
#define REGROW_VERSION "0.0.0"
#endif

namespace regrow::cli {
namespace {

// `regrow dev` must never leave us behind, not even when it is killed: SIGTERM when it dies.
void end_with_parent(pid_t parent) {
  if (parent == 0) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) fail(kExitUsage, "the parent is gone already");
}

// Without a state directory it is the user's own controller, where commands look for it.
void choose_directory(ControllerOptions& controller) {
  ClusterHints hints = hints_of_this_process("", "");
  if (!controller.state_dir.empty()) {
    controller.state_dir = absolute_path(controller.state_dir);
    if (controller.listen.empty())
      controller.listen = {"unix:" + socket_of_state_directory(controller.state_dir, hints)};
    // Local commands find it by its directory; TCP addresses may be wildcards.
    for (const auto& text : controller.listen) {
      auto address = parse_address(text);
      if (!address || address->is_tcp()) continue;
      or_fail(announce_socket(controller.state_dir, to_string(*address)));
      break;
    }
    return;
  }
  controller.state_dir = or_fail(default_state_directory("controller"));
  if (!controller.listen.empty()) return;
  or_fail(make_user_directory(user_directory(hints), hints.uid));
  controller.listen = {"unix:" + user_directory(hints) + "/regrow.sock"};
}

void add_controller(CLI::App& app, Cli& cli) {
  struct Options {
    ControllerOptions controller;
    pid_t parent = 0;
    bool list_fault_points = false;
  };
  auto o = std::make_shared<Options>();
  auto* command = add_command(
      app, cli,
      {"controller", "Running a cluster", "The service that decides; one per cluster",
       "regrow controller             (your own one, found by your commands)\n"
       "regrow controller --state-dir /var/lib/regrow --listen unix:/run/regrow/regrow.sock \\\n"
       "                  --listen tcp:*:7400 --certs /etc/regrow/certs"},
      false, false);
  command->add_option("--state-dir", o->controller.state_dir,
                      "Journal and socket (default: ~/.local/state/regrow/controller, on your "
                      "default socket)");
  command
      ->add_option("--listen", o->controller.listen,
                   "unix:/path or tcp:HOST:PORT (default: DIR/regrow.sock)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--certs", o->controller.certs_dir,
                      "ca.pem, controller.pem, controller.key; needed for TCP");
  command
      ->add_option("--operator-uid", o->controller.operator_uids,
                   "A user who may act, besides you and root")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--agent-uid", o->controller.agent_uids, "A user who may attach a host")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--socket-for-all", o->controller.socket_for_all,
                    "Other users of this machine may look");
  command->add_flag("--recover-epoch", o->controller.recover_epoch,
                    "Go on with a journal that agents have shown to be an old copy, if no newer "
                    "one is left: numbers go on far above");
  command->add_option("--fault-points", o->controller.fault_points,
                      "For tests: NAME[@ENTITY][:COUNT][:throw],... (or REGROW_FAULT_POINTS)");
  command->add_flag("--list-fault-points", o->list_fault_points, "Print their names and exit");
  command->add_flag("--verbose", o->controller.verbose, "More in the log");
  command->add_option("--parent", o->parent, "End when this process ends")->group("");
  on_run(command, cli, [o] {
    if (o->list_fault_points) {
      for (auto name : kFaultPoints) say(std::string(name) + "\n");
      return kExitOk;
    }
    end_with_parent(o->parent);
    choose_directory(o->controller);
    o->controller.version = REGROW_VERSION;
    const char* points = std::getenv("REGROW_FAULT_POINTS");
    if (o->controller.fault_points.empty() && points != nullptr)
      o->controller.fault_points = points;
    return run_controller(o->controller);
  });
}

bool parse_ports(const std::string& text, uint32_t& first, uint32_t& last) {
  int end = 0;
  bool read = std::sscanf(text.c_str(), "%5u-%5u%n", &first, &last, &end) == 2;
  return read && static_cast<size_t>(end) == text.size() && first >= 1024 && first <= last &&
         last <= 65535;
}

void add_agent(CLI::App& app, Cli& cli) {
  struct Options {
    AgentOptions agent;
    std::string end_ranks;
    std::string ports;
    pid_t parent = 0;
  };
  auto o = std::make_shared<Options>();
  auto* command = add_command(
      app, cli,
      {"agent", "Running a cluster", "The service that runs ranks; one per host",
       "regrow agent --controller /var/lib/regrow\n"
       "regrow agent --controller tcp:10.0.0.1:7400 --certs /etc/regrow/certs --name h7 \\\n"
       "             --address 10.0.0.7 --state-dir /var/lib/regrow-agent --allow-user ann"},
      false, false);
  AgentOptions& a = o->agent;
  command
      ->add_option("--controller", a.controller,
                   "unix:/path, tcp:HOST:PORT, or the controller's state directory")
      ->required();
  command->add_option("--state-dir", a.state_dir,
                      "Identity and epoch; must survive a reboot (default: "
                      "~/.local/state/regrow/agent)");
  command->add_option("--run-dir", a.run_dir,
                      "Ranks and their logs; may go with a reboot (default: STATE_DIR/run)");
  command->add_option("--name", a.name, "This host's name in the cluster (default: the machine's)");
  command->add_option("--address", a.address,
                      "Where ranks on other hosts reach this one (default 127.0.0.1)");
  command->add_option("--certs", a.certs_dir,
                      "ca.pem, NAME.pem and NAME.key of this host; needed for TCP");
  command->add_option("--shim", a.shim,
                      "The regrow-shim to use (default: the one that came with this program)");
  command->add_option("--ports", o->ports, "Range for rendezvous, FIRST-LAST (default 20000-29999)")
      ->check(CLI::Validator(
          [](std::string& text) {
            uint32_t first = 0;
            uint32_t last = 0;
            return parse_ports(text, first, last) ? "" : "write FIRST-LAST, such as 20000-29999";
          },
          ""));
  command
      ->add_option(
          "--allow-user", a.allowed_users,
          "For an agent that runs as root: a user whose ranks it starts, by name or number; "
          "any = everybody but root (default: nobody). Not as root: its own user only")
      ->type_name("USER")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--sysroot", a.sysroot, "Simulated devices: DIR/devices/NAME");
  command->add_option("--boot-id-file", a.boot_id_file,
                      "Instead of the kernel's; for simulated hosts");
  command->add_option("--end-ranks", o->end_ranks,
                      "On SIGTERM end all ranks, with this grace, e.g. 10s (default: leave them)");
  command->add_flag("--verbose", a.verbose, "More in the log");
  command->add_option("--parent", o->parent, "End when this process ends")->group("");
  on_run(command, cli, [o] {
    AgentOptions& agent = o->agent;
    end_with_parent(o->parent);
    if (agent.name.empty()) {
      char name[256] = {};
      gethostname(name, sizeof name - 1);
      agent.name = name;
    }
    if (agent.shim.empty()) agent.shim = find_shim();
    if (agent.shim.empty())
      fail(kExitUsage,
           "regrow-shim is neither beside this program nor in ../libexec/regrow; name it with "
           "--shim");
    agent.shim = absolute_path(agent.shim);
    agent.rank_library = find_rank_library();
    agent.python_directory = find_python_directory();
    agent.controller = to_string(or_fail(address_of_value(agent.controller)));
    if (agent.state_dir.empty()) agent.state_dir = or_fail(default_state_directory("agent"));
    agent.state_dir = absolute_path(agent.state_dir);
    if (!agent.run_dir.empty()) agent.run_dir = absolute_path(agent.run_dir);
    if (!o->ports.empty()) parse_ports(o->ports, agent.first_port, agent.last_port);
    if (!o->end_ranks.empty())
      agent.end_ranks = Duration{static_cast<int64_t>(parse_seconds(o->end_ranks) * 1e6)};
    agent.version = REGROW_VERSION;
    return run_agent(agent);
  });
}

}  // namespace

void add_service_commands(CLI::App& app, Cli& cli) {
  add_controller(app, cli);
  add_agent(app, cli);
}

}  // namespace regrow::cli

// dev: a whole cluster on this machine, as real processes.
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "tools/regrow/child_keeper.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/dev_layout.h"
#include "tools/regrow/inbox.h"
#include "tools/regrow/job_view.h"
#include "tools/regrow/signals.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How long each may take to end by itself; together well below the ten seconds that scripts wait.
constexpr milliseconds kControllerEnds{3000};
constexpr milliseconds kAgentsEnd{4500};
constexpr milliseconds kSweep{1000};
constexpr seconds kSoonUp{3};        // from then on hosts that are not up are told, and why
constexpr char kRankGrace[] = "2s";  // of ranks when their host ends

// Asks the controller until all hosts are up: "ready" then, and before it, each second, which are
// not: "down h1 h3".
class ReadyWatch {
 public:
  ReadyWatch(AdminClientOptions options, std::vector<DevHost> hosts, Inbox<std::string>& inbox)
      : client_(std::move(options)),
        hosts_(std::move(hosts)),
        inbox_(inbox),
        thread_([this] { run(); }) {}
  ~ReadyWatch() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::set<std::string> not_up() {
    std::set<std::string> names;
    for (const DevHost& host : hosts_) names.insert(host.name);
    auto answer = client_.query("hosts", Json::object());
    if (!answer) return names;
    for (const auto& row : child(*answer, "hosts")) {
      if (get<std::string>(row, "link") == "up") names.erase(get<std::string>(row, "name"));
    }
    return names;
  }
  void run() {
    auto tell_at = Clock::now() + kSoonUp;
    while (!stop_) {
      auto down = not_up();
      if (down.empty()) {
        inbox_.push("ready");
        return;
      }
      if (Clock::now() >= tell_at) {
        std::string news = "down";
        for (const std::string& name : down) news += " " + name;
        inbox_.push(news);
        tell_at = Clock::now() + seconds(1);
      }
      std::this_thread::sleep_for(milliseconds(50));
    }
  }

  AdminClient client_;
  std::vector<DevHost> hosts_;
  Inbox<std::string>& inbox_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class Dev {
 public:
  Dev(Cli& cli, const DevOptions& options, DevLayout& layout)
      : cli_(cli),
        options_(options),
        layout_(layout),
        signals_({SIGINT, SIGTERM, SIGHUP, SIGCHLD}),
        keeper_([this](const std::string& text, bool fatal) { on_event(text, fatal); }) {}

  int run();

 private:
  ChildSpec controller() const;
  ChildSpec agent(const DevHost& host) const;
  void on_event(const std::string& text, bool fatal);
  void announce_ready();
  void tell_why_down(const std::string& names);
  // One turn of the loop. Returns true if a signal asked for the end.
  bool turn(Clock::time_point until);
  void end_all();
  bool wait_for_end(const std::string& name_prefix, milliseconds limit);

  Cli& cli_;
  const DevOptions& options_;
  DevLayout& layout_;
  SignalQueue signals_;
  ChildKeeper keeper_;
  Inbox<std::string> inbox_;
  std::map<std::string, std::string> told_;  // host -> why it is not up
  bool ready_ = false;
  bool failed_ = false;
  bool hurry_ = false;  // a second Ctrl-C
  int ended_by_ = 0;    // the signal
};

ChildSpec Dev::controller() const {
  ChildSpec spec;
  spec.name = "controller";
  spec.arguments = {"controller",
                    "--state-dir",
                    layout_.directory(),
                    "--listen",
                    "unix:" + layout_.socket(),
                    "--parent",
                    std::to_string(getpid())};
  if (options_.verbose) spec.arguments.push_back("--verbose");
  spec.log = layout_.directory() + "/controller.log";
  // Only once: a controller that is killed at the same point after each start would never come
  // back.
  if (!options_.fault_points.empty())
    spec.first_environment = {"REGROW_FAULT_POINTS=" + options_.fault_points};
  return spec;
}

ChildSpec Dev::agent(const DevHost& host) const {
  ChildSpec spec;
  spec.name = "agent " + host.name;
  spec.arguments = {"agent",
                    "--controller",
                    "unix:" + layout_.socket(),
                    "--name",
                    host.name,
                    "--address",
                    "127.0.0.1",
                    "--state-dir",
                    host.directory + "/state",
                    "--run-dir",
                    host.directory + "/run",
                    "--sysroot",
                    host.directory + "/sysroot",
                    "--boot-id-file",
                    host.directory + "/boot_id",
                    "--shim",
                    options_.shim,
                    "--end-ranks",
                    kRankGrace,
                    "--parent",
                    std::to_string(getpid())};
  // What one's own user may do anyway, root included.
  spec.arguments.insert(spec.arguments.end(), {"--allow-user", std::to_string(geteuid())});
  if (options_.verbose) spec.arguments.push_back("--verbose");
  spec.log = host.directory + "/agent.log";
  spec.pid_file = host.directory + "/agent.pid";
  return spec;
}

void Dev::on_event(const std::string& text, bool fatal) {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  complain(clock_text(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) + "  " +
           text);
  failed_ = failed_ || fatal;
}

void Dev::announce_ready() {
  ready_ = true;
  keeper_.all_ready();
  say("ready: " + count_text(options_.hosts, "host") + " (h1" +
      (options_.hosts > 1 ? " to h" + std::to_string(options_.hosts) : "") + ") with " +
      count_text(options_.devices_per_host, "simulated device") + " each\n" +
      "  state and logs   " + layout_.directory() + "\n");
  if (layout_.is_default()) {
    say("  reach it         regrow hosts    (your default cluster: commands find it by "
        "themselves)\n");
  } else {
    say("  reach it         export REGROW_CLUSTER=" + layout_.directory() + "\n");
  }
  say("  try it           regrow run recipes/examples/hello.yaml\n"
      "Ctrl-C ends it, ranks included; the next `regrow dev` goes on where this one ended.\n");
}

// What its agent said last is why a host is not up, such as a controller that refuses it.
void Dev::tell_why_down(const std::string& names) {
  for (const DevHost& host : layout_.hosts()) {
    if ((names + " ").find(" " + host.name + " ") == std::string::npos) continue;
    std::string log = host.directory + "/agent.log";
    std::string why = last_line(log);
    if (why.empty() || why == told_[host.name]) continue;
    told_[host.name] = why;
    on_event(host.name + " is not up yet; its agent: " + why + "\nall of it: " + log, false);
  }
}

bool Dev::turn(Clock::time_point until) {
  until = std::min(until, keeper_.next_start());
  auto wait = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {inbox_.fd(), POLLIN, 0}};
  poll(waits, 2, static_cast<int>(std::clamp<int64_t>(wait, 0, 60000)));
  bool asked = false;
  while (auto signal = signals_.take()) {
    if (*signal == SIGCHLD) continue;
    asked = true;
    ended_by_ = *signal;
  }
  keeper_.reap();
  if (!failed_ && !keeper_.start_due()) failed_ = true;
  for (const auto& news : inbox_.take()) {
    if (ready_) continue;
    if (news == "ready") announce_ready();
    if (news.starts_with("down ")) tell_why_down(news);
  }
  return asked;
}

bool Dev::wait_for_end(const std::string& name_prefix, milliseconds limit) {
  auto deadline = Clock::now() + limit;
  while (keeper_.running(name_prefix) && Clock::now() < deadline && !hurry_)
    hurry_ = turn(deadline);
  return !keeper_.running(name_prefix);
}

// The controller first: what happens to the ranks afterwards is no fault that it should act on. Its
// journal stays as it was, and the next start goes on from the newest checkpoints.
void Dev::end_all() {
  keeper_.stop_restarting();
  std::string why = ended_by_ == SIGTERM ? "SIGTERM: " : ended_by_ == SIGHUP ? "SIGHUP: " : "";
  if (ready_) complain(why + "ending the cluster and its ranks (Ctrl-C again: at once)");
  keeper_.signal("controller", SIGTERM);
  if (!wait_for_end("controller", kControllerEnds)) keeper_.signal("controller", SIGKILL);
  keeper_.signal("agent", SIGTERM);
  wait_for_end("agent", kAgentsEnd);
  // Whatever they left: orphans below us come to us.
  size_t left = kill_descendants(kSweep);
  keeper_.reap();
  if (left > 0) complain(count_text(left, "process", "processes") + " could not be ended");
}

int Dev::run() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  unsetenv("REGROW_FAULT_POINTS");
  keeper_.add(controller());
  for (const auto& host : layout_.hosts()) keeper_.add(agent(host));
  bool asked = !keeper_.start_due();
  {
    AdminClientOptions options;
    options.address = or_fail(parse_address("unix:" + layout_.socket()));
    options.connect_timeout = options.silence_limit = Duration::seconds(1);
    // Started after the children: the thread that spawns them first must be this one, and it is.
    ReadyWatch ready(options, layout_.hosts(), inbox_);
    while (!asked && !failed_) asked = turn(Clock::now() + seconds(60));
    if (asked) keeper_.stop_restarting();
  }
  end_all();
  return failed_ ? kExitJobFailed : kExitOk;
}

int run_dev(Cli& cli, DevOptions& options) {
  if (options.shim.empty()) options.shim = find_shim();
  if (options.shim.empty()) {
    fail(
        kExitUsage,
        "regrow-shim is neither beside this program nor in ../libexec/regrow; name it with --shim");
  }
  options.shim = absolute_path(options.shim);
  const char* points = std::getenv("REGROW_FAULT_POINTS");
  if (options.fault_points.empty() && points != nullptr) options.fault_points = points;
  DevLayout layout = or_fail(DevLayout::make(options, hints_of_this_process("", "")));
  return Dev(cli, options, layout).run();
}

}  // namespace

void add_dev_command(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<DevOptions>();
  auto* command = add_command(
      app, cli,
      {"dev", "Running a cluster", "A cluster on this machine: a controller and some hosts",
       "regrow dev\nregrow dev --hosts 8 --devices-per-host 4 --state-dir /tmp/second"},
      false, false);
  command->add_option("--hosts", options->hosts, "How many hosts, each an agent (default 4)")
      ->check(CLI::Range(1, 256));
  command
      ->add_option("--devices-per-host", options->devices_per_host,
                   "Simulated devices of each (default 2)")
      ->check(CLI::Range(0, 64));
  command->add_option("--state-dir", options->state_dir,
                      "Where it lives (default: one cluster per user, on your default socket)");
  command->add_option("--shim", options->shim,
                      "The regrow-shim to use (default: the one that came with this program)");
  command->add_option("--fault-points", options->fault_points,
                      "For tests: where the first controller is killed");
  command->add_flag("--verbose", options->verbose, "More in the logs");
  on_run(command, cli, [&cli, options] { return run_dev(cli, *options); });
}

}  // namespace regrow::cli

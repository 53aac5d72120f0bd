#include "actors/agent/agent_session.h"

#include <signal.h>

#include <algorithm>
#include <stdexcept>

#include "actors/agent/leftovers.h"
#include "actors/log.h"
#include "devices/device_tree.h"

namespace regrow {
namespace {

constexpr auto kDevicePause = 200 * kj::MILLISECONDS;
constexpr auto kStorePause = 1 * kj::SECONDS;
constexpr auto kProgressPause = 100 * kj::MILLISECONDS;  // at most ten times a second

RankRunnerOptions runner_options(const AgentOptions& options, const HostIdentity& state) {
  RankRunnerOptions runner;
  runner.host = {options.name};
  runner.uid = state.uid();
  runner.boot_id = state.boot_id();
  runner.address = options.address;
  runner.run_directory = options.run_dir;
  runner.state_directory = options.state_dir;
  runner.shim = options.shim;
  runner.rank_library = options.rank_library;
  runner.python_directory = options.python_directory;
  runner.temporary_root = options.temporary_root;
  if (auto allowed = AllowedUsers::parse(options.allowed_users)) runner.allowed_users = *allowed;
  runner.first_port = options.first_port;
  runner.last_port = options.last_port;
  return runner;
}

std::string describe(const RankReport& rank) {
  std::string text = "rank/" + std::to_string(rank.key.job.value) + "/" +
                     std::to_string(rank.key.rank.value) +
                     " inc=" + std::to_string(rank.key.incarnation.value) + " " +
                     std::string(to_string(rank.state));
  if (rank.state == ProcessState::running) text += " pid " + std::to_string(rank.pid);
  if (rank.state == ProcessState::exited) {
    text += rank.signal != 0 ? ", signal " + std::to_string(rank.signal)
                             : ", code " + std::to_string(rank.exit_code);
    if (rank.ended_by_us) text += rank.forced ? ", ended by us, by force" : ", ended by us";
  }
  if (!rank.message.empty()) text += ": " + rank.message;
  return text;
}

}  // namespace

AgentSession::AgentSession(KjLoop& loop, HostIdentity& state, const AgentOptions& options)
    : loop_(loop),
      state_(state),
      options_(options),
      runner_(
          loop.io().unixEventPort, loop.timer(), runner_options(options, state),
          [this](const RankReport& rank) { report_rank(rank); },
          [this](const JoinReport& join) { report_join(join); }),
      stores_(loop.io().unixEventPort, loop.timer(), runner_options(options, state)),
      tasks_(*this) {
  look_at_devices();
  for (const RankReport& rank : runner_.inventory()) log_info("taken over: " + describe(rank));
}

AgentSession::~AgentSession() noexcept = default;

void AgentSession::start(HostLinkClient& link) {
  link_ = &link;
  tasks_.add(watch_devices());
  tasks_.add(watch_progress());
  tasks_.add(watch_stores());
}

void AgentSession::taskFailed(kj::Exception&& exception) {
  log_error(std::string("agent: ") + exception.getDescription().cStr());
}

void AgentSession::report(HostReports reports) {
  if (link_ != nullptr) link_->report(std::move(reports));
}

void AgentSession::report_rank(const RankReport& rank) {
  log_info(describe(rank));
  HostReports reports;
  reports.ranks = {rank};
  report(std::move(reports));
}

void AgentSession::report_join(const JoinReport& join) {
  log_info("rank/" + std::to_string(join.key.job.value) + "/" +
           std::to_string(join.key.rank.value) + " joins generation " +
           std::to_string(join.generation.value) +
           (join.intact ? " with step " + std::to_string(join.step) : " without state"));
  HostReports reports;
  reports.joins = {join};
  report(std::move(reports));
}

AgentHello AgentSession::make_hello() {
  AgentHello hello;
  hello.name = {options_.name};
  hello.uid = state_.uid();
  hello.boot_id = state_.boot_id();
  hello.address = options_.address;
  hello.version = options_.version;
  hello.seen_epoch = state_.seen_epoch();
  hello.cluster_id = state_.cluster_id();
  for (const auto& [name, device] : devices_) hello.devices.push_back(device);
  hello.ranks = runner_.inventory();
  return hello;
}

std::string AgentSession::refuse(const std::string& cluster_id) {
  if (!state_.is_foreign(cluster_id)) return "";
  return "this host belongs to cluster " + state_.cluster_id() + " (" + state_.cluster_file() +
         " says so), and that controller is of cluster " + cluster_id +
         ": nothing is told to it and nothing obeyed. If cluster " + state_.cluster_id() +
         " is gone for good: end this agent and the ranks that still run here, remove " +
         options_.state_dir + " and " + options_.run_dir + ", and start the agent again";
}

void AgentSession::on_connected(SessionId session, const std::string& cluster_id,
                                const Epoch& epoch) {
  last_trouble_.clear();
  std::string refusal = state_.obey(cluster_id, epoch);
  if (!refusal.empty()) return log_error(refusal);  // its first command will end the connection
  log_info("connected to " + options_.controller + ", session " + std::to_string(session.value) +
           ", epoch " + std::to_string(epoch.number));
}

void AgentSession::on_disconnected(const std::string& why) {
  say_once("connection to " + options_.controller + " lost: " + why + "; ranks go on");
}

void AgentSession::on_attempt_failed(const std::string& why) {
  say_once("cannot reach " + options_.controller + ": " + why + "; trying on");
}

void AgentSession::on_refused(const std::string& why) {
  say_once("refused by " + options_.controller + ": " + why);
}

void AgentSession::say_once(const std::string& text) {
  if (text == last_trouble_) return;
  last_trouble_ = text;
  log_warning(text);
}

void AgentSession::on_commands(const Epoch& epoch, std::vector<AgentCommand> commands) {
  std::string refusal = state_.obey(epoch);
  if (!refusal.empty()) throw std::runtime_error(refusal);
  for (const AgentCommand& command : commands) {
    std::visit([this](const auto& known) { obey(known); }, command);
  }
}

// Only what the controller names is ended: what it does not know is shown to people, never killed.
void AgentSession::obey(const InventoryAnswer& answer) {
  for (const IncarnationKey& key : answer.kill) {
    StopCommand stop;
    stop.key = key;
    stop.force = true;
    obey(stop);
  }
}

void AgentSession::obey(const Spawn& spawn) {
  report_rank(runner_.spawn(spawn.command, spawn.spec));
}

void AgentSession::obey(const SignalRank& command) {
  RankReport now = runner_.query(command.key);
  bool runs = now.state == ProcessState::running && now.pid != 0 &&
              read_process_stat(now.pid).start_time == now.start_time;
  if (!runs) return log_warning("no signal sent, it does not run: " + describe(now));
  kill(static_cast<pid_t>(now.pid), command.signal);
}

void AgentSession::obey(const StopCommand& command) {
  RankReport now = runner_.stop(command);
  // One that lives will report its end, and one whose end is acknowledged has reported it.
  if (!is_alive(now) && !runner_.acknowledged(command.key)) report_rank(now);
}

void AgentSession::obey(const PrepareCommand& command) {
  tasks_.add(prepare(command).then([this](PrepareReport done) {
    if (!done.error.empty()) {
      log_warning("job/" + std::to_string(done.job.value) + " cannot run here: " + done.error);
    }
    HostReports reports;
    reports.prepares.push_back(std::move(done));
    report(std::move(reports));
  }));
}

// The checks and the store's start at the same time. Without a store rank 0 opens the leased port
// itself.
kj::Promise<PrepareReport> AgentSession::prepare(const PrepareCommand& command) {
  auto checks = runner_.prepare(command);
  if (!command.want_store) return checks;
  auto store = stores_.ensure(command);
  return checks.then([store = kj::mv(store)](PrepareReport done) mutable {
    return store.then([done = kj::mv(done)](StoreAnswer answer) mutable {
      done.store = answer.port != 0;
      if (done.store) done.port = answer.port;
      done.no_store = answer.trouble;
      return kj::mv(done);
    });
  });
}

void AgentSession::obey(const SetDeviceFault& command) {
  std::string problem = options_.sysroot.empty()
                            ? "this host has no simulated devices"
                            : set_device_fault(options_.sysroot, command.device, command.fault);
  if (!problem.empty()) log_warning("device " + command.device.value + ": " + problem);
  look_at_devices();
}

void AgentSession::obey(const Acknowledge& command) {
  for (const IncarnationKey& key : command.keys) runner_.acknowledge(key);
}

void AgentSession::obey(const RegroupCommand& command) {
  log_info("generation " + std::to_string(command.generation.value) + " calls " +
           std::to_string(command.keys.size()) + " ranks: " + command.reason);
  runner_.regroup(command);
}

void AgentSession::obey(const GoCommand& command) { runner_.go(command); }

kj::Promise<LogChunk> AgentSession::read_log(const LogQuery& query) {
  return runner_.read_log(query);
}

// Reports what changed. A device that vanished is one that is not healthy.
void AgentSession::look_at_devices() {
  if (options_.sysroot.empty()) return;
  std::map<DeviceName, DeviceReport> seen;
  for (DeviceReport& device : read_device_tree(options_.sysroot))
    seen[device.name] = std::move(device);
  for (const auto& [name, device] : devices_) {
    if (seen.contains(name)) continue;
    DeviceReport missing = device;
    missing.healthy = false;
    missing.fault = "the device is not there any more";
    seen[name] = missing;
  }
  if (seen == devices_) return;
  HostReports reports;
  std::vector<DeviceReport> all;
  for (const auto& [name, device] : seen) {
    all.push_back(device);
    auto before = devices_.find(name);
    if (before != devices_.end() && before->second == device) continue;
    reports.devices.push_back(device);
    if (!device.healthy) log_warning("device " + name.value + ": " + device.fault);
  }
  devices_ = std::move(seen);
  runner_.set_devices(std::move(all));
  report(std::move(reports));
}

kj::Promise<void> AgentSession::watch_devices() {
  return loop_.timer().afterDelay(kDevicePause).then([this] {
    look_at_devices();
    return watch_devices();
  });
}

kj::Promise<void> AgentSession::watch_progress() {
  return loop_.timer().afterDelay(kProgressPause).then([this] {
    auto moved = runner_.moved();
    if (!moved.empty() && link_ != nullptr && link_->connected())
      link_->send_progress(std::move(moved));
    return watch_progress();
  });
}

kj::Promise<void> AgentSession::watch_stores() {
  return loop_.timer().afterDelay(kStorePause).then([this] {
    stores_.keep(runner_.inventory());
    return watch_stores();
  });
}

size_t AgentSession::ranks_alive() const {
  auto ranks = runner_.inventory();
  return static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(), is_alive));
}

kj::Promise<void> AgentSession::end_ranks(Duration grace) {
  log_info("ending " + std::to_string(ranks_alive()) + " ranks");
  runner_.stop_all(grace);
  stores_.stop_all();
  return wait_for_ranks(wall_clock_us() + grace.us + 1'500'000);
}

kj::Promise<void> AgentSession::wait_for_ranks(int64_t until_us) {
  bool ended = ranks_alive() == 0 && stores_.alive() == 0 && runner_.idle() && stores_.idle();
  if (ended || wall_clock_us() > until_us) return kj::READY_NOW;
  return loop_.timer().afterDelay(5 * kj::MILLISECONDS).then([this, until_us] {
    return wait_for_ranks(until_us);
  });
}

}  // namespace regrow

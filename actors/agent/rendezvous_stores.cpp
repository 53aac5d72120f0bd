#include "actors/agent/rendezvous_stores.h"

#include <kj/debug.h>

#include <algorithm>
#include <charconv>

#include "actors/log.h"

namespace regrow {
namespace {

// A PyTorch built without libuv (Debian 13) refuses its own default, as a server and as a client. A
// script that uses env:// cannot ask for the other kind, regrow.torch can: with an argument.
constexpr const char* kStoreProgram =
    "import signal, sys\n"
    "from torch.distributed import TCPStore\n"
    "def serve(**more):\n"
    "    return TCPStore('0.0.0.0', 0, is_master=True, wait_for_workers=False, **more)\n"
    "try:\n"
    "    store = serve()\n"
    "except RuntimeError:\n"
    "    if len(sys.argv) == 1:\n"
    "        raise\n"
    "    store = serve(use_libuv=False)\n"
    "print('listening on', store.port, flush=True)\n"
    "signal.pause()\n";
constexpr std::string_view kListening = "listening on ";

constexpr int64_t kPortLimit_us = 30'000'000;  // importing torch from a cold disk takes its time
constexpr int64_t kRestartPause_us =
    5'000'000;  // one that dies sooner is only started again when asked for
constexpr auto kLook = 5 * kj::MILLISECONDS;

RankRunnerOptions below(RankRunnerOptions options) {
  options.run_directory += "/stores";
  options.state_directory += "/stores";
  options.uid +=
      "-store";  // leftovers of rank 0 and of its job's store must not be taken for each other
  options.keep_incarnations = 1;
  return options;
}

}  // namespace

RendezvousStores::RendezvousStores(kj::UnixEventPort& port, kj::Timer& timer,
                                   RankRunnerOptions base)
    : timer_(timer),
      runner_(port, timer, below(std::move(base)), [this](const RankReport& r) { on_report(r); }),
      tasks_(*this) {
  for (const RankReport& report : runner_.inventory()) {
    if (!is_alive(report)) {
      runner_.acknowledge(report.key);
      continue;
    }
    Store& store = stores_[report.key.job];
    store.key = report.key;
    store.started_us = store.used_us = wall_clock_us();
  }
}

void RendezvousStores::taskFailed(kj::Exception&& exception) {
  log_error(std::string("rendezvous store: ") + exception.getDescription().cStr());
}

bool RendezvousStores::runs(const Store& store) const {
  auto all = runner_.inventory();
  return std::any_of(all.begin(), all.end(),
                     [&](const RankReport& r) { return r.key == store.key && is_alive(r); });
}

kj::Promise<StoreAnswer> RendezvousStores::ensure(const PrepareCommand& command) {
  Store& store = stores_[command.job];
  store.command = command;
  store.used_us = wall_clock_us();
  if (!runs(store)) start(store);
  return wait_for_port(command.job, store.used_us + kPortLimit_us);
}

void RendezvousStores::start(Store& store) {
  JobSpec spec;
  spec.interpreter = store.command.interpreter;
  spec.command = {"-c", kStoreProgram};
  if (store.command.rejoins) spec.command.push_back("any-kind");
  spec.environment = store.command.environment;
  spec.uid = store.command.uid;
  spec.gid = store.command.gid;
  spec.working_directory = "/";
  spec.logs.cap_bytes = 1u << 20;
  spec.logs.segment_bytes = 1u << 17;
  SpawnCommand spawn;
  JobId job = store.command.job;
  spawn.key = {job, {0}, {runner_.highest(job, {0}).value + 1}};
  store.key = spawn.key;
  store.started_us = wall_clock_us();
  store.trouble.clear();
  RankReport report = runner_.spawn(spawn, spec);
  if (!is_alive(report)) on_report(report);
}

// The runner is in the middle of something: what follows from an end comes after it.
void RendezvousStores::on_report(const RankReport& report) {
  if (is_alive(report)) return;
  tasks_.add(kj::evalLater([this, report] { on_end(report); }));
}

void RendezvousStores::on_end(const RankReport& report) {
  runner_.acknowledge(report.key);
  auto found = stores_.find(report.key.job);
  if (found == stores_.end() || found->second.key != report.key) return;
  Store& store = found->second;
  store.trouble = !report.error_line.empty() ? report.error_line : report.message;
  if (store.trouble.empty()) store.trouble = "it ended with " + std::to_string(report.exit_code);
  if (report.ended_by_us) {
    stores_.erase(found);
    return;
  }
  log_warning("the rendezvous store of job/" + std::to_string(report.key.job.value) +
              " ended: " + store.trouble);
  bool known = store.command.job == report.key.job;
  if (known && wall_clock_us() - store.started_us > kRestartPause_us) start(store);
}

uint32_t RendezvousStores::listening_on(const Store& store) const {
  LogQuery query;
  query.job = store.key.job;
  query.rank = store.key.rank;
  query.incarnation = store.key.incarnation;
  query.stream = "stdout";
  std::string words = runner_.read_log(query).data;
  size_t at = words.find(kListening);
  if (at == std::string::npos || words.find('\n', at) == std::string::npos) return 0;
  uint32_t port = 0;
  std::from_chars(words.data() + at + kListening.size(), words.data() + words.size(), port);
  return port;
}

kj::Promise<StoreAnswer> RendezvousStores::wait_for_port(JobId job, int64_t until_us) {
  auto found = stores_.find(job);
  if (found == stores_.end()) return StoreAnswer{0, "it was ended"};
  Store& store = found->second;
  store.used_us = wall_clock_us();
  bool running = runs(store);
  if (!running && !store.trouble.empty()) return StoreAnswer{0, store.trouble};
  uint32_t port = running ? listening_on(store) : 0;
  if (port != 0) return StoreAnswer{port, ""};
  if (wall_clock_us() > until_us) {
    return StoreAnswer{
        0, "it did not listen within " + std::to_string(kPortLimit_us / 1'000'000) + " s"};
  }
  return timer_.afterDelay(kLook).then(
      [this, job, until_us] { return wait_for_port(job, until_us); });
}

void RendezvousStores::keep(const std::vector<RankReport>& ranks, Duration linger) {
  int64_t now = wall_clock_us();
  for (const RankReport& rank : ranks) {
    auto store = stores_.find(rank.key.job);
    if (store != stores_.end() && is_alive(rank)) store->second.used_us = now;
  }
  for (auto it = stores_.begin(); it != stores_.end();) {
    Store& store = it->second;
    bool unused = now - store.used_us >= linger.us;
    if (unused && !runs(store)) {
      it = stores_.erase(it);
      continue;
    }
    if (unused) {
      StopCommand stop;
      stop.key = store.key;
      stop.force = true;
      runner_.stop(stop);
    }
    ++it;
  }
}

void RendezvousStores::stop_all() { keep({}, Duration{0}); }

size_t RendezvousStores::alive() const {
  return static_cast<size_t>(std::count_if(
      stores_.begin(), stores_.end(), [this](const auto& entry) { return runs(entry.second); }));
}

uint64_t RendezvousStores::pid(JobId job) const {
  auto found = stores_.find(job);
  if (found == stores_.end()) return 0;
  for (const RankReport& report : runner_.inventory()) {
    if (report.key == found->second.key && report.state == ProcessState::running) return report.pid;
  }
  return 0;
}

}  // namespace regrow

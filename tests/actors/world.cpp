#include "tests/actors/world.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "actors/controller/journal_actor.h"
#include "actors/controller/watch_actor.h"
#include "tests/catch.h"

namespace regrow::actor_tests {
namespace {

// The journal actor's own; reads and writes the one that the test looks at.
class LentJournal final : public Journal {
 public:
  explicit LentJournal(std::shared_ptr<JournalWindow> window) : w_(std::move(window)) {}
  JournalResult<uint64_t> append(std::vector<EventRecord>& events) override {
    if (w_->throws) throw std::runtime_error("the disk is on fire");
    w_->batches.push_back(events.size());
    return w_->journal.append(events);
  }
  JournalResult<uint64_t> replay(uint64_t from, const EventCallback& each) const override {
    return w_->journal.replay(from, each);
  }
  uint64_t last_seq() const override { return w_->journal.last_seq(); }
  JournalResult<std::optional<EventRecord>> get(uint64_t seq) const override {
    return w_->journal.get(seq);
  }
  JournalResult<Done> replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                    const EventCallback& each, bool newest_first) const override {
    return w_->journal.replay_entity(entity, from, to, each, newest_first);
  }
  JournalResult<std::vector<IndexedEntity>> entities(uint64_t up_to) const override {
    return w_->journal.entities(up_to);
  }
  JournalResult<Done> put_meta(const std::string& key, const std::string& value) override {
    return w_->journal.put_meta(key, value);
  }
  JournalResult<std::optional<std::string>> get_meta(const std::string& key) const override {
    return w_->journal.get_meta(key);
  }
  JournalResult<Done> write_snapshots(const SnapshotBatch& batch) override {
    return w_->journal.write_snapshots(batch);
  }
  JournalResult<SnapshotMark> snapshot_mark() const override { return w_->journal.snapshot_mark(); }
  JournalResult<std::optional<std::string>> get_snapshot(const EntityId& entity) const override {
    return w_->journal.get_snapshot(entity);
  }
  std::optional<JournalError> failure() const override { return w_->journal.failure(); }

 private:
  std::shared_ptr<JournalWindow> w_;
};

// Between the entities and the effect runner: remembers what passes.
caf::behavior effect_tap(caf::event_based_actor* self, World* world, caf::actor runner) {
  return {
      [=](const msg::Perform& m) {
        world->effects.push_back(*m.effect);
        self->send(runner, m);
      },
      [=](const msg::SessionUp& m) { self->send(runner, m); },
      [=](const msg::SessionDown& m) { self->send(runner, m); },
      [=](const msg::ForgetJob& m) { self->send(runner, m); },
  };
}

bool is_final(ProcessState s) {
  return s == ProcessState::exited || s == ProcessState::never_started || s == ProcessState::gone;
}

}  // namespace

JobSpec spec_of(uint32_t ranks) {
  JobSpec spec;
  spec.name = "demo";
  spec.ranks = ranks;
  spec.devices.kind = "sim";
  spec.command = {"train.py"};
  spec.progress_pattern = "step";
  spec.checkpoint.directory = "/ckpt";
  for (size_t c = 0; c < FailureClass_names.size(); ++c)
    spec.intensity.push_back({static_cast<FailureClass>(c), 3, {}});
  return spec;
}

World::World(WorldOptions options)
    : window(options.journal),
      journal(window->journal),
      context(journal.last_seq() == 0 ? Time{} : journal.events().back().at, "",
              {[this] { return time_us_; }, [this] { return time_us_; }}),
      random_(options.seed) {
  config_.set("scheduler.policy", caf::atom("testing"));
  config_.set("logger.verbosity", caf::atom("quiet"));
  system_ = std::make_unique<caf::actor_system>(config_);
  context.board = &board;
  context.fatal = [this](const std::string& why) { fatal.push_back(why); };
  journal
      .replay(1,
              [&](const EventRecord& record) {
                context.projection.apply(record);
                return true;
              })
      .value();
  watches = system_->spawn(watch_actor, static_cast<const Journal*>(&journal), context.fatal);
  effects_actor = system_->spawn(effect_runner, &context, static_cast<CommandSink*>(this));
  context.effects = system_->spawn(effect_tap, this, effects_actor);
  auto owned = std::make_shared<std::unique_ptr<Journal>>(std::make_unique<LentJournal>(window));
  journal_actor_handle =
      system_->spawn(journal_actor, &context, owned, std::string("test"), watches);
  context.journal = journal_actor_handle;
}

World::~World() {
  held_.clear();
  std::vector<caf::actor> all{watches, effects_actor, context.effects, journal_actor_handle};
  for (const auto& [id, actor] : context.directory.all()) all.push_back(actor);
  for (const auto& actor : all) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  while (run_one()) {
  }
  system_->await_actors_before_shutdown(false);
}

void World::boot() {
  auto tree = std::make_shared<const ChildrenMap>(children_of(context.projection));
  context.directory.set(EntityId::cluster(),
                        system_->spawn(entity_actor, &context, EntityId::cluster(), 0u, tree),
                        EntityId());
  run();
  tell(EntityId::cluster(), in::StartTerm{"cluster-1", {1, 77}, "test"});
  for (const auto& [id, actor] : context.directory.all()) caf::anon_send(actor, msg::Resume{});
  run();
}

caf::scheduler::test_coordinator& World::coordinator() {
  return static_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
}

caf::resumable* World::resumable_of(const caf::actor& actor) {
  return dynamic_cast<caf::resumable*>(caf::actor_cast<caf::abstract_actor*>(actor));
}

bool World::run_one() {
  auto& jobs = coordinator().jobs;
  std::vector<size_t> ready;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (held_.count(jobs[i]) == 0) ready.push_back(i);
    if (random_ == 0 && !ready.empty()) break;
  }
  if (ready.empty()) return false;
  if (random_ != 0) random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  auto at = jobs.begin() + static_cast<ptrdiff_t>(ready[(random_ >> 33) % ready.size()]);
  std::rotate(jobs.begin(), at, at + 1);
  coordinator().run_once();
  return true;
}

void World::run() {
  for (size_t turns = 0; turns < 200000; ++turns) {
    if (run_one()) continue;
    if (from_agents_.empty()) {
      CHECK(early.empty());
      return;
    }
    Envelope next = std::move(from_agents_.front());
    from_agents_.pop_front();
    post(context, std::move(next));
  }
  FAIL("the actors find no rest");
}

void World::advance(Duration d) {
  constexpr int64_t kStep = 50'000;
  for (int64_t left = d.us; left > 0; left -= kStep) {
    int64_t step = std::min(left, kStep);
    time_us_ += step;
    context.clock.now();
    coordinator().advance_time(std::chrono::microseconds(step));
    run();
  }
}

void World::live(Duration d) {
  for (int64_t left = d.us; left > 0; left -= 500'000) {
    for (const auto& [name, host] : hosts_)
      tell(EntityId::host({name}), in::AgentHeartbeat{host.first});
    advance({std::min<int64_t>(left, 500'000)});
    if (!std::exchange(dropped, {}).empty()) {
      for (const auto& [name, host] : hosts_) connect(name);
    }
  }
}

RequestId World::ask(EntityId to, Input input) {
  auto id = std::make_shared<uint64_t>(0);
  Envelope envelope{to, {}, {}, {"uid:1000", "operator"}, std::move(input)};
  envelope.request = context.replies.expect(
      to, [this, id](const Reply& reply) { answers_[*id] = reply; },
      [this, id] { lost_.insert(*id); });
  *id = envelope.request.value;
  post(context, std::move(envelope));
  return {*id};
}

const Reply* World::answer(RequestId request) const {
  auto it = answers_.find(request.value);
  return it == answers_.end() ? nullptr : &it->second;
}

void World::add_host(const std::string& name, uint32_t devices) {
  AgentHello hello;
  hello.name = {name};
  hello.uid = "uid-" + name;
  hello.boot_id = "boot-" + name;
  hello.address = "10.0.0.1";
  for (uint32_t i = 0; i < devices; ++i) {
    DeviceReport device;
    device.name = {"sim" + std::to_string(i)};
    device.kind = "sim";
    device.uid = name + "-" + device.name.value;
    device.memory_bytes = 16ull << 30;
    hello.devices.push_back(device);
  }
  hosts_[name] = {{}, hello};
  connect(name);
}

void World::connect(const std::string& name) {
  auto& [session, hello] = hosts_.at(name);
  session = {++last_session_};
  hello.ranks.clear();
  for (const auto& [key, report] : processes_) hello.ranks.push_back(report);
  caf::anon_send(context.effects, msg::SessionUp{{name}, session});
  tell(EntityId::host({name}), in::AgentConnected{session, hello});
  run();
}

void World::submit(uint32_t ranks) {
  ask(EntityId::cluster(), in::Submit{"", spec_of(ranks)});
  run();
}

void World::start_job(uint32_t ranks) {
  boot();
  add_host("h1", ranks);
  submit(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (mute.count({rank}) == 0)
      REQUIRE(state<RankState>(rank_id(rank)).process == Process::running);
  }
}

caf::actor World::actor_of(const EntityId& id) const {
  auto found = context.directory.find(id);
  if (!found) FAIL("no actor of " + id.path);
  return *found;
}

void World::kill_actor(const EntityId& id) {
  caf::anon_send_exit(actor_of(id), caf::exit_reason::kill);
}

std::shared_ptr<const msg::Inspection> World::inspect(const EntityId& id) {
  std::shared_ptr<const msg::Inspection> seen;
  caf::anon_send(actor_of(id), msg::Inspect{[&seen](auto found) { seen = std::move(found); }});
  run();
  if (!seen) FAIL(id.path + " did not answer");
  return seen;
}

bool World::agrees_with_journal(const EntityId& id) {
  auto seen = inspect(id);
  auto view = context.projection.find(id);
  return view && view->n == seen->n && view->state == seen->state;
}

std::vector<EventRecord> World::events_of(const EntityId& id) const {
  std::vector<EventRecord> found;
  for (const EventRecord& record : journal.events()) {
    if (record.entity == id) found.push_back(record);
  }
  return found;
}

// --- the agents
// ------------------------------------------------------------------------------------

void World::send(SessionId session, std::vector<AgentCommand> commands) {
  for (AgentCommand& command : commands) {
    // J-3 for every start there ever is: what an agent is told is in the journal.
    if (auto* spawn = std::get_if<Spawn>(&command)) {
      bool durable = !has_journal;
      for (const EventRecord& record : journal.events()) {
        auto* e = std::get_if<ev::RankSpawning>(&record.event);
        durable = durable || (e != nullptr && e->command.key == spawn->command.key);
      }
      if (!durable) early.push_back("rank " + std::to_string(spawn->command.key.rank.value));
    }
    sent.push_back({session, command});
    obey(command);
  }
}

void World::drop(SessionId session, std::string why) {
  dropped.push_back(std::to_string(session.value) + ": " + why);
}

void World::report(const RankReport& report) {
  if (mute.count(report.key.rank) > 0) return;
  from_agents_.push_back({EntityId::rank(report.key.job, report.key.rank),
                          {},
                          {},
                          {},
                          in::AgentReport{{"h1"}, report, hosts_.at("h1").first}});
}

void World::obey(const AgentCommand& command) {
  if (auto* prepare = std::get_if<PrepareCommand>(&command)) {
    PrepareReport done;
    done.job = prepare->job;
    done.generation = prepare->generation;
    done.attempt = prepare->attempt;
    done.address = "10.0.0.1";
    done.port = prepare->want_port ? 20000 : 0;
    from_agents_.push_back({EntityId::job(prepare->job), {}, {}, {}, in::Prepared{{"h1"}, done}});
  } else if (auto* spawn = std::get_if<Spawn>(&command)) {
    RankReport& process = processes_[spawn->command.key];
    if (process.state == ProcessState::unknown) {
      process.key = spawn->command.key;
      process.state = ProcessState::running;
      process.pid = ++last_pid_;
    }
    report(process);
  } else if (auto* stop = std::get_if<StopCommand>(&command)) {
    auto it = processes_.find(stop->key);
    if (it == processes_.end()) return;
    it->second.ended_by_us = it->second.ended_by_us || !is_final(it->second.state);
    it->second.state = ProcessState::exited;
    report(it->second);
  }
}

RequestId World::end_process(RankIndex rank, int32_t exit_code) {
  for (auto& [key, process] : processes_) {
    if (key.rank != rank || process.state != ProcessState::running) continue;
    process.state = ProcessState::exited;
    process.exit_code = exit_code;
    return ask(EntityId::rank(key.job, rank),
               in::AgentReport{{"h1"}, process, hosts_.at("h1").first});
  }
  FAIL("rank " << rank.value << " does not run");
  return {};
}

// --- the log
// ---------------------------------------------------------------------------------------

struct LogCapture::State {
  std::ostringstream out;
  std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
};

LogCapture::LogCapture() : state_(std::make_unique<State>()) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(state_->out);
  auto logger = std::make_shared<spdlog::logger>("test", sink);
  logger->set_level(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

LogCapture::~LogCapture() { spdlog::set_default_logger(state_->before); }

std::string LogCapture::text() const { return state_->out.str(); }

}  // namespace regrow::actor_tests

// The actors of a controller in virtual time, on one thread: nothing runs until a test says so, and
// the same test runs the same way each time.
//
//   World world;
//   world.boot();
//   world.add_host("h1", 2);
//   world.submit(2);                       // a job of two ranks
//   world.run();                           // all that can happen now; the clock stands still
//   world.advance(Duration::seconds(3));   // timers fire on the way
//
// The journal is in memory and outlives the world: a second World on it is a restarted controller.
// A stub of an agent starts and ends what it is told to; the test may keep it from answering. One
// thread.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/controller/effect_runner.h"
#include "actors/controller/entity_actor.h"
#include "actors/controller/live_board.h"
#include "actors/controller/messages.h"
#include "actors/controller/router.h"
#include "journal/memory_journal.h"

namespace regrow::actor_tests {

// What a test sees of the journal that the journal actor owns.
struct JournalWindow {
  MemoryJournal journal;
  std::vector<size_t> batches;  // events per append
  bool throws = false;          // instead of appending
};

struct Sent {
  SessionId session;
  AgentCommand command;
};

struct WorldOptions {
  std::shared_ptr<JournalWindow> journal = std::make_shared<JournalWindow>();
  uint64_t seed = 0;  // in which order actors take their turn; 0 = as they come
};

class World : public CommandSink {
 public:
  explicit World(WorldOptions options = {});
  ~World() override;

  // The tree as the journal has it, resumed; the term begins.
  void boot();

  // Runs every actor that has something to do, except those held back. Timers do not fire.
  void run();
  void advance(Duration d);
  // The same, and the agents' heartbeats come; one that was hung up connects again.
  void live(Duration d);
  Time now() { return context.clock.now().time; }

  // Takes no turn until it is let go.
  void hold(const caf::actor& actor) { held_.insert(resumable_of(actor)); }
  void let_go(const caf::actor& actor) { held_.erase(resumable_of(actor)); }

  // --- from outside
  void tell(EntityId to, Input input) {
    post(context, {std::move(to), {}, {}, {}, std::move(input)});
  }
  // A request: `answers` has its reply once it is given.
  RequestId ask(EntityId to, Input input);
  const Reply* answer(RequestId request) const;
  bool was_lost(RequestId request) const { return lost_.count(request.value) > 0; }

  void add_host(const std::string& name, uint32_t devices);
  void connect(const std::string& name);
  void submit(uint32_t ranks);
  // A job whose ranks all run.
  void start_job(uint32_t ranks);

  // The process ends by itself; the agent reports it.
  RequestId end_process(RankIndex rank, int32_t exit_code);
  const std::map<IncarnationKey, RankReport>& processes() const { return processes_; }
  caf::actor_system& system() { return *system_; }

  // --- the tree
  caf::actor actor_of(const EntityId& id) const;
  bool has_actor(const EntityId& id) const { return context.directory.find(id).has_value(); }
  // Its actor dies as its next act.
  void kill_actor(const EntityId& id);
  std::shared_ptr<const msg::Inspection> inspect(const EntityId& id);
  template <class State>
  State state(const EntityId& id) {
    return std::get<State>(inspect(id)->state);
  }
  // What the actor holds is the fold of what the journal holds.
  bool agrees_with_journal(const EntityId& id);

  // --- what was seen
  std::vector<EventRecord> events_of(const EntityId& id) const;
  template <class E>
  size_t count_events(const EntityId& id) const {
    size_t count = 0;
    for (const EventRecord& record : events_of(id))
      count += std::holds_alternative<E>(record.event);
    return count;
  }
  // Effects handed to the effect runner.
  template <class E>
  std::vector<E> performed() const {
    std::vector<E> found;
    for (const Effect& effect : effects) {
      if (auto* e = std::get_if<E>(&effect)) found.push_back(*e);
    }
    return found;
  }
  // Commands that reached an agent.
  template <class C>
  std::vector<C> sent_commands() const {
    std::vector<C> found;
    for (const Sent& s : sent) {
      if (auto* c = std::get_if<C>(&s.command)) found.push_back(*c);
    }
    return found;
  }
  size_t timers() { return coordinator().clock().schedule().size(); }

  // CommandSink
  void send(SessionId session, std::vector<AgentCommand> commands) override;
  void drop(SessionId session, std::string why) override;

  std::shared_ptr<JournalWindow> window;
  MemoryJournal& journal;
  Context context;
  LiveBoard board;
  std::vector<Effect> effects;
  std::vector<Sent> sent;
  std::vector<std::string> dropped;  // sessions hung up, why
  std::vector<std::string> fatal;    // the process would have ended
  bool has_journal = true;         // false: effects come from the test, nothing stands behind them
  std::vector<std::string> early;  // starts that an agent was told before they were durable (J-3)
  std::set<RankIndex> mute;        // ranks of which the agent does not report
  caf::actor journal_actor_handle, effects_actor, watches;

 private:
  caf::scheduler::test_coordinator& coordinator();
  static caf::resumable* resumable_of(const caf::actor& actor);
  bool run_one();
  void report(const RankReport& report);
  void obey(const AgentCommand& command);

  int64_t time_us_ = 1'700'000'000'000'000;
  uint64_t random_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::set<caf::resumable*> held_;
  std::map<uint64_t, Reply> answers_;
  std::set<uint64_t> lost_;
  std::map<std::string, std::pair<SessionId, AgentHello>> hosts_;
  std::map<IncarnationKey, RankReport> processes_;
  std::deque<Envelope> from_agents_;
  uint64_t last_session_ = 0;
  uint64_t last_pid_ = 1000;
};

JobSpec spec_of(uint32_t ranks);

inline EntityId rank_id(uint32_t rank) { return EntityId::rank({1}, {rank}); }
inline EntityId job_id() { return EntityId::job({1}); }
inline EntityId group_id() { return EntityId::group({1}, {0}); }

// What the log says while it lives.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  std::string text() const;
  bool has(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regrow::actor_tests

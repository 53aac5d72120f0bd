// A controller without threads, CAF and disk: the same EntityHosts, virtual time, a journal in
// memory.
//
// It does what actors/ does: hands every input to the one entity it is for, appends what is
// decided, tells each entity what is durable, passes effects and replies on. The world outside is
// the test's.
//
//   Loop loop(Time{0});
//   SimController controller(loop, outside, Delays{});
//   controller.start({1, 77}, nullptr);
//   controller.post("operator", {EntityId::cluster(), {}, {1}, {"uid:1000", "operator"},
//   in::Submit{...}}); loop.run_for(Duration::seconds(60));
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "supervisors/engine.h"
#include "tests/driver/loop.h"
#include "tests/driver/random.h"

namespace regrow::sim {

// A broken rule. Ends the run; the message says which rule and where.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How long things take. Empty = no time at all, everything in the order of sending.
struct Delays {
  std::function<Duration()> message;  // from one entity's outbox to the other's inbox
  std::function<Duration()> write;    // one batch of the journal
};

// Who watches, and who carries out.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual void perform(const Effect& effect) = 0;
  virtual void answer(const Reply& reply) = 0;
  virtual void appended(const EventRecord&) {}  // decided, not yet durable
  virtual void durable(const EventRecord&) {}
  virtual void handled(const EntityHost&, const Envelope&, const Outbox&) {}
};

// Outlives controllers; only a crash takes from it, and only from what was not acknowledged.
struct SimJournal {
  std::vector<EventRecord> records;  // record i has seq i + 1
  uint64_t durable = 0;              // acknowledged up to this seq
};

class SimController {
 public:
  SimController(Loop& loop, Outside& outside, Delays delays);

  // Replays the journal and begins a term. Once the term is durable every entity is resumed, in
  // order of name or shuffled, and then it is open(): a command that carries an epoch which a crash
  // could still take back would bar the next controller from its agents.
  void start(Epoch epoch, Random* shuffle);
  // Ends it at this instant; the journal keeps its first `keep` records, at least those
  // acknowledged.
  void crash(uint64_t keep);
  // The supervisor of one entity dies, with all that was on its way to it. Once its events are
  // durable it is made anew from the journal, and every entity is resumed: what was said to it is
  // said again.
  void restart(const EntityId& id);
  bool alive() const { return alive_; }
  bool open() const { return open_; }

  // An input from outside, lost unless open(); one sender's inputs to one entity stay in order.
  void post(const std::string& sender, Envelope envelope);
  // Nothing is handled until then (SIGSTOP, a machine that swaps); the engine is told by
  // Now::floor.
  void stall(Duration d);
  // An acknowledgement arrives for every batch until then only afterwards.
  void slow_disk_until(Time t) { slow_until_ = t; }

  const EntityHost* find(const EntityId& id) const;
  std::vector<EntityId> entities() const;
  const SimJournal& journal() const { return journal_; }
  Now now() const { return {loop_.now(), floor_}; }
  uint64_t dropped() const { return dropped_; }  // messages to entities that do not exist
  bool all_durable() const { return journal_.durable == journal_.records.size(); }

 private:
  struct Node {
    explicit Node(EntityId id) : host(std::move(id)) {}
    EntityHost host;
    bool dead = false;  // until it is made anew
    std::optional<Time> armed;
    Time last_tick;
    int ticks_in_place = 0;
  };

  Node& node(const EntityId& id);
  void later(const std::string& from, const std::string& to, std::function<void()> run);
  void guarded(std::function<void()> run);
  void wake_after_stall();
  void deliver(const Envelope& envelope);
  void process(Node& node, Outbox out);
  void arm(Node& node);
  void tick(const EntityId& id);
  void flush();
  void acknowledge(uint64_t upto);
  void resume();
  void revive();

  Loop& loop_;
  Outside& outside_;
  Delays delays_;
  SimJournal journal_;
  std::map<EntityId, std::unique_ptr<Node>> nodes_;
  std::map<std::pair<std::string, std::string>, Time> last_delivery_;
  bool alive_ = false;
  bool open_ = false;
  std::vector<EntityId> dead_;
  uint64_t term_seq_ = 0;  // of the event that begins this term
  Random* shuffle_ = nullptr;
  uint64_t life_ = 0;
  Time floor_;
  Time stalled_until_;
  std::deque<std::function<void()>> stalled_;  // what waits for its end, in order
  Time slow_until_;
  bool flushing_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace regrow::sim

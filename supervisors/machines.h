// The decisions: one pure state machine per kind of entity, all of the same shape.
//
//   Turn<RankState> turn{state, envelope, now};
//   decide(turn, live);           // turn.decision(): events (already applied to state), replies,
//   reasons for (auto& action : pending(state)) ...   // what still has to happen, from state alone
//
// Same state and input, same answer: no I/O, clock, randomness or logging. `apply` is the only
// writer of state and is total over the events of its entity. Every input is handled in every
// state; a stale one is ignored with a reason. Called by one EntityHost at a time; nothing here
// knows about threads.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "supervisors/inputs.h"
#include "supervisors/live.h"
#include "supervisors/state.h"

namespace regrow {

// A check in decision code or replay failed. Quarantines the entity, never the process.
struct BrokenInvariant : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void apply(ClusterState& state, const EventRecord& record);
void apply(HostState& state, const EventRecord& record);
void apply(DeviceState& state, const EventRecord& record);
void apply(JobState& state, const EventRecord& record);
void apply(GroupState& state, const EventRecord& record);
void apply(RankState& state, const EventRecord& record);

// Applies `record` to the state of the entity it belongs to. EntityQuarantined changes no state.
void apply(AnyState& state, const EventRecord& record);

// The state of an entity that has no events yet; its ids are filled in.
AnyState initial_state(const EntityId& id);

// May this input bring its entity into being? Any other input to an entity without a host is
// dropped.
bool may_create_entity(const Input& input);

// One call of `decide`: the state, what came in, and what is decided so far. record() applies at
// once, so that the rest of the decision sees its own consequences.
template <class State>
class Turn {
 public:
  Turn(State& state, const EntityId& self, const Envelope& envelope, Now now)
      : state_(state), self_(self), envelope_(envelope), now_(now) {}

  const State& state() const { return state_; }
  const EntityId& self() const { return self_; }
  const Envelope& envelope() const { return envelope_; }
  const Now& now() const { return now_; }
  Decision& decision() { return decision_; }

  void record(Event event, std::string reason) {
    EventRecord r;
    r.entity = self_;
    r.caused_by = envelope_.cause;
    r.at = now_.time;
    r.reason = reason;
    r.by = envelope_.by;
    r.event = event;
    apply(state_, r);
    decision_.record(std::move(event), std::move(reason));
  }
  void send(EntityId to, Input input) {
    decision_.messages.push_back({std::move(to), std::move(input)});
  }
  void effect(Effect e) { decision_.effects.push_back(std::move(e)); }
  void ignore(std::string why) {
    if (decision_.ignored.empty()) decision_.ignored = std::move(why);
  }
  void reply(bool ok, std::string message, JobId job = {}) {
    if (envelope_.request.value != 0)
      decision_.replies.push_back({envelope_.request, ok, std::move(message), job});
  }

 private:
  State& state_;
  const EntityId& self_;
  const Envelope& envelope_;
  Now now_;
  Decision decision_;
};

void decide(Turn<ClusterState>& turn, ClusterLive& live);
void decide(Turn<HostState>& turn, HostLive& live);
void decide(Turn<DeviceState>& turn, DeviceLive& live);
void decide(Turn<JobState>& turn, JobLive& live);
void decide(Turn<GroupState>& turn, NoLive& live);
void decide(Turn<RankState>& turn, RankLive& live);

// Everything that the state still wants to happen: effects, and messages to other entities.
std::vector<Action> pending(const ClusterState& state);
std::vector<Action> pending(const HostState& state);
std::vector<Action> pending(const DeviceState& state);
std::vector<Action> pending(const JobState& state);
std::vector<Action> pending(const GroupState& state);
std::vector<Action> pending(const RankState& state);

// False if this event, just applied, cannot have added to what is pending: it only settles
// something. A job of thousands of ranks then need not say all that it wants again with every rank
// that starts or ends.
bool may_want_more(const AnyState& state, const Event& event);

// When the entity wants a Tick; nothing = never.
std::optional<Time> deadline(const ClusterState& state, const ClusterLive& live, Now now);
std::optional<Time> deadline(const HostState& state, const HostLive& live, Now now);
std::optional<Time> deadline(const JobState& state, const JobLive& live, Now now);
std::optional<Time> deadline(const RankState& state, const RankLive& live, Now now);

// Timings of the host link. A job's own `timeouts.host` decides when its ranks there are given up.
inline constexpr Duration kHostSuspectAfter = Duration::seconds(3);
inline constexpr Duration kHostUnreachableAfter = Duration::seconds(10);
inline constexpr Duration kHostLostAfter = Duration::seconds(3600);

// An order that the agent has not carried out is given again this often: it may have been lost on
// the way.
inline constexpr Duration kAskAgainAfter = Duration::seconds(5);

// A job in line is told what is missing at once, then at most this often: while many hosts join or
// leave, every one of them changes the numbers.
inline constexpr Duration kTellWaitingAfter = Duration::seconds(5);

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace regrow

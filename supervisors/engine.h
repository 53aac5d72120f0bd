// The engine: one EntityHost per node of the supervision tree.
//
// It lends a state machine its mailbox discipline: inputs one at a time, events to the journal
// before anything they cause, effects and replies held back until the events that led to them are
// durable (J-3), one timer, and everything pending issued again after a restart. Free of threads,
// CAF and I/O: a CAF actor hosts exactly one, the seeded driver in tests schedules many.
//
//   EntityHost host(id);                       // fold the journal: host.replay(record) ...
//   Outbox out = host.handle(envelope, now);   // 1. append out.records to the journal, in order
//                                              // 2. send out.messages
//   out = host.durable(n, now);                // records up to this entity's n are on disk:
//                                              // 3. perform out.effects, give out.replies
//
// Thread rule: one caller at a time.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "supervisors/machines.h"

namespace regrow {

// What a call asks its driver to do, in this order: journal, then messages; effects and replies
// only ever come out once what they rest on is durable.
struct Outbox {
  std::vector<EventRecord> records;  // seq = 0, n set
  std::vector<Envelope> messages;
  std::vector<Effect> effects;
  std::vector<Reply> replies;
};

// One remembered decision, for the admin shell.
struct PastDecision {
  Time at;
  std::string input;
  std::string outcome;  // "incident_opened: process died ..." or "ignored: ..."
  REGROW_FIELDS(PastDecision, at, input, outcome)
};

class EntityHost {
 public:
  explicit EntityHost(EntityId id);
  // Takes up a state folded elsewhere (a projection or a snapshot) after `n` events.
  EntityHost(EntityId id, AnyState state, uint64_t n, std::string quarantined);

  // Folds one past event. Nothing is issued.
  void replay(const EventRecord& record);

  // Handles one input. Never throws: a broken check quarantines this entity.
  Outbox handle(const Envelope& envelope, Now now);

  // This entity's events up to its n-th are durable.
  Outbox durable(uint64_t n);

  // When to call handle() with in::Tick next.
  std::optional<Time> wake_at(Now now) const;

  const EntityId& id() const { return id_; }
  const AnyState& state() const { return state_; }
  const AnyLive& live() const { return live_; }
  uint64_t n() const { return n_; }                                // events so far, durable or not
  const std::string& quarantined() const { return quarantined_; }  // why; empty = in service
  const std::deque<PastDecision>& decisions() const { return decisions_; }

 private:
  struct Held {
    uint64_t n;
    std::vector<Effect> effects;
    std::vector<Reply> replies;
  };

  template <class State, class Live>
  Decision run(State& state, Live& live, const Envelope& envelope, Now now);
  Decision dispatch(const Envelope& envelope, Now now);
  void issue_pending(Outbox& out, Held& held, bool again);
  void remember(const Envelope& envelope, const Decision& decision, Time at);
  void release(Outbox& out);

  EntityId id_;
  AnyState state_;
  AnyLive live_;
  uint64_t n_ = 0;
  uint64_t durable_n_ = 0;
  std::string quarantined_;
  std::vector<Action> issued_;  // what pending() said last and was issued
  std::deque<Held> held_;
  std::deque<PastDecision> decisions_;
};

}  // namespace regrow

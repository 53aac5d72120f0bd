#include "supervisors/engine.h"

#include <algorithm>
#include <utility>

namespace regrow {
namespace {

constexpr size_t kDecisionsKept = 24;

AnyLive live_for(const AnyState& state) {
  if (std::holds_alternative<ClusterState>(state)) return ClusterLive{};
  if (std::holds_alternative<HostState>(state)) return HostLive{};
  if (std::holds_alternative<JobState>(state)) return JobLive{};
  if (std::holds_alternative<RankState>(state)) return RankLive{};
  if (std::holds_alternative<DeviceState>(state)) return DeviceLive{};
  return NoLive{};
}

std::vector<Action> pending_of(const AnyState& state) {
  return std::visit(Overloaded{[](const std::monostate&) { return std::vector<Action>(); },
                               [](const auto& s) { return pending(s); }},
                    state);
}

}  // namespace

EntityHost::EntityHost(EntityId id)
    : id_(std::move(id)), state_(initial_state(id_)), live_(live_for(state_)) {}

EntityHost::EntityHost(EntityId id, AnyState state, uint64_t n, std::string quarantined)
    : id_(std::move(id)),
      state_(std::move(state)),
      live_(live_for(state_)),
      n_(n),
      durable_n_(n),
      quarantined_(std::move(quarantined)) {}

void EntityHost::replay(const EventRecord& record) {
  if (auto* q = std::get_if<ev::EntityQuarantined>(&record.event)) quarantined_ = q->what;
  apply(state_, record);
  n_ = durable_n_ = record.n;
}

template <class State, class Live>
Decision EntityHost::run(State& state, Live& live, const Envelope& envelope, Now now) {
  Turn<State> turn(state, id_, envelope, now);
  try {
    decide(turn, live);
  } catch (const std::exception& e) {
    // What was recorded before the failure stays recorded: state and journal agree.
    quarantined_ = std::string(input_name(envelope.input)) + ": " + e.what();
    Decision& d = turn.decision();
    d.messages.clear();
    d.effects.clear();
    d.replies.clear();
    d.record(ev::EntityQuarantined{quarantined_},
             "a check in the decision code failed: " + quarantined_);
    turn.reply(false, id_.path + " is quarantined: " + quarantined_);
  }
  return std::move(turn.decision());
}

Decision EntityHost::dispatch(const Envelope& envelope, Now now) {
  auto live = [&]<class L>(L*) -> L& { return std::get<L>(live_); };
  return std::visit(
      Overloaded{
          [&](std::monostate&) { return Decision(); },
          [&](ClusterState& s) { return run(s, live((ClusterLive*)nullptr), envelope, now); },
          [&](HostState& s) { return run(s, live((HostLive*)nullptr), envelope, now); },
          [&](JobState& s) { return run(s, live((JobLive*)nullptr), envelope, now); },
          [&](RankState& s) { return run(s, live((RankLive*)nullptr), envelope, now); },
          [&](DeviceState& s) { return run(s, live((DeviceLive*)nullptr), envelope, now); },
          [&](auto& s) { return run(s, live((NoLive*)nullptr), envelope, now); }},
      state_);
}

void EntityHost::issue_pending(Outbox& out, Held& held, bool again) {
  if (!quarantined_.empty()) return;
  std::vector<Action> wanted = pending_of(state_);
  if (again) issued_.clear();
  // Both lists come in the same order, so what was issued is mostly found where the last one was.
  size_t next = 0;
  auto was_issued = [&](const Action& action) {
    for (size_t i = 0; i < issued_.size(); ++i) {
      size_t at = (next + i) % issued_.size();
      if (!(issued_[at] == action)) continue;
      next = at + 1;
      return true;
    }
    return false;
  };
  for (const Action& action : wanted) {
    if (was_issued(action)) continue;
    if (auto* message = std::get_if<Message>(&action)) {
      out.messages.push_back({message->to, EventRef{id_, n_}, {}, {}, message->input});
    } else {
      held.effects.push_back(std::get<Effect>(action));
    }
  }
  issued_ = std::move(wanted);
}

void EntityHost::remember(const Envelope& envelope, const Decision& decision, Time at) {
  bool quiet =
      decision.events.empty() &&
      (decision.ignored.empty() || std::holds_alternative<in::AgentHeartbeat>(envelope.input) ||
       std::holds_alternative<in::Progress>(envelope.input));
  if (quiet) return;
  PastDecision past{at, input_name(envelope.input), {}};
  for (const auto& recorded : decision.events) {
    if (!past.outcome.empty()) past.outcome += "; ";
    past.outcome += std::string(event_name(recorded.event)) + ": " + recorded.reason;
  }
  if (past.outcome.empty()) past.outcome = "ignored: " + decision.ignored;
  decisions_.push_back(std::move(past));
  if (decisions_.size() > kDecisionsKept) decisions_.pop_front();
}

Outbox EntityHost::handle(const Envelope& envelope, Now now) {
  Outbox out;
  if (!quarantined_.empty()) {
    if (envelope.request.value != 0)
      out.replies.push_back({envelope.request,
                             false,
                             id_.path + " is quarantined (" + quarantined_ +
                                 "); restart the controller after the cause is mended",
                             {}});
    return out;
  }
  Decision decision = dispatch(envelope, now);
  remember(envelope, decision, now.time);

  bool more = false;
  for (auto& recorded : decision.events) {
    more = more || may_want_more(state_, recorded.event);
    EventRecord record;
    record.entity = id_;
    record.n = ++n_;
    record.caused_by = envelope.cause;
    record.at = now.time;
    record.reason = std::move(recorded.reason);
    record.by = envelope.by;
    record.event = std::move(recorded.event);
    out.records.push_back(std::move(record));
  }
  for (auto& message : decision.messages)
    out.messages.push_back({message.to, EventRef{id_, n_}, {}, {}, std::move(message.input)});

  Held held{n_, std::move(decision.effects), std::move(decision.replies)};
  bool resumed = std::holds_alternative<in::Resumed>(envelope.input);
  if (more || decision.reissue || resumed) issue_pending(out, held, decision.reissue || resumed);
  if (!held.effects.empty() || !held.replies.empty()) held_.push_back(std::move(held));
  release(out);
  return out;
}

Outbox EntityHost::durable(uint64_t n) {
  durable_n_ = std::max(durable_n_, n);
  Outbox out;
  release(out);
  return out;
}

void EntityHost::release(Outbox& out) {
  while (!held_.empty() && held_.front().n <= durable_n_) {
    Held& held = held_.front();
    std::move(held.effects.begin(), held.effects.end(), std::back_inserter(out.effects));
    std::move(held.replies.begin(), held.replies.end(), std::back_inserter(out.replies));
    held_.pop_front();
  }
}

std::optional<Time> EntityHost::wake_at(Now now) const {
  if (!quarantined_.empty()) return std::nullopt;
  if (auto* cluster = std::get_if<ClusterState>(&state_))
    return deadline(*cluster, std::get<ClusterLive>(live_), now);
  if (auto* host = std::get_if<HostState>(&state_))
    return deadline(*host, std::get<HostLive>(live_), now);
  if (auto* job = std::get_if<JobState>(&state_))
    return deadline(*job, std::get<JobLive>(live_), now);
  if (auto* rank = std::get_if<RankState>(&state_))
    return deadline(*rank, std::get<RankLive>(live_), now);
  return std::nullopt;
}

}  // namespace regrow

// A group: the ranks that stop and start together, in the order the job decides. Invariants: R-1,
//
#include <algorithm>

#include "supervisors/machines.h"

namespace regrow {
namespace {

using T = Turn<GroupState>;

template <class State>
auto* find_member(State& s, RankIndex rank) {
  auto it = std::lower_bound(s.members.begin(), s.members.end(), rank,
                             [](const Member& m, RankIndex r) { return m.rank < r; });
  return it != s.members.end() && it->rank == rank ? &*it : nullptr;
}

bool is_active(const Member& m) {
  return m.process == Process::spawning || m.process == Process::running ||
         m.process == Process::rejoining || m.process == Process::stopping;
}

std::string generation_text(Generation g) { return "generation " + std::to_string(g.value); }

// Moves on when the present order is carried out.
void advance(T& t) {
  const GroupState& s = t.state();
  if (s.stage == GroupStage::stopping) {
    for (RankIndex rank : s.stopping) {
      const Member* m = find_member(s, rank);
      if (m != nullptr && is_active(*m)) return;
    }
    t.record(ev::GroupStopped{s.generation},
             count_text(s.stopping.size(), "rank") + " stopped, nothing they started is left");
  } else if (s.stage == GroupStage::starting) {
    for (const SpawnCommand& c : s.commands) {
      const Member* m = find_member(s, c.key.rank);
      if (m == nullptr || m->process == Process::spawning) return;
    }
    t.record(ev::GroupUp{s.generation},
             "every rank of " + generation_text(s.generation) + " was started");
  }
}

void on_stop(T& t, const in::GroupStop& m) {
  const GroupState& s = t.state();
  bool done = m.generation < s.generation ||
              (m.generation == s.generation && s.stage != GroupStage::idle &&
               (s.stage != GroupStage::stopping || s.how.force || !m.how.force));
  if (done) return t.ignore("this order is older or known");
  t.record(ev::GroupStopOrdered{m.generation, m.ranks, m.how}, m.how.reason);
  advance(t);
}

void on_start(T& t, const in::GroupStart& m) {
  const GroupState& s = t.state();
  bool begun = s.stage == GroupStage::starting || s.stage == GroupStage::up;
  if (m.generation < s.generation || (m.generation == s.generation && begun))
    return t.ignore("this order is older or known");
  t.record(ev::GroupStartOrdered{m.generation, m.commands, m.hosts},
           "the job starts " + generation_text(m.generation));
}

void on_status(T& t, const in::RankStatus& m) {
  const Member* known = find_member(t.state(), m.rank);
  if (known != nullptr && m.incarnation < known->incarnation)
    return t.ignore("an older incarnation");
  if (known == nullptr || known->incarnation != m.incarnation || known->process != m.process)
    t.record(ev::MemberChanged{m.rank, m.incarnation, m.process},
             "rank " + std::to_string(m.rank.value) + " is " + std::string(to_string(m.process)));
  t.send(EntityId::job(t.state().job), m);
  advance(t);
}

}  // namespace

void decide(Turn<GroupState>& t, NoLive&) {
  std::visit(Overloaded{
                 [&](const in::GroupStop& m) { on_stop(t, m); },
                 [&](const in::GroupStart& m) { on_start(t, m); },
                 [&](const in::RankStatus& m) { on_status(t, m); },
                 [&](const in::Resumed&) { advance(t); },
                 [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for a group"); },
             },
             t.envelope().input);
}

std::vector<Action> pending(const GroupState& s) {
  std::vector<Action> actions;
  if (s.stage == GroupStage::stopping) {
    for (RankIndex rank : s.stopping) {
      const Member* m = find_member(s, rank);
      if (m != nullptr && is_active(*m))
        actions.push_back(
            Message{EntityId::rank(s.job, rank), in::RankStop{m->incarnation, s.how}});
    }
  }
  if (s.stage == GroupStage::starting) {
    for (size_t i = 0; i < s.commands.size(); ++i) {
      const Member* m = find_member(s, s.commands[i].key.rank);
      if (m == nullptr || m->process == Process::spawning)
        actions.push_back(Message{EntityId::rank(s.job, s.commands[i].key.rank),
                                  in::RankStart{s.commands[i], s.hosts[i]}});
    }
  }
  bool stopped = s.stage == GroupStage::stopped, up = s.stage == GroupStage::up;
  if (stopped || up)
    actions.push_back(
        Message{EntityId::job(s.job), in::GroupStatus{s.group, s.generation, stopped, up}});
  return actions;
}

void apply(GroupState& s, const EventRecord& r) {
  auto set_member = [&](RankIndex rank, Incarnation incarnation, Process process) {
    Member* m = find_member(s, rank);
    if (m == nullptr) {
      auto at = std::lower_bound(s.members.begin(), s.members.end(), rank,
                                 [](const Member& a, RankIndex b) { return a.rank < b; });
      m = &*s.members.insert(at, Member{rank, {}, Process::standby});
    }
    m->incarnation = incarnation;
    m->process = process;
  };
  std::visit(Overloaded{
                 [&](const ev::GroupStopOrdered& e) {
                   s.generation = e.generation;
                   s.stopping = e.ranks;
                   s.how = e.how;
                   s.stage = GroupStage::stopping;
                 },
                 [&](const ev::GroupStopped&) { s.stage = GroupStage::stopped; },
                 [&](const ev::GroupStartOrdered& e) {
                   s.generation = e.generation;
                   s.commands = e.commands;
                   s.hosts = e.hosts;
                   s.stage = GroupStage::starting;
                   for (const SpawnCommand& c : e.commands)
                     set_member(c.key.rank, c.key.incarnation, Process::spawning);
                 },
                 [&](const ev::GroupUp&) { s.stage = GroupStage::up; },
                 [&](const ev::MemberChanged& e) { set_member(e.rank, e.incarnation, e.process); },
                 [&](const ev::EntityQuarantined&) {},
                 [&](const auto& e) {
                   throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of a group");
                 },
             },
             r.event);
}

}  // namespace regrow

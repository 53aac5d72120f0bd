#include "tests/sim/checkers.h"

#include "supervisors/blame.h"
#include "tests/driver/text.h"

namespace regrow::sim {
namespace {

IncarnationKey key_of(const EventRecord& r, Incarnation i) {
  auto number = [](std::string_view text) {
    return static_cast<uint32_t>(std::stoul(std::string(text)));
  };
  return {*r.entity.job_id(), RankIndex{number(r.entity.part(2))}, i};
}

void require(bool ok, const std::string& rule, const EventRecord& r) {
  if (!ok) throw Violation(rule + ": " + record_text(r));
}

}  // namespace

void DurableIndex::add(const EventRecord& r) {
  if (r.by.role == "operator") operators_done.insert(r.by.who);
  std::visit(
      Overloaded{[&](const ev::RankSpawning& e) {
                   spawning.insert(e.command.key);
                   newest[{e.command.key.job, e.command.key.rank}] = e.command.key.incarnation;
                 },
                 [&](const ev::RankStopping& e) { stopping.insert(key_of(r, e.incarnation)); },
                 [&](const ev::RankExited& e) {
                   exited.insert(key_of(r, e.incarnation));
                   if (regrow::left_something(e.report))
                     left_something.insert(key_of(r, e.incarnation));
                 },
                 [&](const ev::RankLost& e) { lost.insert(key_of(r, e.incarnation)); },
                 [&](const ev::RankDoomed& e) { doomed.insert(e.key); },
                 [&](const ev::JobAccepted& e) { accepted.insert(e.job); },
                 [&](const ev::ControllerStarted& e) { epoch = e.epoch.number; },
                 [&](const ev::StageEntered& e) {
                   if (e.stage == Stage::preparing)
                     prepare_attempt[*r.entity.job_id()] = e.prepare_attempt;
                 },
                 [&](const ev::RecoveryPlanned& e) { planned[*r.entity.job_id()] = e.generation; },
                 [&](const ev::GenerationFormed& e) { formed[*r.entity.job_id()] = e.generation; },
                 [](const auto&) {}},
      r.event);
}

void HistoryCheck::add(const EventRecord& r) {
  require(!r.reason.empty(), "O-2 every decision carries its reason", r);
  require(!std::holds_alternative<ev::EntityQuarantined>(r.event), "no entity is ever quarantined",
          r);
  auto job = [&]() -> Job& { return jobs_[*r.entity.job_id()]; };
  std::visit(
      Overloaded{[&](const ev::DesiredChanged& e) {
                   Job& j = job();
                   require(!j.cancelled, "O-1 a cancelled job stays cancelled", r);
                   j.desired = e.desired;
                   j.cancelled = e.desired == Desired::cancel;
                 },
                 [&](const ev::RecoveryPlanned& e) {
                   Job& j = job();
                   for (RankIndex rank : e.stop) j.may_stop.insert({rank, j.of_slot[rank]});
                   j.to_start = e.start;
                 },
                 [&](const ev::RankStopping& e) {
                   RankIndex rank = key_of(r, e.incarnation).rank;
                   require(job().may_stop.count({rank, e.incarnation}) != 0,
                           "R-3 nobody is stopped that no plan names", r);
                 },
                 [&](const ev::GenerationStarted& e) {
                   Job& j = job();
                   require(j.desired == Desired::run,
                           "O-1 nothing starts while cancel, pause or hold is wanted", r);
                   require(!j.ended, "an ended job starts nothing", r);
                   require(e.generation > j.generation, "generations rise", r);
                   j.generation = e.generation;
                   for (RankIndex rank : j.to_start) j.of_slot[rank] = next(j.of_slot[rank]);
                 },
                 [&](const ev::JobEnded& e) {
                   Job& j = job();
                   require(!j.ended, "a job ends once", r);
                   require(!j.cancelled || e.phase == Phase::cancelled,
                           "O-1 a cancelled job ends cancelled", r);
                   j.ended = true;
                 },
                 [&](const ev::RankSpawning& e) {
                   Incarnation& newest = job().newest[e.command.key.rank];
                   require(e.command.key.incarnation > newest,
                           "R-2 an incarnation is never used again", r);
                   newest = e.command.key.incarnation;
                 },
                 [&](const ev::IncidentOpened& e) {
                   Job& j = job();
                   require(e.incident == j.incident_count + 1, "B-1 incidents are counted once", r);
                   j.incident_count = e.incident;
                   bool once = j.blamed.insert({e.rank, e.incarnation}).second;
                   require(once || e.failure_class == FailureClass::device ||
                               e.failure_class == FailureClass::infrastructure,
                           "B-1 one loss opens one incident", r);
                   j.incidents.push_back({e.failure_class, e.charged});
                 },
                 [&](const ev::IncidentReclassified& e) {
                   job().incidents.back() = {e.failure_class, e.charged};
                 },
                 [&](const ev::BudgetRefilled&) { job().counts_from = job().incidents.size(); },
                 [&](const ev::HostNoted& e) { usable_[e.host] = e.usable; },
                 [&](const ev::DeviceNoted& e) {
                   device_usable_[{e.host, e.device.name}] = e.device.usable;
                 },
                 [&](const ev::DevicesGranted& e) {
                   for (const Placement& p : e.placements) {
                     require(usable_[p.host],
                             "O-1 nothing is placed on a host that is cordoned or out of reach", r);
                     for (const DeviceName& d : p.devices)
                       require(device_usable_[{p.host, d}],
                               "D-2 a device that is not healthy is not given out", r);
                   }
                 },
                 [](const auto&) {}},
      r.event);
}

std::map<std::pair<JobId, FailureClass>, uint32_t> HistoryCheck::budget() const {
  std::map<std::pair<JobId, FailureClass>, uint32_t> used;
  for (const auto& [id, job] : jobs_) {
    for (size_t i = job.counts_from; i < job.incidents.size(); ++i) {
      if (job.incidents[i].second) ++used[{id, job.incidents[i].first}];
    }
  }
  return used;
}

std::map<EntityId, AnyState> fold(const SimJournal& journal, uint64_t upto) {
  std::map<EntityId, AnyState> states;
  for (uint64_t i = 0; i < upto; ++i) {
    const EventRecord& r = journal.records[i];
    auto [it, fresh] = states.try_emplace(r.entity, AnyState());
    if (fresh) it->second = initial_state(r.entity);
    apply(it->second, r);
  }
  return states;
}

void check_fold(const SimController& controller) {
  auto states = fold(controller.journal(), controller.journal().records.size());
  for (const auto& [id, state] : states) {
    const EntityHost* host = controller.find(id);
    auto text = [](const AnyState& s) {
      return std::visit(Overloaded{[](const std::monostate&) { return std::string("nothing"); },
                                   [](const auto& x) { return fields_text(x); }},
                        s);
    };
    // A loss that is not known is NaN, which is not equal to itself; as text it is.
    bool equal = host != nullptr && (host->state() == state || text(host->state()) == text(state));
    if (equal) continue;
    throw Violation("J-2 the fold of the journal differs from the live state of " + id.path +
                    "\n  fold " + text(state) + "\n  live " +
                    (host == nullptr ? "no host" : text(host->state())));
  }
  for (const EntityId& id : controller.entities()) {
    if (states.count(id) == 0 && !(controller.find(id)->state() == initial_state(id)))
      throw Violation("J-2 " + id.path + " has a state and no events");
  }
}

}  // namespace regrow::sim

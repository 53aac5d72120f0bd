#include "supervisors/machines.h"

#include <charconv>

namespace regrow {
namespace {

uint32_t number(std::string_view text) {
  uint32_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

}  // namespace

AnyState initial_state(const EntityId& id) {
  switch (id.kind()) {
    case EntityKind::cluster:
      return ClusterState{};
    case EntityKind::host: {
      HostState s;
      s.name = {std::string(id.part(1))};
      return s;
    }
    case EntityKind::device: {
      DeviceState s;
      s.host = {std::string(id.part(1))};
      s.report.name = {std::string(id.part(2))};
      return s;
    }
    case EntityKind::job: {
      JobState s;
      s.job = *id.job_id();
      return s;
    }
    case EntityKind::group: {
      GroupState s;
      s.job = *id.job_id();
      s.group = {number(id.part(2))};
      return s;
    }
    case EntityKind::rank: {
      RankState s;
      s.job = *id.job_id();
      s.rank = {number(id.part(2))};
      return s;
    }
    default:
      return std::monostate();
  }
}

bool may_create_entity(const Input& input) {
  return std::visit(
      Overloaded{
          [](const in::StartTerm&) { return true; }, [](const in::AgentConnected&) { return true; },
          [](const in::DeviceSeen&) { return true; }, [](const in::Submit&) { return true; },
          [](const in::CreateJob&) { return true; }, [](const in::GroupStop&) { return true; },
          [](const in::GroupStart&) { return true; }, [](const in::RankStart&) { return true; },
          // About processes whose start this journal may not know: they are answered.
          [](const in::RankStop&) { return true; }, [](const in::AgentReport&) { return true; },
          [](const in::InventoryReport&) { return true; },
          [](const in::AttachRank&) { return true; }, [](const auto&) { return false; }},
      input);
}

bool may_want_more(const AnyState& state, const Event& event) {
  return std::visit(
      Overloaded{[&](const ev::MemberChanged& e) {
                   // One that becomes active while its group is stopping has to be stopped as well.
                   bool starts = e.process == Process::spawning || e.process == Process::running;
                   return starts && std::get<GroupState>(state).stage == GroupStage::stopping;
                 },
                 [](const ev::SlotEnded& e) { return e.lost; },
                 [](const ev::SlotRunning&) { return false; },
                 [](const ev::ProgressSampled&) { return false; },
                 [](const ev::GenerationFormed&) { return false; },
                 [](const ev::HostLinkNoted&) { return false; },
                 [](const ev::WaitingNoted&) { return false; },
                 [](const ev::BudgetRefilled&) { return false; }, [](const auto&) { return true; }},
      event);
}

void apply(AnyState& state, const EventRecord& record) {
  std::visit(Overloaded{[&](std::monostate&) {
                          throw BrokenInvariant("no such entity: " + record.entity.path);
                        },
                        [&](auto& s) { apply(s, record); }},
             state);
}

}  // namespace regrow

// A rank slot alone: which incarnation counts, and what happens to the others.
#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

const EntityId rank_id = EntityId::rank({1}, {3});
const HostName h1{"h1"}, h2{"h2"};

struct Slot3 {
  EntityHost host{rank_id};
  int64_t seconds = 1;
  uint64_t n = 0;

  Outbox give(Input in) {
    Outbox out = host.handle(input(rank_id, std::move(in)), at(seconds++));
    n += out.records.size();
    Outbox later = host.durable(n);
    for (auto& e : later.effects) out.effects.push_back(e);
    return out;
  }
  Process process() const { return std::get<RankState>(host.state()).process; }
};

StopCommand polite() {
  StopCommand c;
  c.reason = "cancelled";
  return c;
}

}  // namespace

TEST_CASE("a stale exit report changes nothing but frees its device", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  slot.give(in::DeclareLost{{1}, "host h1 is out of reach"});
  CHECK(slot.process() == Process::lost);
  slot.give(in::RankStart{spawn(3, 2), h2});
  Outbox out = slot.give(in::AgentReport{h1, report(ProcessState::exited, 3, 1, 1), {}});
  CHECK(out.records.empty());
  CHECK(effects_of<fx::Acknowledge>(out).size() == 1);
  CHECK(messages_of<in::DetachRank>(out).size() == 1);
  CHECK(slot.process() == Process::spawning);
}

TEST_CASE("a stale incarnation that still runs is killed", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  slot.give(in::DeclareLost{{1}, "out of reach"});
  Outbox out = slot.give(in::AgentReport{h1, report(ProcessState::running, 3, 1), {}});
  REQUIRE(effects_of<fx::Stop>(out).size() == 1);
  CHECK(effects_of<fx::Stop>(out)[0].command.force);
  slot.give(in::RankStart{spawn(3, 2), h2});
  out = slot.give(in::InventoryReport{h1, report(ProcessState::running, 3, 1), {}});
  CHECK(effects_of<fx::Stop>(out).size() == 1);
  CHECK(slot.process() == Process::spawning);
}

TEST_CASE("an incarnation newer than the journal is left alone", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  Outbox out = slot.give(in::AgentReport{h1, report(ProcessState::running, 3, 9), {}});
  CHECK(out.records.empty());
  CHECK(effects_of<fx::Stop>(out).empty());
}

TEST_CASE("an incarnation is started once, and older orders are ignored", "[rank]") {  // R-2, F-1
  Slot3 slot;
  CHECK(effects_of<fx::Spawn>(slot.give(in::RankStart{spawn(3, 2), h1})).size() == 1);
  CHECK(slot.give(in::RankStart{spawn(3, 2), h1}).records.empty());
  CHECK(slot.give(in::RankStart{spawn(3, 1), h1}).records.empty());
  CHECK(slot.give(in::RankStop{{1}, polite()}).records.empty());
  CHECK(slot.process() == Process::spawning);
}

TEST_CASE("on an unknown outcome the agent is asked again, never another incarnation made",
          "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  Outbox out = slot.give(in::InventoryReport{h1, report(ProcessState::unknown, 3, 1), {}});
  CHECK(out.records.empty());
  REQUIRE(effects_of<fx::Spawn>(out).size() == 1);
  CHECK(effects_of<fx::Spawn>(out)[0].command.key.incarnation == Incarnation{1});
}

TEST_CASE("a running rank that its agent knows nothing of is lost", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  slot.give(in::AgentReport{h1, report(ProcessState::running, 3, 1), {7}});
  RankReport unknown = report(ProcessState::unknown, 3, 1);
  unknown.message = "the agent has no record of it";
  // What an agent knew when this connection began is older than what it said over it since.
  CHECK(slot.give(in::InventoryReport{h1, unknown, {7}}).records.empty());
  CHECK(only_event<ev::RankLost>(slot.give(in::InventoryReport{h1, unknown, {8}})) != nullptr);
}

TEST_CASE("a forced stop overrides a polite one, not the other way round", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  CHECK(effects_of<fx::Stop>(slot.give(in::RankStop{{1}, polite()})).size() == 1);
  CHECK(slot.give(in::RankStop{{1}, polite()}).records.empty());
  StopCommand force = polite();
  force.force = true;
  Outbox out = slot.give(in::RankStop{{1}, force});
  REQUIRE(effects_of<fx::Stop>(out).size() == 1);
  CHECK(effects_of<fx::Stop>(out)[0].command.force);
  CHECK(slot.give(in::RankStop{{1}, polite()}).records.empty());
}

TEST_CASE("stopping an incarnation whose start was lost answers that it never was", "[rank]") {
  Slot3 slot;
  Outbox out = slot.give(in::RankStop{{1}, polite()});
  CHECK(out.records.empty());
  auto answers = messages_of<in::RankStatus>(out);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].incarnation == Incarnation{1});
  CHECK(answers[0].process == Process::exited);
  CHECK(answers[0].report.state == ProcessState::never_started);
  CHECK(answers[0].report.ended_by_us);
}

TEST_CASE("a start over a living incarnation gives that up first", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  Outbox out = slot.give(in::RankStart{spawn(3, 2), h2});
  REQUIRE(out.records.size() == 2);
  CHECK(std::holds_alternative<ev::RankLost>(out.records[0].event));
  CHECK(messages_of<in::DoomRank>(out).size() == 1);
}

TEST_CASE("what an ended rank left behind holds its device until it is gone", "[rank]") {  // D-2
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  RankReport left = report(ProcessState::exited, 3, 1, 0, 9);
  left.group_gone_us = 0;
  Outbox out = slot.give(in::AgentReport{h1, left, {}});
  const auto* exited = only_event<ev::RankExited>(out);
  REQUIRE(exited != nullptr);
  CHECK(out.records[0].reason.find("could not be ended") != std::string::npos);
  CHECK(effects_of<fx::Acknowledge>(out).size() == 1);
  CHECK(messages_of<in::DetachRank>(out).empty());
  // Said again: nothing new, and still nothing is given back.
  out = slot.give(in::InventoryReport{h1, left, {}});
  CHECK(out.records.empty());
  CHECK(messages_of<in::DetachRank>(out).empty());
  RankReport gone = left;
  gone.group_gone_us = 77;
  out = slot.give(in::AgentReport{h1, gone, {}});
  REQUIRE(only_event<ev::RankExited>(out) != nullptr);
  CHECK(messages_of<in::DetachRank>(out).size() == 1);
  CHECK(effects_of<fx::Acknowledge>(out).size() == 1);
  CHECK(slot.give(in::AgentReport{h1, gone, {}}).records.empty());
  CHECK(std::get<RankState>(slot.host.state()).past.size() == 1);
}

TEST_CASE("what an older incarnation left behind stays with its host until it is gone",
          "[rank]") {  // D-2
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  RankReport left = report(ProcessState::gone, 3, 1);
  left.group_gone_us = 0;
  slot.give(in::AgentReport{h1, left, {}});
  slot.give(in::RankStart{spawn(3, 2), h2});
  Outbox out = slot.give(in::AgentReport{h1, left, {}});
  CHECK(effects_of<fx::Acknowledge>(out).size() == 1);
  CHECK(messages_of<in::DetachRank>(out).empty());
  left.group_gone_us = 77;
  out = slot.give(in::AgentReport{h1, left, {}});
  CHECK(messages_of<in::DetachRank>(out).size() == 1);
  CHECK(slot.process() == Process::spawning);
}

TEST_CASE("an agent without a record of what was left behind ends the wait for it", "[rank]") {
  Slot3 slot;
  slot.give(in::RankStart{spawn(3, 1), h1});
  RankReport left = report(ProcessState::exited, 3, 1);
  left.group_gone_us = 0;
  slot.give(in::AgentReport{h1, left, {7}});
  Outbox out = slot.give(in::InventoryReport{h1, report(ProcessState::unknown, 3, 1), {8}});
  CHECK(messages_of<in::DetachRank>(out).size() == 1);
}

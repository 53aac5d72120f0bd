#include "supervisors/engine.h"

#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

const EntityId rank_id = EntityId::rank({1}, {3});
const HostName h1{"h1"}, h2{"h2"};

Outbox start(EntityHost& host, uint32_t incarnation, int64_t seconds = 1) {
  return host.handle(input(rank_id, in::RankStart{spawn(3, incarnation), h1}), at(seconds));
}

Outbox tell(EntityHost& host, const RankReport& r, int64_t seconds = 2, RequestId request = {}) {
  return host.handle(input(rank_id, in::AgentReport{h1, r, {}}, request), at(seconds));
}

}  // namespace

TEST_CASE("effects and replies wait until what they rest on is durable", "[engine]") {  // J-3
  EntityHost host(rank_id);
  Outbox out = start(host, 1);
  REQUIRE(out.records.size() == 1);
  CHECK(out.records[0].n == 1);
  CHECK(out.records[0].entity == rank_id);
  CHECK(out.effects.empty());
  CHECK_FALSE(
      out.messages
          .empty());  // messages do not wait: their receivers' events come later in the journal
  out = host.durable(1);
  CHECK(effects_of<fx::Spawn>(out).size() == 1);
  CHECK(host.durable(1).effects.empty());

  out = tell(host, report(ProcessState::exited, 3, 1, 1), 2, {77});
  CHECK(out.replies.empty());
  out = host.durable(2);
  REQUIRE(out.replies.size() == 1);
  CHECK(out.replies[0].request == RequestId{77});
  CHECK(effects_of<fx::Acknowledge>(out).size() == 1);
}

TEST_CASE("a reply that rests on nothing new is given once the past is durable", "[engine]") {
  EntityHost host(rank_id);
  start(host, 1);
  Outbox out = tell(host, report(ProcessState::unknown, 3, 1), 2, {5});
  CHECK(out.records.empty());
  CHECK(out.replies.empty());
  CHECK(host.durable(1).replies.size() == 1);
  CHECK(tell(host, report(ProcessState::unknown, 3, 1), 2, {6}).replies.size() == 1);
}

TEST_CASE("what is pending is issued once, and again after a restart", "[engine]") {
  EntityHost host(rank_id);
  Outbox first = start(host, 1);
  CHECK(messages_of<in::AttachRank>(first).size() == 1);
  host.durable(1);
  Outbox running = tell(host, report(ProcessState::running, 3, 1));
  CHECK(messages_of<in::AttachRank>(running).empty());  // wanted still, said already
  CHECK(messages_of<in::RankStatus>(running).size() == 1);

  EntityHost again(rank_id);
  EventRecord record = first.records[0];
  record.n = 1;
  again.replay(record);
  CHECK(again.state() == [&] {
    EntityHost twin(rank_id);
    start(twin, 1);
    return twin.state();
  }());
  Outbox out = again.handle(input(rank_id, in::Resumed{}), at(9));
  CHECK(out.records.empty());
  CHECK(effects_of<fx::Spawn>(out).size() == 1);
  CHECK(messages_of<in::AttachRank>(out).size() == 1);
}

TEST_CASE("an order is given again while the agent does not answer", "[engine]") {
  EntityHost host(rank_id);
  start(host, 1, 10);
  host.durable(1);
  REQUIRE(host.wake_at(at(10)));
  CHECK(*host.wake_at(at(10)) == Time{Duration::seconds(15).us});
  CHECK(effects_of<fx::Spawn>(host.handle(input(rank_id, in::Tick{}), at(12))).empty());
  CHECK(effects_of<fx::Spawn>(host.handle(input(rank_id, in::Tick{}), at(15))).size() == 1);
  CHECK(*host.wake_at(at(15)) == Time{Duration::seconds(20).us});
  tell(host, report(ProcessState::running, 3, 1), 16);
  CHECK_FALSE(host.wake_at(at(16)));
}

TEST_CASE("a broken check quarantines the entity and nothing else", "[engine]") {
  // A journal in which the state of a job makes no sense: a slot that does not exist is placed.
  EntityId job = EntityId::job({1});
  EntityHost host(job);
  EventRecord created;
  created.entity = job;
  created.n = 1;
  created.event = ev::JobCreated{spec_of(2), "uid:1000"};
  host.replay(created);
  EventRecord wrong;
  wrong.entity = job;
  wrong.event = ev::RankLost{{1}};
  CHECK_THROWS_AS(host.replay(wrong), BrokenInvariant);

  EventRecord quarantined;
  quarantined.entity = job;
  quarantined.n = 2;
  quarantined.event = ev::EntityQuarantined{"a check failed"};
  host.replay(quarantined);
  CHECK(host.quarantined() == "a check failed");
  Outbox out = host.handle(input(job, in::SetDesired{Desired::cancel, "x"}, {3}), at(5));
  CHECK(out.records.empty());
  CHECK(out.effects.empty());
  CHECK(out.messages.empty());
  REQUIRE(out.replies.size() == 1);
  CHECK_FALSE(out.replies[0].ok);
  CHECK(out.replies[0].message.find("a check failed") != std::string::npos);
  CHECK_FALSE(host.wake_at(at(5)));
}

TEST_CASE("an exception in a decision is journaled, and its request answered", "[engine]") {
  // A state that cannot be: prepared on another host than where its rank is.
  EntityId id = EntityId::job({1});
  JobState s;
  s.job = {1};
  s.spec = spec_of(1);
  s.slots.resize(1);
  s.slots[0].host = h1;
  s.slots[0].placed = true;
  s.start = {{0}};
  s.stage = Stage::preparing;
  s.generation = {1};
  s.prepare_attempt = 1;
  s.prepare_hosts = {h2};
  EntityHost host(id, s, 4, "");
  PrepareReport r;
  r.job = {1};
  r.generation = {1};
  r.attempt = 1;
  Outbox out = host.handle(input(id, in::Prepared{h2, r}, {9}), at(5));
  REQUIRE(out.records.size() == 1);
  CHECK(std::holds_alternative<ev::EntityQuarantined>(out.records[0].event));
  CHECK(out.records[0].n == 5);
  CHECK(out.messages.empty());
  CHECK_FALSE(host.quarantined().empty());
  CHECK_FALSE(host.wake_at(at(9)));
  out = host.durable(5);
  REQUIRE(out.replies.size() == 1);
  CHECK_FALSE(out.replies[0].ok);
}

TEST_CASE("a damaged record is refused, not obeyed", "[engine]") {
  JobState s;
  s.job = {1};
  s.slots.resize(2);
  EventRecord r;
  for (Event e :
       std::vector<Event>{ev::SlotEnded{{2}, {1}, {}, {}, {}, {}, {}, {}},
                          ev::SlotRunning{{9}, {1}}, ev::SlotCondemned{{4}},
                          ev::SlotsPlaced{1, {{RankIndex{7}, {"h1"}, {}}}}, ev::RankLost{{1}}}) {
    r.event = e;
    CHECK_THROWS_AS(apply(s, r), BrokenInvariant);
  }
  ev::RecoveryPlanned plan;
  plan.start = {{5}};
  r.event = plan;
  CHECK_THROWS_AS(apply(s, r), BrokenInvariant);
}

TEST_CASE("decisions are remembered with their reasons, and only the newest", "[engine]") {
  EntityHost host(rank_id);
  for (uint32_t i = 1; i <= 40; ++i) start(host, i);
  CHECK(host.decisions().size() == 24);
  CHECK(host.decisions().back().outcome.find("RankSpawning: generation 40 starts on h1") !=
        std::string::npos);
  start(host, 3);
  CHECK(host.decisions().back().outcome == "ignored: this incarnation was started already");
}

TEST_CASE("which inputs may bring an entity into being", "[engine]") {
  CHECK(may_create_entity(in::CreateJob{}));
  CHECK(may_create_entity(in::RankStop{}));
  CHECK(may_create_entity(in::AgentReport{}));
  CHECK_FALSE(may_create_entity(in::RankStatus{}));
  CHECK_FALSE(may_create_entity(in::SetDesired{}));
  CHECK_FALSE(may_create_entity(in::Tick{}));
}

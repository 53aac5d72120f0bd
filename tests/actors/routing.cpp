// How messages find their entity, and who makes one that is not there yet.
#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {

using Catch::Matchers::Contains;

TEST_CASE("a request to an entity that does not exist is refused with an answer") {
  World world;
  world.boot();
  for (const EntityId& id :
       {EntityId::job({9}), EntityId::rank({9}, {0}), EntityId::host({"h9"})}) {
    INFO(id.path);
    RequestId request = world.ask(id, in::SetDesired{Desired::cancel, "typo"});
    world.run();
    REQUIRE(world.answer(request) != nullptr);
    CHECK_FALSE(world.answer(request)->ok);
    CHECK(world.answer(request)->message == "there is no " + id.path);
    CHECK_FALSE(world.has_actor(id));
  }
  CHECK(world.journal.events().size() == 1);  // the term's begin
}

TEST_CASE("a report about a rank of an unknown job is answered, and makes no job") {
  World world;
  world.boot();
  RankReport report;
  report.key = {{9}, {0}, {1}};
  report.state = ProcessState::exited;
  RequestId request = world.ask(EntityId::rank({9}, {0}), in::AgentReport{{"h1"}, report, {}});
  world.run();
  CHECK(world.answer(request) != nullptr);
  CHECK_FALSE(world.has_actor(EntityId::job({9})));
}

TEST_CASE("an input that may create its entity makes it and is its first input") {
  World world;
  world.boot();
  REQUIRE_FALSE(world.has_actor(EntityId::host({"h1"})));
  world.add_host("h1", 1);
  REQUIRE(world.has_actor(EntityId::host({"h1"})));
  auto events = world.events_of(EntityId::host({"h1"}));
  REQUIRE(events.size() >= 2);
  CHECK(std::holds_alternative<ev::HostRegistered>(events[0].event));
  CHECK(events[0].n == 1);

  SECTION("also when more comes at once for the same entity") {
    RankReport report;
    report.key = {{1}, {0}, {1}};
    report.state = ProcessState::running;
    world.submit(1);
    for (int i = 0; i < 3; ++i) world.tell(EntityId::device({"h1"}, {"sim9"}), in::DeviceSeen{});
    world.run();
    CHECK(world.has_actor(EntityId::device({"h1"}, {"sim9"})));
    CHECK(world.agrees_with_journal(EntityId::device({"h1"}, {"sim9"})));
  }
}

TEST_CASE("a device makes its host's actor on the way only if the host is known") {
  World world;
  world.boot();
  world.tell(EntityId::device({"h5"}, {"sim0"}), in::DeviceSeen{});
  world.run();
  CHECK_FALSE(world.has_actor(EntityId::host({"h5"})));
  CHECK_FALSE(world.has_actor(EntityId::device({"h5"}, {"sim0"})));
  CHECK(world.fatal.empty());
}

TEST_CASE("a rank belongs to its group, whoever names it") {
  CHECK(*creator_of({rank_id(0), {}, {}, {}, in::AgentReport{}}) == group_id());
  in::RankStart start;
  start.command.key = {{1}, {5}, {1}};
  start.command.group = {2};
  CHECK(*creator_of({rank_id(5), {}, {}, {}, start}) == EntityId::group({1}, {2}));
  CHECK(*creator_of({rank_id(5), {EntityId::group({1}, {3}), 1}, {}, {}, in::RankStop{}}) ==
        EntityId::group({1}, {3}));
  CHECK(*creator_of({job_id(), {}, {}, {}, in::CreateJob{}}) == EntityId::cluster());
  CHECK_FALSE(creator_of({job_id(), {}, {}, {}, in::SetDesired{}}));
  RankState state;
  state.job = {1};
  state.group = {4};
  CHECK(parent_of(rank_id(5), state) == EntityId::group({1}, {4}));
}

}  // namespace regrow::actor_tests

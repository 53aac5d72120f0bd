// J-3: nothing that an entity decided is seen outside before it is on disk.
#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {

TEST_CASE("an operator's answer waits until what it tells is on disk") {
  World world;
  world.boot();
  size_t before = world.journal.events().size();
  world.hold(world.journal_actor_handle);
  RequestId request = world.ask(EntityId::cluster(), in::Submit{"", spec_of(1)});
  world.run();
  REQUIRE(world.inspect(EntityId::cluster())->n > before);  // decided
  CHECK(world.answer(request) == nullptr);
  world.let_go(world.journal_actor_handle);
  world.run();
  REQUIRE(world.answer(request) != nullptr);
  CHECK(world.answer(request)->ok);
  CHECK(world.journal.events().size() > before);
}

TEST_CASE("no command reaches an agent before the decision to start is on disk") {
  World world;
  world.boot();
  world.add_host("h1", 1);
  world.hold(world.journal_actor_handle);
  world.submit(1);
  CHECK(world.effects.size() == 1);  // the answer to the inventory, from before
  world.let_go(world.journal_actor_handle);
  world.run();
  REQUIRE(world.sent_commands<Spawn>().size() == 1);

  SECTION("nor the order to stop") {
    world.hold(world.journal_actor_handle);
    RequestId request = world.ask(job_id(), in::SetDesired{Desired::cancel, "enough"});
    world.run();
    REQUIRE(world.state<RankState>(rank_id(0)).process == Process::stopping);  // decided
    CHECK(world.sent_commands<StopCommand>().empty());
    CHECK(world.answer(request) == nullptr);
    world.let_go(world.journal_actor_handle);
    world.run();
    CHECK(world.sent_commands<StopCommand>().size() == 1);
    CHECK(world.answer(request)->ok);
  }
}

TEST_CASE("an agent's report is acknowledged when it is on disk, not before") {
  World world;
  world.start_job(1);
  world.hold(world.journal_actor_handle);
  RequestId report = world.end_process({0}, 3);
  world.run();
  REQUIRE(world.state<RankState>(rank_id(0)).process == Process::exited);
  CHECK(world.answer(report) == nullptr);
  CHECK(world.sent_commands<Acknowledge>().empty());
  world.let_go(world.journal_actor_handle);
  world.run();
  CHECK(world.answer(report) != nullptr);
  CHECK(world.sent_commands<Acknowledge>().size() >= 1);
}

TEST_CASE("views show what is on disk only") {
  World world;
  world.boot();
  world.hold(world.journal_actor_handle);
  world.submit(1);
  CHECK(world.has_actor(job_id()));
  CHECK_FALSE(world.context.projection.find(job_id()));
  world.let_go(world.journal_actor_handle);
  world.run();
  CHECK(world.context.projection.find(job_id()));
}

TEST_CASE(
    "a controller started on the journal of another issues again what was pending, and no more") {
  auto window = std::make_shared<JournalWindow>();
  SpawnCommand wanted;
  {
    World world({window});
    world.mute = {{1}};
    world.start_job(2);
    REQUIRE(world.performed<fx::Spawn>().size() == 2);
    wanted = world.performed<fx::Spawn>()[1].command;
  }
  World later({window});
  later.boot();
  auto spawns = later.performed<fx::Spawn>();
  REQUIRE(spawns.size() == 1);
  CHECK(spawns[0].command == wanted);
  CHECK(later.sent.empty());  // nobody is connected
}

}  // namespace regrow::actor_tests

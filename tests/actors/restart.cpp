// An entity's actor dies: what it knew is in the journal, and life goes on from there.
#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {
namespace {

using Catch::Matchers::Contains;

size_t actors_made(const LogCapture& log, const EntityId& id) {
  std::string text = log.text(), words = "the actor of " + id.path + " died";
  size_t count = 0;
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++count;
  return count;
}

void throw_at_next_input(World& world, const EntityId& id) {
  world.context.faults = FaultPoints("entity.before_input@" + id.path + ":1:throw");
}

}  // namespace

TEST_CASE("an actor that throws is made anew from the journal, and the job goes on") {
  World world;
  world.start_job(2);
  auto before = world.processes();
  LogCapture log;
  throw_at_next_input(world, rank_id(0));
  caf::actor old = world.actor_of(rank_id(0));
  world.tell(rank_id(0), in::RankStop{{1}, {}});
  world.run();
  CHECK(log.has("the actor of rank/1/0 threw: fault point entity.before_input of rank/1/0"));
  CHECK(world.actor_of(rank_id(0)) != old);
  CHECK(world.inspect(rank_id(0))->restarts == 1);
  CHECK(world.state<RankState>(rank_id(0)).process == Process::running);
  for (const auto& [id, actor] : world.context.directory.all()) {
    INFO(id.path);
    CHECK(world.agrees_with_journal(id));
    CHECK(world.inspect(id)->restarts == (id == rank_id(0) ? 1 : 0));
  }
  CHECK(world.fatal.empty());
  CHECK(world.processes() == before);
  CHECK(world.performed<fx::Spawn>().size() == 2);

  // It works: the ends of both ranks are the end of the job.
  world.end_process({0}, 0);
  world.end_process({1}, 0);
  world.run();
  CHECK(world.state<JobState>(job_id()).phase == Phase::completed);
}

TEST_CASE("what was pending is issued again when an actor was made anew, exactly then") {
  World world;
  world.mute = {{1}};
  world.start_job(2);
  REQUIRE(world.state<RankState>(rank_id(1)).process == Process::spawning);
  auto spawns_of_1 = [&] {
    size_t count = 0;
    for (const fx::Spawn& spawn : world.performed<fx::Spawn>())
      count += spawn.command.key.rank == RankIndex{1};
    return count;
  };
  REQUIRE(spawns_of_1() == 1);
  world.run();
  CHECK(spawns_of_1() == 1);

  SECTION("of the one that died") {
    world.kill_actor(rank_id(1));
    world.run();
    CHECK(spawns_of_1() == 2);
  }
  SECTION("of all others") {
    size_t specs = world.performed<fx::KeepSpec>().size();
    world.kill_actor(rank_id(0));
    world.run();
    CHECK(spawns_of_1() == 2);
    CHECK(world.performed<fx::KeepSpec>().size() == specs + 1);
  }
  SECTION("not before what the dead one handed over is on disk") {
    world.hold(world.journal_actor_handle);
    world.kill_actor(rank_id(1));
    world.run();
    CHECK(spawns_of_1() == 1);
    CHECK_FALSE(world.has_actor(rank_id(1)));
    world.let_go(world.journal_actor_handle);
    world.run();
    CHECK(spawns_of_1() == 2);
  }
  world.run();
  CHECK(spawns_of_1() == 2);
  // The agent was told of one and the same incarnation (R-2).
  CHECK(world.processes().size() == 2);
  CHECK(world.count_events<ev::RankSpawning>(rank_id(1)) == 1);
}

TEST_CASE("an actor that dies between a decision and its consequences loses neither") {
  for (const char* point : {"entity.before_append", "entity.after_append"}) {
    for (const EntityId& id : {job_id(), group_id(), rank_id(0), EntityId::host({"h1"})}) {
      INFO(point << " of " << id.path);
      World world;
      world.boot();
      world.add_host("h1", 2);
      world.context.faults = FaultPoints(std::string(point) + "@" + id.path + ":1:throw");
      world.submit(2);
      world.live(Duration::seconds(12));  // what was said once is asked for again
      CHECK(world.inspect(id)->restarts == 1);
      CHECK(world.agrees_with_journal(id));
      CHECK(world.state<RankState>(rank_id(0)).process == Process::running);
      CHECK(world.state<RankState>(rank_id(1)).process == Process::running);
      CHECK(world.processes().size() == 2);
      CHECK(world.fatal.empty());
    }
  }
}

TEST_CASE("in whatever order the actors take their turn, a death costs no rank its process") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    World world({std::make_shared<JournalWindow>(), seed});
    world.start_job(3);
    auto before = world.processes();
    EntityId victims[] = {rank_id(seed % 3), group_id(), job_id(), EntityId::host({"h1"})};
    world.kill_actor(victims[seed % 4]);
    world.kill_actor(victims[seed / 4 % 4 == seed % 4 ? (seed + 1) % 4 : seed / 4 % 4]);
    world.end_process({1}, 0);
    world.run();
    for (const auto& [id, actor] : world.context.directory.all()) {
      INFO(id.path);
      CHECK(world.agrees_with_journal(id));
    }
    auto after = world.processes();
    for (uint32_t rank : {0u, 2u}) {
      IncarnationKey key{{1}, {rank}, {1}};
      CHECK(after.at(key) == before.at(key));
    }
    CHECK(after.size() == 3);
    CHECK(world.context.directory.all().size() ==
          10);  // cluster, host, 3 devices, job, group, 3 ranks
    CHECK(world.fatal.empty());
  }
}

TEST_CASE("who waits for an answer of the dead actor is told that there is none") {
  World world;
  world.start_job(1);

  SECTION("an agent repeats its report") {
    throw_at_next_input(world, rank_id(0));
    RequestId report = world.end_process({0}, 0);
    world.run();
    CHECK(world.was_lost(report));
    CHECK(world.answer(report) == nullptr);
    CHECK(world.state<RankState>(rank_id(0)).process == Process::running);
    world.connect("h1");  // what the agent does then
    CHECK(world.state<RankState>(rank_id(0)).process == Process::exited);
    CHECK(world.state<JobState>(job_id()).phase == Phase::completed);
  }
  SECTION("an operator whose command was decided but is not on disk yet") {
    world.hold(world.journal_actor_handle);
    RequestId request = world.ask(job_id(), in::SetDesired{Desired::pause, "lunch"});
    world.run();
    world.kill_actor(job_id());
    world.run();
    CHECK(world.was_lost(request));
    world.let_go(world.journal_actor_handle);
    world.run();
    CHECK(world.answer(request) == nullptr);
    CHECK(world.state<JobState>(job_id()).desired == Desired::pause);
  }
  SECTION("requests to others stay") {
    world.hold(world.journal_actor_handle);
    RequestId request =
        world.ask(EntityId::host({"h1"}), in::SetHostAdmin{HostAdmin::cordoned, "fan"});
    world.run();
    world.kill_actor(job_id());
    world.run();
    world.let_go(world.journal_actor_handle);
    world.run();
    CHECK_FALSE(world.was_lost(request));
    REQUIRE(world.answer(request) != nullptr);
    CHECK(world.answer(request)->ok);
  }
}

TEST_CASE("what comes while an actor is being made anew waits for it, and makes no second one") {
  World world;
  world.start_job(1);
  LogCapture log;
  world.hold(world.journal_actor_handle);
  world.kill_actor(rank_id(0));
  world.run();
  RequestId report = world.end_process({0}, 0);
  RequestId stop = world.ask(rank_id(0), in::SetDesired{});
  world.run();
  CHECK_FALSE(world.has_actor(rank_id(0)));
  CHECK(world.answer(report) == nullptr);
  // A person is not kept waiting.
  REQUIRE(world.answer(stop) != nullptr);
  CHECK_THAT(world.answer(stop)->message,
             Contains("rank/1/0 is being restarted") && Contains("ask again"));

  world.let_go(world.journal_actor_handle);
  world.run();
  REQUIRE(world.answer(report) != nullptr);
  CHECK(world.answer(report)->ok);
  CHECK(world.inspect(rank_id(0))->restarts == 1);
  CHECK(world.agrees_with_journal(rank_id(0)));
  CHECK(world.state<JobState>(job_id()).phase == Phase::completed);
  CHECK(actors_made(log, rank_id(0)) == 1);
}

TEST_CASE("an actor that dies too often stays down, says so, and no message brings it back") {
  World world;
  world.start_job(1);
  LogCapture log;
  for (size_t death = 1; death <= kMaxRestarts; ++death) {
    world.kill_actor(rank_id(0));
    world.run();
    CHECK(world.inspect(rank_id(0))->restarts == death);
    world.advance(Duration::seconds(1));
  }
  CHECK_FALSE(log.has("stays down"));
  world.kill_actor(rank_id(0));
  world.run();
  CHECK_FALSE(world.has_actor(rank_id(0)));
  CHECK(log.has("the actor of rank/1/0 died 6 times within a minute: it stays down"));

  RequestId report = world.end_process({0}, 0);  // may create a rank that there is not
  world.run();
  CHECK_FALSE(world.has_actor(rank_id(0)));
  REQUIRE(world.answer(report) != nullptr);
  CHECK_FALSE(world.answer(report)->ok);
  CHECK_THAT(world.answer(report)->message, Contains("rank/1/0 stays down"));

  // Not even when its parent is made anew.
  world.kill_actor(group_id());
  world.run();
  CHECK(world.has_actor(group_id()));
  CHECK_FALSE(world.has_actor(rank_id(0)));
  // The rest lives.
  RequestId pause = world.ask(job_id(), in::SetDesired{Desired::pause, "lunch"});
  world.run();
  CHECK(world.answer(pause)->ok);
}

TEST_CASE("deaths that lie a minute apart are no reason to stay down") {
  World world;
  world.start_job(1);
  for (size_t death = 1; death <= 2 * kMaxRestarts; ++death) {
    world.kill_actor(rank_id(0));
    world.run();
    REQUIRE(world.inspect(rank_id(0))->restarts == death);
    world.advance(Duration::seconds(13));
  }
}

TEST_CASE("after a parent was made anew its children still live and are watched again") {
  World world;
  world.start_job(2);
  // A rank without any event of its own: the agent told of a process that nobody started.
  RankReport stray;
  stray.key = {{1}, {7}, {1}};
  stray.state = ProcessState::exited;
  world.tell(rank_id(7), in::AgentReport{{"h1"}, stray, {}});
  world.run();
  REQUIRE(world.events_of(rank_id(7)).empty());
  std::vector<EntityId> children{rank_id(0), rank_id(1), rank_id(7)};
  std::map<EntityId, caf::actor> before;
  for (const EntityId& id : children) before[id] = world.actor_of(id);

  world.kill_actor(group_id());
  world.run();
  CHECK(world.inspect(group_id())->restarts == 1);
  for (const EntityId& id : children) {
    INFO(id.path);
    CHECK(world.actor_of(id) == before[id]);
    world.kill_actor(id);
    world.run();
    REQUIRE(world.has_actor(id));
    CHECK(world.actor_of(id) != before[id]);
  }
}

TEST_CASE(
    "a child that dies while its parent is dead is made anew, and those below it are watched") {
  World world;
  world.start_job(1);
  world.hold(world.journal_actor_handle);
  caf::actor rank = world.actor_of(rank_id(0));
  SECTION("its parent did not see it") {
    world.kill_actor(job_id());
    world.kill_actor(group_id());
  }
  SECTION("its parent was about to mend it") {
    world.kill_actor(group_id());
    world.run();
    world.kill_actor(job_id());
  }
  world.run();
  CHECK_FALSE(world.has_actor(job_id()));
  world.let_go(world.journal_actor_handle);
  world.run();
  REQUIRE(world.has_actor(group_id()));
  CHECK(world.actor_of(rank_id(0)) == rank);
  world.kill_actor(rank_id(0));
  world.run();
  CHECK(world.actor_of(rank_id(0)) != rank);
  world.end_process({0}, 0);
  world.run();
  CHECK(world.state<JobState>(job_id()).phase == Phase::completed);
}

TEST_CASE("the end of the controller is no death") {
  World world;
  world.start_job(1);
  LogCapture log;
  caf::anon_send_exit(world.actor_of(rank_id(0)), caf::exit_reason::user_shutdown);
  world.run();
  CHECK(log.text().find("died") == std::string::npos);
}

TEST_CASE("the cluster has no parent: when its actor dies the process ends") {
  World world;
  world.start_job(1);
  throw_at_next_input(world, EntityId::cluster());
  world.ask(EntityId::cluster(), in::Submit{"", spec_of(1)});
  world.run();
  REQUIRE(world.fatal.size() == 1);
  CHECK_THAT(world.fatal[0], Contains("cluster") && Contains("fault point entity.before_input"));
}

}  // namespace regrow::actor_tests

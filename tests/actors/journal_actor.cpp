// The journal actor by itself: batches, order, and what a failing journal does.
#include "actors/controller/journal_actor.h"

#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {
namespace {

EventRecord note(const EntityId& id, uint64_t n) {
  EventRecord record;
  record.entity = id;
  record.n = n;
  record.reason = "test";
  record.event = ev::EntityQuarantined{"test"};
  return record;
}

// Stands for an entity: which of its events it was told are durable, and how long the journal was
// then.
struct Owner {
  std::vector<std::pair<uint64_t, uint64_t>> told;
  caf::actor actor;
  explicit Owner(World& world)
      : actor(world.system().spawn([this, &world](caf::event_based_actor*) -> caf::behavior {
          return {[this, &world](const msg::Durable& m) {
            told.emplace_back(m.n, world.journal.last_seq());
          }};
        })) {}
  ~Owner() { caf::anon_send_exit(actor, caf::exit_reason::user_shutdown); }
};

void append(World& world, const Owner& owner, const EntityId& id, uint64_t first,
            uint64_t count = 1) {
  auto records = std::make_shared<std::vector<EventRecord>>();
  for (uint64_t i = 0; i < count; ++i) records->push_back(note(id, first + i));
  caf::anon_send(world.journal_actor_handle, msg::Append{records, owner.actor});
}

bool barrier(World& world) {
  bool passed = false;
  caf::actor asker = world.system().spawn([&](caf::event_based_actor* self) {
    self->request(world.journal_actor_handle, caf::infinite, msg::Barrier{}).then([&](bool) {
      passed = true;
    });
  });
  world.run();
  caf::anon_send_exit(asker, caf::exit_reason::user_shutdown);
  world.run();
  return passed;
}

}  // namespace

TEST_CASE("appends that wait together become one synced write") {
  World world;
  Owner one(world), two(world);
  for (uint64_t i = 1; i <= 100; ++i) {
    append(world, one, rank_id(1), i);
    append(world, two, rank_id(2), i);
  }
  world.run();
  CHECK(world.window->batches == std::vector<size_t>{200});
  CHECK(one.told == std::vector<std::pair<uint64_t, uint64_t>>{{100, 200}});
  CHECK(two.told == std::vector<std::pair<uint64_t, uint64_t>>{{100, 200}});
}

TEST_CASE("a batch has a limit, and none waits for company") {
  World world;
  Owner owner(world);
  append(world, owner, rank_id(1), 1);
  world.run();
  for (uint64_t i = 0; i < 50; ++i) append(world, owner, rank_id(1), 2 + 50 * i, 50);
  world.run();
  CHECK(world.window->batches == std::vector<size_t>{1, kMaxBatch, 500});
  CHECK(world.journal.last_seq() == 2501);
  CHECK(owner.told.back() == std::pair<uint64_t, uint64_t>{2501, 2501});
}

TEST_CASE("a barrier is passed when all before it is on disk and in the projection") {
  World world;
  Owner owner(world);
  append(world, owner, rank_id(1), 1, 3);
  CHECK(barrier(world));
  CHECK(world.journal.last_seq() == 3);
  CHECK(world.context.projection.last_seq() == 3);
  CHECK(barrier(world));  // with nothing to write
  CHECK(world.window->batches == std::vector<size_t>{3});
}

TEST_CASE("a failed write ends the process, and nobody is told anything of it") {
  World world;
  Owner owner(world);
  append(world, owner, rank_id(1), 1);
  world.run();
  world.journal.fail_after(2);
  append(world, owner, rank_id(1), 2, 2);
  CHECK_FALSE(barrier(world));
  REQUIRE(world.fatal.size() == 1);
  CHECK_THAT(world.fatal[0], Catch::Matchers::Contains("the journal could not be written") &&
                                 Catch::Matchers::Contains("input/output error"));
  CHECK(owner.told.size() == 1);
  CHECK(world.context.projection.last_seq() == 1);
  CHECK(world.journal.last_seq() == 1);

  append(world, owner, rank_id(1), 4);
  world.run();
  CHECK(owner.told.size() == 1);
  CHECK(world.fatal.size() == 1);
}

TEST_CASE("no decision is seen after the journal failed") {
  World world;
  world.start_job(1);
  size_t effects = world.effects.size();
  world.journal.fail_after(world.journal.last_seq());
  RequestId request = world.ask(job_id(), in::SetDesired{Desired::cancel, "enough"});
  world.run();
  CHECK(world.fatal.size() == 1);
  CHECK(world.answer(request) == nullptr);
  CHECK(world.effects.size() == effects);
  world.advance(Duration::seconds(2));
  CHECK(world.effects.size() == effects);
}

TEST_CASE(
    "an exception in the journal actor ends the process instead of leaving it without a journal") {
  World world;
  Owner owner(world);
  world.window->throws = true;
  append(world, owner, rank_id(1), 1);
  world.run();
  REQUIRE(world.fatal.size() == 1);
  CHECK_THAT(world.fatal[0], Catch::Matchers::Contains("journal") &&
                                 Catch::Matchers::Contains("the disk is on fire"));
  CHECK(owner.told.empty());
}

TEST_CASE("closing writes what is left, and snapshots for the next start") {
  World world;
  world.start_job(1);
  world.hold(world.journal_actor_handle);
  world.ask(job_id(), in::SetDesired{Desired::pause, "lunch"});
  world.run();
  uint64_t before = world.journal.last_seq();
  caf::anon_send(world.journal_actor_handle, msg::CloseJournal{});
  world.let_go(world.journal_actor_handle);
  world.run();
  CHECK(world.journal.last_seq() > before);
  CHECK(world.journal.snapshot_mark().value().seq == world.journal.last_seq());
}

}  // namespace regrow::actor_tests

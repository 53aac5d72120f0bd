// Followers of events: each gets what it asked for once and in order, and none holds up another.
#include <nlohmann/json.hpp>

#include "actors/controller/watch_actor.h"
#include "journal/reflect_json.h"
#include "tests/actors/world.h"
#include "tests/catch.h"
#include "transport/admin_impl.h"
#include "transport/kj_loop.h"

namespace regrow::actor_tests {
namespace {

// The transport's own queue of one follower, read by the test.
struct Follower {
  KjLoop& loop;
  std::shared_ptr<WatchSink::State> queue;
  std::vector<uint64_t> seen;
  std::vector<std::string> entities;
  std::string ended;

  explicit Follower(KjLoop& l, size_t max_bytes = 1u << 20)
      : loop(l), queue(std::make_shared<WatchSink::State>(l, max_bytes)) {}
  WatchSink sink() { return WatchSink(queue); }
  void read(size_t max_lines = SIZE_MAX) {
    auto work = queue->take(max_lines, SIZE_MAX);
    for (const std::string& line : work.lines) {
      auto event = nlohmann::json::parse(line);
      seen.push_back(event.at("seq"));
      entities.push_back(event.at("entity"));
    }
    if (work.over) ended = work.end_reason;
  }
};

struct Watched : World {
  std::unique_ptr<KjLoop> kj = std::make_unique<KjLoop>("kj");
  KjLoop& loop = *kj;
  caf::actor owner = system().spawn(
      [](caf::event_based_actor*) -> caf::behavior { return {[](const msg::Durable&) {}}; });
  ~Watched() override { caf::anon_send_exit(owner, caf::exit_reason::user_shutdown); }
  void grow(uint64_t count, const EntityId& id = rank_id(1)) {
    auto records = std::make_shared<std::vector<EventRecord>>();
    for (uint64_t i = 0; i < count; ++i) {
      EventRecord record;
      record.entity = id;
      record.n = ++numbers[id];
      record.reason = "test";
      record.event = ev::EntityQuarantined{"test"};
      records->push_back(record);
    }
    caf::anon_send(journal_actor_handle, msg::Append{records, owner});
  }
  void follow(Follower& follower, uint64_t from, std::string entity = {}) {
    caf::anon_send(watches, msg::AddWatch{{from, std::move(entity)}, follower.sink()});
  }
  std::map<EntityId, uint64_t> numbers;
};

std::vector<uint64_t> from_to(uint64_t first, uint64_t last) {
  std::vector<uint64_t> numbers;
  for (uint64_t n = first; n <= last; ++n) numbers.push_back(n);
  return numbers;
}

}  // namespace

TEST_CASE("a follower gets every event from where it asked, once and in order") {
  Watched world;
  world.grow(30);
  world.run();
  Follower all(world.loop), late(world.loop), fresh(world.loop), ahead(world.loop);
  world.follow(all, 0);
  world.follow(late, 17);
  world.follow(fresh, kOnlyNew);
  world.follow(ahead, 40);
  for (int i = 0; i < 5; ++i) {
    world.grow(5);  // some come while the past is read, some later
    if (i % 2 == 1) world.run();
    all.read(3);
  }
  world.run();
  for (auto* follower : {&all, &late, &fresh, &ahead}) follower->read();
  CHECK(all.seen == from_to(1, 55));
  CHECK(late.seen == from_to(17, 55));
  CHECK(fresh.seen == from_to(31, 55));
  CHECK(ahead.seen == from_to(40, 55));
}

TEST_CASE("a long past is read in steps, and others get their turn between") {
  Watched world;
  world.grow(3 * kWatchStep + 10);
  world.run();
  Follower behind(world.loop, 64u << 20), fresh(world.loop);
  world.follow(behind, 1);
  world.follow(fresh, kOnlyNew);
  world.grow(1);
  world.run();
  behind.read();
  fresh.read();
  CHECK(behind.seen == from_to(1, 3 * kWatchStep + 11));
  CHECK(fresh.seen == from_to(3 * kWatchStep + 11, 3 * kWatchStep + 11));
}

TEST_CASE("a follower of one job gets what is of it and below it") {
  Watched world;
  Follower job(world.loop), rank(world.loop), host(world.loop);
  world.follow(job, 1, "job/1");
  world.follow(rank, 1, "rank/1/0");
  world.follow(host, 1, "host/h1");
  for (const EntityId& id :
       {EntityId::cluster(), job_id(), group_id(), rank_id(0), rank_id(10), EntityId::job({10}),
        EntityId::rank({10}, {0}), EntityId::host({"h1"}), EntityId::host({"h10"}),
        EntityId::device({"h1"}, {"sim0"}), EntityId::device({"h10"}, {"sim0"})})
    world.grow(1, id);
  world.run();
  for (auto* follower : {&job, &rank, &host}) follower->read();
  CHECK(job.entities == std::vector<std::string>{"job/1", "group/1/0", "rank/1/0", "rank/1/10"});
  CHECK(rank.entities == std::vector<std::string>{"rank/1/0"});
  CHECK(host.entities == std::vector<std::string>{"host/h1", "device/h1/sim0"});
}

TEST_CASE("a follower that does not read is let go at its limit, and holds up nobody") {
  Watched world;
  Follower slow(world.loop, 20'000), good(world.loop, 64u << 20);
  world.follow(slow, 1);
  world.follow(good, 1);
  for (int i = 0; i < 50; ++i) {
    world.grow(20);
    world.run();
    good.read();
  }
  CHECK(good.seen == from_to(1, 1000));
  CHECK(slow.queue->closed());
  slow.read();
  CHECK(slow.seen.empty());  // nothing is kept for it
  CHECK_THAT(slow.ended, Catch::Matchers::Contains("too slowly"));

  // It comes back and reads from where it was.
  Follower again(world.loop);
  world.follow(again, 1);
  world.run();
  again.read();
  CHECK(again.seen == from_to(1, 1000));
}

TEST_CASE("a watch whose events cannot be read ends with the reason, the others go on") {
  class Unreadable final : public Journal {
   public:
    JournalResult<uint64_t> append(std::vector<EventRecord>&) override { return uint64_t{0}; }
    JournalResult<uint64_t> replay(uint64_t from, const EventCallback&) const override {
      if (from <= 5) return JournalError{JournalFault::corrupt, "event 5 is missing"};
      return uint64_t{10};
    }
    uint64_t last_seq() const override { return 10; }
    JournalResult<std::optional<EventRecord>> get(uint64_t) const override {
      return std::optional<EventRecord>();
    }
    JournalResult<Done> replay_entity(const EntityId&, uint64_t, uint64_t, const EventCallback&,
                                      bool) const override {
      return Done{};
    }
    JournalResult<std::vector<IndexedEntity>> entities(uint64_t) const override {
      return std::vector<IndexedEntity>();
    }
    JournalResult<Done> put_meta(const std::string&, const std::string&) override { return Done{}; }
    JournalResult<std::optional<std::string>> get_meta(const std::string&) const override {
      return std::optional<std::string>();
    }
    JournalResult<Done> write_snapshots(const SnapshotBatch&) override { return Done{}; }
    JournalResult<SnapshotMark> snapshot_mark() const override { return SnapshotMark(); }
    JournalResult<std::optional<std::string>> get_snapshot(const EntityId&) const override {
      return std::optional<std::string>();
    }
    std::optional<JournalError> failure() const override { return std::nullopt; }
  };
  Watched world;
  Unreadable journal;
  caf::actor watches =
      world.system().spawn(watch_actor, static_cast<const Journal*>(&journal), world.context.fatal);
  Follower early(world.loop), late(world.loop);
  caf::anon_send(watches, msg::AddWatch{{3, ""}, early.sink()});
  caf::anon_send(watches, msg::AddWatch{{7, ""}, late.sink()});
  world.run();
  early.read();
  late.read();
  CHECK_THAT(early.ended, Catch::Matchers::Contains("event 5 is missing"));
  CHECK(late.ended.empty());
  CHECK_FALSE(late.queue->closed());
  caf::anon_send_exit(watches, caf::exit_reason::user_shutdown);
  world.run();
}

}  // namespace regrow::actor_tests

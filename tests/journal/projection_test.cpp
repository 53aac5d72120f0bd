// J-2: replay has no effects of its own, and snapshot + tail is the same as a full replay.
#include "journal/projection.h"

#include <limits>
#include <stdexcept>

#include "journal/memory_journal.h"
#include "journal/snapshot.h"
#include "journal/state_hash.h"
#include "tests/journal/journal_helpers.h"

namespace regrow {
namespace {

using namespace testing;
using Catch::Matchers::Contains;

// A fold whose every step changes every field, as a function of the state before and the event
// alone. A snapshot that loses anything at all gives another state from then on.
template <class S>
void scramble(S& state, const EventRecord& record) {
  Filler filler(hash_of(record.event, hash_of(state, record.n)));
  filler.fill(state);
}
AnyState empty_state(const EntityId& id) {
  switch (id.kind()) {
    case EntityKind::cluster:
      return ClusterState{};
    case EntityKind::host:
      return HostState{};
    case EntityKind::device:
      return DeviceState{};
    case EntityKind::job:
      return JobState{};
    case EntityKind::group:
      return GroupState{};
    case EntityKind::rank:
      return RankState{};
    default:
      return std::monostate{};
  }
}
void scrambling_fold(AnyState& state, const EventRecord& record) {
  if (std::holds_alternative<ev::EntityQuarantined>(record.event)) return;
  std::visit(
      [&]<class S>(S& value) {
        if constexpr (!std::is_same_v<S, std::monostate>) scramble(value, record);
      },
      state);
}

struct Scrambling : Projection {
  Scrambling() : Projection(empty_state, scrambling_fold) {}
};

uint64_t full_replay(const Journal& journal, uint64_t up_to = UINT64_MAX) {
  Scrambling projection;
  auto report = must(load_projection(journal, projection, {"v1", up_to, false}));
  CHECK(report.from_snapshots == 0);
  return projection.state_hash();
}

std::vector<EventRecord> random_batch(Filler& filler, std::map<EntityId, uint64_t>& counts) {
  std::vector<EventRecord> batch;
  for (uint64_t i = 0, n = 1 + filler.below(12); i < n; ++i) {
    EventRecord record = filler.record();
    record.n = ++counts[record.entity];
    batch.push_back(std::move(record));
  }
  return batch;
}

// Runs a history with checkpoints, restarting now and then from snapshot + tail.
void check_snapshots(Journal& journal, uint64_t seed, int batches) {
  Filler filler(seed);
  std::map<EntityId, uint64_t> counts;
  auto projection = std::make_unique<Scrambling>();
  auto snapshotter = std::make_unique<Snapshotter>(journal, *projection,
                                                   SnapshotOptions{"v1", 20 + filler.below(60)});
  for (int i = 0; i < batches; ++i) {
    auto batch = random_batch(filler, counts);
    must(journal.append(batch));
    for (const auto& record : batch) projection->apply(record);
    must(snapshotter->after_append());
    if (filler.chance(40)) must(snapshotter->write_now());
    if (!filler.chance(15)) continue;

    auto loaded = std::make_unique<Scrambling>();
    auto report = must(load_projection(journal, *loaded, {.program = "v1"}));
    INFO("seed " << seed << ", event " << journal.last_seq());
    REQUIRE(loaded->last_seq() == journal.last_seq());
    REQUIRE(loaded->state_hash() == projection->state_hash());
    REQUIRE(loaded->state_hash() == full_replay(journal));
    REQUIRE(report.snapshots_unused == "");
    projection = std::move(loaded);
    snapshotter = std::make_unique<Snapshotter>(journal, *projection,
                                                SnapshotOptions{"v1", 20 + filler.below(60)});
  }
}

TEST_CASE("snapshot + tail is the same as a full replay", "[projection]") {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    MemoryJournal journal;
    check_snapshots(journal, seed, 60);
  }
  TempDir dir;
  auto journal = must_open(small_journal(dir / "j"));
  check_snapshots(*journal, 1234, 150);
}

struct SnapshotFixture {
  MemoryJournal journal;
  Scrambling projection;
  std::map<EntityId, uint64_t> counts;
  Filler filler{7};

  void run(int batches) {
    for (int i = 0; i < batches; ++i) {
      auto batch = random_batch(filler, counts);
      must(journal.append(batch));
      for (const auto& record : batch) projection.apply(record);
    }
  }
  void checkpoint() { must(Snapshotter(journal, projection, {"v1", 1000}).write_now()); }
};

TEST_CASE("an entity whose snapshot cannot be used is folded from its own events", "[projection]") {
  SnapshotFixture f;
  f.run(40);
  f.checkpoint();
  f.run(10);
  // Which entities a random history has is chance: any two that are in the checkpoint will do.
  std::vector<EntityId> kept;
  f.projection.for_each([&](const EntityView& view) {
    if (must(f.journal.get_snapshot(view.id))) kept.push_back(view.id);
  });
  REQUIRE(kept.size() > 1);
  EntityId job = kept.back();
  EntityId host = kept.front();
  std::string good = *must(f.journal.get_snapshot(job));
  SECTION("damaged") {
    good[good.size() / 2] ^= 4;
    f.journal.damage_snapshot(job, good);
  }
  SECTION("empty") { f.journal.damage_snapshot(job, ""); }
  SECTION("of another entity") {
    f.journal.damage_snapshot(job, *must(f.journal.get_snapshot(host)));
  }
  SECTION("older than the index says") {
    EntityView view = must(decode_snapshot(job, good));
    view.last_seq -= 1;
    f.journal.damage_snapshot(job, encode_snapshot(view));
  }
  SECTION("missing") {
    SnapshotMark mark = must(f.journal.snapshot_mark());
    SnapshotBatch drop{mark.seq, mark.stamp, false, {}, {job}};
    must(f.journal.write_snapshots(drop));
  }
  Scrambling loaded;
  auto report = must(load_projection(f.journal, loaded, {.program = "v1"}));
  CHECK(std::find(report.rebuilt.begin(), report.rebuilt.end(), job) != report.rebuilt.end());
  CHECK(report.from_snapshots > 0);
  CHECK(loaded.state_hash() == f.projection.state_hash());
}

TEST_CASE("snapshots of another version are not used, and replaced", "[projection]") {
  SnapshotFixture f;
  f.run(40);
  f.checkpoint();
  Scrambling loaded;
  auto report = must(load_projection(f.journal, loaded, {.program = "v2"}));
  CHECK(report.from_snapshots == 0);
  CHECK(report.snapshots_unused == "of another version");
  CHECK(loaded.state_hash() == f.projection.state_hash());

  must(Snapshotter(f.journal, loaded, {"v2", 1000}).write_now());
  Scrambling again;
  CHECK(must(load_projection(f.journal, again, {.program = "v2"})).from_snapshots > 0);
  CHECK(again.state_hash() == f.projection.state_hash());
}

TEST_CASE("time travel folds exactly up to the event asked for", "[projection]") {
  SnapshotFixture f;
  f.run(20);
  f.checkpoint();
  uint64_t mark = must(f.journal.snapshot_mark()).seq;
  f.run(20);
  for (uint64_t seq : {mark - 5, mark, mark + 5}) {
    Scrambling then;
    must(load_projection(f.journal, then, {"v1", seq, true}));
    CHECK(then.last_seq() == seq);
    CHECK(then.state_hash() == full_replay(f.journal, seq));
  }
}

TEST_CASE("a snapshot survives numbers that JSON has no word for", "[projection]") {
  EntityView view;
  view.id = EntityId::job({1});
  JobState job;
  for (double loss :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), -0.0, 0.1}) {
    job.progress.loss = loss;
    view.state = job;
    auto back = must(decode_snapshot(view.id, encode_snapshot(view)));
    CHECK(hash_of(back.state) == hash_of(view.state));
  }
}

TEST_CASE("damaged snapshot bytes are an error and nothing more", "[projection]") {
  Filler filler(11);
  EntityView view;
  view.id = EntityId::rank({3}, {4});
  for (int round = 0; round < 300; ++round) {
    view.state = filler.make<RankState>();
    std::string bytes = encode_snapshot(view);
    REQUIRE(must(decode_snapshot(view.id, bytes)).state == view.state);
    bytes[filler.below(bytes.size())] ^= static_cast<char>(1 + filler.below(255));
    REQUIRE_FALSE(decode_snapshot(view.id, bytes));
  }
}

TEST_CASE("a record that does not apply quarantines its entity and nothing else", "[projection]") {
  int calls = 0;
  Projection projection(empty_state, [&](AnyState& state, const EventRecord& record) {
    ++calls;
    if (record.reason == "bad") throw std::runtime_error("slot 9 of 4");
    std::get<JobState>(state).recoveries += 1;
  });
  uint64_t seq = 0;
  auto feed = [&](uint64_t job, uint64_t n, const char* reason) {
    EventRecord record;
    record.seq = ++seq;
    record.entity = EntityId::job({job});
    record.n = n;
    record.reason = reason;
    record.event = ev::JobHandedOver{};
    projection.apply(record);
  };
  feed(1, 1, "fine");
  feed(2, 1, "fine");
  feed(1, 2, "bad");
  feed(1, 3, "fine");
  feed(2, 2, "fine");
  feed(3, 2, "its first event is missing");
  CHECK(calls == 4);

  auto broken = projection.find(EntityId::job({1}));
  REQUIRE(broken);
  CHECK(broken->broken);
  CHECK(broken->n == 3);
  CHECK(std::get<JobState>(broken->state).recoveries == 1);
  CHECK_THAT(broken->quarantined, Contains("event 3") && Contains("slot 9 of 4"));
  CHECK(std::get<JobState>(projection.find(EntityId::job({2}))->state).recoveries == 2);
  auto listed = projection.quarantined();
  REQUIRE(listed.size() == 2);
  CHECK_THAT(listed[1].quarantined, Contains("number 1 was to follow"));
  CHECK_FALSE(projection.find(EntityId::job({4})));
  CHECK(projection.last_seq() == 6);
}

TEST_CASE("a quarantined entity is folded anew at every start", "[projection]") {
  SnapshotFixture f;
  f.run(30);
  EntityId job = EntityId::job({1});
  EventRecord record;
  record.entity = job;
  record.n = ++f.counts[job];
  record.event = ev::EntityQuarantined{"a check failed"};
  std::vector<EventRecord> batch{record};
  must(f.journal.append(batch));
  f.projection.apply(batch[0]);
  CHECK(f.projection.find(job)->quarantined == "a check failed");
  f.checkpoint();
  CHECK_FALSE(must(f.journal.get_snapshot(job)));
  Scrambling loaded;
  must(load_projection(f.journal, loaded, {.program = "v1"}));
  CHECK(loaded.find(job)->quarantined == "a check failed");
  CHECK(loaded.state_hash() == f.projection.state_hash());
}

// The real fold, with a history that it accepts.
TEST_CASE("hosts and devices fold from their events", "[projection]") {
  MemoryJournal journal;
  Projection projection;
  uint64_t n = 0;
  auto add = [&](const EntityId& entity, uint64_t number, Event event) {
    EventRecord record;
    record.entity = entity;
    record.n = number;
    record.at = {1000000 * static_cast<int64_t>(++n)};
    record.event = std::move(event);
    std::vector<EventRecord> batch{record};
    must(journal.append(batch));
    projection.apply(batch[0]);
  };
  EntityId host = EntityId::host({"h1"});
  EntityId device = EntityId::device({"h1"}, {"gpu0"});
  add(host, 1, ev::HostRegistered{"uid-1", "10.0.0.1"});
  add(host, 2, ev::HostLinkChanged{HostLink::up, "boot-1", "10.0.0.1"});
  DeviceReport report;
  report.name = {"gpu0"};
  report.kind = "sim";
  add(device, 1, ev::DeviceDiscovered{report});
  must(Snapshotter(journal, projection, {"v1", 1000}).write_now());
  add(host, 3, ev::HostLinkChanged{HostLink::suspect, "", ""});

  Projection loaded;
  auto loading = must(load_projection(journal, loaded, {.program = "v1"}));
  CHECK(loading.from_snapshots == 2);
  CHECK(loading.events == 1);
  CHECK(loaded.state_hash() == projection.state_hash());
  CHECK(loaded.quarantined().empty());
  auto view = loaded.find(host);
  REQUIRE(view);
  CHECK(std::get<HostState>(view->state).link == HostLink::suspect);
  CHECK(std::get<HostState>(view->state).boot_id == "boot-1");
}

TEST_CASE("the memory journal can be cut and can fail", "[memory]") {
  MemoryJournal journal;
  append_known(journal, 30, 4);
  CHECK(check_known_prefix(journal) == 30);
  CHECK(must(verify(journal)).events == 30);
  journal.cut_after(17);
  CHECK(check_known_prefix(journal) == 17);
  CHECK(must(verify(journal)).events == 17);

  journal.fail_after(18, JournalFault::no_space);
  auto failed = journal.append({known_event(18), known_event(19)});
  CHECK(failed.is_no_space());
  CHECK(journal.last_seq() == 17);
  CHECK(journal.append({known_event(18)}).is_no_space());
  journal.recover();
  append_known(journal, 3);
  CHECK(check_known_prefix(journal) == 20);
}

}  // namespace
}  // namespace regrow

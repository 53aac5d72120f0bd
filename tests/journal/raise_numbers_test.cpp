// After the end of a journal is lost: numbers go on far above, once, and only for a cluster.
#include "journal/raise_numbers.h"

#include "journal/memory_journal.h"
#include "journal/projection.h"
#include "tests/catch.h"

namespace regrow {
namespace {

EventRecord event_of_cluster(uint64_t n, Event event) {
  EventRecord record;
  record.entity = EntityId::cluster();
  record.n = n;
  record.at = {1'000'000};
  record.reason = "for this test";
  record.event = std::move(event);
  return record;
}

ClusterState state_of(const Journal& journal) {
  Projection projection;
  REQUIRE(journal.replay(1, [&](const EventRecord& r) {
    projection.apply(r);
    return true;
  }));
  CHECK(projection.quarantined().empty());
  return std::get<ClusterState>(projection.find(EntityId::cluster())->state);
}

TEST_CASE("raised numbers are above those of the journal and above what was seen", "[raise]") {
  MemoryJournal journal;
  CHECK_FALSE(*raise_numbers(journal, {.why = "nothing is known"}));
  CHECK(journal.last_seq() == 0);

  std::vector<EventRecord> events{event_of_cluster(1, ev::ControllerStarted{"c", {3, 33}, "test"}),
                                  event_of_cluster(2, ev::JobAccepted{{7}, "key", JobSpec{}})};
  REQUIRE(journal.append(events));
  auto raised = raise_numbers(journal, {.why = "the end was lost"});
  REQUIRE(raised);
  REQUIRE(*raised);
  CHECK((*raised)->reason.find("the end was lost") == 0);
  ClusterState state = state_of(journal);
  CHECK(state.next_job == 8 + kJobsSkipped);
  CHECK(state.epoch.number == 3 + kEpochsSkipped);
  CHECK(state.cluster_id == "c");

  raised = raise_numbers(journal, {.why = "an old copy", .seen_epoch = 500'000});
  REQUIRE(raised);
  CHECK(state_of(journal).epoch.number == 500'000 + kEpochsSkipped);
}

}  // namespace
}  // namespace regrow

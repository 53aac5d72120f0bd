#include "journal/raise_numbers.h"

#include <algorithm>
#include <chrono>

#include "journal/projection.h"

namespace regrow {

JournalResult<std::optional<EventRecord>> raise_numbers(Journal& journal, RaiseRequest request) {
  Projection history;
  auto read = journal.replay_entity(EntityId::cluster(), 1, UINT64_MAX, [&](const EventRecord& r) {
    history.apply(r);
    return true;
  });
  if (!read) return read.error();
  auto cluster = history.find(EntityId::cluster());
  if (!cluster) return std::optional<EventRecord>();
  const auto& state = std::get<ClusterState>(cluster->state);

  ev::NumbersRaised raised;
  raised.next_job = state.next_job + kJobsSkipped;
  raised.epoch = std::max(state.epoch.number, request.seen_epoch) + kEpochsSkipped;
  EventRecord record;
  record.entity = EntityId::cluster();
  record.n = cluster->n + 1;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  record.at = std::max(request.not_before,
                       Time{std::chrono::duration_cast<std::chrono::microseconds>(now).count()});
  record.reason =
      request.why + ": numbers may have been given out that it does not know, so jobs go on at " +
      std::to_string(raised.next_job) + ", epochs above " + std::to_string(raised.epoch);
  record.by = request.by;
  record.event = raised;
  std::vector<EventRecord> events{record};
  auto appended = journal.append(events);
  if (!appended) return appended.error();
  return std::optional<EventRecord>(events.front());
}

}  // namespace regrow

#include "journal/journal.h"

#include <algorithm>
#include <map>

namespace regrow {

JournalResult<std::vector<EventRecord>> newest_events(const Journal& journal,
                                                      const EntityId& entity, size_t limit) {
  std::vector<EventRecord> out;
  if (limit == 0) return out;
  auto read = journal.replay_entity(
      entity, 1, UINT64_MAX,
      [&](const EventRecord& record) {
        out.push_back(record);
        return out.size() < limit;
      },
      /*newest_first=*/true);
  if (!read) return read.error();
  std::reverse(out.begin(), out.end());
  return out;
}

JournalResult<JournalCheck> verify(const Journal& journal) {
  struct Seen {
    uint64_t n = 0;
    uint64_t seq = 0;
  };
  JournalCheck check;
  std::map<EntityId, Seen> seen;
  std::string problem;
  auto read = journal.replay(1, [&](const EventRecord& record) {
    Seen& entity = seen[record.entity];
    if (record.n != entity.n + 1) {
      problem = "event " + std::to_string(record.seq) + " is number " + std::to_string(record.n) +
                " of " + record.entity.path + ", but " + std::to_string(entity.n + 1) +
                " was to follow";
      return false;
    }
    entity = {record.n, record.seq};
    ++check.events;
    return true;
  });
  if (!read) return read.error();
  if (!problem.empty()) return JournalError{JournalFault::corrupt, problem};

  auto indexed = journal.entities(*read);
  if (!indexed) return indexed.error();
  for (const IndexedEntity& entry : *indexed) {
    auto found = seen.find(entry.entity);
    if (found == seen.end() || found->second.seq != entry.last_seq) {
      return JournalError{JournalFault::corrupt,
                          "the index of " + entry.entity.path + " ends with event " +
                              std::to_string(entry.last_seq) + ", its events do not"};
    }
    auto snapshot = journal.get_snapshot(entry.entity);
    if (!snapshot) return snapshot.error();
    if (snapshot->has_value()) ++check.snapshots;
  }
  if (indexed->size() != seen.size()) {
    return JournalError{JournalFault::corrupt,
                        "the index knows " + std::to_string(indexed->size()) +
                            " entities, the events " + std::to_string(seen.size())};
  }
  check.entities = seen.size();
  return check;
}

}  // namespace regrow

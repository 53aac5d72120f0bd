#include "journal/memory_journal.h"

#include <algorithm>

namespace regrow {

JournalResult<uint64_t> MemoryJournal::append(std::vector<EventRecord>& events) {
  if (failure_) return *failure_;
  uint64_t first = events_.size() + 1;
  if (events.empty()) return first;
  if (events_.size() + events.size() > fail_after_) {
    failure_ = {fault_, fault_ == JournalFault::no_space ? "no space left (simulated)"
                                                         : "input/output error (simulated)"};
    return *failure_;
  }
  for (EventRecord& event : events) {
    event.seq = events_.size() + 1;
    by_entity_[event.entity].push_back(event.seq);
    events_.push_back(event);
  }
  return first;
}

JournalResult<uint64_t> MemoryJournal::replay(uint64_t from, const EventCallback& each) const {
  from = std::max<uint64_t>(from, 1);
  uint64_t last = events_.size();
  for (uint64_t seq = from; seq <= last; ++seq) {
    if (!each(events_[seq - 1])) return seq;
  }
  return std::max(last, from - 1);
}

JournalResult<std::optional<EventRecord>> MemoryJournal::get(uint64_t seq) const {
  if (seq == 0 || seq > events_.size()) return std::optional<EventRecord>();
  return std::optional<EventRecord>(events_[seq - 1]);
}

JournalResult<Done> MemoryJournal::replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                                 const EventCallback& each,
                                                 bool newest_first) const {
  auto found = by_entity_.find(entity);
  if (found == by_entity_.end()) return Done{};
  std::vector<uint64_t> numbers = found->second;
  if (newest_first) std::reverse(numbers.begin(), numbers.end());
  for (uint64_t seq : numbers) {
    if (seq >= from && seq <= to && !each(events_[seq - 1])) break;
  }
  return Done{};
}

JournalResult<std::vector<IndexedEntity>> MemoryJournal::entities(uint64_t up_to) const {
  std::vector<IndexedEntity> out;
  for (const auto& [entity, numbers] : by_entity_) {
    auto behind = std::upper_bound(numbers.begin(), numbers.end(), up_to);
    if (behind != numbers.begin()) out.push_back({entity, *std::prev(behind)});
  }
  return out;
}

JournalResult<Done> MemoryJournal::put_meta(const std::string& key, const std::string& value) {
  if (failure_) return *failure_;
  meta_[key] = value;
  return Done{};
}

JournalResult<std::optional<std::string>> MemoryJournal::get_meta(const std::string& key) const {
  auto found = meta_.find(key);
  if (found == meta_.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

JournalResult<Done> MemoryJournal::write_snapshots(const SnapshotBatch& batch) {
  if (failure_) return *failure_;
  if (batch.replace_all) snapshots_.clear();
  for (const StoredSnapshot& snapshot : batch.put) snapshots_[snapshot.entity] = snapshot.bytes;
  for (const EntityId& entity : batch.drop) snapshots_.erase(entity);
  mark_ = {batch.seq, batch.stamp};
  return Done{};
}

JournalResult<std::optional<std::string>> MemoryJournal::get_snapshot(
    const EntityId& entity) const {
  auto found = snapshots_.find(entity);
  if (found == snapshots_.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

void MemoryJournal::cut_after(uint64_t seq) {
  if (seq >= events_.size()) return;
  events_.resize(seq);
  for (auto entry = by_entity_.begin(); entry != by_entity_.end();) {
    auto& numbers = entry->second;
    numbers.erase(std::upper_bound(numbers.begin(), numbers.end(), seq), numbers.end());
    entry = numbers.empty() ? by_entity_.erase(entry) : std::next(entry);
  }
  if (mark_.seq > seq) {
    snapshots_.clear();
    mark_ = {};
  }
}

void MemoryJournal::fail_after(uint64_t seq, JournalFault fault) {
  fail_after_ = seq;
  fault_ = fault;
}

void MemoryJournal::recover() {
  fail_after_ = UINT64_MAX;
  failure_.reset();
}

}  // namespace regrow

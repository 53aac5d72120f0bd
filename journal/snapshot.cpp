#include "journal/snapshot.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "journal/checksum.h"
#include "journal/reflect_json.h"
#include "journal/state_hash.h"

namespace regrow {

namespace {

constexpr uint8_t kSnapshotFormat = 1;
constexpr size_t kHeaderBytes = 1 + 8;  // format, checksum of the rest

JournalError unusable(const EntityId& entity, const std::string& why) {
  return {JournalFault::corrupt, "the snapshot of " + entity.path + " " + why};
}

// What cannot be written as a snapshot, or should be looked at anew by every program that starts.
bool worth_keeping(const EntityView& entity) {
  return entity.quarantined.empty() && !std::holds_alternative<std::monostate>(entity.state);
}

}  // namespace

std::string encode_snapshot(const EntityView& entity) {
  nlohmann::json document = {{"entity", entity.id.path},
                             {"n", entity.n},
                             {"seq", entity.last_seq},
                             {"at_us", entity.last_at.us},
                             {"state", to_json(entity.state)}};
  std::string out(kHeaderBytes, '\0');
  std::vector<uint8_t> body = nlohmann::json::to_cbor(document);
  out.append(reinterpret_cast<const char*>(body.data()), body.size());
  uint64_t checksum = xxh64(std::string_view(out).substr(kHeaderBytes));
  out[0] = static_cast<char>(kSnapshotFormat);
  std::memcpy(out.data() + 1, &checksum, sizeof(checksum));
  return out;
}

JournalResult<EntityView> decode_snapshot(const EntityId& entity, std::string_view bytes) {
  if (bytes.size() <= kHeaderBytes) return unusable(entity, "is too short");
  if (static_cast<uint8_t>(bytes[0]) != kSnapshotFormat)
    return unusable(entity, "has another format");
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + 1, sizeof(checksum));
  std::string_view body = bytes.substr(kHeaderBytes);
  if (xxh64(body) != checksum) return unusable(entity, "is damaged");
  try {
    auto document = nlohmann::json::from_cbor(body.begin(), body.end());
    EntityView out;
    out.id.path = document.at("entity").get<std::string>();
    out.n = document.at("n").get<uint64_t>();
    out.last_seq = document.at("seq").get<uint64_t>();
    out.last_at.us = document.at("at_us").get<int64_t>();
    out.state = from_json<AnyState>(document.at("state"));
    if (out.id != entity) return unusable(entity, "belongs to " + out.id.path);
    return out;
  } catch (const std::exception& e) {
    return unusable(entity, std::string("cannot be read: ") + e.what());
  }
}

std::string snapshot_stamp(const std::string& program) {
  char layout[24];
  std::snprintf(layout, sizeof(layout), "%016llx ",
                static_cast<unsigned long long>(layout_hash<AnyState>()));
  return layout + program;
}

Snapshotter::Snapshotter(Journal& journal, const Projection& projection, SnapshotOptions options)
    : journal_(journal),
      projection_(projection),
      options_(std::move(options)),
      stamp_(snapshot_stamp(options_.program)) {
  auto mark = journal_.snapshot_mark();
  if (mark) mark_ = *mark;
}

JournalResult<Done> Snapshotter::after_append() {
  uint64_t since = mark_.stamp == stamp_ ? mark_.seq : 0;
  if (projection_.last_seq() < since + options_.every) return Done{};
  return write_now();
}

JournalResult<Done> Snapshotter::write_now() {
  SnapshotBatch batch;
  batch.stamp = stamp_;
  batch.replace_all = mark_.stamp != stamp_;
  batch.seq = projection_.last_seq();
  if (batch.seq != journal_.last_seq()) {
    return JournalError{JournalFault::refused, "a snapshot of event " + std::to_string(batch.seq) +
                                                   " while the journal is at " +
                                                   std::to_string(journal_.last_seq())};
  }
  if (!batch.replace_all && batch.seq == mark_.seq) return Done{};
  projection_.for_each([&](const EntityView& entity) {
    if (!batch.replace_all && entity.last_seq <= mark_.seq) return;
    if (worth_keeping(entity))
      batch.put.push_back({entity.id, encode_snapshot(entity)});
    else
      batch.drop.push_back(entity.id);
  });
  auto written = journal_.write_snapshots(batch);
  if (written) mark_ = {batch.seq, batch.stamp};
  return written;
}

JournalResult<LoadReport> load_projection(const Journal& journal, Projection& projection,
                                          const LoadOptions& options) {
  LoadReport report;
  auto mark = journal.snapshot_mark();
  if (!mark) return mark.error();
  uint64_t base = 0;
  if (mark->seq > 0) {
    if (!options.use_snapshots)
      report.snapshots_unused = "not wanted";
    else if (mark->stamp != snapshot_stamp(options.program))
      report.snapshots_unused = "of another version";
    else if (mark->seq > options.up_to)
      report.snapshots_unused = "newer than the event asked for";
    else
      base = mark->seq;
  }

  auto apply = [&](const EventRecord& record) {
    if (record.seq > options.up_to) return false;
    projection.apply(record);
    ++report.events;
    return true;
  };
  if (base > 0) {
    auto entities = journal.entities(base);
    if (!entities) return entities.error();
    for (const IndexedEntity& entry : *entities) {
      auto bytes = journal.get_snapshot(entry.entity);
      if (!bytes) return bytes.error();
      if (*bytes) {
        auto snapshot = decode_snapshot(entry.entity, **bytes);
        if (snapshot && snapshot->last_seq == entry.last_seq) {
          projection.restore(std::move(*snapshot));
          ++report.from_snapshots;
          continue;
        }
      }
      report.rebuilt.push_back(entry.entity);
      auto read = journal.replay_entity(entry.entity, 1, base, apply);
      if (!read) return read.error();
    }
  }
  if (base < options.up_to) {
    auto read = journal.replay(base + 1, apply);
    if (!read) return read.error();
  }
  return report;
}

}  // namespace regrow

// One EventRecord as bytes, with the checksum that chains it to the record before.
//
// Bytes: 8 bytes chain (little-endian), then the event as one unpacked Cap'n Proto message
// (journal/schema/event.capnp). chain = xxh64(message, chain of the record before); the first
// record's predecessor is 0. docs/journal.md has every byte.
//
//   RecordEncoder encoder;
//   uint64_t chain = encoder.encode(record, mono_us, previous_chain, bytes);
//   auto stored = decode_record(bytes, previous_chain);   // stored->record == record
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "journal/journal_error.h"
#include "supervisors/events.h"

namespace regrow {

// A record as the journal keeps it.
struct StoredRecord {
  EventRecord record;
  int64_t mono_us = 0;  // controller's monotonic clock when the journal took it; 0 = not known
  uint64_t chain = 0;
};

// A record larger than this is refused: it could only be a mistake.
inline constexpr size_t kMaxRecordBytes = 16u << 20;

// Keeps its buffers between calls. One thread at a time.
class RecordEncoder {
 public:
  RecordEncoder();
  ~RecordEncoder();
  RecordEncoder(const RecordEncoder&) = delete;
  RecordEncoder& operator=(const RecordEncoder&) = delete;

  // Replaces `out`; returns the record's chain. Throws std::length_error above kMaxRecordBytes.
  uint64_t encode(const EventRecord& record, int64_t mono_us, uint64_t previous_chain,
                  std::string& out);

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

// Checks the chain first, so that damaged bytes are never interpreted. Without `previous_chain` the
// record is decoded unchecked (a single look-up). Any bytes whatever give a record or an error; an
// event kind of a newer version is an error that says so. Any thread.
JournalResult<StoredRecord> decode_record(std::string_view bytes,
                                          std::optional<uint64_t> previous_chain = std::nullopt);

// The chain stored in a record's first bytes; nothing if there are fewer than eight.
std::optional<uint64_t> stored_chain(std::string_view bytes);

}  // namespace regrow

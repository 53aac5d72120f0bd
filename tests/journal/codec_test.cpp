#include "journal/codec.h"

#include <limits>

#include "journal/checksum.h"
#include "journal/state_hash.h"
#include "tests/catch.h"
#include "tests/journal/random_fill.h"

namespace regrow {
namespace {

using testing::Filler;

// Values from the reference implementation.
TEST_CASE("xxh64 is the published function", "[codec]") {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += static_cast<char>(i);
  CHECK(xxh64("") == 0xef46db3751d8e999);
  CHECK(xxh64("", 1) == 0xd5afba1336a3be4b);
  CHECK(xxh64("a") == 0xd24ec4f1a98c6e5b);
  CHECK(xxh64("abc") == 0x44bc2cf5ad770999);
  CHECK(xxh64("abcdefgh", 7) == 0x1561b8f75328fe71);
  CHECK(xxh64(bytes.substr(0, 31)) == 0xc346d2b59b4d8ee1);
  CHECK(xxh64(bytes.substr(0, 32)) == 0xcbf59c5116ff32b4);
  CHECK(xxh64(bytes, 0x123456789abcdef) == 0x40e8f4ec2207f62c);
}

TEST_CASE("every kind of event comes back as it was written", "[codec]") {
  Filler filler(20261130);
  RecordEncoder encoder;
  std::string bytes;
  uint64_t chain = 0;
  for (size_t kind = 0; kind < testing::kEventKinds; ++kind) {
    for (int round = 0; round < 40; ++round) {
      EventRecord record = filler.record_of_kind(kind);
      uint64_t before = chain;
      chain = encoder.encode(record, 1234567, before, bytes);
      auto stored = decode_record(bytes, before);
      INFO(event_name(record.event));
      REQUIRE(stored);
      REQUIRE(stored->record == record);
      REQUIRE(stored->mono_us == 1234567);
      REQUIRE(stored->chain == chain);
      REQUIRE(stored_chain(bytes) == chain);
    }
  }
}

// The bytes that docs/journal.md explains: they must stay readable for ever.
TEST_CASE("the example of the format's page is what the codec writes", "[codec]") {
  const std::string expected =
      "5152b5edab0a494b000000001300000000000000050005000100000000000000"
      "010000000000000080308a4b86610600404b4c00000000000a00000000000000"
      "110000004200000000000000000000000d0000004a0000000000000000000000"
      "0c00000000000200686f73742f6831006e657720686f73740000000000000000"
      "050000001a000000050000004a000000753100000000000031302e302e302e31"
      "0000000000000000";
  EventRecord record;
  record.seq = 1;
  record.entity = EntityId::host({"h1"});
  record.n = 1;
  record.at.us = 1796079281123456;
  record.reason = "new host";
  record.event = ev::HostRegistered{"u1", "10.0.0.1"};
  RecordEncoder encoder;
  std::string bytes;
  encoder.encode(record, 5000000, 0, bytes);
  std::string hex;
  for (unsigned char byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  CHECK(hex == expected);
}

TEST_CASE("a record without cause and author comes back without", "[codec]") {
  EventRecord record;
  record.entity = EntityId::cluster();
  record.event = ev::JobHandedOver{};
  RecordEncoder encoder;
  std::string bytes;
  encoder.encode(record, 0, 5, bytes);
  auto stored = decode_record(bytes, 5);
  REQUIRE(stored);
  CHECK(stored->record == record);
}

TEST_CASE("numbers that are not numbers survive", "[codec]") {
  EventRecord record;
  record.entity = EntityId::job({1});
  ev::ProgressSampled sample;
  sample.loss = std::numeric_limits<double>::quiet_NaN();
  record.event = sample;
  RecordEncoder encoder;
  std::string bytes;
  encoder.encode(record, 0, 0, bytes);
  auto stored = decode_record(bytes, 0);
  REQUIRE(stored);
  CHECK(std::isnan(std::get<ev::ProgressSampled>(stored->record.event).loss));
  CHECK(hash_of(stored->record.event) == hash_of(record.event));
}

TEST_CASE("a large event is kept, an impossible one refused", "[codec]") {
  EventRecord record;
  record.entity = EntityId::job({1});
  RecordEncoder encoder;
  std::string bytes;
  record.event = ev::EntityQuarantined{std::string(5u << 20, 'x')};
  encoder.encode(record, 0, 0, bytes);
  auto stored = decode_record(bytes, 0);
  REQUIRE(stored);
  CHECK(stored->record == record);

  record.event = ev::EntityQuarantined{std::string(kMaxRecordBytes, 'x')};
  CHECK_THROWS_AS(encoder.encode(record, 0, 0, bytes), std::length_error);
}

TEST_CASE("any changed bit breaks the chain", "[codec]") {
  Filler filler(3);
  RecordEncoder encoder;
  std::string bytes;
  encoder.encode(filler.record_of_kind(1), 0, 77, bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 1 + filler.below(9)) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    auto stored = decode_record(damaged, 77);
    REQUIRE_FALSE(stored);
    REQUIRE(stored.error().fault == JournalFault::corrupt);
  }
  CHECK_FALSE(decode_record(bytes, 78));
}

// Without the chain as a guard: errors or other values, but nothing worse (run under the sanitizers
// too).
TEST_CASE("damaged bytes are an error or another record, never more", "[codec]") {
  Filler filler(4);
  RecordEncoder encoder;
  std::string bytes;
  size_t errors = 0;
  for (int round = 0; round < 4000; ++round) {
    encoder.encode(filler.record(), 0, 0, bytes);
    switch (filler.below(4)) {
      case 0:
        bytes.resize(filler.below(bytes.size() + 1));
        break;
      case 1:
        bytes.append(filler.below(40), static_cast<char>(filler.below(256)));
        break;
      case 2:  // a pointer or size somewhere in the first words
        for (int i = 0; i < 3; ++i)
          bytes[8 + filler.below(std::min<size_t>(bytes.size() - 8, 120))] ^= 0x55;
        break;
      default:
        for (uint64_t i = 0, n = 1 + filler.below(8); i < n; ++i) {
          bytes[filler.below(bytes.size())] = static_cast<char>(filler.below(256));
        }
    }
    auto stored = decode_record(bytes);
    if (!stored) ++errors;
  }
  CHECK(errors > 500);
  for (int round = 0; round < 2000; ++round) {
    std::string noise;
    for (uint64_t i = 0, n = filler.below(200); i < n; ++i)
      noise += static_cast<char>(filler.below(256));
    (void)decode_record(noise).ok();
  }
}

TEST_CASE("equal contents hash alike, others do not", "[hash]") {
  Filler filler(5);
  for (int round = 0; round < 200; ++round) {
    Event event = filler.event_of_kind(filler.below(testing::kEventKinds));
    Event copy = event;
    REQUIRE(hash_of(event) == hash_of(copy));
    Event other = filler.event_of_kind(filler.below(testing::kEventKinds));
    if (!(other == event)) REQUIRE(hash_of(event) != hash_of(other));
  }
  CHECK(layout_hash<ev::SlotEnded>() != layout_hash<ev::IncidentOpened>());
}

}  // namespace
}  // namespace regrow

#include "journal/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/io.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "journal/checksum.h"
#include "journal/reflect_capnp.h"
#include "journal/schema/event.capnp.h"

namespace regrow {

namespace {

constexpr size_t kChainBytes = 8;
constexpr size_t kScratchWords = 1024;  // most events fit one segment of 8 KiB

JournalError damaged(std::string what) { return {JournalFault::corrupt, std::move(what)}; }

// Collects the message behind the place for the chain.
class StringStream final : public kj::OutputStream {
 public:
  explicit StringStream(std::string& out) : out_(out) {}
  void write(const void* data, size_t size) override {
    if (out_.size() + size > kMaxRecordBytes) {
      throw std::length_error("an event of more than " + std::to_string(kMaxRecordBytes >> 20) +
                              " MiB");
    }
    out_.append(static_cast<const char*>(data), size);
  }

 private:
  std::string& out_;
};

// With its length: a text may hold zero bytes, where the conversion from std::string would end it.
capnp::Text::Reader whole(const std::string& text) { return {text.c_str(), text.size()}; }

void fill(const EventRecord& record, int64_t mono_us, wire::EventRecord::Builder to) {
  to.setSeq(record.seq);
  to.setEntity(whole(record.entity.path));
  to.setN(record.n);
  if (record.caused_by != EventRef{}) encode(record.caused_by, to.initCausedBy());
  to.setAtUs(record.at.us);
  to.setMonoUs(mono_us);
  to.setReason(whole(record.reason));
  if (record.by != Actor{}) encode(record.by, to.initBy());
  encode(record.event, to.getEvent());
}

std::string text_of(capnp::Text::Reader text) { return std::string(text.begin(), text.size()); }

void read(wire::EventRecord::Reader from, StoredRecord& out) {
  EventRecord& record = out.record;
  record.seq = from.getSeq();
  record.entity.path = text_of(from.getEntity());
  record.n = from.getN();
  if (from.hasCausedBy()) decode_into(record.caused_by, from.getCausedBy());
  record.at.us = from.getAtUs();
  out.mono_us = from.getMonoUs();
  record.reason = text_of(from.getReason());
  if (from.hasBy()) decode_into(record.by, from.getBy());
  decode_into(record.event, from.getEvent());
}

}  // namespace

struct RecordEncoder::Buffers {
  std::array<capnp::word, kScratchWords> scratch{};  // all zero between calls
};

RecordEncoder::RecordEncoder() : buffers_(std::make_unique<Buffers>()) {}
RecordEncoder::~RecordEncoder() = default;

uint64_t RecordEncoder::encode(const EventRecord& record, int64_t mono_us, uint64_t previous_chain,
                               std::string& out) {
  out.assign(kChainBytes, '\0');
  // The builder zeroes the scratch words it used when it goes.
  capnp::MallocMessageBuilder message(kj::arrayPtr(buffers_->scratch.data(), kScratchWords));
  fill(record, mono_us, message.initRoot<wire::EventRecord>());
  StringStream stream(out);
  capnp::writeMessage(stream, message);

  uint64_t chain = xxh64(std::string_view(out).substr(kChainBytes), previous_chain);
  std::memcpy(out.data(), &chain, kChainBytes);
  return chain;
}

std::optional<uint64_t> stored_chain(std::string_view bytes) {
  if (bytes.size() < kChainBytes) return std::nullopt;
  uint64_t chain;
  std::memcpy(&chain, bytes.data(), kChainBytes);
  return chain;
}

JournalResult<StoredRecord> decode_record(std::string_view bytes,
                                          std::optional<uint64_t> previous_chain) {
  auto chain = stored_chain(bytes);
  if (!chain) return damaged("a record of only " + std::to_string(bytes.size()) + " bytes");
  std::string_view message = bytes.substr(kChainBytes);
  if (previous_chain && xxh64(message, *previous_chain) != *chain) {
    return damaged("its checksum does not follow from the record before");
  }

  if (message.size() % sizeof(capnp::word) != 0) return damaged("not a whole number of words");

  StoredRecord out;
  out.chain = *chain;
  try {
    // Cap'n Proto reads aligned words only; what the store hands out may begin anywhere.
    size_t words = message.size() / sizeof(capnp::word);
    capnp::word scratch[kScratchWords];
    std::unique_ptr<capnp::word[]> heap;
    if (words > kScratchWords) heap = std::make_unique<capnp::word[]>(words);
    capnp::word* aligned = heap ? heap.get() : scratch;
    std::memcpy(static_cast<void*>(aligned), message.data(), message.size());

    // Each word is read once. Damaged pointers that lead to the same words again and again, or to
    // lists of millions of nothings, run into this limit before they cost memory.
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 4 * words + 64;
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(aligned, words), options);
    read(reader.getRoot<wire::EventRecord>(), out);
  } catch (const kj::Exception& e) {
    return damaged(std::string("not readable as an event: ") + e.getDescription().cStr());
  } catch (const std::exception& e) {
    return damaged(std::string("not readable as an event: ") + e.what());
  }
  return out;
}

}  // namespace regrow

// The frames between a rank and its agent, byte for byte. docs/rank-api.md describes them for
// others.
//
// A SOCK_SEQPACKET connection, one frame per packet, little endian:
//   0  "rg"   2  version   3  kind   4  length of the body (16 bits)   6  zero (16 bits)   8  body
// Both ends may be one version older or newer: kinds that one does not know are ignored, a body
// only ever grows at its end. Shared by the library and the agent; libc only, no allocation, any
// thread.
//
//   FrameWriter frame(Kind::step);
//   frame.number(step).real(loss).number(time_us);
//   send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
//
//   FrameReader frame(packet, bytes);
//   if (frame.kind() == Kind::step) { int64_t step = frame.number(); … }   // then frame.good()
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace regrow::rank_protocol {

inline constexpr uint8_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 8;
inline constexpr size_t kMaxFrameBytes = 8192;  // longer packets are not frames
inline constexpr size_t kTokenBytes = 32;       // as in REGROW_TOKEN: 16 random bytes in hex

enum class Kind : uint8_t {
  none = 0,
  // Rank to agent.
  hello = 1,   // token (32 bytes). The first frame of a connection
  step = 2,    // step, loss (a double; NaN = unknown), wall clock in microseconds
  finish = 3,  // newest step, -1 = none: the rank is about to leave. May come again
  join = 4,    // generation, newest step of its state (-1 = none), intact (0 or 1); until it is
               // answered by a go, again with each connection and each newer generation
  saved = 5,   // step, path as text: this rank's part of a checkpoint is written and synced
  // Agent to rank.
  welcome = 65,   // generation
  refused = 66,   // why, as text; the connection ends. Another attempt gets the same answer
  finished = 67,  // the answer to finish
  regroup = 68,   // generation, why as text: leave the collectives, and join
  // Generation, world size, source, source step, resume step, port, then address, a zero byte,
  // resume path. The answer to join: every rank has joined.
  go = 69,
};

inline bool speaks(uint8_t version) { return version + 1 >= kVersion && version <= kVersion + 1; }

class FrameWriter {
 public:
  explicit FrameWriter(Kind kind, uint8_t version = kVersion) {
    bytes_[0] = 'r';
    bytes_[1] = 'g';
    bytes_[2] = version;
    bytes_[3] = static_cast<uint8_t>(kind);
    memset(bytes_ + 4, 0, kHeaderBytes - 4);
  }
  FrameWriter& number(int64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i)
      bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(value) >> (8 * i));
    return text(bytes, sizeof bytes);
  }
  FrameWriter& real(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return number(bits);
  }
  // Cut off where the frame is full.
  FrameWriter& text(const void* bytes, size_t size) {
    if (size > kMaxFrameBytes - size_) size = kMaxFrameBytes - size_;
    memcpy(bytes_ + size_, bytes, size);
    size_ += size;
    bytes_[4] = static_cast<unsigned char>(size_ - kHeaderBytes);
    bytes_[5] = static_cast<unsigned char>((size_ - kHeaderBytes) >> 8);
    return *this;
  }
  const void* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  unsigned char bytes_[kMaxFrameBytes];
  size_t size_ = kHeaderBytes;
};

// Of any bytes whatever. What is missing reads as zero and makes the frame bad.
class FrameReader {
 public:
  FrameReader(const void* packet, size_t size) {
    auto* bytes = static_cast<const unsigned char*>(packet);
    if (size < kHeaderBytes || size > kMaxFrameBytes || bytes[0] != 'r' || bytes[1] != 'g') return;
    size_t length = bytes[4] | static_cast<size_t>(bytes[5]) << 8;
    if (kHeaderBytes + length != size) return;
    is_frame_ = true;
    if (!speaks(bytes[2])) return;
    kind_ = static_cast<Kind>(bytes[3]);
    next_ = bytes + kHeaderBytes;
    left_ = length;
    good_ = true;
  }
  bool is_frame() const { return is_frame_; }  // of whatever version
  Kind kind() const { return kind_; }          // none: nothing that we can read
  bool good() const { return good_; }          // so far, all that was asked for was there

  int64_t number() {
    unsigned char bytes[8] = {};
    text(bytes, sizeof bytes);
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    return static_cast<int64_t>(value);
  }
  double real() {
    int64_t bits = number();
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  size_t left() const { return left_; }
  void text(void* bytes, size_t size) {
    if (size > left_) {
      good_ = false;
      return;
    }
    if (size == 0) return;  // of what is no frame there is nothing to copy from
    memcpy(bytes, next_, size);
    next_ += size;
    left_ -= size;
  }

 private:
  const unsigned char* next_ = nullptr;
  size_t left_ = 0;
  Kind kind_ = Kind::none;
  bool is_frame_ = false;
  bool good_ = false;
};

}  // namespace regrow::rank_protocol

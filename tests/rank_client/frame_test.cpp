// The frames themselves: what is written is read, and any bytes whatever do no harm.
#include <cmath>
#include <random>

#include "tests/catch.h"
#include "tests/rank_client/support.h"

namespace regrow::testing {
namespace {

std::string bytes_of(const FrameWriter& frame) {
  return {static_cast<const char*>(frame.data()), frame.size()};
}

TEST_CASE("what is written is read") {
  FrameWriter frame(Kind::step);
  std::string bytes = bytes_of(frame.number(-7).real(0.25).number(INT64_MAX));
  FrameReader read(bytes.data(), bytes.size());
  CHECK(read.kind() == Kind::step);
  CHECK(read.number() == -7);
  CHECK(read.real() == 0.25);
  CHECK(read.number() == INT64_MAX);
  CHECK(read.good());
  read.number();
  CHECK_FALSE(read.good());
}

TEST_CASE("a step frame, byte for byte as docs/rank-api.md has it") {
  FrameWriter frame(Kind::step);
  frame.number(258).real(1.0).number(3);
  const unsigned char expected[] = {'r', 'g', 1, 2, 24, 0, 0,    0,    2, 1, 0, 0, 0, 0, 0, 0,
                                    0,   0,   0, 0, 0,  0, 0xf0, 0x3f, 3, 0, 0, 0, 0, 0, 0, 0};
  CHECK(bytes_of(frame) == std::string(reinterpret_cast<const char*>(expected), sizeof expected));
}

TEST_CASE("a version older or newer is read, others are not; longer bodies are") {
  for (int version = 0; version < 256; ++version) {
    FrameWriter frame(Kind::finish, static_cast<uint8_t>(version));
    frame.number(5).text("of a later version", 18);
    FrameReader read(frame.data(), frame.size());
    INFO("version " << version);
    CHECK(read.is_frame());
    bool near = version <= 2;
    CHECK((read.kind() == Kind::finish) == near);
    CHECK(read.number() == (near ? 5 : 0));
    CHECK(read.good() == near);
  }
}

TEST_CASE("a text that is too long is cut off, and the frame stays one") {
  std::string text(rank_protocol::kMaxFrameBytes + 100, 'x');
  FrameWriter frame(Kind::refused);
  frame.text(text.data(), text.size()).number(1);
  CHECK(frame.size() == rank_protocol::kMaxFrameBytes);
  CHECK(FrameReader(frame.data(), frame.size()).kind() == Kind::refused);
}

TEST_CASE("rubbish is no frame") {
  FrameWriter good(Kind::hello);
  std::string hello = bytes_of(good.text(kToken.data(), kToken.size()));
  for (size_t size = 0; size < hello.size(); ++size)
    CHECK_FALSE(FrameReader(hello.data(), size).is_frame());
  CHECK_FALSE(FrameReader((hello + "x").data(), hello.size() + 1).is_frame());

  std::mt19937 random(20);
  size_t frames = 0;
  for (int round = 0; round < 200'000; ++round) {
    // On the heap and of this very size, so that the address sanitizer sees one byte too far.
    size_t size = random() % 64;
    std::vector<char> bytes(size);
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 2 == 0 && size >= 8) {  // a header that is right as far as it goes
      bytes[0] = 'r';
      bytes[1] = 'g';
      bytes[2] = static_cast<char>(random() % 4);
      bytes[4] = static_cast<char>(size - 8);
      bytes[5] = 0;
    }
    FrameReader frame(bytes.data(), bytes.size());
    frames += frame.is_frame();
    if (!frame.is_frame()) CHECK(frame.kind() == Kind::none);
    char text[40];
    frame.text(text, random() % sizeof text);
    frame.number();
    frame.real();
  }
  CHECK(frames > 50'000);
}

}  // namespace
}  // namespace regrow::testing

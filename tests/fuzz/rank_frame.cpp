#include <cstring>
#include <vector>

#include "tests/fuzz/targets.h"
#include "transport/rank_client/frame.h"

namespace regrow::fuzz {

void rank_frame(std::string_view bytes) {
  using namespace rank_protocol;
  // Of this very size, so that one byte too far is seen.
  std::vector<char> packet(bytes.begin(), bytes.end());
  FrameReader frame(packet.data(), packet.size());
  must(frame.good() ==
           (frame.is_frame() && speaks(static_cast<uint8_t>(bytes.size() > 2 ? bytes[2] : 0))),
       "a frame of a version near ours is read, and nothing else");
  if (!frame.is_frame()) return;
  must(packet.size() <= kMaxFrameBytes, "a frame has its size");
  char token[kTokenBytes] = {};
  if (frame.kind() == Kind::hello) frame.text(token, sizeof token);
  int64_t step = frame.number();
  double loss = frame.real();
  if (frame.kind() != Kind::step || !frame.good()) return;
  FrameWriter again(Kind::step, static_cast<uint8_t>(bytes[2]));
  again.number(step).real(loss);
  must(memcmp(static_cast<const char*>(again.data()) + kHeaderBytes, packet.data() + kHeaderBytes,
              16) == 0,
       "what was read is what is written");
}

}  // namespace regrow::fuzz

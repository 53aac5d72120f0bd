#include "actors/controller/engine_clock.h"

#include <algorithm>
#include <chrono>

namespace regrow {
namespace {

int64_t monotonic_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

TimeSource system_time() { return {monotonic_us, wall_us}; }

EngineClock::EngineClock(Time not_before, TimeSource source) : source_(std::move(source)) {
  int64_t mono = source_.monotonic_us();
  int64_t start = std::max(source_.wall_us(), not_before.us + 1);
  base_us_ = start - mono;
  last_us_ = start;
  floor_us_ = start;
}

Now EngineClock::now() {
  int64_t t = base_us_ + source_.monotonic_us();
  int64_t last = last_us_.exchange(t);
  if (t - last > kBeat.us + kLate.us) floor_us_ = t;
  return Now{Time{t}, Time{floor_us_.load()}};
}

}  // namespace regrow

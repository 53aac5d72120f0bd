// The controller's clock: wall time read once, then monotonic, never behind the newest journaled
// event.
//
// Also knows when the process itself was held up (stopped, starved, suspended): `floor` then moves
// to the present, so that no host or rank is given up for the controller's own silence. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "supervisors/types.h"

namespace regrow {

// Where the clock gets its microseconds from.
struct TimeSource {
  std::function<int64_t()> monotonic_us;
  std::function<int64_t()> wall_us;
};
TimeSource system_time();

class EngineClock {
 public:
  // `not_before`: the newest time in the journal.
  explicit EngineClock(Time not_before, TimeSource source = system_time());

  // Has to be called at least every kBeat; a longer gap counts as a pause of this process.
  Now now();

  static constexpr Duration kBeat = Duration::ms(250);
  static constexpr Duration kLate = Duration::seconds(1);

 private:
  const TimeSource source_;
  int64_t base_us_;  // wall minus monotonic, at start
  std::atomic<int64_t> last_us_;
  std::atomic<int64_t> floor_us_;
};

}  // namespace regrow

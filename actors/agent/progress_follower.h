// How far a rank is: what it reports itself, else the step lines of its output. Owned by the rank
// runner; its loop's thread.
//
// A rank that reports steps is believed alone: its output is no sign of progress any more.
// Looks only at what is new since the last call, and of that only at the newest 256 KiB per stream:
// a rank that floods its log costs no more than any other.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "actors/agent/log_reader.h"

namespace re2 {
class RE2;
}

namespace regrow {

// What a rank says of itself (transport/rank_client).
struct StepReport {
  int64_t step = -1;
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN = not said
  int64_t time_us = 0;                                     // host wall clock
};

class ProgressFollower {
 public:
  // `pattern` is RE2 with groups named step and, perhaps, loss; empty or broken = no step lines,
  // then only the output itself counts as progress.
  ProgressFollower(const std::string& directory, shim::LogLayout layout,
                   const std::string& pattern);
  ~ProgressFollower();

  // True if there was new output or a report since the last call.
  bool poll();
  void report(const StepReport& report);

  int64_t step() const { return step_; }                 // -1 = none seen
  double loss() const { return loss_; }                  // NaN = none seen
  double step_seconds() const { return step_seconds_; }  // smoothed; 0 = unknown
  int64_t output_us() const { return output_us_; }       // its last sign of progress
  int64_t step_us() const { return step_us_; }

 private:
  struct Stream {
    LogReader reader;
    uint64_t position = 0;
    std::string partial;  // a line without its end yet
  };
  bool poll(Stream& stream);
  void scan(Stream& stream, std::string bytes, int64_t written_us);
  void scan_line(std::string_view line, int64_t written_us);
  void see_step(int64_t step, int64_t time_us);

  Stream streams_[2];
  std::unique_ptr<re2::RE2> pattern_;
  int step_group_ = 0;
  int loss_group_ = 0;
  bool reported_ = false;  // by itself
  bool news_ = false;      // a report that poll() has not told of
  int64_t step_ = -1;
  double loss_ = std::numeric_limits<double>::quiet_NaN();
  double step_seconds_ = 0;
  int64_t output_us_ = 0;
  int64_t step_us_ = 0;
};

}  // namespace regrow

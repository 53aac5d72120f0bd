// A job as the controller's questions "jobs" and "job" answer it, and how people see it: one word
// for its state, one line for its progress. Pure; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/regrow/json_get.h"
#include "tools/regrow/terminal.h"

namespace regrow::cli {

struct JobView {
  uint64_t id = 0;
  std::string name;
  std::string
      phase;  // queued, starting, running, recovering, stopping, completed, failed, cancelled
  std::string stage;    // of starting and recovering
  std::string desired;  // run, pause, hold, cancel
  std::string reason;
  uint64_t ranks = 0;
  uint64_t generation = 0;
  uint64_t incidents = 0;
  uint64_t recoveries = 0;
  int64_t step = -1;
  uint64_t total_steps = 0;
  double loss = NAN;
  double step_seconds = 0;
  std::vector<std::string> hosts;
  std::string submitted_by;
  int64_t submitted_us = 0;
  int64_t running_since_us = 0;
  int64_t ended_us = 0;
  int64_t best_checkpoint = -1;
  int64_t resume_step = -1;

  bool ended() const { return phase == "completed" || phase == "failed" || phase == "cancelled"; }
  // Stopped until a person resumes it, because regrow knows no way on.
  bool held() const { return desired == "hold" && phase == "queued"; }
};

JobView job_view(const Json& answer);

// "running", "held", "paused", "pausing", "cancelling", "recovering" ...
std::string state_word(const JobView& job);
Tone state_tone(const JobView& job);

// "job 7 charlm  [######------] 120/400  loss 2.31  48 ms/step  4 ranks  gen 2  1 recovery  13 s
// left". Cut from the right to `width` columns, 0 = whole.
std::string progress_line(const JobView& job, size_t width);

// 0 for completed, 1 for every other end.
int exit_code_of(const JobView& job);

}  // namespace regrow::cli

// Follows a job to its end: events as sentences, progress as a line, over restarts of the
// controller.
//
// Main's thread; it starts one that asks for progress, and the watch has its own. Ctrl-C detaches:
// the job goes on. A second Ctrl-C within two seconds asks the controller to cancel the job.
#pragma once

#include <cstdint>

#include "tools/regrow/cli.h"
#include "tools/regrow/signals.h"

namespace regrow::cli {

struct FollowOptions {
  uint64_t job = 0;
  uint64_t from_seq = 0;  // first event told; kOnlyNew = none of the past
};

// `signals` holds SIGINT and SIGTERM and was made before any client. Returns the job's exit code: 0
// completed, 1 failed, cancelled or held; kExitInterrupted if detached.
int follow(Cli& cli, SignalQueue& signals, const FollowOptions& options);

// What to say of a job that has ended (or is held): the summary on stdout, a failure with the first
// failing rank's last words on stderr. `answer` is the controller's to the question "job".
int report_end(const Cli& cli, const Json& answer);

}  // namespace regrow::cli

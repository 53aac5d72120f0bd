// Named places in the code where a test can have the process killed, off unless asked for.
//
//   REGROW_FAULT_POINTS="journal.after_commit:3,effect.before_send:1" regrow controller ...
//   faults.hit("journal.after_commit");   // the third time: SIGKILL to this process
//
// Any thread. `regrow controller --list-fault-points` prints the names.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace regrow {

inline constexpr std::array<std::string_view, 11> kFaultPoints{
    "boot.after_replay",      // the journal is folded, no actor exists
    "boot.after_resume",      // every entity has been resumed, nobody is let in yet
    "entity.before_append",   // decided, nothing sent
    "entity.after_append",    // handed to the journal, messages not sent
    "journal.before_commit",  // events in hand, nothing written
    "journal.after_commit",   // on disk, nobody told
    "journal.after_ack",      // owners and readers told
    "effect.before_send",     // durable, the agent not told
    "effect.after_send",      // the agent told
    "report.before_ack",      // an agent's report is durable, the agent not told
    "reply.before_send",      // an operator's command is durable, the operator not told
};

class FaultPoints {
 public:
  // `text`: "name:count,name:count"; count is which hit kills, from 1. Throws std::invalid_argument,
  // which names the known points, for anything else.
  explicit FaultPoints(const std::string& text);

  void hit(std::string_view name) {
    if (armed_) count(name);
  }

 private:
  void count(std::string_view name);

  bool armed_ = false;
  std::array<std::atomic<int64_t>, kFaultPoints.size()> left_{};
};

}  // namespace regrow

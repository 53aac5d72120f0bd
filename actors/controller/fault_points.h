// Named places in the code where a test can have the process killed, or one actor thrown out, off
// unless asked for.
//
//   REGROW_FAULT_POINTS="journal.after_commit:3,effect.before_send:1" regrow controller ...
//   faults.hit("journal.after_commit");                  // the third time: SIGKILL to this process
//
//   REGROW_FAULT_POINTS="entity.before_input@rank/1/2:5:throw" regrow controller ...
//   faults.hit("entity.before_input", id.path);          // rank/1/2's fifth input: FaultInjected
//
// Any thread. `regrow controller --list-fault-points` prints the names.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>

namespace regrow {

inline constexpr std::array<std::string_view, 12> kFaultPoints{
    "boot.after_replay",      // the journal is folded, no actor exists
    "boot.after_resume",      // every entity has been resumed, nobody is let in yet
    "entity.before_input",    // an entity has an input, nothing decided
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

// What a fault point in throw mode throws.
struct FaultInjected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FaultPoints {
 public:
  // `text`: items NAME[@ENTITY][:COUNT][:throw], separated by commas. COUNT is which hit strikes,
  // from 1 (the default); with @ENTITY only hits of that entity count. Points entity.* can throw
  // instead of killing the process. Throws std::invalid_argument, which names the known points, for
  // anything else.
  explicit FaultPoints(const std::string& text);

  void hit(std::string_view name, std::string_view entity = {}) {
    if (!armed_.empty()) count(name, entity);
  }

 private:
  struct Armed {
    std::string_view name;  // one of kFaultPoints
    std::string entity;     // empty = any
    bool throws = false;
    std::atomic<int64_t> left{1};
  };
  void arm(const std::string& item);
  void count(std::string_view name, std::string_view entity);

  std::deque<Armed> armed_;
};

}  // namespace regrow

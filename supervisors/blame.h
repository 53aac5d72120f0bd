// What kind of failure an ended rank is, from its report alone. Pure.
#pragma once

#include <string>

#include "supervisors/host_protocol.h"

namespace regrow {

struct Verdict {
  FailureClass failure_class = FailureClass::program;
  std::string signature;    // equal for the same failure: "exit 1: ValueError: bad batch"
  bool peer_error = false;  // its own words blame the loss of a peer: it is rarely the root
  bool fatal = false;       // a restart cannot help: the program cannot be executed
  std::string text;         // "process died: killed by signal 9, not by us"
};

Verdict judge(const RankReport& report);

// It has ended, and something that it started may live on: the agent could not end it (D-2).
bool left_something(const RankReport& report);

// "Connection closed by peer", "Connection reset", an aborted collective ...
bool blames_a_peer(const std::string& error_line);

// Name of a signal number: "SIGKILL"; "signal 77" for one without a name.
std::string signal_name(int signal);

}  // namespace regrow

// Processes that outlived their shim, found by the marker in their environment.
//
// Only needed when a shim was itself killed: else it ends everything that its rank started. Reads
// /proc; microseconds per process; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace regrow {

struct LeftoverScan {
  int found = 0;    // alive, zombies not counted
  int refused = 0;  // of these, KILL was not allowed
};

// Sends KILL to every process that carries REGROW_INCARNATION=`marker` and started at or after
// `not_before` (clock ticks since boot; 0 = whenever), and to process `leader` if it still is the
// one that started at `not_before`. Call again until nothing is found.
LeftoverScan kill_leftovers(const std::string& marker, uint64_t leader, uint64_t not_before);

struct ProcessStat {
  char state = 0;  // 0 = no such process
  uint64_t start_time = 0;
};
ProcessStat read_process_stat(uint64_t pid);

}  // namespace regrow

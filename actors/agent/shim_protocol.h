// What the agent and regrow-shim agree on: the files of an incarnation's directory and the socket.
//
// One shim runs per rank and outlives the agent, so both must read what a build one version older
// or newer wrote: readers skip keys they do not know. Plain libc only: the shim links no C++
// library.
//
// ranks/JOB/RANK.INC/ holds
//   lock          flock'ed by the shim for life, its first act. Who can take it knows: no shim.
//   start         written by the agent before the shim starts, 0600 (holds the rank's environment):
//                 "regrow-start 1" NUL, then key NUL value NUL ..., the last key is "end".
//                 Keys: arg*, env* ("NAME=value"), cwd, tmp (directory to wipe at the end), uid,
//                 gid, group* (uid present = change to it), nofile (0 = hard limit), umask (octal),
//                 cap_bytes, segment_bytes, stop_signal, stop_scope, grace_us. (* = repeated, in
//                 order)
//   pid           "PID STARTTIME SHIMPID STARTED_US\n", renamed into place just before the exec
//   exit          the end, renamed into place; see below. There = final, whatever else is there.
//   sock          SEQPACKET; one text message per packet, see below
//   log.stdout.head, log.stdout.N, log.stdout.gap and the same for stderr; see LogLayout
//   acknowledged  written by the agent: the final report is durable at the controller
//
// exit: "regrow-exit 1\n", then "key value\n" lines, then "stdout LENGTH\n" and so many bytes, the
//   same for stderr.
//   Keys: state (exited, never_started, gone), code, signal, ended_by_us, forced, out_of_memory,
//   pid, start_time, started_us, leader_ended_us, group_gone_us (0 = some process could not be
//   ended), message (rest of the line). LENGTH is followed by " cut" if earlier output was left
//   out.
//
// Socket, agent to shim: "stop SIGNAL leader|group GRACE_US", "stop" (settings of `start`), "kill",
// "status". Shim to agent: "starting", "started PID STARTTIME STARTED_US", "ended" (the exit file
// is there). A new client is told the state at once; a descriptor passed as 3 is a client from the
// beginning.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regrow::shim {

inline constexpr int kProtocolVersion = 1;
inline constexpr char kStartMagic[] = "regrow-start 1";
inline constexpr char kExitMagic[] = "regrow-exit 1";
inline constexpr int kFirstClientFd = 3;
inline constexpr size_t kLastWordsBytes = 8192;
inline constexpr size_t kMaxPacketBytes = 256;

// How one stream's bytes lie in files. Byte positions count everything the shim stored, from 0: the
// head file holds [0, segment), tail file N holds [segment * (N + 1), segment * (N + 2)). Every
// file but the newest is full; the oldest tail files are deleted, so a missing range is exactly the
// gap.
struct LogLayout {
  uint64_t segment_bytes;
  uint64_t tail_files;  // kept at most, the growing one included

  // Head + full tail files hold at least `cap`, all files at most cap + one segment.
  static constexpr LogLayout from_limits(uint64_t cap_bytes, uint64_t segment_bytes) {
    constexpr uint64_t kSmallest = 4096;
    uint64_t cap = cap_bytes < 2 * kSmallest ? 2 * kSmallest : cap_bytes;
    uint64_t segment = segment_bytes < kSmallest ? kSmallest : segment_bytes;
    if (segment > cap / 2) segment = cap / 2;
    return {segment, cap / segment};
  }
};

}  // namespace regrow::shim

// What a job asks for: the recipe after validation, as plain data. Immutable once journaled.
//
// Made by recipes/ from YAML (or by `regrow run -- CMD`), carried in JobAccepted and JobCreated,
// read by the job's decisions, by placement and by whoever turns a start into argv and environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "supervisors/types.h"

namespace regrow {

// What is restarted when a rank is lost: the rank alone (its script rejoins), its replica group, or
// all ranks of the job in place.
REGROW_ENUM(RecoveryScope, rank, group, job)

// Where checkpoints live: one file system that all hosts see, or each host's own disk (which never
// counts as surviving its host).
REGROW_ENUM(StorageKind, shared, host_local)

REGROW_ENUM(StopScope, leader, group)
REGROW_ENUM(SuccessRule, all_ranks, rank_zero)

// Who hosts the rendezvous: rank 0 of the script, on the port it is given; or a store that regrow
// runs beside rank 0, which outlives restarts (torch.distributed's own TCPStore).
REGROW_ENUM(Rendezvous, rank_zero, store)

// Why a rank was lost; each class has its own restart intensity.
//   program        exit code != 0, or a signal that programs give themselves (SEGV, ABRT, BUS, FPE,
//   ILL) killed         a signal from outside that we did not send out_of_memory  killed by the
//   kernel's OOM killer early_exit     exit 0 while its peers could not finish hang           no
//   progress within the recipe's time-out start_up       could not be started, or a rendezvous port
//   was taken device         its device is faulty infrastructure its host, agent or shim was lost
//   preempted      the machine was taken back
REGROW_ENUM(FailureClass, program, killed, out_of_memory, early_exit, hang, start_up, device,
            infrastructure, preempted)

struct EnvVar {
  std::string name;
  std::string value;
  std::string
      source;  // recipe, recipe --set, submitter, account or default; `regrow show` shows it
  REGROW_FIELDS(EnvVar, name, value, source)
};

struct DeviceRequest {
  std::string kind = "any";   // "gpu", "tpu", "sim", "cpu", or "any"
  uint32_t count = 1;         // devices per rank; 0 = none
  uint64_t memory_bytes = 0;  // at least this much per device; 0 = any
  REGROW_FIELDS(DeviceRequest, kind, count, memory_bytes)
};

// When is a checkpoint complete. A step's entry in `directory` matches `entry`, which holds
// "{step}". Directory entry: every shard file of `shards` (one per rank if it holds "{rank}", else
// exactly that file) exists and is not empty; `marker`, if named, exists; `manifest`, if named,
// lists "SIZE NAME" per line and every listed file has that size. File entry: it is not empty.
struct CheckpointRule {
  std::string directory;  // absolute; empty = the job keeps no checkpoints
  StorageKind storage = StorageKind::shared;
  std::string entry = "step_{step}";
  std::string shards;    // "rank_{rank}.pt"; empty = no shard check
  std::string marker;    // "COMPLETE"; empty = no marker
  std::string manifest;  // "sizes.txt"; empty = none
  REGROW_FIELDS(CheckpointRule, directory, storage, entry, shards, marker, manifest)
};

// At most `max_restarts` incidents of one class within `window`; max_restarts -1 = no limit,
// window 0 = ever. `max_without_progress` in JobSpec limits all classes together.
struct Intensity {
  FailureClass failure_class = FailureClass::program;
  int32_t max_restarts = 3;
  Duration window;
  REGROW_FIELDS(Intensity, failure_class, max_restarts, window)
};

struct Timeouts {
  Duration start = Duration::seconds(900);      // start to first step line; 0 = none
  Duration progress = {0};                      // no progress for this long = hung; 0 = not watched
  Duration stop_grace = Duration::seconds(10);  // stop signal to KILL
  Duration finish = Duration::seconds(60);      // first rank exited 0 to all ranks exited
  Duration host = Duration::seconds(10);        // silence until a host is lost (`host_timeout`)
  Duration max_unreachable = Duration::seconds(600);  // cap on "its ranks still make progress"
  Duration rejoin = Duration::seconds(30);  // call of a generation to a survivor's joining it
  REGROW_FIELDS(Timeouts, start, progress, stop_grace, finish, host, max_unreachable, rejoin)
};

struct Backoff {
  Duration initial =
      Duration::seconds(1);  // before the second restart without progress; the first is at once
  Duration cap = Duration::seconds(300);
  REGROW_FIELDS(Backoff, initial, cap)
};

struct LogLimits {
  uint64_t cap_bytes = 64ull << 20;     // per stream, rank and incarnation: head + tail together
  uint64_t segment_bytes = 8ull << 20;  // rotation unit
  REGROW_FIELDS(LogLimits, cap_bytes, segment_bytes)
};

struct JobSpec {
  std::string name;
  uint32_t ranks = 1;
  uint32_t groups = 1;          // replica groups; `ranks` is a multiple of it
  uint32_t spares = 0;          // hot spare slots
  uint32_t ranks_per_host = 0;  // at most; 0 = as many as devices allow
  DeviceRequest devices;
  std::string interpreter;                    // absolute; empty = command[0] is run itself
  std::vector<std::string> command;           // argv after the interpreter
  std::vector<std::string> requires_modules;  // checked with the interpreter before anything starts
  std::string working_directory;
  std::vector<EnvVar> environment;
  uint64_t nofile = 0;  // RLIMIT_NOFILE for ranks; 0 = the hard limit
  CheckpointRule checkpoint;
  RecoveryScope recovery = RecoveryScope::job;
  std::vector<Intensity> intensity;   // one per failure class, all classes present
  uint32_t max_without_progress = 5;  // incidents in a row without a new checkpoint or higher step
  Duration healthy_for =
      Duration::seconds(600);  // running with progress this long forgets incidents
  Backoff backoff;
  SuccessRule success = SuccessRule::all_ranks;
  Timeouts timeouts;
  std::string stop_signal = "TERM";
  StopScope stop_scope = StopScope::leader;
  std::string progress_pattern;  // RE2 with groups named step and loss, matched per output line
  uint64_t total_steps = 0;      // for the progress bar; 0 = unknown
  LogLimits logs;
  uint32_t uid = 0;  // ranks run as this user
  uint32_t gid = 0;
  Rendezvous rendezvous = Rendezvous::rank_zero;
  REGROW_FIELDS(JobSpec, name, ranks, groups, spares, ranks_per_host, devices, interpreter, command,
                requires_modules, working_directory, environment, nofile, checkpoint, recovery,
                intensity, max_without_progress, healthy_for, backoff, success, timeouts,
                stop_signal, stop_scope, progress_pattern, total_steps, logs, uid, gid, rendezvous)
};

}  // namespace regrow

// What controller and agent say to each other about ranks, as plain data.
//
// transport/ carries these over the host link, the agent obeys and reports them, decisions read the
// reports. Every command carries the controller's epoch and the incarnation it is about; the agent
// refuses older ones (F-1) and answers a repeated one with what it already knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "supervisors/job_spec.h"
#include "supervisors/types.h"

namespace regrow {

// (number, random start id): a controller's term. The first id an agent sees at a number wins.
struct Epoch {
  uint64_t number = 0;
  uint64_t start_id = 0;
  REGROW_FIELDS(Epoch, number, start_id)
};

// Names one process-to-be for ever.
struct IncarnationKey {
  JobId job;
  RankIndex rank;
  Incarnation incarnation;
  friend auto operator<=>(const IncarnationKey&, const IncarnationKey&) = default;
  REGROW_FIELDS(IncarnationKey, job, rank, incarnation)
};

// Start one rank. The agent makes the rank's directory first; if it exists already this is a
// repeat, and the answer is the present state of that incarnation. `spec` has the command,
// environment, limits and log caps; everything below differs from rank to rank.
struct SpawnCommand {
  IncarnationKey key;
  Generation generation;
  GroupIndex group;
  uint32_t world_size = 1;
  uint32_t local_rank = 0;
  uint32_t local_world_size = 1;
  uint32_t group_rank = 0;        // index of this host among the job's hosts
  uint32_t group_world_size = 1;  // number of the job's hosts
  std::vector<DeviceName> devices;
  std::string master_address;
  uint32_t master_port = 0;
  int64_t resume_step = -1;    // -1 = from the beginning
  std::string resume_path;     // empty = from the beginning
  uint32_t restart_count = 0;  // for TORCHELASTIC_RESTART_COUNT
  bool store = false;          // the master port is that of a store that regrow runs
  bool rejoins = false;        // it meets survivors: it joins, and waits for a GoCommand
  REGROW_FIELDS(SpawnCommand, key, generation, group, world_size, local_rank, local_world_size,
                group_rank, group_world_size, devices, master_address, master_port, resume_step,
                resume_path, restart_count, store, rejoins)
};

// End one incarnation. Polite: the recipe's stop signal to the leader (or group), KILL to
// everything the rank started after `grace`. `force`: KILL at once. Repeats are harmless; force
// overrides polite.
struct StopCommand {
  IncarnationKey key;
  std::string signal = "TERM";
  StopScope scope = StopScope::leader;
  Duration grace;
  bool force = false;
  std::string reason;
  REGROW_FIELDS(StopCommand, key, signal, scope, grace, force, reason)
};

// What became of an incarnation, as the agent knows it.
//   starting      directory made, no exec yet
//   running       exec done; pid and start_time are valid
//   exited        the leader ended by exit or signal AND nothing that the rank started is left
//   never_started the shim could not exec: `message` says why (program, permission, interpreter,
//   size) gone          the shim itself was killed; the group was ended; no exit status is known
//   unknown       this agent never heard of it
REGROW_ENUM(ProcessState, starting, running, exited, never_started, gone, unknown)

struct RankReport {
  IncarnationKey key;
  ProcessState state = ProcessState::unknown;
  uint64_t pid = 0;
  uint64_t start_time = 0;   // clock ticks since boot, from /proc/PID/stat
  int32_t exit_code = 0;     // valid if exited and signal == 0
  int32_t signal = 0;        // 0 = ended by exit
  bool ended_by_us = false;  // a StopCommand was sent before the leader ended
  bool forced = false;       // KILL had to be used at the deadline
  bool out_of_memory =
      false;                 // the cgroup's oom_kill counter rose, or the kernel log named the pid
  bool bind_failed = false;  // last words say that an address was already in use
  std::string message;       // for a person: exec error, "did not stop within 10 s"
  std::string last_words;    // end of stderr (stdout if empty), at most 8 KiB, whole lines
  std::string error_line;    // the line that names the failure ("ValueError: ..."), may be empty
  int64_t last_step = -1;    // last that it reported or its output showed; -1 = none
  int64_t started_us = 0;    // host wall clock, microseconds: exec
  int64_t leader_ended_us = 0;  // the leader's end
  int64_t group_gone_us = 0;    // everything that it started is gone
  REGROW_FIELDS(RankReport, key, state, pid, start_time, exit_code, signal, ended_by_us, forced,
                out_of_memory, bind_failed, message, last_words, error_line, last_step, started_us,
                leader_ended_us, group_gone_us)
};

// Sent at most ten times a second per host for ranks that moved, and with every heartbeat.
struct ProgressReport {
  IncarnationKey key;
  int64_t step = -1;        // -1 = none seen yet
  double loss = 0;          // NaN = unknown
  double step_seconds = 0;  // smoothed time between steps; 0 = unknown
  int64_t output_us = 0;    // host wall clock of its last sign of progress: output or report
  int64_t step_us = 0;      // host wall clock of its last step
  bool stopped = false;     // /proc state T: someone SIGSTOPped it
  REGROW_FIELDS(ProgressReport, key, step, loss, step_seconds, output_us, step_us, stopped)
};

// Get ready for a generation on one host: look for checkpoints by the rule, lease a rendezvous
// port.
struct PrepareCommand {
  JobId job;
  Generation generation;
  uint32_t attempt = 0;  // rises when a prepare is repeated, e.g. because a port was taken
  uint32_t world_size = 1;
  CheckpointRule checkpoint;
  bool want_port = false;  // rank 0 lives here
  std::vector<uint32_t> avoid_ports;
  std::string interpreter;  // with `modules`: check that it can import them
  std::vector<std::string> modules;
  std::vector<EnvVar> environment;  // the recipe's: PYTHONPATH decides what can be imported
  bool want_store = false;  // rank 0 lives here and the rendezvous is a store that the agent runs
  uint32_t uid = 0;         // the store runs as this user
  uint32_t gid = 0;
  bool rejoins = false;  // ranks open the store themselves, whatever kind PyTorch's default is
  REGROW_FIELDS(PrepareCommand, job, generation, attempt, world_size, checkpoint, want_port,
                avoid_ports, interpreter, modules, environment, want_store, uid, gid, rejoins)
};

// One candidate found on disk. `shards` lists the ranks whose shard is there and whole.
struct CheckpointFound {
  int64_t step = -1;
  std::string path;
  bool complete = false;
  bool marker = false;
  std::vector<uint32_t> shards;
  std::string problem;  // "shards 5/8, marker missing"; empty if complete
  REGROW_FIELDS(CheckpointFound, step, path, complete, marker, shards, problem)
};

struct PrepareReport {
  JobId job;
  Generation generation;
  uint32_t attempt = 0;
  std::string error;                         // empty = ready; else why this host cannot run the job
  std::string address;                       // where other hosts reach this one
  uint32_t port = 0;                         // 0 = none asked for
  std::vector<CheckpointFound> checkpoints;  // newest step first, at most 16
  bool store = false;    // `port` is that of a store which runs; else rank 0 hosts the rendezvous
  std::string no_store;  // why not, if one was wanted
  REGROW_FIELDS(PrepareReport, job, generation, attempt, error, address, port, checkpoints, store,
                no_store)
};

// A new generation is planned: these ranks of one host survive, and leave their collectives for it.
// Repeated until every rank has joined; an agent that knows the join already says it again.
struct RegroupCommand {
  Generation generation;
  std::vector<IncarnationKey> keys;
  std::string reason;  // for a person
  REGROW_FIELDS(RegroupCommand, generation, keys, reason)
};

// A rank stands ready to be a member of `generation`: out of the old process group, or new. It says
// so until it is answered by a GoCommand.
struct JoinReport {
  IncarnationKey key;
  Generation generation;
  int64_t step = -1;    // last step that its state has; -1 = none
  bool intact = false;  // its state is whole: others may take it over
  REGROW_FIELDS(JoinReport, key, generation, step, intact)
};

// All ranks have joined: meet there, and go on from that state.
struct GoCommand {
  Generation generation;
  std::vector<IncarnationKey> keys;  // of one host
  uint32_t world_size = 1;
  std::string master_address;  // of the store in which the generation meets
  uint32_t master_port = 0;
  int32_t source = -1;       // the rank whose state the others take over; -1 = from a checkpoint
  int64_t source_step = -1;  // last step of the source's state
  int64_t resume_step = -1;  // without a source; -1 = from the beginning
  std::string resume_path;
  REGROW_FIELDS(GoCommand, generation, keys, world_size, master_address, master_port, source,
                source_step, resume_step, resume_path)
};

struct DeviceReport {
  DeviceName name;
  std::string kind;  // "sim", "gpu", "tpu", "cpu"
  std::string uid;   // vendor's unique id; identity
  std::string pci_address;
  uint64_t memory_bytes = 0;
  bool healthy = true;
  std::string fault;  // why not healthy
  REGROW_FIELDS(DeviceReport, name, kind, uid, pci_address, memory_bytes, healthy, fault)
};

// First thing an agent says on a new connection.
struct AgentHello {
  HostName name;
  std::string uid;        // random, made once per state directory: the host's identity
  std::string boot_id;    // changes with a reboot; a new one voids every incarnation
  std::string address;    // for rendezvous
  uint32_t protocol = 1;  // versions differ by at most one
  std::string version;
  Epoch seen_epoch;  // newest epoch this agent obeyed
  std::vector<DeviceReport> devices;
  std::vector<RankReport> ranks;  // everything it knows and that was not yet acknowledged as final
  std::string cluster_id;         // whose epochs and job numbers these are; empty = none obeyed yet
  REGROW_FIELDS(AgentHello, name, uid, boot_id, address, protocol, version, seen_epoch, devices,
                ranks, cluster_id)
};

}  // namespace regrow

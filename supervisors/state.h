// What each supervisor knows: the fold of its own events and nothing else.
//
// Plain values. `apply` (supervisors/machines.h) is the only thing that changes them, so that
// replay, time travel, snapshots and a live actor arrive at the same state. What is not journaled
// (heartbeats, latest steps, open requests) lives in supervisors/live.h.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "supervisors/events.h"

namespace regrow {

// --- cluster -------------------------------------------------------------------------------------

struct JobEntry {
  JobId job;
  std::string name;
  std::string key;  // submission key; empty = none
  std::string submitted_by;
  bool handed_over = false;
  bool ended = false;
  Phase phase = Phase::queued;
  std::vector<JobSpec> spec;  // one element until handed over, then empty
  DeviceRequest devices;      // what placement needs to know of the spec
  uint32_t ranks_per_host = 0;
  REGROW_FIELDS(JobEntry, job, name, key, submitted_by, handed_over, ended, phase, spec, devices,
                ranks_per_host)
};

struct HostEntry {
  HostName host;
  bool usable = false;
  std::string why_not;
  std::vector<DeviceView> devices;
  REGROW_FIELDS(HostEntry, host, usable, why_not, devices)
};

struct Lease {
  JobId job;
  RankIndex rank;
  uint32_t grant = 0;
  HostName host;
  std::vector<DeviceName> devices;
  bool dirty = false;
  REGROW_FIELDS(Lease, job, rank, grant, host, devices, dirty)
};

struct WaitingGrant {
  JobId job;
  uint32_t grant = 0;
  std::vector<RankIndex> ranks;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> dirty;
  std::string reason;
  REGROW_FIELDS(WaitingGrant, job, grant, ranks, avoid_hosts, dirty, reason)
};

struct ClusterState {
  std::string cluster_id;
  Epoch epoch;
  uint64_t next_job = 1;
  std::vector<JobEntry> jobs;         // by id
  std::vector<HostEntry> hosts;       // by name
  std::vector<Lease> leases;          // by (job, rank, grant)
  std::vector<WaitingGrant> waiting;  // in line, first come first served
  REGROW_FIELDS(ClusterState, cluster_id, epoch, next_job, jobs, hosts, leases, waiting)
};

// --- host ----------------------------------------------------------------------------------------

struct AttachedRank {
  IncarnationKey key;
  bool doomed = false;
  REGROW_FIELDS(AttachedRank, key, doomed)
};

struct HostState {
  HostName name;
  std::string uid;
  std::string address;
  std::string boot_id;
  HostLink link = HostLink::never;
  Time link_since;
  HostAdmin admin = HostAdmin::in_service;
  std::string admin_reason;
  std::string admin_by;
  HostHealth health = HostHealth::ok;
  std::vector<DeviceName> devices;      // in the order first seen
  std::vector<AttachedRank> attached;   // by key
  std::vector<IncarnationKey> unknown;  // by key
  REGROW_FIELDS(HostState, name, uid, address, boot_id, link, link_since, admin, admin_reason,
                admin_by, health, devices, attached, unknown)
};

// --- device --------------------------------------------------------------------------------------

struct DeviceState {
  HostName host;
  DeviceReport report;
  DeviceHealth health = DeviceHealth::unknown;
  std::string fault;
  Time health_since;
  REGROW_FIELDS(DeviceState, host, report, health, fault, health_since)
};

// --- job -----------------------------------------------------------------------------------------

struct Slot {
  RankIndex rank;
  HostName host;
  std::vector<DeviceName> devices;
  bool placed = false;
  bool replace = false;     // needs other devices before it starts again
  bool moved = false;       // placed anew after its incarnation was lost
  Incarnation incarnation;  // newest; 0 = never started
  Process process = Process::standby;
  bool succeeded = false;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string message;  // how it ended, in words
  REGROW_FIELDS(Slot, rank, host, devices, placed, replace, moved, incarnation, process, succeeded,
                exit_code, signal, message)
};

struct Incident {
  uint32_t number = 0;
  Time at;
  RankIndex rank;
  Incarnation incarnation;
  Generation generation;
  FailureClass failure_class = FailureClass::program;
  std::string signature;
  bool peer_error = false;
  int64_t step = -1;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string last_words;
  bool charged = true;
  bool open = false;
  bool judged = false;
  bool counts = true;      // false once a budget was refilled
  std::string cause;       // the record's reason
  int64_t rank_step = -1;  // the last step that the rank itself showed
  REGROW_FIELDS(Incident, number, at, rank, incarnation, generation, failure_class, signature,
                peer_error, step, exit_code, signal, last_words, charged, open, judged, counts,
                cause, rank_step)
};

struct HostNote {
  HostName host;
  HostLink link = HostLink::up;
  Time since;
  REGROW_FIELDS(HostNote, host, link, since)
};

struct JobState {
  JobId job;
  JobSpec spec;
  std::string submitted_by;
  Time submitted_at;
  Desired desired = Desired::run;
  std::string desired_by;
  std::string desired_reason;
  Phase phase = Phase::queued;
  std::string phase_reason;         // why it is in this phase, for people
  bool parked = false;              // stopped on request; devices given back
  Phase end_phase = Phase::queued;  // where a stopping job is going; queued = nowhere
  Stage stage = Stage::none;
  uint32_t grant = 0;  // newest grant asked for
  bool holds_lease = false;
  std::vector<Slot> slots;        // index = rank
  Generation generation;          // newest planned
  Generation running_generation;  // newest that ran
  Rung rung = Rung::job;
  std::vector<RankIndex> stop;  // of the plan
  std::vector<RankIndex> start;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> wanted;  // of the newest grant asked for
  std::vector<RankIndex> wanted_dirty;
  Time not_before;
  bool force_stop = false;
  uint32_t prepare_attempt = 0;
  std::vector<HostName> prepare_hosts;
  std::vector<uint32_t> avoid_ports;
  uint32_t bind_failures = 0;  // in a row
  int64_t resume_step = -1;
  std::string resume_path;
  std::vector<std::string> rejected_checkpoints;
  std::string master_address;
  uint32_t master_port = 0;
  std::vector<Incident> incidents;  // the newest 64
  uint32_t incident_count = 0;      // ever
  uint32_t recoveries = 0;          // generations after the first
  uint32_t without_progress = 0;    // incidents in a row without a higher step or newer checkpoint
  int64_t best_step = -1;
  int64_t best_checkpoint = -1;
  ev::ProgressSampled progress;  // newest sample
  Time phase_since;
  Time stage_since;
  Time running_since;
  Time first_success;  // a rank exited 0; 0 = none in this generation
  Time ended_at;
  std::vector<HostNote> hosts;  // links of hosts it uses that are not up
  bool store = false;           // the master port is that of a store that regrow runs
  ev::GenerationFormed formed;  // newest that survivors were part of
  uint32_t heals_at_step = 0;   // in a row, that took over the same step
  REGROW_FIELDS(JobState, job, spec, submitted_by, submitted_at, desired, desired_by,
                desired_reason, phase, phase_reason, parked, end_phase, stage, grant, holds_lease,
                slots, generation, running_generation, rung, stop, start, avoid_hosts, wanted,
                wanted_dirty, not_before, force_stop, prepare_attempt, prepare_hosts, avoid_ports,
                bind_failures, resume_step, resume_path, rejected_checkpoints, master_address,
                master_port, incidents, incident_count, recoveries, without_progress, best_step,
                best_checkpoint, progress, phase_since, stage_since, running_since, first_success,
                ended_at, hosts, store, formed, heals_at_step)
};

// --- group ---------------------------------------------------------------------------------------

REGROW_ENUM(GroupStage, idle, stopping, stopped, starting, up)

struct Member {
  RankIndex rank;
  Incarnation incarnation;
  Process process = Process::standby;
  REGROW_FIELDS(Member, rank, incarnation, process)
};

struct GroupState {
  JobId job;
  GroupIndex group;
  GroupStage stage = GroupStage::idle;
  Generation generation;               // of the newest order
  std::vector<RankIndex> stopping;     // of a stop order
  StopCommand how;                     // of a stop order
  std::vector<SpawnCommand> commands;  // of a start order
  std::vector<HostName> hosts;         // of each command
  std::vector<Member> members;         // by rank
  REGROW_FIELDS(GroupState, job, group, stage, generation, stopping, how, commands, hosts, members)
};

// --- rank ----------------------------------------------------------------------------------------

struct PastIncarnation {
  Incarnation incarnation;
  HostName host;
  Process process = Process::exited;
  int32_t exit_code = 0;
  int32_t signal = 0;
  bool ended_by_us = false;
  std::string message;
  Time ended_at;
  REGROW_FIELDS(PastIncarnation, incarnation, host, process, exit_code, signal, ended_by_us,
                message, ended_at)
};

struct RankState {
  JobId job;
  RankIndex rank;
  GroupIndex group;
  HostName host;
  SpawnCommand command;  // of the newest incarnation
  Process process = Process::standby;
  StopCommand stop;  // valid while stopping
  std::string stop_reason;
  uint64_t pid = 0;
  uint64_t start_time = 0;
  Time since;                         // when `process` became what it is
  RankReport report;                  // of the newest incarnation that ended
  std::vector<PastIncarnation> past;  // the newest 16
  REGROW_FIELDS(RankState, job, rank, group, host, command, process, stop, stop_reason, pid,
                start_time, since, report, past)
};

using AnyState = std::variant<std::monostate, ClusterState, HostState, DeviceState, JobState,
                              GroupState, RankState>;

}  // namespace regrow

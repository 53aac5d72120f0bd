// What happened: every kind of event the journal holds.
//
// Each event has exactly one owner entity, is applied only there, and is never changed after it was
// written. Add kinds at the end of `Event`, add fields at the end of a struct, mirror both in
// journal/schema/event.capnp; never reuse or retype one.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "supervisors/host_protocol.h"
#include "supervisors/job_spec.h"
#include "supervisors/types.h"

namespace regrow {

REGROW_ENUM(HostLink, never, up, suspect, unreachable, lost)
REGROW_ENUM(HostAdmin, in_service, cordoned, draining)
REGROW_ENUM(HostHealth, ok, suspect, quarantined)
REGROW_ENUM(DeviceHealth, ok, unknown, suspect, faulty, resetting, quarantined)
REGROW_ENUM(Desired, run, pause, hold, cancel)
REGROW_ENUM(Phase, queued, starting, running, recovering, stopping, completed, failed, cancelled)

// What a job that is starting or recovering waits for, in this order.
REGROW_ENUM(Stage, none, stopping, placing, backing_off, preparing, spawning, joining)

// The recovery ladder. A job climbs only when the rung below failed or cannot help.
REGROW_ENUM(Rung, respawn, other_device, group, job, requeue, hold)

REGROW_ENUM(Process, standby, spawning, running, rejoining, stopping, exited, lost)

// Where one rank runs.
struct Placement {
  RankIndex rank;
  HostName host;
  std::vector<DeviceName> devices;
  REGROW_FIELDS(Placement, rank, host, devices)
};

struct DeviceView {
  DeviceName name;
  std::string kind;
  uint64_t memory_bytes = 0;
  bool usable = false;
  std::string why_not;
  REGROW_FIELDS(DeviceView, name, kind, memory_bytes, usable, why_not)
};

namespace ev {

// --- cluster -------------------------------------------------------------------------------------

// A controller began its term. The first one names the cluster.
struct ControllerStarted {
  std::string cluster_id;
  Epoch epoch;
  std::string version;
  REGROW_FIELDS(ControllerStarted, cluster_id, epoch, version)
};

// A submission is durable. `key` makes a repeat of the same submission answer the same job.
struct JobAccepted {
  JobId job;
  std::string key;
  JobSpec spec;
  REGROW_FIELDS(JobAccepted, job, key, spec)
};

// The job's own actor has journaled its spec; the cluster need not keep it.
struct JobHandedOver {
  JobId job;
  REGROW_FIELDS(JobHandedOver, job)
};

// Devices are leased to slots of a job: one event for the whole gang. Other leases of these slots
// end.
struct DevicesGranted {
  JobId job;
  uint32_t grant = 0;
  std::vector<Placement> placements;
  std::vector<RankIndex> dirty;  // their former leases stay until the host is clean
  REGROW_FIELDS(DevicesGranted, job, grant, placements, dirty)
};

// No device is free for this request now; it stays in line. `reason` of the record says what is
// missing.
struct GrantWaiting {
  JobId job;
  uint32_t grant = 0;
  std::vector<RankIndex> ranks;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> dirty;
  REGROW_FIELDS(GrantWaiting, job, grant, ranks, avoid_hosts, dirty)
};

// Slots gave their devices back. A slot in `dirty` may still have a process on an unreachable host;
// its devices are not leased again until the host has confirmed that nothing is left (D-2).
struct DevicesReleased {
  JobId job;
  std::vector<RankIndex> ranks;
  std::vector<RankIndex> dirty;
  REGROW_FIELDS(DevicesReleased, job, ranks, dirty)
};

struct LeaseCleaned {
  JobId job;
  RankIndex rank;
  HostName host;
  REGROW_FIELDS(LeaseCleaned, job, rank, host)
};

// What placement may use of a host, as the host last said.
struct HostNoted {
  HostName host;
  bool usable = false;
  std::string why_not;
  REGROW_FIELDS(HostNoted, host, usable, why_not)
};

struct DeviceNoted {
  HostName host;
  DeviceView device;
  REGROW_FIELDS(DeviceNoted, host, device)
};

struct JobEndNoted {
  JobId job;
  Phase phase = Phase::completed;
  REGROW_FIELDS(JobEndNoted, job, phase)
};

// Numbers given out are lost with the end of the journal, and agents know them: what comes goes on
// far above.
struct NumbersRaised {
  uint64_t next_job = 0;
  uint64_t epoch = 0;  // of the term before the next
  REGROW_FIELDS(NumbersRaised, next_job, epoch)
};

// --- host ----------------------------------------------------------------------------------------

struct HostRegistered {
  std::string uid;
  std::string address;
  REGROW_FIELDS(HostRegistered, uid, address)
};

struct HostLinkChanged {
  HostLink link = HostLink::up;
  std::string boot_id;  // empty = as before
  std::string address;
  REGROW_FIELDS(HostLinkChanged, link, boot_id, address)
};

struct HostAdminChanged {
  HostAdmin admin = HostAdmin::in_service;
  REGROW_FIELDS(HostAdminChanged, admin)
};

// From now until detached this incarnation may have a process on this host.
struct RankAttached {
  IncarnationKey key;
  REGROW_FIELDS(RankAttached, key)
};

// Given up while the host could not be asked: to be killed when it comes back.
struct RankDoomed {
  IncarnationKey key;
  REGROW_FIELDS(RankDoomed, key)
};

struct RankDetached {
  IncarnationKey key;
  REGROW_FIELDS(RankDetached, key)
};

// The agent has processes that this journal knows nothing of. They are shown and never killed.
struct UnknownRanksSeen {
  std::vector<IncarnationKey> keys;
  REGROW_FIELDS(UnknownRanksSeen, keys)
};

struct HostDeviceListed {
  DeviceName device;
  REGROW_FIELDS(HostDeviceListed, device)
};

// --- device --------------------------------------------------------------------------------------

struct DeviceDiscovered {
  DeviceReport report;
  REGROW_FIELDS(DeviceDiscovered, report)
};

struct DeviceHealthChanged {
  DeviceHealth health = DeviceHealth::ok;
  std::string fault;
  REGROW_FIELDS(DeviceHealthChanged, health, fault)
};

// --- job -----------------------------------------------------------------------------------------

struct JobCreated {
  JobSpec spec;
  std::string submitted_by;
  REGROW_FIELDS(JobCreated, spec, submitted_by)
};

struct DesiredChanged {
  Desired desired = Desired::run;
  REGROW_FIELDS(DesiredChanged, desired)
};

// The job asks for devices for these slots; grant numbers rise.
struct PlacementWanted {
  uint32_t grant = 0;
  std::vector<RankIndex> ranks;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> dirty;  // lost: their old devices may still have a process
  REGROW_FIELDS(PlacementWanted, grant, ranks, avoid_hosts, dirty)
};

// Still in line for this grant; the record's reason says what is missing and who holds it.
struct WaitingNoted {
  uint32_t grant = 0;
  REGROW_FIELDS(WaitingNoted, grant)
};

struct SlotsPlaced {
  uint32_t grant = 0;
  std::vector<Placement> placements;
  REGROW_FIELDS(SlotsPlaced, grant, placements)
};

struct SlotsReleased {
  uint32_t grant = 0;
  REGROW_FIELDS(SlotsReleased, grant)
};

// A device of this slot cannot be used any more: it must start on others.
struct SlotCondemned {
  RankIndex rank;
  REGROW_FIELDS(SlotCondemned, rank)
};

// One loss that nobody asked for and everything that follows from it until a generation runs again.
struct IncidentOpened {
  uint32_t incident = 0;
  RankIndex rank;
  Incarnation incarnation;
  FailureClass failure_class = FailureClass::program;
  std::string signature;    // "exit 1: ValueError: bad batch"
  bool peer_error = false;  // its own words blame the loss of a peer
  int64_t step = -1;        // the job's last step before it
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string last_words;
  bool charged = true;     // spends a unit of its class's budget
  int64_t rank_step = -1;  // the last step that the rank itself showed; -1 = none
  REGROW_FIELDS(IncidentOpened, incident, rank, incarnation, failure_class, signature, peer_error,
                step, exit_code, signal, last_words, charged, rank_step)
};

// A later loss turned out to be the root of an open incident: its first report only echoed a peer's
// end.
struct IncidentReclassified {
  uint32_t incident = 0;
  RankIndex rank;
  Incarnation incarnation;
  FailureClass failure_class = FailureClass::program;
  std::string signature;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string last_words;
  bool charged = true;
  int64_t rank_step = -1;
  REGROW_FIELDS(IncidentReclassified, incident, rank, incarnation, failure_class, signature,
                exit_code, signal, last_words, charged, rank_step)
};

// All evidence is in (every affected rank has ended): what the incident counts as.
struct IncidentJudged {
  uint32_t incident = 0;
  int64_t step = -1;        // the job's last step before it
  bool progressed = false;  // a higher step than at any incident before
  REGROW_FIELDS(IncidentJudged, incident, step, progressed)
};

// The slot's current incarnation has ended for good (or is given up: lost).
struct SlotEnded {
  RankIndex rank;
  Incarnation incarnation;
  bool succeeded = false;  // exit 0 that nobody asked for
  bool lost = false;       // no process report; its host is out of reach or rebooted
  bool ended_by_us = false;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string message;
  REGROW_FIELDS(SlotEnded, rank, incarnation, succeeded, lost, ended_by_us, exit_code, signal,
                message)
};

// Work on the next generation begins: end `stop`, then start `start` anew.
struct RecoveryPlanned {
  Generation generation;
  uint32_t incident = 0;  // 0 = first start, resume by an operator
  Rung rung = Rung::job;
  std::vector<RankIndex> stop;
  std::vector<RankIndex> start;
  std::vector<RankIndex> replace;  // of `start`: need other devices than before
  std::vector<HostName> avoid_hosts;
  bool force = false;  // stop without grace
  REGROW_FIELDS(RecoveryPlanned, generation, incident, rung, stop, start, replace, avoid_hosts,
                force)
};

struct StageEntered {
  Stage stage = Stage::none;
  uint32_t prepare_attempt = 0;  // of stage preparing
  std::vector<HostName> prepare_hosts;
  std::vector<uint32_t> avoid_ports;
  Time not_before;  // of stage backing_off
  REGROW_FIELDS(StageEntered, stage, prepare_attempt, prepare_hosts, avoid_ports, not_before)
};

// Where a generation resumes and meets; incarnations of its `start` slots rise by one with it.
struct GenerationStarted {
  Generation generation;
  int64_t resume_step = -1;
  std::string resume_path;
  std::string master_address;
  uint32_t master_port = 0;
  std::vector<std::string> rejected;  // checkpoints not chosen, and why
  bool store = false;                 // the generation meets in a store that regrow runs
  bool joins = false;                 // survivors belong to it: they may have a newer state
  REGROW_FIELDS(GenerationStarted, generation, resume_step, resume_path, master_address,
                master_port, rejected, store, joins)
};

// Every rank has joined, survivors and new ones, and knows from which state the generation goes on.
struct GenerationFormed {
  Generation generation;
  int32_t source = -1;       // the rank whose state the others take over; -1 = from a checkpoint
  int64_t source_step = -1;  // last step of that state
  REGROW_FIELDS(GenerationFormed, generation, source, source_step)
};

struct SlotRunning {
  RankIndex rank;
  Incarnation incarnation;
  REGROW_FIELDS(SlotRunning, rank, incarnation)
};

struct GenerationRunning {
  Generation generation;
  REGROW_FIELDS(GenerationRunning, generation)
};

// Journaled every 30 s and when a generation ends; finer figures are not events.
struct ProgressSampled {
  int64_t step = -1;
  double loss = 0;
  double median_step_seconds = 0;
  RankIndex slowest_rank;
  REGROW_FIELDS(ProgressSampled, step, loss, median_step_seconds, slowest_rank)
};

// It ran healthily for long enough: past incidents no longer count.
struct BudgetRefilled {
  uint32_t forgotten = 0;  // incidents that counted until now
  REGROW_FIELDS(BudgetRefilled, forgotten)
};

// How a host of this job can be reached, as the host said.
struct HostLinkNoted {
  HostName host;
  HostLink link = HostLink::up;
  Time since;
  REGROW_FIELDS(HostLinkNoted, host, link, since)
};

// The job is on its way to this end; its ranks are being stopped.
struct EndDecided {
  Phase phase = Phase::failed;
  std::vector<RankIndex> stop;
  REGROW_FIELDS(EndDecided, phase, stop)
};

struct JobEnded {
  Phase phase = Phase::completed;
  REGROW_FIELDS(JobEnded, phase)
};

// Every rank is stopped and the devices are given back; it stays so until an operator resumes it.
struct JobParked {
  Desired desired = Desired::pause;
  REGROW_FIELDS(JobParked, desired)
};

// --- group ---------------------------------------------------------------------------------------

struct GroupStopOrdered {
  Generation generation;
  std::vector<RankIndex> ranks;
  StopCommand how;  // key unused
  REGROW_FIELDS(GroupStopOrdered, generation, ranks, how)
};

struct GroupStopped {
  Generation generation;
  REGROW_FIELDS(GroupStopped, generation)
};

struct GroupStartOrdered {
  Generation generation;
  std::vector<SpawnCommand> commands;
  std::vector<HostName> hosts;  // of each command
  REGROW_FIELDS(GroupStartOrdered, generation, commands, hosts)
};

struct GroupUp {
  Generation generation;
  REGROW_FIELDS(GroupUp, generation)
};

struct MemberChanged {
  RankIndex rank;
  Incarnation incarnation;
  Process process = Process::standby;
  REGROW_FIELDS(MemberChanged, rank, incarnation, process)
};

// --- rank ----------------------------------------------------------------------------------------

struct RankSpawning {
  HostName host;
  SpawnCommand command;
  REGROW_FIELDS(RankSpawning, host, command)
};

struct RankRunning {
  Incarnation incarnation;
  uint64_t pid = 0;
  uint64_t start_time = 0;
  int64_t started_us = 0;
  REGROW_FIELDS(RankRunning, incarnation, pid, start_time, started_us)
};

struct RankStopping {
  Incarnation incarnation;
  StopCommand command;
  REGROW_FIELDS(RankStopping, incarnation, command)
};

struct RankExited {
  Incarnation incarnation;
  RankReport report;
  REGROW_FIELDS(RankExited, incarnation, report)
};

struct RankLost {
  Incarnation incarnation;
  REGROW_FIELDS(RankLost, incarnation)
};

// --- any -----------------------------------------------------------------------------------------

// An operator makes trouble on purpose. Of a host.
struct FaultInjected {
  std::string what;
  REGROW_FIELDS(FaultInjected, what)
};
// A check in the decision code failed for this entity. It is left as it is until an operator looks.
struct EntityQuarantined {
  std::string what;
  REGROW_FIELDS(EntityQuarantined, what)
};

}  // namespace ev

using Event =
    std::variant<ev::ControllerStarted, ev::JobAccepted, ev::JobHandedOver, ev::DevicesGranted,
                 ev::GrantWaiting, ev::DevicesReleased, ev::LeaseCleaned, ev::HostNoted,
                 ev::DeviceNoted, ev::JobEndNoted, ev::HostRegistered, ev::HostLinkChanged,
                 ev::HostAdminChanged, ev::RankAttached, ev::RankDoomed, ev::RankDetached,
                 ev::UnknownRanksSeen, ev::HostDeviceListed, ev::DeviceDiscovered,
                 ev::DeviceHealthChanged, ev::JobCreated, ev::DesiredChanged, ev::PlacementWanted,
                 ev::WaitingNoted, ev::SlotsPlaced, ev::SlotsReleased, ev::SlotCondemned,
                 ev::IncidentOpened, ev::IncidentReclassified, ev::IncidentJudged, ev::SlotEnded,
                 ev::RecoveryPlanned, ev::StageEntered, ev::GenerationStarted, ev::SlotRunning,
                 ev::GenerationRunning, ev::ProgressSampled, ev::BudgetRefilled, ev::HostLinkNoted,
                 ev::EndDecided, ev::JobEnded, ev::JobParked, ev::GroupStopOrdered,
                 ev::GroupStopped, ev::GroupStartOrdered, ev::GroupUp, ev::MemberChanged,
                 ev::RankSpawning, ev::RankRunning, ev::RankStopping, ev::RankExited, ev::RankLost,
                 ev::EntityQuarantined, ev::NumbersRaised, ev::FaultInjected, ev::GenerationFormed>;

inline const char* event_name(const Event& e) {
  return std::visit([](const auto& x) { return std::decay_t<decltype(x)>::kTypeName; }, e);
}

// An event with its place in history. `seq` is 0 until the journal has numbered it.
struct EventRecord {
  uint64_t seq = 0;
  EntityId entity;
  uint64_t n = 0;  // the n-th event of this entity, from 1
  EventRef caused_by;
  Time at;
  std::string reason;  // why, as a sentence (O-2)
  Actor by;            // who asked; empty for automatic decisions
  Event event;
  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

}  // namespace regrow

// What a supervisor can be told, and what follows from its decisions.
//
// An Input reaches exactly one entity: from outside (an agent's report, an operator's command, a
// timer) or as a message of another entity. Messages between entities are level-triggered: the
// sender keeps saying what it wants for as long as its state says so (on change, and again after a
// restart), the receiver treats a repeat as nothing new.
#pragma once

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "supervisors/events.h"
#include "supervisors/host_protocol.h"
#include "supervisors/types.h"

namespace regrow {

namespace in {

// --- from the engine -----------------------------------------------------------------------------

// The controller has just started (`now` is in the call). Everything pending is issued again.
struct Resumed {
  REGROW_FIELDS(Resumed)
};
struct Tick {  // a deadline of this entity has come
  REGROW_FIELDS(Tick)
};
// This controller's term begins; to the cluster, before anything else.
struct StartTerm {
  std::string cluster_id;
  Epoch epoch;
  std::string version;
  REGROW_FIELDS(StartTerm, cluster_id, epoch, version)
};

// --- from operators ------------------------------------------------------------------------------

struct Submit {  // to the cluster; Reply.job
  std::string key;
  JobSpec spec;
  REGROW_FIELDS(Submit, key, spec)
};
struct SetDesired {  // to a job
  Desired desired = Desired::run;
  std::string reason;
  REGROW_FIELDS(SetDesired, desired, reason)
};
struct SetHostAdmin {  // to a host
  HostAdmin admin = HostAdmin::in_service;
  std::string reason;
  REGROW_FIELDS(SetHostAdmin, admin, reason)
};

struct NoteFault {  // to a host: an operator is about to do this to it
  std::string what;
  REGROW_FIELDS(NoteFault, what)
};

// --- from agents ---------------------------------------------------------------------------------

struct AgentConnected {  // to a host
  SessionId session;
  AgentHello hello;
  REGROW_FIELDS(AgentConnected, session, hello)
};
struct AgentGone {  // to a host: the connection ended
  SessionId session;
  std::string why;
  REGROW_FIELDS(AgentGone, session, why)
};
struct AgentHeartbeat {  // to a host
  SessionId session;
  REGROW_FIELDS(AgentHeartbeat, session)
};
struct AgentReport {  // to a rank; acknowledged when durable
  HostName host;
  RankReport report;
  SessionId session;  // of the connection it came over
  REGROW_FIELDS(AgentReport, host, report, session)
};
// To a rank: the host's link is back and its agent knows (or does not know) this incarnation.
struct InventoryReport {
  HostName host;
  RankReport report;
  SessionId session;  // this is what the agent knew when that connection began
  REGROW_FIELDS(InventoryReport, host, report, session)
};
struct Prepared {  // to a job
  HostName host;
  PrepareReport report;
  REGROW_FIELDS(Prepared, host, report)
};
struct Joined {  // to a job; told again until it is answered by fx::Go
  HostName host;
  JoinReport report;
  REGROW_FIELDS(Joined, host, report)
};
struct Progress {  // to a job; not journaled
  ProgressReport report;
  REGROW_FIELDS(Progress, report)
};
struct DeviceSeen {  // to a device
  DeviceReport report;
  SessionId session;       // of the connection it came over
  bool inventory = false;  // it is what the agent knew when that connection began
  REGROW_FIELDS(DeviceSeen, report, session, inventory)
};
struct DeviceMissing {  // to a device: not in the agent's list when that connection began
  SessionId session;
  REGROW_FIELDS(DeviceMissing, session)
};

// --- between entities ----------------------------------------------------------------------------

struct CreateJob {  // cluster → job
  JobSpec spec;
  std::string submitted_by;
  REGROW_FIELDS(CreateJob, spec, submitted_by)
};
struct JobTakenOver {  // job → cluster
  JobId job;
  REGROW_FIELDS(JobTakenOver, job)
};
struct JobFinished {  // job → cluster
  JobId job;
  Phase phase = Phase::completed;
  REGROW_FIELDS(JobFinished, job, phase)
};
struct RequestGrant {  // job → cluster; answered by Granted, now or later
  JobId job;
  uint32_t grant = 0;
  std::vector<RankIndex> ranks;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> dirty;  // of `ranks`: their old devices may still have a process
  REGROW_FIELDS(RequestGrant, job, grant, ranks, avoid_hosts, dirty)
};
struct Granted {  // cluster → job
  uint32_t grant = 0;
  std::vector<Placement> placements;
  REGROW_FIELDS(Granted, grant, placements)
};
struct GrantDelayed {  // cluster → job: what is missing
  uint32_t grant = 0;
  std::string reason;
  REGROW_FIELDS(GrantDelayed, grant, reason)
};
struct ReleaseDevices {  // job → cluster; answered by DevicesFreed
  JobId job;
  uint32_t grant = 0;            // grants up to this one
  std::vector<RankIndex> dirty;  // may still have a process somewhere
  REGROW_FIELDS(ReleaseDevices, job, grant, dirty)
};
struct DevicesFreed {  // cluster → job
  uint32_t grant = 0;
  REGROW_FIELDS(DevicesFreed, grant)
};
struct HostView {  // host → cluster
  HostName host;
  bool usable = false;
  std::string why_not;
  REGROW_FIELDS(HostView, host, usable, why_not)
};
struct DeviceChanged {  // device → cluster
  HostName host;
  DeviceView device;
  REGROW_FIELDS(DeviceChanged, host, device)
};
struct CheckLease {  // cluster → host: is anything of this rank left? answered by CleanLease, now
                     // or later
  JobId job;
  RankIndex rank;
  REGROW_FIELDS(CheckLease, job, rank)
};
struct CleanLease {  // host → cluster: nothing of this rank is left on the host
  HostName host;
  JobId job;
  RankIndex rank;
  REGROW_FIELDS(CleanLease, host, job, rank)
};
struct DeviceTrouble {  // cluster → job: a device it holds cannot be used any more
  HostName host;
  DeviceName device;
  std::string why;
  REGROW_FIELDS(DeviceTrouble, host, device, why)
};
struct HostLinkNews {  // host → job
  HostName host;
  HostLink link = HostLink::up;
  Time since;
  REGROW_FIELDS(HostLinkNews, host, link, since)
};
struct GroupStop {  // job → group; answered by GroupStatus{stopped}
  Generation generation;
  std::vector<RankIndex> ranks;
  StopCommand how;  // key unused
  REGROW_FIELDS(GroupStop, generation, ranks, how)
};
struct GroupStart {  // job → group; answered by GroupStatus{up}
  Generation generation;
  std::vector<SpawnCommand> commands;
  std::vector<HostName> hosts;
  REGROW_FIELDS(GroupStart, generation, commands, hosts)
};
struct GroupStatus {  // group → job
  GroupIndex group;
  Generation generation;
  bool stopped = false;
  bool up = false;
  REGROW_FIELDS(GroupStatus, group, generation, stopped, up)
};
struct RankStop {  // group → rank
  Incarnation incarnation;
  StopCommand how;
  REGROW_FIELDS(RankStop, incarnation, how)
};
struct RankStart {  // group → rank
  SpawnCommand command;
  HostName host;
  REGROW_FIELDS(RankStart, command, host)
};
struct DeclareLost {  // job → rank: its host is out of reach for too long
  Incarnation incarnation;
  std::string why;
  REGROW_FIELDS(DeclareLost, incarnation, why)
};
// rank → group → job: the present state of a slot's newest incarnation.
struct RankStatus {
  RankIndex rank;
  Incarnation incarnation;
  Generation generation;
  Process process = Process::standby;
  RankReport report;  // valid if exited
  std::string why;    // if lost
  REGROW_FIELDS(RankStatus, rank, incarnation, generation, process, report, why)
};
struct AttachRank {  // rank → host
  IncarnationKey key;
  REGROW_FIELDS(AttachRank, key)
};
struct DetachRank {  // rank → host: nothing of it is left there
  IncarnationKey key;
  REGROW_FIELDS(DetachRank, key)
};
struct DoomRank {  // rank → host: kill it when you can
  IncarnationKey key;
  std::string why;
  REGROW_FIELDS(DoomRank, key, why)
};

}  // namespace in

using Input =
    std::variant<in::Resumed, in::Tick, in::StartTerm, in::Submit, in::SetDesired, in::SetHostAdmin,
                 in::AgentConnected, in::AgentGone, in::AgentHeartbeat, in::AgentReport,
                 in::InventoryReport, in::Prepared, in::Progress, in::DeviceSeen, in::DeviceMissing,
                 in::CreateJob, in::JobTakenOver, in::JobFinished, in::RequestGrant, in::Granted,
                 in::GrantDelayed, in::ReleaseDevices, in::DevicesFreed, in::HostView,
                 in::DeviceChanged, in::CleanLease, in::DeviceTrouble, in::HostLinkNews,
                 in::GroupStop, in::GroupStart, in::GroupStatus, in::RankStop, in::RankStart,
                 in::DeclareLost, in::RankStatus, in::AttachRank, in::DetachRank, in::DoomRank,
                 in::CheckLease, in::NoteFault, in::Joined>;

inline const char* input_name(const Input& i) {
  return std::visit([](const auto& x) { return std::decay_t<decltype(x)>::kTypeName; }, i);
}

// An input on its way to an entity.
struct Envelope {
  EntityId to;
  EventRef cause;     // the event that led to it, if one did
  RequestId request;  // somebody waits for Reply
  Actor by;           // who asked, for operators' commands
  Input input;
};

// The answer to a request, given once everything it tells is durable (J-3).
struct Reply {
  RequestId request;
  bool ok = true;
  std::string message;  // what happened, or why not and what to do
  JobId job;            // of Submit
  REGROW_FIELDS(Reply, request, ok, message, job)
};

// What has to happen in the world. Every effect may run twice safely; it is repeated until the
// state that wants it has changed. An effect for a host without a session is dropped: the host's
// return asks for it again.
namespace fx {
struct Spawn {
  HostName host;
  SpawnCommand command;
  REGROW_FIELDS(Spawn, host, command)
};
struct Stop {
  HostName host;
  StopCommand command;
  REGROW_FIELDS(Stop, host, command)
};
// The answer to an agent's inventory: which incarnations to keep, which to kill.
struct AnswerInventory {
  HostName host;
  SessionId session;
  std::vector<IncarnationKey> keep;
  std::vector<IncarnationKey> kill;
  REGROW_FIELDS(AnswerInventory, host, session, keep, kill)
};
// The end of an incarnation is journaled; the agent need not tell again.
struct Acknowledge {
  HostName host;
  IncarnationKey key;
  REGROW_FIELDS(Acknowledge, host, key)
};
struct Prepare {
  HostName host;
  PrepareCommand command;
  REGROW_FIELDS(Prepare, host, command)
};
// These ranks survive and are wanted in a new generation.
struct Regroup {
  HostName host;
  RegroupCommand command;
  REGROW_FIELDS(Regroup, host, command)
};
// The new generation is complete.
struct Go {
  HostName host;
  GoCommand command;
  REGROW_FIELDS(Go, host, command)
};
// The spec that goes with every Spawn of this job; kept by the runner while the job lives.
struct KeepSpec {
  JobId job;
  JobSpec spec;
  REGROW_FIELDS(KeepSpec, job, spec)
};
struct DropSession {  // refused: hang up
  SessionId session;
  std::string why;
  REGROW_FIELDS(DropSession, session, why)
};
}  // namespace fx

using Effect = std::variant<fx::Spawn, fx::Stop, fx::AnswerInventory, fx::Acknowledge, fx::Prepare,
                            fx::KeepSpec, fx::DropSession, fx::Regroup, fx::Go>;

// A message to another entity, as wanted by pending().
struct Message {
  EntityId to;
  Input input;
  friend bool operator==(const Message&, const Message&) = default;
};

using Action = std::variant<Effect, Message>;

// An event to record, with its reason in words.
struct Recorded {
  Event event;
  std::string reason;
};

// What follows from one input.
struct Decision {
  std::vector<Recorded> events;   // journaled and applied in this order
  std::vector<Message> messages;  // answers to requests, sent once
  std::vector<Effect> effects;    // sent once, when the events are durable
  std::vector<Reply> replies;
  bool reissue = false;  // forget what was issued: issue all that is pending again
  std::string ignored;   // why nothing happened, if so

  void record(Event event, std::string reason) {
    events.push_back({std::move(event), std::move(reason)});
  }
};

}  // namespace regrow

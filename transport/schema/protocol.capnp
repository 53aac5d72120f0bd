# What controller and agent tell each other about ranks: supervisors/job_spec.h and host_protocol.h,
# field by field (a test compares them). Only add fields with higher numbers; never reuse or retype
# one. Times are microseconds since the Unix epoch, durations microseconds.
@0xdf0f1c7fe6b35f4d;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("regrow::rpc");

enum RecoveryScope { rank @0; group @1; job @2; }
enum StorageKind { shared @0; hostLocal @1; }
enum StopScope { leader @0; group @1; }
enum SuccessRule { allRanks @0; rankZero @1; }
enum Rendezvous { rankZero @0; store @1; }
enum FailureClass {
  program @0;
  killed @1;
  outOfMemory @2;
  earlyExit @3;
  hang @4;
  startUp @5;
  device @6;
  infrastructure @7;
  preempted @8;
}
enum ProcessState {
  starting @0;
  running @1;
  exited @2;
  neverStarted @3;
  gone @4;
  unknown @5;
}

# ---- the job

struct EnvVar {
  name @0 :Text;
  value @1 :Text;
  source @2 :Text;  # "recipe", "submitter", "recipe --set"
}

struct DeviceRequest {
  kind @0 :Text;
  count @1 :UInt32;        # devices per rank
  memoryBytes @2 :UInt64;  # at least this much per device; 0 = any
}

struct CheckpointRule {
  directory @0 :Text;  # empty = no checkpoints
  storage @1 :StorageKind;
  entry @2 :Text;      # "step_{step}"
  shards @3 :Text;     # "rank_{rank}.pt"
  marker @4 :Text;
  manifest @5 :Text;
}

struct Intensity {
  failureClass @0 :FailureClass;
  maxRestarts @1 :Int32;  # -1 = no limit
  window @2 :Int64;
}

struct Timeouts {
  start @0 :Int64;
  progress @1 :Int64;
  stopGrace @2 :Int64;
  finish @3 :Int64;
  host @4 :Int64;
  maxUnreachable @5 :Int64;
  rejoin @6 :Int64 = 30000000;
}

struct Backoff {
  initial @0 :Int64;
  cap @1 :Int64;
}

struct LogLimits {
  capBytes @0 :UInt64;
  segmentBytes @1 :UInt64;
}

struct JobSpec {
  name @0 :Text;
  ranks @1 :UInt32;
  groups @2 :UInt32;
  spares @3 :UInt32;
  ranksPerHost @4 :UInt32;
  devices @5 :DeviceRequest;
  interpreter @6 :Text;
  command @7 :List(Text);
  requiresModules @8 :List(Text);
  workingDirectory @9 :Text;
  environment @10 :List(EnvVar);
  nofile @11 :UInt64;
  checkpoint @12 :CheckpointRule;
  recovery @13 :RecoveryScope;
  intensity @14 :List(Intensity);
  maxWithoutProgress @15 :UInt32;
  healthyFor @16 :Int64;
  backoff @17 :Backoff;
  success @18 :SuccessRule;
  timeouts @19 :Timeouts;
  stopSignal @20 :Text;
  stopScope @21 :StopScope;
  progressPattern @22 :Text;
  totalSteps @23 :UInt64;
  logs @24 :LogLimits;
  uid @25 :UInt32;
  gid @26 :UInt32;
  rendezvous @27 :Rendezvous;
}

# ---- names

struct Epoch {
  number @0 :UInt64;
  startId @1 :UInt64;
}

struct IncarnationKey {
  job @0 :UInt64;
  rank @1 :UInt32;
  incarnation @2 :UInt32;
}

# ---- controller to agent

struct SpawnCommand {
  key @0 :IncarnationKey;
  generation @1 :UInt32;
  group @2 :UInt32;
  worldSize @3 :UInt32;
  localRank @4 :UInt32;
  localWorldSize @5 :UInt32;
  groupRank @6 :UInt32;
  groupWorldSize @7 :UInt32;
  devices @8 :List(Text);
  masterAddress @9 :Text;
  masterPort @10 :UInt32;
  resumeStep @11 :Int64;
  resumePath @12 :Text;
  restartCount @13 :UInt32;
  store @14 :Bool;
  rejoins @15 :Bool;
}

struct StopCommand {
  key @0 :IncarnationKey;
  signal @1 :Text;
  scope @2 :StopScope;
  grace @3 :Int64;
  force @4 :Bool;
  reason @5 :Text;
}

struct PrepareCommand {
  job @0 :UInt64;
  generation @1 :UInt32;
  attempt @2 :UInt32;
  worldSize @3 :UInt32;
  checkpoint @4 :CheckpointRule;
  wantPort @5 :Bool;
  avoidPorts @6 :List(UInt32);
  interpreter @7 :Text;
  modules @8 :List(Text);
  environment @9 :List(EnvVar);
  wantStore @10 :Bool;
  uid @11 :UInt32;
  gid @12 :UInt32;
  rejoins @13 :Bool;
}

struct RegroupCommand {
  generation @0 :UInt32;
  keys @1 :List(IncarnationKey);
  reason @2 :Text;
}

struct GoCommand {
  generation @0 :UInt32;
  keys @1 :List(IncarnationKey);
  worldSize @2 :UInt32;
  masterAddress @3 :Text;
  masterPort @4 :UInt32;
  source @5 :Int32;
  sourceStep @6 :Int64;
  resumeStep @7 :Int64;
  resumePath @8 :Text;
}

struct InventoryAnswer {
  keep @0 :List(IncarnationKey);
  kill @1 :List(IncarnationKey);
}

struct Spawn {
  command @0 :SpawnCommand;
  spec @1 :JobSpec;
}

struct SetDeviceFault {
  device @0 :Text;
  fault @1 :Text;  # empty = heal
}

struct CutLink {
  duration @0 :Int64;
}

# Fault injection: a signal as a stranger would send it.
struct SignalRank {
  key @0 :IncarnationKey;
  signal @1 :Int32;
}

struct Acknowledge {
  keys @0 :List(IncarnationKey);
}

struct AgentCommand {
  union {
    inventoryAnswer @0 :InventoryAnswer;
    spawn @1 :Spawn;
    stopCommand @2 :StopCommand;
    prepareCommand @3 :PrepareCommand;
    setDeviceFault @4 :SetDeviceFault;
    cutLink @5 :CutLink;
    acknowledge @6 :Acknowledge;
    signalRank @7 :SignalRank;
    regroupCommand @8 :RegroupCommand;
    goCommand @9 :GoCommand;
  }
}

# ---- agent to controller

struct RankReport {
  key @0 :IncarnationKey;
  state @1 :ProcessState;
  pid @2 :UInt64;
  startTime @3 :UInt64;
  exitCode @4 :Int32;
  signal @5 :Int32;
  endedByUs @6 :Bool;
  forced @7 :Bool;
  outOfMemory @8 :Bool;
  bindFailed @9 :Bool;
  message @10 :Text;
  lastWords @11 :Text;
  errorLine @12 :Text;
  lastStep @13 :Int64;
  startedUs @14 :Int64;
  leaderEndedUs @15 :Int64;
  groupGoneUs @16 :Int64;
}

struct ProgressReport {
  key @0 :IncarnationKey;
  step @1 :Int64;
  loss @2 :Float64;
  stepSeconds @3 :Float64;
  outputUs @4 :Int64;
  stepUs @5 :Int64;
  stopped @6 :Bool;
}

struct JoinReport {
  key @0 :IncarnationKey;
  generation @1 :UInt32;
  step @2 :Int64;
  intact @3 :Bool;
}

struct CheckpointFound {
  step @0 :Int64;
  path @1 :Text;
  complete @2 :Bool;
  marker @3 :Bool;
  shards @4 :List(UInt32);
  problem @5 :Text;
}

struct PrepareReport {
  job @0 :UInt64;
  generation @1 :UInt32;
  attempt @2 :UInt32;
  error @3 :Text;
  address @4 :Text;
  port @5 :UInt32;
  checkpoints @6 :List(CheckpointFound);
  store @7 :Bool;
  noStore @8 :Text;
}

struct DeviceReport {
  name @0 :Text;
  kind @1 :Text;
  uid @2 :Text;
  pciAddress @3 :Text;
  memoryBytes @4 :UInt64;
  healthy @5 :Bool;
  fault @6 :Text;
}

struct AgentHello {
  name @0 :Text;
  uid @1 :Text;
  bootId @2 :Text;
  address @3 :Text;
  protocol @4 :UInt32;
  version @5 :Text;
  seenEpoch @6 :Epoch;
  devices @7 :List(DeviceReport);
  ranks @8 :List(RankReport);
  clusterId @9 :Text;  # the first cluster that this host obeyed; empty = none yet
}

struct HostReports {
  ranks @0 :List(RankReport);
  prepares @1 :List(PrepareReport);
  devices @2 :List(DeviceReport);
  joins @3 :List(JoinReport);
}

# ---- log files of a rank

struct LogQuery {
  job @0 :UInt64;
  rank @1 :UInt32;
  incarnation @2 :UInt32;  # 0 = the newest that the agent has
  stream @3 :Text;         # "stdout" or "stderr"
  offset @4 :UInt64;       # bytes since the stream's begin
  maxBytes @5 :UInt32;
  tailLines @6 :UInt32;    # if not 0: start that many lines before the end; `offset` is ignored
}

struct LogChunk {
  data @0 :Data;
  nextOffset @1 :UInt64;
  incarnation @2 :UInt32;
  atEnd @3 :Bool;   # that was all there is now
  note @4 :Text;    # for a person: "bytes 100-900 were dropped by the cap"
}

@0xdd144128476b95a7;
# Structs that the journal and the host link both carry: the C++ structs of supervisors/types.h,
# supervisors/job_spec.h and supervisors/host_protocol.h, field by field and in the same order.
#
# Names are the C++ names in camelCase; ids are plain numbers or texts, a Duration is microseconds, a
# Time microseconds since the Unix epoch. A test compares both sides.
# Only add fields, at the end and with the next number, here and in C++; never reuse or retype one.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("regrow::wire");

struct Actor {
  # Who asked.
  who @0 :Text;  # a certificate name or "uid:1000"; empty for automatic decisions
  role @1 :Text;  # operator, viewer, agent, system
}

struct EventRef {
  # Names one event before it has a global sequence number.
  entity @0 :Text;  # its owner, "rank/7/3"
  n @1 :UInt64;  # the n-th event of that owner, from 1; 0 = no cause recorded
}

enum RecoveryScope {
  # What is restarted when a rank is lost: the rank alone (its script rejoins), its replica group,
  # or all ranks of the job in place.
  rank @0;
  group @1;
  job @2;
}

enum StorageKind {
  # Where checkpoints live: one file system that all hosts see, or each host's own disk (which
  # never counts as surviving its host).
  shared @0;
  hostLocal @1;
}

enum StopScope {
  leader @0;
  group @1;
}

enum SuccessRule {
  allRanks @0;
  rankZero @1;
}

enum Rendezvous {
  # Who hosts the rendezvous: rank 0 of the script, or a store that regrow runs beside it.
  rankZero @0;
  store @1;
}

enum FailureClass {
  # Why a rank was lost; each class has its own restart intensity.
  #   program        exit code != 0, or a signal that programs give themselves (SEGV, ABRT ...)
  #   killed         a signal from outside that we did not send
  #   outOfMemory    killed by the kernel's OOM killer
  #   earlyExit      exit 0 while its peers could not finish
  #   hang           no progress within the recipe's time-out
  #   startUp        could not be started, or a rendezvous port was taken
  #   device         its device is faulty
  #   infrastructure its host, agent or shim was lost
  #   preempted      the machine was taken back
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

struct EnvVar {
  name @0 :Text;  # as in the environment
  value @1 :Text;  # may be empty
  source @2 :Text;  # recipe, recipe --set, submitter, account or default; `regrow show` shows it
}

struct DeviceRequest {
  kind @0 :Text;  # "gpu", "tpu", "sim", "cpu", or "any"
  count @1 :UInt32 = 1;  # devices per rank; 0 = none
  memoryBytes @2 :UInt64;  # at least this much per device; 0 = any
}

struct CheckpointRule {
  # When is a checkpoint complete. A step's entry in `directory` matches `entry`, which holds
  # "{step}". Directory entry: every shard file of `shards` (one per rank if it holds "{rank}",
  # else exactly that file) exists and is not empty; `marker`, if named, exists; `manifest`, if
  # named, lists "SIZE NAME" per line and every listed file has that size. File entry: it is not
  # empty.
  directory @0 :Text;  # absolute; empty = the job keeps no checkpoints
  storage @1 :StorageKind;  # who sees the directory
  entry @2 :Text;  # name of one step's entry
  shards @3 :Text;  # "rank_{rank}.pt"; empty = no shard check
  marker @4 :Text;  # "COMPLETE"; empty = no marker
  manifest @5 :Text;  # "sizes.txt"; empty = none
}

struct Intensity {
  # At most `max_restarts` incidents of one class within `window`; max_restarts -1 = no limit,
  # window 0 = ever. `max_without_progress` in JobSpec limits all classes together.
  failureClass @0 :FailureClass;  # what it limits
  maxRestarts @1 :Int32 = 3;  # -1 = no limit
  window @2 :Int64;  # 0 = ever (microseconds)
}

struct Timeouts {
  start @0 :Int64 = 900000000;  # start to first step line; 0 = none (microseconds)
  progress @1 :Int64;  # no progress for this long = hung; 0 = not watched (microseconds)
  stopGrace @2 :Int64 = 10000000;  # stop signal to KILL (microseconds)
  finish @3 :Int64 = 60000000;  # first rank exited 0 to all ranks exited (microseconds)
  host @4 :Int64 = 10000000;  # silence until a host is lost (`host_timeout`) (microseconds)
  maxUnreachable @5 :Int64 = 600000000;  # cap on "its ranks still make progress" (microseconds)
  rejoin @6 :Int64 = 30000000;  # call of a generation to a survivor's joining it (microseconds)
}

struct Backoff {
  initial @0 :Int64 = 1000000;
  # before the second restart without progress; the first is at once (microseconds)
  cap @1 :Int64 = 300000000;  # never longer than this (microseconds)
}

struct LogLimits {
  capBytes @0 :UInt64 = 67108864;  # per stream, rank and incarnation: head + tail together
  segmentBytes @1 :UInt64 = 8388608;  # rotation unit
}

struct JobSpec {
  name @0 :Text;  # for people
  ranks @1 :UInt32 = 1;  # world size
  groups @2 :UInt32 = 1;  # replica groups; `ranks` is a multiple of it
  spares @3 :UInt32;  # hot spare slots
  ranksPerHost @4 :UInt32;  # at most; 0 = as many as devices allow
  devices @5 :DeviceRequest;  # per rank
  interpreter @6 :Text;  # absolute; empty = command[0] is run itself
  command @7 :List(Text);  # argv after the interpreter
  requiresModules @8 :List(Text);  # checked with the interpreter before anything starts
  workingDirectory @9 :Text;  # absolute
  environment @10 :List(EnvVar);  # of every rank
  nofile @11 :UInt64;  # RLIMIT_NOFILE for ranks; 0 = the hard limit
  checkpoint @12 :CheckpointRule;  # where it keeps its state
  recovery @13 :RecoveryScope = job;  # what restarts together
  intensity @14 :List(Intensity);  # one per failure class, all classes present
  maxWithoutProgress @15 :UInt32 = 5;  # incidents in a row without a new checkpoint or higher step
  healthyFor @16 :Int64 = 600000000;
  # running with progress this long forgets incidents (microseconds)
  backoff @17 :Backoff;  # pauses between restarts
  success @18 :SuccessRule;  # when the job counts as done
  timeouts @19 :Timeouts;  # how long to wait for what
  stopSignal @20 :Text;  # without SIG
  stopScope @21 :StopScope;  # who gets the stop signal
  progressPattern @22 :Text;  # RE2 with groups named step and loss, matched per output line
  totalSteps @23 :UInt64;  # for the progress bar; 0 = unknown
  logs @24 :LogLimits;  # caps on what is kept
  uid @25 :UInt32;  # ranks run as this user
  gid @26 :UInt32;  # ranks run as this group
  rendezvous @27 :Rendezvous;  # who hosts the rendezvous
}

struct Epoch {
  # (number, random start id): a controller's term. The first id an agent sees at a number wins.
  number @0 :UInt64;  # rises with every controller start
  startId @1 :UInt64;  # random: tells two of one number apart
}

struct IncarnationKey {
  # Names one process-to-be for ever.
  job @0 :UInt64;  # which job
  rank @1 :UInt32;  # which slot
  incarnation @2 :UInt32;  # never reused
}

struct SpawnCommand {
  # Start one rank. The agent makes the rank's directory first; if it exists already this is a
  # repeat, and the answer is the present state of that incarnation. `spec` has the command,
  # environment, limits and log caps; everything below differs from rank to rank.
  key @0 :IncarnationKey;  # which incarnation
  generation @1 :UInt32;  # job-wide; 0 = never started
  group @2 :UInt32;  # replica group
  worldSize @3 :UInt32 = 1;  # ranks in the generation
  localRank @4 :UInt32;  # among the ranks of its host
  localWorldSize @5 :UInt32 = 1;  # ranks on its host
  groupRank @6 :UInt32;  # index of this host among the job's hosts
  groupWorldSize @7 :UInt32 = 1;  # number of the job's hosts
  devices @8 :List(Text);  # names of its leased devices
  masterAddress @9 :Text;  # where the generation meets
  masterPort @10 :UInt32;  # 0 = not known yet
  resumeStep @11 :Int64 = -1;  # -1 = from the beginning
  resumePath @12 :Text;  # empty = from the beginning
  restartCount @13 :UInt32;  # for TORCHELASTIC_RESTART_COUNT
  store @14 :Bool;  # the master port is that of a store that regrow runs
  rejoins @15 :Bool;  # it meets survivors
}

struct StopCommand {
  # End one incarnation. Polite: the recipe's stop signal to the leader (or group), KILL to
  # everything the rank started after `grace`. `force`: KILL at once. Repeats are harmless; force
  # overrides polite.
  key @0 :IncarnationKey;  # which incarnation
  signal @1 :Text;  # without SIG
  scope @2 :StopScope;  # who gets the signal
  grace @3 :Int64;  # from the stop signal to KILL (microseconds)
  force @4 :Bool;  # KILL at once
  reason @5 :Text;  # a sentence, for the log
}

enum ProcessState {
  # What became of an incarnation, as the agent knows it.
  #   starting      directory made, no exec yet
  #   running       exec done; pid and start_time are valid
  #   exited        the leader ended by exit or signal AND nothing that the rank started is left
  #   neverStarted  the shim could not exec: `message` says why (permission, interpreter, size)
  #   gone          the shim itself was killed; the group was ended; no exit status is known
  #   unknown       this agent never heard of it
  starting @0;
  running @1;
  exited @2;
  neverStarted @3;
  gone @4;
  unknown @5;
}

struct RankReport {
  key @0 :IncarnationKey;  # which incarnation
  state @1 :ProcessState = unknown;  # what became of it
  pid @2 :UInt64;  # of the leader
  startTime @3 :UInt64;  # clock ticks since boot, from /proc/PID/stat
  exitCode @4 :Int32;  # valid if exited and signal == 0
  signal @5 :Int32;  # 0 = ended by exit
  endedByUs @6 :Bool;  # a StopCommand was sent before the leader ended
  forced @7 :Bool;  # KILL had to be used at the deadline
  outOfMemory @8 :Bool;  # the cgroup's oom_kill counter rose, or the kernel log named the pid
  bindFailed @9 :Bool;  # last words say that an address was already in use
  message @10 :Text;  # for a person: exec error, "did not stop within 10 s"
  lastWords @11 :Text;  # end of stderr (stdout if empty), at most 8 KiB, whole lines
  errorLine @12 :Text;  # the line that names the failure ("ValueError: ..."), may be empty
  lastStep @13 :Int64 = -1;  # last step seen in its output; -1 = none
  startedUs @14 :Int64;  # host wall clock, microseconds: exec
  leaderEndedUs @15 :Int64;  # the leader's end
  groupGoneUs @16 :Int64;  # everything that it started is gone
}

struct ProgressReport {
  # Sent at most ten times a second per host for ranks whose output moved, and with every
  # heartbeat.
  key @0 :IncarnationKey;  # which incarnation
  step @1 :Int64 = -1;  # -1 = no step line seen yet
  loss @2 :Float64;  # NaN = unknown
  stepSeconds @3 :Float64;  # smoothed time between steps; 0 = unknown
  outputUs @4 :Int64;  # host wall clock of its last output
  stepUs @5 :Int64;  # host wall clock of its last step line
  stopped @6 :Bool;  # /proc state T: someone SIGSTOPped it
}

struct PrepareCommand {
  # Get ready for a generation on one host: look for checkpoints by the rule, lease a rendezvous
  # port.
  job @0 :UInt64;  # which job
  generation @1 :UInt32;  # job-wide; 0 = never started
  attempt @2 :UInt32;  # rises when a prepare is repeated, e.g. because a port was taken
  worldSize @3 :UInt32 = 1;  # ranks in the generation
  checkpoint @4 :CheckpointRule;  # what a complete checkpoint looks like
  wantPort @5 :Bool;  # rank 0 lives here
  avoidPorts @6 :List(UInt32);  # were taken
  interpreter @7 :Text;  # with `modules`: check that it can import them
  modules @8 :List(Text);  # checked with the interpreter
  environment @9 :List(EnvVar);  # the recipe's: PYTHONPATH decides what can be imported
  wantStore @10 :Bool;  # rank 0 lives here and the rendezvous is a store that the agent runs
  uid @11 :UInt32;  # the store runs as this user
  gid @12 :UInt32;  # and this group
  rejoins @13 :Bool;  # ranks open the store themselves
}

struct CheckpointFound {
  # One candidate found on disk. `shards` lists the ranks whose shard is there and whole.
  step @0 :Int64 = -1;  # from its name
  path @1 :Text;  # absolute
  complete @2 :Bool;  # by the rule
  marker @3 :Bool;  # the marker is there
  shards @4 :List(UInt32);  # ranks whose shard is there and whole
  problem @5 :Text;  # "shards 5/8, marker missing"; empty if complete
}

struct PrepareReport {
  job @0 :UInt64;  # which job
  generation @1 :UInt32;  # job-wide; 0 = never started
  attempt @2 :UInt32;  # rises when a prepare is repeated
  error @3 :Text;  # empty = ready; else why this host cannot run the job
  address @4 :Text;  # where other hosts reach this one
  port @5 :UInt32;  # 0 = none asked for
  checkpoints @6 :List(CheckpointFound);  # newest step first, at most 16
  store @7 :Bool;  # `port` is that of a store which runs; else rank 0 hosts the rendezvous
  noStore @8 :Text;  # why not, if one was wanted
}

struct DeviceReport {
  name @0 :Text;  # unique on its host
  kind @1 :Text;  # "sim", "gpu", "tpu", "cpu"
  uid @2 :Text;  # vendor's unique id; identity (A-1)
  pciAddress @3 :Text;  # empty if it has none
  memoryBytes @4 :UInt64;  # of one device
  healthy @5 :Bool = true;  # no fault known
  fault @6 :Text;  # why not healthy
}

struct AgentHello {
  # First thing an agent says on a new connection.
  name @0 :Text;  # the host's label
  uid @1 :Text;  # random, made once per state directory: the host's identity (A-1)
  bootId @2 :Text;  # changes with a reboot; a new one voids every incarnation
  address @3 :Text;  # for rendezvous
  protocol @4 :UInt32 = 1;  # versions differ by at most one
  version @5 :Text;  # of the program
  seenEpoch @6 :Epoch;  # newest epoch this agent obeyed
  devices @7 :List(DeviceReport);  # all that the host has
  ranks @8 :List(RankReport);  # everything it knows and that was not yet acknowledged as final
  clusterId @9 :Text;  # whose epochs and job numbers these are; empty = none obeyed yet
}

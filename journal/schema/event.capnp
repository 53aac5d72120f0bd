@0xf3d93eb6a44ff5b8;
# What the journal holds: one EventRecord per event, mirrored from supervisors/events.h.
#
# Names are the C++ names in camelCase; the union lists the kinds in the order of the C++ variant. Only
# add: a kind or an envelope field takes the next free number, whichever of the two it is. Nothing is
# ever reused, retyped or taken out; a test compares both sides. docs/journal.md has the bytes.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("regrow::wire");

using import "types.capnp".Actor;
using import "types.capnp".DeviceReport;
using import "types.capnp".Epoch;
using import "types.capnp".EventRef;
using import "types.capnp".FailureClass;
using import "types.capnp".IncarnationKey;
using import "types.capnp".JobSpec;
using import "types.capnp".RankReport;
using import "types.capnp".SpawnCommand;
using import "types.capnp".StopCommand;

struct EventRecord {
  # An event with its place in history.
  seq @0 :UInt64;  # place in the whole journal, from 1, without gaps; equals the key
  entity @1 :Text;  # its only owner: "cluster", "host/h1", "rank/7/3"
  n @2 :UInt64;  # the n-th event of this entity, from 1, without gaps
  causedBy @3 :EventRef;  # absent = no cause recorded
  atUs @4 :Int64;  # the engine's clock, microseconds since the Unix epoch
  monoUs @5 :Int64;  # the controller's monotonic clock when the journal took it, microseconds
  reason @6 :Text;  # why, as a sentence (O-2)
  by @7 :Actor;  # absent = an automatic decision

  event :union {
    controllerStarted @8 :ControllerStarted;
    jobAccepted @9 :JobAccepted;
    jobHandedOver @10 :JobHandedOver;
    devicesGranted @11 :DevicesGranted;
    grantWaiting @12 :GrantWaiting;
    devicesReleased @13 :DevicesReleased;
    leaseCleaned @14 :LeaseCleaned;
    hostNoted @15 :HostNoted;
    deviceNoted @16 :DeviceNoted;
    jobEndNoted @17 :JobEndNoted;
    hostRegistered @18 :HostRegistered;
    hostLinkChanged @19 :HostLinkChanged;
    hostAdminChanged @20 :HostAdminChanged;
    rankAttached @21 :RankAttached;
    rankDoomed @22 :RankDoomed;
    rankDetached @23 :RankDetached;
    unknownRanksSeen @24 :UnknownRanksSeen;
    hostDeviceListed @25 :HostDeviceListed;
    deviceDiscovered @26 :DeviceDiscovered;
    deviceHealthChanged @27 :DeviceHealthChanged;
    jobCreated @28 :JobCreated;
    desiredChanged @29 :DesiredChanged;
    placementWanted @30 :PlacementWanted;
    waitingNoted @31 :WaitingNoted;
    slotsPlaced @32 :SlotsPlaced;
    slotsReleased @33 :SlotsReleased;
    slotCondemned @34 :SlotCondemned;
    incidentOpened @35 :IncidentOpened;
    incidentReclassified @36 :IncidentReclassified;
    incidentJudged @37 :IncidentJudged;
    slotEnded @38 :SlotEnded;
    recoveryPlanned @39 :RecoveryPlanned;
    stageEntered @40 :StageEntered;
    generationStarted @41 :GenerationStarted;
    slotRunning @42 :SlotRunning;
    generationRunning @43 :GenerationRunning;
    progressSampled @44 :ProgressSampled;
    budgetRefilled @45 :BudgetRefilled;
    hostLinkNoted @46 :HostLinkNoted;
    endDecided @47 :EndDecided;
    jobEnded @48 :JobEnded;
    jobParked @49 :JobParked;
    groupStopOrdered @50 :GroupStopOrdered;
    groupStopped @51 :GroupStopped;
    groupStartOrdered @52 :GroupStartOrdered;
    groupUp @53 :GroupUp;
    memberChanged @54 :MemberChanged;
    rankSpawning @55 :RankSpawning;
    rankRunning @56 :RankRunning;
    rankStopping @57 :RankStopping;
    rankExited @58 :RankExited;
    rankLost @59 :RankLost;
    entityQuarantined @60 :EntityQuarantined;
    numbersRaised @61 :NumbersRaised;
    faultInjected @62 :FaultInjected;
    generationFormed @63 :GenerationFormed;
  }
}

struct FaultInjected {
  # Of a host: trouble that an operator makes on purpose.
  what @0 :Text;
}

enum HostLink {
  never @0;
  up @1;
  suspect @2;
  unreachable @3;
  lost @4;
}

enum HostAdmin {
  inService @0;
  cordoned @1;
  draining @2;
}

enum DeviceHealth {
  ok @0;
  unknown @1;
  suspect @2;
  faulty @3;
  resetting @4;
  quarantined @5;
}

enum Desired {
  run @0;
  pause @1;
  hold @2;
  cancel @3;
}

enum Phase {
  queued @0;
  starting @1;
  running @2;
  recovering @3;
  stopping @4;
  completed @5;
  failed @6;
  cancelled @7;
}

enum Stage {
  # What a job that is starting or recovering waits for, in this order.
  none @0;
  stopping @1;
  placing @2;
  backingOff @3;
  preparing @4;
  spawning @5;
  joining @6;
}

enum Rung {
  # The recovery ladder. A job climbs only when the rung below failed or cannot help.
  respawn @0;
  otherDevice @1;
  group @2;
  job @3;
  requeue @4;
  hold @5;
}

enum Process {
  standby @0;
  spawning @1;
  running @2;
  rejoining @3;
  stopping @4;
  exited @5;
  lost @6;
}

struct Placement {
  # Where one rank runs.
  rank @0 :UInt32;  # which slot
  host @1 :Text;  # its name
  devices @2 :List(Text);  # leased to it on that host
}

struct DeviceView {
  name @0 :Text;  # unique on its host
  kind @1 :Text;  # "gpu", "sim", ...
  memoryBytes @2 :UInt64;  # of one device
  usable @3 :Bool;  # may be placed on
  whyNot @4 :Text;  # a sentence if not usable
}

# --- cluster -----------------------------------------------------------------------------------

struct ControllerStarted {
  # A controller began its term. The first one names the cluster.
  clusterId @0 :Text;  # random, made by the first controller
  epoch @1 :Epoch;  # its term
  version @2 :Text;  # of the program
}

struct JobAccepted {
  # A submission is durable. `key` makes a repeat of the same submission answer the same job.
  job @0 :UInt64;  # which job
  key @1 :Text;  # a repeat with it answers the same job
  spec @2 :JobSpec;  # what was asked for
}

struct JobHandedOver {
  # The job's own actor has journaled its spec; the cluster need not keep it.
  job @0 :UInt64;  # which job
}

struct DevicesGranted {
  # Devices are leased to slots of a job: one event for the whole gang. Other leases of these slots
  # end.
  job @0 :UInt64;  # which job
  grant @1 :UInt32;  # number of the job's request; rises
  placements @2 :List(Placement);  # where each slot runs
  dirty @3 :List(UInt32);  # their former leases stay until the host is clean
}

struct GrantWaiting {
  # No device is free for this request now; it stays in line. `reason` of the record says what is
  # missing.
  job @0 :UInt64;  # which job
  grant @1 :UInt32;  # number of the job's request; rises
  ranks @2 :List(UInt32);  # the slots meant
  avoidHosts @3 :List(Text);  # not to be placed here again now
  dirty @4 :List(UInt32);  # of ranks: may still have a process
}

struct DevicesReleased {
  # Slots gave their devices back. A slot in `dirty` may still have a process on an unreachable
  # host; its devices are not leased again until the host has confirmed that nothing is left (D-2).
  job @0 :UInt64;  # which job
  ranks @1 :List(UInt32);  # the slots meant
  dirty @2 :List(UInt32);  # of ranks: may still have a process
}

struct LeaseCleaned {
  job @0 :UInt64;  # which job
  rank @1 :UInt32;  # which slot
  host @2 :Text;  # its name
}

struct HostNoted {
  # What placement may use of a host, as the host last said.
  host @0 :Text;  # its name
  usable @1 :Bool;  # may be placed on
  whyNot @2 :Text;  # a sentence if not usable
}

struct DeviceNoted {
  host @0 :Text;  # its name
  device @1 :DeviceView;  # what placement may use of it
}

struct JobEndNoted {
  job @0 :UInt64;  # which job
  phase @1 :Phase = completed;  # how it ended
}

struct NumbersRaised {
  # Numbers given out are lost with the end of the journal, and agents know them: what comes goes on
  # far above.
  nextJob @0 :UInt64;  # of the next submission
  epoch @1 :UInt64;  # of the term before the next
}

# --- host --------------------------------------------------------------------------------------

struct HostRegistered {
  uid @0 :Text;  # random, made once: the host's identity (A-1)
  address @1 :Text;  # where others reach it
}

struct HostLinkChanged {
  link @0 :HostLink = up;  # how it can be reached
  bootId @1 :Text;  # empty = as before
  address @2 :Text;  # where others reach it
}

struct HostAdminChanged {
  admin @0 :HostAdmin;  # by an operator
}

struct RankAttached {
  # From now until detached this incarnation may have a process on this host.
  key @0 :IncarnationKey;  # which incarnation
}

struct RankDoomed {
  # Given up while the host could not be asked: to be killed when it comes back.
  key @0 :IncarnationKey;  # which incarnation
}

struct RankDetached {
  key @0 :IncarnationKey;  # which incarnation
}

struct UnknownRanksSeen {
  # The agent has processes that this journal knows nothing of. They are shown and never killed.
  keys @0 :List(IncarnationKey);  # as the agent names them
}

struct HostDeviceListed {
  device @0 :Text;  # a device that this host has
}

# --- device ------------------------------------------------------------------------------------

struct DeviceDiscovered {
  report @0 :DeviceReport;  # as the agent saw it
}

struct DeviceHealthChanged {
  health @0 :DeviceHealth;  # from now on
  fault @1 :Text;  # a sentence if not ok
}

# --- job ---------------------------------------------------------------------------------------

struct JobCreated {
  spec @0 :JobSpec;  # what was asked for
  submittedBy @1 :Text;  # who asked for it, as in `by`
}

struct DesiredChanged {
  desired @0 :Desired;  # what the operator wants now
}

struct PlacementWanted {
  # The job asks for devices for these slots; grant numbers rise.
  grant @0 :UInt32;  # number of the job's request; rises
  ranks @1 :List(UInt32);  # the slots meant
  avoidHosts @2 :List(Text);  # not to be placed here again now
  dirty @3 :List(UInt32);  # lost: their old devices may still have a process
}

struct WaitingNoted {
  # Still in line for this grant; the record's reason says what is missing and who holds it.
  grant @0 :UInt32;  # number of the job's request; rises
}

struct SlotsPlaced {
  grant @0 :UInt32;  # number of the job's request; rises
  placements @1 :List(Placement);  # where each slot runs
}

struct SlotsReleased {
  grant @0 :UInt32;  # number of the job's request; rises
}

struct SlotCondemned {
  # A device of this slot cannot be used any more: it must start on others.
  rank @0 :UInt32;  # which slot
}

struct IncidentOpened {
  # One loss that nobody asked for and everything that follows from it until a generation runs
  # again.
  incident @0 :UInt32;  # number within the job
  rank @1 :UInt32;  # which slot
  incarnation @2 :UInt32;  # which start of the slot
  failureClass @3 :FailureClass;  # why, by class
  signature @4 :Text;  # "exit 1: ValueError: bad batch"
  peerError @5 :Bool;  # its own words blame the loss of a peer
  step @6 :Int64 = -1;  # the job's last step before it
  exitCode @7 :Int32;  # valid if signal is 0
  signal @8 :Int32;  # 0 = ended by exit
  lastWords @9 :Text;  # end of its output, at most 8 KiB
  charged @10 :Bool = true;  # spends a unit of its class's budget
  rankStep @11 :Int64 = -1;  # the last step that the rank itself showed; -1 = none
}

struct IncidentReclassified {
  # A later loss turned out to be the root of an open incident: its first report only echoed a
  # peer's end.
  incident @0 :UInt32;  # number within the job
  rank @1 :UInt32;  # which slot
  incarnation @2 :UInt32;  # which start of the slot
  failureClass @3 :FailureClass;  # why, by class
  signature @4 :Text;  # what makes two failures the same
  exitCode @5 :Int32;  # valid if signal is 0
  signal @6 :Int32;  # 0 = ended by exit
  lastWords @7 :Text;  # end of its output, at most 8 KiB
  charged @8 :Bool = true;  # spends a unit of its class's budget
  rankStep @9 :Int64 = -1;  # the last step that the rank itself showed; -1 = none
}

struct IncidentJudged {
  # All evidence is in (every affected rank has ended): what the incident counts as.
  incident @0 :UInt32;  # number within the job
  step @1 :Int64 = -1;  # the job's last step before it
  progressed @2 :Bool;  # a higher step than at any incident before
}

struct SlotEnded {
  # The slot's current incarnation has ended for good (or is given up: lost).
  rank @0 :UInt32;  # which slot
  incarnation @1 :UInt32;  # which start of the slot
  succeeded @2 :Bool;  # exit 0 that nobody asked for
  lost @3 :Bool;  # no process report; its host is out of reach or rebooted
  endedByUs @4 :Bool;  # a stop was sent before
  exitCode @5 :Int32;  # valid if signal is 0
  signal @6 :Int32;  # 0 = ended by exit
  message @7 :Text;  # for a person
}

struct RecoveryPlanned {
  # Work on the next generation begins: end `stop`, then start `start` anew.
  generation @0 :UInt32;  # job-wide; 0 = never started
  incident @1 :UInt32;  # 0 = first start, resume by an operator
  rung @2 :Rung = job;  # how far up the ladder
  stop @3 :List(UInt32);  # slots to end
  start @4 :List(UInt32);  # slots to start anew
  replace @5 :List(UInt32);  # of `start`: need other devices than before
  avoidHosts @6 :List(Text);  # not to be placed here again now
  force @7 :Bool;  # stop without grace
}

struct StageEntered {
  stage @0 :Stage;  # what is waited for
  prepareAttempt @1 :UInt32;  # of stage preparing
  prepareHosts @2 :List(Text);  # who is asked
  avoidPorts @3 :List(UInt32);  # were taken
  notBefore @4 :Int64;  # of stage backing_off (microseconds)
}

struct GenerationStarted {
  # Where a generation resumes and meets; incarnations of its `start` slots rise by one with it.
  generation @0 :UInt32;  # job-wide; 0 = never started
  resumeStep @1 :Int64 = -1;  # -1 = from the beginning
  resumePath @2 :Text;  # empty = from the beginning
  masterAddress @3 :Text;  # where the generation meets
  masterPort @4 :UInt32;  # 0 = not known yet
  rejected @5 :List(Text);  # checkpoints not chosen, and why
  store @6 :Bool;  # the generation meets in a store that regrow runs
  joins @7 :Bool;  # survivors belong to it: they may have a newer state
}

struct GenerationFormed {
  # Every rank has joined, survivors and new ones, and knows from which state the generation goes on.
  generation @0 :UInt32;  # job-wide; 0 = never started
  source @1 :Int32 = -1;  # rank whose state the others take over; -1 = from a checkpoint
  sourceStep @2 :Int64 = -1;  # last step of that state
}

struct SlotRunning {
  rank @0 :UInt32;  # which slot
  incarnation @1 :UInt32;  # which start of the slot
}

struct GenerationRunning {
  generation @0 :UInt32;  # job-wide; 0 = never started
}

struct ProgressSampled {
  # Journaled every 30 s and when a generation ends; finer figures are not events.
  step @0 :Int64 = -1;  # -1 = none yet
  loss @1 :Float64;  # NaN = unknown
  medianStepSeconds @2 :Float64;  # over all ranks; 0 = unknown
  slowestRank @3 :UInt32;  # whose steps take longest
}

struct BudgetRefilled {
  # It ran healthily for long enough: past incidents no longer count.
  forgotten @0 :UInt32;  # incidents that counted until now
}

struct HostLinkNoted {
  # How a host of this job can be reached, as the host said.
  host @0 :Text;  # its name
  link @1 :HostLink = up;  # how it can be reached
  since @2 :Int64;  # when that began (microseconds)
}

struct EndDecided {
  # The job is on its way to this end; its ranks are being stopped.
  phase @0 :Phase = failed;  # where it is going
  stop @1 :List(UInt32);  # slots to end
}

struct JobEnded {
  phase @0 :Phase = completed;  # how it ended
}

struct JobParked {
  # Every rank is stopped and the devices are given back; it stays so until an operator resumes it.
  desired @0 :Desired = pause;  # why it is parked: pause or hold
}

# --- group -------------------------------------------------------------------------------------

struct GroupStopOrdered {
  generation @0 :UInt32;  # job-wide; 0 = never started
  ranks @1 :List(UInt32);  # the slots meant
  how @2 :StopCommand;  # key unused
}

struct GroupStopped {
  generation @0 :UInt32;  # job-wide; 0 = never started
}

struct GroupStartOrdered {
  generation @0 :UInt32;  # job-wide; 0 = never started
  commands @1 :List(SpawnCommand);  # one per rank
  hosts @2 :List(Text);  # of each command
}

struct GroupUp {
  generation @0 :UInt32;  # job-wide; 0 = never started
}

struct MemberChanged {
  rank @0 :UInt32;  # which slot
  incarnation @1 :UInt32;  # which start of the slot
  process @2 :Process;  # what it does now
}

# --- rank --------------------------------------------------------------------------------------

struct RankSpawning {
  host @0 :Text;  # its name
  command @1 :SpawnCommand;  # what the agent is told
}

struct RankRunning {
  incarnation @0 :UInt32;  # which start of the slot
  pid @1 :UInt64;  # of the leader
  startTime @2 :UInt64;  # clock ticks since boot, from /proc/PID/stat
  startedUs @3 :Int64;  # host wall clock, microseconds: exec
}

struct RankStopping {
  incarnation @0 :UInt32;  # which start of the slot
  command @1 :StopCommand;  # what the agent is told
}

struct RankExited {
  incarnation @0 :UInt32;  # which start of the slot
  report @1 :RankReport;  # as the agent knows it
}

struct RankLost {
  incarnation @0 :UInt32;  # which start of the slot
}

# --- any ---------------------------------------------------------------------------------------

struct EntityQuarantined {
  # A check in the decision code failed for this entity. It is left as it is until an operator
  # looks.
  what @0 :Text;  # the check that failed
}

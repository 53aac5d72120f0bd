"""tools/bench recovery: kill -9 of one of four ranks until all four have finished the next step.

The unmodified recipes/examples/ddp_charlm/train.py runs under regrow, then under torchrun (0.1 s
poll), on this machine, one after the other. Each run kills a rank at a random moment and takes
apart what follows, as the ranks' own time stamps (BENCH_EVENTS), the journal and /proc tell it:

    detect      kill → its end is known        end_others  → nothing is left of the old ranks
    decide      → the plan is journaled        spawn       → exec of the last new rank
    python      → first line of the script     import      → torch is imported
    rendezvous  → all ranks met                load        → checkpoint loaded, DDP ready
    first_step  → all four finished a step

A part is the time from the end of the part before it, for whichever rank is last. Prints `name
value unit`; lines that start with # are notes.
"""

import json
import math
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dev_cluster import ROOT, ClusterError, DevCluster, disk_directory, find_binary
from kept_process import PYTHON, KeptProcess, is_alive, last_lines, start_time
from recoveries import recoveries_of

EXAMPLE = ROOT / "recipes/examples/ddp_charlm"
TORCHRUN = ROOT / "tests/peers/torchrun_launch.py"
RANKS = 4
CHECKPOINT_EVERY = 50
STEPS = 1_000_000  # never reached
PARTS = (
    "detect",
    "decide",
    "end_others",
    "spawn",
    "python",
    "import",
    "rendezvous",
    "load",
    "first_step",
)
PHASE_OF_PART = {
    "python": "script",
    "import": "imported",
    "rendezvous": "joined",
    "load": "loaded",
    "first_step": "step",
}


class PhaseLog:
    """What the ranks say about themselves, read as it grows. A process is known as (rank, pid)."""

    def __init__(self, directory):
        self.directory = directory
        self.offsets = {}
        self.rest = {}
        self.pids = {}  # rank -> the process that did its newest step
        self.first = {}  # process -> {phase: when it was first reached}
        self.steps = {}  # process -> its newest step
        self.resumed = {}  # process -> step it resumed from
        self.last_step_at = {}
        self.step_times = []  # of rank 0

    def read(self):
        for rank in range(RANKS):
            try:
                with open(self.directory / f"phases.rank{rank}", "rb") as log:
                    log.seek(self.offsets.get(rank, 0))
                    new = log.read()
            except FileNotFoundError:
                continue
            self.offsets[rank] = self.offsets.get(rank, 0) + len(new)
            *lines, self.rest[rank] = (self.rest.get(rank, b"") + new).split(b"\n")
            for line in lines:
                self.take(json.loads(line))

    def take(self, entry):
        rank, phase, at = entry["rank"], entry["phase"], entry["t"]
        process = (rank, entry["pid"])
        self.first.setdefault(process, {}).setdefault(phase, at)
        if phase == "loaded":
            self.resumed[process] = entry["step"]
        elif phase == "step":
            if rank == 0 and process in self.last_step_at:
                self.step_times.append(at - self.last_step_at[process])
            self.last_step_at[process] = at
            self.steps[process] = entry["step"]
            self.pids[rank] = entry["pid"]


class UnderRegrow:
    name = "restart"

    def __init__(self, directory, phases, bin_dir):
        self.cluster = DevCluster(directory, hosts=RANKS, binary=find_binary(bin_dir))
        self.directory = directory
        self.phases = phases
        self.job = None

    def start(self):
        self.cluster.start()
        self.job = self.cluster.submit(
            EXAMPLE / "recipe.yaml",
            {
                "command": ["train.py", "--steps", STEPS, "--checkpoint-every", CHECKPOINT_EVERY],
                "checkpoint.directory": str(self.directory / "checkpoints"),
                "env.BENCH_EVENTS": str(self.phases),
                "restarts.killed": "unlimited",
            },
        )

    def stop(self):
        self.cluster.stop()

    def check(self):
        self.cluster.check_alive()

    def poll(self):
        pass

    def instants(self, killed):
        """What the journal says about the recovery from this kill."""
        found = [
            r for r in recoveries_of(self.cluster.events(f"job/{self.job}")) if r.opened > killed
        ]
        if not found or found[-1].spawned is None:
            raise ClusterError("the journal tells of no recovery from the last kill")
        it = found[-1]
        return {
            "detect": it.detected,
            "decide": it.decided,
            "end_others": it.gone,
            "spawn": it.spawned,
        }


class UnderTorchrun:
    name = "torchrun"

    def __init__(self, directory, phases):
        self.directory = directory
        self.phases = phases
        self.log = directory / "torchrun.log"
        self.process = None
        self.seen = 0  # bytes of the log
        self.detected = None

    def start(self):
        command = [PYTHON, TORCHRUN, "--standalone", f"--nproc_per_node={RANKS}"]
        command += ["--max_restarts=1000", "--monitor_interval=0.1", EXAMPLE / "train.py"]
        command += ["--steps", STEPS, "--checkpoint-every", CHECKPOINT_EVERY]
        command += ["--checkpoint-dir", self.directory / "checkpoints"]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "OMP_NUM_THREADS": "1",
            "BENCH_EVENTS": str(self.phases),
        }
        self.process = KeptProcess(command, self.log, 5, environment, cwd=self.directory)

    def stop(self):
        if self.process:
            self.process.stop()

    def check(self):
        if not self.process.is_alive():
            raise ClusterError(f"torchrun ended by itself; its last words:\n{last_lines(self.log)}")

    def poll(self):
        """Looks for the line in which torchrun's agent says that a rank is gone."""
        with open(self.log, "rb") as log:
            log.seek(self.seen)
            new = log.read()
        self.seen += len(new)
        if self.detected is None and (b"failed (exitcode" in new or b"closing signal" in new):
            self.detected = time.time()

    def instants(self, killed):
        detected, self.detected = self.detected, None
        return {"detect": detected} if detected and detected > killed else {}


def wait_for_training(subject, phases, steps, timeout=60):
    """Until every rank has done this many steps more."""
    deadline = time.monotonic() + timeout
    goal = {}
    while True:
        phases.read()
        for rank, pid in phases.pids.items():
            goal.setdefault(rank, phases.steps[rank, pid] + steps)
        if len(goal) == RANKS and all(
            phases.steps[r, p] >= goal[r] for r, p in phases.pids.items()
        ):
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"under {subject.name}: no training within {timeout} s")
        subject.check()
        time.sleep(0.02)


def kill_one(subject, phases, victim):
    """Kills one rank, waits until all have done a step again: (instants, kill, steps lost)."""
    subject.poll()
    phases.read()
    old = dict(phases.pids)
    started = {}  # pid -> when that process began
    gone = None
    killed = time.time()
    os.kill(old[victim], signal.SIGKILL)
    while any(phases.pids[rank] == old[rank] for rank in old):
        if time.time() > killed + 60:
            raise ClusterError(f"under {subject.name}: no training within 60 s of a kill")
        subject.poll()
        phases.read()
        if gone is None and not any(is_alive(pid) for pid in old.values()):
            gone = time.time()
        for _, pid in phases.first.keys() - old.items() - started.keys():
            started.setdefault(pid, start_time(pid))
        time.sleep(0.002)
    new = phases.pids.items()
    instants = {"end_others": gone, "spawn": max(started[pid] or 0 for _, pid in new)}
    instants.update(subject.instants(killed))
    for part, phase in PHASE_OF_PART.items():
        instants[part] = max(phases.first[process][phase] for process in new)
    reached = max(phases.steps[process] for process in old.items())
    return instants, killed, reached - min(phases.resumed[process] for process in new)


class Samples:
    """Values by name, in the order they were first met."""

    def __init__(self):
        self.values = {}

    def add(self, name, value, unit):
        self.values.setdefault((name, unit), []).append(value)

    def add_recovery(self, name, instants, killed, lost):
        self.add(f"{name}_kill_to_step", instants["first_step"] - killed, "s")
        before = killed
        for part in PARTS:
            if instants.get(part):
                self.add(f"{name}_part_{part}", (instants[part] - before) * 1e3, "ms")
                before = instants[part]
        if instants.get("end_others"):
            self.add(
                f"{name}_gone_to_exec", (instants["spawn"] - instants["end_others"]) * 1e3, "ms"
            )
        self.add(f"{name}_steps_lost", lost, "steps")

    def median(self, name):
        return next((statistics.median(v) for (n, _), v in self.values.items() if n == name), None)

    def print(self):
        for (name, unit), values in self.values.items():
            values = sorted(values)
            digits = 3 if unit == "s" else 1
            high = values[math.ceil(len(values) * 0.95) - 1]
            for what, value in (
                ("p50", statistics.median(values)),
                ("p95", high),
                ("max", values[-1]),
            ):
                print(f"{name}_{what} {value:.{digits}f} {unit}")
        sys.stdout.flush()


def peak_memory_mb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def bench(subject, phases, runs, samples, dice):
    began = time.time()
    try:
        subject.start()
        wait_for_training(subject, phases, 1)
        cold = max(first["step"] for first in phases.first.values()) - began
        for run in range(runs):
            wait_for_training(subject, phases, CHECKPOINT_EVERY + 2)  # a new checkpoint is progress
            time.sleep(dice.random())  # anywhere between two checkpoints, and in the poll period
            recovery = kill_one(subject, phases, run % RANKS)
            samples.add_recovery(subject.name, *recovery)
            print(
                f"# {subject.name} run {run + 1}: {recovery[0]['first_step'] - recovery[1]:.3f} s",
                flush=True,
            )
        memory = max(peak_memory_mb(pid) for pid in phases.pids.values())
    finally:
        subject.stop()
    print(f"{subject.name}_cold_start_to_step {cold:.3f} s")
    print(f"{subject.name}_step_p50 {statistics.median(phases.step_times) * 1e3:.1f} ms")
    print(f"{subject.name}_rank_memory_max {memory:.0f} MB")


def run(options):
    dice = random.Random(options.seed)
    runs = options.runs or (3 if options.quick else 20)
    top = Path(tempfile.mkdtemp(prefix="rgb-", dir=disk_directory()))
    print(
        f"# {RANKS} ranks, {runs} runs each, {os.cpu_count()} cores, state and checkpoints in {top}"
    )
    load = os.getloadavg()[0]
    if load > 1:
        # Autogroups share the CPU by session: our ranks have one each, torchrun's one in all.
        print(f"# the load is {load:.1f}: other work slows both halves down, and not equally")
    samples = Samples()
    try:
        for kind in (UnderRegrow, UnderTorchrun):
            if options.only and options.only != kind.name:
                continue
            home = top / kind.name
            phases = home / "phases"
            phases.mkdir(parents=True)
            more = (options.bin_dir,) if kind is UnderRegrow else ()
            bench(kind(home, phases, *more), PhaseLog(phases), runs, samples, dice)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    samples.print()
    ours, theirs = samples.median("restart_kill_to_step"), samples.median("torchrun_kill_to_step")
    if ours and theirs:
        print(f"restart_to_torchrun {ours / theirs:.2f} ratio")
    return 0

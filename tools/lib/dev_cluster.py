"""An embedded cluster (`regrow dev`) for scripts: started, asked, and always taken down.

    with DevCluster(directory, hosts=4) as cluster:
        job = cluster.submit("recipe.yaml", {"ranks": 4})
        cluster.wait_for_end(job, timeout=60)

Used by tools/demo, tools/bench and the system tests. What these assume of the command line and of
the files under the state directory stands here and nowhere else. Standard library only; one
thread.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kept_process import KeptProcess, is_alive, last_lines

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("completed", "failed", "cancelled")  # phases a job does not leave


class ClusterError(Exception):
    """Something did not go as it should; the text is for a person."""


class Unreachable(ClusterError):
    """The command ended with 3: no controller answered."""


def find_binary(directory=None):
    """The regrow command: from this directory or $REGROW_BIN_DIR, else the newest build here."""
    directory = directory or os.environ.get("REGROW_BIN_DIR")
    if directory:
        candidates = [Path(directory).absolute() / "regrow"]
    else:
        candidates = [ROOT / "build" / preset / "bin/regrow" for preset in ("release", "dev")]
    found = [path for path in candidates if os.access(path, os.X_OK)]
    if not found:
        tried = " or ".join(str(path) for path in candidates)
        raise ClusterError(
            f"no regrow at {tried}: build it with tools/quickstart, or set REGROW_BIN_DIR"
        )
    return max(found, key=lambda path: path.stat().st_mtime)


@dataclass(frozen=True)
class RankView:
    """One row of `regrow ranks JOB`."""

    rank: int
    pid: int
    host: str
    incarnation: int
    generation: int
    step: int
    process: str


@dataclass(frozen=True)
class JobView:
    """One row of `regrow jobs`."""

    job: int
    name: str
    phase: str
    desired: str
    step: int
    generation: int
    loss: float  # NaN = not known
    reason: str


@dataclass(frozen=True)
class Event:
    """One line of `regrow events`; `fields` as in the struct `kind` of supervisors/events.h."""

    seq: int
    time: float  # seconds since the Unix epoch
    entity: str
    kind: str
    reason: str
    fields: dict
    by: str = ""  # who asked; empty for automatic decisions


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


class DevCluster:
    def __init__(
        self, directory, hosts=4, devices_per_host=2, arguments=(), environment=None, binary=None
    ):
        self.directory = Path(directory).absolute()
        self.hosts = hosts
        self.binary = Path(binary) if binary else find_binary()
        self.state = self.directory / "state"
        self.log = self.directory / "dev.log"
        self.environment = dict(os.environ if environment is None else environment)
        self.dev_arguments = [
            "--hosts", str(hosts), "--devices-per-host", str(devices_per_host), *arguments
        ]  # fmt: skip
        self.process = None

    # --- what is assumed of the command line ----------------------------------------------------

    def reach(self):
        """How a command finds this cluster and no other: (arguments, environment)."""
        return [], {"REGROW_CLUSTER": str(self.state)}

    def controller_pid(self):
        return int((self.state / "controller.pid").read_text())

    def agent_pid(self, host):
        return int((self.state / "hosts" / host / "agent.pid").read_text())

    def jobs(self):
        return [
            JobView(
                job=int(row["id"]),
                name=row.get("name", ""),
                phase=row["phase"],
                desired=row.get("desired", "run"),
                step=int(row.get("step", -1)),
                generation=int(row.get("generation", 0)),
                loss=float("nan" if row.get("loss") is None else row["loss"]),
                reason=row.get("reason", ""),
            )
            for row in self.json("jobs", "--all")
        ]

    def ranks(self, job):
        return [
            RankView(
                rank=int(row["rank"]),
                pid=int(row.get("pid", 0)),
                host=row.get("host", ""),
                incarnation=int(row.get("incarnation", 0)),
                generation=int(row.get("generation", 0)),
                step=int(row.get("step", -1)),
                process=row.get("process", ""),
            )
            for row in self.json("ranks", str(job))
        ]

    def events(self, entity=""):
        """The events of an entity ("job/7") and all below it, oldest first."""
        answer = self.run("events", *([entity] if entity else []), "-o", "json")
        found = []
        for line in answer.out.splitlines():
            row = json.loads(line)
            if "seq" in row:
                found.append(
                    Event(
                        seq=int(row["seq"]),
                        time=int(row["time_us"]) / 1e6,
                        entity=row["entity"],
                        kind="".join(word.capitalize() for word in row["kind"].split("_")),
                        reason=row.get("reason", ""),
                        fields=row.get("fields", {}),
                        by=row.get("by", ""),
                    )
                )
        return found

    def ready_hosts(self):
        return [row for row in self.json("hosts") if row.get("link") == "up"]

    def submit(self, recipe, settings=None):
        """Submits a recipe file, with `--set` for each setting. Returns the job's number."""
        return int(self.json("submit", str(recipe), *as_set_arguments(settings))["job"])

    # --- asking ---------------------------------------------------------------------------------

    def command(self, *arguments):
        """argv and environment of a command on this cluster, for callers that start it."""
        extra, variables = self.reach()
        return [str(self.binary), *map(str, arguments), *extra], {**self.environment, **variables}

    def run(self, *arguments, check=True, timeout=30):
        """Runs one command. With `check`, any exit code but 0 is an error that quotes stderr."""
        argv, environment = self.command(*arguments)
        try:
            done = subprocess.run(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"`{' '.join(argv)}` gave no answer within {timeout} s") from error
        answer = Answer(done.returncode, text_of(done.stdout), text_of(done.stderr))
        if check and answer.code != 0:
            kind = Unreachable if answer.code == 3 else ClusterError
            raise kind(f"`{' '.join(argv)}` ended with {answer.code}: {answer.err.strip()}")
        return answer

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "-o", "json").out)

    def job(self, job):
        for view in self.jobs():
            if view.job == job:
                return view
        raise ClusterError(f"job {job} is not in the list of jobs")

    def wait_for(self, what, condition, timeout=30, poll=0.05):
        """Waits until condition() is true, returns its value. No controller means "not yet"."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = condition()
            except Unreachable:
                value = None
            if value:
                return value
            self.check_alive()
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout} s in vain: {what}")
            time.sleep(poll)

    def wait_for_end(self, job, timeout=60):
        """Waits until a job has ended, well or badly; returns its last view."""

        def ended():
            view = self.job(job)
            return view if view.phase in ENDED else None

        return self.wait_for(f"job {job} to end", ended, timeout)

    def wait_for_step(self, job, step, timeout=60):
        """Waits until all ranks of the job have done `step`; returns them."""

        def reached():
            ranks = self.ranks(job)
            return ranks if ranks and all(r.step >= step and r.pid for r in ranks) else None

        return self.wait_for(f"all ranks of job {job} to finish step {step}", reached, timeout)

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def start(self, timeout=20):
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [self.binary, "dev", *self.dev_arguments, "--state-dir", self.state]
        self.process = KeptProcess(command, self.log, environment=self.environment)
        self.wait_for(
            f"{self.hosts} hosts to be up", lambda: len(self.ready_hosts()) >= self.hosts, timeout
        )
        return self

    def check_alive(self):
        if not self.process.is_alive():
            raise ClusterError(
                f"`regrow dev` ended by itself; its last words:\n{self.last_words()}"
            )

    def last_words(self):
        return last_lines(self.log)

    def stop(self):
        """Ctrl-C for the cluster, then the axe. Returns what Ctrl-C alone had left behind."""
        process, self.process = self.process, None
        return process.stop() if process else []

    def kill_controller(self):
        """kill -9. Returns the pid it had."""
        pid = self.controller_pid()
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_new_controller(self, old_pid, timeout=20):
        """Waits until a controller with another pid answers; returns its pid."""

        def back():
            try:
                pid = self.controller_pid()
            except (OSError, ValueError):
                return None
            return pid if pid != old_pid and is_alive(pid) and self.jobs() is not None else None

        return self.wait_for("a new controller to answer", back, timeout)


def as_set_arguments(settings):
    arguments = []
    for key, value in (settings or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        arguments += ["--set", f"{key}={text}"]
    return arguments


def text_of(raw):
    return raw.decode("utf-8", "replace")


def disk_directory():
    """A directory on a real disk: in memory, fsync costs nothing and shows nothing."""
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split()
            mounts.append((fields[4], fields[fields.index("-") + 1]))
    for candidate in (os.environ.get("TMPDIR"), "/var/tmp", str(ROOT / "build"), "/tmp"):
        if not candidate or not os.access(candidate, os.W_OK):
            continue
        path = os.path.realpath(candidate)
        inside = [m for m in mounts if m[0] == "/" or path == m[0] or path.startswith(m[0] + "/")]
        kind = max(inside, key=lambda m: len(m[0]))[1] if inside else ""
        if kind not in ("tmpfs", "ramfs"):
            return path
    print(
        "note: no disk to write to was found, using memory; fsync is not measured", file=sys.stderr
    )
    return "/tmp"

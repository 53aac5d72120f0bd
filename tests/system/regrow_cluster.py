"""For system tests: an embedded cluster per test class, stub ranks, and nothing left behind.

    class Restart(ClusterTest):
        def test_a_killed_rank_comes_back(self):
            job = self.submit(self.stub_recipe(ranks=2))
            old = self.cluster.wait_for_step(job, 3)
            os.kill(old[1].pid, signal.SIGKILL)
            self.wait_for_generation(job, 2)

The binary comes from $REGROW_BIN_DIR, as ctest sets it. How a cluster is started, asked and ended
is tools/lib/dev_cluster.py, shared with the demo and the benchmarks.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from dev_cluster import ENDED, ClusterError, DevCluster, as_set_arguments, find_binary  # noqa: E402, F401
from kept_process import PYTHON, is_alive, start_ticks  # noqa: E402, F401
from recoveries import rank_of, recoveries_of  # noqa: E402, F401

STUB = Path(__file__).resolve().with_name("stub_rank.py")
EXAMPLE = ROOT / "recipes/examples/ddp_charlm"
STEP_PATTERN = "^step (?P<step>[0-9]+) loss (?P<loss>[-+.0-9a-z]+)"


def require_torch():
    """For setUpModule: skips the module where the distribution has no PyTorch for its Python."""
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        raise unittest.SkipTest(f"{PYTHON} has no module torch (package python3-torch)")


class ClusterTest(unittest.TestCase):
    """One cluster for the tests of a class. Each test has a directory of its own, self.dir."""

    HOSTS = 4
    DEVICES = 2  # per host
    DEV_ARGUMENTS = ()
    ENVIRONMENT = None  # of `regrow dev` and of the commands; None = ours

    @classmethod
    def setUpClass(cls):
        cls.top = Path(tempfile.mkdtemp(prefix="regrow-"))  # short: sockets have long paths
        cls.addClassCleanup(shutil.rmtree, cls.top, ignore_errors=True)
        cls.cluster = DevCluster(
            cls.top, cls.HOSTS, cls.DEVICES, cls.DEV_ARGUMENTS, environment=cls.ENVIRONMENT
        )
        cls.addClassCleanup(cls.stop_cluster)
        cls.cluster.start()

    @classmethod
    def stop_cluster(cls):
        left = cls.cluster.stop()
        if left:
            raise AssertionError("Ctrl-C left processes behind:\n" + "\n".join(left))

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="t", dir=self.top))
        self.orders = self.dir / "orders"
        self.orders.mkdir()
        self.submitted = []
        self.addCleanup(self.cancel_what_runs)

    def run(self, result=None):
        """As unittest does, and tells what the cluster did if the test failed."""
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            self.tell_what_happened()
        return result

    def tell_what_happened(self):
        print(f"--- {self.id()}: last words of the cluster", file=sys.stderr)
        print(self.cluster.last_words(), file=sys.stderr)
        for job in getattr(self, "submitted", []):
            try:
                for event in self.cluster.events(f"job/{job}")[-30:]:
                    print(
                        f"{event.time:.3f} {event.entity} {event.kind}: {event.reason}",
                        file=sys.stderr,
                    )
            except ClusterError as error:
                print(f"no events of job {job}: {error}", file=sys.stderr)

    def cancel_what_runs(self):
        """So that a test's jobs do not hold devices which the next test needs."""
        for job in self.submitted:
            try:
                if self.cluster.job(job).phase not in ENDED:
                    self.cluster.run("cancel", str(job), check=False)
                    self.cluster.wait_for_end(job, 20)
            except ClusterError as error:
                print(f"while cleaning up: {error}", file=sys.stderr)

    # --- recipes --------------------------------------------------------------------------------

    def write_recipe(self, name="recipe", **keys):
        """A recipe file with these top-level keys. JSON is YAML."""
        recipe = {"name": name, "ranks": 1, "devices": {"count": 0}, **keys}
        path = self.dir / f"{name}.yaml"
        path.write_text(json.dumps(recipe, indent=2) + "\n")
        return path

    def write_script(self, text, name="script.py"):
        path = self.dir / name
        path.write_text(text)
        return path

    def script_recipe(self, text, **keys):
        """Ranks that run this Python text."""
        script = self.write_script(text)
        return self.write_recipe(**{"interpreter": PYTHON, "command": [str(script)], **keys})

    def stub_recipe(self, *arguments, **keys):
        """Ranks that run stub_rank.py with these arguments and checkpoints in self.dir."""
        defaults = {
            "interpreter": PYTHON,
            "command": [str(STUB), "--orders", str(self.orders), *map(str, arguments)],
            "progress": {"pattern": STEP_PATTERN},
            "checkpoint": {
                "directory": str(self.dir / "checkpoints"),
                "shards": "rank_{rank}.pt",
                "marker": "COMPLETE",
                "manifest": "COMPLETE",
            },
            "timeouts": {"stop_grace": "2s"},
            "restarts": {"backoff": {"initial": "0s"}},
        }
        return self.write_recipe(**{**defaults, **keys})

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, recipe, settings=None):
        job = self.cluster.submit(recipe, settings)
        self.submitted.append(job)
        return job

    def order(self, rank, text):
        """What a stub rank shall do at its next step."""
        hidden = self.orders / f".{rank}"
        hidden.write_text(text)
        hidden.rename(self.orders / f"rank_{rank}")

    def events(self, job, kind=None):
        found = self.cluster.events(f"job/{job}")
        return [event for event in found if kind is None or event.kind == kind]

    def wait_for_event(self, job, kind, count=1, timeout=20):
        """Waits until the job has this many events of a kind; returns them."""

        def seen():
            found = self.events(job, kind)
            return found if len(found) >= count else None

        return self.cluster.wait_for(f"{count} × {kind} of job {job}", seen, timeout)

    def wait_for_generation(self, job, generation, timeout=30):
        """Waits until all ranks of this generation (or a later one) run; returns them."""

        def running():
            if not any(
                int(e.fields["generation"]) >= generation
                for e in self.events(job, "GenerationRunning")
            ):
                return None
            ranks = self.cluster.ranks(job)
            good = ranks and all(
                r.generation >= generation and r.process == "running" for r in ranks
            )
            return ranks if good else None

        return self.cluster.wait_for(f"generation {generation} of job {job}", running, timeout)

    def wait_for_file(self, path, timeout=20):
        return self.cluster.wait_for(f"{path} to appear", path.exists, timeout, poll=0.02)

    def exits(self, job):
        """rank -> its exit reports (RankReport), oldest first."""
        found = {}
        for event in self.events(job, "RankExited"):
            found.setdefault(rank_of(event), []).append(event.fields["report"])
        return found

    def assert_ended(self, job, phase, timeout=30):
        view = self.cluster.wait_for_end(job, timeout)
        self.assertEqual(view.phase, phase, view.reason)
        return view

    def assert_all_gone(self, pids, timeout=5):
        deadline = time.monotonic() + timeout
        while any(is_alive(pid) for pid in pids):
            self.assertLess(time.monotonic(), deadline, "processes are left")
            time.sleep(0.02)

    def assert_same_processes(self, before, after):
        """No rank was restarted: pids and incarnations are the same."""
        self.assertEqual(
            [(r.rank, r.pid, r.incarnation) for r in before],
            [(r.rank, r.pid, r.incarnation) for r in after],
        )


def identities(ranks):
    """pid and start time of each rank: equal only for the very same processes."""
    return {r.rank: (r.pid, start_ticks(r.pid)) for r in ranks}


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))

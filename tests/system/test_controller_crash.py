"""The controller killed -9 exactly at each named fault point, and at seeded instants (J-1, J-3, R-2, F-2).

Each time it comes back, takes the running ranks over without touching them, issues again what was
pending (a recovery in progress included), and the job ends as it would have without the kill.
"""

# ctest: timeout=600 serial
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from regrow_cluster import ClusterTest, DevCluster, find_binary, identities, is_alive

SEED = int(os.environ.get("REGROW_SEED", "1"))
INSTANTS = int(os.environ.get("REGROW_CRASH_INSTANTS", "200"))


def fault_points():
    listed = subprocess.run(
        [find_binary(), "controller", "--list-fault-points"], capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


class CrashTest(ClusterTest):
    """Each case brings its own cluster."""

    @classmethod
    def setUpClass(cls):
        cls.top = Path(tempfile.mkdtemp(prefix="regrow-"))
        cls.addClassCleanup(shutil.rmtree, cls.top, ignore_errors=True)
        cls.cluster = None

    def cancel_what_runs(self):
        pass  # the cluster has ended by then

    def tell_what_happened(self):
        pass

    def submit_once(self, recipe):
        """Submits with a key, again until there is an answer; the cluster must have one job then."""

        def accepted():
            answer = self.cluster.run("submit", recipe, "--key", "only", "-o", "json", check=False)
            return answer.code == 0

        self.cluster.wait_for("the submission to be accepted", accepted)
        jobs = self.cluster.wait_for("the list of jobs", lambda: self.cluster.jobs())
        self.assertEqual(len(jobs), 1, "a repeated submission is the same job")
        return jobs[0].job

    def assert_never_started_twice(self, job):
        """R-2: every incarnation that ever ran left exactly one running event and one pid."""
        seen = {}
        for event in self.events(job, "RankRunning"):
            name = (event.entity, event.fields["incarnation"])
            self.assertNotIn(name, seen)
            seen[name] = event.fields["pid"]
        self.assertEqual(len(set(seen.values())), len(seen), "every start has a pid of its own")


class EachFaultPoint(CrashTest):
    def test_the_job_ends_as_if_nothing_had_happened(self):
        points = fault_points()
        self.assertGreater(len(points), 5)
        for point in points:
            # The first hit is at boot or at the start of the job, a later one in its middle.
            for hit in (1,) if point.startswith("boot.") else (1, 9):
                with self.subTest(point=point, hit=hit):
                    self.one_job(point, hit)

    def one_job(self, point, hit):
        home = Path(tempfile.mkdtemp(prefix="p", dir=self.top))
        arguments = ("--fault-points", f"{point}:{hit}")
        with DevCluster(home, 2, 2, arguments) as cluster:
            type(self).cluster = cluster
            job = self.submit_once(self.stub_recipe("--steps", 24, "--delay", 0.05, ranks=2))
            before = cluster.wait_for_step(job, 4)
            os.kill(before[1].pid, signal.SIGKILL)
            self.wait_for_generation(job, 2)
            done = cluster.wait_for_end(job)
            self.assertEqual(done.phase, "completed", done.reason)
            self.assertEqual(len(self.events(job, "IncidentOpened")), 1)
            self.assert_never_started_twice(job)
            # `dev` tells of each child that died: the fault point was reached.
            self.assertRegex(cluster.log.read_text(), r"controller \(pid \d+\) .*signal 9")


class PlainCluster(DevCluster):
    """A controller and two agents that the test itself starts, so that nothing waits before a restart."""

    def __init__(self, directory):
        super().__init__(directory, hosts=2)
        self.state.mkdir(parents=True)
        self.log_file = open(self.log, "ab")
        self.agents = []
        self.controller = None

    def spawn(self, *arguments):
        return subprocess.Popen(
            [self.binary, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self.log_file,
            stderr=self.log_file,
        )

    def start_controller(self):
        self.controller = self.spawn("controller", "--state-dir", self.state)

    def start(self, timeout=20):
        self.start_controller()
        for name in ("h1", "h2"):
            home = self.state / name
            (home / "sysroot/devices").mkdir(parents=True)
            for i in range(2):
                text = f"kind=sim\nuid=SIM-{name}-{i}\nmemory_bytes=1073741824\n"
                (home / f"sysroot/devices/sim{i}").write_text(text)
            agent = self.spawn(
                "agent", "--controller", f"unix:{self.state}/regrow.sock", "--name", name,
                "--state-dir", home / "s", "--run-dir", home / "r", "--sysroot", home / "sysroot",
                "--end-ranks", "1s", "--allow-user", str(os.geteuid()),
            )  # fmt: skip
            self.agents.append(agent)
        self.wait_for("2 hosts to be up", lambda: len(self.ready_hosts()) >= 2, timeout)
        return self

    def check_alive(self):
        pass

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def stop(self):
        for process in self.agents:
            process.terminate()
        for process in self.agents:
            process.wait(20)
        self.controller.terminate()
        self.controller.wait(20)
        self.log_file.close()


class SeededInstants(CrashTest):
    def test_ranks_are_neither_lost_nor_started_twice(self):
        rng = random.Random(SEED)
        print(f"seed {SEED} (REGROW_SEED), {INSTANTS} instants (REGROW_CRASH_INSTANTS)")
        with PlainCluster(self.top / "c") as cluster:
            type(self).cluster = cluster
            # Ranks are killed too early for progress here: that must not stop the job.
            patient = {"backoff": {"initial": "0s"}, "max_without_progress": 1000, "killed": "unlimited"}
            recipe = self.stub_recipe("--steps", 1000000, "--delay", 0.05, ranks=3, restarts=patient)
            job = self.submit_once(recipe)
            ranks = cluster.wait_for_step(job, 3)
            losses = 0
            for instant in range(INSTANTS):
                if instant % 20 == 10:  # the next kills fall into a recovery
                    os.kill(rng.choice(ranks).pid, signal.SIGKILL)
                    losses += 1
                time.sleep(rng.uniform(0.0, 0.2))
                cluster.kill_controller()
                if instant % 20 == 9:
                    self.assertTrue(all(is_alive(r.pid) for r in ranks), "F-2: no rank was ended")
                cluster.start_controller()
                if instant % 20 == 19:
                    ranks = self.wait_for_generation(job, losses + 1)
            ranks = self.wait_for_generation(job, losses + 1)
            self.assertEqual(len(self.events(job, "IncidentOpened")), losses)
            self.assertEqual(identities(ranks), identities(cluster.ranks(job)))
            self.assert_never_started_twice(job)
            cluster.run("cancel", str(job))
            self.assert_ended(job, "cancelled")


if __name__ == "__main__":
    unittest.main()

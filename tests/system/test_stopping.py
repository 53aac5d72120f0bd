"""How ranks are ended: politely, in time, with all they started. Scenarios 02, 07, 08."""

# ctest: timeout=180
import fcntl
import os
import signal
import time
import unittest

from regrow_cluster import ClusterTest, is_alive

SAVES_ON_TERM = """
import os, signal, sys, time
here = os.path.dirname(os.path.abspath(__file__))
helpers = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)  # a data loader worker: dies at once of TERM
        os._exit(0)
    helpers.append(pid)

def helpers_alive():
    return all(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid in helpers)

def save(*_):
    for _ in range(30):
        if not helpers_alive():
            os._exit(1)  # as a trainer would: its next batch fails
        time.sleep(0.05)
    open(os.path.join(here, "saved.ok"), "w").close()
    os._exit(0)

signal.signal(signal.SIGTERM, save)
open(os.path.join(here, "ready"), "w").write(" ".join(map(str, helpers)))
while True:
    time.sleep(0.05)
"""


class Stopping(ClusterTest):
    HOSTS = 2

    def test_the_leader_alone_gets_the_polite_signal(self):
        """Scenario 02: helpers that die first would spoil the leader's save."""
        job = self.submit(self.script_recipe(SAVES_ON_TERM, timeouts={"stop_grace": "30s"}))
        self.wait_for_file(self.dir / "ready")
        helpers = [int(pid) for pid in (self.dir / "ready").read_text().split()]
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")
        self.assertTrue((self.dir / "saved.ok").exists())
        self.assert_all_gone(helpers)
        report = self.exits(job)[0][0]
        self.assertTrue(report["ended_by_us"], "stopped on request is no failure")
        self.assertFalse(report["forced"])
        self.assertEqual(self.events(job, "IncidentOpened"), [])

    def test_scope_group_reaches_the_helpers_as_well(self):
        job = self.submit(
            self.script_recipe(
                SAVES_ON_TERM, timeouts={"stop_grace": "30s"}, stop={"scope": "group"}
            )
        )
        self.wait_for_file(self.dir / "ready")
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")
        self.assertFalse((self.dir / "saved.ok").exists())

    def test_who_ignores_it_is_killed_at_the_deadline_and_only_he(self):
        """Scenario 07. All ranks at once: the whole stop takes one grace, not one for each."""
        script = """
import os, signal, sys, time
def leave(*_):
    time.sleep(0.2)
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if int(os.environ["RANK"]) % 2 == 0 else leave)
print("step 1", flush=True)
time.sleep(1000)
"""
        recipe = self.script_recipe(
            script,
            ranks=4,
            timeouts={"stop_grace": "2s"},
            progress={"pattern": "^step (?P<step>[0-9]+)"},
        )
        job = self.submit(recipe)
        self.cluster.wait_for_step(job, 1)
        began = time.monotonic()
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")
        took = time.monotonic() - began
        self.assertGreaterEqual(took, 1.9)
        self.assertLess(took, 3.0)
        exits = self.exits(job)
        for rank in range(4):
            report = exits[rank][0]
            self.assertTrue(report["ended_by_us"])
            self.assertEqual(report["forced"], rank % 2 == 0)
            self.assertEqual(int(report["signal"]), 9 if rank % 2 == 0 else 0)

    def test_a_cancel_during_the_grace_of_another_stop_is_safe(self):
        job = self.submit(self.stub_recipe("--stop-delay", 1, ranks=2))
        pids = [r.pid for r in self.cluster.wait_for_step(job, 1)]
        for _ in range(3):
            self.cluster.run("cancel", str(job), check=False)
        self.assert_ended(job, "cancelled")
        self.assert_all_gone(pids)


HOLDS_A_LOCK = """
import fcntl, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # an orphan in a session of its own
        device = open(os.path.join(here, "device.lock"), "w")
        try:
            fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open(os.path.join(here, "device was busy"), "w").close()
        os.set_inheritable(device.fileno(), True)
        with open(os.path.join(here, "orphans"), "a") as out:
            out.write(f"{os.getpid()}\\n")
        time.sleep(1000)
    os._exit(0)
print("step 1", flush=True)
time.sleep(1000)
"""


class Orphans(ClusterTest):
    """Scenario 08: what a rank has started is gone before anybody else gets its device."""

    HOSTS = 2

    def start_job(self):
        job = self.submit(
            self.script_recipe(HOLDS_A_LOCK, restarts={"killed": 5, "backoff": {"initial": "0s"}})
        )
        self.cluster.wait_for("the orphan", lambda: len(self.orphans()) == 1)
        return job, self.wait_for_generation(job, 1)[0]

    def orphans(self):
        try:
            return [int(pid) for pid in (self.dir / "orphans").read_text().split()]
        except OSError:
            return []

    def device_is_free(self):
        with open(self.dir / "device.lock", "w", encoding="ascii") as device:
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False

    def test_the_next_incarnation_starts_only_when_the_device_is_free(self):
        job, rank = self.start_job()
        self.assertFalse(self.device_is_free())
        os.kill(rank.pid, signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.cluster.wait_for("the second orphan", lambda: len(self.orphans()) == 2)
        self.assertFalse((self.dir / "device was busy").exists())
        self.assert_all_gone(self.orphans()[:1])

    def test_a_cancel_leaves_none(self):
        job, rank = self.start_job()
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")
        self.assert_all_gone([rank.pid, *self.orphans()])
        self.assertTrue(self.device_is_free())

    def test_an_agent_that_comes_back_knows_them(self):
        job, rank = self.start_job()
        old = self.cluster.agent_pid(rank.host)
        os.kill(old, signal.SIGKILL)

        def back():
            try:
                pid = self.cluster.agent_pid(rank.host)
            except (OSError, ValueError):
                return False
            return pid != old and is_alive(pid) and len(self.cluster.ready_hosts()) == self.HOSTS

        self.cluster.wait_for("the new agent", back)
        self.assertTrue(is_alive(rank.pid), "adopted, not ended (F-2)")
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")
        self.assert_all_gone([rank.pid, *self.orphans()])

    def test_rank_and_shim_killed_together(self):
        """The shim saw all descendants; without it they are found by their marker."""
        job, rank = self.start_job()
        shim = int(open(f"/proc/{rank.pid}/stat").read().rsplit(")", 1)[1].split()[1])
        self.assertIn("shim", open(f"/proc/{shim}/comm").read())
        os.kill(shim, signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.cluster.wait_for("the second orphan", lambda: len(self.orphans()) == 2)
        self.assertFalse((self.dir / "device was busy").exists())
        self.assert_all_gone([rank.pid, *self.orphans()[:1]])


if __name__ == "__main__":
    unittest.main()

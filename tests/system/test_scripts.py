"""What the other system tests stand on: nothing outlives them, recoveries are read rightly."""

# ctest: timeout=60
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from regrow_cluster import PYTHON, ROOT, is_alive, recoveries_of

sys.path.insert(0, str(ROOT / "tools/lib"))
from dev_cluster import Event  # noqa: E402
from kept_process import KeptProcess, last_lines  # noqa: E402

# A child, a daemon in a session of its own, and a daemon's child that ignores polite signals.
FAMILY = """
echo $$ >> pids
setsid sh -c '
  echo $$ >> pids
  trap "" TERM INT HUP
  sh -c "echo \\$\\$ >> pids; exec sleep 1000"
  sleep 1000' &
echo ready
exec sleep 1000
"""


class NothingOutlivesUs(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="kept-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def pids(self):
        deadline = time.monotonic() + 10
        while True:
            try:
                found = [int(line) for line in (self.dir / "pids").read_text().split()]
            except OSError:
                found = []
            if len(found) == 3:
                return found
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def assert_gone(self, pids):
        deadline = time.monotonic() + 10
        while any(is_alive(pid) for pid in pids):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_daemons_are_found_told_and_ended(self):
        process = KeptProcess(["/bin/sh", "-c", FAMILY], self.dir / "log", grace=2, cwd=self.dir)
        pids = self.pids()
        left = process.stop()
        self.assert_gone(pids)
        self.assertEqual({int(line.split()[1]) for line in left}, set(pids[1:]))
        self.assertEqual(last_lines(self.dir / "log"), "ready")
        self.assertEqual(process.stop(), [], "twice is harmless")

    def test_kill_9_of_the_one_who_started_it_ends_all(self):
        script = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "tools/lib")!r})
from kept_process import KeptProcess
kept = KeptProcess(["/bin/sh", "-c", {FAMILY!r}], "log", grace=1)
time.sleep(1000)
"""
        starter = subprocess.Popen([PYTHON, "-c", script], cwd=self.dir)
        pids = self.pids()
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        self.assert_gone(pids)


class Recoveries(unittest.TestCase):
    def event(self, time_s, entity, kind, **fields):
        self.seq = getattr(self, "seq", 0) + 1
        return Event(self.seq, time_s, entity, kind, f"because of {kind}", fields)

    def exit(self, time_s, rank, ended_s, gone_s):
        report = {"leader_ended_us": str(int(ended_s * 1e6)), "group_gone_us": int(gone_s * 1e6)}
        return self.event(time_s, f"rank/7/{rank}", "RankExited", incarnation=1, report=report)

    def test_each_instant_is_found(self):
        events = [
            self.event(1, "job/7", "GenerationRunning", generation=1),
            self.exit(10.01, 2, 10.0, 10.005),
            self.event(10.01, "job/7", "IncidentOpened", incident=1, rank=2, incarnation=1),
            self.event(10.02, "job/7", "RecoveryPlanned", generation=2, incident=1),
            self.exit(10.3, 0, 10.25, 10.28),
            self.event(
                10.4, "job/7", "GenerationStarted", generation=2, resume_step="40", resume_path="/c"
            ),
            self.event(10.5, "rank/7/0", "RankRunning", started_us=str(10_410_000)),
            self.event(10.5, "rank/7/2", "RankRunning", started_us=str(10_420_000)),
            self.event(10.6, "job/7", "GenerationRunning", generation=2),
        ]
        (found,) = recoveries_of(reversed(events))
        self.assertEqual((found.rank, found.resume_step, found.generation), (2, 40, 2))
        self.assertEqual((found.died, found.detected, found.decided), (10.0, 10.01, 10.02))
        self.assertEqual((found.gone, found.prepared, found.spawned), (10.28, 10.4, 10.42))
        self.assertEqual(found.running, 10.6)

    def test_a_second_loss_belongs_to_the_first_and_the_root_may_change(self):
        events = [
            self.event(5, "job/7", "IncidentOpened", incident=1, rank=0, incarnation=1),
            self.exit(5.1, 3, 4.9, 4.95),
            self.event(5.1, "job/7", "IncidentReclassified", incident=1, rank=3, incarnation=1),
            self.event(6, "job/7", "GenerationRunning", generation=2),
            self.event(9, "job/7", "IncidentOpened", incident=2, rank=1, incarnation=2),
        ]
        first, second = recoveries_of(events)
        self.assertEqual((first.rank, first.died), (3, 4.9))
        self.assertEqual((second.rank, second.died, second.running), (1, None, None))


if __name__ == "__main__":
    unittest.main()

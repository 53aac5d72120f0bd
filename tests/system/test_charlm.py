#!/usr/bin/python3
"""The character model alone, without regrow: a run with kills ends bit-identical to one without.

That regrow's own demo ends with the right answer means nothing unless this holds by itself. Takes
half a minute; needs Debian's python3-torch.
"""

# ctest: timeout=400

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "recipes/examples/ddp_charlm/train.py"
TORCHRUN = ROOT / "tests/peers/torchrun_launch.py"
PYTHON = "/usr/bin/python3"


def end_session(process):
    """Ends a process that leads a session of its own, and what it started there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class CharacterModel(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="charlm-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def start(self, name, arguments, ranks=1, **more_env):
        """Starts training in a directory of its own. Its output goes to NAME.log."""
        command = [PYTHON]
        if ranks > 1:
            command += [TORCHRUN, "--standalone", f"--nproc_per_node={ranks}"]
            command += ["--max_restarts=10", "--monitor_interval=0.1"]
        command += [
            TRAIN,
            "--checkpoint-dir",
            self.dir / name,
            "--result",
            self.dir / f"{name}.json",
        ]
        command += arguments
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "OMP_NUM_THREADS": "1", **more_env}
        with open(self.dir / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command, env=env, cwd=self.dir, stdout=log, stderr=log, start_new_session=True
            )
        self.addCleanup(end_session, process)
        return process

    def finish(self, process, name, timeout=60):
        code = process.wait(timeout)
        log = (self.dir / f"{name}.log").read_text(errors="replace")
        self.assertEqual(code, 0, log[-3000:])
        return json.loads((self.dir / f"{name}.json").read_text())

    def complete(self, name):
        return [p.parent.name for p in (self.dir / name).glob("step_*/COMPLETE")]

    def wait_for_new_checkpoint(self, name, known, timeout=30):
        deadline = time.monotonic() + timeout
        while not set(self.complete(name)) - set(known):
            self.assertLess(time.monotonic(), deadline, "no new checkpoint")
            time.sleep(0.005)

    def test_one_process_killed_at_random_moments_ends_the_same(self):
        arguments = ["--steps", "300", "--checkpoint-every", "10"]
        expected = self.finish(self.start("plain", arguments), "plain")
        for _ in range(3):
            known = self.complete("killed")
            process = self.start("killed", arguments)
            self.wait_for_new_checkpoint("killed", known)
            time.sleep(random.random() * 0.05)  # anywhere: in a step, in a save, in a removal
            end_session(process)
        self.assertEqual(self.finish(self.start("killed", arguments), "killed"), expected)
        self.assertIn("resumed from", (self.dir / "killed.log").read_text())

    def test_four_ranks_under_torchrun_with_kills_end_the_same(self):
        arguments = ["--steps", "200", "--checkpoint-every", "20"]
        expected = self.finish(self.start("plain", arguments, ranks=4), "plain")
        phases = self.dir / "phases"
        phases.mkdir()
        process = self.start("killed", arguments, ranks=4, BENCH_EVENTS=str(phases))
        for victim in (0, 2):
            known = self.complete("killed")
            self.wait_for_new_checkpoint("killed", known)
            last_line = (phases / f"phases.rank{victim}").read_text().splitlines()[-1]
            os.kill(json.loads(last_line)["pid"], signal.SIGKILL)
        self.assertEqual(self.finish(process, "killed"), expected)
        log = (self.dir / "killed.log").read_text()
        self.assertGreaterEqual(log.count("resumed from"), 4)

    def test_a_torn_checkpoint_is_never_chosen(self):
        arguments = ["--steps", "60", "--checkpoint-every", "20"]
        expected = self.finish(self.start("plain", arguments), "plain")
        shutil.copytree(self.dir / "plain", self.dir / "torn")
        (self.dir / "torn/step_60/COMPLETE").unlink()
        with open(self.dir / "torn/step_40/rank_0.pt", "r+b") as shard:
            shard.truncate(1000)
        self.assertEqual(self.finish(self.start("torn", arguments), "torn"), expected)
        log = (self.dir / "torn.log").read_text()
        self.assertIn("resumed from", log)
        self.assertIn("/step_20\n", log)

    def test_the_path_it_is_told_wins_over_what_it_finds(self):
        arguments = ["--steps", "60", "--checkpoint-every", "20"]
        expected = self.finish(self.start("plain", arguments), "plain")
        told = str(self.dir / "plain/step_40")
        again = self.start("plain", arguments, REGROW_RESUME_PATH=told)
        self.assertEqual(self.finish(again, "plain"), expected)
        self.assertIn(f"resumed from {told}", (self.dir / "plain.log").read_text())

    def test_a_checkpoint_of_another_run_is_refused(self):
        self.finish(self.start("plain", ["--steps", "20"]), "plain")
        process = self.start("plain", ["--steps", "40", "--seed", "2"])
        self.assertEqual(process.wait(30), 1)
        self.assertIn("written with seed 1, this run has 2", (self.dir / "plain.log").read_text())

    def test_only_the_newest_three_are_kept(self):
        self.finish(self.start("plain", ["--steps", "100", "--checkpoint-every", "20"]), "plain")
        self.assertEqual(sorted(self.complete("plain")), ["step_100", "step_60", "step_80"])


def setUpModule():
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        raise unittest.SkipTest(f"{PYTHON} has no module torch (package python3-torch)")


if __name__ == "__main__":
    unittest.main()

"""Who is not obeyed: agents with a host's name, controllers of other clusters and of old copies."""

# ctest: timeout=300
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from regrow_cluster import DevCluster, find_binary
from kept_process import KeptProcess


class Strangers(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="regrow-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.cluster = DevCluster(self.dir / "a", 2, 1)
        self.addCleanup(self.cluster.stop)
        self.state = self.cluster.state

    def echo(self, words):
        """Runs a job of one rank to its end and returns its number."""
        recipe = self.dir / "echo.yaml"
        recipe.write_text(
            json.dumps({"name": "echo", "ranks": 1, "command": ["/bin/echo", words], "devices": {"count": 0}})
        )
        job = self.cluster.submit(recipe)
        self.assertEqual(self.cluster.wait_for_end(job).phase, "completed")
        self.assertEqual(self.cluster.run("logs", str(job)).out, words + "\n")
        return job

    def wait_for_text(self, path, words, timeout=20):
        self.cluster.wait_for(
            f"{words!r} in {path}", lambda: path.exists() and words in path.read_text(), timeout
        )
        return path.read_text()

    def agent(self, name, state, *more):
        process = KeptProcess(
            [
                str(find_binary()), "agent", "--controller", str(self.state), "--name", name,
                "--state-dir", str(state), "--allow-user", str(os.geteuid()), *more,
            ],
            self.dir / f"{Path(state).name}.log", 10, dict(os.environ),
        )  # fmt: skip
        self.addCleanup(process.stop)
        return process

    def controller(self, *more):
        """Until it ends by itself."""
        return subprocess.run(
            [find_binary(), "controller", "--state-dir", self.state, *more],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip

    def test_an_agent_with_a_hosts_name_takes_nothing_from_it(self):
        self.cluster.start()
        before = self.cluster.json("show", "host/h1")
        intruder = self.agent("h1", self.dir / "intruder")
        said = self.wait_for_text(self.dir / "intruder.log", "refused by")
        self.assertIn("another agent is connected as host h1", said)
        self.assertIn("another --name", said)
        intruder.stop()
        self.wait_for_text(self.state / "controller.log", "host/h1 refused: another agent")
        after = self.cluster.json("show", "host/h1")
        self.assertTrue(all(row["connected"] for row in self.cluster.ready_hosts()))
        self.assertEqual(after["state"]["uid"], before["state"]["uid"])
        # The host still does what it is told.
        self.cluster.run("cordon", "h2", "--reason", "so that h1 has to")
        self.echo("still here")

    def test_a_new_cluster_is_not_served_by_the_hosts_of_an_old_one(self):
        self.cluster.start()
        self.echo("old results")
        self.assertEqual(self.cluster.stop(), [])
        shutil.rmtree(self.state / "journal")
        process = KeptProcess(
            [str(find_binary()), "dev", "--hosts", "2", "--devices-per-host", "1", "--state-dir", str(self.state)],
            self.dir / "dev.log", 10, dict(os.environ),
        )  # fmt: skip
        self.addCleanup(process.stop)
        self.cluster.check_alive = lambda: None
        told = self.wait_for_text(self.dir / "dev.log", "h1 is not up yet")
        self.assertIn("this host belongs to cluster", told)
        host = self.state / "hosts/h1"
        self.assertIn(f"({host}/state/cluster says so)", told)
        self.assertIn(f"remove {host}/state and {host}/run", told)
        self.wait_for_text(self.state / "controller.log", "host/h1 refused: host h1 belongs to cluster")
        self.assertEqual(self.cluster.ready_hosts(), [])
        process.stop()
        # As it was told.
        for name in ("h1", "h2"):
            shutil.rmtree(self.state / f"hosts/{name}/state")
            shutil.rmtree(self.state / f"hosts/{name}/run")
        del self.cluster.check_alive
        self.cluster.start()
        self.assertEqual(self.echo("new results"), 1)

    def test_an_old_copy_of_the_journal_stays_refused_until_an_operator_decides(self):
        self.cluster.start()
        self.assertEqual(self.echo("one"), 1)
        self.assertEqual(self.cluster.stop(), [])
        shutil.copytree(self.state / "journal", self.dir / "old")
        for job in (2, 3):
            self.cluster.start()
            self.assertEqual(self.echo(f"number {job}"), job)
            self.assertEqual(self.cluster.stop(), [])
        shutil.move(self.state / "journal", self.dir / "newest")
        shutil.copytree(self.dir / "old", self.state / "journal")

        agent = self.agent("h1", self.state / "hosts/h1/state", "--run-dir", str(self.state / "hosts/h1/run"))
        first = self.controller()
        self.assertEqual(first.returncode, 75, first.stderr)
        mark = self.state / "journal/OLD_COPY"
        self.assertTrue(mark.exists())
        for _ in range(4):
            again = self.controller()
            self.assertEqual(again.returncode, 75, again.stderr)
            self.assertIn("its journal is an old copy", again.stderr)
            self.assertIn(f"remove {mark}", again.stderr)
            self.assertIn("--recover-epoch", again.stderr)
            self.assertNotIn("ready: cluster", again.stderr)
        agent.stop()

        # The newest one is accepted, and without it the operator may go on with the old one.
        shutil.move(self.state / "journal", self.dir / "refused")
        shutil.copytree(self.dir / "newest", self.state / "journal")
        self.cluster.start()
        self.assertEqual(self.echo("number 4"), 4)
        self.assertEqual(self.cluster.stop(), [])
        shutil.rmtree(self.state / "journal")
        shutil.move(self.dir / "refused", self.state / "journal")
        service = KeptProcess(
            [str(find_binary()), "controller", "--state-dir", str(self.state), "--recover-epoch"],
            self.dir / "recover.log", 10, dict(os.environ),
        )  # fmt: skip
        self.addCleanup(service.stop)
        self.cluster.check_alive = lambda: None
        said = self.wait_for_text(self.dir / "recover.log", "ready: cluster")
        self.assertIn("numbers may have been given out", said)
        self.assertFalse(mark.exists())
        service.stop()
        del self.cluster.check_alive
        self.cluster.start()
        self.assertGreater(self.echo("far above"), 1_000_000)
        raised = [e for e in self.cluster.events("cluster") if e.kind == "NumbersRaised"]
        self.assertEqual(len(raised), 1)
        self.assertIn("--recover-epoch", raised[0].reason)

    def test_after_a_salvage_the_hosts_go_on_and_no_number_comes_twice(self):
        self.cluster.start()
        for job in (1, 2, 3):
            self.assertEqual(self.echo(f"number {job}"), job)
        # As kill -9 leaves it: all in the log.
        shutil.copytree(self.state / "journal", self.dir / "crashed")
        self.assertEqual(self.cluster.stop(), [])
        shutil.rmtree(self.state / "journal")
        shutil.move(self.dir / "crashed", self.state / "journal")
        log = max((self.state / "journal/db").glob("*.log"), key=lambda path: path.name)
        raw = bytearray(log.read_bytes())
        raw[len(raw) // 2] ^= 0x40
        log.write_bytes(raw)
        done = json.loads(
            subprocess.run(
                [find_binary(), "journal", "salvage", self.state, "-o", "json"],
                capture_output=True, text=True, check=True, timeout=60,
            ).stdout
        )  # fmt: skip
        self.assertGreater(done["next_job"], 1_000_000)
        self.assertGreater(done["next_epoch"], 1_000)
        self.cluster.start()
        self.assertEqual(self.echo("after it"), done["next_job"])
        raised = [e for e in self.cluster.events("cluster") if e.kind == "NumbersRaised"]
        self.assertEqual(len(raised), 1)
        self.assertIn("regrow journal salvage", raised[0].reason)


if __name__ == "__main__":
    unittest.main()

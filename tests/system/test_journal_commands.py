"""`regrow journal verify` and `salvage` on the journal of a real controller: whole, held, damaged."""

# ctest: timeout=240
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from regrow_cluster import ClusterTest, DevCluster, find_binary


class JournalCommands(ClusterTest):
    """One controller makes a journal with a finished job; each test damages a copy of its own."""

    @classmethod
    def setUpClass(cls):
        cls.top = Path(tempfile.mkdtemp(prefix="regrow-"))
        cls.addClassCleanup(shutil.rmtree, cls.top, ignore_errors=True)
        cls.cluster = None
        cls.made = None

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="t", dir=self.top))
        self.orders = self.dir / "orders"
        self.orders.mkdir()
        self.submitted = []
        if self.made is None:
            type(self).made = self.make_journal()
        self.state = self.dir / "state"
        shutil.copytree(self.made, self.state, ignore=shutil.ignore_patterns("ballast"))
        self.journal = self.state / "journal"

    def tell_what_happened(self):
        pass

    def make_journal(self):
        home = self.top / "made"
        with DevCluster(home, 2, 2) as cluster:
            type(self).cluster = cluster
            job = self.submit(self.stub_recipe("--steps", 5, "--delay", 0.02, ranks=2))
            self.assertEqual(cluster.wait_for_end(job).phase, "completed")
            self.assert_in_use(home / "state")
            # As kill -9 would leave it: its events are in the log only, none of them in a table.
            controller = cluster.controller_pid()
            os.kill(controller, signal.SIGSTOP)
            shutil.copytree(home / "state/journal", self.top / "left/journal")
            os.kill(controller, signal.SIGCONT)
        return self.top / "left"

    def assert_in_use(self, state):
        for command in ("verify", "salvage"):
            held = self.regrow(command, state)
            self.assertEqual(held.returncode, 2, held.stderr)
            self.assertRegex(held.stderr, r"open in process \d+ \(.*regrow controller")
            self.assertEqual(held.stdout, "")

    def regrow(self, command, *arguments):
        return subprocess.run(
            [find_binary(), "journal", command, *map(str, arguments)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def ok(self, command, *arguments):
        done = self.regrow(command, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def checked(self, directory):
        return json.loads(self.ok("verify", directory, "-o", "json"))

    def contents(self, directory):
        return {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.name not in ("lock", "LOCK")
        }

    def newest_log(self):
        return max((self.journal / "db").glob("*.log"), key=lambda path: path.name)

    def into_tables(self):
        """A controller starts and stops cleanly on it: its events are in table files then."""
        service = subprocess.Popen(
            [find_binary(), "controller", "--state-dir", self.state], stderr=subprocess.PIPE, text=True
        )
        for line in service.stderr:
            if "ready: cluster" in line:
                break
        service.terminate()
        service.communicate(timeout=20)
        self.assertEqual(service.returncode, 0)

    def assert_goes_on(self, events):
        """A controller starts on it and knows all of these events, and a new one."""
        self.into_tables()
        self.assertGreater(self.checked(self.state)["events"], events)

    def test_a_whole_journal_is_said_to_be_whole(self):
        before = self.contents(self.journal)
        text = self.ok("verify", self.state)
        self.assertRegex(text, r"journal: whole: \d+ events of \d+ entities")
        found = self.checked(self.journal)
        self.assertGreater(found["events"], 20)
        self.assertGreater(found["entities"], 8)
        self.assertGreater(found["last_at_us"], found["first_at_us"])
        self.assertIn("nothing was changed", self.ok("salvage", self.state))
        self.assertEqual(self.contents(self.journal), before)
        self.assertEqual(sorted(p.name for p in self.state.iterdir()), ["journal"])

    def test_a_torn_tail_is_no_damage(self):
        whole = self.checked(self.state)["events"]
        log = self.newest_log()
        os.truncate(log, log.stat().st_size - 5)
        before = self.contents(self.journal)
        found = self.checked(self.state)
        self.assertLess(found["events"], whole)
        self.assertGreater(found["unfinished_bytes"], 0)
        self.assertRegex(self.ok("verify", self.state), r"ends with an unfinished write \(\d+ bytes\)")
        self.assertIn("nothing was changed", self.ok("salvage", self.state))
        self.assertEqual(self.contents(self.journal), before)
        self.assert_goes_on(found["events"])

    def test_a_flipped_byte_in_the_middle_of_the_log(self):
        whole = self.checked(self.state)["events"]
        log = self.newest_log()
        raw = bytearray(log.read_bytes())
        raw[len(raw) // 2] ^= 0x40
        log.write_bytes(raw)
        damaged = self.contents(self.journal)

        refused = self.regrow("verify", self.state)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("the journal is damaged", refused.stderr)
        self.assertIn(f"regrow journal salvage {self.journal}", refused.stderr)
        self.assertEqual(self.contents(self.journal), damaged)

        text = self.ok("salvage", self.state)
        saved = int(re.search(r"saved: +(\d+) events", text).group(1))
        self.assertGreater(saved, 0)
        self.assertLess(saved, whole)
        self.assertRegex(text, rf"lost: +(what came behind event {saved}|events {saved + 1} to)")
        kept = self.state / "journal.damaged-1"
        self.assertIn(str(kept), text)
        self.assertEqual(self.contents(kept), damaged, "the damaged journal is kept as it was")
        self.assertEqual(self.checked(self.state)["events"], saved + 1)  # and NumbersRaised
        self.assertRegex(text, r"raised: the next job is 100000\d and the next epoch 1002")
        self.assertEqual(sorted(p.name for p in self.state.iterdir()), ["journal", "journal.damaged-1"])
        self.assert_goes_on(saved)

    def test_a_flipped_byte_in_a_table(self):
        self.into_tables()
        tables = sorted((self.journal / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
        raw = bytearray(tables[-1].read_bytes())
        raw[len(raw) // 3] ^= 0x40
        tables[-1].write_bytes(raw)
        self.assertEqual(self.regrow("verify", self.state).returncode, 1)
        done = json.loads(self.ok("salvage", self.state, "-o", "json"))
        self.assertFalse(done["was_whole"])
        self.assertEqual(done["lost_from"], done["events"] + 1)
        self.assertTrue(done["damage"])
        self.assertEqual(done["kept"], str(self.state / "journal.damaged-1"))
        self.assertEqual(self.checked(self.state)["events"], done["events"] + (done["next_job"] > 0))
        self.assert_goes_on(done["events"])

    def test_a_missing_table_costs_what_was_in_it(self):
        self.into_tables()
        tables = sorted((self.journal / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
        tables[-1].unlink()
        refused = self.regrow("verify", self.state)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(tables[-1].stem, refused.stderr)
        done = json.loads(self.ok("salvage", self.state, "-o", "json"))
        self.assertFalse(done["was_whole"])
        self.assertEqual(self.checked(self.state)["events"], done["events"] + (done["next_job"] > 0))

    def test_what_the_database_cannot_do_without(self):
        (self.journal / "db/CURRENT").unlink()
        before = self.contents(self.journal)
        for command in ("verify", "salvage"):
            refused = self.regrow(command, self.state)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            self.assertEqual(refused.stdout, "")
            self.assertIn(str(self.journal), refused.stderr)
        self.assertEqual(self.contents(self.journal), before)

    def test_into_another_directory(self):
        log = self.newest_log()
        raw = bytearray(log.read_bytes())
        raw[len(raw) // 2] ^= 0x40
        log.write_bytes(raw)
        damaged = self.contents(self.journal)
        text = self.ok("salvage", self.state, self.dir / "good")
        self.assertIn(str(self.dir / "good"), text)
        self.assertEqual(self.contents(self.journal), damaged)
        self.assertGreater(self.checked(self.dir / "good")["events"], 0)
        again = self.regrow("salvage", self.state, self.dir / "good")
        self.assertEqual(again.returncode, 2)
        self.assertIn("Name a new directory", again.stderr)

    def test_what_is_no_journal(self):
        for path, words in (
            (self.dir / "nothing", "there is no journal here"),
            (self.orders, "there is no journal here"),
            (Path(__file__).parent, "this is not a journal of regrow"),
        ):
            for command in ("verify", "salvage"):
                refused = self.regrow(command, path)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(words, refused.stderr)
        self.assertEqual(list(self.orders.iterdir()), [])
        self.assertFalse((self.dir / "nothing").exists())
        (self.journal / "FORMAT").write_text("regrow journal 99\n")
        newer = self.regrow("salvage", self.state)
        self.assertEqual(newer.returncode, 2)
        self.assertIn("newer regrow", newer.stderr)


if __name__ == "__main__":
    unittest.main()

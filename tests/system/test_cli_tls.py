"""A cluster over TCP with mutual TLS, by hand: certificates, roles, refusals that say what to do."""

# ctest: timeout=120
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from dev_cluster import find_binary  # noqa: E402
from kept_process import KeptProcess, last_lines  # noqa: E402


class TlsCluster(unittest.TestCase):
    """A controller and the host h1, over TCP. Ann may act, the board may look."""

    ALLOWED_USER = str(os.geteuid())

    @classmethod
    def setUpClass(cls):
        cls.binary = str(find_binary())
        cls.dir = Path(tempfile.mkdtemp(prefix="regrow-tls-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.environment = {
            "HOME": str(cls.dir), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(cls.dir),
        }  # fmt: skip
        authority = cls.dir / "authority"
        cls.must("certs", "init", authority)
        cls.must("certs", "issue", authority, "--role", "controller")
        for role, name in (("agent", "h1"), ("operator", "ann"), ("viewer", "board")):
            cls.must("certs", "issue", authority, "--role", role, "--name", name)
            cls.hand_over(authority, name)
        cls.hand_over(authority, "controller")
        cls.controller = cls.keep(
            "controller", "--state-dir", cls.dir / "c", "--listen", "tcp:127.0.0.1:0",
            "--certs", cls.dir / "of-controller",
        )  # fmt: skip
        cls.address = "tcp:" + cls.wait_for_log("controller", r"listening on tcp:(\S+)")
        cls.agent = cls.keep(
            "agent", "--controller", cls.address, "--certs", cls.dir / "of-h1", "--name", "h1",
            "--state-dir", cls.dir / "a", "--end-ranks", "1s", "--allow-user", cls.ALLOWED_USER,
        )  # fmt: skip

    @classmethod
    def must(cls, *arguments):
        done = cls.regrow(*arguments)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stderr}")

    @classmethod
    def regrow(cls, *arguments, **environment):
        return subprocess.run(
            [cls.binary, *map(str, arguments)], env={**cls.environment, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
        )  # fmt: skip

    @classmethod
    def hand_over(cls, authority, name):
        """What the owner of a certificate gets: two files and ca.pem."""
        theirs = cls.dir / f"of-{name}"
        theirs.mkdir()
        for file in (f"{name}.pem", f"{name}.key", "ca.pem"):
            shutil.copy(authority / file, theirs / file)

    @classmethod
    def keep(cls, name, *arguments):
        process = KeptProcess([cls.binary, name, *map(str, arguments)], cls.dir / f"{name}.log", 10, cls.environment)
        cls.addClassCleanup(process.stop)
        return process

    @classmethod
    def wait_for_log(cls, name, pattern, timeout=20):
        deadline = time.monotonic() + timeout
        log = cls.dir / f"{name}.log"
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace")) if log.exists() else None
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in the log: {last_lines(log)}")

    def ask(self, name, command, *arguments):
        where = ["--cluster", self.address, "--certs", self.dir / f"of-{name}"]
        return self.regrow(command, *where, *arguments)

    def wait_for_host(self):
        deadline = time.monotonic() + 20
        while True:
            done = self.ask("ann", "hosts", "-o", "json")
            if done.returncode == 0 and [h["link"] for h in json.loads(done.stdout)] == ["up"]:
                return
            self.assertLess(time.monotonic(), deadline, done.stderr + last_lines(self.dir / "agent.log"))
            time.sleep(0.05)


class OverTcp(TlsCluster):
    def test_an_operator_runs_a_job_and_is_named_in_the_journal(self):
        self.wait_for_host()
        done = self.ask("ann", "run", "--set", "devices.count=0", "--", "/bin/true")
        self.assertEqual(done.returncode, 0, done.stderr)
        job = re.match(r"job (\d+)", done.stdout)[1]
        self.assertIn("operator/ann", self.ask("ann", "show", job).stdout)

    def test_a_viewer_may_look_and_not_act(self):
        self.wait_for_host()
        self.assertEqual(self.ask("board", "jobs").returncode, 0)
        refused = self.ask("board", "cordon", "h1", "--reason", "x")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("viewer/board", refused.stderr)
        self.assertIn("regrow certs issue", refused.stderr)

    def test_without_a_certificate_or_with_a_strange_one(self):
        none = self.regrow("jobs", "--cluster", self.address)
        self.assertEqual(none.returncode, 2)
        self.assertIn("regrow certs issue", none.stderr)
        strange = self.dir / "strange"
        self.must("certs", "init", strange)
        self.must("certs", "issue", strange, "--role", "operator", "--name", "eve")
        done = self.regrow("jobs", "--cluster", self.address, "--certs", strange / "eve.pem")
        self.assertIn(done.returncode, (2, 3, 4))
        self.assertIn("certs", done.stderr)

    def test_the_environment_may_name_all_of_it(self):
        done = self.regrow("status", REGROW_CLUSTER=self.address, REGROW_CERTS=str(self.dir / "of-board"))
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(os.geteuid() == 0, "only root's agent could start ranks of others")
class WhoseRanks(TlsCluster):
    ALLOWED_USER = "nobody"

    def test_an_operator_gets_no_root_from_a_host_that_does_not_allow_it(self):
        self.wait_for_host()
        done = self.ask("ann", "run", "--set", "devices.count=0", "--", "/usr/bin/touch", self.dir / "ran")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("host h1 starts no ranks as root", done.stdout + done.stderr)
        self.assertIn("--allow-user root", done.stdout + done.stderr)
        self.assertFalse((self.dir / "ran").exists())
        job = re.match(r"job (\d+)", done.stdout)[1]
        events = [json.loads(line) for line in self.ask("ann", "events", f"{job}/0", "-o", "json").stdout.splitlines()]
        self.assertEqual([e["kind"] for e in events], ["rank_spawning", "rank_exited"], "no second attempt")

    def test_an_operator_names_a_user_that_the_host_allows(self):
        self.wait_for_host()
        nobody = pwd.getpwnam("nobody")
        done = self.ask("ann", "run", "--as-user", nobody.pw_uid, "--set", "devices.count=0",
                        "--set", "working_directory=/", "--", "/bin/sh", "-c", "id -u; id -g; id -G")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        job = re.match(r"job (\d+)", done.stdout)[1]
        log = self.ask("ann", "logs", job).stdout.split()
        self.assertEqual(log[:2], [str(nobody.pw_uid), str(nobody.pw_gid)])
        self.assertNotIn("0", log)


if __name__ == "__main__":
    unittest.main()

"""`regrow dev`: real processes, restarted when they die, gone when it ends; two never cross."""

# ctest: timeout=240
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from regrow_cluster import DevCluster, is_alive
from dev_cluster import find_binary
from kept_process import KeptProcess


def marked(text):
    """Living processes that have this text on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and is_alive(int(entry.name)):
            found.append((int(entry.name), line))
    return found


class DevTest(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="regrow-dev-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        (self.dir / "run").mkdir(mode=0o700)
        # A home of its own: the user's real cluster is never touched.
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("REGROW_")},
            "HOME": str(self.dir),
            "XDG_RUNTIME_DIR": str(self.dir / "run"),
            "XDG_STATE_HOME": str(self.dir / "s"),
        }

    def cluster(self, name="a", hosts=1, devices=1):
        cluster = DevCluster(self.dir / name, hosts, devices, environment=self.environment)
        self.addCleanup(cluster.stop)
        return cluster

    def dev(self, *arguments):
        """Without the keeper that DevCluster has: what happens to it is the test."""
        process = subprocess.Popen(
            [find_binary(), "dev", *map(str, arguments)],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()

    def wait_ready(self, process):
        lines = []
        while not lines or not lines[-1].startswith("Ctrl-C"):
            line = process.stdout.readline()
            self.assertTrue(line, f"it ended: {process.stderr.read() if process.poll() else lines}")
            lines.append(line)
        return "".join(lines)

    def regrow(self, *arguments, **environment):
        return subprocess.run(
            [find_binary(), *map(str, arguments)], env={**self.environment, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
        )  # fmt: skip

    def wait(self, what, condition, timeout=15):
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def start_sleeper(self, cluster):
        recipe = self.dir / "sleeper.yaml"
        recipe.write_text(json.dumps({"name": "sleeper", "ranks": 1, "command": ["sleep", "86399"], "devices": {"count": 0}}))
        job = cluster.submit(recipe)
        ranks = cluster.wait_for(
            "the rank to run",
            lambda: [r for r in cluster.ranks(job) if r.process == "running" and r.pid],
        )
        return job, ranks[0].pid


class Life(DevTest):
    def test_ctrl_c_ends_everything_and_the_state_stays(self):
        cluster = self.cluster(hosts=2)
        cluster.start()
        job, pid = self.start_sleeper(cluster)
        started = time.monotonic()
        self.assertEqual(cluster.stop(), [], "left behind by Ctrl-C")
        self.assertLess(time.monotonic() - started, 10)
        self.assertFalse(is_alive(pid))
        self.assertEqual(marked(str(self.dir)), [])
        # The hosts have rebooted; the job goes on by itself.
        cluster.start()
        again = cluster.wait_for(
            "the rank to run again",
            lambda: [r for r in cluster.ranks(job) if r.process == "running" and r.incarnation > 1],
            timeout=40,
        )
        # Nobody's fault: it neither spends a budget nor counts as an attempt.
        opened = [e for e in cluster.events(f"job/{job}") if e.kind == "IncidentOpened"]
        self.assertEqual([e.fields["failure_class"] for e in opened], ["preempted"])
        self.assertTrue(is_alive(again[0].pid))

    def test_what_dies_is_started_again(self):
        cluster = self.cluster(hosts=2)
        cluster.start()
        _, pid = self.start_sleeper(cluster)
        for kill_next in (cluster.controller_pid, lambda: cluster.agent_pid("h1"), lambda: cluster.agent_pid("h2")):
            old = kill_next()
            os.kill(old, signal.SIGKILL)

            def back():
                try:
                    return kill_next() != old and len(cluster.ready_hosts()) == 2
                except (OSError, ValueError):
                    return False

            cluster.wait_for("it to come back", back)
        self.assertTrue(is_alive(pid), "neither death touches a rank (F-2)")
        self.assertIn("was killed by signal 9; starting it again", cluster.log.read_text())

    def test_kill_9_of_dev_itself_leaves_nothing(self):
        process = self.dev("--hosts", 2, "--state-dir", self.dir / "a")
        self.wait_ready(process)
        cluster = self.cluster()
        cluster.state = self.dir / "a"
        cluster.check_alive = lambda: None
        _, pid = self.start_sleeper(cluster)
        process.kill()
        self.wait("nothing is left", lambda: not marked(str(self.dir)) and not is_alive(pid))

    def test_a_second_ctrl_c_does_not_wait(self):
        process = self.dev("--hosts", 1, "--state-dir", self.dir / "a")
        self.wait_ready(process)
        # A controller that cannot end by itself.
        controller = int((self.dir / "a/controller.pid").read_text())
        os.kill(controller, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(10)
        self.assertLess(time.monotonic() - started, 2.5)
        self.assertEqual(marked(str(self.dir)), [])


class Two(DevTest):
    def test_a_second_default_is_refused_with_the_holder(self):
        first = self.dev("--hosts", 1)
        said = self.wait_ready(first)
        self.assertIn("regrow hosts", said)
        # Found without being told.
        self.assertIn("h1", self.regrow("hosts").stdout)
        second = self.regrow("dev", "--hosts", 1)
        self.assertEqual(second.returncode, 2)
        self.assertIn(str(first.pid), second.stderr)
        self.assertIn("--state-dir", second.stderr)
        # The same socket, another state directory: still refused.
        other = self.regrow("dev", XDG_STATE_HOME=str(self.dir / "other"))
        self.assertEqual(other.returncode, 2)
        self.assertIn("serves a cluster", other.stderr)

    def test_two_with_state_directories_do_not_cross(self):
        one, two = self.cluster("one", hosts=1), self.cluster("two", hosts=2)
        one.start()
        two.start()
        self.assertEqual(len(one.ready_hosts()), 1)
        self.assertEqual(len(two.ready_hosts()), 2)
        one.stop()
        self.assertEqual(len(two.ready_hosts()), 2)

    def test_a_path_too_long_for_a_socket(self):
        state = self.dir / ("x" * 60) / ("y" * 60)
        process = self.dev("--hosts", 1, "--state-dir", state)
        said = self.wait_ready(process)
        self.assertIn(f"export REGROW_CLUSTER={state}", said)
        self.assertIn("h1", self.regrow("hosts", REGROW_CLUSTER=str(state)).stdout)
        self.assertIn(".sock", (state / "cluster").read_text())

    def test_a_controller_and_an_agent_without_options_find_each_other(self):
        binary = str(find_binary())
        socket = f"unix:{self.dir}/run/regrow/regrow.sock"
        controller = KeptProcess([binary, "controller"], self.dir / "c.log", 10, self.environment)
        self.addCleanup(controller.stop)
        agent = KeptProcess(
            [binary, "agent", "--controller", socket, "--allow-user", str(os.geteuid())],
            self.dir / "a.log", 10, self.environment,
        )
        self.addCleanup(agent.stop)
        self.wait("the host is up", lambda: " up " in self.regrow("hosts").stdout)
        done = self.regrow("run", "--set", "devices.count=0", "--", "/bin/echo", "hello")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.regrow("logs", "1").stdout, "hello\n")


if __name__ == "__main__":
    unittest.main()

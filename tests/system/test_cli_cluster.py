"""The command line on a cluster: lists, following, steering, faults, logs, the shell."""

# ctest: timeout=300
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
import unittest

from regrow_cluster import ROOT, ClusterTest

HELLO = ROOT / "recipes/examples/hello.yaml"


class CommandTest(ClusterTest):
    HOSTS = 2

    def regrow(self, *arguments, code=0, **more):
        """Runs a command and checks its exit code; returns the answer."""
        answer = self.cluster.run(*arguments, check=False, **more)
        self.assertEqual(answer.code, code, f"{arguments}: {answer.out}\n{answer.err}")
        return answer

    def spawn(self, *arguments, **more):
        argv, environment = self.cluster.command(*arguments)
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def read_until(self, process, text, timeout=20):
        """Reads lines until one contains `text`; returns all of them."""
        lines = []
        watchdog = threading.Timer(timeout, process.kill)
        watchdog.start()
        try:
            while not lines or text not in lines[-1]:
                line = process.stdout.readline()
                self.assertTrue(line, f"{text!r} did not come within {timeout} s; so far: {lines}")
                lines.append(line)
        finally:
            watchdog.cancel()
        return lines

    def sleeper(self, ranks=1, seconds=600):
        return self.write_recipe("sleeper", ranks=ranks, command=["sleep", seconds],
                                 timeouts={"stop_grace": "1s"})  # fmt: skip

    def wait_for_phase(self, job, phase, timeout=20):
        self.cluster.wait_for(
            f"job {job} to be {phase}", lambda: self.cluster.job(job).phase == phase, timeout
        )


class Lists(CommandTest):
    def test_tables_for_people_and_json_for_programs(self):
        job = self.submit(self.sleeper(ranks=2))
        self.wait_for_phase(job, "running")
        for command, title, cell in (
            (["jobs"], "JOB ", "sleeper"),
            (["hosts"], "HOST ", "h2"),
            (["devices", "--host", "h1"], "HOST ", "sim0"),
            (["ranks", job], "RANK ", "running"),
        ):
            with self.subTest(command[0]):
                text = self.regrow(*command).out
                self.assertTrue(text.startswith(title) or title in text.splitlines()[0], text)
                self.assertIn(cell, text)
                self.assertNotIn("\033", text, "no colour without a terminal")
                rows = json.loads(self.regrow(*command, "-o", "json").out)
                self.assertIsInstance(rows, list)
                self.assertEqual(len(rows), len(text.splitlines()) - 1)
        status = json.loads(self.regrow("status", "-o", "json").out)
        self.assertEqual(status["hosts_up"], 2)
        self.assertIn("2 of 2 up", self.regrow("status").out)

    def test_what_is_not_there_is_exit_code_2(self):
        for command in (["ranks", 999], ["show", "job/999"], ["attach", 999], ["cancel", 999], ["logs", 999],
                        ["cordon", "h99", "--reason", "x"], ["fault", "kill-rank", 999, 0],
                        ["events", 999], ["fault", "device", "h1", "sim999"]):  # fmt: skip
            with self.subTest(command):
                answer = self.regrow(*command, code=2)
                self.assertEqual(answer.out, "")
                self.assertRegex(answer.err, r"999|h99")

    def test_show_says_that_the_state_equals_its_journal(self):
        job = self.submit(self.sleeper())
        self.wait_for_phase(job, "running")
        for entity in ("cluster", "h1", "h1/sim0", str(job), f"group/{job}/0", f"{job}/0"):
            with self.subTest(entity):
                text = self.regrow("show", entity).out
                self.assertIn("equal to the fold of its journal", text)
                self.assertNotIn("NOT equal", text)
                self.assertIn("last decisions", text)
        text = self.regrow("show", job, "--env").out
        self.assertRegex(text, r"(?m)^PATH +.*regrow|default|account")

    def test_events_with_their_reasons(self):
        job = self.submit(self.sleeper())
        self.wait_for_phase(job, "running")
        text = self.regrow("events", job).out
        self.assertIn("job_created", text)
        self.assertIn(f"rank/{job}/0", text)
        lines = self.regrow("events", job, "-o", "json").out.splitlines()
        sequences = [json.loads(line)["seq"] for line in lines]
        self.assertEqual(sequences, sorted(set(sequences)))
        self.assertEqual(len(self.regrow("events", "--tail", "3").out.splitlines()), 3)
        follower = self.spawn("events", job, "-f", "--tail", "0", "-o", "json")
        time.sleep(0.5)
        self.regrow("cancel", job, "--reason", "test of events")
        told = self.read_until(follower, "job_ended")
        wish = next(json.loads(line) for line in told if "desired_changed" in line)
        self.assertEqual(wish["reason"], "test of events")
        self.assertRegex(wish["by"], r"^uid:\d+$")
        follower.send_signal(signal.SIGTERM)
        self.assertEqual(follower.wait(10), 130)


class Following(CommandTest):
    def test_run_follows_to_the_end(self):
        answer = self.regrow("run", HELLO, "--set", "progress.total_steps=20", timeout=60)
        self.assertRegex(answer.out, r"^job \d+ \"hello\": 2 ranks")
        self.assertIn("placed on", answer.out)
        self.assertIn("generation 1 runs", answer.out)
        self.assertRegex(answer.out.splitlines()[-1], r"^job \d+ completed: step 20 on 2 ranks in ")
        self.assertNotIn("\r", answer.out)

    def test_a_job_can_be_asked_about_as_soon_as_its_number_is_known(self):
        for _ in range(10):  # `run` asks at once, over the connection that has just brought the number
            self.regrow("run", "--set", "devices.count=0", "--", "/bin/true")

    def test_run_of_a_plain_command(self):
        answer = self.regrow("run", "--set", "devices.count=0", "--", "/bin/sh", "-c", "exit 0", timeout=60)
        self.assertIn("completed", answer.out)

    def test_a_failed_job_is_exit_code_1_with_the_first_traceback(self):
        recipe = self.script_recipe("import os\nraise ValueError('bad batch in rank ' + os.environ['RANK'])",
                                    restarts={"program": 0})  # fmt: skip
        answer = self.regrow("run", recipe, code=1, timeout=60)
        self.assertIn("Traceback (most recent call last)", answer.err)
        self.assertIn("ValueError: bad batch in rank 0", answer.err)
        self.assertIn("first to fail: rank 0 on h", answer.err)
        self.assertRegex(answer.err, r"regrow logs \d+ --rank 0 --stderr")

    def test_run_as_json_lines(self):
        recipe = self.write_recipe(command=["true"])
        lines = self.regrow("run", recipe, "-o", "json", timeout=60).out.splitlines()
        rows = [json.loads(line) for line in lines]
        self.assertIn("job", rows[0])
        self.assertEqual(rows[-1]["phase"], "completed")
        self.assertEqual(rows[-1]["exit_code"], 0)
        self.assertTrue(all("seq" in row for row in rows[1:-1]))

    def test_ctrl_c_detaches_and_the_job_goes_on(self):
        run = self.spawn("run", self.sleeper())
        self.read_until(run, "generation 1 runs")
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(15), 130)
        said = run.stderr.read()
        job = int(re.search(r"regrow attach (\d+)", said)[1])
        self.submitted.append(job)
        self.assertEqual(self.cluster.job(job).phase, "running")
        attached = self.spawn("attach", job)
        self.assertIn(f"job {job} sleeper", attached.stdout.readline())
        self.regrow("cancel", job)
        self.assertEqual(attached.wait(20), 1, "a cancelled job has not done its work")

    def test_ctrl_c_twice_asks_to_cancel(self):
        run = self.spawn("run", self.sleeper())
        first = self.read_until(run, "generation 1 runs")[0]
        run.send_signal(signal.SIGINT)
        time.sleep(0.3)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(20), 1)
        job = int(re.match(r"job (\d+)", first)[1])
        self.assertEqual(self.cluster.job(job).phase, "cancelled")
        self.assertIn("asked to cancel", run.stderr.read())

    def test_followers_survive_a_controller_restart(self):
        recipe = self.stub_recipe("--steps", 60, "--delay", 0.1, ranks=2)
        run = self.spawn("run", recipe, "-o", "json")
        self.read_until(run, "generation_running")
        old = self.cluster.kill_controller()
        self.cluster.wait_for_new_controller(old)
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, err)
        rows = [json.loads(line) for line in out.splitlines()]
        sequences = [row["seq"] for row in rows if "seq" in row]
        self.assertEqual(sequences, sorted(set(sequences)), "no event twice")
        self.assertEqual(rows[-1]["phase"], "completed")

    def test_a_terminal_gets_a_line_that_moves(self):
        argv, environment = self.cluster.command("run", HELLO)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(argv[0], argv, {**environment, "TERM": "xterm"})
        self.addCleanup(os.close, terminal)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # how Linux says that the other end is gone
                break
            if not part:
                break
            shown += part
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        text = shown.decode()
        self.assertRegex(text, r"\r\033\[Kjob \d+ hello  \[#+-+\] \d+/20")
        self.assertIn("\033[32m", text, "colours on a terminal")

    def test_one_key_is_one_job(self):
        first = json.loads(self.regrow("submit", self.sleeper(), "--key", "k1", "-o", "json").out)
        self.submitted.append(first["job"])
        again = json.loads(self.regrow("submit", self.sleeper(), "--key", "k1", "-o", "json").out)
        self.assertEqual(first["job"], again["job"])

    def test_dry_run_only_shows_where(self):
        before = len(self.cluster.jobs())
        recipe = self.write_recipe(ranks=4, devices={"count": 1}, command=["true"])
        text = self.regrow("run", recipe, "--dry-run").out
        self.assertEqual(text.count("sim"), 4, text)
        answer = self.regrow("submit", recipe, "--dry-run", "--set", "ranks=5", code=1)
        self.assertIn("cannot be placed", answer.err)
        self.assertEqual(len(self.cluster.jobs()), before)


class Logs(CommandTest):
    SCRIPT = """
import os, sys, time
for i in range(5):
    print(f"out {i} of {os.environ['RANK']}", flush=True)
    print(f"err {i} of {os.environ['RANK']}", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
print("last", flush=True)
"""

    def test_all_ranks_one_rank_stderr_and_the_tail(self):
        job = self.submit(self.script_recipe(self.SCRIPT, ranks=2), {"command": ["script.py", "0"]})
        self.assert_ended(job, "completed")
        both = self.regrow("logs", job).out.splitlines()
        self.assertIn("rank 0 | out 4 of 0", both)
        self.assertIn("rank 1 | out 4 of 1", both)
        one = self.regrow("logs", job, "--rank", 1).out.splitlines()
        self.assertEqual(one, [f"out {i} of 1" for i in range(5)] + ["last"])
        err = self.regrow("logs", job, "--rank", 0, "--stderr", "--tail", 2).out.splitlines()
        self.assertEqual(err, ["err 3 of 0", "err 4 of 0"])
        self.regrow("logs", job, "--rank", 7, code=2)
        row = json.loads(self.regrow("logs", job, "--rank", 0, "-o", "json").out.splitlines()[0])
        self.assertEqual((row["rank"], row["stream"], row["line"]), (0, "stdout", "out 0 of 0"))

    def test_a_log_on_a_host_that_is_away_is_a_failure_not_a_missing_controller(self):
        job = self.submit(self.script_recipe(self.SCRIPT), {"command": ["script.py", "0"]})
        self.assert_ended(job, "completed")
        host = self.cluster.ranks(job)[0].host

        def connected():
            hosts = json.loads(self.regrow("hosts", "-o", "json").out)
            return next(h["connected"] for h in hosts if h["name"] == host)

        self.regrow("fault", "cut-link", host, "--for", "3s")
        self.cluster.wait_for("the link to be cut", lambda: not connected())
        answer = self.regrow("logs", job, "--rank", 0, code=1)
        self.assertIn(f"the log is on host {host}, which is not connected now", answer.err)
        self.cluster.wait_for("the link to come back", connected)
        self.assertIn("out 4 of 0", self.regrow("logs", job, "--rank", 0).out)

    def test_following_ends_with_the_job(self):
        job = self.submit(self.script_recipe(self.SCRIPT), {"command": ["script.py", "2"]})
        self.wait_for_phase(job, "running")
        follower = self.spawn("logs", job, "-f")
        self.read_until(follower, "last")
        self.assertEqual(follower.wait(20), 0)


class Steering(CommandTest):
    def test_pause_and_resume(self):
        job = self.submit(self.sleeper(ranks=2))
        self.wait_for_phase(job, "running")
        self.regrow("pause", job, "--reason", "make room")
        self.cluster.wait_for("the pause", lambda: " paused " in self.regrow("jobs").out)
        self.assertTrue(all(r.process != "running" for r in self.cluster.ranks(job)))
        self.regrow("resume", job)
        self.wait_for_generation(job, 2)

    def test_a_cordoned_host_gets_nothing(self):
        self.regrow("cordon", "h1", "--reason", "fan is loud")
        try:
            self.assertRegex(self.regrow("hosts").out, r"h1 .*cordoned.*fan is loud \(by uid:")
            job = self.submit(self.write_recipe(ranks=2, devices={"count": 1}, command=["sleep", 600]))
            self.wait_for_phase(job, "running")
            self.assertEqual({r.host for r in self.cluster.ranks(job)}, {"h2"})
        finally:
            self.regrow("uncordon", "h1")
        self.assertNotIn("cordoned", self.regrow("hosts").out)

    def test_faults_on_purpose(self):
        self.assertIn("fault", self.regrow("fault", "device", "h1", "sim1", "--text", "bad memory").out)
        faulty = lambda: "bad memory" in self.regrow("devices").out  # noqa: E731
        self.cluster.wait_for("the fault", faulty)
        self.regrow("fault", "device", "h1", "sim1", "--heal")
        self.cluster.wait_for("the device to heal", lambda: not faulty())
        job = self.submit(self.sleeper(ranks=2))
        self.wait_for_phase(job, "running")
        self.regrow("fault", "kill-rank", job, 1)
        self.wait_for_generation(job, 2)
        incident = self.events(job, "IncidentOpened")[0]
        self.assertIn("not by us", incident.reason)
        self.regrow("fault", "cut-link", "h2", "--for", "1500ms")
        connected = lambda: [r["connected"] for r in self.cluster.json("hosts") if r["name"] == "h2"][0]  # noqa: E731
        self.cluster.wait_for("the link to be cut", lambda: not connected(), timeout=10)
        self.cluster.wait_for("the link to be back", connected, timeout=15)
        for host, what in (("h1", f"signal 9 to pid .*, rank 1 of job {job}"), ("h2", r"link of h2 is cut for 1\.5 s")):
            noted = [e for e in self.cluster.events(f"host/{host}") if e.kind == "FaultInjected"][-1]
            self.assertRegex(noted.reason, what)
            self.assertRegex(noted.by, r"^uid:\d+$")


class Shell(CommandTest):
    def test_commands_from_arguments_and_stdin(self):
        job = self.submit(self.sleeper(ranks=2))
        self.wait_for_phase(job, "running")
        text = self.regrow("shell", "-c", f"cd job/{job}", "-c", "pwd", "-c", "ls", "-c", "show", "-c", "why").out
        self.assertIn(f"job/{job}\n", text)
        self.assertIn(f"group/{job}/0", text)
        self.assertIn("equal to the fold of its journal", text)
        self.assertRegex(text, r"messages? waiting, restarted 0 times")
        tree = self.regrow("shell", "-c", "tree").out
        self.assertIn("\n  host/h1", tree)
        self.assertIn(f"\n      rank/{job}/1", tree)
        argv, environment = self.cluster.command("shell")
        done = subprocess.run(argv, env=environment, input=f"cd {job}\ncd group/{job}/0\ncd 1\npwd\nevents . 2\njobs\n",
                              capture_output=True, text=True, timeout=30)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"rank/{job}/1\n", done.stdout)
        self.assertIn("sleeper", done.stdout)

    def test_a_script_stops_at_the_first_failure(self):
        answer = self.regrow("shell", "-c", "pwd", "-c", "lss", "-c", "hosts", code=2)
        self.assertEqual(answer.out, "cluster\n")
        self.assertIn("did you mean ls?", answer.err)
        self.regrow("shell", "-c", "cd job/999", code=2)

    def test_completion_and_history_on_a_terminal(self):
        argv, environment = self.cluster.command("shell")
        environment = {**environment, "TERM": "xterm", "HOME": str(self.dir), "XDG_STATE_HOME": str(self.dir)}
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(argv[0], argv, environment)
        self.addCleanup(os.close, terminal)
        self.expect(terminal, "regrow cluster> ")
        os.write(terminal, b"cd host/h2\t\n")
        self.expect(terminal, "regrow host/h2> ")
        os.write(terminal, b"nonsense\n")
        self.expect(terminal, "there is no command")
        os.write(terminal, b"sho\t\n")
        self.expect(terminal, "equal to the fold")
        os.write(terminal, b"quit\n")
        deadline = time.monotonic() + 10
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertIn("cd host/h2", (self.dir / "regrow/shell_history").read_text())

    def expect(self, terminal, text, timeout=15):
        shown = ""
        deadline = time.monotonic() + timeout
        while text not in shown:
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            self.assertTrue(ready, f"{text!r} did not come: {shown!r}")
            shown += os.read(terminal, 4096).decode()


if __name__ == "__main__":
    unittest.main()

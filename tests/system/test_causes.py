"""Who ended, why, and what it costs: causes, budgets, deadlines. Scenarios 05, 10, 19, 38."""

# ctest: timeout=180
import os
import signal
import time
import unittest

from regrow_cluster import ClusterTest, is_alive

WAITS = "import time\nprint('step 1', flush=True)\ntime.sleep(1000)\n"
NO_RESTARTS = {"killed": 0, "program": 0, "early_exit": 0, "start_up": 0}
PROGRESS = {"pattern": "^step (?P<step>[0-9]+)"}


class Causes(ClusterTest):
    def test_a_rank_killed_from_outside_is_no_success(self):
        """Scenario 05: one rank is killed, the other ends well."""
        script = """
import os, time
if os.environ["RANK"] == "0":
    time.sleep(0.3)
    raise SystemExit(0)
print("step 1", flush=True)
time.sleep(1000)
"""
        job = self.submit(
            self.script_recipe(script, ranks=2, restarts=NO_RESTARTS, timeouts={"finish": "30s"})
        )
        ranks = self.wait_for_generation(job, 1)
        self.cluster.wait_for("rank 0 to end", lambda: not is_alive(ranks[0].pid))
        os.kill(ranks[1].pid, signal.SIGKILL)
        view = self.assert_ended(job, "failed")
        report = self.exits(job)[1][0]
        self.assertEqual((int(report["signal"]), int(report["exit_code"])), (9, 0))
        self.assertFalse(report["ended_by_us"])
        self.assertIn("signal 9", view.reason)

    def test_those_that_we_ended_are_never_the_root(self):
        job = self.submit(
            self.script_recipe(WAITS, ranks=4, restarts=NO_RESTARTS, progress=PROGRESS)
        )
        ranks = self.cluster.wait_for_step(job, 1)
        os.kill(ranks[2].pid, signal.SIGKILL)
        self.assert_ended(job, "failed")
        incident = self.events(job, "IncidentOpened")
        self.assertEqual([int(e.fields["rank"]) for e in incident], [2])
        exits = self.exits(job)
        self.assertEqual(
            {r: exits[r][0]["ended_by_us"] for r in exits}, {0: True, 1: True, 2: False, 3: True}
        )

    def test_one_rank_that_exits_1_is_seen_though_the_others_go_on(self):
        """Scenario 10, first half: the health of a job is the AND over its ranks."""
        script = """
import os, time
print("step 1", flush=True)
time.sleep(1)
if os.environ["RANK"] == "2":
    raise SystemExit(1)
time.sleep(1000)
"""
        recipe = self.script_recipe(script, ranks=4, ranks_per_host=1, restarts=NO_RESTARTS)
        job = self.submit(recipe)
        self.wait_for_generation(job, 1)
        began = time.monotonic()
        self.assert_ended(job, "failed")
        self.assertLess(time.monotonic() - began, 4)
        incident = self.events(job, "IncidentOpened")[0].fields
        self.assertEqual((int(incident["rank"]), int(incident["exit_code"])), (2, 1))

    def test_a_host_that_falls_silent_is_lost_after_its_time_out(self):
        """Scenario 10, second half. The agent is stopped, not killed: its link stays open."""
        recipe = self.script_recipe(
            WAITS,
            ranks=3,
            ranks_per_host=1,
            progress=PROGRESS,
            timeouts={"host": "2s", "stop_grace": "1s"},
        )
        job = self.submit(recipe)
        before = self.cluster.wait_for_step(job, 1)
        agent = self.cluster.agent_pid(before[2].host)
        os.kill(agent, signal.SIGSTOP)
        try:
            after = self.wait_for_generation(job, 2, timeout=30)
            self.assertNotEqual(after[2].host, before[2].host)
            incident = self.events(job, "IncidentOpened")[0]
            self.assertEqual(incident.fields["failure_class"], "infrastructure")
            self.assertIn(before[2].host, incident.reason)
        finally:
            os.kill(agent, signal.SIGCONT)
        # The host is back: what it still runs of the old generation is ended (F-1).
        self.assert_all_gone([before[2].pid], timeout=15)

    def test_a_death_during_start_up_is_seen_at_once(self):
        """Scenario 38: all ranks are watched from the first moment, not one after the other."""
        script = """
import os, time
time.sleep(1)
if os.environ["RANK"] == "6":
    os.kill(os.getpid(), 9)
time.sleep(60)
print("step 1", flush=True)
"""
        recipe = self.script_recipe(
            script, ranks=8, restarts=NO_RESTARTS, progress=PROGRESS, timeouts={"stop_grace": "1s"}
        )
        job = self.submit(recipe)
        ranks = self.wait_for_generation(job, 1)
        began = time.monotonic()
        incident = self.wait_for_event(job, "IncidentOpened")[0]
        self.assertLess(time.monotonic() - began, 3)
        self.assertEqual(int(incident.fields["rank"]), 6)
        self.assert_ended(job, "failed")
        self.assert_all_gone([r.pid for r in ranks])

    def test_what_cannot_be_started_is_told_apart_from_what_ends_early(self):
        plain = self.write_script("no interpreter line\n", "plain.txt")
        plain.chmod(0o644)
        cases = {
            "missing": (["/no/such/program"], "/no/such/program"),
            "forbidden": ([str(plain)], "ermission"),
        }
        for name, (command, words) in cases.items():
            with self.subTest(name):
                recipe = self.write_recipe(name, command=command, restarts=NO_RESTARTS)
                answer = self.cluster.run("run", recipe, check=False)
                self.assertIn(answer.code, (1, 2))  # refused at once where that can be seen at once
                self.assertIn(words, answer.err)
        early = self.write_recipe("early", command=["/bin/false"], restarts=NO_RESTARTS)
        job = self.submit(early)
        self.assert_ended(job, "failed")
        self.assertEqual(self.events(job, "IncidentOpened")[0].fields["failure_class"], "program")

    def test_a_missing_module_is_named_before_anything_starts(self):
        recipe = self.script_recipe(WAITS, name="needs-a-module", requires=["no_such_module_here"])
        answer = self.cluster.run("run", recipe, check=False)
        self.assertIn(answer.code, (1, 2))
        self.assertIn("no_such_module_here", answer.err)
        self.assertIn("/usr/bin/python3", answer.err)
        for view in self.cluster.jobs():
            if view.name == "needs-a-module":
                self.assertEqual(self.events(view.job, "RankSpawning"), [])


class Budget(ClusterTest):
    def test_only_what_the_program_does_wrong_spends_the_programs_budget(self):
        """Scenario 19, with kill -9 for lost machines; the controller dies in the middle (B-1)."""
        job = self.submit(
            self.stub_recipe(
                "--checkpoint-every", 5, "--delay", 0.02,
                ranks=4,
                restarts={"program": 3, "killed": "unlimited", "backoff": {"initial": "0s"}},
            )
        )  # fmt: skip
        losses = [
            "killed",
            "killed",
            "program",
            "program",
            "killed",
            "program",
            "killed",
            "program",
        ]
        for number, loss in enumerate(losses, start=1):
            self.wait_for_generation(job, number)
            started = int(self.events(job, "GenerationStarted")[-1].fields["resume_step"])
            ranks = self.cluster.wait_for_step(job, max(started, 0) + 7)
            if number == 5:
                old = self.cluster.kill_controller()
                self.cluster.wait_for_new_controller(old)
            if loss == "killed":
                os.kill(ranks[number % 4].pid, signal.SIGKILL)
            else:
                self.order(number % 4, f"exit {number}")
            self.wait_for_event(job, "IncidentOpened", number)
        view = self.assert_ended(job, "failed")
        self.assertIn("program", view.reason)
        found = [e.fields["failure_class"] for e in self.events(job, "IncidentOpened")]
        self.assertEqual(found, losses, "it failed at the last loss and not before")


if __name__ == "__main__":
    unittest.main()

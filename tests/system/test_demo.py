"""Kills do not change the answer, and the death of regrow's own parts harms nobody.

DemoJob trains the example with PyTorch; TakeOver uses stub ranks and cites F-2, R-2 and J-3.
"""

# ctest: timeout=300 serial
import json
import os
import signal
import time
import unittest

from regrow_cluster import EXAMPLE, ClusterTest, identities, is_alive, require_torch


class DemoJob(ClusterTest):
    STEPS = 160

    @classmethod
    def setUpClass(cls):
        require_torch()
        super().setUpClass()

    def train(self, name, delay):
        home = self.dir / name
        home.mkdir()
        return self.submit(
            EXAMPLE / "recipe.yaml",
            {
                "name": name,
                "command": [
                    "train.py",
                    "--steps",
                    self.STEPS,
                    "--checkpoint-every",
                    10,
                    "--step-delay",
                    delay,
                ],
                "checkpoint.directory": str(home / "checkpoints"),
                "env.RESULT_FILE": str(home / "result.json"),
            },
        )

    def result(self, name):
        return json.loads((self.dir / name / "result.json").read_text())

    def test_a_run_with_kills_ends_bit_identical(self):
        calm = self.train("calm", 0)
        self.assert_ended(calm, "completed", timeout=90)
        job = self.train("killed", 0.02)

        ranks = self.cluster.wait_for_step(job, 30)
        os.kill(ranks[2].pid, signal.SIGKILL)

        ranks = self.wait_for_generation(job, 2)
        ranks = self.cluster.wait_for_step(job, 60)
        before = identities(ranks)
        old = self.cluster.kill_controller()
        self.cluster.wait_for_new_controller(old)
        ranks = self.cluster.wait_for_step(job, 75)
        self.assertEqual(identities(ranks), before, "the controller's death restarts nobody (F-2)")

        os.kill(ranks[0].pid, signal.SIGKILL)  # rank 0 hosts the rendezvous
        time.sleep(0.1)
        old = self.cluster.kill_controller()  # in the middle of the recovery
        self.cluster.wait_for_new_controller(old)
        self.wait_for_generation(job, 3, timeout=60)

        self.assert_ended(job, "completed", timeout=120)
        self.assertEqual(self.result("killed"), self.result("calm"))
        self.assertEqual(len(self.events(job, "IncidentOpened")), 2)


class TakeOver(ClusterTest):
    """Ranks outlive the controller and the agents."""

    def start_job(self, *arguments, ranks=4):
        job = self.submit(self.stub_recipe("--checkpoint-every", 5, *arguments, ranks=ranks))
        return job, self.cluster.wait_for_step(job, 6)

    def test_the_controller_killed_again_and_again_restarts_nobody(self):
        job, before = self.start_job()
        for _ in range(3):
            old = self.cluster.kill_controller()
            self.cluster.wait_for_new_controller(old)
        reached = max(r.step for r in self.cluster.ranks(job))
        after = self.cluster.wait_for_step(job, reached + 3)
        self.assert_same_processes(before, after)
        self.assertEqual(self.events(job, "IncidentOpened"), [])

    def test_ranks_run_on_while_there_is_no_controller(self):
        job, before = self.start_job()
        dev = self.cluster.process.pid
        os.kill(dev, signal.SIGSTOP)  # so that nobody starts a new one
        try:
            old = self.cluster.kill_controller()
            newest = len(list((self.dir / "checkpoints").iterdir()))
            deadline = time.monotonic() + 20
            while len(list((self.dir / "checkpoints").iterdir())) < newest + 2:
                self.assertLess(time.monotonic(), deadline, "training stands still")
                time.sleep(0.05)
            answer = self.cluster.run("jobs", check=False)
            self.assertEqual(answer.code, 3)
            self.assertTrue(answer.err.strip(), "it says what is wrong and what to do")
        finally:
            os.kill(dev, signal.SIGCONT)
        self.cluster.wait_for_new_controller(old)
        reached = max(r.step for r in self.cluster.ranks(job))
        self.assert_same_processes(before, self.cluster.wait_for_step(job, reached + 1))

    def test_a_controller_killed_in_the_middle_of_a_recovery_finishes_it_once(self):
        """R-2, J-3: whatever was under way is issued again, and nothing is done twice."""
        job, ranks = self.start_job("--stop-delay", 0.3)
        for round_number, delay in enumerate((0.0, 0.05, 0.2, 0.5), start=1):
            os.kill(ranks[round_number % 4].pid, signal.SIGKILL)
            time.sleep(delay)
            old = self.cluster.kill_controller()
            self.cluster.wait_for_new_controller(old)
            fresh = self.wait_for_generation(job, round_number + 1)
            self.assertEqual(
                [r.incarnation for r in fresh], [r.incarnation + 1 for r in ranks], f"delay {delay}"
            )
            self.assert_all_gone([r.pid for r in ranks])
            started = int(self.events(job, "GenerationStarted")[-1].fields["resume_step"])
            ranks = self.cluster.wait_for_step(job, max(started, 0) + 6)  # a new checkpoint
            self.assertEqual(identities(fresh), identities(ranks))
        self.assertEqual(len(self.events(job, "IncidentOpened")), 4)

    def test_an_agent_killed_and_restarted_keeps_its_ranks(self):
        job, before = self.start_job()
        host = before[1].host
        old_agent = self.cluster.agent_pid(host)
        os.kill(old_agent, signal.SIGKILL)
        self.cluster.wait_for("a new agent", lambda: self.new_agent(host, old_agent))
        reached = max(r.step for r in self.cluster.ranks(job))
        self.assert_same_processes(before, self.cluster.wait_for_step(job, reached + 3))
        self.assertEqual(self.events(job, "IncidentOpened"), [])

    def test_how_a_rank_ended_while_its_agent_was_dead_is_known(self):
        job, before = self.start_job()
        victim = before[2]
        dev = self.cluster.process.pid
        os.kill(dev, signal.SIGSTOP)
        try:
            old_agent = self.cluster.agent_pid(victim.host)
            os.kill(old_agent, signal.SIGKILL)
            self.order(victim.rank, "exit 37")
            deadline = time.monotonic() + 10
            while is_alive(victim.pid):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
        finally:
            os.kill(dev, signal.SIGCONT)
        self.wait_for_generation(job, 2)
        self.assertEqual(int(self.exits(job)[victim.rank][0]["exit_code"]), 37)
        self.assertEqual(int(self.exits(job)[victim.rank][0]["signal"]), 0)

    def test_controller_and_agents_all_killed_at_once(self):
        job, before = self.start_job()
        old = self.cluster.controller_pid()
        agents = {host: self.cluster.agent_pid(host) for host in sorted({r.host for r in before})}
        for pid in [old, *agents.values()]:
            os.kill(pid, signal.SIGKILL)
        self.cluster.wait_for_new_controller(old)
        for host, pid in agents.items():
            self.cluster.wait_for(
                "a new agent", lambda host=host, pid=pid: self.new_agent(host, pid)
            )

        def news():
            ranks = self.cluster.ranks(job)
            return (
                ranks
                if ranks and all(r.step > max(b.step for b in before) for r in ranks)
                else None
            )

        self.assert_same_processes(before, self.cluster.wait_for("news of all ranks", news))

    def new_agent(self, host, old_pid):
        try:
            pid = self.cluster.agent_pid(host)
        except (OSError, ValueError):
            return None
        return pid if pid != old_pid and is_alive(pid) else None


class CtrlC(ClusterTest):
    def test_ends_everything_in_order(self):
        """tearDownClass asserts that Ctrl-C on `regrow dev` left no process behind."""
        job = self.submit(self.stub_recipe(ranks=4))
        pids = [r.pid for r in self.cluster.wait_for_step(job, 2)]
        self.submitted.clear()  # leave it running
        self.assertEqual(self.cluster.stop(), [])
        self.assert_all_gone(pids)


if __name__ == "__main__":
    unittest.main()

"""A lost rank: the job's ranks restart in place, from the last complete checkpoint.

Stub ranks instead of training; whole cluster, real kills. Scenarios 01 and 39.
"""

# ctest: timeout=240
import os
import shutil
import signal
import time
import unittest

from regrow_cluster import ClusterTest, identities

RANKS = 4
NO_PAUSE = {"backoff": {"initial": "0s"}}


class RestartInPlace(ClusterTest):
    def start_job(self, *arguments, **keys):
        recipe = self.stub_recipe("--checkpoint-every", 5, *arguments, ranks=RANKS, **keys)
        job = self.submit(recipe)
        return job, self.cluster.wait_for_step(job, 7)

    def assert_restarted_in_place(self, job, old, failure_class):
        """All ranks run anew where they ran, from a complete checkpoint; old processes are gone."""
        new = self.wait_for_generation(job, 2)
        self.assertEqual([r.host for r in new], [r.host for r in old])
        self.assertEqual([r.incarnation for r in new], [r.incarnation + 1 for r in old])
        self.assert_all_gone([r.pid for r in old])
        incident = self.events(job, "IncidentOpened")
        self.assertEqual(
            len(incident), 1, "one loss is one incident, however many ranks it took (B-1)"
        )
        self.assertEqual(incident[0].fields["failure_class"], failure_class)
        resumed = int(self.events(job, "GenerationStarted")[-1].fields["resume_step"])
        self.assertGreaterEqual(resumed, 5)
        self.assertEqual(resumed % 5, 0)
        after = self.cluster.wait_for_step(job, resumed + 1)
        self.assertEqual(identities(after), identities(new))
        return incident[0]

    def test_after_kill_9(self):
        job, old = self.start_job()
        os.kill(old[2].pid, signal.SIGKILL)
        incident = self.assert_restarted_in_place(job, old, "killed")
        self.assertEqual(incident.fields["rank"], 2)
        self.assertEqual(incident.fields["signal"], 9)

    def test_after_exit_1(self):
        job, old = self.start_job()
        self.order(1, "exit 1")
        incident = self.assert_restarted_in_place(job, old, "program")
        self.assertEqual(incident.fields["exit_code"], 1)

    def test_after_an_early_exit_0(self):
        job, old = self.start_job(timeouts={"finish": "1s", "stop_grace": "2s"})
        self.order(3, "exit 0")
        self.assert_restarted_in_place(job, old, "early_exit")

    def test_after_a_stop_signal_when_progress_is_watched(self):
        job, old = self.start_job(timeouts={"progress": "2s", "stop_grace": "1s"})
        os.kill(old[0].pid, signal.SIGSTOP)
        self.assert_restarted_in_place(job, old, "hang")

    def test_after_a_stall_when_progress_is_watched(self):
        job, old = self.start_job(timeouts={"progress": "2s", "stop_grace": "1s"})
        self.order(1, "stall")
        self.assert_restarted_in_place(job, old, "hang")

    def test_without_a_time_out_a_stopped_rank_is_left_alone(self):
        job, old = self.start_job()
        os.kill(old[0].pid, signal.SIGSTOP)
        time.sleep(3)
        self.assertEqual(self.events(job, "IncidentOpened"), [])
        os.kill(old[0].pid, signal.SIGCONT)
        reached = max(r.step for r in self.cluster.ranks(job))
        self.assert_same_processes(old, self.cluster.wait_for_step(job, reached + 2))

    def test_two_losses_at_once_are_one_incident(self):
        job, old = self.start_job()
        for rank in (1, 3):
            os.kill(old[rank].pid, signal.SIGKILL)
        self.assert_restarted_in_place(job, old, "killed")

    def test_a_job_that_finishes_is_completed_and_its_devices_are_free(self):
        job = self.submit(
            self.stub_recipe(
                "--steps", 5, "--delay", 0.01, ranks=RANKS, devices={"kind": "any", "count": 2}
            )
        )
        self.assert_ended(job, "completed")
        again = self.submit(
            self.stub_recipe(
                "--steps", 5, "--delay", 0.01, ranks=RANKS, devices={"kind": "any", "count": 2}
            )
        )
        self.assert_ended(again, "completed")


class WhichCheckpoint(ClusterTest):
    def make_checkpoint(self, step, ranks=8, marker=True, truncate=None, shards=None):
        path = self.dir / f"checkpoints/step_{step}"
        path.mkdir(parents=True)
        for rank in range(ranks if shards is None else shards):
            (path / f"rank_{rank}.pt").write_text(f"state of step {step}\n")
        if marker:
            lines = [f"{p.stat().st_size} {p.name}\n" for p in sorted(path.glob("rank_*.pt"))]
            (path / "COMPLETE").write_text("".join(lines))
        if truncate is not None:
            (path / f"rank_{truncate}.pt").write_text("")
        return path

    def generation_of(self, job, number):
        started = self.events(job, "GenerationStarted")
        return next(e.fields for e in started if int(e.fields["generation"]) == number)

    def test_the_newest_complete_one_and_never_a_torn_one(self):
        """Scenario 01: half a checkpoint has the highest number, and `latest` points to it."""
        self.make_checkpoint(100)
        self.make_checkpoint(200)
        torn = self.make_checkpoint(300, marker=False, shards=5, truncate=4)
        (self.dir / "checkpoints/latest").write_text("300\n")
        job = self.submit(self.stub_recipe("--delay", 0.1, ranks=8))
        old = self.wait_for_generation(job, 1)
        self.assertEqual(int(self.generation_of(job, 1)["resume_step"]), 200)
        os.kill(old[6].pid, signal.SIGKILL)
        new = self.wait_for_generation(job, 2)
        started = self.generation_of(job, 2)
        self.assertEqual(int(started["resume_step"]), 200)
        self.assertTrue(started["resume_path"].endswith("/checkpoints/step_200"))
        rejected = [text for text in started["rejected"] if "step_300" in text]
        self.assertEqual(len(rejected), 1, started["rejected"])
        self.assertIn("/8", rejected[0])
        self.assertIn("marker", rejected[0])
        self.assertTrue(torn.exists(), "a torn checkpoint is not ours to delete")
        environment = open(f"/proc/{new[6].pid}/environ").read().split("\0")
        self.assertIn("REGROW_RESUME_STEP=200", environment)

    def test_one_that_is_torn_after_it_was_complete_is_passed_over(self):
        self.make_checkpoint(10, ranks=2)
        self.make_checkpoint(20, ranks=2)
        job = self.submit(self.stub_recipe("--delay", 0.1, ranks=2))
        old = self.wait_for_generation(job, 1)
        self.assertEqual(int(self.generation_of(job, 1)["resume_step"]), 20)
        with open(self.dir / "checkpoints/step_20/rank_1.pt", "a") as shard:
            shard.truncate(3)  # marker and all files are there; one has another size than listed
        os.kill(old[0].pid, signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.assertEqual(int(self.generation_of(job, 2)["resume_step"]), 10)

    def test_without_any_it_starts_from_the_beginning(self):
        job = self.submit(self.stub_recipe("--delay", 0.1, ranks=2))
        old = self.wait_for_generation(job, 1)
        os.kill(old[0].pid, signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.assertEqual(int(self.generation_of(job, 2)["resume_step"]), -1)
        self.assertEqual(self.generation_of(job, 2)["resume_path"], "")

    def test_one_that_vanished_is_not_missed(self):
        self.make_checkpoint(10, ranks=2)
        newest = self.make_checkpoint(20, ranks=2)
        job = self.submit(self.stub_recipe("--delay", 0.1, ranks=2))
        old = self.wait_for_generation(job, 1)
        shutil.rmtree(newest)
        os.kill(old[0].pid, signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.assertEqual(int(self.generation_of(job, 2)["resume_step"]), 10)


class LoopsWithoutProgress(ClusterTest):
    def test_the_same_step_again_and_again_stops_the_job(self):
        """Scenario 39: resumes at the same step and dies at the same step."""
        script = """
import os, sys, time
step = 200
while step < 203:
    time.sleep(0.02)
    step += 1
    print(f"step {step} loss 1.0", flush=True)
os.kill(os.getpid(), 9)
"""
        job = self.submit(
            self.script_recipe(
                script,
                ranks=2,
                progress={"pattern": "^step (?P<step>[0-9]+)"},
                restarts={
                    "killed": "unlimited",
                    "max_without_progress": 3,
                    "backoff": {"initial": "0s"},
                },
            )
        )

        def stopped():
            view = self.cluster.job(job)
            return view if view.phase == "failed" or view.desired == "hold" else None

        view = self.cluster.wait_for("the loop to be noticed", stopped, 30)
        self.assertIn("progress", view.reason)
        self.assertIn("203", view.reason)
        incidents = len(self.events(job, "IncidentOpened"))
        self.assertLessEqual(incidents, 4)
        time.sleep(1)
        self.assertEqual(
            len(self.events(job, "IncidentOpened")), incidents, "it is not tried again"
        )

    def test_failures_at_rising_steps_go_on(self):
        job = self.submit(
            self.stub_recipe(
                "--checkpoint-every", 5, "--delay", 0.02, "--steps", 200,
                ranks=2,
                restarts={"killed": "unlimited", "max_without_progress": 2, **NO_PAUSE},
            )
        )  # fmt: skip
        for round_number in range(1, 6):
            ranks = self.wait_for_generation(job, round_number)
            started = int(self.events(job, "GenerationStarted")[-1].fields["resume_step"])
            ranks = self.cluster.wait_for_step(job, max(started, 0) + 8)
            os.kill(ranks[0].pid, signal.SIGKILL)
        self.assert_ended(job, "completed", timeout=40)


if __name__ == "__main__":
    unittest.main()

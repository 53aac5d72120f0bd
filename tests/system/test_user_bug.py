"""A bug in the script is not a fault of the machine: two attempts at most, and its own traceback.

Needs PyTorch for the last test only: there the rank that fails first takes its peers with it, and
theirs are the louder last words.
"""

# ctest: timeout=240
import time
import unittest

from regrow_cluster import EXAMPLE, ClusterTest, as_set_arguments, require_torch

BUGGY = """
import os, time
rank = int(os.environ["RANK"])
for step in range(1, 6):
    time.sleep(0.05)
    print(f"step {step} loss 1.0", flush=True)
if rank == 1:
    raise KeyError("learning_rate")
time.sleep(1000)
"""


class UserBug(ClusterTest):
    def test_the_same_error_at_the_same_step_stops_after_two_attempts(self):
        recipe = self.script_recipe(
            BUGGY,
            ranks=3,
            progress={"pattern": "^step (?P<step>[0-9]+)"},
            restarts={"program": 10, "backoff": {"initial": "0s"}},
        )
        began = time.monotonic()
        answer = self.cluster.run("run", str(recipe), check=False, timeout=60)
        self.assertEqual(answer.code, 1, answer.err)
        self.assertIn('raise KeyError("learning_rate")', answer.err)
        self.assertIn("KeyError: 'learning_rate'", answer.err)
        self.assertLess(time.monotonic() - began, 30)
        job = max(view.job for view in self.cluster.jobs())
        self.assertEqual(self.cluster.job(job).phase, "failed")
        self.assertLessEqual(len(self.events(job, "GenerationStarted")), 2)
        for device in self.cluster.json("devices"):
            self.assertEqual(device.get("health", "ok"), "ok", "no device is blamed")

    def test_an_error_at_start_up_is_the_same(self):
        recipe = self.script_recipe(
            "import no_such_module_here\n", ranks=2, restarts={"program": 10}
        )
        answer = self.cluster.run("run", str(recipe), check=False, timeout=60)
        self.assertEqual(answer.code, 1, answer.err)
        self.assertIn("ModuleNotFoundError: No module named 'no_such_module_here'", answer.err)

    def test_another_step_is_another_attempt(self):
        """The same text at rising steps may be no bug: it is retried while the budget lasts."""
        job = self.submit(
            self.stub_recipe(
                "--checkpoint-every",
                5,
                ranks=2,
                restarts={"program": 2, "backoff": {"initial": "0s"}},
            )
        )
        for generation in (1, 2, 3):
            self.wait_for_generation(job, generation)
            started = int(self.events(job, "GenerationStarted")[-1].fields["resume_step"])
            self.cluster.wait_for_step(job, max(started, 0) + 7)
            self.order(0, "raise out of sorts")
        view = self.assert_ended(job, "failed")
        self.assertEqual(len(self.events(job, "IncidentOpened")), 3)
        self.assertIn("program", view.reason)

    def test_with_ddp_it_is_the_first_failing_rank_that_is_shown(self):
        require_torch()
        settings = {
            "command": ["train.py", "--steps", 60, "--checkpoint-every", 10, "--bug-at-step", 15],
            "checkpoint.directory": str(self.dir / "checkpoints"),
        }
        answer = self.cluster.run(
            "run", EXAMPLE / "recipe.yaml", *as_set_arguments(settings), check=False, timeout=100
        )
        self.assertEqual(answer.code, 1, answer.err)
        self.assertIn("ValueError: cannot digest the batch of step 15", answer.err)
        self.assertNotRegex(
            answer.err, "Connection (closed|reset) by peer", "not a victim's traceback"
        )
        job = max(view.job for view in self.cluster.jobs())
        self.assertLessEqual(len(self.events(job, "GenerationStarted")), 2)


if __name__ == "__main__":
    unittest.main()

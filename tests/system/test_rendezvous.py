"""A job of `rendezvous: store`: its ranks meet in a store of regrow's that outlives their restarts."""

# ctest: timeout=240
import os
import signal
import unittest

from regrow_cluster import EXAMPLE, ClusterTest, require_torch


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = file.read().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


def store_pids(job):
    """Processes that run a store; they carry the job's number like ranks do."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
            if len(arguments) < 3 or arguments[1] != b"-c" or b"TCPStore" not in arguments[2]:
                continue
            if environment_of(name).get("REGROW_JOB") == str(job):
                found.append(int(name))
        except OSError:
            pass
    return found


class RendezvousStore(ClusterTest):
    def setUp(self):
        require_torch()
        super().setUp()

    def pids(self, job):
        return {rank.rank: rank.pid for rank in self.cluster.ranks(job)}

    def test_the_store_outlives_a_restart_of_the_ranks_and_its_own_death_costs_nothing(self):
        settings = {
            "command": ["train.py", "--steps", 4000, "--checkpoint-every", 20, "--step-delay", 0.02],
            "checkpoint.directory": str(self.dir / "checkpoints"),
            "rendezvous": "store",
        }
        job = self.submit(EXAMPLE / "recipe.yaml", settings)
        self.cluster.wait_for_step(job, 25)
        stores = store_pids(job)
        self.assertEqual(len(stores), 1)
        before = self.pids(job)
        environment = environment_of(before[1])
        self.assertEqual(environment["TORCHELASTIC_USE_AGENT_STORE"], "True")

        os.kill(before[0], signal.SIGKILL)
        self.wait_for_generation(job, 2)
        self.cluster.wait_for_step(job, 45)
        self.assertEqual(store_pids(job), stores, "the same store")
        after = self.pids(job)
        again = environment_of(after[1])
        self.assertEqual(again["MASTER_PORT"], environment["MASTER_PORT"])
        count = "TORCHELASTIC_RESTART_COUNT"
        self.assertNotEqual(again[count], environment[count], "keys of its own in the same store")

        os.kill(stores[0], signal.SIGKILL)
        self.cluster.wait_for_step(job, max(r.step for r in self.cluster.ranks(job)) + 20)
        self.assertEqual(self.pids(job), after, "no rank was touched")
        os.kill(after[2], signal.SIGKILL)
        self.wait_for_generation(job, 3)
        self.cluster.wait_for_step(job, self.cluster.job(job).step + 5)
        self.assertNotEqual(store_pids(job), stores)

        self.cluster.run("cancel", str(job), "--reason", "the test is over")
        self.assert_ended(job, "cancelled")
        self.cluster.wait_for("the store to end", lambda: not store_pids(job), timeout=40)

    def test_without_torch_rank_0_hosts_the_rendezvous_and_the_reason_says_so(self):
        recipe = self.script_recipe(
            "import os\nassert os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'False'\n"
            "assert int(os.environ['MASTER_PORT']) > 0\n",
            ranks=2,
            rendezvous="store",
            env={"PYTHONPATH": str(self.dir / "shadow")},
        )
        (self.dir / "shadow/torch").mkdir(parents=True)
        (self.dir / "shadow/torch/__init__.py").write_text("raise ImportError('a broken torch')\n")
        job = self.submit(recipe)
        self.assert_ended(job, "completed", timeout=60)
        self.assertIn("a broken torch", self.events(job, "GenerationStarted")[0].reason)


if __name__ == "__main__":
    unittest.main()

"""A rank that prints without end harms neither the disk nor its neighbours. Scenario 28."""

# ctest: timeout=120
import os
import time
import unittest

from regrow_cluster import ClusterTest

MIB = 1 << 20


def resident_mib(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0


class LogFlood(ClusterTest):
    HOSTS = 1

    def log_bytes(self):
        """Disk use of the state directory: everything that a flood may have filled."""
        total = 0
        for folder, _, names in os.walk(self.cluster.state):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except OSError:
                    pass
        return total

    def test_stays_within_its_cap_and_keeps_both_ends(self):
        recipe = self.write_recipe(
            command=[
                "/bin/sh",
                "-c",
                "echo the very first line; exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            ],
            logs={"cap": "8MiB", "segment": "1MiB"},
            timeouts={"stop_grace": "2s"},
        )
        before = self.log_bytes()
        job = self.submit(recipe)
        self.wait_for_generation(job, 1)
        agent = self.cluster.agent_pid("h1")
        memory = resident_mib(agent)
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            self.assertLess(
                self.log_bytes() - before,
                8 * MIB + 1 * MIB + 2 * MIB,
                "cap + segment + the journal",
            )
            time.sleep(0.2)
        self.assertLess(resident_mib(agent) - memory, 30, "the agent's memory stays flat")

        began = time.monotonic()
        tail = self.cluster.run("logs", str(job), "--rank", "0", "--tail", "20")
        took = time.monotonic() - began
        self.assertEqual(len(tail.out.splitlines()), 20)
        self.assertLess(
            took, 0.5
        )  # 0.1 s for the answer itself; the rest is the start of the command

        whole = self.cluster.run("logs", str(job), "--rank", "0")
        self.assertTrue(whole.out.startswith("the very first line"), whole.out[:200])
        self.assertRegex(whole.err[:2000], r"\d+ bytes .*dropped|dropped .*\d+ bytes")
        self.cluster.run("cancel", str(job))
        self.assert_ended(job, "cancelled")

    def test_a_quiet_neighbour_is_not_slowed_down(self):
        flood = self.submit(
            self.write_recipe(
                "flood", command=["/usr/bin/yes"], logs={"cap": "8MiB", "segment": "1MiB"}
            )
        )
        self.wait_for_generation(flood, 1)
        job = self.submit(self.stub_recipe("--steps", 20, "--delay", 0.05))
        self.assert_ended(job, "completed", timeout=15)

    def test_the_last_words_of_a_dying_rank_are_whole(self):
        script = """
import sys
for i in range(20000):
    print("noise", i)
sys.stdout.flush()
raise RuntimeError("this is the reason")
"""
        job = self.submit(self.script_recipe(script, restarts={"program": 0}))
        self.assert_ended(job, "failed")
        report = self.exits(job)[0][0]
        self.assertTrue(report["last_words"].rstrip().endswith("RuntimeError: this is the reason"))
        self.assertIn("Traceback", report["last_words"])
        self.assertIn("RuntimeError: this is the reason", report["error_line"])


if __name__ == "__main__":
    unittest.main()

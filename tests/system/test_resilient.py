"""A job of `recovery: rank`: survivors of a fault keep their process, and no step is lost (R-3, C-1)."""

# ctest: timeout=400
import difflib
import os
import re
import signal
import socket
import subprocess
import threading
import unittest
from pathlib import Path

from regrow_cluster import PYTHON, ROOT, ClusterTest, identities, require_torch

EXAMPLE = ROOT / "recipes/examples/resilient"
STEPS = 110


def setUpModule():
    require_torch()


def digest_in(text):
    found = re.findall(r"parameters sha256 ([0-9a-f]{64})", text)
    return found[-1] if found else None


class Resilient(ClusterTest):
    HOSTS = 4
    DEVICES = 2

    undisturbed = None  # the parameters of a run that nobody disturbs

    def train(self, *arguments, steps=STEPS, delay=0.02, script=EXAMPLE / "train.py", **settings):
        command = [str(script), "--steps", steps, "--step-delay", delay, "--checkpoints", str(self.dir / "c"),
                   *arguments]  # fmt: skip
        settings = {"command": command, "checkpoint.directory": str(self.dir / "c"), **settings}
        return self.submit(EXAMPLE / "recipe.yaml", settings)

    def digest(self, job):
        return digest_in(self.cluster.run("logs", str(job), "--rank", "0").out)

    def assert_same_as_undisturbed(self, job):
        """The very same parameters, bit for bit, as without any fault."""
        cls = type(self)
        if cls.undisturbed is None:
            alone = self.train(delay=0)
            self.assert_ended(alone, "completed", 60)
            cls.undisturbed = self.digest(alone)
            self.assertIsNotNone(cls.undisturbed)
        self.assertEqual(self.digest(job), cls.undisturbed)

    def kill(self, job, *victims):
        """Kills ranks. Returns who is left, and the newest step that was seen."""
        ranks = self.cluster.ranks(job)
        before = identities(ranks)
        for rank in victims:
            os.kill(before[rank][0], signal.SIGKILL)
        return {r: who for r, who in before.items() if r not in victims}, max(r.step for r in ranks)

    def assert_kept(self, job, kept):
        now = identities(self.cluster.ranks(job))
        self.assertEqual({r: now[r] for r in kept}, kept, "survivors are the same processes")

    def place(self, job, rank):
        row = self.cluster.json("ranks", job)[rank]
        return row["host"], row["devices"][0]

    def formed(self, job):
        return [event.fields for event in self.events(job, "GenerationFormed")]

    def test_each_rank_in_turn(self):
        job = self.train(steps=200)
        for generation, victim in enumerate((2, 0, 3, 1), start=2):
            self.cluster.wait_for_step(job, 35 * generation - 45)
            kept, step = self.kill(job, victim)
            self.wait_for_generation(job, generation)
            self.assert_kept(job, kept)
            self.assertGreaterEqual(int(self.formed(job)[-1]["source_step"]), step, "no step is lost")
        self.assert_ended(job, "completed", 60)
        self.assertEqual(len(self.exits(job)), 4)
        steps = [int(n) for n in re.findall(r"^step (\d+) ", self.cluster.run("logs", str(job), "--rank", "0",
                                                                              "--incarnation", "1").out, re.M)]  # fmt: skip
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "rank 0 did each step once until it died")

    def test_parameters_are_bit_identical_after_two_deaths_at_once(self):
        job = self.train()
        self.cluster.wait_for_step(job, 60)
        kept, _ = self.kill(job, 1, 3)
        self.wait_for_generation(job, 2)
        self.assert_kept(job, kept)
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_all_die_at_once(self):
        job = self.train()
        self.cluster.wait_for_step(job, 60)
        self.kill(job, 0, 1, 2, 3)
        self.assert_ended(job, "completed", 60)
        started = self.events(job, "GenerationStarted")[-1].fields
        self.assertEqual(int(started["resume_step"]), 50)
        self.assert_same_as_undisturbed(job)

    def test_a_device_error_moves_one_rank(self):
        job = self.train()
        self.cluster.wait_for_step(job, 40)
        before = identities(self.cluster.ranks(job))
        host, device = self.place(job, 1)
        self.cluster.run("fault", "device", host, device, "--text", "uncorrectable memory error")
        self.addCleanup(self.cluster.run, "fault", "device", host, device, "--heal")
        self.wait_for_generation(job, 2)
        self.assertNotEqual(self.place(job, 1), (host, device))
        self.assert_kept(job, {r: who for r, who in before.items() if r != 1})
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_the_controller_dies_in_the_middle_of_it(self):
        job = self.train()
        self.cluster.wait_for_step(job, 40)
        kept, step = self.kill(job, 2)
        self.wait_for_event(job, "RecoveryPlanned", 2)
        old = self.cluster.kill_controller()
        self.cluster.wait_for_new_controller(old)
        self.wait_for_generation(job, 2)
        self.assert_kept(job, kept)
        self.assertGreaterEqual(int(self.formed(job)[-1]["source_step"]), step)
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_the_agents_die_while_survivors_rejoin(self):
        job = self.train()
        self.cluster.wait_for_step(job, 40)
        kept, _ = self.kill(job, 0)
        self.wait_for_event(job, "RecoveryPlanned", 2)
        for host in {r.host for r in self.cluster.ranks(job)}:
            os.kill(self.cluster.agent_pid(host), signal.SIGKILL)
        self.wait_for_generation(job, 2, timeout=40)
        self.assert_kept(job, kept)
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_the_new_rank_dies_before_it_has_joined(self):
        job = self.train()
        self.cluster.wait_for_step(job, 40)
        kept, _ = self.kill(job, 3)

        def newcomer():
            row = next(r for r in self.cluster.ranks(job) if r.rank == 3)
            return row.pid if row.incarnation == 2 and row.process == "running" else None

        os.kill(self.cluster.wait_for("the new rank", newcomer, poll=0.01), signal.SIGKILL)
        self.wait_for_generation(job, 3)
        self.assert_kept(job, kept)
        self.assertEqual(len(self.events(job, "IncidentOpened")), 1, "one incident is one unit of budget (B-1)")
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_a_survivor_that_does_not_rejoin_is_replaced(self):
        job = self.train(**{"timeouts.rejoin": "2s"})
        self.cluster.wait_for_step(job, 40)
        stuck = identities(self.cluster.ranks(job))[1][0]
        os.kill(stuck, signal.SIGSTOP)
        kept, _ = self.kill(job, 3)
        del kept[1]
        self.wait_for_generation(job, 3)
        self.assert_kept(job, kept)
        self.assert_all_gone([stuck])
        self.assertIn("did not rejoin within", self.events(job, "RecoveryPlanned")[-1].reason)
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)

    def test_a_script_that_never_rejoins_restarts_as_a_whole(self):
        job = self.train(steps=120, script=EXAMPLE / "plain.py", **{"timeouts.rejoin": "1s"})
        self.cluster.wait_for("step 60", lambda: self.cluster.job(job).step >= 60)
        self.kill(job, 2)
        self.assert_ended(job, "completed", 60)
        planned = self.events(job, "RecoveryPlanned")[-1]
        self.assertEqual((planned.fields["rung"], len(planned.fields["start"])), ("job", 4))

    def test_a_user_bug_stays_one(self):
        script = (EXAMPLE / "train.py").read_text()
        line = "    x, y = batch(n)\n"
        self.assertIn(line, script)
        bug = self.write_script(script.replace(line, line + "    if n == 30 and rank == 2:\n        x = x[:, :3]\n"))
        job = self.train(script=bug)
        view = self.assert_ended(job, "failed", 60)
        self.assertIn("failed twice in the same way", view.reason)
        failure = self.cluster.json("show", f"job/{job}")["state"]["incidents"][-1]
        self.assertEqual(int(failure["rank"]), 2)
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", failure["last_words"])
        self.assertLessEqual(len(self.exits(job)[2]), 2)

    def test_other_connections_of_the_process_are_left_alone(self):
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        lost = []

        def serve(connection):
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data)
            lost.append(connection)

        def accept():
            try:
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        script = (EXAMPLE / "train.py").read_text()
        line = "    x, y = batch(n)\n"
        talk = f"""    global talk
    if n == 1 or "talk" not in globals():
        import socket
        talk = socket.create_connection(("127.0.0.1", {server.getsockname()[1]}))
    talk.sendall(b"x")
    assert talk.recv(1) == b"x", "the connection was broken"
"""
        job = self.train(script=self.write_script(script.replace(line, talk + line)))
        self.cluster.wait_for_step(job, 40)
        kept, _ = self.kill(job, 1)
        self.wait_for_generation(job, 2)
        self.assertEqual(len(lost), 1, "only that of the killed rank")
        self.assert_kept(job, kept)
        self.assert_ended(job, "completed", 60)
        self.assert_same_as_undisturbed(job)


class WithoutRegrow(unittest.TestCase):
    def run_alone(self, script, **variables):
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "transport/rank_client/python"),
                       "OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo",
                       "REGROW_RANK_LIBRARY": self.library(), **variables}  # fmt: skip
        command = [PYTHON, str(EXAMPLE / script), "--steps", "20", "--checkpoints", "/nonexistent"]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def library():
        return str(Path(os.environ["REGROW_BIN_DIR"]).parent / "lib/libregrow_rank.so.1")

    def run_all(self, script):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        ranks = [self.run_alone(script, RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r), MASTER_ADDR="127.0.0.1",
                                MASTER_PORT=port) for r in range(2)]  # fmt: skip
        said = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        return digest_in(said[0][0])

    def test_the_same_script_under_torchrun_and_alone(self):
        plain = self.run_all("plain.py")
        self.assertIsNotNone(plain)
        self.assertIsNotNone(self.run_all("train.py"))
        alone = self.run_alone("train.py")
        out, err = alone.communicate(timeout=60)
        self.assertEqual(alone.returncode, 0, err)
        self.assertIsNotNone(digest_in(out))

    def test_at_most_seven_lines_make_a_script_resilient(self):
        plain, resilient = ((EXAMPLE / name).read_text().splitlines() for name in ("plain.py", "train.py"))
        diff = list(difflib.ndiff(plain, resilient))
        self.assertLessEqual(sum(line.startswith("- ") for line in diff), 7)
        self.assertLessEqual(sum(line.startswith("+ ") for line in diff), 7)


if __name__ == "__main__":
    unittest.main()

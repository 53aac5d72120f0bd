"""What a rank is started with, and what is refused before. Scenarios 16, 30, 31, 32, 34."""

# ctest: timeout=240
import json
import os
import resource
import time
import unittest

from regrow_cluster import ClusterTest, descriptors

TELLS_ITS_ENVIRONMENT = """
import json, os, sys
name = f"env.{os.environ['REGROW_JOB']}.{os.environ['RANK']}"
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
with open(path + ".tmp", "w") as out:
    json.dump(dict(os.environ), out)
os.rename(path + ".tmp", path)
"""
# Of the shell that starts the service, and of the one that submits.
OUTER = {
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
    "CUDA_VISIBLE_DEVICES": "3",
    "RANK": "7",
    "LOCAL_RANK": "7",
    "NCCL_DEBUG": "INFO",
    "OMP_NUM_THREADS": "1",
    "PMI_RANK": "7",
}


class Environment(ClusterTest):
    HOSTS = 2
    ENVIRONMENT = {**os.environ, **OUTER, "SECRET_TOKEN": "of-the-service"}

    def environments(self, job, ranks):
        paths = [self.dir / f"env.{job}.{rank}" for rank in range(ranks)]
        for path in paths:
            self.wait_for_file(path)
        return [json.loads(path.read_text()) for path in paths]

    def submit_from(self, recipe, environment):
        """Submits as another shell would."""
        ours, self.cluster.environment = self.cluster.environment, environment
        try:
            return self.submit(recipe)
        finally:
            self.cluster.environment = ours

    def test_does_not_depend_on_who_typed_the_command_and_where(self):
        """Scenario 30."""
        recipe = self.script_recipe(
            TELLS_ITS_ENVIRONMENT, ranks=2, env={"MY_OWN": "yes"}, pass_env=["HF_TOKEN"]
        )
        bare = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "HF_TOKEN": "h"}
        loud = {**bare, **OUTER, "SECRET_TOKEN": "of-the-submitter", "LANG": "de_DE.UTF-8"}
        found = []
        for environment in (bare, loud):
            job = self.submit_from(recipe, environment)
            self.assert_ended(job, "completed")
            found.append(self.environments(job, 2))
        differ = {"REGROW_JOB", "REGROW_INCARNATION", "MASTER_PORT", "TMPDIR",
                  "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE",
                  "REGROW_SOCKET", "REGROW_TOKEN"}  # fmt: skip
        for one, other in zip(*found):
            self.assertEqual(
                {k: v for k, v in one.items() if k not in differ},
                {k: v for k, v in other.items() if k not in differ},
            )
        for rank, environment in enumerate(found[1]):
            self.assertEqual(environment["RANK"], str(rank))
            self.assertEqual(environment["WORLD_SIZE"], "2")
            self.assertEqual(environment["MY_OWN"], "yes")
            self.assertEqual(environment["HF_TOKEN"], "h")
            self.assertNotIn("of-the-", json.dumps(environment))
            for name in ("SLURM_CPU_BIND", "NCCL_DEBUG", "PMI_RANK", "LD_PRELOAD"):
                self.assertNotIn(name, environment)
            self.assertNotEqual(environment.get("CUDA_VISIBLE_DEVICES"), "3")

    def test_ranks_meet_at_one_address_and_know_their_place(self):
        job = self.submit(
            self.script_recipe(TELLS_ITS_ENVIRONMENT, ranks=4, devices={"kind": "any", "count": 1})
        )
        self.assert_ended(job, "completed")
        found = self.environments(job, 4)
        self.assertEqual(len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found}), 1)
        self.assertEqual([e["RANK"] for e in found], ["0", "1", "2", "3"])
        places = {(e["REGROW_HOST"], e["LOCAL_RANK"]) for e in found}
        self.assertEqual(len(places), 4)
        devices = {(e["REGROW_HOST"], e["REGROW_DEVICES"]) for e in found}
        self.assertEqual(len(devices), 4, "no device is given out twice")


class Ports(ClusterTest):
    HOSTS = 1

    def test_a_port_that_somebody_took_is_replaced_for_all_and_charged_to_nobody(self):
        """Scenario 16: in the first attempt rank 1 grabs the port that rank 0 wants to bind."""
        script = """
import os, socket, sys, time
here = os.path.dirname(os.path.abspath(__file__))
rank, port = os.environ["RANK"], int(os.environ["MASTER_PORT"])
with open(os.path.join(here, "ports"), "a") as out:
    out.write(f"{os.environ['REGROW_GENERATION']} {rank} {port}\\n")
grabbed = os.path.join(here, "grabbed")
listener = socket.socket()
if rank == "1":
    if not os.path.exists(grabbed):
        listener.bind(("127.0.0.1", port))
        listener.listen()
        open(grabbed, "w").close()
        time.sleep(1000)
else:
    while not os.path.exists(grabbed):
        time.sleep(0.01)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    time.sleep(0.5)
"""
        job = self.submit(
            self.script_recipe(script, ranks=2, restarts={"program": 0, "start_up": 0})
        )
        self.assert_ended(job, "completed")
        by_attempt = {}
        for line in (self.dir / "ports").read_text().splitlines():
            attempt, _, port = line.split()
            by_attempt.setdefault(attempt, set()).add(port)
        self.assertEqual(len(by_attempt), 2)
        self.assertTrue(
            all(len(ports) == 1 for ports in by_attempt.values()), "all ranks of one attempt agree"
        )
        self.assertEqual(len(set.union(*by_attempt.values())), 2, "another port")
        charged = [e for e in self.events(job, "IncidentOpened") if e.fields.get("charged")]
        self.assertEqual(charged, [])

    def test_two_jobs_on_one_host_get_different_ports(self):
        script = TELLS_ITS_ENVIRONMENT + "\nimport time\ntime.sleep(1000)\n"
        recipe = self.script_recipe(script)
        ports = set()
        for _ in range(3):
            job = self.submit(recipe)
            path = self.wait_for_file(self.dir / f"env.{job}.0") and self.dir / f"env.{job}.0"
            ports.add(json.loads(path.read_text())["MASTER_PORT"])
        self.assertEqual(len(ports), 3)


class TooLarge(ClusterTest):
    HOSTS = 1

    def refused(self, recipe, *words):
        jobs = len(self.cluster.jobs())
        answer = self.cluster.run("submit", recipe, check=False)
        self.assertEqual(answer.code, 2, answer.err)
        for word in words:
            self.assertIn(word, answer.err)
        self.assertEqual(len(self.cluster.jobs()), jobs, "nothing was accepted")

    def test_a_variable_that_exec_refuses_is_refused_by_name_and_size(self):
        """Scenario 31: the limit is 128 KiB for a single string, not only for all together."""
        recipe = self.write_recipe(command=["/bin/true"], env={"HOST_LIST": "x" * 131072})
        self.refused(recipe, "HOST_LIST", "131")

    def test_so_is_too_much_in_total(self):
        env = {f"PART_{i}": "x" * 100000 for i in range(9)}
        recipe = self.write_recipe(command=["/bin/true"], env=env, working_directory=str(self.dir))
        text = json.loads(recipe.read_text())
        text["command"] = ["/bin/true"] + ["y" * 100000] * 9
        recipe.write_text(json.dumps(text))  # beyond 1 MiB a recipe is refused unread, also with 2
        self.refused(recipe)

    def test_what_just_fits_runs(self):
        script = "import os, sys\nsys.exit(len(os.environ['LIST']) != 130000)\n"
        job = self.submit(self.script_recipe(script, env={"LIST": "x" * 130000}))
        self.assert_ended(job, "completed")


class Typos(ClusterTest):
    HOSTS = 1

    def test_validate_and_submit_give_the_same_verdict(self):
        """Scenario 34. Every one with file, line, path and the nearest name; nothing is started."""
        good = "name: a\nranks: 1\ncommand: [/bin/true]\n"
        cases = {
            "unknown_key": (good + "num_workers: 2\n", ":4:", "ranks"),
            "nested_key": (good + "devices:\n  memroy: 1GiB\n", ":5:", "memory"),
            "wrong_level": (good + "stop_grace: 5s\n", ":4:", "timeouts.stop_grace"),
            "duplicate": (good + "ranks: 2\n", ":4:", "ranks"),
            "text_for_number": (good.replace("1", "four"), ":2:", "ranks"),
            "negative": (good.replace("1", "-1"), ":2:", "ranks"),
            "absurd": (good.replace("1", "1000000000"), ":2:", "ranks"),
            "no_unit": (good + "timeouts:\n  progress: 30\n", ":5:", "30s"),
            "tab": ("name: a\nranks:\n\t1\n", ":3:", "tab"),
            "empty": ("", "empty", ""),
            "anchors": ("a: &a [x,x]\nb: &b [*a,*a]\n" + good, ":1:", ""),
            "missing_key": ("name: a\nranks: 1\n", "command", ""),
        }
        before = len(self.cluster.jobs())
        for name, (text, where, nearest) in cases.items():
            with self.subTest(name):
                path = self.dir / f"{name}.yaml"
                path.write_text(text)
                verdicts = [
                    self.cluster.run(verb, path, check=False) for verb in ("validate", "submit")
                ]
                for answer in verdicts:
                    self.assertEqual(answer.code, 2, answer.err)
                    self.assertIn(f"{name}.yaml", answer.err)
                    self.assertIn(where, answer.err)
                    self.assertIn(nearest, answer.err)
                # The same verdict; submit also says that nothing was submitted.
                self.assertTrue(verdicts[1].err.startswith(verdicts[0].err), verdicts[1].err)
        self.assertEqual(len(self.cluster.jobs()), before)

    def test_several_errors_come_in_one_go(self):
        path = self.dir / "many.yaml"
        path.write_text("name: a\nranks: zero\nnum_workers: 2\ndevices:\n  kind: gpo\n")
        answer = self.cluster.run("validate", path, check=False)
        self.assertEqual(answer.code, 2)
        for word in ("ranks", "num_workers", "gpu", "command"):
            self.assertIn(word, answer.err)

    def test_a_huge_file_ends_at_once(self):
        path = self.dir / "huge.yaml"
        path.write_bytes(b"name: [" + b"a," * (10 << 20))
        began = time.monotonic()
        answer = self.cluster.run("validate", path, check=False)
        self.assertEqual(answer.code, 2)
        self.assertLess(time.monotonic() - began, 1)


class Descriptors(ClusterTest):
    """Scenario 32: low limits and leaks show only at scale."""

    HOSTS = 2
    RANKS = 150
    ROUNDS = 4

    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        cls.hard = min(hard, 4096)
        if hard == resource.RLIM_INFINITY:
            cls.hard = 4096
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            super().setUpClass()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def service_pids(self):
        return [self.cluster.controller_pid(), *(self.cluster.agent_pid(f"h{i}") for i in (1, 2))]

    def test_many_ranks_again_and_again_leak_nothing(self):
        recipe = self.write_recipe(
            command=["/bin/sleep", "1000"], ranks=self.RANKS, timeouts={"stop_grace": "5s"}
        )
        counts = []
        for _ in range(self.ROUNDS):
            job = self.submit(recipe)
            ranks = self.wait_for_generation(job, 1, timeout=60)
            self.assertEqual(len(ranks), self.RANKS)
            pid = ranks[-1].pid
            self.assertEqual(sorted(os.listdir(f"/proc/{pid}/fd")), ["0", "1", "2"])
            limits = open(f"/proc/{pid}/limits").read()
            soft, hard = next(
                l.split()[3:5] for l in limits.splitlines() if l.startswith("Max open files")
            )
            self.assertEqual(soft, hard, "ranks get the hard limit, not the shell's 256")
            self.cluster.run("cancel", str(job))
            self.assert_ended(job, "cancelled", timeout=60)
            counts.append([descriptors(pid) for pid in self.service_pids()])
        for first, last in zip(counts[0], counts[-1]):
            self.assertLessEqual(last, first + 4, f"open descriptors per round: {counts}")


if __name__ == "__main__":
    unittest.main()

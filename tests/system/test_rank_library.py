"""The rank library: what it needs, where it is installed, and what its reports do in a real cluster."""

# ctest: timeout=300
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

from regrow_cluster import PYTHON, ROOT, ClusterTest, is_alive

BUILD = Path(os.environ.get("REGROW_BIN_DIR", ROOT / "build/dev/bin")).absolute().parent
MODULE = ROOT / "transport/rank_client/python"

# Says nothing on its output. `hang` in its directory: rank 1 stops to report from then on.
SILENT = """
import os, sys, time
import regrow

here = os.path.dirname(os.path.abspath(__file__))
info = regrow.init()
assert info.supervised and info.job and info.world_size == 2, info
n = info.resume_step
while not os.path.exists(os.path.join(here, "end")):
    time.sleep(0.02)
    if info.rank == 1 and info.incarnation == 1 and os.path.exists(os.path.join(here, "hang")):
        time.sleep(1000)
    n += 1
    regrow.step(n, loss=1 / (n + 1))
sys.exit(0 if regrow.finish(timeout=20) else 9)
"""

C_RANK = r"""
#include <math.h>
#include <regrow/rank.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
  struct regrow_info info = REGROW_INFO_INIT;
  int supervised = regrow_init(&info);
  long steps = argc > 1 ? atol(argv[1]) : 3;
  struct timespec pause = {0, 2000000};
  for (long n = info.resume_step + 1; n < steps; ++n) {
    if (regrow_step(n, n == 0 ? NAN : 1.0 / n) != 0) return 8;
    nanosleep(&pause, NULL);
  }
  int taken = regrow_finish(20000);
  if (argc > 2) fprintf(stderr, "silent until now\n");
  printf("supervised %d rank %u of %u generation %llu taken %d\n", supervised, info.rank,
         info.world_size, (unsigned long long)regrow_generation(), taken);
  return taken == supervised ? 0 : 9;
}
"""
CXX_RANK = r"""
#include <regrow/rank.hpp>
int main() {
  auto info = regrow::rank::init();
  bool good = regrow::rank::step(info.resume_step + 1, 0.5) && regrow::rank::step(2);
  return good && !regrow::rank::finish() && regrow::rank::generation() == 0 ? 0 : 9;
}
"""


def output_of(*command, **how):
    how.setdefault("timeout", 120)
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how
    )
    text = done.stdout.decode()
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {text}{done.stderr.decode()}")
    return text


def bare(**variables):
    """An environment in which no rank library and no module is to be found by accident."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **variables}


class Library(unittest.TestCase):
    def library(self):
        (found,) = BUILD.glob("lib*/**/libregrow_rank.so.1")
        return found

    def test_it_needs_libc_and_nothing_else_and_has_a_soname(self):
        text = output_of("readelf", "-d", self.library())
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", text))
        self.assertLessEqual(needed, {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})
        self.assertIn("libc.so.6", needed)
        self.assertEqual(re.findall(r"SONAME.*\[(.*)\]", text), ["libregrow_rank.so.1"])

    def test_its_symbols_are_those_of_the_header(self):
        text = output_of("nm", "-D", "--defined-only", self.library())
        symbols = {line.split()[2].split("@")[0] for line in text.splitlines()}
        header = (ROOT / "transport/rank_client/include/regrow/rank.h").read_text()
        declared = set(re.findall(r"^REGROW_API \w+ (regrow_\w+)\(", header, re.MULTILINE))
        self.assertEqual(symbols, declared)
        self.assertEqual(len(declared), 7)

    def test_the_module_is_its_own_mirror_and_says_what_it_could_not_find(self):
        environment = bare(PYTHONPATH=str(MODULE), REGROW_RANK_LIBRARY=str(self.library()))
        script = """
import regrow
info = regrow.init()
assert info == regrow.Info(False, 3, 4, 1, 0, 0, 0, 2, -1, "", ""), info
regrow.step(5)
regrow.step(6, loss=0.5)
try:
    regrow.step(-1)
except ValueError:
    pass
else:
    raise AssertionError("a negative step")
assert regrow.generation() == 0
assert regrow.finish(timeout=60) is False
"""
        torchrun = {
            "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"
        }  # fmt: skip
        output_of(PYTHON, "-c", script, env={**environment, **torchrun}, timeout=30)
        # Where nothing is installed: every place that was tried.
        done = subprocess.run(
            [PYTHON, "-c", "import regrow"],
            env=bare(PYTHONPATH=str(MODULE), REGROW_RANK_LIBRARY="/nowhere/libregrow_rank.so.1"),
            stderr=subprocess.PIPE,
            timeout=30,
        )
        if done.returncode != 0:  # else the machine itself has one
            self.assertIn(b"ImportError: regrow: cannot load", done.stderr)
            self.assertIn(b"/nowhere/libregrow_rank.so.1", done.stderr)

    def test_under_torchrun_nothing_is_sent_and_every_call_succeeds(self):
        if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest(f"{PYTHON} has no module torch (package python3-torch)")
        with tempfile.TemporaryDirectory(prefix="regrow-") as directory:
            script = Path(directory) / "rank.py"
            script.write_text(
                "import regrow, os\n"
                "info = regrow.init()\n"
                "regrow.step(0, 0.5)\n"
                "assert not regrow.finish() and not info.supervised and info.generation == 0\n"
                f"open(os.path.join({directory!r}, f'{{info.rank}}'), 'w').write("
                "f'{info.local_rank} of {info.world_size}')\n"
            )
            output_of(
                PYTHON, ROOT / "tests/peers/torchrun_launch.py", "--standalone",
                "--nproc_per_node=2", script,
                env=bare(PYTHONPATH=str(MODULE), REGROW_RANK_LIBRARY=str(self.library())),
            )  # fmt: skip
            told = [(Path(directory) / str(rank)).read_text() for rank in range(2)]
        self.assertEqual(told, ["0 of 2", "1 of 2"])

    def test_what_a_step_costs_a_script(self):
        script = """
import time, regrow
regrow.init()
start = time.perf_counter()
for n in range(100000):
    regrow.step(n, 0.5)
print(f"{(time.perf_counter() - start) / 100000 * 1e9:.0f}")
"""
        environment = bare(PYTHONPATH=str(MODULE), REGROW_RANK_LIBRARY=str(self.library()))
        cost = output_of(PYTHON, "-c", script, env=environment).strip()
        print(f"INFO regrow.step() without a supervisor: {cost} ns", file=sys.stderr)


class Installed(ClusterTest):
    """`cmake --install`, and a cluster that runs from there."""

    HOSTS = 1

    @classmethod
    def setUpClass(cls):
        cls.prefix = Path(tempfile.mkdtemp(prefix="regrow-")) / "usr"
        cls.addClassCleanup(shutil.rmtree, cls.prefix.parent, ignore_errors=True)
        output_of("cmake", "--install", BUILD, "--prefix", cls.prefix)
        binaries, os.environ["REGROW_BIN_DIR"] = (
            os.environ.get("REGROW_BIN_DIR"),
            str(cls.prefix / "bin"),
        )
        try:
            super().setUpClass()
        finally:
            if binaries is None:
                del os.environ["REGROW_BIN_DIR"]
            else:
                os.environ["REGROW_BIN_DIR"] = binaries

    def pkg_config(self, *what):
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config here")
        directory = next(self.prefix.glob("lib*/**/pkgconfig"))
        environment = {**os.environ, "PKG_CONFIG_PATH": str(directory)}
        return output_of("pkg-config", *what, "regrow_rank", env=environment).split()

    def compile(self, compiler, name, text, *flags):
        source = self.write_script(text, name)
        output_of(compiler, "-Wall", "-Wextra", "-Werror", source, *flags, "-o", self.dir / "rank")
        return self.dir / "rank"

    def library_path(self):
        return str(next(self.prefix.glob("lib*/**/libregrow_rank.so.1")).parent)

    def test_a_c_program_is_built_with_pkg_config_and_runs_with_and_without_a_supervisor(self):
        program = self.compile("cc", "rank.c", C_RANK, "-std=c99", "-D_POSIX_C_SOURCE=199309L",
                               *self.pkg_config("--cflags", "--libs"))  # fmt: skip
        told = output_of(program, env=bare(LD_LIBRARY_PATH=self.library_path()))
        self.assertEqual(told, "supervised 0 rank 0 of 1 generation 0 taken 0\n")

        recipe = self.write_recipe(
            command=[str(program), "200"], ranks=2, env={"LD_LIBRARY_PATH": self.library_path()}
        )
        job = self.submit(recipe)
        self.assert_ended(job, "completed")
        last = [reports[-1]["last_step"] for rank, reports in sorted(self.exits(job).items())]
        self.assertEqual([int(step) for step in last], [199, 199])
        told = self.cluster.run("logs", str(job), "--rank", "1").out
        self.assertIn("supervised 1 rank 1 of 2 generation 1 taken 1", told)

    def test_a_cxx_program_and_a_static_one(self):
        flags = self.pkg_config("--cflags", "--libs", "--static")
        program = self.compile("c++", "rank.cpp", CXX_RANK, *flags)
        output_of(program, env=bare(LD_LIBRARY_PATH=self.library_path()))
        program = self.compile("cc", "rank.c", C_RANK, "-D_POSIX_C_SOURCE=199309L",
                               "-static", *flags)  # fmt: skip
        self.assertIn("supervised 0", output_of(program, env=bare()))

    def test_python_finds_module_and_library_below_the_prefix(self):
        (package,) = self.prefix.glob("lib/python3/dist-packages/regrow/__init__.py")
        self.assertEqual({file.name for file in package.parent.iterdir()}, {"__init__.py", "torch.py"})
        script = "import regrow; print(regrow.__file__, regrow._library._name)"
        told = output_of(PYTHON, "-c", script, env=bare(PYTHONPATH=str(package.parents[1])))
        self.assertEqual(told.split(), [str(package), f"{self.library_path()}/libregrow_rank.so.1"])

    def test_a_rank_is_told_where_the_library_is(self):
        script = 'import os; print("library", os.environ["REGROW_RANK_LIBRARY"])'
        job = self.submit(self.script_recipe(script))
        self.assert_ended(job, "completed")
        told = self.cluster.run("logs", str(job)).out
        self.assertIn(f"library {self.library_path()}/libregrow_rank.so.1", told)


class Reports(ClusterTest):
    HOSTS = 2

    def silent_job(self, **keys):
        recipe = self.script_recipe(
            SILENT,
            ranks=2,
            devices={"count": 2},
            env={"PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1"},
            restarts={"backoff": {"initial": "0s"}},
            **keys,
        )
        return self.submit(recipe)

    def end(self, job):
        (self.dir / "end").touch()
        self.assert_ended(job, "completed")

    def agent_log(self, host):
        return (self.cluster.state / "hosts" / host / "agent.log").read_text()

    def test_a_script_that_prints_nothing_shows_its_steps_also_after_its_agent_was_killed(self):
        job = self.silent_job()
        before = self.cluster.wait_for_step(job, 10)
        view = self.cluster.job(job)
        self.assertGreaterEqual(view.step, 10)
        self.assertGreater(view.loss, 0)
        (row,) = [r for r in self.cluster.json("jobs", "--all") if int(r["id"]) == job]
        self.assertGreater(row["step_seconds"], 0.005)
        self.assertLess(row["step_seconds"], 5)

        host = before[0].host
        old = self.cluster.agent_pid(host)
        os.kill(old, signal.SIGKILL)
        self.cluster.wait_for("another agent", lambda: self.new_agent(host, old))
        now = max(r.step for r in self.cluster.ranks(job))
        after = self.cluster.wait_for_step(job, now + 20)
        self.assert_same_processes(before, after)
        self.end(job)
        self.assertEqual(self.events(job, "IncidentOpened"), [])
        logs = self.agent_log(before[0].host) + self.agent_log(before[1].host)
        for rank in (0, 1):
            self.assertIn(f"rank/{job}/{rank} incarnation 1 says that it is about to finish", logs)
            self.assertEqual(self.cluster.run("logs", str(job), "--rank", str(rank)).out, "")

    def new_agent(self, host, old):
        try:
            pid = self.cluster.agent_pid(host)
        except (OSError, ValueError):
            return False
        return pid != old and is_alive(pid)

    def test_a_rank_that_stops_to_report_is_found(self):
        job = self.silent_job(timeouts={"progress": "2s", "stop_grace": "1s"})
        self.cluster.wait_for_step(job, 10)
        (self.dir / "hang").touch()
        self.assert_second_generation(job, r"rank 1 .*hung: no progress for 2.0 s")

    def test_reports_outweigh_the_output(self):
        """What it prints counts up for ever, what it reports does not."""
        noisy = SILENT.replace(
            "n = info.resume_step",
            """
import threading
def chatter():
    for i in range(10**9):
        print("step", i + 1000000, flush=True)
        time.sleep(0.02)
threading.Thread(target=chatter, daemon=True).start()
n = info.resume_step""",
        )
        with unittest.mock.patch(f"{__name__}.SILENT", noisy):
            job = self.silent_job(
                progress={"pattern": "^step (?P<step>[0-9]+)"},
                timeouts={"progress": "2s", "stop_grace": "1s"},
            )
        ranks = self.cluster.wait_for_step(job, 30)
        deadline = time.monotonic() + 10
        while max(r.step for r in ranks) >= 1000000:  # before its first report
            self.assertLess(time.monotonic(), deadline)
            ranks = self.cluster.ranks(job)
        (self.dir / "hang").touch()
        self.assert_second_generation(job, r"hung: no progress for 2.0 s")

    def assert_second_generation(self, job, why):
        (opened,) = self.wait_for_event(job, "IncidentOpened")[:1]
        self.assertRegex(opened.reason, why)
        self.assertEqual(int(opened.fields["rank"]), 1)
        self.wait_for_generation(job, 2)
        self.end(job)

    def test_the_step_of_an_incident_is_the_reported_one(self):
        job = self.silent_job()
        ranks = self.cluster.wait_for_step(job, 10)
        seen = ranks[1].step
        os.kill(ranks[1].pid, signal.SIGKILL)
        (opened,) = self.wait_for_event(job, "IncidentOpened")[:1]
        self.assertGreaterEqual(int(opened.fields["rank_step"]), seen)
        self.assertLess(int(opened.fields["rank_step"]), seen + 1000)
        self.wait_for_generation(job, 2)
        self.end(job)

    def test_a_stranger_with_a_wrong_token_is_turned_away(self):
        job = self.silent_job()
        ranks = self.cluster.wait_for_step(job, 5)
        environment = dict(
            line.split("=", 1)
            for line in Path(f"/proc/{ranks[0].pid}/environ").read_text().split("\0")
            if "=" in line
        )
        self.assertRegex(environment["REGROW_TOKEN"], "^[0-9a-f]{32}$")
        environment["REGROW_TOKEN"] = "0" * 32
        script = "import regrow, time\nwhile regrow.init().supervised: regrow.step(10**9); time.sleep(0.01)"
        output_of(PYTHON, "-c", script, env=environment, timeout=30)
        self.cluster.wait_for_step(job, ranks[0].step + 5)
        self.assertLess(self.cluster.ranks(job)[0].step, 10**9)
        log = self.agent_log(ranks[0].host)
        self.assertEqual(log.count("its token is not this incarnation's"), 1)
        start = next(self.cluster.state.glob(f"hosts/*/run/ranks/{job}/0.1/start"))
        self.assertEqual(start.stat().st_mode & 0o777, 0o600)
        self.end(job)


if __name__ == "__main__":
    unittest.main()

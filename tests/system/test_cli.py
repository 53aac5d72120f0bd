"""The command line without a cluster: help, exit codes, recipes, certificates, how a cluster is found."""

# ctest: timeout=120
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from dev_cluster import find_binary  # noqa: E402

COMMANDS = (
    "run submit attach init validate status jobs hosts devices ranks show events logs cancel pause resume "
    "cordon uncordon fault shell dev controller agent certs journal"
).split()
NESTED = ["fault device", "fault kill-rank", "fault cut-link", "certs init", "certs issue", "journal verify", "journal salvage"]


class CliTest(unittest.TestCase):
    """Each test has a home of its own, so that nobody's real cluster is ever found."""

    def setUp(self):
        self.binary = str(find_binary())
        self.home = Path(tempfile.mkdtemp(prefix="regrow-cli-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        (self.home / "run").mkdir(mode=0o700)
        self.environment = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "PATH": "/usr/bin:/bin",
            "LANG": "C",
        }

    def regrow(self, *arguments, env=None, stdin=subprocess.DEVNULL, cwd=None):
        return subprocess.run(
            [self.binary, *map(str, arguments)],
            env={**self.environment, **(env or {})},
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            cwd=cwd or self.home,
        )

    def assert_fails(self, code, *arguments, says=(), **more):
        done = self.regrow(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "", "errors belong to stderr")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr)
        return done


class Help(CliTest):
    def test_every_command_has_help_with_an_example(self):
        for command in COMMANDS + NESTED:
            with self.subTest(command):
                done = self.regrow(*command.split(), "--help")
                self.assertEqual(done.returncode, 0)
                self.assertEqual(done.stderr, "")
                self.assertIn("Example:\n", done.stdout)
                self.assertIn(f"regrow {command}", done.stdout)

    def test_the_overview_names_every_command_and_the_exit_codes(self):
        done = self.regrow("--help")
        self.assertEqual(done.returncode, 0)
        for command in COMMANDS:
            self.assertRegex(done.stdout, rf"(?m)^  {command} ")
        self.assertIn("Exit codes:", done.stdout)
        self.assertEqual(self.regrow("help", "jobs").stdout, self.regrow("jobs", "--help").stdout)

    def test_version(self):
        done = self.regrow("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^regrow \d+\.\d+\.\d+\n$")


class Usage(CliTest):
    def test_an_unknown_command_suggests_the_nearest(self):
        self.assert_fails(2, "jbos", says=["there is no command", "`jobs`", "--help"])
        self.assert_fails(2, "fault", "kill-rnk", "7", "2", says="`kill-rank`")
        self.assert_fails(2, "--cluster", "/x", "vallidate", says="`validate`")

    def test_nothing_at_all_is_wrong_usage(self):
        self.assert_fails(2, says="--help")
        self.assert_fails(2, "certs", says="--help")

    def test_wrong_arguments(self):
        self.assert_fails(2, "ranks", says=["regrow ranks", "--help"])
        self.assert_fails(2, "ranks", "seven", "--cluster", "/nowhere", says="not a job")
        self.assert_fails(2, "jobs", "-o", "xml", says="--output")
        self.assert_fails(2, "jobs", "--no-such-option", says="--no-such-option")
        self.assert_fails(2, "show", "a/b/c/d", says="names nothing")
        self.assert_fails(2, "fault", "cut-link", "h1", "--for", "5 years", says="not a time")
        self.assert_fails(2, "fault", "kill-rank", "7", "2", "--signal", "KIL", says="not a signal")
        self.assert_fails(2, "cordon", "h1", says="--reason")
        self.assert_fails(2, "dev", "--hosts", "0", says="--hosts")

    def test_run_wants_a_recipe_or_a_command(self):
        self.assert_fails(2, "run", says="regrow run -- ")
        self.assert_fails(2, "run", "--", says="regrow run -- ")
        (self.home / "r.yaml").write_text("name: x\ncommand: [true]\n")
        self.assert_fails(2, "run", "r.yaml", "--", "true", says="own command")

    def test_a_closed_pipe_is_no_failure(self):
        done = subprocess.run(
            ["/bin/sh", "-c", f"'{self.binary}' init | head -n 1; exit 0"],
            env=self.environment, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        self.assertEqual(done.stderr, "")


class FindingTheCluster(CliTest):
    def test_no_controller_is_exit_code_3_and_says_what_to_do(self):
        started = time.monotonic()
        self.assert_fails(3, "jobs", says=[f"{self.home}/run/regrow/regrow.sock", "regrow dev"])
        self.assertLess(time.monotonic() - started, 5)
        self.assert_fails(3, "submit", "--", "true", says="regrow dev")
        self.assert_fails(3, "shell", "-c", "ls", says="regrow dev")

    def test_flag_before_environment_before_file(self):
        config = self.home / ".config/regrow"
        config.mkdir(parents=True)
        (config / "cluster").write_text("# our cluster\n/from/file.sock\n")
        self.assert_fails(3, "jobs", says="/from/file.sock")
        env = {"REGROW_CLUSTER": "unix:/from/environment.sock"}
        self.assert_fails(3, "jobs", env=env, says="/from/environment.sock")
        self.assert_fails(3, "jobs", "--cluster", "/from/flag.sock", env=env, says="/from/flag.sock")
        self.assert_fails(3, "--cluster", "/from/flag.sock", "jobs", env=env, says="/from/flag.sock")

    def test_a_state_directory_stands_for_its_socket(self):
        (self.home / "state").mkdir()
        self.assert_fails(3, "jobs", "--cluster", "state", says=f"{self.home}/state/regrow.sock")

    def test_a_socket_directory_of_somebody_else_is_not_trusted(self):
        (self.home / "run/regrow").mkdir()
        (self.home / "run/regrow").chmod(0o777)
        self.assert_fails(2, "jobs", says="not trusted")

    def test_tcp_without_a_certificate_says_how_to_get_one(self):
        self.assert_fails(2, "jobs", "--cluster", "127.0.0.1:1", says="regrow certs issue")


class Recipes(CliTest):
    def test_init_writes_a_recipe_that_is_valid(self):
        done = self.regrow("init", "recipe.yaml")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.home / "recipe.yaml").read_text()
        self.assertEqual(self.regrow("init").stdout, text)
        checked = self.regrow("validate", "recipe.yaml")
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assert_fails(2, "init", "recipe.yaml", says="--force")
        self.assertEqual(self.regrow("init", "recipe.yaml", "--force").returncode, 0)

    def test_the_examples_are_valid(self):
        for path in (ROOT / "recipes/examples").rglob("*.yaml"):
            with self.subTest(path.name):
                done = self.regrow("validate", path)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_errors_name_file_line_key_and_the_nearest_valid_name(self):
        (self.home / "r.yaml").write_text("name: x\nrnaks: 2\ncommand: [true]\ndevices:\n  memroy: 1GiB\n")
        done = self.assert_fails(2, "validate", "r.yaml", says=["r.yaml:2:1: rnaks", "'ranks'", "r.yaml:5:3:", "'memory'"])
        again = self.assert_fails(2, "run", "r.yaml", says=done.stderr.splitlines())
        self.assertIn("nothing was submitted", again.stderr)
        self.assert_fails(2, "submit", "r.yaml", says=done.stderr.splitlines())

    def test_set_passes_the_same_checks(self):
        (self.home / "r.yaml").write_text("name: x\nranks: 2\ncommand: [true]\n")
        self.assert_fails(2, "validate", "r.yaml", "--set", "ranks=four", says="--set ranks=four")
        done = self.regrow("validate", "r.yaml", "--set", "ranks=4", "--set", "env.SEED=7", "-o", "json")
        spec = json.loads(done.stdout)["spec"]
        self.assertEqual(spec["ranks"], 4)
        self.assertIn({"name": "SEED", "value": "7", "source": "recipe --set"}, spec["environment"])

    def test_json_for_programs(self):
        (self.home / "r.yaml").write_text("name: x\nrnaks: 2\ncommand: [true]\n")
        done = self.regrow("validate", "r.yaml", "-o", "json")
        self.assertEqual(done.returncode, 2)
        answer = json.loads(done.stdout)
        self.assertFalse(answer["valid"])
        self.assertEqual(answer["diagnostics"][0]["line"], 2)

    def test_a_file_that_is_not_there(self):
        self.assert_fails(2, "validate", "nothing.yaml", says="nothing.yaml")


class Certificates(CliTest):
    def test_init_and_issue(self):
        self.assertEqual(self.regrow("certs", "init", "c").returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.home / "c/ca.key").st_mode), 0o600)
        self.assert_fails(2, "certs", "init", "c", says="not overwritten")
        done = self.regrow("certs", "issue", "c", "--role", "operator", "--name", "ann", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        files = json.loads(done.stdout)
        self.assertEqual(files["certificate"], "c/ann.pem")
        subject = subprocess.run(
            ["openssl", "x509", "-noout", "-subject", "-in", str(self.home / "c/ann.pem")],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        self.assertIn("operator/ann", subject.stdout)
        self.assert_fails(2, "certs", "issue", "c", "--role", "king", "--name", "x", says="king")
        self.assert_fails(2, "certs", "issue", "d", "--role", "viewer", "--name", "x", says="certs init")


class Services(CliTest):
    def test_what_a_service_needs_is_asked_for(self):
        self.assert_fails(2, "agent", "--state-dir", "a", says="--controller")
        done = self.regrow("controller", "--list-fault-points")
        self.assertEqual(done.returncode, 0)
        self.assertIn("journal.after_commit\n", done.stdout)

    def test_state_is_never_put_where_a_reboot_takes_it(self):
        nowhere = {"HOME": "", "XDG_STATE_HOME": ""}
        for command in (["controller"], ["agent", "--controller", self.home], ["dev"]):
            self.assert_fails(2, *command, env=nowhere, says=["HOME", "--state-dir"])


if __name__ == "__main__":
    unittest.main()

"""A command that never outlives us, with everything it started: see keeper.py, which does the work.

    process = KeptProcess(["regrow", "dev"], log="dev.log", grace=10)
    ...
    left = process.stop()      # Ctrl-C, then the axe; what Ctrl-C alone would have left behind

Even kill -9 of the calling script ends the command. One thread.
"""

import os
import subprocess
import time
from pathlib import Path

KEEPER = Path(__file__).resolve().with_name("keeper.py")
PYTHON = "/usr/bin/python3"


def stat_fields(pid):
    """The fields of /proc/PID/stat after the name; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rsplit(")", 1)[1].split()


def is_alive(pid):
    """Runs or could run: zombies do not count."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def start_ticks(pid):
    """When it began, in ticks since boot; None if it is gone. A pid alone can be reused."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def start_time(pid):
    """The same in seconds since the Unix epoch, to a hundredth; None if it is gone."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    with open("/proc/uptime", encoding="ascii") as line:
        age = float(line.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def last_lines(path, lines=15):
    """The end of a log, for an error message."""
    try:
        return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


class KeptProcess:
    def __init__(self, command, log, grace=10.0, environment=None, cwd=None):
        self.keeper = subprocess.Popen(
            [PYTHON, KEEPER, log, str(grace), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=cwd,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we pass it on
        )
        self.pid = int(self.keeper.stdout.readline().split()[1])

    def is_alive(self):
        return is_alive(self.pid)

    def stop(self):
        """Returns a line for each process that the command's own end had left behind."""
        if self.keeper is None:
            return []
        try:
            self.keeper.stdin.close()
            said = self.keeper.stdout.read()
            self.keeper.wait(30)
        finally:
            self.keeper.stdout.close()
            self.keeper = None
        return [line for line in said.splitlines() if line.startswith("left ")]

#!/usr/bin/python3
"""Runs one command and ends everything that came of it, however deep, once its own stdin closes.

    keeper.py LOG GRACE COMMAND...

LOG gets the command's output. When stdin closes (also because whoever started this was killed -9),
the command gets SIGINT and GRACE seconds; then every process that descends from it is killed.
Being a "subreaper" (prctl(2)), this process inherits every orphan of the command, so daemons are
found as well.

Says on stdout, one line each: `started PID`, `ended CODE` when the command ends by itself, and at
the end `left PID COMMAND` for each process the command had left behind by itself, then `clean`.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
SETTLE = 1.0  # seconds for processes that are just about to end


def say(*words):
    try:
        print(*words, flush=True)
    except BrokenPipeError:
        pass  # nobody listens any more; the work is done all the same


def parents():
    """pid -> pid of its parent, for every process that is not a zombie."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            found[int(name)] = int(parent)
    return found


def descendants():
    tree = parents()
    found, fresh = [], [os.getpid()]
    while fresh:
        fresh = [pid for pid, parent in tree.items() if parent in fresh]
        found += fresh
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as text:
            return text.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def reap(command):
    """Collects what has ended; the command's own exit goes to its Popen object."""
    command.poll()
    while True:
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if result is None or (result.si_pid == command.pid and command.poll() is None):
            return
        if result.si_pid != command.pid:
            os.waitpid(result.si_pid, 0)


def wait_until(condition, seconds, command):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        reap(command)
        if condition():
            return True
        time.sleep(0.01)
    return False


def watch(command):
    """Until stdin closes."""
    told = False
    while True:
        ready, _, _ = select.select([0], [], [], 0.1)
        if ready and not os.read(0, 4096):
            return
        reap(command)
        if command.returncode is not None and not told:
            say("ended", command.returncode)
            told = True


def main():
    log, grace, arguments = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # stdin decides
    with open(log, "ab") as output:
        command = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: [
                signal.signal(n, signal.SIG_DFL)
                for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            ],
        )
    say("started", command.pid)
    watch(command)

    if command.returncode is None:
        command.send_signal(signal.SIGINT)
        wait_until(lambda: command.returncode is not None, grace, command)
    wait_until(lambda: not descendants(), SETTLE, command)
    for pid in descendants():
        say("left", pid, command_line(pid))
    for _ in range(100):
        left = descendants()
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(lambda: not descendants(), 0.1, command)
    say("clean")


if __name__ == "__main__":
    main()

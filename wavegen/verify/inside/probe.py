"""Tries to get out of the shell that it runs in, and says what it reached: `wavegen verify` starts it inside.

    python3 -I -S probe.py <tasks >answers

Both are lines of JSON. It says first in which namespaces it is, and tries nothing until it is told what. Each attempt
runs in a child of its own, which is ended after two seconds, and is harmless where it succeeds: files are opened and
not changed, or made without a name, settings are written back as they are, signals are ones that nobody minds. What
it looks for are random words, and it knows only their digests.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any

# -I leaves the script's own directory out. Nothing is written there, as it is read-only inside.
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import probe_common
import probe_egress
import probe_files
import probe_kernel
import probe_mounts
import probe_network
import probe_process
import probe_session

_MODULES = (probe_files, probe_mounts, probe_kernel, probe_network, probe_egress, probe_process, probe_session)
ATTEMPTS = {name: attempt for module in _MODULES for name, attempt in module.ATTEMPTS.items()}
SECONDS = 2.0
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def read_own_namespaces() -> dict[str, int]:
    """The inode of each namespace of this process (namespaces(7)); one that cannot be read is left out."""
    found = {}
    for name in _NAMESPACES:
        try:
            found[name] = os.stat(f"/proc/self/ns/{name}").st_ino
        except OSError:
            continue
    return found


def run_attempt_in_child(task: dict[str, Any]) -> dict[str, Any]:
    """The answers of one attempt, which runs in a child and has two seconds."""
    parent, child = os.pipe()
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(parent)
        probe_common.die_with(own)
        os.write(child, json.dumps(run_attempt(task)).encode())
        os._exit(0)
    os.close(child)
    data, until, late = b"", time.monotonic() + SECONDS, False
    while True:
        ready, _, _ = select.select([parent], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            late = True
            os.kill(pid, signal.SIGKILL)
            break
        chunk = os.read(parent, 65536)
        if not chunk:
            break
        data += chunk
    os.close(parent)
    _, status = os.waitpid(pid, 0)
    if late:
        return {"id": task["id"], "failed": f"no answer within {SECONDS:g} s"}
    if not data:
        signalled = os.WIFSIGNALED(status)
        return {"id": task["id"], "failed": f"ended by signal {os.WTERMSIG(status)}" if signalled else "ended without an answer"}
    answers: dict[str, Any] = json.loads(data)
    return answers


def run_attempt(task: dict[str, Any]) -> dict[str, Any]:
    """The answers of one attempt: a list of target, state and detail."""
    try:
        answers = ATTEMPTS[task["attempt"]](**task["arguments"])
        return {"id": task["id"], "answers": [list(answer) for answer in answers]}
    except Exception as failed:  # noqa: BLE001  whatever it is, the other attempts go on
        return {"id": task["id"], "failed": f"{type(failed).__name__}: {failed}"}


def main() -> None:
    """Say hello, be told the tasks, try them one after the other."""
    for number in os.listdir("/proc/self/fd"):
        # What was handed down; the listing's own is closed by now.
        if int(number) > 2 and os.path.lexists(f"/proc/self/fd/{number}"):
            probe_common.HANDED_DOWN.append(int(number))
    probe_common.send_json_line({"hello": read_own_namespaces(), "pid": os.getpid()})
    told = probe_common.receive_json_line()
    if not told or not told.get("tasks"):
        return
    probe_common.CANARIES.update(told["digests"])
    probe_common.ROLE["outside"] = told["outside"]
    # Whoever ignores them hands that down: children could not be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for task in told["tasks"]:
        probe_common.send_json_line(run_attempt_in_child(task))
    probe_common.send_json_line({"done": True})


if __name__ == "__main__":
    main()

"""The library: what a run says of its command, that it says nothing of one that never was, and that nothing is left of either."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from fence import PYTHON, Fence, name_of, users
from helpers import ROOT, in_place_of_bwrap, until
from stand_in import Server, echo
from test_launcher import NO_UNSHARE, change, processes

import wavegen
from wavegen import Result, Sandbox, WavegenError
from wavegen.core import resources
from wavegen.core.errors import FenceError, MachineError, ManifestError, UsageError
from wavegen.project.network_log import Verdict

pytestmark = pytest.mark.needs("bwrap")

NAME, PORT = "echo.example.com", 7000
MANIFEST = """\
metadata: {name: fence}
adapters:
  words: {binary: echo, mode: headless}
  gone: {binary: no-such-agent, mode: headless}
personas:
  reader: {adapter: words, permissions: {allowed_tools: [Read]}, sandbox: {shell: restricted}}
  absent: {adapter: gone}
  free: {adapter: words, sandbox: {shell: yolo}}
runtime:
  sandbox:
    default_allowed_domains: ["echo.example.com:7000"]
    env_passthrough: [WANTED]
"""
ALONE = MANIFEST + "    backend: landlock\n"
FENCED = ("default", "restricted")
Outcome = tuple[str, Any]


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=request.param)
    yield made
    made.remove()


@pytest.fixture
def new() -> Iterator[Callable[..., Fence]]:
    made: list[Fence] = []

    def make(manifest: str = MANIFEST, uid: int | None = None) -> Fence:
        made.append(Fence.create(manifest, uid=users()[-1] if uid is None else uid))
        return made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(echo)
    yield made
    made.close()


def _child(fence: Fence, call: Callable[[Sandbox], object], out: int, more: dict[str, str]) -> NoReturn:
    """What the process of a fence's user does: it tells what came of a call, or which error was raised."""
    outcome: Outcome
    try:
        os.chdir(fence.project)
        if fence.uid != os.getuid():
            os.setgroups([])
            os.setgid(fence.uid)
            os.setuid(fence.uid)
            # Of what is started from a file that user reads a copy: the tests' own Python and wavegen may lie in a private home.
            sys.executable = PYTHON
            resources._PACKAGE = str(fence.base / "package")
        os.environ.clear()
        os.environ.update(fence.environment(**more))
        outcome = ("", call(Sandbox.load()))
    except WavegenError as failed:
        outcome = (type(failed).__name__, (str(failed), failed.exit_code, getattr(failed, "said", "")))
    except BaseException:  # noqa: BLE001
        outcome = ("bug", traceback.format_exc())
    with os.fdopen(out, "wb") as stream:
        pickle.dump(outcome, stream)
    os._exit(0)


def begin(fence: Fence, call: Callable[[Sandbox], object], **more: str) -> tuple[int, int]:
    """Use the library in a process of the fence's user. The modules are in memory: that user need not be able to read them."""

    if fence.uid != os.getuid() and not (fence.base / "package").exists():
        shutil.copytree(ROOT / "wavegen/launcher", fence.base / "package/launcher", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chmod", "-R", "a+rX", str(fence.base / "package")], check=True)
    into, out = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.close(into)
        _child(fence, call, out, more)
    os.close(out)
    return pid, into


def outcome(fence: Fence, call: Callable[[Sandbox], object], **more: str) -> Outcome:
    """The name of the error, and what it says; or nothing, and what the call returned."""
    # Templates and what is copied are read once, by a user that can.
    from wavegen.backends import render_all_files

    render_all_files(Sandbox.load(fence.project / "wave.yaml", accept=True)._project.plan)
    pid, into = begin(fence, call, **more)
    with os.fdopen(into, "rb") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    found: Outcome = pickle.loads(said)
    assert found[0] != "bug", found[1]
    return found


def use(fence: Fence, call: Callable[[Sandbox], Any], **more: str) -> Any:
    """What a call returns."""
    error, found = outcome(fence, call, **more)
    assert not error, found
    return found


def run(fence: Fence, *command: str, **options: Any) -> Result:
    found = use(fence, lambda box: box.run(command, **options))
    assert isinstance(found, Result)
    return found


def fails(fence: Fence, call: Callable[[Sandbox], Any], **more: str) -> str:
    """What FenceError says: with the exit status 125 and nothing else."""
    error, found = outcome(fence, call, **more)
    assert error == "FenceError", found
    assert found[1] == 125
    assert found[0].startswith("wavegen: error: ")
    return str(found[0])


def kept(fence: Fence) -> set[str]:
    """What is kept below the home, but for what commands wrote into their own, and since when somebody is inside: the next audit needs that."""
    place = fence.home / ".local/state"
    return {name for path in place.rglob("*") if "/home/" not in (name := str(path.relative_to(place))) and not path.name.startswith("entered-")}


# --- what is returned


@pytest.mark.parametrize("shell", [*FENCED, "yolo"])
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("false",), 1),
        (("sh", "-c", "exit 42"), 42),
        (("sh", "-c", "exit 125"), 125),
        (("sh", "-c", "exit 126"), 126),
        (("/etc/passwd",), 126),
        (("no-such-command",), 127),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "kill -KILL $$"), 137),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_the_status_is_the_commands_own(fence: Fence, shell: str, command: tuple[str, ...], status: int) -> None:
    found = run(fence, *command, shell=shell)
    assert (found.status, found.timed_out, found.fenced, found.refused) == (status, False, shell != "yolo", ())


@pytest.mark.parametrize("shell", FENCED)
def test_input_and_output_are_bytes_as_they_are(fence: Fence, shell: str) -> None:
    data = bytes(range(256)) * 4096
    found = run(fence, "sh", "-c", "tee /dev/stderr", shell=shell, input=data)
    assert (found.stdout, found.stderr) == (data, data)
    assert run(fence, "cat", shell=shell, input="ä").stdout_text == "ä"
    assert run(fence, "cat", shell=shell).stdout == b""
    assert run(fence, "true", shell=shell, input=data).status == 0
    assert run(fence, "printf", "\\377", shell=shell).stdout_text == "\ufffd"


@pytest.mark.parametrize("shell", FENCED)
def test_only_variables_that_the_manifest_lets_in_arrive(fence: Fence, shell: str) -> None:
    found = use(fence, lambda box: box.run(["env"], shell=shell, env={"WANTED": "yes", "CANARY": "no-1"}), CANARY_TOO="no-2")
    assert "WANTED=yes\n" in found.stdout_text
    assert "CANARY" not in found.stdout_text


def test_a_command_runs_where_it_is_told_to(fence: Fence) -> None:
    fence.write("sub/file", "")
    fence.own()
    assert run(fence, "pwd").stdout_text == f"{fence.project}\n"
    assert run(fence, "pwd", cwd="sub").stdout_text == f"{fence.project}/sub\n"
    assert run(fence, "pwd", cwd=fence.project / "sub").stdout_text == f"{fence.project}/sub\n"
    for place in ("..", "/", "gone", "sub/file"):
        assert outcome(fence, lambda box, place=place: box.run(["pwd"], cwd=place))[0] == "UsageError"


def test_a_personas_fence_holds_a_command_in_place_of_its_agent(fence: Fence) -> None:
    found = run(fence, "sh", "-c", "echo in; touch made; cat wave.yaml", persona="reader")
    assert found.fenced
    assert "Read-only file system" in found.stderr_text
    assert found.stdout_text == f"in\n{MANIFEST}"
    assert not (fence.project / "made").exists()


def test_an_agent_is_started_with_words_of_its_own(fence: Fence) -> None:
    found = use(fence, lambda box: box.agent(["--report", "3", "--"], persona="reader", adapter="words"))
    assert (found.status, found.stdout_text, found.fenced) == (0, "--report 3 --\n", True)
    assert use(fence, lambda box: box.agent(persona="reader")).stdout == b"\n"
    assert use(fence, lambda box: box.agent(persona="absent")).status == 127
    assert "has no adapter other" in fails(fence, lambda box: box.agent(persona="reader", adapter="other"))


def test_what_has_no_fence_says_so(fence: Fence) -> None:
    found = use(fence, lambda box: [box.agent(["hello"], persona="free"), box.run(["echo", "hello"], persona="free"), box.run(["echo", "hello"], shell="yolo")])
    assert {(one.status, one.stdout_text, one.fenced) for one in found} == {(0, "hello\n", False)}
    assert all("NOT SANDBOXED" in one.stderr_text for one in found)


# --- what was refused

ASK = """\
import socket, sys
for name in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", 3128)) as sock:
        sock.sendall(f"CONNECT {name} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode())
        print(name, sock.recv(100).split()[1].decode())
"""


def test_what_was_refused_is_told_of_this_run_alone(fence: Fence, server: Server) -> None:
    allowed = f"{NAME}:{PORT}"

    def both(box: Sandbox) -> dict[str, Result]:
        found: dict[str, Result] = {}
        gate = threading.Barrier(4)

        def one(name: str) -> None:
            gate.wait()
            elsewhere = [f"{allowed}:127.0.0.1:{server.port}"]
            found[name] = box.run([PYTHON, "-c", ASK, allowed, f"{name}.example.org:443", f"{name}.example.org:99"], shell="restricted", connect_to=elsewhere)

        threads = [threading.Thread(target=one, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    for name, result in use(fence, both).items():
        assert result.stdout_text.splitlines() == [f"{allowed} 200", f"{name}.example.org:443 403", f"{name}.example.org:99 403"], result.stderr
        assert [(one.name, one.port, one.reason) for one in result.refused] == [(f"{name}.example.org", port, "not-listed") for port in (443, 99)]
        assert {one.verdict for one in result.refused} == {Verdict.DENY}


def test_a_log_that_was_begun_anew_meanwhile_loses_nothing(fence: Fence) -> None:
    def full(box: Sandbox) -> Result:
        box.run([PYTHON, "-c", ASK, "before.example.org:443"], shell="restricted")
        log = next((fence.home / ".local/state/wavegen").glob("*/restricted/network.jsonl"))
        with log.open("ab") as stream:
            stream.write(b"x" * (8 << 20) + b"\n")
        return box.run([PYTHON, "-c", ASK, "after.example.org:443"], shell="restricted")

    assert [one.name for one in use(fence, full).refused] == ["after.example.org"]


# --- the time is up

STUBBORN = "trap '' TERM HUP; (setsid sh -c \"trap '' TERM; while :; do sleep {word}; done\" &); echo up; while :; do sleep {word}; done"


@pytest.mark.parametrize("shell", [*FENCED, "yolo"])
def test_nothing_of_a_command_outlives_its_time(fence: Fence, shell: str) -> None:
    run(fence, "true", shell=shell)
    before, word = kept(fence), f"3{secrets.randbelow(10**9):09d}"
    # Without a fence what has no parent any more is nobody's.
    command = STUBBORN if shell != "yolo" else STUBBORN.replace("(setsid", "setsid").replace("&);", "&")
    found = run(fence, "sh", "-c", command.format(word=word), shell=shell, timeout=1)
    assert (found.status, found.timed_out, found.stdout) == (124, True, b"up\n")
    assert until(lambda: not processes(word)), processes(word)
    assert kept(fence) - before <= {name for name in kept(fence) if name.endswith("network.jsonl")}


@pytest.mark.parametrize("where", [{"shell": "yolo"}, {"persona": "free"}], ids=str)
def test_what_an_unfenced_command_started_ends_with_it(fence: Fence, where: dict[str, str]) -> None:
    word = f"3{secrets.randbelow(10**9):09d}"
    found = run(fence, "sh", "-c", f"setsid sh -c 'sleep {word}; :' & echo up; sleep {word}", timeout=1, **where)
    assert (found.timed_out, found.stdout) == (True, b"up\n")
    assert until(lambda: not processes(word)), processes(word)

    def interrupted(box: Sandbox) -> bool:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            box.run(["sh", "-c", f"setsid sh -c 'sleep {word}; :' & sleep {word}"], **where)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            return True
        return False

    assert use(fence, interrupted)
    assert until(lambda: not processes(word)), processes(word)


@pytest.mark.parametrize("shell", FENCED)
def test_a_command_may_end_by_itself_when_its_time_is_up(fence: Fence, shell: str) -> None:
    found = run(fence, "sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done", shell=shell, timeout=1)
    assert (found.status, found.timed_out, found.stdout) == (124, True, b"up\nbye\n")


def left_groups() -> set[str]:
    """Control groups of wrappers that have ended."""
    names = {name for _, below, _ in os.walk("/sys/fs/cgroup") for name in below if name.startswith("wavegen-")}
    return {name for name in names if not os.path.exists(f"/proc/{name.removeprefix('wavegen-')}")}


@pytest.mark.parametrize("shell", FENCED)
def test_no_control_group_is_left(new: Callable[..., Fence], shell: str) -> None:
    fence = new(MANIFEST + "    limits: {pids: 64}\n", uid=os.getuid())
    before, word = left_groups(), f"3{secrets.randbelow(10**9):09d}"
    assert run(fence, "true", shell=shell).status == 0
    assert run(fence, "sh", "-c", STUBBORN.format(word=word), shell=shell, timeout=1).timed_out
    assert until(lambda: left_groups() <= before)
    assert not processes(word)


@pytest.mark.parametrize("shell", FENCED)
def test_an_exception_of_who_waits_ends_the_command(fence: Fence, shell: str) -> None:
    run(fence, "true", shell=shell)
    before, word = kept(fence), f"3{secrets.randbelow(10**9):09d}"

    def interrupted(box: Sandbox) -> bool:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            box.run(["sleep", word], shell=shell)
        except KeyboardInterrupt:
            return True
        return False

    assert use(fence, interrupted)
    assert until(lambda: not processes(word)), processes(word)
    assert kept(fence) == before


def test_nothing_is_left_of_a_library_that_is_killed(fence: Fence) -> None:
    run(fence, "true")
    before, word = kept(fence), f"0.{secrets.randbelow(10**9):09d}"
    pid, into = begin(fence, lambda box: box.run(["sh", "-c", f"sleep {word}; sleep 1; : {word}"]))
    assert until(lambda: any("sleep" in line.split("\0")[0] for line in processes(word).values()))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(into)
    assert until(lambda: not processes(word)), processes(word)
    assert kept(fence) == before


def test_several_threads_may_use_one(fence: Fence) -> None:
    def many(box: Sandbox) -> list[tuple[int, bytes]]:
        found: dict[int, Result] = {}

        def one(number: int) -> None:
            found[number] = box.run(["sh", "-c", f"cat; exit {number}"], shell=FENCED[number % 2], input=str(number))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [(found[number].status, found[number].stdout) for number in range(8)]

    assert use(fence, many) == [(number, str(number).encode()) for number in range(8)]


# --- nothing was started


def test_nothing_that_is_rendered_decides_and_what_is_not_ours_is_refused(new: Callable[..., Fence]) -> None:
    fence = new()
    bpf = fence.project / ".wavegen/seccomp/default.bpf"
    there = bpf.read_bytes()
    for path, text in ((bpf, b""), (bpf, None), (fence.project / ".wavegen/rules/default", b""), (fence.project / ".wavegen/launcher/start.py", b"exit(0)\n")):
        before = path.read_bytes() if path.exists() else there
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_bytes(text)
        # The rules and the filter are the plan's, and the launcher is wavegen's own.
        assert b"Seccomp:\t2" in run(fence, "grep", "Seccomp:", "/proc/self/status").stdout
        path.write_bytes(before)
    for name in ("launcher/json.py", "runtime.py", "rules/other", "bin/other"):
        fence.write(f".wavegen/{name}", "")
        assert f".wavegen/{name} is not of wavegen: the lock does not list it" in fails(fence, lambda box: box.run(["true"]))
        (fence.project / ".wavegen" / name).unlink()
    (fence.project / ".wavegen/lock.json").unlink()
    assert "was never rendered" in fails(fence, lambda box: box.run(["true"]))


def test_of_a_changed_manifest_the_fence_is_new_and_what_an_agent_is_handed_must_be_rendered(new: Callable[..., Fence]) -> None:
    fence = new()
    fence.write("wave.yaml", MANIFEST.replace("reader: {", 'reader: {description: "reads", '))
    fence.own()
    assert run(fence, "echo", "in", persona="reader").stdout == b"in\n"
    assert "wave.yaml has changed since the last render (run wavegen render)" in fails(fence, lambda box: box.agent(persona="reader"))
    assert use(fence, lambda box: box.agent(["hello"], persona="free")).stdout == b"hello\n"
    fence.write("wave.yaml", MANIFEST + "    seccomp_allow: [ptrace]\n")
    fence.own()
    # Of the filter, too: it is the manifest's as it is now.
    traced = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, None, None))"
    assert run(fence, PYTHON, "-I", "-S", "-c", traced).stdout == b"0\n"


def test_what_another_shell_loads_is_not_asked_for(new: Callable[..., Fence]) -> None:
    fence = new(MANIFEST + "    shells: {tight: {nested: true}}\n")
    (fence.project / ".wavegen/seccomp/default-nested.bpf").write_bytes(b"")
    assert run(fence, "true").status == 0
    # Nor for that shell: its filter is the plan's.
    assert b"Seccomp:\t2" in run(fence, "grep", "Seccomp:", "/proc/self/status", shell="tight").stdout


def test_what_the_wrapper_refuses_is_told_in_its_own_words(fence: Fence) -> None:
    assert "HOME is not set" in fails(fence, lambda box: box.run(["true"], env={"HOME": ""}))
    assert "lies in the project" in fails(fence, lambda box: box.run(["true"], env={"XDG_STATE_HOME": str(fence.project / "state")}))
    assert "is not NAME:PORT:ADDRESS:PORT" in fails(fence, lambda box: box.run(["true"], shell="restricted", connect_to=["x"]))
    assert "cannot be started" in fails(fence, lambda box: box.run(["echo", "x" * (1 << 20)]))


def scripted(fence: Fence, prefix: list[str], code: str) -> Any:
    """What a program that uses the library prints as JSON, started by `prefix`, by the user that runs the tests."""
    head = f"import json, os, sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom wavegen import FenceError, Sandbox\nbox = Sandbox.load()\n"
    head += "def say(value):\n    print(json.dumps(value), flush=True)\n"
    head += "def tried(*command, **options):\n    try:\n        found = box.run(command, **options)\n    except FenceError as failed:\n"
    head += "        return ['FenceError', str(failed), failed.said]\n    return [found.status, found.stdout_text, found.fenced]\n"
    command = [*prefix, sys.executable, "-c", head + textwrap.dedent(code)]
    done = subprocess.run(command, cwd=fence.project, env=fence.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_place_of(real: str, program: Path) -> list[str]:
    """As `in_place_of_bwrap`, for any program."""
    own = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    return [*own, "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", str(program), os.path.realpath(real)]


def stand_in(fence: Fence, text: str | None) -> Path:
    fake = fence.base / f"program-{secrets.token_hex(4)}"
    fake.write_text(text or "")
    fake.chmod(0o755 if text else 0o644)
    return fake


NO_NAMESPACES = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
NO_MORE = "#!/bin/sh\necho 'bwrap: Creating new namespace failed: No space left on device' >&2\nexit 1\n"


@pytest.mark.parametrize("shell", FENCED)
@pytest.mark.parametrize(
    ("bwrap", "says"),
    [
        (None, "bwrap is not on the PATH"),
        (NO_NAMESPACES, "does not let bwrap create user namespaces"),
        (NO_MORE, "does not let bwrap create user namespaces"),
        ("#!/bin/sh\nexit 1\n", "bwrap could not build the sandbox"),
        ("#!/bin/sh\nexit 0\n", "ended with status 0 before"),
        ("#!/bin/sh\nexit 42\n", "ended with status 42 before"),
        ("#!/bin/sh\nkill -9 $$\n", "before the command was started"),
    ],
    ids=["none", "forbidden", "too many", "fails", "0", "42", "killed"],
)
def test_a_bwrap_that_starts_nothing(new: Callable[..., Fence], shell: str, bwrap: str | None, says: str) -> None:
    fence = new(uid=os.getuid())
    error, text, said = scripted(fence, in_place_of_bwrap(stand_in(fence, bwrap)), f"say(tried('echo', 'RAN', shell={shell!r}))")
    assert (error, says in text) == ("FenceError", True), text
    assert "RAN" not in said


@pytest.mark.parametrize("shell", FENCED)
def test_a_time_that_is_up_before_the_command_was_started(new: Callable[..., Fence], shell: str) -> None:
    fence = new(uid=os.getuid())
    word = f"3{secrets.randbelow(10**9):09d}"
    fake = stand_in(fence, f"#!/bin/sh\nsleep {word}\n")
    error, text, _ = scripted(fence, in_place_of_bwrap(fake), f"say(tried('true', shell={shell!r}, timeout=1))")
    assert (error, "was not started within 1 s" in text) == ("FenceError", True), text
    assert until(lambda: not processes(word)), processes(word)


@pytest.mark.parametrize("shell", FENCED)
def test_fallback_warn_is_a_result_that_says_so(new: Callable[..., Fence], shell: str) -> None:
    fence = new(MANIFEST + "    fallback: warn\n", uid=os.getuid())
    # Another descriptor of the same output does not count.
    code = (
        "import os; at = {n: os.readlink(f'/proc/self/fd/{n}') for n in range(256) if os.path.exists(f'/proc/self/fd/{n}')};"
        " print([n for n in at if at[n].startswith('pipe') and at[n] not in (at[0], at[1], at[2])]); os._exit(3)"
    )
    for bwrap in (None, NO_NAMESPACES):
        found = scripted(fence, in_place_of_bwrap(stand_in(fence, bwrap)), f"say(tried({PYTHON!r}, '-uc', {code!r}, shell={shell!r}))")
        assert found == [3, "[]\n", False]


def test_a_launcher_or_shim_that_starts_nothing(new: Callable[..., Fence]) -> None:
    fence = new(uid=os.getuid())
    for real, text, shell, says in (
        ("/usr/bin/perl", "#!/bin/sh\nexit 3\n", "restricted", "ended with status 3 before"),
        ("/usr/bin/perl", "#!/bin/sh\nexit 0\n", "default", "ended with status 0 before"),
        ("/usr/bin/perl", "#!/bin/sh\nexit 125\n", "restricted", "ended with status 125 before"),
    ):
        error, found, _ = scripted(fence, in_place_of(real, stand_in(fence, text)), f"say(tried('echo', 'RAN', shell={shell!r}))")
        assert (error, says in found) == ("FenceError", True), found
    nothing = stand_in(fence, None)
    prefix = [*in_place_of(PYTHON, nothing), *in_place_of("/usr/bin/perl", nothing)]
    assert "neither perl nor python3 is on the PATH" in scripted(fence, prefix, "say(tried('true'))")[1]


def test_with_few_descriptors_it_runs_or_was_never_started(new: Callable[..., Fence]) -> None:
    fence = new(uid=os.getuid())
    code = """
        import resource
        from wavegen.core.errors import MachineError
        tried("true", shell="restricted")
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        found = []
        for number in (*range(3, 30), 256):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
            for shell in ("default", "restricted"):
                try:
                    found.append(tried("true", shell=shell)[0])
                except MachineError:
                    found.append("MachineError")
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        say(found)
    """
    found = scripted(fence, [], code)
    assert set(found) <= {"FenceError", "MachineError", 0}
    assert found[0] != 0
    assert found[-1] == 0


# --- the report

FORGE = r"""
import os, stat
found, own = [], {os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)}
listed = sorted(int(n) for n in os.listdir("/proc/self/fd"))
for pid in (name for name in os.listdir("/proc") if name.isdigit()):
    try:
        handles = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        continue
    for handle in handles:
        try:
            if os.readlink(f"/proc/{pid}/fd/{handle}") in own or not stat.S_ISFIFO(os.stat(f"/proc/{pid}/fd/{handle}").st_mode):
                continue
            with open(os.open(f"/proc/{pid}/fd/{handle}", os.O_RDWR | os.O_NONBLOCK), "r+b", buffering=0) as pipe:
                pipe.write(b"unfenced\n")
            found.append((pid, handle))
        except OSError:
            pass
print(len(listed), found)
"""


@pytest.mark.parametrize("where", [{"shell": "default"}, {"shell": "restricted"}, {"persona": "reader"}], ids=str)
def test_the_report_is_out_of_reach_inside(fence: Fence, where: dict[str, str]) -> None:
    found = run(fence, PYTHON, "-I", "-S", "-c", FORGE, **where)
    assert (found.stdout_text, found.fenced) == ("4 []\n", True)  # the fourth is what they were listed by


def by_hand(fence: Fence, shell: str, *command: str) -> tuple[int, bytes, bytes]:
    """A wrapper's status, report and messages."""
    into, out = os.pipe()
    done = subprocess.run(
        fence.argv(shell, ("--report", str(out), "--", *command)),
        cwd=fence.project,
        env=fence.environment(),
        pass_fds=(out,),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    os.close(out)
    with os.fdopen(into, "rb") as stream:
        return done.returncode, stream.read(), done.stderr


def test_the_report_is_one_word(fence: Fence) -> None:
    for shell, word in (("default", b"started\n"), ("restricted", b"started\n"), ("yolo", b"unfenced\n")):
        assert by_hand(fence, shell, "sh", "-c", "exit 125")[:2] == (125, word)
        assert by_hand(fence, shell, "no-such-command")[:2] == (127, word)


@pytest.mark.parametrize("number", ["", "x", "0", "2", "02", "3x", "a[$(touch made)]", "99999", "99999999999999999999"])
@pytest.mark.parametrize("shell", [*FENCED, "yolo"])
def test_a_report_to_nowhere_starts_nothing(fence: Fence, shell: str, number: str) -> None:
    done = fence.enter("--report", number, "--", "echo", "RAN", shell=shell)
    assert (done.returncode, done.stdout) == (125, "")
    assert "--report needs the number of" in done.stderr
    assert not (fence.project / "made").exists()


@pytest.mark.parametrize("shell", FENCED)
def test_a_report_that_cannot_be_written_starts_nothing(fence: Fence, shell: str) -> None:
    handle = os.open("/dev/null", os.O_RDONLY)
    argv = fence.argv(shell, ("--report", str(handle), "--", "echo", "RAN"))
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), pass_fds=(handle,), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    os.close(handle)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "open the descriptor for writing" in done.stderr


def test_where_the_launcher_can_make_no_namespace_its_stage_reports(new: Callable[..., Fence]) -> None:
    fence = new()
    change(fence, *NO_UNSHARE)
    assert by_hand(fence, "restricted", "sh", "-c", "ls /proc/self/fd >&2; exit 125")[:2] == (125, b"started\n")
    status, report, said = by_hand(fence, "restricted", PYTHON, "-I", "-S", "-c", "import os; os.write(2, b'%d ' % len(os.listdir('/proc/self/fd')))")
    assert (status, report, said.endswith(b"4 ")) == (0, b"started\n", True), said
    change(fence, "inside/listeners.py", "        refused = open_and_send(channel, wanted)\n", '        raise PermissionError(1, "no")\n')
    status, report, said = by_hand(fence, "restricted", "echo", "RAN")
    assert (status, report) == (125, b""), said


def test_the_other_shim_reports_as_well(new: Callable[..., Fence]) -> None:
    fence = new(uid=os.getuid())
    prefix = in_place_of("/usr/bin/perl", stand_in(fence, None))
    code = "say([tried('sh', '-c', 'ls /proc/$$/fd; exit 125'), tried('no-such-command', shell='restricted')])"
    assert scripted(fence, prefix, code) == [[125, "0\n1\n2\n", True], [127, "", True]]


# --- without namespaces


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_landlock_is_a_fence_as_well(new: Callable[..., Fence], uid: int) -> None:
    fence = new(ALONE, uid=uid)
    for shell in FENCED:
        assert run(fence, "sh", "-c", "cat; exit 125", shell=shell, input="in").stdout == b"in"
        found = run(fence, "sh", "-c", "ls /proc/$$/fd; cat /etc/shadow; exit 125", shell=shell)
        assert (found.status, found.fenced, found.stdout, b"ermission denied" in found.stderr) == (125, True, b"0\n1\n2\n", True)
        assert run(fence, "no-such-command", shell=shell).status == 127
        found = run(fence, PYTHON, "-I", "-S", "-c", FORGE, shell=shell)
        assert (found.stdout_text, found.fenced) == ("4 []\n", True)
    assert use(fence, lambda box: box.agent(["hello"], persona="reader")).stdout == b"hello\n"
    asked = ASK.replace('("127.0.0.1", 3128)', '("127.0.0.1", int(__import__("os").environ["HTTPS_PROXY"].rpartition(":")[2]))')
    found = run(fence, PYTHON, "-c", asked, "alone.example.org:443", shell="restricted")
    assert [one.name for one in found.refused] == ["alone.example.org"], found
    before, word = kept(fence), f"3{secrets.randbelow(10**9):09d}"
    found = run(fence, "sh", "-c", STUBBORN.format(word=word), shell="restricted", timeout=1)
    assert (found.status, found.timed_out, found.stdout) == (124, True, b"up\n")
    assert not processes(word)
    # A process of the launcher's looks at what is left, and nobody waits for it.
    assert until(lambda: kept(fence) == before)


@pytest.mark.needs("landlock")
def test_landlock_that_cannot_be_starts_nothing(new: Callable[..., Fence]) -> None:
    fence = new(ALONE)
    script = fence.project / ".wavegen/bin/landlock-default"
    script.write_text(script.read_text() + "\n")
    assert "is not what was rendered last" in fails(fence, lambda box: box.run(["true"]))
    fence.render()
    assert "which the sandbox can read" in fails(fence, lambda box: box.run(["true"], env={"HOME": "/usr/lib"}))


# --- what is asked wrongly


def test_what_cannot_work_is_a_usage_error(fence: Fence) -> None:
    wrong: list[Callable[[Sandbox], object]] = [
        lambda box: box.run([]),
        lambda box: box.run("true"),
        lambda box: box.run(["a\0b"]),
        lambda box: box.run([b"true"]),  # type: ignore[list-item]
        lambda box: box.run(["true"], shell="none-such"),
        lambda box: box.run(["true"], persona="none-such"),
        lambda box: box.run(["true"], shell="default", persona="reader"),
        lambda box: box.run(["true"], timeout=0),
        lambda box: box.run(["true"], timeout=float("nan")),
        lambda box: box.run(["true"], env={"A=B": "c"}),
        lambda box: box.run(["true"], env={"A": "\0"}),
        lambda box: box.run(["true"], env={"A": 1}),  # type: ignore[dict-item]
        lambda box: box.run(["true"], shell="yolo", connect_to=["a:1:127.0.0.1:1"]),
        lambda box: box.agent(persona="none-such"),
        lambda box: box.agent("words", persona="reader"),
        lambda box: box.run(None),  # type: ignore[arg-type]
        lambda box: box.run(3),  # type: ignore[arg-type]
        lambda box: box.run(["\ud800"]),
        lambda box: box.run(["true"], shell=""),
        lambda box: box.run(["true"], persona=""),
        lambda box: box.run(["true"], shell=3),  # type: ignore[arg-type]
        lambda box: box.run(["true"], persona=b"reader"),  # type: ignore[arg-type]
        lambda box: box.run(["true"], timeout="5"),  # type: ignore[arg-type]
        lambda box: box.run(["true"], timeout=True),
        lambda box: box.run(["true"], timeout=10**400),
        lambda box: box.run(["true"], cwd="a\0b"),
        lambda box: box.run(["true"], cwd="\ud800"),
        lambda box: box.run(["true"], cwd=b"/tmp"),  # type: ignore[arg-type]
        lambda box: box.run(["true"], cwd=3),  # type: ignore[arg-type]
        lambda box: box.run(["true"], input=3),  # type: ignore[arg-type]
        lambda box: box.run(["true"], input="\ud800"),
        lambda box: box.run(["true"], env={"A": "\ud800"}),
        lambda box: box.run(["true"], env=["A"]),  # type: ignore[arg-type]
        lambda box: box.run(["true"], max_output=-1),
        lambda box: box.run(["true"], max_output="1"),  # type: ignore[arg-type]
        lambda box: box.run(["true"], shell="restricted", connect_to=3),  # type: ignore[arg-type]
        lambda box: box.agent(persona=""),
        lambda box: box.agent(persona="reader", adapter=""),
        lambda box: box.agent(persona="reader", adapter=3),  # type: ignore[arg-type]
        lambda box: box.replace(["true"], persona=""),
        lambda box: box.replace(["true"], persona="reader", adapter=""),
        lambda box: box.replace(["true"], adapter="words"),
        lambda box: box.replace(["true"], instead=True),
        lambda _: Sandbox.load(3),  # type: ignore[arg-type]
        lambda _: Sandbox.load(b"wave.yaml"),  # type: ignore[arg-type]
        lambda _: Sandbox.load("a\0b"),
        lambda _: Sandbox.load("\ud800"),
        lambda _: Sandbox.load(""),
    ]
    for number, call in enumerate(wrong):
        error, found = outcome(fence, call)
        assert error == "UsageError", (number, found)
        assert found[0].startswith("wavegen: error: ")
        assert found[0].endswith(")")


def test_a_text_in_place_of_words_is_told_how_to_write_them(fence: Fence) -> None:
    connect_to = "echo.example.com:7000:127.0.0.1:1"
    for call, hint in (
        (lambda box: box.run("make test"), '["make", "test"]'),
        (lambda box: box.agent("-p x", persona="reader"), '["-p", "a question"]'),
        (lambda box: box.run(["true"], shell="restricted", connect_to=connect_to), f'["{connect_to}"]'.replace(connect_to, "NAME:PORT:ADDRESS:PORT")),
    ):
        assert hint in outcome(fence, call)[1][0]


def test_a_personas_fence_is_no_shell_and_says_whose_it_is(fence: Fence) -> None:
    assert (
        "there is no shell 'persona-reader' (that is a persona's fence: --persona reader)"
        in outcome(fence, lambda box: box.run(["true"], shell="persona-reader"))[1][0]
    )


def test_only_the_main_thread_becomes_a_command(fence: Fence) -> None:
    def elsewhere(box: Sandbox) -> list[str]:
        said: list[str] = []

        def become() -> None:
            try:
                box.replace(["true"])
            except UsageError as failed:
                said.append(str(failed))

        thread = threading.Thread(target=become)
        thread.start()
        thread.join()
        return said

    assert use(fence, elsewhere) == ["wavegen: error: only the main thread can become a command (call it there, or use run)"]


# --- how much is kept


@pytest.mark.parametrize("shell", [*FENCED, "yolo"])
def test_output_has_a_bound(fence: Fence, shell: str) -> None:
    found = run(fence, "sh", "-c", "echo begun >&2; exec yes", shell=shell, max_output=100_000, timeout=30)
    assert (found.truncated, found.timed_out) == (True, False)
    assert len(found.stdout) + len(found.stderr) == 100_000
    assert found.status > 128
    stubborn = "trap '' TERM; while :; do yes | head -c 1000; done"
    found = run(fence, "sh", "-c", stubborn, shell=shell, max_output=1000, timeout=30)
    assert (found.truncated, found.status) == (True, 137)
    found = run(fence, "sh", "-c", "head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2; exit 3", shell=shell, max_output=20_000)
    assert (found.truncated, found.status, len(found.stdout)) == (False, 3, 1000)


def test_output_that_nobody_wants_ends_the_command(fence: Fence) -> None:
    found = run(fence, "sh", "-c", "echo x; exec sleep 30", max_output=0, timeout=20)
    assert (found.truncated, found.timed_out, found.stdout, found.stderr) == (True, False, b"", b"")
    found = run(fence, "true", max_output=0)
    assert (found.truncated, found.status) == (False, 0)


def test_a_project_is_found_as_the_command_line_finds_it(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(UsageError, match=r"there is no wave\.yaml"):
        Sandbox.load()
    (tmp_path / "wave.yaml").write_text("nonsense: [\n")
    with pytest.raises(ManifestError):
        Sandbox.load(tmp_path / "wave.yaml")
    (tmp_path / "wave.yaml").write_text("metadata: {name: x}\n")
    box = Sandbox.load(tmp_path / "wave.yaml")
    assert box.root == str(tmp_path)
    with pytest.raises(FenceError, match="never rendered"):
        box.run(["true"])
    with pytest.raises(FenceError, match="never rendered"):
        box.replace(["true"])


def test_the_package_hands_on_these_names_and_no_other() -> None:
    assert wavegen.FenceError is FenceError
    assert wavegen.MachineError is MachineError
    assert wavegen.ManifestError is ManifestError
    assert wavegen.UsageError is UsageError
    assert wavegen.WavegenError is WavegenError
    assert all(getattr(wavegen, name) for name in wavegen.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        wavegen.Nothing  # type: ignore[attr-defined]  # noqa: B018
    code = "import sys, wavegen; assert not [n for n in sys.modules if n.startswith('wavegen.')]; wavegen.WavegenError; assert 'wavegen.project.library' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_process_that_keeps_no_children_is_told_so(fence: Fence) -> None:
    def ignoring(box: Sandbox) -> Result:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        return box.run(["sh", "-c", "exit 3"])

    def waiting(box: Sandbox) -> Result:
        signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, 0) and None)
        return box.run(["sh", "-c", "exit 3"])

    error, found = outcome(fence, ignoring)
    assert (error, "ignores SIGCHLD" in found[0]) == ("UsageError", True)
    error, found = outcome(fence, waiting)
    assert (error, "waitpid(-1)" in found[0]) == ("MachineError", True)

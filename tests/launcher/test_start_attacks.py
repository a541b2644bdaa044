"""Attacks on the start of a shell: by variables, by signals, by names, by limits, by files that are added. As root and as a user."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import random
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users, wait_until

pytestmark = pytest.mark.needs("bwrap")

MANIFEST = """\
metadata: {name: attacked}
personas: {reader: {adapter: wizard}}
adapters: {wizard: {}}
runtime: {sandbox: {default_allowed_domains: [a.example.org]}}
"""
SHELLS = ("default", "restricted")
WAYS = (*SHELLS, "persona-reader", "wavegen run")
ESCAPES = "\x1b]0;title\x07\x1b[2J\nwavegen: note: forged\r\x9b31m"
"""A name that sets a title, clears the screen and forges a line."""


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=request.param)
    yield made
    made.remove()


@pytest.fixture(params=users(), ids=name_of)
def own(request: pytest.FixtureRequest) -> Iterator[Fence]:
    """A project of the test's own, which it may spoil."""
    made = Fence.create(MANIFEST, uid=request.param)
    yield made
    made.remove()


def argv(fence: Fence, way: str, *command: str) -> list[str]:
    """What starts a command, by a stub or by the command line."""
    if way == "wavegen run":
        return [sys.executable, "-P", "-m", "wavegen", "run", "--shell", "restricted", "--", *command]
    return [str(fence.project / ".wavegen/bin" / way), *(("--exec",) if way.startswith("persona-") else ()), *command]


def run(fence: Fence, words: list[str], *, env: dict[str, str] | None = None, limit: tuple[int, int] | None = None) -> subprocess.CompletedProcess[str]:
    """Run it as the project's user, and wait."""
    who = {"user": fence.uid, "group": fence.uid, "extra_groups": []} if fence.uid != os.getuid() else {}

    def bound() -> None:
        if limit:
            resource.setrlimit(limit[0], (limit[1], limit[1]))

    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        words,
        cwd=fence.project,
        env=fence.environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        preexec_fn=bound if limit else None,
        **who,
    )


def ways(fence: Fence) -> tuple[str, ...]:
    """All ways to start that this user has: the tests' own Python may lie where another user cannot read."""
    return WAYS if fence.uid == os.getuid() else WAYS[:-1]


# --- input


def test_a_command_takes_no_more_of_its_input_than_it_reads(fence: Fence) -> None:
    lines = fence.write("list", "a\nb\nc\n")
    for way in ways(fence):
        each = run(fence, ["/bin/sh", "-c", 'while read -r x; do "$@" "$x"; done <list', "sh", *argv(fence, way, "echo")])
        assert (each.stdout, each.stderr) == ("a\nb\nc\n", ""), way
        rest = run(fence, ["/bin/sh", "-c", '{ read -r a; "$@"; read -r b; echo "$b"; } <list', "sh", *argv(fence, way, "true")])
        assert rest.stdout == "b\n", way
        one = run(fence, ["/bin/sh", "-c", '{ "$@"; read -r b; echo "$b"; } <list', "sh", *argv(fence, way, "sh", "-c", "read -r x; echo got $x")])
        assert one.stdout == "got a\nb\n", way
    assert lines.read_text() == "a\nb\nc\n"


def test_input_that_is_longer_than_a_pipe_is_taken_as_far_as_it_was_read(fence: Fence) -> None:
    data = b"".join(b"%09d\n" % number for number in range(100_000))
    (fence.project / "long").write_bytes(data)
    for way in ways(fence):
        words = argv(fence, way, "dd", "bs=1000", "count=300", "iflag=fullblock", "status=none")
        done = run(fence, ["/bin/sh", "-c", '{ "$@" | cksum; cksum; } <long', "sh", *words])
        wanted = [subprocess.run(["cksum"], input=part, capture_output=True, check=True).stdout.decode() for part in (data[:300_000], data[300_000:])]
        assert done.stdout == "".join(wanted), (way, done.stderr)


REOPEN = """
import os, sys
found = []
for place in ("/proc/self/fd/0", "/dev/stdin", "/dev/fd/0"):
    for how in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        try:
            handle = os.open(place, how | os.O_NONBLOCK)
            os.write(handle, b"planted\\n")
        except OSError:
            pass
for act in (lambda: os.write(0, b"planted"), lambda: os.ftruncate(0, 0), lambda: os.fchmod(0, 0o777)):
    try:
        act()
    except OSError:
        pass
"""


def test_a_file_that_is_input_cannot_be_written(fence: Fence) -> None:
    outside = fence.base / "input"  # not in the project, which the command may write anyway
    outside.write_text("kept\n")
    outside.chmod(0o644)
    os.chown(outside, fence.uid, fence.uid)
    for way in ways(fence):
        for redirection in ("<", "<>"):
            script = f'"$@" {redirection}"{outside}"'
            done = run(fence, ["/bin/sh", "-c", script, "sh", *argv(fence, way, PYTHON, "-I", "-S", "-c", REOPEN)])
            assert (done.returncode, done.stderr) == (0, ""), way
            assert (outside.read_text(), outside.stat().st_mode & 0o777) == ("kept\n", 0o644), (way, redirection)


# --- killed


def those_of(word: str) -> set[int]:
    """Processes that name a word in their command line."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def has_child(pid: int) -> bool:
    """Whether the launcher has one; the stub's own do not count."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("python") and bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    except OSError:
        return False


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_of_a_command_goes_on_when_its_launcher_is_killed(fence: Fence, shell: str) -> None:
    chance = random.Random(shell)
    environment = fence.environment()
    assert fence.enter("true", shell=shell).returncode == 0
    killed = 0
    for turn in range(60):
        word = f"3{secrets.randbelow(10**9):09d}"
        words = fence.argv(shell, ("sh", "-c", f"sleep {word}; touch survived"))
        process = subprocess.Popen(words, cwd=fence.project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not has_child(process.pid) and process.poll() is None:
            pass
        until = time.monotonic() + turn / 60 * 0.025 + chance.random() / 1000
        while time.monotonic() < until:
            pass
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        wait_until(lambda word=word: not those_of(word), f"turn {turn}: of a killed launcher something goes on")  # type: ignore[misc]
    assert killed == 60
    assert not (fence.project / "survived").exists()


# --- variables

OF_BASH = """
BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_ENV BASH_EXECUTION_STRING BASH_LINENO
BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD CHILD_MAX COLUMNS
COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COMPREPLY COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID
EXECIGNORE FCEDIT FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE HISTSIZE HISTTIMEFORMAT
HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC INSIDE_EMACS LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME LINENO LINES MACHTYPE
MAILCHECK MAIL MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PATH PIPESTATUS POSIXLY_CORRECT PPID PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3
PS4 PWD RANDOM READLINE_ARGUMENT READLINE_LINE READLINE_MARK READLINE_POINT REPLY SECONDS SHELL SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT TMPDIR UID
auto_resume histchars CDPATH _ TEXTDOMAIN TEXTDOMAINDIR
"""
OF_DASH = """
ATTY CDPATH ENV FCEDIT HISTSIZE HOME IFS LINENO MAIL MAILCHECK MAILPATH OLDPWD OPTIND PATH PPID PS1 PS2 PS4 PWD TERM
"""
OF_PYTHON = """
PYTHONHOME PYTHONPATH PYTHONSAFEPATH PYTHONPLATLIBDIR PYTHONSTARTUP PYTHONOPTIMIZE PYTHONBREAKPOINT PYTHONDEBUG PYTHONINSPECT PYTHONUNBUFFERED
PYTHONVERBOSE PYTHONCASEOK PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONHASHSEED PYTHONINTMAXSTRDIGITS PYTHONIOENCODING PYTHONNOUSERSITE
PYTHONUSERBASE PYTHONEXECUTABLE PYTHONWARNINGS PYTHONFAULTHANDLER PYTHONTRACEMALLOC PYTHONPROFILEIMPORTTIME PYTHONASYNCIODEBUG PYTHONMALLOC
PYTHONMALLOCSTATS PYTHONLEGACYWINDOWSFSENCODING PYTHONLEGACYWINDOWSSTDIO PYTHONCOERCECLOCALE PYTHONDEVMODE PYTHONUTF8 PYTHONWARNDEFAULTENCODING
PYTHONNODEBUGRANGES PYTHONPERFSUPPORT PYTHON_FROZEN_MODULES PYTHON_COLORS PYTHON_BASIC_REPL PYTHON_HISTORY PYTHON_GIL PYTHON_JIT PYTHON_CPU_COUNT
PYTHON_DISABLE_REMOTE_DEBUG PYTHON_PERF_JIT_SUPPORT PYTHON_PRESITE PYTHON_TLBC PYTHON_CONTEXT_AWARE_WARNINGS PYTHON_THREAD_INHERIT_CONTEXT
PYTHONDUMPREFS PYTHONDUMPREFSFILE PYTHONTHREADDEBUG PYTHONISOLATED __PYVENV_LAUNCHER__ VIRTUAL_ENV
"""
ALONE = "BASH_ENV ENV SHELLOPTS BASHOPTS BASH_SOURCE BASH_ARGV0 PS4 IFS POSIXLY_CORRECT PYTHONPATH PYTHONHOME PYTHONINSPECT"
"""Those that have been a way in somewhere: also without the others, which could stand before them."""
OF_THE_STUB = ["self", "python", "bound"]
FUNCTIONS = (
    *("exec", "trap", "printf", "[", "test", "ulimit", "exit", "readlink", "command", "builtin", "set", "unset", ":", "true", "for", "case", "echo"),
    *("python3", "/usr/bin/python3", "/usr/local/bin/python3", "sh", "bwrap", "perl", "cd", "eval", "source", "."),
)
KEPT = ("PATH", "HOME", "TERM", "OPTIND")
"""What a start cannot do without; PATH comes with programs of the attacker's in it, and OPTIND, which dash does not start with, alone."""
INSIDE = 'test "$(readlink /proc/self/ns/pid)" != "$0" && test "$(readlink /proc/self/ns/mnt)" != "$1" && echo inside'


def hostile(fence: Fence, value: str, names: tuple[str, ...]) -> dict[str, str]:
    """An environment in which these variables have a hostile value: a name in it stands for a script, or for a directory with programs and modules."""
    evil = fence.base / "evil"
    if not evil.exists():
        evil.mkdir()
        script = f"#!/bin/sh\ntouch {fence.base}/escaped\n"
        for name in ("script", "python3", "readlink", "bwrap", "perl", "sh", "git", "gh", "systemd-run", "id", "bash"):
            (evil / name).write_text(script)
            (evil / name).chmod(0o755)
        for name in (*sys.stdlib_module_names, "sitecustomize", "usercustomize", "launcher"):
            (evil / f"{name}.py").write_text(f"open({str(fence.base / 'escaped')!r}, 'w')\n")
        fence.own()
    return fence.environment() | dict.fromkeys(names, value.format(script=evil / "script", evil=evil))


def with_shell(fence: Fence, program: str) -> None:
    """Let the stub be read by another shell than this machine's /bin/sh."""
    stub = fence.project / ".wavegen/bin/default"
    text = stub.read_text()
    put_into_lock(fence, ".wavegen/bin/default", text.replace(text.partition("\n")[0], f"#!{program} -p", 1))


def put_into_lock(fence: Fence, name: str, text: str) -> None:
    """Write a rendered file as if render had."""
    (fence.project / name).write_text(text)
    lock = fence.project / ".wavegen/lock.json"
    found = json.loads(lock.read_text())
    found["outputs"][name] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    lock.write_text(json.dumps(found))


@pytest.mark.needs("bash")
@pytest.mark.parametrize("program", ["/bin/sh", "/bin/bash"])
def test_no_variable_lets_a_command_out(own: Fence, program: str) -> None:
    with_shell(own, program)
    every = tuple(name for name in (*f"{OF_BASH} {OF_DASH} {OF_PYTHON}".split(), *OF_THE_STUB) if name not in KEPT)
    alone = ALONE.split()
    values = ("{script}", "{evil}", "", "1", "noexec:xtrace:nounset", "$({script})", "x[$({script})]", "/dev/null", "${{x:=$({script})}}")
    environments = [hostile(own, value, every) for value in values]
    environments += [hostile(own, value, (name,)) for name in alone for value in ("{script}", "{evil}", "noexec:xtrace")]
    environments.append(hostile(own, "{evil}:/usr/bin:/bin", ("PATH",)))
    functions = {f"BASH_FUNC_{name}%%": f"() {{ touch {own.base}/escaped; }}" for name in FUNCTIONS}
    environments += [hostile(own, "{script}", every) | functions, own.environment() | functions]
    where = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "mnt")]
    for environment in environments:
        done = run(own, argv(own, "default", "/bin/sh", "-c", INSIDE, *where), env=environment)
        assert (done.returncode, done.stdout) == (0, "inside\n"), (environment, done.stderr)
        assert not (own.base / "escaped").exists(), environment
    done = run(own, argv(own, "default", "/bin/sh", "-c", INSIDE, *where), env=hostile(own, "x[$({script})]", ("OPTIND",)))
    assert (done.returncode, done.stdout) in ((0, "inside\n"), (2, "")), done.stderr
    assert not (own.base / "escaped").exists()


# --- names


def planted(root: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Things that a command can make whose names come into messages."""
    odd = root / ESCAPES

    def unreadable() -> None:
        (odd / ".git").mkdir(parents=True)
        (odd / ".git").chmod(0)

    def link_at_a_protected_place(target: str) -> Callable[[], object]:
        return lambda: (root / ".vscode").symlink_to(target)

    def pointer() -> None:
        (root / "sub").mkdir()
        (root / "sub/.git").write_text(f"gitdir: ../{ESCAPES.replace(chr(10), '')}\n")

    def settings() -> None:
        (root / ".git").mkdir()
        (root / ".git/config").write_text(f'[core]\n\thooksPath = "{ESCAPES.replace(chr(10), "")}"\n[include]\n\tpath = "../{ESCAPES.replace(chr(10), "")}"\n')

    yield "a directory that cannot be looked at", unreadable
    yield "a link that leads nowhere", link_at_a_protected_place(ESCAPES)
    yield "a link to outside", link_at_a_protected_place(f"/{ESCAPES}")
    yield "a link to itself", lambda: ((root / ESCAPES).symlink_to(ESCAPES), (root / ".vscode").symlink_to(ESCAPES))
    yield "a pointer of git", pointer
    yield "settings of git", settings
    yield "a file of .wavegen", lambda: (root / ".wavegen" / ESCAPES).write_text("")
    yield "a directory of .wavegen", (root / ".wavegen/launcher" / ESCAPES).mkdir
    yield "a repository", lambda: subprocess.run(["git", "init", "-q", str(odd)], check=True)


def raw(text: str) -> list[str]:
    """What would move a terminal's cursor, or forge a line."""
    lines = text.split("\n")
    return [line for line in lines if line.startswith("wavegen: note: forged") or any(not c.isprintable() for c in line)]


def test_names_that_a_command_chose_reach_no_terminal_raw(own: Fence) -> None:
    for what, plant in list(planted(own.project)):
        before = set(own.project.rglob("*"))
        plant()
        if own.uid:
            subprocess.run(["chown", "-hR", f"{own.uid}:{own.uid}", str(own.project)], check=True)
        for way in ways(own):
            for words in (argv(own, way, "true"), *([argv(own, way, "--print")] if way in SHELLS else ())):
                done = run(own, words)
                assert raw(done.stderr + done.stdout) == [], (what, way)
        for path in sorted(set(own.project.rglob("*")) - before, reverse=True):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        subprocess.run(["rm", "-rf", *(str(own.project / name) for name in (ESCAPES, ".vscode", "sub", ".git"))], check=True)
        subprocess.run(["rm", "-rf", str(own.project / ".wavegen" / ESCAPES), str(own.project / ".wavegen/launcher" / ESCAPES)], check=True)
    assert run(own, argv(own, "default", "echo", "well")).stdout == "well\n"


# --- another directory at the same path


@pytest.mark.parametrize("shell", SHELLS)
def test_another_directory_at_the_same_path_has_a_private_home_of_its_own(own: Fence, shell: str) -> None:
    assert own.enter("sh", "-c", "echo planted >~/.profile; mkdir -p ~/.local/bin; echo x >~/.local/bin/git", shell=shell).returncode == 0
    assert own.enter("cat", f"{own.home}/.profile", shell=shell).stdout == "planted\n"
    manifest = (own.project / "wave.yaml").read_text()
    own.project.rename(own.project.parent / "before")
    own.project.mkdir()
    own.write("wave.yaml", manifest)
    assert own.render().returncode == 0
    done = own.enter("sh", "-c", "cat ~/.profile; ls -A ~/.local/bin", shell=shell)
    assert done.stdout == ""
    assert "another directory was at" in done.stderr
    again = own.enter("sh", "-c", "echo mine >~/.profile; cat ~/.profile", shell=shell)
    assert (again.stdout, again.stderr) == ("mine\n", "")
    assert own.enter("cat", f"{own.home}/.profile", shell=shell).stdout == "mine\n"


# --- limits


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("what", "amounts", "said"),
    [
        (resource.RLIMIT_NOFILE, (12, 16, 24, 48, 64), "ulimit -n"),
        (resource.RLIMIT_DATA, (1000 << 10, 3000 << 10, 5000 << 10), "ulimit -d"),
        (resource.RLIMIT_AS, (10000 << 10,), "ulimit -v"),
        (resource.RLIMIT_FSIZE, (0, 100), "ulimit -f"),
    ],
)
def test_a_limit_that_leaves_no_room_is_said_and_nothing_runs(fence: Fence, shell: str, what: int, amounts: tuple[int, ...], said: str) -> None:
    for amount in amounts:
        done = run(fence, argv(fence, shell, "touch", "ran"), limit=(what, amount))
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (125, True, 1), (amount, done.stderr)
        assert not (fence.project / "ran").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_arguments_that_are_too_long_are_said_and_nothing_runs(fence: Fence, shell: str) -> None:
    def start(size: int) -> subprocess.CompletedProcess[str] | None:
        words = ["a" * 100_000] * (size // 100_001) + ["b" * (size % 100_001)]
        try:
            return run(fence, argv(fence, shell, "sh", "-c", "touch ran", *words))
        except OSError:
            return None  # too long for the stub itself

    least, most = 2_000_000, 2_100_000
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if start(middle) is None else (middle, most)
    (fence.project / "ran").unlink(missing_ok=True)
    seen = set()
    for less in (0, 30, 60, 90, 120, 300, 1000, 4000):
        done = start(least - less)
        assert done
        assert (done.returncode, "long" in done.stderr) == (125, True), (less, done.stderr)
        assert not (fence.project / "ran").exists()
        seen.add(done.stderr)
    assert len(seen) > 1  # both of the stub and of bwrap


# --- files that are added


def modules(fence: Fence) -> list[str]:
    """Names of all modules of the standard library, and of the launcher's own."""
    own = [path.stem for path in (fence.project / ".wavegen/launcher").rglob("*.py")]
    return sorted({*sys.stdlib_module_names, *own, "launcher", "wavegen", "sitecustomize", "usercustomize"})


def test_modules_in_the_project_are_not_loaded(own: Fence) -> None:
    code = f"open({str(own.base / 'escaped')!r}, 'w')\n"
    for name in modules(own):
        if not (own.project / name).exists():
            own.write(f"{name}.py", code)
    own.own()
    for way in ways(own):
        done = run(own, argv(own, way, "echo", "well"))
        assert (done.returncode, done.stdout) == (0, "well\n"), (way, done.stderr)
    assert not (own.base / "escaped").exists()


@pytest.mark.parametrize("place", [".wavegen", ".wavegen/launcher", ".wavegen/launcher/egress", ".wavegen/rules", ".wavegen/bin"])
def test_modules_that_are_added_to_what_was_rendered_are_refused(own: Fence, place: str) -> None:
    code = f"open({str(own.base / 'escaped')!r}, 'w')\n"
    names = [name for name in modules(own) if not (own.project / place / f"{name}.py").exists()]
    assert run(own, argv(own, "default", "true")).returncode == 0  # what was checked is kept

    def refused(added: list[str]) -> None:
        for name in added:
            own.write(f"{place}/{name}.py", code)
        own.own()
        for way in ways(own):
            done = run(own, argv(own, way, "echo", "ran"))
            assert (done.returncode, done.stdout) == (125, ""), (way, added)
            assert "the lock does not list it" in done.stderr, (way, done.stderr)
        for name in added:
            (own.project / place / f"{name}.py").unlink()
        assert not (own.base / "escaped").exists()

    refused(names)
    for name in ("json", "hashlib", "sitecustomize"):
        refused([name])
    assert run(own, argv(own, "default", "echo", "well")).stdout == "well\n"


def test_byte_code_that_others_compiled_is_not_loaded(own: Fence) -> None:
    cache = own.project / ".wavegen/launcher/__pycache__"
    code = compile(f"open({str(own.base / 'escaped')!r}, 'w')\nraise SystemExit(0)\n", "x", "exec")
    marked = subprocess.run([PYTHON, "-I", "-c", "import sys; print(sys.implementation.cache_tag, sys.hexversion)"], capture_output=True, text=True, check=True)
    tag, version = marked.stdout.split()
    names = modules(own)
    own_modules = [name for name in names if (own.project / f".wavegen/launcher/{name}.py").exists()]
    evil = {name: marshal.dumps(code) for name in (*own_modules, "__init__", "egress.__init__")}
    lock = str(own.project / ".wavegen/lock.json").encode()
    if marshal.version != 4 or sys.implementation.cache_tag != tag:
        pytest.skip("the tests' Python compiles for another one")

    def planted(text: bytes) -> None:
        assert run(own, argv(own, "default", "true")).returncode == 0
        for name in names:
            (cache / f"{name}.{tag}.pyc").write_bytes(b"\0" * 16 + marshal.dumps(code))
        (cache / f"launcher-{tag}").write_bytes(text)
        own.own()
        for way in ways(own):
            done = run(own, argv(own, way, "echo", "well"))
            assert (done.returncode, done.stdout) == (0, "well\n"), (way, done.stderr)
            assert not (own.base / "escaped").exists(), way

    # Files that are nowhere have a status that anybody knows.
    planted(b"\0".join((version.encode(), b"/nowhere", b"()")) + b"\0\0" + marshal.dumps(evil))
    planted(b"\0".join((version.encode(), lock, b"()")) + b"\0\0" + marshal.dumps(evil))
    planted(marshal.dumps((int(version), evil, {"/nowhere": ()})))
    planted(b"\0" * 100)
    planted(b"")


def test_a_cache_that_is_a_link_is_not_followed(own: Fence) -> None:
    cache = own.project / ".wavegen/launcher/__pycache__"
    assert run(own, argv(own, "default", "true")).returncode == 0
    assert cache.is_dir()
    cache.rename(own.base / "elsewhere")
    cache.symlink_to(own.base / "elsewhere")
    done = run(own, argv(own, "default", "echo", "ran"))
    assert (done.returncode, done.stdout, "the lock does not list it" in done.stderr) == (125, "", True)

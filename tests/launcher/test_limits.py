"""The bounds of a shell, used up from inside: as root, whose shells get control groups, and as a user, whose processes are bounded each.

Load is small, and ends by itself: 64 processes, 64 MiB, half a processor.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users
from helpers import USER, in_place_of_bwrap, until

pytestmark = pytest.mark.needs("bwrap")

PIDS, FILES, MEMORY = 64, 256, 64 << 20
SANDBOX = "metadata: {name: limits}\nruntime:\n  sandbox:\n    shells: {filtered: {network: filtered, domains: [good.example]}}\n"
BOUNDED = SANDBOX + "    limits: {pids: 64, memory: 64m, cpus: 0.5, files: 256, tmp: 16m}\n"
SHELLS = ("default", "restricted", "filtered")
EACH_SHELL = pytest.mark.parametrize("shell", SHELLS)
CGROUP = Path("/sys/fs/cgroup")


def groups(pid: int | str = "*") -> list[Path]:
    """The control groups that the launcher with a number made: its number stays the same to its end."""
    return sorted(path for path in CGROUP.rglob(f"wavegen-{pid}") if path.is_dir())


def _writable() -> bool:
    return os.getuid() == 0 and not (CGROUP / "cgroup.controllers").exists() and all(os.access(CGROUP / name, os.W_OK) for name in ("pids", "memory", "cpu"))


GROUPED = pytest.mark.skipif(not _writable(), reason="no control groups of version 1 can be made here")


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(BOUNDED, uid=request.param)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def rooted() -> Iterator[Fence]:
    """Root's, who can make control groups here."""
    made = Fence.create(BOUNDED, uid=os.getuid())
    yield made
    made.remove()


@pytest.fixture
def new() -> Iterator[Callable[..., Fence]]:
    """Makes a fence from a manifest; all are removed at the end."""
    made: list[Fence] = []

    def make(manifest: str = BOUNDED, *, uid: int) -> Fence:
        made.append(Fence.create(manifest, uid=uid))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def start(fence: Fence, code: str, *arguments: str, shell: str = "default") -> subprocess.Popen[str]:
    """A Python program inside that one can talk to."""
    argv = fence.argv(shell, (PYTHON, "-I", "-S", "-c", code, *arguments))
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=fence.project, env=fence.environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def said(process: subprocess.Popen[str]) -> object:
    """The next line of a program inside, as JSON."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        _, messages = process.communicate(timeout=20)
        pytest.fail(f"it ended: {process.returncode} {messages}")
    return json.loads(line)


def ended(process: subprocess.Popen[str]) -> int:
    """Close its input, and wait for its end."""
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode


def alive(word: str) -> list[int]:
    """Processes of the machine that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


# --- processes

BOMB = """
import json, os, subprocess, sys, time
bomb = f'bomb() {{ : {sys.argv[1]}; bomb | bomb & }}; bomb; bomb; wait'
subprocess.Popen(['bash', '-c', bomb], stderr=subprocess.DEVNULL, start_new_session=True)
print(json.dumps('started'), flush=True)
most, end = 0, time.monotonic() + 3
while time.monotonic() < end:
    most = max(most, sum(name.isdigit() for name in os.listdir('/proc')))
    time.sleep(0.005)
print(json.dumps(most), flush=True)
"""


def took_true() -> float:
    """Seconds for a program of the host's."""
    began = time.monotonic()
    subprocess.run(["/bin/true"], check=True, timeout=10)
    return time.monotonic() - began


@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_a_fork_bomb_ends_inside_and_the_host_stays_responsive(fence: Fence, shell: str) -> None:
    word = f"bomb{os.getpid()}{shell}{fence.uid}"
    before = [took_true() for _ in range(5)]
    process = start(fence, BOMB, word, shell=shell)
    try:
        assert said(process) == "started"
        took = []
        for _ in range(20):
            took.append(took_true())
            time.sleep(0.05)
        assert alive(word)  # it went on meanwhile
        most = said(process)
        # As many as may be, and no more; bwrap's own are among them.
        assert isinstance(most, int)
        assert PIDS // 2 < most <= PIDS + 2, most
        # On a machine that is busy with something else it may not have been quick before.
        assert max(took) < max(1, 5 * max(before)), (before, took)
        assert statistics.median(took) < max(0.3, 5 * statistics.median(before)), (before, took)
        assert ended(process) == 0
    finally:
        process.kill()
    assert until(lambda: not alive(word)), alive(word)


MANY = """
import json, os, subprocess, sys
started = []
try:
    for _ in range(int(sys.argv[1])):
        started.append(subprocess.Popen(['sleep', '60']))
except OSError as failed:
    print(json.dumps([len(started), failed.errno]), flush=True)
else:
    print(json.dumps([len(started), 0]), flush=True)
sys.stdin.read()
"""


@EACH_SHELL
def test_no_more_processes_than_allowed_can_be_started(fence: Fence, shell: str) -> None:
    process = start(fence, MANY, "100", shell=shell)
    count, errno = said(process)  # type: ignore[misc]
    assert ended(process) == 0
    assert (PIDS - 10 < count < PIDS, errno) == (True, 11), count


@EACH_SHELL
def test_shells_at_the_same_time_have_bounds_of_their_own(fence: Fence, shell: str) -> None:
    first = start(fence, MANY, "100", shell=shell)
    assert said(first)[1] == 11  # type: ignore[index]
    second = start(fence, MANY, "40", shell=shell)
    assert said(second) == [40, 0]
    if fence.uid == 0 and _writable():
        made = [groups(one.pid) for one in (first, second)]
        assert [len(one) for one in made] == [3, 3]
        members = [set((one[0] / "cgroup.procs").read_text().split()) for one in made]
        assert len(members[0]) > 40 < len(members[0] | members[1]) - len(members[0]) + 10
        assert not members[0] & members[1]
    assert ended(second) == 0
    assert ended(first) == 0


# --- memory

TAKES = "import sys; taken = b'x' * (int(sys.argv[1]) << 20); print('taken', flush=True); sys.stdin.read()"
TOGETHER = f"""
import json, subprocess, sys, time
takes = {TAKES!r}
children = []
for size in sys.argv[1:]:
    child = subprocess.Popen([sys.executable, '-I', '-S', '-c', takes, size], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children.append([child, child.stdout.readline()])
time.sleep(0.2)
found = []
for child, line in children:
    out, err = child.communicate()
    found.append([line.strip(), child.returncode, 'MemoryError' in err])
print(json.dumps(found), flush=True)
"""


@EACH_SHELL
def test_whoever_takes_more_memory_than_allowed_ends_alone(fence: Fence, shell: str) -> None:
    found = fence.python(TOGETHER, "200", "16", shell=shell)
    assert isinstance(found, list)
    line, status, in_python = found[0]
    assert line == ""
    assert (status, in_python) == (1, True) or status == -signal.SIGKILL
    assert found[1] == ["taken", 0, False]


@GROUPED
@EACH_SHELL
def test_memory_of_several_processes_is_bounded_together(rooted: Fence, shell: str) -> None:
    """Each of them may take as much; the first alone does, and the shell goes on."""
    assert rooted.python(TOGETHER, "40", shell=shell) == [["taken", 0, False]]
    found = rooted.python(TOGETHER, "40", "40", shell=shell)
    assert isinstance(found, list)
    assert -signal.SIGKILL in [status for _, status, _ in found], found


def test_what_a_user_s_processes_take_together_is_not_bounded_without_a_control_group(new: Callable[..., Fence]) -> None:
    made = new(uid=users()[-1])
    assert made.python(TOGETHER, "40", "40") == [["taken", 0, False]] * 2


# --- processors, files, dumps, scratch

BUSY = """
import json, os, resource, signal, time
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        while True: pass
    children.append(pid)
began = time.monotonic()
time.sleep(3)
took = time.monotonic() - began
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps((used.ru_utime + used.ru_stime) / took))
"""


@GROUPED
@pytest.mark.parametrize("shell", ["default", "filtered"])
def test_two_busy_processes_get_what_is_allowed_of_the_processors(new: Callable[..., Fence], shell: str) -> None:
    """A tenth: on a machine that others use, too, nobody gets much more than a half anyhow."""
    share = new(BOUNDED.replace("cpus: 0.5", "cpus: 0.1"), uid=0).python(BUSY, shell=shell)
    assert isinstance(share, float)
    assert 0.02 < share < 0.16, share
    unbound = new(BOUNDED.replace("cpus: 0.5, ", ""), uid=0).python(BUSY, shell=shell)
    assert isinstance(unbound, float)
    assert unbound > 1.5 * share, (unbound, share)


@EACH_SHELL
def test_files_and_dumps_are_bounded(fence: Fence, shell: str) -> None:
    code = """
import json, resource
opened = []
try:
    while len(opened) < 1000: opened.append(open('/dev/null'))
except OSError as failed:
    errno = failed.errno
count = len(opened)
opened.clear()
def raises(name, value):
    try: resource.setrlimit(name, (value, value)); return True
    except (OSError, ValueError): return False
names = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_DATA)
print(json.dumps([count, errno, [resource.getrlimit(name) for name in names], [raises(name, 1 << 30) for name in names]]))
"""
    count, errno, bounds, raised = fence.python(code, shell=shell)  # type: ignore[misc]
    assert (FILES - 10 < count < FILES, errno) == (True, 24)
    # A limit of 1 and not 0, where a core_pattern that is a pipe runs its program all the same (core(5)).
    assert bounds == [[FILES, FILES], [1, 1], [MEMORY, MEMORY]]
    assert raised == [False] * 3


def test_a_crash_leaves_no_dump(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "sh -c 'kill -SEGV $$'; echo $?; ls -A | grep -c core")
    assert done.stdout == "139\n0\n", done.stderr


def test_scratch_directories_are_bounded(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "head -c 12000000 /dev/zero >/tmp/x && echo fits; rm /tmp/x; head -c 24000000 /dev/zero >/tmp/x || echo full")
    assert done.stdout == "fits\nfull\n", done.stderr


# --- control groups come and go

WAITS = "import json, sys; print(json.dumps('ready'), flush=True); sys.stdin.read()"


@GROUPED
@EACH_SHELL
def test_a_shell_s_control_groups_have_the_bounds_and_go_with_it(rooted: Fence, shell: str) -> None:
    process = start(rooted, WAITS, shell=shell)
    assert said(process) == "ready"
    made = {path.relative_to(CGROUP).parts[0]: path for path in groups(process.pid)}
    assert set(made) == {"pids", "memory", "cpu"}
    for path in made.values():
        assert len((path / "cgroup.procs").read_text().split()) >= 2
    assert (made["pids"] / "pids.max").read_text() == f"{PIDS}\n"
    assert (made["memory"] / "memory.limit_in_bytes").read_text() == f"{MEMORY}\n"
    assert [int((made["cpu"] / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")] == [50000, 100000]
    # The launcher outside is not among them: it must not be what is stopped.
    assert str(process.pid) not in (made["pids"] / "cgroup.procs").read_text().split()
    assert ended(process) == 0
    assert groups(process.pid) == []


@GROUPED
@EACH_SHELL
def test_control_groups_of_a_killed_wrapper_are_removed_at_the_next_start(rooted: Fence, shell: str) -> None:
    process = start(rooted, WAITS, shell=shell)
    assert said(process) == "ready"
    made = groups(process.pid)
    members = {pid for path in made for pid in (path / "cgroup.procs").read_text().split()}
    process.kill()
    process.communicate()
    assert until(lambda: not any(Path("/proc", pid).exists() for pid in members))
    assert until(lambda: not any((path / "cgroup.procs").read_text() for path in made if path.exists()))
    assert rooted.enter("true", shell=shell).returncode == 0
    assert len(made) == 3
    assert groups(process.pid) == []


@GROUPED
@EACH_SHELL
def test_a_command_that_leaves_a_process_in_the_background_leaves_no_control_group(rooted: Fence, shell: str) -> None:
    word = f"3{os.getpid()}77"
    argv = rooted.argv(shell, ("sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & sleep {word} >/dev/null 2>&1 & echo done; exit 6"))
    with subprocess.Popen(argv, cwd=rooted.project, env=rooted.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=30)[0] == "done\n"
    assert process.returncode == 6
    assert groups(process.pid) == []
    assert until(lambda: not alive(word))


@GROUPED
def test_a_fence_that_cannot_be_built_leaves_no_control_group(rooted: Fence) -> None:
    fake = rooted.base / "bwrap"
    fake.write_text(
        f"#!/bin/sh\nls -d /sys/fs/cgroup/pids/wavegen-$PPID >>{rooted.base}/seen\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    argv = [*in_place_of_bwrap(fake), *rooted.argv("default", ("echo", "RAN"))]
    with subprocess.Popen(argv, cwd=rooted.project, env=rooted.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, messages = process.communicate(timeout=30)
    assert (process.returncode, out) == (125, ""), messages
    assert str(process.pid) in (rooted.base / "seen").read_text()
    assert groups(process.pid) == []


@GROUPED
@EACH_SHELL
def test_root_hears_nothing_of_what_can_be_set(rooted: Fence, shell: str) -> None:
    assert "control group" not in rooted.enter("true", shell=shell).stderr
    assert not list((rooted.home / ".local/state/wavegen").rglob(".noted-unbounded*"))


NOTE = "wavegen: note: no control group can be made here: memory is bounded for each process alone, processors are not bounded (said once)\n"


@EACH_SHELL
def test_what_cannot_be_set_is_said_once(new: Callable[..., Fence], shell: str) -> None:
    made = new(uid=users()[-1])
    first, second = made.enter("echo", "ran", shell=shell), made.enter("echo", "ran", shell=shell)
    assert (first.stdout, second.stdout) == ("ran\n", "ran\n")
    assert first.stderr.count(NOTE) == 1
    assert "control group" not in second.stderr
    other = made.enter("true", shell=next(name for name in SHELLS if name != shell))
    assert other.stderr.count(NOTE) == 1


def test_processors_that_nobody_bounds_are_not_spoken_of(new: Callable[..., Fence]) -> None:
    made = new(BOUNDED.replace("cpus: 0.5, ", ""), uid=users()[-1])
    assert made.enter("true").stderr == NOTE.replace(", processors are not bounded", "")


@EACH_SHELL
@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_without_limits_no_control_group_is_made_and_the_bounds_are_the_defaults(new: Callable[..., Fence], uid: int, shell: str) -> None:
    made = new(SANDBOX, uid=uid)
    code = """
import json, resource, sys
print(json.dumps([resource.getrlimit(getattr(resource, f'RLIMIT_{name}'))[1] for name in ('NPROC', 'DATA', 'CORE', 'NOFILE')]), flush=True)
sys.stdin.read()
"""
    process = start(made, code, shell=shell)
    found = said(process)
    assert groups(process.pid) == []
    _, messages = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "control group" not in messages
    total = int(re.search(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text()).group(1))  # type: ignore[union-attr]
    # A caller's own bound that is lower stays.
    outside = [resource.getrlimit(name)[1] for name in (resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
    default = [-1 if uid == 0 else 4096, total * 75 * 1024 // 100, 1, 65536]
    wanted = [theirs if ours == -1 else ours if theirs == -1 else min(ours, theirs) for ours, theirs in zip(default, outside, strict=True)]
    assert found == wanted


def test_a_shell_with_other_bounds_than_pids_memory_and_cpus_makes_no_control_group(new: Callable[..., Fence]) -> None:
    made = new(SANDBOX + "    limits: {files: 300, tmp: 16m}\n", uid=users()[-1])
    process = start(made, "import json, resource; print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)), flush=True); input()")
    assert said(process) == [300, 300]
    assert groups(process.pid) == []
    process.kill()
    process.communicate()


# --- a service manager of the user's

MANAGER = """\
#!/bin/bash
{
  printf '%s\\n' "$@"
  printf 'runtime %s\\n' "$XDG_RUNTIME_DIR"
} >"@place"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
INSIDE = "tr '\\0' '\\n' </proc/self/environ; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; echo ran; exit 9"


@pytest.mark.skipif(os.getuid() != 0, reason="the stand-in is mounted, and a user without privileges enters")
@pytest.mark.skipif(not Path("/usr/bin/systemd-run").exists(), reason="there is nothing to stand in for")
@pytest.mark.parametrize("passed", [False, True], ids=["kept outside", "asked for"])
@EACH_SHELL
def test_a_user_s_service_manager_bounds_what_it_starts(new: Callable[..., Fence], shell: str, *, passed: bool) -> None:
    made = new(BOUNDED.replace("    limits", "    env_passthrough: [XDG_RUNTIME_DIR]\n    limits") if passed else BOUNDED, uid=USER)
    stand_in, place, directory = made.base / "systemd-run", made.base / "words", made.base / "run"
    stand_in.write_text(MANAGER.replace("@place", str(place)))
    stand_in.chmod(0o755)
    (directory / "systemd").mkdir(parents=True)
    subprocess.run([PYTHON, "-c", "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", str(directory / "systemd/private")], check=True)
    made.own()
    env = made.environment(XDG_RUNTIME_DIR=str(directory), DBUS_SESSION_BUS_ADDRESS=f"unix:path={directory}/bus")
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /usr/bin/systemd-run && shift && exec "$@"', "sh", str(stand_in)]
    # Only the first process of the fence would show them, and the second layer keeps it closed: looked at without it, too.
    for without in (False, True):
        if without:
            made.edit(f"rules/{shell}", lambda text: re.sub(r"(?m)^landlock\t[^\t]*", "landlock\t1:0x0:0x0:0x0:0x0:0x0:0x0", text))
            made.own()
        place.unlink(missing_ok=True)
        done = subprocess.run([*mounted, *made.argv(shell, ("sh", "-c", INSIDE))], cwd=made.project, env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (9, "ran"), done.stderr
        assert "control group" not in done.stderr
        assert done.stdout.count("\nSANDBOX_ACTIVE=1\n") == (2 if without else 1)
        assert done.stdout.count("TERM=xterm\n") == (2 if without else 1)
        assert "DBUS_SESSION_BUS_ADDRESS" not in done.stdout
        assert (f"XDG_RUNTIME_DIR={directory}" in done.stdout) == passed
        words = place.read_text().splitlines()
        assert words[:4] == ["--user", "--scope", "--quiet", "--collect"]
        end = words.index("--")
        bounds = {words[at + 1] for at in range(end) if words[at] == "-p"}
        assert bounds == {f"TasksMax={PIDS}", f"MemoryMax={MEMORY}", "MemorySwapMax=0", "CPUQuota=50%"}
        assert words[-1] == f"runtime {directory}"
        assert any(word.endswith("/bwrap") for word in words[end:])


@pytest.mark.skipif(os.getuid() != 0, reason="the stand-in is mounted, and a user without privileges enters")
@pytest.mark.skipif(not Path("/usr/bin/systemd-run").exists(), reason="there is nothing to stand in for")
def test_without_a_socket_of_the_service_manager_it_is_not_asked(new: Callable[..., Fence]) -> None:
    made = new(uid=USER)
    stand_in, place, directory = made.base / "systemd-run", made.base / "words", made.base / "run"
    stand_in.write_text(MANAGER.replace("@place", str(place)))
    stand_in.chmod(0o755)
    (directory / "systemd").mkdir(parents=True)
    (directory / "systemd/private").write_text("no socket")
    made.own()
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /usr/bin/systemd-run && shift && exec "$@"', "sh", str(stand_in)]
    argv = [*mounted, *made.argv("default", ("echo", "ran"))]
    done = subprocess.run(argv, cwd=made.project, env=made.environment(XDG_RUNTIME_DIR=str(directory)), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("ran\n", NOTE)
    assert not place.exists()


# --- control groups of version 2, on a tree of files in a mount namespace: what is written is looked at

TREE = r"""
set -eu
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/a/b/c
echo 'cpu memory pids' >/sys/fs/cgroup/cgroup.controllers
for place in /sys/fs/cgroup /sys/fs/cgroup/a /sys/fs/cgroup/a/b /sys/fs/cgroup/a/b/c; do
  : >"$place/cgroup.procs"
  echo >"$place/cgroup.subtree_control"
done
while [ "$1" != -- ]; do echo "$2" >"/sys/fs/cgroup$1/cgroup.subtree_control"; shift 2; done
shift
if [ -n "${owner-}" ]; then
  case $owned in
    '') chown -R "$owner" /sys/fs/cgroup ;;
    /a) chown "$owner" /sys/fs/cgroup/a /sys/fs/cgroup/a/cgroup.* ;;
  esac
fi
status=0
"$@" || status=$?
cd /sys/fs/cgroup
for file in $(find . -path '*/wavegen-*' -type f | sort); do echo "$file $(cat "$file")"; done >"$base/found"
exit $status
"""


# The kernel makes the files of a new group, those of the controllers that the group above hands on.
KERNEL = """

def _make_as_the_kernel_does(path):
    posix.mkdir(path)
    with open(path.rpartition("/")[0] + "/cgroup.subtree_control", encoding="ascii") as stream:
        controllers = stream.read().split()
    for name in ("cgroup.procs", "pids.max", "memory.max", "memory.swap.max", "cpu.max"):
        if name.partition(".")[0] in ("cgroup", *controllers):
            open(path + "/" + name, "w").close()
"""


def version_two(fence: Fence, handed: dict[str, str], shell: str = "default", *, owned: str = "") -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Enter where groups hand these controllers on; what was written into the files of new groups. `owned`: what a user was given of it."""
    # Something mounted over /proc/self/cgroup would let nobody mount another proc, so the launcher looks elsewhere.
    cgroup = fence.base / "cgroup"
    cgroup.write_text("0::/a/b/c\n")

    def with_tree(text: str) -> str:
        assert (text.count('"/proc/self/cgroup"'), text.count("posix.mkdir(path)")) == (1, 1)
        return text.replace("/proc/self/cgroup", str(cgroup)).replace("posix.mkdir(path)", "_make_as_the_kernel_does(path)") + KERNEL

    before = (fence.project / ".wavegen/launcher/cgroups.py").read_text()
    fence.edit("launcher/cgroups.py", with_tree)
    fence.own()
    argv = ["unshare", "-m", "bash", "-c", TREE, "bash", *(word for pair in handed.items() for word in pair), "--"]
    argv += fence.argv(shell, ("sh", "-c", "echo ran; exit 3"))
    owner = {"owned": owned, **({"owner": str(fence.uid)} if fence.uid else {})}
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(base=str(fence.base), **owner), capture_output=True, text=True, timeout=60)
    fence.edit("launcher/cgroups.py", lambda _: before)
    fence.own()
    found = (fence.base / "found").read_text().splitlines()
    return done, {re.sub(r"wavegen-\d+", "NEW", name): text for name, _, text in (line.partition(" ") for line in found)}


TWO = pytest.mark.skipif(os.getuid() != 0, reason="the tree is mounted")
ALL = "cpu io memory pids"


@TWO
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_a_group_is_made_below_the_nearest_one_that_hands_its_controllers_on(fence: Fence, shell: str) -> None:
    done, found = version_two(fence, {"": ALL, "/a": ALL, "/a/b": "memory pids"}, shell)
    assert (done.returncode, done.stdout) == (3, "ran\n"), done.stderr
    assert "control group" not in done.stderr
    assert set(found) == {f"./a/NEW/{name}" for name in ("pids.max", "memory.max", "memory.swap.max", "cpu.max", "cgroup.procs")}
    assert [found[f"./a/NEW/{name}"] for name in ("pids.max", "memory.max", "memory.swap.max", "cpu.max")] == ["64", str(MEMORY), "0", "50000 100000"]
    assert found["./a/NEW/cgroup.procs"].isdigit()


@TWO
def test_a_group_of_its_own_is_enough_where_it_hands_its_controllers_on(fence: Fence) -> None:
    done, found = version_two(fence, {"": ALL, "/a": ALL, "/a/b": ALL, "/a/b/c": ALL})
    assert done.stdout == "ran\n"
    assert {name.rpartition("/")[0] for name in found} == {"./a/b/c/NEW"}


@TWO
def test_without_cpus_its_controller_is_not_asked_for(new: Callable[..., Fence]) -> None:
    made = new(BOUNDED.replace("cpus: 0.5, ", ""), uid=0)
    _, found = version_two(made, {"": ALL, "/a": ALL, "/a/b": "pids memory"})
    assert set(found) == {f"./a/b/NEW/{name}" for name in ("pids.max", "memory.max", "memory.swap.max", "cgroup.procs")}


@TWO
@pytest.mark.parametrize("handed", ["", "memory pids", "cpus memoryx pids", "cpuset memory pids"])
def test_where_no_group_hands_all_on_none_is_made_and_it_is_said(new: Callable[..., Fence], handed: str) -> None:
    made = new(uid=0)
    done, found = version_two(made, {"": handed, "/a": handed})
    assert (done.returncode, done.stdout, found) == (3, "ran\n", {})
    assert "no control group can be made here: processes are not bounded, memory is bounded for each process alone, processors are not bounded" in done.stderr


@TWO
def test_a_group_that_may_not_be_written_is_passed_over(new: Callable[..., Fence]) -> None:
    """A user whose service manager gave them a group further up, and none of whose own below."""
    made = new(uid=USER)
    done, found = version_two(made, {"": ALL, "/a": ALL, "/a/b": ALL, "/a/b/c": ALL}, owned="/a")
    assert (done.returncode, done.stdout) == (3, "ran\n"), done.stderr
    assert {name.rpartition("/")[0] for name in found} == {"./a/NEW"}


@TWO
def test_a_user_to_whom_no_group_was_given_hears_of_it(new: Callable[..., Fence]) -> None:
    done, found = version_two(new(uid=USER), {"": ALL, "/a": ALL, "/a/b": ALL, "/a/b/c": ALL}, owned="/nothing")
    assert (done.returncode, done.stdout, found) == (3, "ran\n", {})
    assert done.stderr == NOTE

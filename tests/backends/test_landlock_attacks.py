"""Landlock lets a command write the project, with `.wavegen` in it: nothing that it leaves there is run outside, and what it changed is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users
from helpers import command_lines, until
from test_landlock_backend import MANIFEST, Alone, made

from wavegen.backends.sandboxes.landlock import landlock_system_rules
from wavegen.backends.sandboxes.rules_file import rules_text
from wavegen.core import resources
from wavegen.launcher.grants import readable_system
from wavegen.launcher.rules import read_rules
from wavegen.project.loader import load_project
from wavegen.project.state_dir import state_directory_name

pytestmark = pytest.mark.needs("landlock")

OWN = {part for name, _ in resources.launcher_sources() for part in name.removesuffix(".py").split("/")}
NAMES = sorted({name for name in (*sys.stdlib_module_names, *OWN, "launcher", "wavegen", "sitecustomize", "usercustomize") if name.isidentifier()})
PLACES = ("", ".wavegen", ".wavegen/launcher", ".wavegen/launcher/egress", ".wavegen/bin")

# Puts a module, a package and byte code of each name into a directory, each of which would say that it was run. Prints how many.
PLANT = r"""
import importlib.util, marshal, os, sys
place, canary, names = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
text = f"import posix; posix.close(posix.open({canary!r}, posix.O_WRONLY | posix.O_CREAT, 0o666))\n"
code = marshal.dumps(compile(text, "planted", "exec"))
made = 0
os.makedirs(os.path.join(place, "__pycache__"), exist_ok=True)
for name in names:
    for path, data in (
        (f"{name}.py", text.encode()),
        (f"__pycache__/{name}.{sys.implementation.cache_tag}.pyc", importlib.util.MAGIC_NUMBER + bytes(12) + code),
    ):
        path = os.path.join(place, path)
        if not os.path.lexists(path):
            open(path, "wb").write(data)
            made += 1
print(made)
"""


@pytest.fixture(params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Alone]:
    one = made(uid=request.param)
    yield one
    one.remove()


@pytest.fixture
def own() -> Iterator[Alone]:
    one = made(uid=os.getuid())
    yield one
    one.remove()


def plant(fence: Alone, place: str) -> Path:
    """From outside; the file that whatever runs it makes."""
    canary = fence.home / "canary"
    subprocess.run([PYTHON, "-I", "-c", PLANT, str(fence.project / place), str(canary), ",".join(NAMES)], check=True, capture_output=True)
    fence.own()
    return canary


def settled(fence: Alone) -> None:
    """Wait until nobody looks at what a session left any more."""
    assert until(lambda: not any(str(fence.project) in line for line in command_lines().values()))


@pytest.mark.parametrize("place", PLACES)
def test_what_was_planted_before_a_session_is_refused_or_not_loaded(fence: Alone, place: str) -> None:
    canary = plant(fence, place)
    for shell in ("default", "restricted"):
        done = fence.enter("echo", "RAN", shell=shell, cwd=fence.project)
        assert (done.returncode, done.stdout) == ((125, "") if place else (0, "RAN\n")), done.stderr
        assert ("the lock does not list it" in done.stderr) is bool(place)
    settled(fence)
    assert not canary.exists()


@pytest.mark.parametrize("place", PLACES)
def test_wavegen_run_refuses_it_too(own: Alone, place: str) -> None:
    canary = plant(own, place)
    # -I: the tests' own Python looks where it stands for modules, and here that is what was planted.
    command = [sys.executable, "-I", "-m", "wavegen", "run", "--shell", "restricted", "--", "echo", "RAN"]
    done = subprocess.run(command, cwd=own.project, env=own.environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == ((125, "") if place else (0, "RAN\n")), done.stderr
    settled(own)
    assert not canary.exists()


def test_what_a_command_plants_runs_neither_during_nor_after_its_session(fence: Alone) -> None:
    """The network of the shell is asked for afterwards: what serves it may be read late."""
    canary = fence.home / "canary"
    ask = (
        "import os, socket; host, port = os.environ['HTTPS_PROXY'][7:].split(':'); s = socket.create_connection((host, int(port)), 10);"
        " s.sendall(b'CONNECT no.example.org:443 HTTP/1.1\\r\\nHost: no.example.org:443\\r\\n\\r\\n'); print(s.recv(100).split()[1].decode())"
    )
    script = 'for place in "$@"; do "$0" -I -c "$PLANT" "./$place" "$CANARY" "$NAMES" || exit 1; done; "$0" -I -c "$ASK"'
    script = script.replace("$PLANT", "$(cat plant)").replace("$CANARY", str(canary)).replace("$NAMES", ",".join(NAMES)).replace("$ASK", ask)
    fence.write("plant", PLANT)
    fence.own()
    done = fence.enter("sh", "-c", script, PYTHON, *PLACES, shell="restricted")
    assert done.returncode == 0, done.stderr
    *counts, status = done.stdout.split()
    assert all(int(count) > len(NAMES) for count in counts)
    assert status == "403"
    settled(fence)
    assert not canary.exists()
    again = fence.enter("echo", "RAN")
    assert (again.returncode, again.stdout) == (125, "")
    settled(fence)
    assert not canary.exists()


def test_wavegen_run_reads_nothing_that_its_command_could_have_exchanged(tmp_path: Path) -> None:
    """The package itself lies in the project, as where wavegen is worked on, and nothing of it was compiled yet."""
    fence = made(uid=os.getuid())
    try:
        canary, package = fence.home / "canary", fence.project / "wavegen"
        copy = ["cp", "-r", resources.package_directory(), str(package)]
        subprocess.run(copy, check=True)
        subprocess.run(["find", str(package), "-name", "__pycache__", "-prune", "-exec", "rm", "-r", "{}", "+"], check=True)
        evil = f"import posix; posix.close(posix.open({str(canary)!r}, posix.O_WRONLY | posix.O_CREAT, 0o666))\n"
        fence.write("evil", evil)
        script = "cd wavegen/launcher && mkdir -p audit && touch audit/__init__.py audit/command.py new && "
        script += "find . -name '*.py' ! -name __main__.py -exec cp ../../evil {} \\; && echo RAN"
        with open(tmp_path / "rules", "w+", encoding="utf-8") as rules:
            plan = load_project(str(fence.project / "wave.yaml")).plan
            shell = plan.find_shell("restricted")
            assert shell
            rules.write(rules_text(plan, shell, whole=True, alone=True).replace("seccomp\tdefault\t", "seccomp\t@9\t"))
            rules.seek(0)
            command = [PYTHON, "-I", "-S", f"{package}/launcher/__main__.py", f"@{rules.fileno()}"]
            words = [*command, "--backend", "landlock", "--project", str(fence.project), "sh", "-c", script]
            filtered = ["sh", "-c", 'exec "$@" 9<.wavegen/seccomp/default-tcp-sockets.bpf', "-", *words]
            done = subprocess.run(filtered, env=fence.environment(), cwd=fence.project, pass_fds=(rules.fileno(),), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "RAN\n"), done.stderr
        settled(fence)
        assert not canary.exists()
    finally:
        fence.remove()


# Writes what the launcher would keep compiled, with the status of every file as it is, and other code for `start`.
CACHE = r"""
import marshal, os, sys
tree, canary = sys.argv[1], sys.argv[2]
own = tree + "/launcher"
main, slowly = type(sys)("shipped"), type(sys)("checked_files")
for module, name in ((main, "__main__"), (slowly, "checked_files")):
    exec(compile(open(f"{own}/{name}.py").read(), name, "exec"), module.__dict__)
slowly.read_plain_file, slowly.file_status_bytes, slowly.file_identity = main.read_plain_file, main.file_status_bytes, main.file_identity
write_module_cache = slowly.write_module_cache
slowly.note_identity = lambda *_: None
evil = f"import posix; posix.close(posix.open({canary!r}, posix.O_WRONLY | posix.O_CREAT, 0o666))\ndef main(words, own): posix._exit(0)\n"
def keep_evil(own, cache, statuses, body):
    length = int.from_bytes(body[:4], "little")
    always = dict(marshal.loads(body[4 : 4 + length]))
    always["start"] = compile(evil, "evil", "exec")
    text = marshal.dumps(tuple(always.items()))
    return write_module_cache(own, cache, statuses, len(text).to_bytes(4, "little") + text + body[4 + length :])
slowly.write_module_cache = keep_evil
slowly.check_rendered_tree(tree, own, own + "/__pycache__/launcher-" + sys.implementation.cache_tag)
print("planted" if os.listdir(own + "/__pycache__") else "")
"""


def test_compiled_code_that_a_command_left_is_not_run(fence: Alone) -> None:
    canary = fence.home / "canary"
    done = fence.enter(PYTHON, "-I", "-S", "-c", CACHE, str(fence.project / ".wavegen"), str(canary))
    assert done.stdout == "planted\n", done.stderr
    done = fence.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (0, "RAN\n"), done.stderr
    # Nor by the stubs of bubblewrap, which the same files decide about.
    subprocess.run(Fence.argv(fence, "default", ("--print",)), env=fence.environment(), cwd=fence.project, capture_output=True)
    settled(fence)
    assert not canary.exists()


def test_compiled_code_with_every_status_right_is_run_only_as_a_start_noted_it(own: Alone) -> None:
    """A command inside sees every status, and git lays the file there. Were it noted it would run: the tests are of the launcher, not of a bad cache."""
    own.write("wave.yaml", "metadata: {name: d}\n")
    assert own.render().returncode == 0
    canary = own.home / "canary"
    plant = [PYTHON, "-I", "-S", "-c", CACHE, str(own.project / ".wavegen"), str(canary)]
    start = [str(own.project / ".wavegen/bin/default"), "true"]
    place = own.project / ".wavegen/launcher/__pycache__"
    kept = own.home / ".local/state/wavegen" / state_directory_name(str(own.project))

    def runs(change: Callable[[Path], object] = lambda _: None) -> bool:
        """Whether what is planted is run, noted by a file that was changed so."""
        for cache in place.glob("launcher-*"):
            cache.unlink()
        subprocess.run(start, env=own.environment(), cwd=own.project, capture_output=True, check=True)
        subprocess.run(plant, check=True, capture_output=True)
        (cache,) = place.glob("launcher-*")
        change(cache)
        subprocess.run(start, env=own.environment(), cwd=own.project, capture_output=True, check=False)
        found = canary.exists()
        canary.unlink(missing_ok=True)
        return found

    def noted(cache: Path) -> Path:
        note = kept / cache.name
        note.unlink(missing_ok=True)
        note.write_text(f"{cache.stat().st_ino} {cache.stat().st_ctime_ns}\n")
        return note

    assert not runs()
    assert runs(noted)
    assert not runs(lambda cache: noted(cache).chmod(0o644) or cache.touch())
    assert not runs(lambda cache: noted(cache).rename(kept / "aside") and (kept / cache.name).symlink_to("aside"))
    assert not runs(lambda cache: noted(cache) and kept.chmod(0o777))
    kept.chmod(0o700)
    if os.getuid() == 0:
        assert not runs(lambda cache: os.chown(noted(cache), 65534, 65534))


# --- what is exchanged while a shell starts


DRIVER = """
import os, sys; sys.dont_write_bytecode = True
own = sys.argv[1]
package = sys.modules["launcher"] = type(sys)("launcher")
package.__path__ = [own]
from launcher import landlock, start
{exchange}
start.main(sys.argv[2:], own)
"""
OTHER_RULES = """
read = start._text_of
start._text_of = lambda handle: read(handle) + "path\\twrite\\t/etc\\t-\\twave.yaml:1\\n"
"""
OTHER_FILTER = """
run = landlock.LandlockStart.run_restricted_command
def exchange(self):
    path = self.places.project + "/.wavegen/seccomp/default.bpf"
    open(path, "wb").write((6).to_bytes(4, "little") + (0x7fff0000).to_bytes(4, "little"))
    return run(self)
landlock.LandlockStart.run_restricted_command = exchange
"""
OTHER_STEP = OTHER_FILTER.replace("seccomp/default.bpf", "launcher/inside/restrict_and_exec.py").replace(
    '(6).to_bytes(4, "little") + (0x7fff0000).to_bytes(4, "little")', 'b"print(1)"'
)
LINK = """
run = landlock.LandlockStart.run_restricted_command
def exchange(self):
    shared = self.places.home + "/shared"
    os.rename(shared, shared + ".old")
    os.symlink(self.places.home + "/.ssh", shared)
    return run(self)
landlock.LandlockStart.run_restricted_command = exchange
"""


@pytest.mark.parametrize(
    ("exchange", "status", "said"),
    [
        ("", 0, ""),
        (OTHER_RULES, 125, ".wavegen/rules/default was exchanged while it was read"),
        (OTHER_FILTER, 125, "default.bpf is not what was rendered last"),
        (OTHER_STEP, 125, "restrict_and_exec.py is not what was rendered last"),
        (LINK, 125, "shared cannot be opened"),
    ],
    ids=["nothing", "rules", "filter", "step", "link"],
)
def test_what_was_looked_at_is_what_is_taken(own: Alone, exchange: str, status: int, said: str) -> None:
    words = [str(own.project / ".wavegen/launcher"), str(own.project / ".wavegen/bin/landlock-default"), "echo", "RAN"]
    command = [PYTHON, "-I", "-S", "-c", DRIVER.replace("{exchange}", exchange), *words]
    done = subprocess.run(command, env=own.environment(), cwd=own.project, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "" if status else "RAN\n"), done.stderr
    assert said in done.stderr


# --- control files, listeners, the system


@pytest.mark.parametrize("path", ["~/.local", "~/.local/state", "~/.local/state/wavegen/x"])
def test_what_wavegen_keeps_lies_where_no_shell_writes(own: Alone, path: str) -> None:
    own.write(
        "wave.yaml", f"metadata: {{name: d}}\nruntime:\n  sandbox:\n    backend: landlock\n    paths: [{{path: {path}, access: write, optional: true}}]\n"
    )
    (own.home / ".local/state/wavegen/x").mkdir(parents=True)
    assert own.render().returncode == 0
    done = own.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert "wavegen's state directory" in done.stderr


def test_nothing_of_the_launchers_own_is_written_inside(fence: Alone) -> None:
    assert fence.enter("true").returncode == 0
    state = next(fence.home.glob(".local/state/wavegen/*"))
    places = [f"{state}/{name}" for name in ("rendered", "default/network.jsonl", "default/landlock/x", "default/x", "x")]
    script = """for path in "$@"; do sh -c ': >>"$0"' "$path" || echo DENIED; done"""
    settled(fence)
    before = {path: path.stat().st_size for path in state.rglob("*") if path.is_file()}
    done = fence.enter("sh", "-c", script, "-", *places)
    assert done.stdout == "DENIED\n" * 5, done.stderr
    assert {path: path.stat().st_size for path in before} == before
    assert not list(state.rglob("x"))


LISTEN = r"""
import json, socket, sys
answer = {}
for name, family, bound in (("tcp", socket.AF_INET, None), ("tcp6", socket.AF_INET6, None), ("unix", socket.AF_UNIX, sys.argv[1])):
    try:
        with socket.socket(family) as sock:
            if bound:
                sock.bind(bound)
            sock.listen()
            answer[name] = "ok"
    except OSError as failed:
        answer[name] = failed.strerror
print(json.dumps(answer))
"""


@pytest.mark.parametrize(
    ("shell", "expected"), [("restricted", {}), ("unfiltered", {}), ("silent", {"unix": "ok"}), ("default", {"tcp": "ok", "tcp6": "ok", "unix": "ok"})]
)
def test_nobody_listens_where_the_network_is_not_the_hosts(fence: Alone, shell: str, expected: dict[str, str]) -> None:
    """A socket that was never bound gets a port from listen(2), where Landlock does not look."""
    outside = json.loads(subprocess.run([PYTHON, "-c", LISTEN, str(fence.base / "sock")], capture_output=True, text=True, check=True).stdout)
    found = fence.python(LISTEN, "sock", shell=shell)
    (fence.project / "sock").unlink(missing_ok=True)
    assert isinstance(found, dict)
    assert {name: answer for name, answer in found.items() if answer == "ok"} == {name: "ok" for name in expected if outside[name] == "ok"}


def test_what_of_the_system_can_be_read_is_what_the_plan_says(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST.replace('"~/.ssh"', '"~/.ssh", /etc/gitconfig'))
    plan = load_project(str(tmp_path / "wave.yaml")).plan
    for shell in plan.shells:
        if shell.fenced:
            text, _, groups = rules_text(plan, shell, whole=True, alone=True).partition("\ngroup\t")
            found = readable_system(read_rules(text, f"group\t{groups}".__str__, "here"))
            assert sorted(rule.path for rule in found) == sorted(f"/{rule.path.tail}" for rule in landlock_system_rules(shell))
            assert "/usr" in {rule.path for rule in found}
            assert "/etc/gitconfig" not in {rule.path for rule in found}


def test_no_agent_is_started_from_where_a_command_writes(own: Alone) -> None:
    """By place: its mode may be anything by then."""
    manifest = "metadata: {name: d}\nadapters: {wizard: {binary: wizard}}\npersonas: {p: {adapter: wizard}}\nruntime:\n  sandbox:\n    backend: landlock\n"
    tools = own.home / "tools"
    tools.mkdir()
    (tools / "wizard").write_text("#!/bin/sh\necho RAN\n")
    (tools / "wizard").chmod(0o555)
    env = own.environment(PATH=f"{tools}:{own.project}:/usr/bin:/bin")
    for access, status, said in (("read", 0, "RAN\n"), ("write", 127, "")):
        own.write("wave.yaml", f"{manifest}    paths: [{{path: ~/tools, access: {access}}}]\n")
        assert own.render().returncode == 0
        done = own.enter("x", shell="persona-p", env=env)
        assert (done.returncode, done.stdout) == (status, said), done.stderr
    # For a command of the persona's it is there.
    assert own.enter("--exec", "wizard", shell="persona-p", env=env).stdout == "RAN\n"


def test_a_launcher_that_is_killed_takes_its_command_along(fence: Alone) -> None:
    script = "echo $$ >pid.new; mv pid.new pid; exec sleep 60"
    with subprocess.Popen(fence.argv("restricted", ("sh", "-c", script)), env=fence.environment(), cwd=fence.project) as process:
        pid = fence.project / "pid"
        assert until(pid.exists)
        status = Path(f"/proc/{pid.read_text().strip()}/stat")
        assert status.exists()
        process.kill()
    assert until(lambda: not status.exists() or status.read_text().rpartition(") ")[2][0] == "Z")
    # What it left goes with the next one.
    assert fence.enter("true", shell="restricted").returncode == 0
    assert [path.name for path in fence.home.glob(".local/state/wavegen/*/restricted/landlock/*")] == ["home"]


def test_another_back_end_than_the_manifests_is_asked_for_by_wavegen_run(own: Alone) -> None:
    own.write("wave.yaml", "metadata: {name: d}\n")
    assert own.render().returncode == 0
    show = ("sh", "-c", "readlink /proc/self/ns/mnt")
    outside = os.readlink("/proc/self/ns/mnt")
    assert own.wavegen("run", "--backend", "landlock", "--shell", "restricted", "--", *show).stdout == f"{outside}\n"
    assert own.wavegen("run", "--shell", "restricted", "--", *show).stdout not in ("", f"{outside}\n")
    # The stub has no filter of Landlock's there, and does not go on without one.
    words = [str(own.project / ".wavegen/bin/restricted"), "--backend", "landlock", "--", "echo", "RAN"]
    done = subprocess.run(words, env=own.environment(), cwd=own.project, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr

"""What a command in a container has left, or does, to get out of the next one: tried with a real engine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contained import remove_all, run_directories
from engine import Engine
from fence import Fence, name_of, users
from helpers import USER

MANIFEST = """\
metadata: {name: attacked}
runtime:
  sandbox:
    docker_image: "IMAGE"
    paths: [{path: ~/.config/tool.conf, access: read, optional: true}, {path: ~/given/deep, access: write, optional: true}]
"""
SECRET = "the real home's"
RENAME = "python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[1] + str(9))' 2>/dev/null"


@dataclass(frozen=True)
class Attacked(Fence):
    """A project of a user without privileges, its containers, and who starts them: that user, or root, who has a home of its own."""

    engine: Engine
    caller: int

    def environment(self, **more: str) -> dict[str, str]:
        """Who starts them has nothing but the engine."""
        home = self.home if self.caller else self.base / "root"
        return super().environment() | {"HOME": str(home)} | self.engine.environment() | more

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The shell's script."""
        words = [str(self.project / ".wavegen/docker" / f"run-{shell}"), *command]
        return words if self.caller == os.getuid() else [*self.as_owner(), *words]

    def remove(self) -> None:
        """Delete all of it."""
        remove_all(self.base)

    def as_owner(self) -> list[str]:
        """Words that make the rest of a line the owner's."""
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"] if self.uid != os.getuid() else []

    @property
    def kept(self) -> Path:
        """The private home of `default`."""
        (found,) = Path(self.environment()["HOME"]).glob(".local/state/wavegen/*/default/**/home")
        return found

    def planted(self, code: str, *words: str) -> None:
        """What a command has done in an earlier run, as Python."""
        subprocess.run([*self.as_owner(), "/usr/bin/python3", "-I", "-c", code, *words], cwd=self.project, check=True)


def attacked(engine: Engine, caller: int) -> Attacked:
    made = Fence.create(MANIFEST.replace("IMAGE", engine.image()), uid=USER if os.getuid() == 0 else os.getuid())
    (made.home / "secret").write_text(SECRET)
    made.own()
    if os.getuid() == 0:
        (made.base / "root").mkdir(mode=0o700)
    return Attacked(made.base, made.home, made.project, made.uid, engine, caller)


@pytest.fixture(params=users(), ids=name_of)
def box(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Attacked]:
    found = attacked(engine, request.param)
    yield found
    found.remove()


@pytest.fixture
def one(engine: Engine) -> Iterator[Attacked]:
    """As a user alone, where who calls makes no difference."""
    found = attacked(engine, users()[-1])
    yield found
    found.remove()


pytestmark = pytest.mark.needs("docker", "user")

# Two names that an engine's client could take for one: the first holds a repository, the second leads to the home.
TWINS = """
import os, sys
home, name, taken_for = map(os.fsencode, sys.argv[1:])
os.makedirs(name + b"/file"), os.makedirs(name + b"/directory/.git/hooks")
open(name + b"/file/.git", "w").close()
os.mkdir(taken_for), os.mkdir(taken_for + b"/file"), os.symlink(home + b"/secret", taken_for + b"/file/.git")
os.symlink(home, taken_for + b"/directory")
os.makedirs(home + b"/.git/hooks")
"""


@pytest.mark.parametrize(
    ("name", "taken_for"),
    [
        pytest.param("x\r\ny", "x\ny", id="crlf"),
        pytest.param("x\r\r\ny", "x\r\ny", id="cr-crlf"),
        pytest.param("x\udcf4\udc90\udc80\udc80", "x" + 4 * "\ufffd", id="beyond"),
        pytest.param("x\udcf8\udc88\udc80\udc80\udc80", "x" + 5 * "\ufffd", id="five-bytes"),
        pytest.param("x\udced\udca0\udc80", "x" + 3 * "\ufffd", id="surrogate"),
        pytest.param('x",source="/y', "x", id="quotes"),
    ],
)
def test_a_path_is_not_taken_for_another(one: Attacked, name: str, taken_for: str) -> None:
    """What is mounted of a repository would be a file of the real home, or all of it, writable."""
    one.planted(TWINS, str(one.home), name, taken_for)
    done = one.enter("sh", "-c", 'cat ~/secret "$0"/*/.git; echo x >~/written', taken_for)
    assert SECRET not in done.stdout
    assert not (one.home / "written").exists()
    assert done.returncode == 0 or (done.returncode == 125 and "not UTF-8" in done.stderr), done.stderr


# --- what is left for a later step

LEFT = """
cd /workspace/output && mkdir d e 'e/x
y' && ln -s "$HOME/secret" d/link && cp /bin/true d/program && chmod 4755 d/program && mkfifo e/pipe && ln -s / 'e/x
y/link' && chmod 0 d 'e/x
y' e .
"""


def test_what_cannot_be_looked_into_holds_no_link_either(box: Attacked) -> None:
    done = box.enter("--output", "out", "sh", "-c", LEFT)
    assert (done.returncode, done.stderr.count("what is no plain file was left behind: 3")) == (0, 1), done.stderr
    found = {str(path.relative_to(box.project / "out")): path.lstat() for path in (box.project / "out").rglob("*")}
    assert set(found) == {"d", "e", "e/x\ny", "d/program"}
    assert all(entry.st_mode & 0o7000 == 0 and entry.st_uid == box.uid for entry in found.values())


def test_a_directory_for_the_output_is_there_only_when_something_ran(box: Attacked) -> None:
    (box.project / "out").mkdir()
    before = sorted(os.listdir(box.project))
    box.own()
    assert box.enter("--print", "--output", "out", "true").returncode == 0
    assert sorted(os.listdir(box.project)) == before
    box.write("wave.yaml", box.project.joinpath("wave.yaml").read_text().replace(box.engine.image(), "there-is-none:here"))
    assert box.render().returncode == 0
    done = box.enter("--output", "out", "true")
    assert (done.returncode, "there-is-none:here is not here" in done.stderr) == (125, True), done.stderr
    assert sorted(os.listdir(box.project)) == before


# A command of another shell, which waits for the directory of an output and puts a link in its place.
EXCHANGE = """
import os, sys
while True:
    for name in os.listdir("."):
        if ".wavegen-" in name and not os.path.islink(name):
            try:
                os.rename(name, "taken"), os.symlink(sys.argv[1], name)
            except OSError:
                continue
            print("done", flush=True), sys.exit()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_root_gives_nothing_away_but_the_output(engine: Engine) -> None:
    box = attacked(engine, 0)
    target = box.base / "root/file"
    target.write_text(SECRET)
    with subprocess.Popen([*box.as_owner(), "/usr/bin/python3", "-I", "-c", EXCHANGE, str(target)], cwd=box.project, stdout=subprocess.PIPE) as other:
        box.enter("--output", "out", "true")
        assert other.stdout
        assert other.stdout.readline() == b"done\n"
    assert target.stat().st_uid == 0
    box.remove()


def test_nothing_in_the_private_home_is_roots(box: Attacked) -> None:
    """An engine makes the places that it mounts something on, where they are missing."""
    (box.home / "given/deep").mkdir(parents=True)
    (box.home / ".config").mkdir()
    (box.home / ".config/tool.conf").write_text("x")
    box.own()
    if not box.caller:
        for name in ("given", ".config"):
            (box.home / name).rename(box.base / "root" / name)
        (box.base / "root").chmod(0o711)
    done = box.enter("sh", "-c", "cat ~/.config/tool.conf; touch ~/given/deep/x")
    assert (done.returncode, done.stdout) == (0, "x"), done.stderr
    assert [path for path in (box.kept, *box.kept.rglob("*")) if path.lstat().st_uid != box.uid] == []
    assert (box.kept / ".config/tool.conf").read_text() == ""


def test_the_environment_does_not_say_who_the_command_is(box: Attacked) -> None:
    names = ("GROUPS", "EUID", "UID", "IFS", "POSIXLY_CORRECT", "SHELLOPTS", "wg_gid", "wg_uid", "wg_binds")
    done = box.enter("sh", "-c", 'echo "$(id -u):$(id -g) $(stat -c %u:%g .)"', env=box.environment(**dict.fromkeys(names, "0")))
    assert (done.returncode, done.stdout) == (0, f"{box.uid}:{box.uid} {box.uid}:{box.uid}\n"), done.stderr


def test_the_repository_of_a_worktree_is_held_below_the_home(box: Attacked) -> None:
    """Its own directories are not there: what leads to it in the private home is made, is the owner's, and stays."""
    home = Path(box.environment()["HOME"])
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=n", "-c", "user.email=e", "-C", str(home / "code/repo")]
    (home / "code/repo").mkdir(parents=True)
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"], ["worktree", "add", "-q", str(box.base / "tree")]):
        subprocess.run([*git, *words], check=True)
    (box.base / "tree/.git").rename(box.project / ".git")
    (home / "code/repo/.git/worktrees/tree/gitdir").write_text(f"{box.project}/.git\n")
    box.own()
    if not box.caller:
        subprocess.run(["chown", "-R", f"{box.uid}:{box.uid}", str(home / "code")], check=True)
        home.chmod(0o711)
    done = box.enter("sh", "-c", f"git log --format=%s; {RENAME} ~/code; {RENAME} ~/code/repo; git branch other && echo made")
    assert (done.returncode, done.stdout) == (0, "first\nmade\n"), done.stderr
    assert [path for path in (box.kept, *box.kept.rglob("*")) if path.lstat().st_uid != box.uid] == []
    (box.kept / "code/repo/.git").rmdir()
    (box.kept / "code/repo/.git").symlink_to(box.project)
    done = box.enter("git", "log")
    assert (done.returncode, "is a symlink where" in done.stderr) == (125, True), done.stderr


def test_the_clients_environment_asks_for_nothing(one: Attacked) -> None:
    """Another API, another machine's image, a signature of it: each would be the end of the start."""
    words = ("sh", "-c", "cat /proc/self/cgroup")
    shown = one.enter(*words).stdout
    done = one.enter(*words, env=one.environment(DOCKER_API_VERSION="1.24", DOCKER_DEFAULT_PLATFORM="linux/arm64", DOCKER_CONTENT_TRUST="1"))
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


# --- two shells at once


def exchanged(box: Attacked, place: Path, link: Path, *command: str) -> tuple[int, str, str]:
    """A shell that starts while a command of another puts a link in the place of a directory: once that was looked at, before it is mounted."""
    argv = box.argv("default", command)
    with subprocess.Popen(
        argv, cwd=box.project, env=box.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        home = Path(box.environment()["HOME"])
        while not [path for path in run_directories(home, [process.pid]) if (path / "inside/mounts").exists()]:
            assert process.poll() is None
            time.sleep(0.002)
        place.rename(place.with_name("aside"))
        place.symlink_to(link)
        shown, said = process.communicate(timeout=60)
    return process.returncode, shown, said


@pytest.mark.parametrize("of", ["source", "target"])
def test_what_was_exchanged_meanwhile_starts_nothing(box: Attacked, of: str) -> None:
    """A repository of a command's own is held by writable mounts, of what its path then leads to; below the private home the engine follows links inside."""
    link, place = box.home, box.project / "a repo"
    if of == "target":
        place = box.project / "a repo/.git"
        link = box.project / "other"
        link.mkdir()
    (box.project / "a repo/.git/hooks").mkdir(parents=True)
    for path in (link, link / "hooks", link / ".git/hooks"):
        path.mkdir(parents=True, exist_ok=True)
    box.own()
    status, shown, said = exchanged(box, place, link, "sh", "-c", "cat 'a repo/secret'; echo ran; echo x >'a repo/written'")
    assert (status, shown) == (125, ""), said
    assert "was exchanged" in said or "is not what was to be mounted there" in said
    assert not (box.home / "written").exists()
    place.unlink()
    assert box.enter("true").returncode == 0


def test_what_is_mounted_is_what_was_asked_for(one: Attacked) -> None:
    """Whatever the names: the kernel writes blanks and backslashes in another way."""
    for name in ("a b", "a\\040b", "\\", "tab\tnl\ncr\r", "#", "\u00e9"):
        (one.project / name / ".git/hooks").mkdir(parents=True)
    one.own()
    done = one.enter("sh", "-c", 'for hooks in */.git/hooks; do touch "$hooks/x" 2>/dev/null || echo held; done; cat /run/wavegen/mounts')
    assert (done.returncode, done.stdout.count("held\n")) == (0, 6), done.stderr
    assert done.stdout.count("/.git/hooks ro\n") == 6


def test_that_it_was_started_cannot_be_taken_back(box: Attacked) -> None:
    """Who reads the report in the script's place would have it say that nothing was run."""
    done = box.enter("sh", "-c", "timeout 1 cat /run/wavegen/report; timeout 1 cat <>/run/wavegen/report; chmod 600 /run/wavegen/report; exit 5")
    assert (done.returncode, done.stdout) == (5, ""), done.stderr
    read, write = os.pipe()
    argv = box.argv("default", ("--report", str(write), "sh", "-c", r"printf 'unfenced\nstarted\n' >/run/wavegen/report; exit 5"))
    done = subprocess.run(argv, cwd=box.project, env=box.environment(), pass_fds=(write,), capture_output=True, text=True, timeout=60)
    os.close(write)
    with open(read) as stream:
        assert (done.returncode, stream.read()) == (5, "started\n"), done.stderr

"""The launcher's rules for git: decided for machines that do not exist, and tried with real git in a real sandbox, as root and as a user."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import USER
from launcher_git_ground import Ground, grounds

from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.git import ANCHOR, COPY, MOST_RULES, READ, WRITE, GitRule, missing_parts, survey_repositories
from wavegen.launcher.host import RealHost
from wavegen.project.repository import pin_repository_settings


@pytest.fixture(params=grounds(), ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """One user's ground."""
    found = Ground(request.param)
    yield found
    found.close()


EVERYDAY = """
set -e
git status --porcelain; echo b >>a; git add a; git commit -qm inside; git switch -qc topic; echo c >>a; git stash -q; git stash list | grep -q .
git stash apply -q; git checkout -q a; git worktree list; git worktree prune -v; git gc --auto; git submodule status; git fetch -q . HEAD; git rebase -q HEAD~1
git tag v1; git log --oneline; git branch other; git diff HEAD~1 --stat; git fsck --no-dangling
"""
PLANT = """plant() { mkdir -p "$1/hooks" "$1/info"; for h in post-commit post-checkout pre-commit; do printf '#!/bin/sh\\ntouch %s/pwned\\n' $T >"$1/hooks/$h"; chmod +x "$1/hooks/$h"; done
printf '[core]\\nfsmonitor = touch %s/pwned; false\\n' $T >>"$1/config"; printf '[core]\\nfsmonitor = touch %s/pwned; false\\n' $T >>"$1/config.worktree"; }
"""
NEW = "git init -q p; cd p; echo a >a; git add -A; git commit -qm 1; echo a >>a; git commit -qam 2;"
# what makes it, where the shell starts, other writable directories, what git directory a command attacks, where the host uses git
ATTACKED = {
    "directory": (NEW, "p", (), "p/.git", "p"),
    "moved away": (NEW, "p", (), "p/.git", "p"),
    "link": (f"{NEW} mv .git repo; ln -s repo .git", "p", (), "p/repo", "p"),
    "separate": (f"{NEW} cd ..; git init -q --separate-git-dir=p/repo.d p", "p", (), "p/repo.d", "p"),
    "bare beside worktrees": (
        f"{NEW} cd ..; mkdir q; git clone -q --bare p q/.bare; cd q; echo gitdir: ./.bare >.git; git worktree add -q w",
        "q",
        (),
        "q/.bare",
        "q/w",
    ),
    "bare": (f"{NEW} cd ..; git clone -q --bare p q/x/repo.git; git -C q/x/repo.git worktree add -q ../w", "q", (), "q/x/repo.git", "q/x/w"),
    "clone below": (f"{NEW} git clone -q . x/y/z", "p", (), "p/x/y/z/.git", "p/x/y/z"),
    "writable directory": (f"{NEW} git clone -q . ../o/x/y", "p", ("o",), "o/x/y/.git", "o/x/y"),
    "submodule": (f"{NEW} cd ..; git init -q q; cd q; git submodule --quiet add -q $T/p lib/m; git commit -qm 1", "q", (), "q/.git/modules/lib/m", "q/lib/m"),
    "linked worktree": (f"{NEW} git worktree add -q ../w", "w", (), "p/.git", "p"),
    "entry of a linked worktree": (
        f"{NEW} git config extensions.worktreeConfig true; git worktree add -q ../w; touch .git/worktrees/w/config.worktree",
        "w",
        (),
        "p/.git/worktrees/w",
        "w",
    ),
    "project is a submodule": (
        f"{NEW} cd ..; git init -q s; cd s; git submodule --quiet add -q $T/p m; cd .git/modules/m; echo ./ >commondir; touch info/attributes; mkdir -p hooks",
        *("s/m", (), "s/.git/modules/m", "s/m"),
    ),
    "project below": (
        f"{NEW} mkdir sub; echo s >sub/s; git add -A; git commit -qm 3; cd .git; echo ./ >commondir; touch info/attributes",
        "p/sub",
        (),
        "p/.git",
        "p",
    ),
}


OUTSIDE = ("linked worktree", "entry of a linked worktree", "project is a submodule", "project below")


@pytest.mark.parametrize("name", ATTACKED)
def test_the_host_runs_nothing_that_a_command_wrote(ground: Ground, name: str) -> None:
    """Settings and hooks are tried in every kind of repository; git on the host then looks and commits there."""
    make, project, writable, attacked, used = ATTACKED[name]
    ground.host(make)
    move = 'mv "$g" "$g.old" && mkdir -p "$g" && cp -r "$g.old/." "$g";' if name == "moved away" else ""
    done = ground.inside(
        f"{PLANT} g=$T/{attacked}; {move} plant $g; mkdir $g/evil; cp -r $g/objects $g/refs $g/HEAD $g/evil; plant $g/evil; echo evil >$g/commondir; true",
        project,
        *writable,
    )
    assert "Read-only file system" in done.stderr, done.stderr
    if name not in OUTSIDE:
        # No mount can keep a command from making what is not there: `wavegen render` makes it first, and audits name it.
        ground.host(f"cd {attacked}; rm -rf evil config.worktree commondir")
    ground.host(f"cd {used}; git status; echo x >>a; git add -A .; git commit -qm host || true; git checkout -q -b after || true; cd $T; cd p; git status")
    assert not (ground.path / "pwned").exists()


@pytest.mark.parametrize(
    "name", [name for name in ATTACKED if name not in ("bare beside worktrees", "bare", "clone below", "writable directory", "separate", "submodule")]
)
def test_git_works_inside(ground: Ground, name: str) -> None:
    """What people do every day, in each kind of repository."""
    make, project, writable, _, _ = ATTACKED[name]
    ground.host(make)
    done = ground.inside(
        EVERYDAY if name != "project below" else EVERYDAY.replace(" a;", " s;").replace(">>a", ">>s").replace("-q a;", "-q s;"), project, *writable
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ground.host(f"cd {project}; git fsck; git log --oneline | grep -q inside")
    assert ground.note(project) is None


def _by_path(ground: Ground, project: str, *writable: str) -> dict[str, str]:
    return {rule.path.removeprefix(f"{ground.path}/"): rule.access for rule in ground.rules(project, *writable)}


NAMED = {
    "include": "git config include.path ../.gitconfig; touch .gitconfig",
    "nested include": "mkdir d e; git config include.path ../d/one; echo '[include] path = ../.gitconfig' >d/one; touch .gitconfig",
    "condition": "git config 'includeIf.gitdir:/nowhere.path' ../.gitconfig; touch .gitconfig",
    "one line": "echo '[InClude] PATH = \"../.git\\\\config\" ; note' >>.git/config; touch '.git\\config'; ln -s '.git\\config' .gitconfig",
    "hooks": "git config core.hooksPath x; mkdir x",
    "hooks of one line": "echo '[core] hooksPath = x # note' >>.git/config; mkdir x",
    "monitor": "git config core.fsmonitor ./x; echo true >x; chmod +x x",
    "filter": "git config filter.f.clean 'sh x'; echo cat >x; echo 'a filter=f' >.gitattributes; git add .gitattributes",
    "alias": "git config alias.status2 '!./x'; echo true >x; chmod +x x",
    "link": "echo true >x; chmod +x x; ln -s ../../x .git/hooks/post-commit",
    "linked hooks": "mkdir x; rm -r .git/hooks; ln -s ../x .git/hooks",
    "linked settings": "mv .git/config .gitconfig; ln -s ../.gitconfig .git/config",
}


@pytest.mark.parametrize("name", NAMED)
def test_files_that_settings_name_are_read_only(ground: Ground, name: str) -> None:
    """A command writes settings, hooks or programs there; git on the host follows them and must find what was there."""
    ground.host(f"{NEW} {NAMED[name]}")
    done = ground.inside(
        "set -x; printf '[core]\\nfsmonitor = touch %s/pwned; false\\n' $T >>.gitconfig; printf '[core]\\nfsmonitor = touch %s/pwned; false\\n' $T >'.git\\config';"
        "printf '#!/bin/sh\\ntouch %s/pwned\\n' $T >post; cp post x; cp post x/post-commit; chmod +x x x/post-commit; mv x y; true"
    )
    assert "Read-only file system" in done.stderr, done.stderr
    ground.host("cd p; git status; echo z >>a; git add a; git commit -qm host; git status2 || true")
    assert not (ground.path / "pwned").exists()


def test_includes_in_a_circle_end(ground: Ground) -> None:
    """Each file is followed once, ten deep."""
    ground.host(f"{NEW} for i in 1 2 3; do echo '[include]' >c$i; for j in 1 2 3; do echo path=c$j >>c$i; done; done; git config include.path ../c1")
    assert {path for path, access in _by_path(ground, "p").items() if access == READ} >= {"p/c1", "p/c2", "p/c3"}


def test_a_directory_that_settings_name_is_not_taken_for_a_program(ground: Ground) -> None:
    """`!make test` leaves a directory `test` writable, and settings that name the whole project leave that."""
    ground.host(f"{NEW} mkdir test; touch make; git config alias.t '!make test'; git config core.hooksPath .; git config user.name test")
    assert not {"p/test", "p/make", "p"} & _by_path(ground, "p").keys()


def test_no_command_changes_the_entry_of_another_worktree(ground: Ground) -> None:
    """Git inside does not take it for stale, whatever it does by itself; its files are read-only."""
    ground.host(f"{NEW} git worktree add -q ../side -b side; git worktree add -q in; cd ../side; echo work >h; git add h; git worktree lock ../p/in")
    before = ground.host("cd p/.git/worktrees/side; find . -type f -exec sha256sum {} +")
    done = ground.inside(
        "git worktree prune -v --expire=now; git gc -q --prune=now; git worktree list; echo x >.git/worktrees/side/commondir; rm -r .git/worktrees/side; mv .git/worktrees .git/w"
    )
    assert "prunable" not in done.stdout
    assert f"{ground.path}/side " in done.stdout
    assert ground.host("cd p/.git/worktrees/side; find . -type f -exec sha256sum {} +") == before
    assert ground.host("git -C side status --porcelain") == "A  h\n"
    assert ground.inside("cd in && echo x >>a && git commit -qam in && git worktree add -q ../again && cd ../again && git status").returncode == 0


def test_no_entry_of_a_worktree_shows_other_files(ground: Ground) -> None:
    """Commands make entries: a `.git` file is shown only if it leads to the entry, and then its own text."""
    ground.host(
        f"{NEW} git worktree add -q ../side; mkdir ../secret; echo 'gitdir: /secret' >../secret/.git; echo key >../key; cp -r .git/worktrees/side .git/worktrees/evil"
    )
    for evil in (f"{ground.path}/secret/.git", f"{ground.path}/key", f"{ground.path}/side/.git"):
        ground.host(f"echo {evil} >p/.git/worktrees/evil/gitdir")
        assert [path for path, access in _by_path(ground, "p").items() if access == COPY] == ["side/.git"]


def test_a_pointer_alone_shows_nothing(ground: Ground) -> None:
    """A `.git` file that a command made leads to another repository, whose directory does not name this working tree."""
    ground.host(f"{NEW} git worktree add -q ../w; cd ..; mkdir q; git init -q s; cd s; git -c protocol.file.allow=always submodule --quiet add -q $T/p m")
    for pointer in ("p/.git/worktrees/w", "p/.git", "s/.git/modules/m", "home"):
        ground.host(f"echo gitdir: $T/{pointer} >q/.git")
        assert _by_path(ground, "q") == {"q/.git": READ}
        note = ground.note("q")
        assert note is not None
        assert "git does not work here" in note


def test_a_relative_entry_is_taken(ground: Ground) -> None:
    """As git 2.48 writes it with worktree.useRelativePaths."""
    ground.host(f"{NEW} git worktree add -q ../w; echo ../../../../w/.git >.git/worktrees/w/gitdir; echo gitdir: ../p/.git/worktrees/w >../w/.git")
    rules = _by_path(ground, "w")
    assert rules["p/.git"] == READ
    assert rules["p/.git/worktrees/w"] == WRITE
    assert rules["p/.git/worktrees/w/commondir"] == READ


def test_a_granted_common_directory_is_like_one_of_the_project(ground: Ground) -> None:
    """Deleting a ref makes a lock at the top of the common directory: that needs a grant, and works with it."""
    ground.host(f"{NEW} git worktree add -q ../w; git worktree add -q ../side; git branch old; git pack-refs --all")
    assert "packed-refs.lock" in ground.inside("git branch -d old", "w").stderr
    done = ground.inside(
        f"{EVERYDAY} git branch -d old; git repack -qad; git pack-refs --all; ! touch $T/p/.git/hooks/x; ! rm -r $T/p/.git/worktrees/side", "w", "p/.git"
    )
    assert done.returncode == 0, done.stderr
    assert ground.host("git -C side status --porcelain") == ""


def test_a_directory_of_a_linked_worktree_works(ground: Ground) -> None:
    """The pointer stands above the project."""
    ground.host(f"{NEW} mkdir sub; echo s >sub/s; git add -A; git commit -qm 3; git worktree add -q ../w")
    done = ground.inside("git status --porcelain && echo x >>s && git commit -qam in && ! touch ../x && ! touch $T/p/.git/commondir", "w/sub")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    assert ground.note("w/sub") is None


def test_a_repository_above_that_is_granted_stays_writable(ground: Ground) -> None:
    """A grant says more than what is shown by itself."""
    ground.host(f"{NEW} mkdir sub; echo s >sub/s; git add -A; git commit -qm 3")
    assert ground.inside("echo x >>s && git commit -qam in && touch ../x && ! touch ../.git/hooks/x", "p/sub", "p").returncode == 0


def test_what_is_missing_is_named_with_commands_that_make_it(ground: Ground) -> None:
    """Rendering makes it, so that no command can."""
    ground.host(f"{NEW} rm -r .git/hooks; git config extensions.worktreeConfig true")
    git = str(ground.path / "p/.git")
    missing = ground.as_user(lambda: missing_parts(RealHost(), git))
    assert [command.rpartition("/p/.git/")[2] for command in missing] == ["hooks", "commondir", "config.worktree", "refs/replace"]
    ground.host(f"{'; '.join(missing)}; cd p; git status")
    assert ground.as_user(lambda: missing_parts(RealHost(), git)) == ()
    done = ground.inside(f"{EVERYDAY} cd .git; ! touch hooks/x && ! touch config.worktree commondir refs/replace/x")
    assert done.returncode == 0, done.stderr


def test_a_git_directory_outside_is_read_only_while_a_command_could_make_commondir(ground: Ground) -> None:
    """The message names commands that mend it, and they do."""
    ground.host(f"{NEW} mkdir sub; echo s >sub/s; git add -A; git commit -qm 3; rm -r .git/hooks")
    note = ground.note("p/sub")
    assert note is not None
    assert _by_path(ground, "p/sub")["p"] == READ
    assert "p/.git" not in _by_path(ground, "p/sub")
    assert ground.inside("git status --porcelain && git log -1 && ! touch ../.git/commondir && touch x", "p/sub").returncode == 0
    ground.host(note.partition("before this: ")[2])
    assert ground.inside("rm x; git status; echo x >>s; git commit -qam in; ! touch ../.git/info/attributes && ! touch ../a", "p/sub").returncode == 0
    assert ground.note("p/sub") is None


def test_nothing_above_the_project_is_shown_where_it_holds_the_home(ground: Ground) -> None:
    """A repository of dotfiles: the home is its working tree."""
    ground.host("cd home; git init -q; git add .gitconfig; git commit -qm 1; mkdir p")
    assert _by_path(ground, "home/p") == {}


@pytest.mark.parametrize(
    "clone", ["git clone -q --shared p q", "git clone -q --shared p o; git clone -q --shared o q; git -C q remote set-url origin file://$T/o"]
)
def test_borrowed_objects_are_shown(ground: Ground, clone: str) -> None:
    """`git clone --shared`: objects of the repository that is a remote, too, and of those that it borrows from."""
    ground.host(f"{NEW} cd ..; {clone}")
    done = ground.inside("git log --oneline; git status; echo x >>a; git commit -qam in && git fsck", "q")
    assert done.returncode == 0, done.stderr
    assert _by_path(ground, "q")["p/.git/objects"] == READ


def test_objects_of_other_repositories_are_not_shown(ground: Ground) -> None:
    """A command writes the list itself."""
    ground.host(f"{NEW} cd ..; git init -q q; echo $T/p/.git/objects >q/.git/objects/info/alternates; git -C q remote add origin https://example.com/x")
    assert not [path for path in _by_path(ground, "q") if path.startswith("p")]
    note = ground.note("q")
    assert note is not None
    assert f"{{path: {ground.path}/p/.git/objects, access: read}}" in note


def test_replaced_objects_stay_as_they_are(ground: Ground) -> None:
    """`git replace` makes git on the host read other objects."""
    ground.host(f"{NEW} git replace HEAD HEAD~1; git replace -d HEAD; mkdir -p .git/refs/replace")
    assert ground.inside("git replace HEAD HEAD~1").returncode != 0


# --- what commands make so that a start is heavy, or fails

UNSEEN = ("chmod 0 .git", "chmod 0311 .git/modules", "chmod 0 x", "chmod 0 .git/worktrees", "chmod 0 x/.git/config", "chmod 0 .git/hooks", "chmod 0600 x/.git")


@pytest.mark.parametrize("script", UNSEEN)
def test_what_cannot_be_seen_is_not_taken_for_absent(script: str) -> None:
    """A user's start is refused, and the remedy of the message mends it."""
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    ground = Ground(USER)
    try:
        ground.host(f"{NEW} git clone -q . x; git worktree add -q in; mkdir -p .git/modules/m; cd $T/p; {script}")
        message = ground.refusal("p")
        assert message.startswith("CannotStartError"), message
        ground.host(message.rpartition("(")[2].rstrip(")"))
        assert _by_path(ground, "p")["p/x/.git/hooks"] == READ
    finally:
        ground.close()


def test_a_directory_of_another_user_is_passed_over() -> None:
    """Data of a database in a container: no command of this user can make it readable."""
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    ground = Ground(USER)
    try:
        ground.host(f"{NEW} mkdir data")
        (ground.path / "p/data").chmod(0o700)
        os.chown(ground.path / "p/data", 0, 0)
        assert _by_path(ground, "p")["p/.git"] == ANCHOR
    finally:
        ground.close()


HEAVY = {
    "settings": "mkdir -p x/.git; truncate -s 300M x/.git/config",
    "included": "git config include.path ../big; truncate -s 2M big",
    "very many settings": "for i in 1 2 3; do mkdir -p x$i/.git; yes '[a]' | head -c 900000 >x$i/.git/config; done",
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_start_is_refused_with_a_remedy(ground: Ground, name: str) -> None:
    """Reads and rules are bounded, and the message says what to remove."""
    ground.host(f"{NEW} {HEAVY[name]}")
    message = ground.refusal("p")
    assert message.startswith("CannotStartError"), message
    assert "rm " in message


LIGHT = {
    "pointer": "mkdir x; truncate -s 300M x/.git; mkdir y; mkfifo y/.git; mkdir z; ln -s .git z/.git; mkdir u; printf 'gitdir: a\\0b' >u/.git",
    "fifo": "rm -f .git/commondir; mkfifo .git/commondir; mkdir -p x/.git; mkfifo x/.git/config",
    "deep": "d=r; for i in {1..200}; do d=$d/d; done; mkdir -p $d; mkdir -p .git/modules; cp -r r .git/modules",
    "links": "mkdir r; cd r; for i in {1..100}; do ln -s l$((i+1)) l$i; done; ln -s l1 .git",
    "many words": "mkdir -p x/.git; (echo '[alias]'; for i in {1..5000}; do echo \"a$i = !./a ./b ./c\"; done) >x/.git/config",
}


@pytest.mark.parametrize("name", LIGHT)
def test_odd_things_of_commands_keep_no_shell_from_starting(ground: Ground, name: str) -> None:
    """FIFOs, sparse files, circles of links, deep and wide directories."""
    ground.host(f"{NEW} {LIGHT[name]}")
    rules = _by_path(ground, "p")
    assert rules["p/.git"] == ANCHOR
    assert rules["p/.git/config"] == READ
    assert ground.inside("true").returncode == 0


def test_git_works_beside_very_many_worktrees(ground: Ground) -> None:
    """More than are looked at one by one."""
    ground.host(f"{NEW} git worktree add -q ../w; for i in {{1..70}}; do cp -r .git/worktrees/w .git/worktrees/w$i; done")
    assert ground.inside("git status && echo x >>a && git commit -qam in && ! rm -r .git/worktrees/w7").returncode == 0
    assert ground.inside("git status && echo x >>a && git commit -qam in && ! rm -r $T/p/.git/worktrees/w7", "w").returncode == 0


# --- machines that do not exist


class Machine:
    """A host made of a table: a path is a directory (None), a file (bytes), a link (str) or an error (OSError)."""

    def __init__(self, tree: dict[str, bytes | str | OSError | None], uid: int = 1000, owner: dict[str, int] | None = None) -> None:
        self.uid, self.tree, self.owner = uid, dict(tree), owner or {}
        for path in tree:
            while path := path.rpartition("/")[0]:
                self.tree.setdefault(path, None)
        self.tree["/"] = None

    def _at(self, path: str) -> bytes | str | None:
        above = path
        while above := above.rpartition("/")[0]:
            found = self.tree.get(above, b"")
            if isinstance(found, OSError):
                raise found
            if found is not None:
                raise OSError(errno.ENOENT if above not in self.tree else errno.ELOOP if isinstance(found, str) else errno.ENOTDIR, "", path)
        if path not in self.tree:
            raise OSError(errno.ENOENT, "", path)
        found = self.tree[path]
        if isinstance(found, OSError) and found.errno != errno.EACCES:
            raise found
        return None if isinstance(found, OSError) else found

    def lstat(self, path: str) -> os.stat_result:
        found = self._at(path)
        kind = stat.S_IFDIR if found is None else stat.S_IFLNK if isinstance(found, str) else stat.S_IFREG
        mode = kind | (0 if isinstance(self.tree[path], OSError) else 0o755)
        return os.stat_result((mode, 1, 1, 1, self.owner.get(path, self.uid), 0, 0, 0, 0, 0))

    def readlink(self, path: str) -> str:
        found = self._at(path)
        assert isinstance(found, str)
        return found

    def scandir(self, path: str, most: int) -> list[tuple[str, bool]]:
        found = self.tree.get(path)
        if self._at(path) is not None or isinstance(found, OSError):
            raise found if isinstance(found, OSError) else OSError(errno.ENOTDIR, "", path)
        below = "/" if path == "/" else path + "/"
        names = {name[len(below) :] for name in self.tree if name.startswith(below) and "/" not in name[len(below) :] and name != path}
        return sorted((name, self.tree[below + name] is None or isinstance(self.tree[below + name], OSError)) for name in names)[: most + 1]

    def read_host_file(self, path: str, most: int) -> bytes:
        found = self._at(path)
        if not isinstance(found, bytes):
            raise OSError(errno.ELOOP if isinstance(found, str) else errno.EISDIR, "", path)
        if len(found) > most:
            raise OSError(errno.EFBIG, "", path)
        return found


REPOSITORY: dict[str, bytes | str | OSError | None] = {
    "/w/p/.git/HEAD": b"ref: refs/heads/main",
    "/w/p/.git/objects/pack": None,
    "/w/p/.git/refs": None,
    "/w/p/.git/config": b"",
}


def _survey(tree: dict[str, bytes | str | OSError | None], project: str = "/w/p", **facts: Any) -> dict[str, str]:
    machine = Machine(tree, **facts)
    return {rule.path: rule.access for rule in survey_repositories(machine, project, home="/w/home", kept="/w/home/kept")}


def test_rules_of_an_ordinary_repository() -> None:
    """The whole of it, as values."""
    found = survey_repositories(Machine({**REPOSITORY, "/w/p/.git/hooks/pre-commit": "/w/p/x", "/w/p/x": b""}), "/w/p", home="/w/home", kept="/w/home/kept")
    assert found == (
        GitRule(ANCHOR, "/w/p/.git", "another git directory in its place would have other hooks"),
        GitRule(READ, "/w/p/.git/config", "git on the host follows the settings"),
        GitRule(READ, "/w/p/.git/hooks", "git on the host runs hooks"),
        GitRule(READ, "/w/p/x", "git on the host runs hooks"),
    )


def test_the_repository_above_must_be_this_users() -> None:
    """Git itself refuses others' (safe.directory); roots' are taken."""
    whole = {"/w/p": READ, "/w/p/sub": WRITE}
    tree = {**REPOSITORY, "/w/p/sub": None}
    assert _survey(tree, "/w/p/sub") == whole
    assert _survey(tree, "/w/p/sub", owner={"/w/p/.git": 0}) == whole
    assert _survey(tree, "/w/p/sub", owner={"/w/p/.git": 7}) == {}
    assert _survey(tree, "/w/p/sub", owner={"/w/p": 7}) == {}


@pytest.mark.parametrize("top", ["", "/tmp", "/srv", "/w/home", "/w", "/w/home/kept/x"])
def test_no_system_directory_and_no_home_is_shown_as_a_working_tree(top: str) -> None:
    """A `.git` that somebody made in /tmp, or a repository of dotfiles."""
    tree = {path.replace("/w/p", top): content for path, content in REPOSITORY.items()}
    assert _survey({**tree, f"{top}/a/p": None}, f"{top}/a/p") == {}


@pytest.mark.parametrize("store", ["/w/home", "/w", "/", "/etc", "/w/home/kept/objects", "/w/p"])
def test_no_private_directory_is_taken_for_objects(store: str) -> None:
    """Also where settings name it as a remote."""
    tree = {
        **REPOSITORY,
        "/w/p/.git/objects/info/alternates": f"{store}\n".encode(),
        "/w/p/.git/config": f'[remote "o"] url = {store}'.encode(),
        f"{store.rstrip('/')}/pack": None,
    }
    assert not [path for path in _survey(tree) if not path.startswith("/w/p/")]


def test_errors_of_the_host_refuse_the_start() -> None:
    """An error is never taken for absence; another user's directory, which no command could open, is passed over."""
    with pytest.raises(CannotStartError, match="cannot look at /w/p/x"):
        _survey({**REPOSITORY, "/w/p/x": OSError(errno.EIO, "Input/output error")})
    with pytest.raises(CannotStartError) as refused:
        _survey({**REPOSITORY, "/w/p/x\x1b": OSError(errno.EACCES, "")})
    assert refused.value.remedy == "chmod u+rwx $'/w/p/x\\x1b'"
    assert "/w/p/.git" in _survey({**REPOSITORY, "/w/p/x": OSError(errno.EACCES, "")}, owner={"/w/p/x": 999})


def test_very_many_worktrees_are_one_rule() -> None:
    """1,100 entries that a command made."""
    entries = {f"/w/p/.git/worktrees/{number}/gitdir": f"/w/{number}/.git".encode() for number in range(1100)}
    rules = _survey({**REPOSITORY, **entries})
    assert rules["/w/p/.git/worktrees"] == READ
    assert len(rules) < 10


def test_very_many_repositories_are_one_rule_each() -> None:
    """Those near the top come first, and stay writable; of even more the directory that holds most is read-only as a whole, and the start goes on."""
    tree = {path.replace("/p/", "/p/zz/"): content for path, content in REPOSITORY.items()} | REPOSITORY
    for number in range(220):
        tree[f"/w/p/r/{number}/.git/config"] = tree[f"/w/p/r/{number}/.git/hooks"] = b""
    rules = _survey(tree)
    assert rules["/w/p/.git"] == rules["/w/p/zz/.git"] == ANCHOR
    assert len(rules) <= 2 * MOST_RULES
    assert all(READ in (rules.get(f"/w/p/r/{number}/.git/config"), rules.get(f"/w/p/r/{number}/.git")) for number in range(220))
    rules = _survey(tree | {f"/w/p/s/{number}/.git": None for number in range(200)})
    assert rules["/w/p/.git"] == rules["/w/p/zz/.git"] == ANCHOR
    assert READ in (rules.get("/w/p/r"), rules.get("/w/p/s"))
    assert len(rules) <= 2 * MOST_RULES


def test_names_beside_it_do_not_hide_a_repository() -> None:
    """A directory with more names than are read."""
    tree = {path.replace("/p/", "/p/x/"): content for path, content in REPOSITORY.items()}
    rules = _survey({**tree, **{f"/w/p/x/ {number}": b"" for number in range(3000)}})
    assert rules["/w/p/x/.git/config"] == READ


def test_only_the_projects_own_repository_borrows_and_only_from_remotes() -> None:
    """Commands write further lines, further repositories, and submodules that name the project."""
    settings = b'[remote "o"] url = /w/base'
    tree = {**REPOSITORY, "/w/p/.git/config": settings, "/w/base/objects/pack": None, "/w/secret/objects/pack": None, "/w/far/objects/pack": None}
    tree["/w/p/.git/objects/info/alternates"] = b"/w/base/objects\n../../../secret/objects\n"
    tree["/w/base/objects/info/alternates"] = b"../../far/objects"
    shown = [path for path in _survey(tree) if not path.startswith("/w/p/")]
    assert shown == ["/w/base/objects", "/w/far/objects"]
    for planted in ("/w/p/x/.git", "/w/p/.git/modules/x"):
        evil = {path.replace("/w/p/.git", planted): content for path, content in tree.items() if path.startswith("/w/p/.git")}
        evil[f"{planted}/config"] = settings + b"\n[core] worktree = /w/p"
        evil |= {path: content for path, content in tree.items() if not path.startswith("/w/p/.git")}
        assert not [path for path in _survey(REPOSITORY | evil) if not path.startswith("/w/p/")]


def test_large_files_outside_are_nobodys_fault() -> None:
    """A pointer of a command's leads there: the remedy must not be to remove them."""
    assert _survey({"/w/p/.git": b"gitdir: /w/o", "/w/o/config": b" " * (1 << 21)}) == {"/w/p/.git": READ}


def test_remedies_are_words_of_a_shell() -> None:
    """Commands choose names: blanks, quotes, semicolons, control characters."""
    for name in ("a b", "a'b", "a;b", "a\x07", "\u00e9", "\\"):
        with pytest.raises(CannotStartError) as refused:
            _survey({**REPOSITORY, f"/w/p/{name}": OSError(errno.EACCES, "")})
        shown = subprocess.run(
            ["bash", "-c", refused.value.remedy.replace("chmod u+rwx", "printf %s")],
            capture_output=True,
            text=True,
            check=True,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
        )
        assert shown.stdout == f"/w/p/{name}"


NESTED: dict[str, tuple[str, dict[str, bytes | str]]] = {
    "submodules": ("/modules/x", {}),
    "entries of worktrees": ("/worktrees/x", {"gitdir": b"/w/p/.git"}),
    "common directories": ("/xxxxxxxxx", {"commondir": b"xxxxxxxxx"}),
    "links": ("/xxxxxxxxx", {"commondir": b"./xxxxxxxxx/./", "hooks": "xxxxxxxxx/hooks"}),
}


@pytest.mark.parametrize("name", NESTED)
def test_git_directories_in_each_other_end(name: str) -> None:
    """Commands nest them until paths are as long as they may be."""
    step, files = NESTED[name]
    tree, at = dict(REPOSITORY), "/w/p/.git"
    while len(at) < 4000:
        tree.update({f"{at}/HEAD": b"x", f"{at}/refs": None, f"{at}/objects": None, **{f"{at}/{file}": text for file, text in files.items()}})
        at += step
    rules = _survey(tree)
    assert rules["/w/p/.git"] == ANCHOR
    assert len(rules) < MOST_RULES


def test_what_looks_for_repositories_leaves_no_descriptor_open(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "x")], check=True)
    before = len(os.listdir("/proc/self/fd"))
    assert pin_repository_settings(str(tmp_path)) == ("x/.git/commondir",)
    assert len(os.listdir("/proc/self/fd")) == before

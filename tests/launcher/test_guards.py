"""What the host runs or follows later stands in the project, and a shell can neither change nor replace it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import MANIFEST, Fence, name_of, users
from helpers import ROOT

from wavegen.policy import defaults

pytestmark = [pytest.mark.needs("bwrap", "git", "user")]

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always")


def git(fence: Fence, *arguments: str, cwd: Path | None = None) -> str:
    """git on the host, as the fence's user."""
    command = [*GIT, "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=cwd or fence.project, env=fence.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    """A repository with a submodule, a linked worktree, repositories below, and everything that somebody follows."""
    made = Fence.create(MANIFEST, uid=request.param)
    git(made, "init", "--quiet")
    for name in ("sub/nested", "a/b/c"):
        git(made, "init", "--quiet", str(made.project / name))
    made.write("tracked", "1\n")
    git(made, "add", "tracked")
    git(made, "commit", "--quiet", "--message=one")
    git(made, "worktree", "add", "--quiet", "linked")
    git(made, "clone", "--quiet", "--bare", str(made.project), str(made.base / "origin"))
    git(made, "submodule", "--quiet", "add", str(made.base / "origin"), "module")
    git(made, "commit", "--quiet", "--all", "--message=two")
    for part in ("info/attributes", "config.worktree"):
        made.write(f".git/{part}", "")
    for name in PRESENT:
        made.write(name, "as it was\n")
    assert made.render().returncode == 0
    yield made
    made.remove()


PRESENT = (
    ".envrc", ".direnv/x", ".mise.toml", ".tool-versions", ".nvmrc", ".vscode/tasks.json", ".idea/workspace.xml", ".devcontainer/devcontainer.json",
    ".claude/settings.json", ".mcp.json", ".codex/config.toml", ".cursor/mcp.json", ".gemini/settings.json", ".husky/pre-commit", ".githooks/pre-push",
)  # fmt: skip

REPOSITORIES = (".git", "sub/nested/.git", "a/b/c/.git", ".git/modules/module")


def tried(fence: Fence, script: str, *arguments: str) -> dict[str, str]:
    """What came of a shell script's lines `name: ok` or `name: no`."""
    done = fence.enter("bash", "-c", script, "bash", *arguments)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ") for line in done.stdout.splitlines())  # type: ignore[misc]


EVERY_WAY = """
for path; do
  ok=no
  { [ -f "$path" ] && echo x >>"$path"; } 2>/dev/null && ok=written
  { [ -d "$path" ] && : >"$path/wavegen-new"; } 2>/dev/null && ok=created
  rm -rf "$path" 2>/dev/null
  [ -e "$path" ] || ok=removed
  mv "$path" "$path.aside" 2>/dev/null && ok=renamed
  touch other && mv -f other "$path" 2>/dev/null && [ -f "$path" ] && [ ! -s "$path" ] && ok=replaced
  rm -f other
  ln -sfn /tmp "$path" 2>/dev/null && [ -L "$path" ] && ok=linked
  chmod 777 "$path" 2>/dev/null && ok=chmod
  echo "$path: $ok"
done
"""


def held(fence: Fence, *paths: str) -> None:
    """None of the ways gets anywhere, and the host's files are as they were."""
    before = {path: (fence.project / path).lstat().st_mtime_ns for path in paths}
    assert tried(fence, EVERY_WAY, *paths) == dict.fromkeys(paths, "no")
    assert {path: (fence.project / path).lstat().st_mtime_ns for path in paths} == before


def test_files_that_the_host_follows_are_held(fence: Fence) -> None:
    held(fence, *PRESENT)


def test_their_directories_are_held(fence: Fence) -> None:
    held(fence, *sorted({path.split("/")[0] for path in PRESENT if "/" in path}))


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_hooks_and_settings_of_every_repository_are_held(fence: Fence, repository: str) -> None:
    parts = [part for part in defaults.GIT_FILES if (fence.project / repository / part).exists()]
    assert {"hooks", "config"} <= set(parts)
    held(fence, *(f"{repository}/{part}" for part in parts))


def test_the_project_s_own_repository_has_every_part(fence: Fence) -> None:
    held(fence, *(f".git/{part}" for part in defaults.GIT_FILES))


def test_pointers_of_worktrees_and_submodules_are_held(fence: Fence) -> None:
    held(fence, "linked/.git", "module/.git", ".git/worktrees/linked/gitdir", ".git/worktrees/linked/commondir")


@pytest.mark.parametrize(
    "path", [".git", ".git/info", ".git/modules", "linked", "module", "sub", "sub/nested", "a", "a/b", "sub/nested/.git", ".vscode", ".github"]
)
def test_no_directory_above_can_be_exchanged(fence: Fence, path: str) -> None:
    if path == ".github":
        return
    script = 'mv "$1" "$1.aside" 2>/dev/null && echo "it: renamed" || echo "it: no"; mv -T --exchange "$1" tracked 2>/dev/null; [ -d "$1" ] || echo "it: gone"'
    assert tried(fence, script, path) == {"it": "no"}


def test_git_works(fence: Fence) -> None:
    script = """
    set -e
    g() { git -c user.name=x -c user.email=x@localhost -c advice.detachedHead=false "$@" >/dev/null; }
    g status; echo 1 >f; g add f; g commit -m f; g branch topic; g checkout -q topic; echo 2 >>f; g stash; g stash pop
    g commit -am g; g checkout -q -; g checkout -q -b other; echo 3 >h; g add h; g commit -m h; g rebase topic; g gc -q; g tag t
    g worktree add -q another; git -C another status >/dev/null; g worktree remove another; git -C linked status >/dev/null
    git init -q fresh; git -C fresh status >/dev/null; git -C fresh config a.b c; git clone -q . copy; git -C copy config a.b c
    git -C sub/nested status >/dev/null; git -C module log >/dev/null; echo x >module/n; git -C module add n; g -C module commit -m n
    g log; g diff; g fsck; g reset -q --hard HEAD~1; g cherry-pick t; g branch -D topic; rm -rf fresh copy
    echo "all: ok"
    """
    assert tried(fence, script) == {"all": "ok"}
    assert "h\n" in git(fence, "log", "--format=%s")


def test_no_placeholder_is_left(fence: Fence) -> None:
    """Neither while a shell runs nor after it, for everything that does not exist."""
    bare = Fence.create(MANIFEST, uid=fence.uid)
    try:
        git(bare, "init", "--quiet", "--template=")
        bare.render()
        # The launcher compiles itself once, into a directory that git ignores.
        assert bare.enter("true").returncode == 0
        before = sorted(str(path.relative_to(bare.project)) for path in bare.project.rglob("*"))
        done = bare.enter("find", ".", "-mindepth", "1")
        assert done.returncode == 0, done.stderr
        assert sorted(line.removeprefix("./") for line in done.stdout.splitlines()) == before
        assert sorted(str(path.relative_to(bare.project)) for path in bare.project.rglob("*")) == before
        assert not {rule.path.tail for rule in defaults.GUARDS if "/" not in rule.path.tail} & (set(os.listdir(bare.project)) - {".git"})
    finally:
        bare.remove()


def test_git_init_in_the_project_works_where_there_was_none(fence: Fence) -> None:
    bare = Fence.create(MANIFEST, uid=fence.uid)
    try:
        assert bare.enter("sh", "-c", "git init -q . && git config a.b c && git status").returncode == 0
    finally:
        bare.remove()


def test_what_the_manifest_grants_for_writing_is_writable() -> None:
    fence = Fence.create(MANIFEST + "runtime: {sandbox: {paths: [{path: .vscode, access: write}]}}\n", uid=users()[-1])
    try:
        fence.write(".vscode/tasks.json", "{}\n")
        fence.write(".envrc", "x\n")
        fence.own()
        assert fence.enter("sh", "-c", "echo 1 >.vscode/tasks.json && echo 2 >.vscode/new").returncode == 0
        held(fence, ".envrc")
    finally:
        fence.remove()


@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_a_project_without_a_flake_starts_and_a_flake_that_a_command_made_is_named(uid: int) -> None:
    made = Fence.create("metadata: {name: fence}\nruntime: {sandbox: {outputs: []}}\n", uid=uid)
    try:
        assert not (made.project / "flake.nix").exists()
        assert made.enter("sh", "-c", "echo made >flake.nix; echo >>wave.yaml").stderr.count("Read-only file system") == 1
        assert "flake.nix" in made.wavegen("audit").stdout
        # From then on it is held.
        assert made.enter("sh", "-c", "echo more >>flake.nix || rm flake.nix").returncode != 0
        assert (made.project / "flake.nix").read_text() == "made\n"
    finally:
        made.remove()


def test_what_is_hidden_stays_hidden() -> None:
    manifest = MANIFEST + "runtime: {sandbox: {deny_read_paths: [.vscode, .git/config, .claude/settings.json]}}\n"
    fence = Fence.create(manifest, uid=users()[-1])
    try:
        git(fence, "init", "--quiet")
        for name in (".vscode/tasks.json", ".claude/settings.json", ".claude/other"):
            fence.write(name, "secret\n")
        fence.own()
        done = fence.enter("sh", "-c", "cat .vscode/tasks.json .git/config .claude/settings.json; cat .claude/other; echo x >.claude/new")
        assert done.stdout == "secret\n"
        assert "Read-only" in done.stderr
    finally:
        fence.remove()


def test_repositories_of_other_places_that_may_be_written_are_held() -> None:
    fence = Fence.create(MANIFEST + "runtime: {sandbox: {paths: [{path: ~/work, access: write}]}}\n", uid=users()[-1])
    try:
        git(fence, "init", "--quiet", str(fence.home / "work"))
        git(fence, "init", "--quiet", str(fence.home / "work/deep/er"))
        fence.own()
        script = 'for r in ~/work ~/work/deep/er; do echo x 2>/dev/null >>$r/.git/config && echo "$r: written" || echo "$r: no"; done; : >~/work/new; mv ~/work/deep ~/x 2>&1'
        done = fence.enter("bash", "-c", script)
        assert done.stdout.count(": no") == 2, done.stdout + done.stderr
        assert (fence.home / "work/new").exists()
        assert (fence.home / "work/deep/er/.git/config").exists()
    finally:
        fence.remove()


@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {outside} x", "ln -s {outside}/repo/.git x.git; mkdir y; ln -s {outside}/repo/.git y/.git", "mkdir .git; ln -s {outside}/repo/.git/hooks .git/hooks",
        "ln -s {outside} .vscode", "ln -s loop .envrc; ln -s .envrc loop", "mkfifo .envrc", "mkdir -p .git/modules/a/b/c/d/e/f/g/h/i/j/k; ln -s .. .git/modules/l",
        "for i in $(seq 3100); do mkdir -p n/$i; echo 'gitdir: ../x' >n/$i/.git; done", "mkdir l; cd l; for i in $(seq 500); do ln -s /usr/share u$i; ln -s /proc p$i; done",
        "mkdir -p .git; touch .git/HEAD; ln -s /proc/self/root .git/worktrees",
    ],
)  # fmt: skip
def test_what_a_command_plants_neither_leads_out_nor_keeps_shells_from_starting(plant: str) -> None:
    fence = Fence.create(MANIFEST, uid=users()[-1])
    try:
        outside = fence.base / "outside"
        outside.mkdir()
        git(fence, "init", "--quiet", str(outside / "repo"))
        (outside / "repo/.git/hooks/canary").write_text("canary", "utf-8")
        fence.own()
        assert fence.enter("sh", "-c", plant.format(outside=outside)).returncode == 0
        done = fence.enter("sh", "-c", f"cat {outside}/repo/.git/hooks/canary; ls -R . 2>/dev/null | grep canary; echo started")
        assert done.stdout == "started\n", done.stderr
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(fence.base)], check=False)
        fence.remove()


@pytest.mark.parametrize(
    "plant", ["mkdir -p d/.git; chmod 0 d/.git", "git init -q; chmod 0 .git", "git init -q; mkdir -p .git/modules/x; chmod 0311 .git/modules"]
)
def test_what_cannot_be_looked_at_is_not_taken_for_absent(plant: str) -> None:
    fence = Fence.create(MANIFEST, uid=users()[-1])
    try:
        assert fence.enter("sh", "-c", plant).returncode == 0
        done = fence.enter("echo", "started")
        assert (done.returncode, done.stdout) == (125, "")
        remedy = re.search(r"\((chmod u\+rwx [^ )]+)", done.stderr)
        assert remedy, done.stderr
        subprocess.run(remedy[1].split(), check=True)
        assert fence.enter("echo", "started").stdout == "started\n"
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(fence.base)], check=False)
        fence.remove()


def test_hooks_elsewhere_are_held_where_git_finds_them() -> None:
    fence = Fence.create(MANIFEST, uid=users()[-1])
    try:
        git(fence, "init", "--quiet")
        for name in ("scripts/pre.sh", "my hooks/post-commit"):
            fence.write(name, "x\n")
        (fence.project / ".git/hooks/pre-commit").symlink_to("../../scripts/pre.sh")
        git(fence, "config", "core.hooksPath", "my hooks")
        fence.own()
        held(fence, "scripts/pre.sh", "my hooks/post-commit", "my hooks")
        git(fence, "config", "core.hooksPath", f"{fence.project}/scripts")
        fence.own()
        held(fence, "scripts")
        git(fence, "config", "core.hooksPath", "/etc")
        fence.own()
        assert fence.enter("true").returncode == 0
    finally:
        fence.remove()


@pytest.mark.parametrize("shell", ["default", "restricted"])
@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_the_process_that_ends_the_others_cannot_be_starved(shell: str, uid: int) -> None:
    """Else they would write on after the audit."""
    fence = Fence.create(MANIFEST, uid=uid)
    try:
        starve = "import os\ntry: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))\nexcept PermissionError: print('refused')\n"
        assert fence.enter("/usr/bin/python3", "-I", "-S", "-c", starve, shell=shell).stdout == "refused\n"
    finally:
        fence.remove()


WAITS = r"""
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from wavegen.launcher.supervise import Report
def report(pid):
    read, write = os.pipe()
    os.write(write, b'{ "child-pid": %d }\n' % pid)
    return Report(read)
alive = subprocess.Popen(["sleep", "0.5"])  # a zombie once it has ended, as nobody waits for it
over = report(alive.pid).is_over()
print(over, open(f"/proc/{alive.pid}/stat").read().rpartition(") ")[2][0])
print(report(alive.pid).is_over(), report(4194303).is_over())
print(report(os.getppid()).is_over())
"""


def test_the_look_afterwards_waits_until_everything_inside_has_ended() -> None:
    """Played with processes of the host: one that ends, a zombie, none, one that goes on."""
    done = subprocess.run([sys.executable, "-c", WAITS, str(ROOT)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["True Z", "True True", "False"]


GIT_TRUSTS = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_CONFIG_KEY_1": "protocol.file.allow",
    "GIT_CONFIG_VALUE_1": "always",
}
"""Root's git in directories of a user's."""


@pytest.mark.parametrize(
    ("make", "git_directory", "used"),
    [
        ("git init -q .", ".git", "."),
        ("git init -q . && git clone -q $S vendor/x", "vendor/x/.git", "vendor/x"),
        ("git clone -q --bare $S .bare && echo 'gitdir: ./.bare' >.git && git worktree add -q w HEAD", ".bare", "w"),
        ("git init -q . && git submodule --quiet add $S mod", ".git/modules/mod", "mod"),
    ],
)
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_no_repository_of_the_project_is_turned_elsewhere_once_it_was_rendered(make: str, git_directory: str, used: str, shell: str) -> None:
    """A command copies a repository with settings of its own beside, and lets `commondir` lead there: nothing runs at the host's git status."""
    fence = Fence.create(MANIFEST, uid=users()[-1])
    try:
        seed = fence.base / "seed"
        script = f"export GIT_CONFIG_GLOBAL=/dev/null S={seed}; git init -q {seed} && git -C {seed} -c user.name=x -c user.email=x@x commit -q --allow-empty -m 1 && {make}"
        subprocess.run(["sh", "-ec", script], cwd=fence.project, check=True, env={**os.environ, **GIT_TRUSTS})
        fence.own()
        assert fence.render().returncode == 0
        pwned = fence.base / "pwned"
        evil = f"cd {git_directory} && mkdir evil && cp -r objects refs HEAD evil/ && printf '[core]\\nbare = false\\nfsmonitor = touch {pwned}; false\\n' >evil/config; echo evil >commondir; true"
        done = fence.enter("sh", "-c", evil, shell=shell)
        assert "commondir" in done.stderr, done.stderr
        subprocess.run(["git", "-c", "safe.directory=*", "status"], cwd=fence.project / used, capture_output=True, check=False)
        assert not pwned.exists()
    finally:
        fence.remove()


@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_git_status_in_a_project_with_a_submodule_is_no_finding_and_a_planted_setting_is_one(uid: int) -> None:
    made = Fence.create(MANIFEST + "runtime: {sandbox: {paths: [{path: old/config, access: read}]}}\n", uid=uid)
    made.write("old/config", "[core]\n\tfsmonitor = evil\n")
    made.own()
    try:
        git(made, "init", "--quiet")
        git(made, "clone", "--quiet", "--bare", str(made.project), str(made.base / "origin"))
        made.write("tracked", "1\n")
        git(made, "add", "tracked")
        git(made, "commit", "--quiet", "--message=one")
        git(made, "push", "--quiet", str(made.base / "origin"), "HEAD:main")
        git(made, "submodule", "--quiet", "add", "-b", "main", str(made.base / "origin"), "module")
        git(made, "commit", "--quiet", "--all", "--message=two")
        assert made.render().returncode == 0
        made.own()
        (made.project / "module/tracked").touch()
        work = "git status -s >/dev/null; git -C module status -s; touch .git/modules/module/new; mkdir bare"
        assert made.enter("sh", "-c", work).returncode == 0
        assert ".git/modules" not in made.wavegen("audit").stdout
        # What was no repository when the session began is judged as new, whatever is old in it, held by the manifest or not.
        assert made.enter("sh", "-c", "mkdir -p old/objects old/refs; echo ref: refs/heads/main >old/HEAD").returncode == 0
        assert "old/config" in made.wavegen("audit").stdout
    finally:
        made.remove()


@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_a_shell_that_is_started_inside_another_says_where_it_is(shell: str) -> None:
    made = Fence.create(MANIFEST, uid=users()[-1])
    try:
        done = made.enter(f".wavegen/bin/{shell}", "true", shell=shell)
        assert done.returncode == 125
        assert f"wavegen: error: this is inside the shell {shell}, which allows no sandbox inside it (start it outside, or write nested: true" in done.stderr
        assert "ulimit" not in done.stderr
    finally:
        made.remove()

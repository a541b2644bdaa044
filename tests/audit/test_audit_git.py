"""Git's settings are read as git reads them, and everything in a repository that makes git start something is found."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from audit_ground import Ground

CLEAN = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def git(where: Path, *words: str) -> None:
    subprocess.run(("git", *words), cwd=where, env=CLEAN, check=True, capture_output=True)


def test_what_stands_before_a_bad_line_counts(ground: Ground) -> None:
    ground.enter()
    ground.put(".git/config", "[core]\n\tfsmonitor = evil\n]]]\n")
    assert [(f.severity, f.detail) for f in ground.findings() if f.path == ".git/config"] == [("critical", "core.fsmonitor=evil, git refuses a line of it")]


# --- what settings do

DANGEROUS = {
    "core.fsmonitor=x": "critical",
    "core.hooksPath=x": "critical",
    "core.sshCommand=x": "critical",
    "core.editor=x": "critical",
    "core.pager=x": "critical",
    "pager.log=x": "critical",
    "core.gitProxy=x": "critical",
    "core.askPass=x": "critical",
    "core.alternateRefsCommand=x": "critical",
    "core.worktree=/x": "critical",
    "core.attributesFile=x": "high",
    "sequence.editor=x": "critical",
    "diff.external=x": "critical",
    "diff.x.command=x": "critical",
    "diff.a.b.textconv=x": "critical",
    "filter.x.clean=x": "critical",
    "filter.x.smudge=x": "critical",
    "filter.x.process=x": "critical",
    "merge.x.driver=x": "critical",
    "alias.st=!x": "high",
    "alias.co=-c core.pager=x log": "high",
    "alias.br=branch": "medium",
    "credential.helper=x": "critical",
    "credential.https://example.org.helper=x": "critical",
    "gpg.program=x": "critical",
    "gpg.ssh.program=x": "critical",
    "gpg.ssh.defaultKeyCommand=x": "critical",
    "browser.x.cmd=x": "high",
    "man.x.cmd=x": "high",
    "difftool.x.cmd=x": "high",
    "mergetool.x.path=x": "high",
    "remote.origin.uploadpack=x": "critical",
    "remote.origin.receivepack=x": "critical",
    "remote.origin.vcs=x": "critical",
    "remote.origin.proxy=x": "medium",
    "remote.origin.url=https://example.org": "medium",
    "remote.origin.url=ext::sh -c x": "critical",
    "branch.main.remote=ext::sh -c x": "critical",
    "branch.main.remote=../x": "medium",
    "url.https://example.org/.insteadOf=x": "high",
    "url.ext::sh -c x.insteadOf=x": "critical",
    "url.x.pushInsteadOf=x": "high",
    "protocol.ext.allow=always": "high",
    "protocol.allow=always": "high",
    "submodule.x.update=!x": "critical",
    "include.path=x": "critical",
    "includeIf.gitdir:x.path=x": "critical",
    "extensions.worktreeConfig=true": "high",
    "uploadpack.packObjectsHook=x": "critical",
    "interactive.diffFilter=x": "critical",
    "sendemail.toCmd=x": "high",
    "sendemail.smtpServer=x": "high",
    "trailer.x.command=x": "critical",
    "trailer.x.cmd=x": "critical",
    "imap.tunnel=x": "high",
    "http.proxy=x": "medium",
    "http.sslVerify=false": "medium",
    "http.https://example.org.sslCert=x": "medium",
    "lfs.customtransfer.x.path=x": "critical",
    "lfs.url=https://example.org": "medium",
    "guitool.x.cmd=x": "high",
    "init.templateDir=x": "high",
    "some.newCommand=x": "medium",
    "some.thing.helper=x": "medium",
}


@pytest.mark.needs("git")
@pytest.mark.parametrize(("setting", "severity"), DANGEROUS.items())
def test_a_setting_that_git_wrote_is_found(ground: Ground, setting: str, severity: str) -> None:
    (ground.root / "sub").mkdir()
    git(ground.root / "sub", "init", "-q", "--template=")
    ground.enter()
    name, value = (setting[: setting.rindex("=")], setting[setting.rindex("=") + 1 :]) if setting.count("=") == 1 else setting.split("=", 1)
    git(ground.root / "sub", "config", name, value)
    found = {f.path: f for f in ground.findings()}
    assert set(found) == {"sub/.git/config"}
    assert found["sub/.git/config"].severity == severity
    assert f"={value}" in found["sub/.git/config"].detail


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    "setting",
    ["user.name=x", "core.fsmonitor=true", "core.autocrlf=input", "branch.main.remote=origin", "branch.main.merge=refs/heads/main", "pager.log=false",
     "submodule.x.update=rebase", "submodule.x.active=true", "protocol.ext.allow=never", "http.sslVerify=true", "color.ui=auto", "pull.rebase=true",
     "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*"],
)  # fmt: skip
def test_a_setting_that_starts_nothing_is_no_finding(ground: Ground, setting: str) -> None:
    git(ground.root, "init", "-q", "--template=")
    ground.enter()
    git(ground.root, "config", *setting.split("=", 1))
    assert ground.paths() == set()


@pytest.mark.needs("git")
def test_the_same_settings_in_a_file_written_anew_are_known(ground: Ground) -> None:
    git(ground.root, "init", "-q", "--template=")
    git(ground.root, "config", "alias.x", "!y")
    ground.accept()
    ground.enter()
    git(ground.root, "config", "branch.main.remote", "origin")
    assert ground.paths() == set()
    git(ground.root, "config", "alias.x", "!z")
    assert ground.paths() == {".git/config"}


# --- repositories


def bare(ground: Ground, place: str) -> None:
    """What git takes for a repository, with nothing in it that is of interest."""
    ground.put(f"{place}/HEAD", "ref: refs/heads/main\n")
    ground.put(f"{place}/config", "[core]\n\tbare = true\n")
    (ground.root / place / "objects").mkdir()
    (ground.root / place / "refs").mkdir()


INSIDE = [
    ("hooks/pre-commit", "#!/bin/sh\n", "critical"),
    ("hooks/lib/x", "x", "critical"),
    ("config", "[core]\n\tfsmonitor = x\n", "critical"),
    ("config.worktree", "[core]\n\tfsmonitor = x\n", "critical"),
    ("commondir", "../evil\n", "critical"),
    ("gitdir", "/x/.git\n", "medium"),
    ("info/attributes", "* filter=x\n", "critical"),
    ("objects/info/alternates", "/x\n", "high"),
    ("objects/info/http-alternates", "http://x\n", "high"),
    ("rebase-merge/git-rebase-todo", "pick 1\nexec evil\n", "high"),
    ("info/grafts", "x y\n", "critical"),
    ("refs/replace/0123", "x\n", "critical"),
    ("packed-refs", "0123 refs/heads/x\n4567 refs/replace/89ab\n", "critical"),
    ("sl/config", "[hooks]\n", "critical"),
    ("branches/x", "ext::sh", "medium"),
    ("remotes/x", "URL: ext::sh", "medium"),
    ("worktrees/w/commondir", "../../../evil\n", "critical"),
    ("worktrees/w/gitdir", "/x\n", "medium"),
    ("worktrees/w/config.worktree", "[core]\n\tpager = x\n", "critical"),
    ("modules/m/config", "[core]\n\tpager = x\n", "critical"),
    ("modules/a/b/c/config", "[core]\n\tpager = x\n", "critical"),
    ("modules/m/modules/n/hooks/post-checkout", "x", "critical"),
]


@pytest.mark.parametrize("place", [".git", "sub/.git", "sub/.GIT", "deep/er/.git", "bare.git", "innocent"])
@pytest.mark.parametrize(("path", "content", "severity"), INSIDE, ids=[path for path, _, _ in INSIDE])
def test_what_git_obeys_in_a_repository(ground: Ground, place: str, path: str, content: str, severity: str) -> None:
    bare(ground, place)
    for name in ("worktrees/w", "modules/m", "modules/a/b/c", "modules/m/modules/n"):
        if not place.startswith(("bare", "inn")):
            ground.put(f"{place}/{name}/HEAD")
        else:
            bare(ground, f"{place}/{name}")
    file = ground.put(f"{place}/{path}", content)
    ground.put(f"{place}/description")
    ground.enter()
    if place not in ("bare.git", "innocent"):  # a new entry may make one of any directory
        ground.put(f"{place}/index")
    ground.put(f"{place}/HEAD", "ref: refs/heads/other\n")
    assert ground.paths() == set()
    file.write_text(content + "\n")
    assert ground.severities() == {f"{place}/{path}": severity}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("hooks/pre-commit.sample", "x"),
        ("commondir", ".\n"),
        ("commondir", "./\n"),
        ("worktrees/w/commondir", "../..\n"),
        ("info/exclude", "x"),
        ("info/attributes", "*.py diff=python\n# * filter=x\n*.png binary -text\n"),
        ("rebase-merge/git-rebase-todo", "pick 1 exec\n"),
        ("refs/heads/Makefile", "x"),
        ("refs/heads/replace/x", "x"),
        ("packed-refs", "# pack-refs with: peeled\n0123 refs/heads/replace/x\n"),
        ("logs/refs/heads/.envrc", "x"),
        ("objects/aa/config", "x"),
    ],
)
def test_what_git_writes_all_the_time(ground: Ground, path: str, content: str) -> None:
    bare(ground, ".git")
    ground.put(".git/worktrees/w/HEAD")
    ground.enter()
    ground.put(f".git/{path}", content)
    assert ground.paths() == set()


@pytest.mark.needs("git")
def test_everyday_git_makes_no_finding(ground: Ground) -> None:
    git(ground.root, "init", "-q")
    ground.put("x")
    git(ground.root, "add", "x")
    git(ground.root, "commit", "-qm", "one")
    ground.accept()
    ground.enter()
    ground.put("y")
    git(ground.root, "add", "y")
    git(ground.root, "commit", "-qm", "two")
    git(ground.root, "checkout", "-qb", "Makefile")
    git(ground.root, "branch", "config")
    git(ground.root, "stash", "list")
    git(ground.root, "tag", "commondir")
    git(ground.root, "gc", "-q")
    git(ground.root, "rebase", "-q", "HEAD~1")
    assert ground.paths() == set()
    git(ground.root, "worktree", "add", "-q", "tree")
    assert ground.severities() == {"tree/.git": "medium", ".git/worktrees/tree/gitdir": "medium"}


@pytest.mark.needs("git")
@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_a_new_repository_is_named(ground: Ground, options: tuple[str, ...]) -> None:
    git(ground.root, "init", "-q", *options, "sub/old")
    (ground.root / "modules").mkdir()
    ground.put("other/x")
    ground.enter()
    git(ground.root, "init", "-q", *options, "other/new")
    git(ground.root, "init", "-q", *options, "modules/x")
    assert ground.severities() == {f"{place}{'' if options else '/.git'}": "low" for place in ("other/new", "modules/x")}
    ground.accept()
    ground.enter()
    git(ground.root / "sub/old", "symbolic-ref", "HEAD", "refs/heads/other")
    assert ground.paths() == set()


@pytest.mark.needs("git")
@pytest.mark.parametrize("kind", ["submodule", "elsewhere"])
def test_a_pointer_to_a_repository(ground: Ground, kind: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "source")
    git(tmp_path / "source", "commit", "-qm", "x", "--allow-empty")
    git(ground.root, "init", "-q")
    ground.enter()
    if kind == "submodule":
        git(ground.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "source"), "sub")
        found = ground.severities()
        assert found["sub/.git"] == "medium"
        assert found[".gitmodules"] == "medium"
        assert found[".git/config"] == found[".git/modules/sub/config"] == "critical" or "core.worktree" in str(
            [f.detail for f in ground.findings() if f.path == ".git/modules/sub/config"]
        )
    else:
        git(ground.root, "init", "-q", "--separate-git-dir", str(ground.root / "hidden"), "sub")
        assert ground.severities()["sub/.git"] == "critical"


@pytest.mark.parametrize("name", [".git", "sub/.git", "sub/.Git"])
def test_a_link_in_place_of_a_repository(ground: Ground, name: str) -> None:
    bare(ground, "data")
    (ground.root / "sub").mkdir()
    ground.enter()
    (ground.root / name).symlink_to("../data" if "/" in name else "data")
    assert ground.severities()[name] == "critical"


@pytest.mark.parametrize("name", ["hooks", "config", "info", "objects", "modules", "hooks/pre-commit", "info/attributes", "commondir"])
def test_a_link_in_a_repository(ground: Ground, name: str) -> None:
    bare(ground, ".git")
    (ground.root / ".git/objects").rmdir()
    (ground.root / ".git/config").unlink()
    ground.put("data/x")
    ground.enter()
    (ground.root / ".git" / name).parent.mkdir(exist_ok=True)
    (ground.root / ".git" / name).symlink_to("/".join([".."] * (1 + name.count("/"))) + "/data")
    assert ground.severities()[f".git/{name}"] == "critical"


def test_a_directory_becomes_a_bare_repository(ground: Ground) -> None:
    """Its old `config` was nothing to git until now."""
    ground.put("src/config", "[core]\n\tfsmonitor = x\n")
    ground.put("src/.envrc")
    ground.enter()
    ground.put("src/HEAD", "ref: refs/heads/main\n")
    (ground.root / "src/objects").mkdir()
    (ground.root / "src/refs").mkdir()
    assert "src/config" in ground.paths()
    (ground.root / "src/HEAD").unlink()
    assert ground.paths() == set()
    ground.accept()  # also where the directory is known
    ground.enter()
    ground.put("src/HEAD", "ref: refs/heads/main\n")
    assert "src/config" in ground.paths()


def test_attributes_and_submodules(ground: Ground) -> None:
    ground.put(".gitattributes", "*.psd filter=lfs diff=lfs merge=lfs -text\n")
    ground.accept()
    ground.enter()
    ground.put(".gitattributes", "*.psd filter=lfs diff=lfs merge=lfs -text\n*.py text\n")
    assert ground.paths() == set()
    ground.put(".gitattributes", "*.psd filter=lfs diff=lfs merge=lfs -text\n[attr]x filter=evil\n")
    ground.put("sub/.gitattributes", "*.py diff=python\n")
    ground.put(".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c evil\n\tupdate = !evil\n')
    found = {f.path: (f.severity, f.detail) for f in ground.findings()}
    assert found == {
        ".gitattributes": ("medium", "diff=lfs, filter=evil, filter=lfs, merge=lfs"),
        ".gitmodules": ("critical", "submodule.x.url=ext::sh -c evil, submodule.x.update=!evil"),
    }


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ("[core]\n\thooksPath = tools/hooks\n", "tools/hooks/pre-commit"),
        ("[core]\n\tfsmonitor = ./tools/watch\n", "tools/watch"),
        ('[filter "x"]\n\tclean = python3 tools/clean.py --fast %f\n', "tools/clean.py"),
        ("[alias]\n\tx = \"!sh -c 'tools/x.sh; true'\"\n", "tools/x.sh"),
        ("[include]\n\tpath = ../tools/settings\n", "tools/settings"),
        ("[diff]\n\texternal = ROOT/tools/diff\n", "tools/diff"),
    ],
)
def test_what_old_settings_name_is_looked_at(ground: Ground, settings: str, path: str) -> None:
    bare(ground, ".git")
    ground.put(".git/config", settings.replace("ROOT", str(ground.root)))
    file = ground.put(path, "[core]\n\tpager = less\n")
    ground.put("tools/other", "x")
    ground.enter()
    ground.put("tools/other", "y")
    assert ground.paths() == set()
    file.write_text("[core]\n\tpager = evil\n")
    assert ground.severities() == {path: "critical"}
    ground.accept()
    assert ground.paths() == set()


def test_what_settings_name_outside_is_left_alone(ground: Ground) -> None:
    (ground.root.parent / "evil").write_text("x")
    (ground.root / "link").symlink_to("..")
    bare(ground, ".git")
    ground.put(".git/config", "[core]\n\tfsmonitor = ../evil\n\tpager = link/evil\n\teditor = /etc/passwd\n[include]\n\tpath = /dev/zero\n")
    assert {f.path for f in ground.findings() if f.kind == "git"} == {".git", ".git/config"}


def test_a_rebase_under_way_that_names_a_program_is_found(ground: Ground) -> None:
    ground.put(".git/HEAD")
    ground.put(".git/config", "")
    ground.enter()
    ground.put(".git/rebase-merge/strategy", "ort\n")
    ground.put(".git/sequencer/opts", "[options]\n\tstrategy = ours\n")
    assert ground.paths() == set()
    ground.put(".git/rebase-merge/strategy", "x/evil\n")
    ground.put(".git/sequencer/opts", "[options]\n\tstrategy = x/evil\n")
    assert ground.paths() == {".git/rebase-merge/strategy", ".git/sequencer/opts"}


@pytest.mark.needs("git")
def test_the_git_directory_of_a_linked_worktree_is_looked_at(ground: Ground, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--template=", "main")
    main = tmp_path / "main"
    git(main, "commit", "-qm", "x", "--allow-empty")
    ground.root.rmdir()
    git(main, "worktree", "add", "-q", str(ground.root))
    git(main, "worktree", "add", "-q", str(tmp_path / "other"))
    (main / "tools").mkdir()
    ground.enter()
    git(ground.root, "commit", "-qm", "y", "--allow-empty")
    assert ground.paths() == set()
    (main / ".git/evil").mkdir()
    (main / ".git/commondir").write_text("evil\n")
    (main / ".git/hooks").mkdir()
    (main / ".git/hooks/post-commit").write_text("x")
    (main / ".git/worktrees/other/commondir").write_text("../../evil\n")
    (main / ".git/Makefile").write_text("x")
    (main / ".envrc").write_text("not the project's")
    (main / ".git/info").mkdir(exist_ok=True)
    (main / ".git/info/attributes").symlink_to("/etc/passwd")
    found = ground.severities()
    names = ("commondir", "hooks/post-commit", "worktrees/other/commondir", "info/attributes")
    assert found == {f"{main}/.git/{name}": "critical" for name in names}
    ground.accept()
    assert ground.paths() == set()
    ground.enter()
    (main / ".git/commondir").write_text("evil2\n")
    assert ground.severities() == {f"{main}/.git/commondir": "critical"}


@pytest.mark.needs("git")
def test_the_git_directory_of_a_submodule_is_looked_at(ground: Ground, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ground.root.rmdir()
    git(tmp_path, "init", "-q", "--template=", "--separate-git-dir", str(store), str(ground.root))
    git(ground.root, "config", "core.worktree", str(ground.root))
    ground.enter()
    (store / "hooks").mkdir()
    (store / "hooks/pre-commit").write_text("x")
    assert ground.severities() == {f"{store}/hooks/pre-commit": "critical"}


@pytest.mark.parametrize("lie", ["gitdir", "place", "inside"])
@pytest.mark.needs("git")
def test_a_pointer_that_is_not_answered_leads_nowhere(ground: Ground, tmp_path: Path, lie: str) -> None:
    main = tmp_path / "main"
    git(tmp_path, "init", "-q", "--template=", "main")
    git(main, "commit", "-qm", "x", "--allow-empty")
    git(main, "worktree", "add", "-q", str(tmp_path / "other"))
    if lie == "inside":
        git(ground.root, "init", "-q", "--template=", "sub")
    target = {"gitdir": main / ".git/worktrees/other", "place": tmp_path, "inside": ground.root / "sub/.git"}[lie]
    ground.put(".git", f"gitdir: {target}\n")
    ground.enter()
    (main / ".git/hooks").mkdir()
    (main / ".git/hooks/post-commit").write_text("x")
    assert ground.paths() == set()


@pytest.mark.needs("git")
def test_a_new_repository_where_a_flake_stands_is_critical(ground: Ground) -> None:
    ground.put("flake.nix")
    ground.put("sub/flake.nix")
    ground.put("other/x")
    ground.enter()
    for place in ("", "sub", "other"):
        git(ground.root, "init", "-q", "--template=", f"./{place}")
    found = ground.severities()
    assert {path: found[path] for path in found if path.endswith(".git")} == {".git": "critical", "sub/.git": "critical", "other/.git": "low"}


@pytest.mark.needs("git")
def test_an_ordinary_first_session_leaves_no_finding(ground: Ground) -> None:
    """Old hooks and settings are not taken for new because .git and the project changed, which every commit does."""
    git(ground.root, "init", "-q")
    ground.put(".git/hooks/post-commit", "#!/bin/sh\n").chmod(0o755)
    git(ground.root, "config", "core.pager", "less")
    (ground.root / "evil").mkdir()
    ground.put("evil/hooks/post-commit", "#!/bin/sh\n")
    inode = {name: (ground.root / name).stat().st_ino for name in (".git", "evil")}
    ground.enter()
    ground.marker.write_text("".join(f"{number} {name}\n" for name, number in inode.items()))
    time.sleep(0.03)
    ground.put("x")
    git(ground.root, "add", "x")
    git(ground.root, "commit", "-qm", "one")
    assert ground.paths() == set()
    (ground.root / ".git").rename(ground.root / "old")
    (ground.root / "evil").rename(ground.root / ".git")
    assert ".git/hooks/post-commit" in ground.paths()
    # What was there at the entry means nothing any more once something was accepted.
    (ground.root / ".git").rename(ground.root / "evil")
    ground.marker = ground.marker.rename(ground.state / f"entered-{os.getpid()}-1")
    ground.accept()
    assert ground.marker.read_text() == ""

"""What `wavegen explain` says, held against what is so inside the fences."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fence import Fence, name_of, users
from helpers import call, project

from wavegen.core.errors import Location
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule
from wavegen.policy.path_resolution import PlacedRules

MANIFEST = """\
metadata: {name: fence}
adapters:
  claude: {binary: claude, mode: headless}
runtime:
  sandbox:
    default_allowed_domains: [allowed.example, "*.wild.example", "git.example:22", 192.0.2.7, {host: intranet.example, allow_private: true}]
    denied_domains: [bad.wild.example]
    env_passthrough: [PASSED]
    deny_read_paths: [secrets, ~/granted/hidden, /etc/ssl]
    seccomp_allow: [ptrace]
    paths:
      - {path: ~/granted, access: read}
      - {path: ~/written, access: write}
      - {path: ~/alias, access: read}
      - {path: .vscode, access: write}
      - {path: docs, access: read}
    shells:
      restricted: {network: filtered, loopback: [5432]}
      closed: {network: none}
      open: {network: open, denied_domains: [gist.example]}
personas:
  reader:
    permissions: {allowed_tools: [Read, "Bash(git log:*)", "Bash(git push *)", mcp__docs__*], deny: ["Bash(git push --force*)", WebSearch]}
"""


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    found = Fence.create(MANIFEST, uid=request.param)
    # A place of the home by its whole name: known only now.
    found.write("wave.yaml", MANIFEST.replace("    shells:\n", f"      - {{path: {found.home}/by-name, access: write, optional: true}}\n    shells:\n"))
    assert found.render().returncode == 0
    for place in ("granted/hidden", "written", "target/deep", ".ssh", "other", "by-name"):
        (found.home / place).mkdir(parents=True)
    for place in ("secrets", ".git/hooks", ".git/objects", ".vscode", ".claude", "docs", "sub/.git/hooks", "sub/.git/objects", "src", "../neighbour"):
        (found.project / place).mkdir(parents=True)
    for place in (
        found.home / "granted/file",
        found.home / "granted/hidden/file",
        found.home / "target/deep/file",
        found.home / ".ssh/key",
        found.home / "other/file",
    ):
        place.write_text("host\n")
    for name in (
        "secrets/file",
        ".git/HEAD",
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/.git/HEAD",
        "sub/.git/config",
        ".vscode/tasks.json",
        ".claude/x",
        "docs/x",
        "src/x",
    ):
        found.write(name, "ref: refs/heads/main\n" if name.endswith("HEAD") else "")
    found.write("../neighbour/file", "host\n")
    (found.home / "alias").symlink_to("target")
    (found.home / "written/link").symlink_to("../other/file")
    (found.project / "way").symlink_to("secrets")
    (found.project / "out").symlink_to("/etc/shadow")
    found.own()
    yield found
    found.remove()


# By what explain says of a path: whether the host's file can be read inside, and whether it can be written. None: as the file's mode has it.
_MEANS = {"write": (True, True), "read": (True, False)}
_LOOK = """
import json, os, sys
found = {}
for path in sys.argv[1:]:
    def can(mode):
        try:
            os.close(os.open(path, mode | os.O_NONBLOCK | (os.O_DIRECTORY if os.path.isdir(path) else 0)))
            return True
        except OSError as failed:
            return False
    try:
        seen = os.stat(path)
        same = [seen.st_dev, seen.st_ino]
    except OSError:
        same = None
    writable = False
    if os.path.isdir(path):
        try:
            name = os.path.join(path, ".explain-probe")
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(name)
            writable = True
        except OSError:
            pass
        if not can(os.O_RDONLY):
            same = None
    else:
        writable = can(os.O_WRONLY)
        if not can(os.O_RDONLY):
            same = None
    found[path] = [same, writable]
print(json.dumps(found))
"""

PATHS = (
    *("src/x", "src", "wave.yaml", "flake.nix", ".wavegen/plan.json", ".git/config", ".git/hooks/pre-commit", ".git/HEAD", "sub/.git/config", "sub/.git/HEAD"),
    *(".vscode/tasks.json", ".claude/x", "docs/x", "secrets/file", "secrets", "way/file", "out", "../neighbour/file", "."),
    *("~/by-name", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf"),
    *("~/granted/file", "~/granted/hidden/file", "~/written", "~/written/link", "~/alias/deep/file", "~/target/deep/file", "~/.ssh/key", "~/other/file", "~"),
    *("/etc/passwd", "/etc/shadow", "/etc/hostname", "/usr/bin/env", "/bin/sh", "/opt", "/var/lib", "/tmp", "/run", "/var/run", "/root", "/home", "/boot"),
    *("/proc/sys/kernel/core_pattern", "/sys/kernel/debug", "/dev/shm", "/etc/resolv.conf", "/etc/ssl/certs", "/usr/share", "/"),
)


def answers(fence: Fence, *words: str) -> list[dict[str, Any]]:
    """What is said in the project by whoever's home it is; in this process, as each word is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(fence.home))
        patch.delenv("XDG_STATE_HOME", raising=False)
        done = call("explain", "--json", *words, cwd=fence.project)
    assert done.status == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["answers"]
    return found


@pytest.mark.needs("bwrap", "user")
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_paths_are_inside_as_explain_says(fence: Fence, shell: str) -> None:
    def absolute(path: str) -> str:
        return os.path.normpath(str(fence.home) + path[1:] if path.startswith("~") else os.path.join(fence.project, path))

    inside: Any = fence.python(_LOOK, *map(absolute, PATHS), shell=shell)
    said = {path: answers(fence, "--kind", "path", "--shell", shell, path)[0] for path in PATHS}
    wrong = []
    for path in PATHS:
        at = absolute(path)
        same, writable = inside[at]
        real = os.stat(at)
        answer = said[path]
        if answer["verdict"] == "allowed":
            expected = _MEANS[answer["detail"]]
            # A mode of the host's, or what wavegen puts there itself, is no rule's.
            shown = same == [real.st_dev, real.st_ino] or any("not the host's own" in note for note in answer["notes"])
            if (shown, writable) != expected:
                wrong.append((path, answer["detail"], same, writable))
        elif same == [real.st_dev, real.st_ino] or (answer["detail"] == "hidden" and writable):
            wrong.append((path, answer["detail"], same, writable))
    assert wrong == []
    kinds = {(answer["verdict"], answer["detail"].partition(";")[0]) for answer in said.values()}
    assert kinds >= {
        ("allowed", "read"),
        ("allowed", "write"),
        ("refused", "hidden"),
        ("refused", "the private home's own"),
        ("refused", "made anew for each shell"),
    }


@pytest.mark.needs("bwrap", "user")
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_variables_arrive_as_explain_says(fence: Fence, shell: str) -> None:
    names = ("PASSED", "SECRET", "TERM", "HOME", "TMPDIR", "HTTPS_PROXY", "LD_PRELOAD_NOT", "WAVEGEN_SHELL", "GH_TOKEN")
    values = dict.fromkeys(names, "value-of-the-host") | {"TERM": "xterm", "HOME": str(fence.home)}
    inside: Any = fence.python("import json, os; print(json.dumps(dict(os.environ)))", shell=shell, env=fence.environment(**values))
    for name in names:
        answer = answers(fence, "--kind", "variable", "--shell", shell, name)[0]
        assert (answer["verdict"] == "allowed") == (name in inside), name
        if answer["detail"].startswith("set to "):
            assert answer["detail"].partition(";")[0] == f"set to {inside[name]}"
        elif answer["detail"] == "the host's value":
            assert inside[name] == values[name]


@pytest.mark.needs("bwrap", "user")
def test_hosts_are_known_inside_as_explain_says(fence: Fence) -> None:
    """A proxy's CONNECT is the launcher's decision, before anything is connected to: 403 says that a rule refused it."""
    code = """
import json, socket, sys
found = {}
for asked in sys.argv[1:]:
    sock = socket.create_connection(("127.0.0.1", 3128), timeout=20)
    sock.sendall(f"CONNECT {asked} HTTP/1.1\\r\\nHost: {asked}\\r\\n\\r\\n".encode())
    reply = b""
    while b"\\r\\n\\r\\n" not in reply and (data := sock.recv(4096)):
        reply += data
    found[asked] = int(reply.split()[1])
print(json.dumps(found))
"""
    hosts = (
        *("allowed.example:443", "allowed.example:8443", "sub.allowed.example:443", "a.wild.example:80", "wild.example:443", "bad.wild.example:443"),
        *("git.example:22", "git.example:443", "unlisted.example:443", "localhost:5432", "localhost:5433", "169.254.169.254:80", "10.0.0.1:443"),
    )
    for shell in ("restricted", "open"):
        inside: Any = fence.python(code, *hosts, shell=shell)
        for asked in hosts:
            answer = answers(fence, "--kind", "host", "--shell", shell, asked)[0]
            # What is let through leads nowhere from here: the names do not exist.
            assert (answer["verdict"] == "refused") == (inside[asked] == 403), (shell, asked, answer, inside[asked])


@pytest.mark.needs("bwrap", "user")
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_system_calls_are_answered_as_explain_says(fence: Fence, shell: str) -> None:
    code = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, number in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    libc.syscall(number, -1, 0, 0, 0, 0, 0)
    found[name] = ctypes.get_errno()
print(json.dumps(found))
"""
    from wavegen.seccomp import Arch
    from wavegen.seccomp.syscalls import NUMBERS

    names = ("ptrace", "keyctl", "bpf", "io_uring_setup", "mount", "getpid", "close", "lseek", "unshare", "add_key", "fsopen")
    numbers = NUMBERS[Arch[os.uname().machine.upper()]]
    inside: Any = fence.python(code, json.dumps({name: numbers[name] for name in names}), shell=shell)
    errors = {"EPERM": 1, "ENOSYS": 38}
    for name in names:
        answer = answers(fence, "--kind", "syscall", "--shell", shell, name)[0]
        if answer["verdict"] == "refused":
            assert inside[name] == errors[answer["detail"].split()[0]], name
        else:
            assert answer["verdict"] == "allowed"
            assert inside[name] not in ((38,) if name == "ptrace" else (1, 38)), name


# --- what it takes a word for, and what it says to write


def said(tmp_path: Path, *words: str, manifest: str = MANIFEST) -> list[dict[str, Any]]:
    root = project(tmp_path, manifest)
    done = call("explain", "--json", *words, cwd=root)
    assert done.status == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["answers"]
    return found


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("/etc/passwd", {"path"}),
        ("~/x", {"path"}),
        ("src", {"path"}),
        ("no/such", {"path"}),
        ("https://user@pypi.org:8443/simple?x", {"host"}),
        ("pypi.org", {"host"}),
        ("localhost:5432", {"host"}),
        ("[2001:db8::1]:443", {"host"}),
        ("$GH_TOKEN", {"variable"}),
        ("GH_TOKEN", {"variable"}),
        ("ptrace", {"syscall"}),
        ("Bash(git push:*)", {"tool"}),
        ("WebFetch", {"tool"}),
        ("mcp__docs__search", {"tool"}),
        ("wave.yaml", {"path", "host"}),
    ],
)
def test_a_word_is_what_its_form_says(tmp_path: Path, word: str, kinds: set[str]) -> None:
    assert {answer["kind"] for answer in said(tmp_path, word)} == kinds


def test_a_word_that_is_several_things_is_explained_as_each_and_kind_chooses(tmp_path: Path) -> None:
    (project(tmp_path, MANIFEST) / "ptrace").touch()
    assert {answer["kind"] for answer in said(tmp_path, "ptrace")} == {"path", "syscall"}
    assert {answer["kind"] for answer in said(tmp_path, "--kind", "path", "ptrace")} == {"path"}


@pytest.mark.parametrize(
    ("words", "verdict", "line", "change"),
    [
        (("-s", "restricted", "pypi.org"), "refused", "wave.yaml:18", "add `- pypi.org` to runtime.sandbox.default_allowed_domains (wave.yaml:6:"),
        (("-s", "restricted", "git.example:2222"), "refused", "wave.yaml:6", "add `- git.example:2222` to runtime.sandbox.default_allowed_domains"),
        (("-s", "restricted", "bad.wild.example"), "refused", "wave.yaml:7", "remove the entry of denied_domains at wave.yaml:7"),
        (("-s", "restricted", "localhost:5433"), "refused", "", "write `loopback: [5432, 5433]` under runtime.sandbox.shells.restricted (wave.yaml:18:"),
        (("-s", "restricted", "10.0.0.1"), "refused", "", 'add `- {host: "10.0.0.1", allow_private: true}` to runtime.sandbox.default_allowed_domains'),
        (("-s", "closed", "pypi.org"), "refused", "wave.yaml:19", "write `network: filtered` under runtime.sandbox.shells.closed (wave.yaml:19:"),
        (("-s", "default", "secrets/x"), "refused", "wave.yaml:9", "remove the entry of deny_read_paths at wave.yaml:9"),
        (("-s", "default", "~/new"), "refused", "default", "add `- {path: ~/new, access: read}` to runtime.sandbox.paths (wave.yaml:12:"),
        (("-s", "default", "~/granted/x"), "allowed", "wave.yaml:12", "write `access: write` in the entry at wave.yaml:12"),
        (("-s", "default", "wave.yaml", "--kind", "path"), "allowed", "default", "nothing: it is part of the fence"),
        (("-s", "default", "/var/run/docker.sock"), "refused", "default", "socket: true}` to runtime.sandbox.paths"),
        (("-s", "default", "$OTHER"), "refused", "default", "add `OTHER` to runtime.sandbox.env_passthrough (wave.yaml:8:"),
        (("-s", "default", "$PASSED"), "allowed", "wave.yaml:8", "remove PASSED from env_passthrough at wave.yaml:8"),
        (("-s", "default", "bpf"), "refused", "default", "add `bpf` to runtime.sandbox.seccomp_allow (wave.yaml:10:"),
        (("-s", "default", "mount"), "refused", "default", "add `mount` to runtime.sandbox.seccomp_allow"),
        (("-p", "reader", "WebSearch"), "refused", "wave.yaml:23", "remove the entry of deny at wave.yaml:23"),
        (("-p", "reader", "Bash(make)"), "refused", "wave.yaml:23", "add `Bash(make)` to personas.reader.permissions.allowed_tools (wave.yaml:23:"),
        (("-p", "reader", "Bash(git push --force)"), "refused", "wave.yaml:23", "remove the entry of deny"),
        (("-p", "reader", "Bash(git push:*)"), "partly", "wave.yaml:23", ""),
        (("-p", "reader", "Bash(git log -p)"), "allowed", "wave.yaml:23", "add `Bash(git log -p)` to personas.reader.permissions.deny"),
        (("-p", "reader", "Read"), "allowed", "wave.yaml:23", ""),
        (("-p", "reader", "Write(src/x)"), "refused", "", ""),
        (("-p", "reader", "mcp__docs__search"), "allowed", "wave.yaml:23", ""),
        (("-p", "reader", "mcp__other__x"), "refused", "wave.yaml:23", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_answer_names_the_line_and_what_to_write(tmp_path: Path, words: tuple[str, ...], verdict: str, line: str, change: str) -> None:
    found = said(tmp_path, *words)
    assert [answer["verdict"] for answer in found] == [verdict] * len(found)
    assert all(answer["origin"].startswith(line) for answer in found), found
    assert all(any(change in text for text in answer["change"]) or not change for answer in found), found


def test_what_it_says_to_write_is_what_lets_it_through(tmp_path: Path) -> None:
    """The advice is followed, and the answer turns."""
    base = "metadata: {name: x}\nruntime:\n  sandbox:\n    default_allowed_domains:\n      - first.example\n    env_passthrough:\n      - FIRST\n    paths:\n      - {path: src, access: read}\n    seccomp_allow:\n      - ptrace\n"
    for word, key in (("pypi.org:2222", "default_allowed_domains"), ("$OTHER", "env_passthrough"), ("~/new dir/x", "paths"), ("bpf", "seccomp_allow")):
        before = said(tmp_path, "-s", "restricted", word, manifest=base)[0]
        assert before["verdict"] == "refused"
        entry = before["change"][0].split("`")[1].removeprefix("- ")
        assert f"runtime.sandbox.{key} (wave.yaml:" in before["change"][0]
        after = base.replace(f"    {key}:\n", f"    {key}:\n      - {entry}\n")
        found = said(tmp_path, "-s", "restricted", word, manifest=after)[0]
        assert (found["verdict"], found["origin"].partition(":")[0]) == ("allowed", "wave.yaml" if word != "bpf" else found["origin"].partition(":")[0]), found


def test_a_persona_with_a_list_of_its_own_is_told_that_list(tmp_path: Path) -> None:
    manifest = MANIFEST + "  own: {sandbox: {allowed_domains: [api.anthropic.com], env_passthrough: []}}\n"
    found = said(tmp_path, "-p", "own", "pypi.org", manifest=manifest)[0]
    assert "personas.own.sandbox.allowed_domains (wave.yaml:" in found["change"][0]
    found = said(tmp_path, "-p", "own", "$PASSED", manifest=manifest)[0]
    assert found["verdict"] == "refused"
    assert "personas.own.sandbox.env_passthrough (wave.yaml:" in found["change"][0]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--kind", "syscall", "ptrase"), "did you mean 'ptrace'"),
        (("--kind", "host", "a b"), "is no host"),
        (("--kind", "host", "x.example:99999"), "has no port"),
        (("--kind", "host", "ex\u00e4mple.org"), "is no host"),
        (("--kind", "variable", "A-B"), "cannot name a variable"),
        (("--kind", "tool", "Bash(x"), "is not a tool pattern"),
        (("--kind", "path", ""), "is no path"),
        (("--kind", "path", "a\nb"), "is no path"),
        (("-s", "nosuch", "x"), "there is no shell 'nosuch'"),
        (("-p", "nosuch", "x"), "there is no persona 'nosuch'"),
    ],
)
def test_a_mistake_is_a_message(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    done = call("explain", *words, cwd=project(tmp_path, MANIFEST))
    assert (done.status, what in done.stderr, done.stdout) == (2, True, ""), done.output


def test_shells_that_say_the_same_share_a_block_and_nothing_is_coloured(tmp_path: Path) -> None:
    done = call("explain", "/etc/shadow", cwd=project(tmp_path, MANIFEST))
    assert done.status == 0
    assert done.stdout.startswith("path /etc/shadow\n  default: refused: hidden  # default: passwords; readable to real root\n    held by:   bwrap\n")
    assert "  restricted, closed, open: refused: hidden  # default: an empty root, with only the host paths listed below\n" in done.stdout
    assert "\x1b" not in done.output


def test_what_another_back_end_says_otherwise_is_said(tmp_path: Path) -> None:
    """Containers have a system of their own, and Landlock shows less of the host's."""
    for backend, note in (("docker", "containers have the system of their image"), ("landlock", "Landlock, which holds `wavegen run` here, does not")):
        manifest = f"metadata: {{name: x}}\nruntime: {{sandbox: {{backend: {backend}}}}}\n"
        found = said(tmp_path, "-s", "default", "/opt/x", manifest=manifest)[0]
        assert note in found["notes"][-1], found
    assert said(tmp_path, "-s", "default", "--kind", "path", "wave.yaml", manifest=manifest)[0]["notes"] == [
        "Landlock alone lets it be written: see wavegen plan",
    ]
    assert "all-sockets" not in said(tmp_path, "-s", "default", "ptrace", manifest=manifest)[0]["fences"][0]
    assert said(tmp_path, "-s", "restricted", "socket", manifest=manifest)[0]["fences"] == ["seccomp (default-none-sockets)"]


def test_of_two_rules_the_one_for_the_deeper_path_holds_and_what_is_hidden_stays_so() -> None:
    def rule(anchor: Anchor, tail: str, access: Access, line: int = 0) -> PathRule:
        return PathRule(path=HostPath(anchor, tail), access=access, origin=Origin("", Location("wave.yaml", line)) if line else Origin("default"))

    home, cache, project_ = rule(Anchor.HOME, "", Access.WRITE), rule(Anchor.HOME, ".cache", Access.READ, 6), rule(Anchor.PROJECT, "", Access.WRITE)
    denied, shown = rule(Anchor.PROJECT, "secrets", Access.HIDE, 7), rule(Anchor.PROJECT, "secrets/shown", Access.READ, 8)
    rules = PlacedRules((home, cache, project_, shown, denied))
    for anchor, tail, expected in (
        (Anchor.HOME, ".cache/x", cache),
        (Anchor.HOME, "other", home),
        (Anchor.PROJECT, "x", project_),
        (Anchor.PROJECT, "secrets/shown", denied),
        (Anchor.ROOT, "etc", None),
    ):
        assert rules.rule_for_path(HostPath(anchor, tail)) is expected, tail

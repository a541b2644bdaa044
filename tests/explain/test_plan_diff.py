"""What `wavegen plan --diff` calls looser and tighter."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, call, project, wavegen

from wavegen.core.errors import ManifestError
from wavegen.explain.plan_diff import Change, Way, compare_plans, reverse_change
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest

CORPUS = ROOT.parent / "shared/manifests"
BASE = """\
metadata: {name: x}
adapters: {claude: {binary: claude, mode: headless}}
runtime:
  sandbox:
    default_allowed_domains: [a.example, "b.example:22", {host: intranet.example}]
    denied_domains: [bad.example]
    env_passthrough: [TOKEN]
    deny_read_paths: [secrets, /etc/hosts]
    seccomp_allow: [ptrace]
    limits: {pids: 100, memory: 1g}
    paths:
      - {path: ~/cache, access: read}
      - {path: ~/data, access: write}
      - {path: docs, access: read}
    shells:
      restricted: {network: filtered, loopback: [5432]}
      own: {network: none}
personas:
  reader:
    permissions: {allowed_tools: [Read, "Bash(git log *)"], deny: [WebFetch, "Bash(git push *)"]}
    hooks: {PreToolUse: [{matcher: Bash, command: ./check}]}
    sandbox: {deny_read_paths: [private]}
"""


def planned(text: str, overlay: str | None = None) -> Plan:
    return plan_manifest(Source("wave.yaml", text.encode()), Source("wave.sandbox.yaml", overlay.encode()) if overlay else None, "wave.sandbox.yaml")


def without_origin(changes: tuple[Change, ...]) -> set[tuple[str, str, str, str, str]]:
    return {(change.way.value, change.where, change.what, change.before, change.after) for change in changes}


# Each replaces text of BASE; what the change does, to what, and in which fences.
LOOSENING = [
    ("deny_read_paths: [secrets, /etc/hosts]", "deny_read_paths: [/etc/hosts]", "path ./secrets", "hidden", "write"),
    ("deny_read_paths: [secrets, /etc/hosts]", "deny_read_paths: [secrets]", "path /etc/hosts", "hidden", "read"),
    ("{path: ~/cache, access: read}", "{path: ~/cache, access: write}", "path ~/cache", "read", "write"),
    ("      - {path: docs, access: read}\n", "", "path ./docs", "read", "write"),
    (
        "      - {path: docs, access: read}\n",
        "      - {path: docs, access: read}\n      - {path: ~/new, access: read}\n",
        "path ~/new",
        "a private home's, kept",
        "read",
    ),
    ("      - {path: docs, access: read}\n", "      - {path: docs, access: read}\n      - {path: /srv/x, access: read}\n", "path /srv/x", "hidden", "read"),
    (
        "      - {path: docs, access: read}\n",
        "      - {path: docs, access: read}\n      - {path: .git/hooks, access: write}\n",
        "path ./.git/hooks",
        "read where it exists",
        "write",
    ),
    (
        "      - {path: docs, access: read}\n",
        "      - {path: docs, access: read}\n      - {path: .git, access: write}\n",
        "path ./.git",
        "write, held in its place",
        "write",
    ),
    (
        "      - {path: docs, access: read}\n",
        "      - {path: docs, access: read}\n      - {path: /run/docker.sock, access: write, socket: true}\n",
        "sockets at /run/docker.sock",
        "not",
        "reached",
    ),
    ("[a.example, ", "[a.example, c.example, ", "host", "nothing", "c.example"),
    ("[a.example, ", '["*.a.example", a.example, ', "host", "nothing", "*.a.example"),
    ('"b.example:22"', '"b.example:22", "b.example:2222"', "host", "nothing", "b.example:2222"),
    ('"b.example:22"', '"b.example:*"', "host", "nothing", "b.example:*"),
    ("{host: intranet.example}", "{host: intranet.example, allow_private: true}", "host", "nothing", "intranet.example, allow_private: true"),
    ("{host: intranet.example}", "{host: intranet.example, tls: false}", "host", "nothing", "intranet.example, tls: false"),
    ("denied_domains: [bad.example]", "denied_domains: []", "denied host", "bad.example:*", "nothing"),
    ("denied_domains: [bad.example]", 'denied_domains: ["bad.example:443"]', "denied host", "bad.example:*", "nothing"),
    ("    denied_domains", "    upstream_proxy: true\n    denied_domains", "way out", "direct", "HTTPS_PROXY of the host, which judges no addresses"),
    ("loopback: [5432]", "loopback: [5432, 6379]", "port of the host's loopback", "nothing", "6379"),
    ("own: {network: none}", "own: {network: filtered}", "network", "none", "filtered (a.example, b.example:22, intranet.example)"),
    ("restricted: {network: filtered, loopback: [5432]}", "restricted: {network: open, loopback: [5432]}", "network", None, "open"),
    ("own: {network: none}", "own: {network: host}", "system that is shown", "programs and libraries alone", "the host's, behind masks"),
    ("own: {network: none}", "own: {sandbox: false}", "fence", "fenced", "NOT SANDBOXED"),
    ("own: {network: none}", "own: {network: none, nested: true}", "namespaces inside", "off", "nested: true"),
    ("own: {network: none}", "own: {network: none}\n      more: {sandbox: false}", "all of it", "nothing", "NOT SANDBOXED"),
    ("[TOKEN]", "[TOKEN, OTHER]", "variable OTHER", "not there", "the host's"),
    ("    seccomp_allow", "    seccomp: 'off'\n    seccomp_allow", "seccomp", "default", "off"),
    ("[ptrace]", "[ptrace, bpf]", "system call let through", "nothing", "bpf"),
    ("pids: 100", "pids: 101", "limit of processes", "100", "101"),
    ("memory: 1g", "memory: 2g", "limit of memory", "1g", "2g"),
    (", memory: 1g", "", "limit of memory", "1g", "75 % of the machine's"),
    ("    limits: {pids: 100, memory: 1g}\n", "", "limits bind", "all together", "each process alone"),
    ("    limits", "    fallback: warn\n    limits", "without a usable fence", "refuse", "run unfenced"),
    ("  sandbox:\n    default", "  sandbox:\n    enabled: false\n    default", "fence", "for all", "none for personas and `wavegen run`"),
    ("  sandbox:\n    default", "  sandbox:\n    backend: landlock\n    default", "backend", "bubblewrap", "landlock"),
    ("[Read, ", "[Read, Edit, ", "tool", "nothing", "Edit"),
    ('"Bash(git log *)"', '"Bash(git *)"', "tool", "nothing", "Bash(git *)"),
    ('"Bash(git log *)"', "Bash", "tool", "nothing", "Bash"),
    ("deny: [WebFetch, ", "deny: [", "denied tool", "WebFetch", "nothing"),
    ('"Bash(git push *)"', '"Bash(git push --force *)"', "denied tool", "Bash(git push *)", "nothing"),
    ("    hooks: {PreToolUse: [{matcher: Bash, command: ./check}]}\n", "", "hook before calls", "Bash: ./check", "nothing"),
    ("mode: headless", "mode: interactive", "what no list allows is", "refused", "asked for"),
    ("sandbox: {deny_read_paths: [private]}", "sandbox: {}", "path ./private", "hidden", "write"),
    ("  reader:", "  another: {permissions: {allowed_tools: [Bash]}}\n  reader:", "all of it", "nothing", None),
    ("    limits", "    allow_unsandboxed_commands: true\n    limits", "commands", "stay in it", "may go past Claude Code's own sandbox"),
]


@pytest.mark.parametrize(("old", "new", "what", "before", "after"), LOOSENING, ids=[f"{what}: {new[-40:].strip()}" for _, new, what, *_ in LOOSENING])
def test_what_reaches_further_loosens_and_back_tightens(old: str, new: str, what: str, before: str | None, after: str | None) -> None:
    text = BASE.replace(old, new, 1)
    assert text != BASE
    one, other = planned(BASE), planned(text)
    found = [change for change in compare_plans(one, other) if change.what == what and (before in (None, change.before)) and (after in (None, change.after))]
    assert [change.way for change in found] == [Way.LOOSENS] * len(found), found
    assert found, compare_plans(one, other)
    back = [change for change in compare_plans(other, one) if change.what == what and (before in (None, change.after)) and (after in (None, change.before))]
    assert [change.way for change in back] == [Way.TIGHTENS] * len(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[a.example, ", "[b.example, a.example, "),
        ('"b.example:22"', '"B.EXAMPLE:22"'),
        ("denied_domains: [bad.example]", "denied_domains: [bad.example, 'bad.example:443']"),
        ("metadata: {name: x}", "# a comment\n\nmetadata: {name: x, description: other}"),
        ("{path: docs, access: read}", "{path: ./docs/, access: read, optional: true}"),
        ("      - {path: docs, access: read}\n", "      - {path: docs, access: read}\n      - {path: docs/deeper, access: read}\n"),
        ("deny_read_paths: [secrets, ", "deny_read_paths: [secrets, secrets/deeper, "),
        ("[ptrace]", "[ptrace, ptrace]"),
        ("[Read, ", '[Read, "Read(src/*)", '),
        ("memory: 1g", "memory: 1024m"),
    ],
)
def test_what_is_written_otherwise_and_reaches_the_same_is_no_change(old: str, new: str) -> None:
    # `b.example` on the usual ports is more than b.example:22: an entry that another covers is none.
    text = BASE.replace(old, new, 1).replace("[b.example, a.example, ", '[a.example, "b.example:22", "a.example:443", ')
    assert text != BASE
    assert compare_plans(planned(BASE), planned(text)) == ()


def test_what_cannot_be_compared_is_named_and_loosening_comes_first() -> None:
    text = BASE.replace("binary: claude", "binary: other-agent").replace("[TOKEN]", "[TOKEN, OTHER]").replace("pids: 100", "pids: 50")
    text = text.replace("    limits", "    docker_image: ubuntu:24.04\n    limits")
    found = compare_plans(planned(BASE), planned(text))
    assert [change.way for change in found] == sorted((change.way for change in found), key=list(Way).index)
    assert {change.way for change in found} == set(Way)
    changed = {(change.what, change.after) for change in found if change.way is Way.CHANGES}
    assert {("image", "ubuntu:24.04"), ("runs", "other-agent")} <= changed


@pytest.mark.parametrize(
    ("restricted", "what", "after"),
    [
        ("{network: filtered, loopback: [5432, 6379]}", "port of the host's loopback", "6379"),
        ("{network: filtered, domains: [api.anthropic.com, {host: intranet.example, allow_private: true}]}", "host", "intranet.example, allow_private: true"),
        ("{network: filtered, domains: [api.anthropic.com, {host: a.example, tls: false}]}", "host", "a.example, tls: false"),
        ("{network: filtered, domains: [api.anthropic.com, 192.0.2.7]}", "host", "192.0.2.7"),
    ],
)
def test_a_narrower_network_may_reach_what_the_wider_did_not(restricted: str, what: str, after: str) -> None:
    before = BASE.replace("{network: filtered, loopback: [5432]}", "{network: open, loopback: [5432]}")
    other = BASE.replace("{network: filtered, loopback: [5432]}", restricted)
    if "domains" not in restricted:
        other = other.replace("[a.example, ", "[api.anthropic.com, a.example, ")
    found = {(change.way, change.what, change.after) for change in compare_plans(planned(before), planned(other)) if "shell restricted" in change.where}
    assert (Way.LOOSENS, what, after) in found
    assert (Way.TIGHTENS, "network") in {(way, name) for way, name, _ in found}


def test_what_several_fences_have_in_common_is_said_once() -> None:
    found = compare_plans(planned(BASE), planned(BASE.replace("[TOKEN]", "[TOKEN, OTHER]")))
    assert [(change.where, change.what) for change in found] == [("persona reader, shell default, shell own, shell restricted", "variable OTHER")]
    assert str(found[0].origin).startswith("wave.yaml:7")


def test_a_host_of_the_overlay_is_compared_too() -> None:
    found = compare_plans(planned(BASE), planned(BASE, "runtime: {sandbox: {env_passthrough: [TOKEN, LAID_OVER]}}\n"))
    assert [(change.way, change.what, str(change.origin)) for change in found] == [(Way.LOOSENS, "variable LAID_OVER", "wave.sandbox.yaml:1")]


# --- over all manifests that there are


@cache
def manifests() -> tuple[tuple[str, Plan], ...]:
    """Every manifest of the repository that has a plan, those of the tests above, and the real ones where they are beside it."""
    files = sorted({*ROOT.glob("wave.yaml"), *ROOT.glob("examples/**/*.yaml"), *(CORPUS.glob("*.yaml") if CORPUS.is_dir() else ())})
    texts = [(file.name if file.parent == CORPUS else str(file.relative_to(ROOT)), file.read_bytes()) for file in files]
    texts += [(f"changed {number}", BASE.replace(old, new, 1).encode()) for number, (old, new, *_) in enumerate(LOOSENING)]
    found = []
    for name, data in texts:
        try:
            found.append((name, plan_manifest(Source("wave.yaml", data), None, "wave.sandbox.yaml")))
        except ManifestError:
            continue
    return tuple(found)


def test_a_plan_is_its_own_equal() -> None:
    assert len(manifests()) > len(LOOSENING)
    assert [name for name, found in manifests() if compare_plans(found, found)] == []


def test_the_way_back_is_the_mirror() -> None:
    dice = random.Random(7)
    some = manifests()
    pairs = [(dice.choice(some), dice.choice(some)) for _ in range(20)] + list(itertools.pairwise(some))[::3]
    changed = 0
    for (name, one), (other_name, other) in pairs:
        there, back = compare_plans(one, other), compare_plans(other, one)
        assert without_origin(tuple(map(reverse_change, there))) == without_origin(back), (name, other_name)
        changed += bool(there)
    assert changed > len(pairs) / 3


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real manifests is not beside the repository")
def test_real_manifests_are_among_them() -> None:
    assert len([name for name, _ in manifests() if (CORPUS / name).exists()]) > 80


# --- from git


def git(root: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *settings, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = project(tmp_path, BASE)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "wave.yaml")
    git(root, "commit", "-qm", "first")
    return root


@pytest.mark.needs("git")
def test_the_command_line_compares_with_a_revision_and_has_an_exit_status_for_ci(repository: Path) -> None:
    assert call("plan", "--diff", "HEAD", "--fail-on-loosening", cwd=repository).output == "nothing is loosened, tightened or changed\n"
    (repository / "wave.yaml").write_text(BASE.replace("pids: 100", "pids: 50"))
    tight = call("plan", "--diff", "main", "--fail-on-loosening", cwd=repository)
    assert (tight.status, tight.stdout.splitlines()[0].split()[0]) == (0, "tightens")
    (repository / "wave.yaml").write_text(BASE.replace("[TOKEN]", "[TOKEN, OTHER]").replace("pids: 100", "pids: 50"))
    assert call("plan", "--diff", "HEAD", cwd=repository).status == 0
    done = call("plan", "--diff", "HEAD", "--fail-on-loosening", cwd=repository)
    assert done.status == 1
    assert done.stdout.splitlines()[0] == (
        "loosens   persona reader, shell default, shell own, shell restricted: variable OTHER: not there -> the host's  # wave.yaml:7"
    )
    found: dict[str, Any] = json.loads(call("plan", "--diff", "HEAD", "--json", cwd=repository).stdout)
    assert [change["way"] for change in found["changes"]] == ["loosens", "tightens"]
    assert set(found["changes"][0]) == {"way", "where", "what", "before", "after", "origin"}


@pytest.mark.needs("git")
def test_an_overlay_that_is_new_is_a_change_and_a_project_may_lie_below_its_repository(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    (below / "wave.yaml").write_text(BASE)
    git(repository, "add", "below")
    git(repository, "commit", "-qm", "second")
    (below / "wave.sandbox.yaml").write_text("runtime: {sandbox: {env_passthrough: [TOKEN, MORE]}}\n")
    done = call("plan", "--diff", "HEAD", cwd=below)
    assert "variable MORE: not there -> the host's  # wave.sandbox.yaml:1" in done.stdout
    assert call("plan", "--diff", "HEAD~1", cwd=below).status == 2  # it was not there


@pytest.mark.needs("git")
def test_settings_of_the_repository_run_nothing_and_objects_stand_for_no_others(repository: Path, tmp_path: Path) -> None:
    """What an agent may have written to .git/config, .gitattributes and the refs before the host's user looks at a change."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho ran >>{tmp_path}/ran\ncat\n")
    trap.chmod(0o755)
    (repository / ".git/info/attributes").write_text("* diff=trap filter=trap\n")
    settings = (
        "core.fsmonitor",
        "core.pager",
        "pager.show",
        "diff.trap.textconv",
        "diff.external",
        "filter.trap.smudge",
        "filter.trap.clean",
        "filter.trap.process",
    )
    for name in (*settings, "core.sshCommand", "core.gitProxy", "uploadpack.packObjectsHook", "core.alternateRefsCommand"):
        git(repository, "config", name, str(trap))
    for name in ("alias.ls-tree", "alias.cat-file", "alias.rev-parse", "alias.show"):
        git(repository, "config", name, f"!{trap}")
    first = git(repository, "rev-parse", "HEAD:wave.yaml")
    (tmp_path / "other.yaml").write_text(BASE.replace("[TOKEN]", "[TOKEN, OTHER]"))
    other = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "hash-object", "-w", "--no-filters", str(tmp_path / "other.yaml")],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (repository / ".git/refs/replace").mkdir(parents=True)
    (repository / ".git/refs/replace" / first).write_text(f"{other}\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    (repository / "wave.yaml").write_text(BASE.replace("[TOKEN]", "[TOKEN, OTHER]"))
    done = wavegen("plan", "--diff", "HEAD", cwd=repository, env={"GIT_DIR": str(tmp_path / "nowhere")})
    # Had the replaced object been read there would be no change.
    assert (done.status, "variable OTHER" in done.stdout) == (0, True), done.output
    assert not (tmp_path / "ran").exists()
    assert "ran" not in os.listdir(repository)


@pytest.mark.needs("git")
@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_an_object_that_somebody_rewrote_is_not_believed(repository: Path, kind: str) -> None:
    """git reads a loose object without looking whether it is what its name says; a shell may write there."""
    text = BASE.replace("[TOKEN]", "[TOKEN, OTHER]")
    (repository / "wave.yaml").write_text(text)
    first = {what: git(repository, "rev-parse", name) for what, name in (("blob", "HEAD:wave.yaml"), ("tree", "HEAD^{tree}"), ("commit", "HEAD"))}
    git(repository, "checkout", "-q", "-b", "other")
    git(repository, "commit", "-qam", "loose")
    other = {what: git(repository, "rev-parse", name) for what, name in (("blob", "HEAD:wave.yaml"), ("tree", "HEAD^{tree}"), ("commit", "HEAD"))}

    def stored(name: str) -> Path:
        return repository / ".git/objects" / name[:2] / name[2:]

    assert "variable OTHER" in call("plan", "--diff", first["commit"], cwd=repository).stdout
    place = stored(first[kind])
    place.chmod(0o644)
    place.write_bytes(stored(other[kind]).read_bytes())
    done = call("plan", "--diff", first["commit"], cwd=repository)
    # Of commits git itself says so.
    assert (done.status in (2, 3), done.stdout) == (True, ""), done.output
    assert "is not what its name says" in done.stderr or "hash mismatch" in done.stderr


@pytest.mark.needs("git")
def test_a_branch_in_the_way_of_a_remotes_is_not_taken_for_it(repository: Path) -> None:
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(repository, "config", "core.warnAmbiguousRefs", "false")
    assert call("plan", "--diff", "origin/main", cwd=repository).status == 0
    (repository / "wave.yaml").write_text(BASE.replace("[TOKEN]", "[TOKEN, OTHER]"))
    git(repository, "commit", "-qam", "loose")
    git(repository, "update-ref", "refs/heads/origin/main", "HEAD")
    done = call("plan", "--diff", "origin/main", cwd=repository)
    assert (done.status, "names several revisions" in done.stderr) == (2, True), done.output
    assert "variable OTHER" in call("plan", "--diff", "refs/remotes/origin/main", cwd=repository).stdout


@pytest.mark.needs("git")
def test_lines_that_end_as_on_windows_are_read_as_they_are(repository: Path) -> None:
    (repository / "wave.yaml").write_bytes(BASE.replace("\n", "\r\n").encode())
    git(repository, "-c", "core.autocrlf=false", "commit", "-qam", "crlf")
    (repository / "wave.yaml").write_text(BASE)
    assert call("plan", "--diff", "HEAD", cwd=repository).output == "nothing is loosened, tightened or changed\n"


@pytest.mark.needs("git")
@pytest.mark.parametrize("revision", ["", "--output=x", "no-such", "HEAD:wave.yaml", "HEAD^{tree}", "a\nb"])
def test_what_is_no_revision_is_a_message(repository: Path, revision: str) -> None:
    before = sorted(os.listdir(repository))
    done = call("plan", f"--diff={revision}", cwd=repository)
    assert (done.status, done.stdout, "revision" in done.stderr) == (2, "", True), done.output
    assert sorted(os.listdir(repository)) == before


@pytest.mark.needs("git")
def test_a_manifest_that_was_a_link_or_broken_or_too_long_is_a_message(repository: Path) -> None:
    (repository / "wave.yaml").unlink()
    (repository / "wave.yaml").symlink_to("elsewhere")
    git(repository, "add", "wave.yaml")
    git(repository, "commit", "-qm", "a link")
    (repository / "wave.yaml").unlink()
    (repository / "wave.yaml").write_text("metadata: [\n")
    git(repository, "commit", "-qam", "broken")
    (repository / "wave.yaml").write_text("# x\n" * 600_000)
    git(repository, "commit", "-qam", "long")
    (repository / "wave.yaml").write_text(BASE)
    for revision, what in (("HEAD", "more than"), ("HEAD~1", "cannot be used: wave.yaml:"), ("HEAD~2", "was no file")):
        done = call("plan", "--diff", revision, cwd=repository)
        assert (done.status, what in done.stderr) == (2, True), (revision, done.output)


def test_without_a_repository_and_with_options_that_do_not_fit_it_is_a_message(tmp_path: Path) -> None:
    root = project(tmp_path, BASE)
    for words in (("--diff", "HEAD"), ("--fail-on-loosening",), ("--diff", "HEAD", "-v"), ("--diff", "HEAD", "-s", "default")):
        done = call("plan", *words, cwd=root)
        assert (done.status, done.stdout) == (2, ""), done.output

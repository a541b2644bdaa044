"""Containers as words: what the engine is told, where that comes from, and what differs from shell to shell."""

from __future__ import annotations

import os
import posix
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from helpers import ROOT, USER

from wavegen.backends.sandboxes import docker
from wavegen.backends.sandboxes.rules_file import rules_text
from wavegen.launcher.arguments import Arguments
from wavegen.launcher.container import Container, run_container
from wavegen.launcher.container_mounts import RunDirectory, quote_mount_field
from wavegen.launcher.engine import Engine
from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.host import RealHost
from wavegen.launcher.mounts import resolve_mounts
from wavegen.launcher.rules import read_rules
from wavegen.launcher.start import Session
from wavegen.manifest.model import NetworkMode
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Effect, Plan
from wavegen.policy.planner import plan_manifest

SHELLS = "    shells: {n: {network: none}, f: {network: filtered, domains: [a.example]}, o: {network: open}, h: {network: host}, bare: {sandbox: false}}\n"
LAUNCHER = str(ROOT / "wavegen/launcher")


def planned(sandbox: str = "", before: str = "") -> Plan:
    text = f"metadata: {{name: p}}\n{before}runtime:\n  sandbox:\n{SHELLS}{sandbox}"
    return plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


class Started(Session):
    """A start on this machine that has an engine."""

    def locate_program(self, name: str) -> str:
        return f"/usr/bin/{name}"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a home, and a project of a user's that has what every project has."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve()
        (path / "home").mkdir()
        (path / "p/.wavegen").mkdir(parents=True)
        for file in ("wave.yaml", "flake.nix", "flake.lock"):
            (path / "p" / file).touch()
        if os.getuid() == 0:
            os.chown(path / "p", USER, USER)
        yield path


def started(place: Path, name: str, sandbox: str = "", **variables: str) -> Container:
    """A container before anything is made for it."""
    found = planned(sandbox)
    policy = found.find_fence(name)
    assert policy
    rules = read_rules(rules_text(found, policy, grouped=False), lambda: "", "here")
    caller = {"HOME": str(place / "home"), "PATH": "/usr/bin:/bin", **variables}
    session = Started(rules, Arguments(rules, ["--project", str(place / "p"), "true"]), caller, LAUNCHER, "")
    session.find_places()
    engine = Engine(session)
    return Container(session, engine, resolve_mounts(rules, session.places, session.host, stores=()), is_shown=True)


def told(place: Path, name: str, sandbox: str = "", **variables: str) -> list[str]:
    """All words of the client."""
    return started(place, name, sandbox, **variables).client_command_line([])


def options(place: Path, name: str, sandbox: str = "") -> dict[str, str]:
    """Options that are there once, each with its value: those that stand alone have none."""
    words = told(place, name, sandbox)
    words = words[2 : words.index("wavegen/p:latest")]
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {word: "" if value.startswith("--") else value for word, value in pairs if word.startswith("--") and words.count(word) == 1}


def test_every_shell_is_told_the_same_but_for_its_network(place: Path) -> None:
    found = {name: options(place, name) for name in ("n", "f", "o", "h", "default", "restricted")}
    assert {name: each.pop("--network") for name, each in found.items()} == {
        "n": "none", "f": "none", "o": "none", "h": "host", "default": "host", "restricted": "none",
    }  # fmt: skip
    for each in found.values():
        each.pop("--name")
    assert len({str(each) for each in found.values()}) == 1
    held = found["n"]
    assert {"--rm", "--init", "--interactive", "--read-only", "--no-healthcheck", "--pull=never"} <= set(held)
    assert (held["--cap-drop"], held["--entrypoint"], held["--log-driver"]) == ("ALL", "", "none")
    assert (held["--ipc"], held["--cgroupns"], held["--hostname"]) == ("private", "private", "localhost")
    words = told(place, "n")
    security = [value for word, value in pairwise(words) if word == "--security-opt"]
    assert (security[0], security[1].rpartition("/")[2]) == ("no-new-privileges", "default.json")


def test_nothing_that_takes_the_sandbox_away_is_there(place: Path) -> None:
    for name in ("n", "f", "h"):
        found = told(place, name)
        for word in ("--privileged", "--cap-add", "--pid", "--volume", "-v", "--publish", "seccomp=unconfined", "--env-file", "--link", "--uts", "--group-add"):
            assert word not in found, word
        assert not [word for word in found if "docker.sock" in word]


def test_bounds_are_the_manifests(place: Path) -> None:
    found = options(place, "n", "    limits: {pids: 77, tmp: 3m, memory: 1g, cpus: 0.5}\n")
    assert (found["--pids-limit"], found["--shm-size"]) == ("77", str(3 << 20))
    assert options(place, "n")["--pids-limit"] == "4096"
    engine = started(place, "n", "    limits: {memory: 1g, cpus: 0.5}\n").engine
    assert engine._memory_words() == ["--memory", str(1 << 30), "--memory-swap", str(1 << 30)]
    assert engine._processor_words(8) == ["--cpus", "0.50000"]


def test_variables_of_the_caller_are_names_and_their_values_nowhere(place: Path) -> None:
    container = started(place, "n", "    env_passthrough: [TOKEN_A, DOCKER_HOST, LD_PRELOAD]\n", TOKEN_A="sesame", LD_PRELOAD="/x.so", OTHER="open")
    container.engine.image_variables = ["LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PATH", "LANG_OF_IMAGE"]
    words = container.client_command_line([])
    values = [value for word, value in pairwise(words) if word == "--env"]
    assert "TOKEN_A" in values
    assert not [word for word in words if "sesame" in word or "open" in word]
    # What the client itself would obey is told it as a word, and not given to it.
    assert "LD_PRELOAD=/x.so" in values
    assert container.engine.environment["TOKEN_A"] == "sesame"
    assert "LD_PRELOAD" not in container.engine.environment
    # An image's own, by which programs load other code, are empty.
    assert {"LD_AUDIT=", "PYTHONPATH="} <= set(values)
    assert not [value for value in values if value.startswith(("PATH", "LANG_OF"))]


def test_a_clients_environment_is_ours(place: Path) -> None:
    """The caller's could name settings with hooks, plugins or another daemon: a `.env` of the project reaches it by direnv."""
    evil = {"DOCKER_CONFIG": "/x", "DOCKER_CONTEXT": "x", "CONTAINERS_CONF": "/x", "XDG_CONFIG_HOME": "/x", "LD_PRELOAD": "/x.so", "HTTPS_PROXY": "http://x"}
    for kind in ("docker", "podman"):
        found = started(place, "n", WAVEGEN_CONTAINER=kind, **evil).engine.environment
        assert set(found) <= {"PATH", "HOME", "LANG", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "USER", "LOGNAME", "PODMAN_IGNORE_CGROUPSV1_WARNING"}
        assert not [value for value in found.values() if "/x" in value]


@pytest.mark.parametrize(
    ("kind", "granted", "variables"),
    [
        ("docker", "~/.docker/contexts", {}),
        ("podman", "~/.config", {}),
        ("podman", "~/.local/share/containers/storage", {}),
        ("docker", "~/given", {"DOCKER_HOST": "unix://HOME/given/docker.sock"}),
        ("docker", "~/given", {"DOCKER_HOST": "unix://PROJECT/docker.sock"}),
    ],
)
def test_what_a_client_obeys_lies_where_no_shell_writes(place: Path, kind: str, granted: str, variables: dict[str, str]) -> None:
    variables = {name: value.replace("HOME", str(place / "home")).replace("PROJECT", str(place / "p")) for name, value in variables.items()}
    with pytest.raises(CannotStartError, match=f"which {kind} obeys"):
        started(place, "n", f"    paths: [{{path: {granted}, access: write, optional: true}}]\n", WAVEGEN_CONTAINER=kind, **variables)


def test_what_decides_about_a_container_lies_where_no_shell_writes(place: Path) -> None:
    granted = "    paths: [{path: ~/given, access: write, optional: true}]\n"
    for state, said in ((place / "home/given/state", "is writable in a shell"), (place / "home/other", "")):
        session = started(place, "n", granted, XDG_STATE_HOME=str(state)).session
        session.arguments.wants_print = True
        session.locate_program = lambda name: f"/nowhere/{name}"  # type: ignore[method-assign]
        with pytest.raises((CannotStartError, FileNotFoundError), match=said or "/nowhere/docker"):
            run_container(session)


def test_of_the_hosts_system_nothing_is_shown_but_what_is_named(place: Path) -> None:
    shown = {mount.target for mount in started(place, "n", "    paths: [{path: /etc/hostname, access: read}]\n").mounts if mount.shows_host}
    outside = {target for target in shown if not target.startswith(str(place))}
    assert outside == {"/etc/passwd", "/etc/group", "/etc/resolv.conf", "/etc/hostname"}
    scratch = {mount.target for mount in started(place, "n").mounts if mount.kind == "tmpfs"}
    assert {"/tmp", "/run", "/var/tmp"} <= scratch


def test_a_field_is_read_as_it_was_meant() -> None:
    """By Go's reader of comma separated values, which takes the CR from a CRLF, also in quotes."""
    assert quote_mount_field("source", 'a",b') == '"source=a"",b"'
    assert quote_mount_field("source", "a\r\nb") == '"source=a\r\r\nb"'


def test_scripts_are_of_fenced_shells_and_of_personas_where_they_are_started_so() -> None:
    persona = "personas: {r: {}}\nadapters: {claude: {binary: claude}}\n"
    names = {file.path for file in docker.render(planned("", persona))}
    assert names == {f".wavegen/docker/run-{name}" for name in ("default", "restricted", "n", "f", "o", "h")}
    assert all(file.executable for file in docker.render(planned()))
    with_personas = {file.path for file in docker.render(planned("    backend: docker\n", persona))}
    assert with_personas - names == {".wavegen/docker/run-persona-r"}


def test_gaps_are_of_each_script_and_of_judged_networks() -> None:
    found = planned()
    gaps = tuple(docker.gaps(found))
    names = {policy.name for policy in docker.shells_with_script(found)}
    assert {gap.shell for gap in gaps} == names
    for policy in docker.shells_with_script(found):
        own = [(gap.effect, gap.what, gap.remedy) for gap in gaps if gap.shell == policy.name]
        judged = policy.network.mode in (NetworkMode.OPEN, NetworkMode.FILTERED)
        assert own == [*docker.DIFFERENCES, *(docker.JUDGED if judged else ())]
    assert {gap.backend for gap in gaps} == {"docker"}
    assert {gap.effect for gap in gaps} == {Effect.WEAKER, Effect.STRICTER}


def test_a_start_that_ends_while_another_looks_keeps_nobody_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is listed, and gone when it is looked at; one that was abandoned long ago goes, and one of now stays."""
    made = object.__new__(RunDirectory)
    made.host, made.path = RealHost(), str(tmp_path / "run/1-1")
    for name in ("999999998-1", "999999999-1"):
        (tmp_path / "run" / name / "inside").mkdir(parents=True)
    listed, looked = posix.listdir, posix.lstat

    def long_ago(path: str) -> posix.stat_result:
        found = list(looked(path))
        return posix.stat_result([*found[:9], 0 if path.endswith("998-1") else found[9]])

    monkeypatch.setattr(posix, "listdir", lambda path: [*listed(path), *(["999999997-1"] if path.endswith("/run") else [])])
    monkeypatch.setattr(posix, "lstat", lambda path: long_ago(path) if path.startswith(str(tmp_path)) else looked(path))
    assert made._remove_abandoned() == ["999999998-1"]
    assert listed(tmp_path / "run") == ["999999999-1"]

"""Containers' scripts as text: what the engine is told, why, and what differs from shell to shell."""

from __future__ import annotations

import re

import pytest

from wavegen.backends import docker
from wavegen.manifest import NetworkMode
from wavegen.nodes import Source
from wavegen.planner import plan
from wavegen.policy import Effect, Plan, Policy

SHELLS = "    shells: {n: {network: none}, f: {network: filtered, domains: [a.example]}, o: {network: open}, h: {network: host}, bare: {sandbox: false}}\n"


def planned(sandbox: str = "", before: str = "") -> Plan:
    text = f"metadata: {{name: p}}\n{before}runtime:\n  sandbox:\n{SHELLS}{sandbox}"
    return plan(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


def shell(found: Plan, name: str) -> Policy:
    policy = found.fence(name)
    assert policy is not None
    return policy


def options(name: str, sandbox: str = "") -> dict[str, str]:
    """What the engine is told, each with its value: options that stand alone have none."""
    words = [option.words for option in docker.options(shell(planned(sandbox), name))]
    assert all(len(pair) < 3 for pair in words)
    return {pair[0]: (pair[1] if len(pair) == 2 else "") for pair in words if pair[0] != "--env"}


def text(name: str, sandbox: str = "") -> str:
    found = planned(sandbox)
    return docker.script(found, shell(found, name))


def test_every_shell_is_told_the_same_but_for_its_network() -> None:
    told = {name: options(name) for name in ("n", "f", "o", "h", "default", "restricted")}
    assert {name: found.pop("--network") for name, found in told.items()} == {
        "n": "none", "f": "none", "o": "none", "h": "host", "default": "host", "restricted": "none",
    }  # fmt: skip
    assert len({str(found) for found in told.values()}) == 1
    held = told["n"]
    assert {"--rm", "--init", "--interactive", "--read-only", "--no-healthcheck", "--pull=never"} <= set(held)
    assert (held["--cap-drop"], held["--security-opt"], held["--entrypoint"], held["--log-driver"]) == ("ALL", "no-new-privileges", "", "none")
    assert (held["--ipc"], held["--cgroupns"], held["--hostname"]) == ("private", "private", "localhost")


def test_nothing_that_takes_the_fence_away_is_there() -> None:
    for name in ("n", "f", "h"):
        found = text(name)
        for word in (
            "--privileged",
            "--cap-add",
            "docker.sock",
            "--pid ",
            "--volume",
            " -v ",
            "--publish",
            "seccomp=unconfined",
            "--env-file",
            "--link",
            "--uts",
            "--group-add",
        ):
            assert word not in found, word


def test_bounds_are_the_manifests() -> None:
    found = options("n", "    limits: {pids: 77, tmp: 3m}\n")
    assert (found["--pids-limit"], found["--shm-size"]) == ("77", str(3 << 20))
    assert options("n")["--pids-limit"] == "4096"
    script = text("n", "    limits: {pids: 77, memory: 1g, cpus: 1.5}\n")
    assert f"readonly wg_memory_limit={1 << 30}  # wave.yaml:5" in script
    assert "readonly wg_cpus=150000  # wave.yaml:5" in script


def test_variables_of_the_host_are_names_and_their_values_nowhere() -> None:
    script = text("n", "    env_passthrough: [TOKEN_A]\n")
    assert re.search(r"^ +TOKEN_A +# wave\.yaml:5", script, re.MULTILINE)
    words = [option.words[1] for option in docker.options(shell(planned("    env_passthrough: [TOKEN_A]\n"), "n")) if option.words[0] == "--env"]
    assert not [word for word in words if word.startswith("TOKEN_A")]
    assert {"SANDBOX_ACTIVE=1", "WAVEGEN_SHELL=n"} <= set(words)


@pytest.mark.parametrize("name", ["n", "f", "h"])
def test_every_line_names_where_it_comes_from(name: str) -> None:
    script = text(name, "    paths: [{path: ~/.gitconfig, access: read}]\n    env_passthrough: [TOKEN_A]\n")
    rules = re.findall(r"^ +(?:--|/|rule|named|neighbours|[A-Z_]+ )[^\n]*", script.split("banner()")[0], re.MULTILINE)
    assert len(rules) > 40
    assert [rule for rule in rules if "# default: " not in rule and "# wave.yaml:" not in rule] == []


def test_only_the_lines_of_the_network_differ() -> None:
    """And what follows from it: which of the host's files are shown."""
    lines = {name: {line.partition("  # ")[0].strip() for line in text(name).splitlines()} for name in ("n", "h")}
    differ = lines["n"] ^ lines["h"]
    assert {
        line for line in differ if not re.search(r"network|minimal_root|shell|WAVEGEN_SHELL|resolv|nsswitch|/etc/hosts|printf|run-[nh]\b|banner", line)
    } == set()
    assert any("launched.sh" in line for line in text("f").splitlines() if line.startswith("for ") or "parts" in line or ".sh" in line)
    assert "launched.sh" not in text("n")


def test_of_the_hosts_system_nothing_is_shown_but_what_is_named() -> None:
    script = text("n", "    paths: [{path: /srv/data, access: read}]\n")
    system = script.split("\nsystem() {", 1)[1].split("\n}", 1)[0]
    shown = re.findall(r"^ +(?:--\S+ )*--(?:ro-)?bind(?:-try)? (\S+) (\S+)", system, re.MULTILINE)
    assert {at for _, at in shown if not at.startswith("/etc/")} <= {"/nix/store", "/gnu/store"}
    assert re.search(r"named read wave\.yaml:5 /srv/data", system)
    assert {"/usr", "/bin", "/lib", "/opt", "/home", "/var"} & {at for _, at in shown} == set()


def test_scripts_are_of_fenced_shells_and_of_personas_where_they_are_started_so() -> None:
    persona = "personas: {r: {}}\nadapters: {claude: {binary: claude}}\n"
    names = {file.path for file in docker.render(planned("", persona))}
    assert names == {f".wavegen/docker/run-{name}" for name in ("default", "restricted", "n", "f", "o", "h")}
    assert all(file.executable for file in docker.render(planned()))
    with_personas = {file.path for file in docker.render(planned("    backend: docker\n", persona))}
    assert with_personas - names == {".wavegen/docker/run-persona-r"}


def test_the_image_and_what_to_do_without_it() -> None:
    own = text("n", "    docker_image: 'registry.example:5000/a/b@sha256:" + "0" * 64 + "'\n")
    reference = f"registry.example:5000/a/b@sha256:{'0' * 64}"
    assert f"readonly wg_image={reference}  # wave.yaml:5" in own
    assert f"fetch it: docker pull {reference}; or docker load" in own
    made = text("n")
    assert "readonly wg_image=wavegen/p:latest" in made
    assert "build it: docker build -t wavegen/p:latest .wavegen/docker" in made


def test_gaps_are_of_each_script_and_of_judged_networks() -> None:
    found = planned()
    gaps = tuple(docker.gaps(found))
    names = {policy.name for policy in docker.scripts(found)}
    assert {gap.shell for gap in gaps} == names
    for policy in docker.scripts(found):
        own = [(gap.effect, gap.what, gap.remedy) for gap in gaps if gap.shell == policy.name]
        judged = policy.network.mode in (NetworkMode.OPEN, NetworkMode.FILTERED)
        assert own == [*docker.DIFFERENCES, *(docker.JUDGED if judged else ())]
    assert {gap.backend for gap in gaps} == {"docker"}
    assert {gap.effect for gap in gaps} == {Effect.WEAKER, Effect.STRICTER}


def test_two_renders_are_the_same_bytes() -> None:
    assert text("f") == text("f")

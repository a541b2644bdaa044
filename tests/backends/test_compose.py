"""compose.yaml: read back, taken by docker-compose, and started for real, as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from helpers import USER, render_project, rendered, snapshot

from wavegen.backends.sandboxes import compose
from wavegen.core.quote import quote_compose as quoted
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest

if TYPE_CHECKING:
    from engine import Engine

HOSTILE = (
    "a b",
    "a'b",
    'a"b',
    "a$b",
    "${HOME}",
    "$(touch owned)",
    "`touch owned`",
    "a#b",
    "a: b",
    "a,b",
    "a:b",
    "a\\b",
    "a\\nb",
    "%s",
    "é☃😀",
    "-x",
    "{{ x }}",
    "*a&b",
    "!x",
    "a]b",
)
"""Names of files."""
TEXTS = (*HOSTILE, "a\nb", "a\r\nb", "\u2028x", "\x1b(0", "x\x85y", "\x7f", "\ufeff", "a\n", "\\0101", "$$", "\\")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory that other users may enter: pytest closes its own whenever another run begins."""
    path = Path(tempfile.mkdtemp(prefix="wavegen-compose-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def planned(text: str) -> Plan:
    return plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


def sandbox(text: str, before: str = "") -> Plan:
    return planned(f"metadata: {{name: demo}}\n{before}runtime:\n  sandbox: {{{text}}}\n")


def read(found: Plan) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(compose.compose_file(found))
    return loaded


# --- quoting


def test_a_quoted_text_is_read_back_with_every_dollar_doubled() -> None:
    for text in TEXTS:
        line = quoted(text)
        assert len(line.splitlines()) == 1
        assert yaml.safe_load(f"a: {line}  # x") == {"a": text.replace("$", "$$")}


@pytest.mark.needs("bash")

# --- compose.yaml


def test_a_shell_is_a_service_with_nothing_but_what_it_needs() -> None:
    found = read(sandbox("docker_image: 'localhost/i:1', limits: {pids: 99, memory: 1g, cpus: 1.5, tmp: 1m}, default_allowed_domains: [x.org]"))
    service = found["services"]["restricted"]
    assert {name: service[name] for name in service if name not in ("environment", "volumes", "tmpfs")} == {
        "image": "localhost/i:1",
        "pull_policy": "never",
        "init": True,
        "read_only": True,
        "user": "${WAVEGEN_UID:-1000}:${WAVEGEN_GID:-1000}",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true", "seccomp=../seccomp/default.json"],
        "ipc": "private",
        "hostname": "localhost",
        "ulimits": {"core": 1},
        "healthcheck": {"disable": True},
        "restart": "no",
        "stop_grace_period": "1s",
        "network_mode": "none",
        "entrypoint": ["/bin/sh", "-c", 'mkdir -p -m 700 -- "$$HOME" && exec "$$@"', "sh"],
        "command": ["bash"],
        "working_dir": "/workspace",
        "stdin_open": True,
        "tty": True,
        "logging": {"driver": "none"},
        "pids_limit": 99,
        "mem_limit": 1024**3,
        "memswap_limit": 1024**3,
        "cpus": 1.5,
        "shm_size": 1024**2,
    }
    assert service["tmpfs"] == [f"{path}:exec,size=1048576,mode=1777" for path in ("/tmp", "/run")]
    assert [(mount["source"], mount["target"], mount.get("read_only", False)) for mount in service["volumes"]] == [
        ("home-restricted", "/var/tmp", False),
        ("../..", "/workspace", False),
        *((f"../../{name}", f"/workspace/{name}", True) for name in ("wave.yaml", "flake.nix", "flake.lock", ".wavegen")),
    ]


def test_a_network_is_the_hosts_or_none() -> None:
    found = read(sandbox("shells: {a: {network: none}, b: {network: open}, c: {network: host}, d: {sandbox: false}}"))
    assert {name: service["network_mode"] for name, service in found["services"].items()} == {
        "default": "host", "restricted": "none", "a": "none", "b": "none", "c": "host",
    }  # fmt: skip
    # No proxy answers there, and docker's settings may name one.
    assert "HTTP_PROXY=" in found["services"]["b"]["environment"]


def test_what_cannot_be_kept_without_a_look_at_the_machine_has_no_service() -> None:
    hidden = sandbox("shells: {h: {deny_read_paths: [secret]}, r: {paths: [{path: ./vendor, access: read, optional: true}]}}")
    assert {"h", "r"} & set(read(hidden)["services"]) == set()
    text = compose.compose_file(hidden)
    assert all(f"#   - {name} has no service" in text for name in ("h", "r"))
    assert {gap.shell for gap in compose.gaps(hidden) if "has no service for this shell" in gap.what} == {"h", "r"}
    every = sandbox("deny_read_paths: [secret]")
    assert read(every)["services"] == {}
    # What is no part of the project is not there anyhow; what must be there is.
    other = read(sandbox("deny_read_paths: [~/.ssh, /opt/x], paths: [{path: ./vendor, access: read}]"))["services"]["default"]
    assert "/workspace/vendor" in [mount["target"] for mount in other["volumes"] if mount.get("read_only")]


def test_only_names_of_variables_stand_in_it() -> None:
    environment = read(sandbox("env_passthrough: [GH_TOKEN, SSL_CERT_FILE]"))["services"]["default"]["environment"]
    assert {"GH_TOKEN", "SSL_CERT_FILE", "TERM"} <= set(environment)
    # Files of the host's system, which the image does not have; and a password that docker's settings may hold.
    assert not {"NIX_CC", "CURL_CA_BUNDLE"} & set(environment)
    assert {"HTTP_PROXY=", "https_proxy=", "no_proxy="} <= set(environment)


def test_personas_have_services_where_containers_hold_them() -> None:
    before = "adapters: {claude: {}, opencode: {}}\npersonas: {p: {adapter: opencode, permissions: {allowed_tools: [Read]}}}\n"
    assert "persona-p" not in read(sandbox("", before))["services"]
    service = read(sandbox("backend: docker", before))["services"]["persona-p"]
    words = service["entrypoint"]
    assert words[3:5] == ["sh", "env"]
    assert "OPENCODE_CONFIG=/workspace/.wavegen/personas/p/opencode.json" in words
    assert (words[-1], service["command"]) == ("opencode", [])
    assert next(mount for mount in service["volumes"] if mount["target"] == "/workspace")["read_only"]


def test_the_same_manifest_is_the_same_files(tmp_path: Path) -> None:
    text = "metadata: {name: x}\nruntime: {sandbox: {outputs: [compose], default_allowed_domains: [b.org, a.org], env_passthrough: [B, A]}}\n"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    both = [rendered(render_project(tmp_path / name, text)) for name in ("one", "two")]
    assert both[0] == both[1]
    assert ".wavegen/docker/compose.yaml" in both[0]
    assert ".wavegen/docker/compose" not in both[0]


def test_hostile_names_add_neither_lines_nor_services() -> None:
    def of(name: str) -> str:
        spelled = (
            json.dumps(name, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\x85", "\\x85").replace("\x7f", "\\x7f").replace("\ufeff", "\\ufeff")
        )
        paths = f"paths: [{{path: {spelled}, access: read}}], deny_read_paths: [{json.dumps('/opt/')[:-1]}{spelled[1:]}]"
        return compose.compose_file(planned(f"metadata: {{name: {spelled}}}\nruntime:\n  sandbox: {{{paths}}}\n"))

    plain = of("plain")
    usable = [name for name in TEXTS if not name.startswith("$") and "*" not in name and "?" not in name and "[" not in name]
    assert len(usable) > 20
    for name in usable:
        made = of(name)
        assert made.count("\n") == plain.count("\n"), name
        both = [yaml.safe_load(text)["services"] for text in (made, plain)]
        assert set(both[0]) == set(both[1])
        for shell, service in both[0].items():
            (mine, other) = (dict(each[shell]) for each in both)
            (granted,) = [mount for mount in service["volumes"] if mount not in both[1][shell]["volumes"]]
            assert granted["target"] == "/workspace/" + os.path.normpath(name).replace("$", "$$")
            assert {**mine, "image": "", "volumes": ""} == {**other, "image": "", "volumes": ""}


def test_gaps_are_few_and_stand_in_the_head() -> None:
    def said(text: str) -> set[str]:
        return {f"{gap.shell}: {gap.effect.value}: {gap.what}" for gap in compose.gaps(sandbox(text)) if gap.origin.at}

    assert said("") == set()
    assert said("limits: {files: 100}") == {f"{name}: ignored: with compose limits.files is the engine's own" for name in ("default", "restricted")}
    filtered = {gap.what for gap in compose.gaps(sandbox("shells: {n: {network: open}}")) if gap.shell == "n"}
    assert "with compose the shell has no network, as compose starts no filter for it" in filtered
    text = compose.compose_file(sandbox(""))
    assert all(f"#   - {what}\n" in text for _, what, _ in compose._ALWAYS)


# --- compose itself


def containers(tmp_path: Path, engine: Engine, text: str) -> tuple[Path, dict[str, str]]:
    """A project of an unprivileged user's that the engine's image serves, and what leads docker-compose to the engine."""
    home = tmp_path / "home"
    home.mkdir()
    root = render_project(home, f"metadata: {{name: demo}}\nruntime:\n  sandbox: {{outputs: [flake, compose], docker_image: '{engine.image()}', {text}}}\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    ids = (str(USER), "65534") if os.geteuid() == 0 else (str(os.getuid()), str(os.getgid()))
    environment = {
        **os.environ,
        **engine.environment(),
        "HOME": str(home),
        "WAVEGEN_UID": ids[0],
        "WAVEGEN_GID": ids[1],
        "COMPOSE_PROJECT_NAME": home.parent.name,
    }
    environment["PATH"] = os.environ["PATH"]
    return root, environment


def as_user(root: Path) -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    subprocess.run(["chown", "-R", "-h", f"{USER}:65534", str(root.parent)], check=True)
    return ("setpriv", f"--reuid={USER}", "--regid=65534", "--clear-groups")


@pytest.mark.needs("docker", "docker-compose", "user")
def test_docker_compose_takes_it(tmp_path: Path, engine: Engine) -> None:
    root, environment = containers(tmp_path, engine, "limits: {cpus: 1}, shells: {n: {network: none}}")
    done = subprocess.run(
        [*as_user(root), "docker-compose", "config"], cwd=root / ".wavegen/docker", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert set(shown["services"]) == {"default", "restricted", "n"}
    mounts = {mount["target"]: mount["source"] for mount in shown["services"]["n"]["volumes"]}
    assert mounts["/workspace"] == str(root)
    assert mounts["/workspace/.wavegen"] == str(root / ".wavegen")


INSIDE = r"""
id -u; pwd; echo "$GH_TOKEN"; echo "$HOME"; ls -A ~
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'
for f in wave.yaml flake.nix .wavegen/x /x /etc/x; do (echo x >>$f) 2>/dev/null && echo "wrote $f"; done
mv .wavegen g 2>/dev/null; ls /sys/class/net
echo x >mine; echo x >~/kept
exit 7
"""


@pytest.mark.needs("docker", "docker-compose", "user")
def test_a_shell_runs_and_nothing_of_it_is_left_but_its_home(tmp_path: Path, engine: Engine) -> None:
    root, environment = containers(tmp_path, engine, "env_passthrough: [GH_TOKEN], home: private, shells: {n: {network: none}}")
    prefix = as_user(root)
    environment |= {"GH_TOKEN": "a $b 'c'", "HTTP_PROXY": "http://u:p@h"}
    before = snapshot(root)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, "docker-compose", *words], cwd=root / ".wavegen/docker",
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    done = run("run", "--rm", "-T", "n", "bash", "-c", INSIDE)
    assert done.returncode == 7, done.stderr
    zero = "0000000000000000"
    shown = [environment["WAVEGEN_UID"], "/workspace", "a $b 'c'", "/var/tmp/home", f"CapEff:{zero}", f"CapBnd:{zero}", "NoNewPrivs:1", "Seccomp:2", "lo"]
    assert done.stdout.splitlines() == shown
    after = snapshot(root)
    assert after.pop("mine")
    assert after == before
    again = run("run", "--rm", "-T", "n", "sh", "-c", "cat ~/kept; env")
    assert again.stdout.startswith("x\n"), again.stderr
    assert "u:p" not in again.stdout
    assert engine.run("ps", "-aq").stdout == ""
    assert run("down", "--volumes").returncode == 0
    for kind in (("ps", "-aq"), ("volume", "ls", "-q")):
        assert engine.run(*kind).stdout == ""

"""compose.yaml and the script that starts it: read back, refused by nobody's compose, tried with a stand-in, and run for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from helpers import call, project, render_project, rendered, snapshot

from wavegen.backends import compose
from wavegen.nodes import Source
from wavegen.planner import plan
from wavegen.policy import Plan
from wavegen.quote import compose as quoted
from wavegen.quote import printf_b

if TYPE_CHECKING:
    from engine import Engine

SHELLS = (("dash",), ("bash", "--posix"))
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
    return plan(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


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
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_printf_makes_any_text_of_a_word(shell: tuple[str, ...]) -> None:
    words = "".join(f"printf '%b\\0' {printf_b(text)}\n" for text in TEXTS)
    assert len(words.splitlines()) == len(TEXTS)
    # The stand-in for \0 at the end of a format is a byte that no text has.
    done = subprocess.run([*shell, "-c", words.replace("\\0' ", "\\001' ")], capture_output=True, check=True)
    assert done.stdout.decode().split("\x01")[:-1] == list(TEXTS)


# --- compose.yaml


def test_a_shell_is_a_service_with_nothing_but_what_it_needs() -> None:
    found = read(sandbox("docker_image: 'localhost/i:1', limits: {pids: 99, memory: 1g, cpus: 1.5, tmp: 1m}, default_allowed_domains: [x.org]"))
    service = found["services"]["restricted"]
    assert {name: service[name] for name in service if name not in ("environment", "volumes", "tmpfs")} == {
        "image": "localhost/i:1",
        "pull_policy": "never",
        "init": True,
        "read_only": True,
        "user": "${WAVEGEN_UID:?start it by .wavegen/docker/compose}:${WAVEGEN_GID:?}",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true", "seccomp=${WAVEGEN_PROJECT:?}/.wavegen/seccomp/default.json"],
        "ipc": "private",
        "hostname": "localhost",
        "ulimits": {"core": 0},
        "healthcheck": {"disable": True},
        "restart": "no",
        "stop_grace_period": "1s",
        "network_mode": "none",
        "entrypoint": ["/bin/sh", "${WAVEGEN_PROJECT:?}/.wavegen/runtime/awaited.sh", "/run/wavegen/channel"],
        "command": ["bash"],
        "working_dir": "${WAVEGEN_PROJECT:?}",
        "stdin_open": True,
        "tty": True,
        "logging": {"driver": "none"},
        "pids_limit": 99,
        "mem_limit": 1024**3,
        "memswap_limit": 1024**3,
        "cpus": "${WAVEGEN_CPUS:?}",
        "shm_size": 1024**2,
        "sysctls": {"net.ipv4.ip_unprivileged_port_start": 0},
        "depends_on": ["egress-restricted"],
    }
    assert service["tmpfs"] == [f"{path}:exec,size=1048576,mode=1777" for path in ("/tmp", "/var/tmp", "/run")]
    project = "${WAVEGEN_PROJECT:?}"
    assert {(mount["target"], mount.get("read_only", False)) for mount in service["volumes"]} == {
        (project, False),
        *((f"{project}/{name}", True) for name in ("wave.yaml", "flake.nix", "flake.lock", ".wavegen")),
        *((f"/etc/{name}", True) for name in ("hosts", "resolv.conf", "nsswitch.conf")),
        ("/run/wavegen", True),
    }


def test_the_network_of_a_shell_is_a_service_that_sees_nothing_of_the_project() -> None:
    found = read(sandbox("default_allowed_domains: ['*.x.org:22', {host: y.org, tls: false}], denied_domains: [z.org]"))
    shell, egress = found["services"]["restricted"], found["services"]["egress-restricted"]
    assert egress["command"] == [
        *("--channel", "/run/wavegen/channel", "--shell", "restricted", "--state", "/run/state", "--deny", "z.org:*", "wave.yaml:3", "-"),
        *("--allow", "*.x.org:22", "wave.yaml:3", "-", "--allow", "y.org", "wave.yaml:3", "no-tls"),
    ]
    hard = ("read_only", "user", "cap_drop", "security_opt", "init", "image", "pull_policy", "ipc", "ulimits", "healthcheck", "restart", "hostname")
    assert {name: egress[name] for name in hard} == {name: shell[name] for name in hard}
    assert "network_mode" not in egress
    assert {"pids_limit", "mem_limit", "memswap_limit"} <= set(egress)
    assert [mount["target"] for mount in egress["volumes"]] == ["${WAVEGEN_PROJECT:?}/.wavegen/runtime", "/run/wavegen"]
    assert found["volumes"]["channel-restricted"]["driver_opts"]["o"].startswith("size=1m,mode=0700,uid=${WAVEGEN_UID:?")


def test_whoever_needs_no_egress_has_none() -> None:
    found = read(sandbox("shells: {a: {network: none}, b: {network: open}, c: {network: host}, d: {sandbox: false}, restricted: {domains: []}}"))
    assert set(found["services"]) == {"default", "restricted", "a", "b", "egress-b", "c"}
    assert {name: found["services"][name]["network_mode"] for name in ("default", "restricted", "a", "b", "c")} == {
        "default": "host", "restricted": "none", "a": "none", "b": "none", "c": "host",
    }  # fmt: skip
    assert set(found["volumes"]) == {"channel-b"}
    assert "volumes" not in read(sandbox("shells: {restricted: {network: none}}"))


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
    assert words[:3] == ["/bin/sh", "${WAVEGEN_PROJECT:?}/.wavegen/runtime/awaited.sh", "/run/wavegen/channel"]
    assert words[3] == "env"
    assert "OPENCODE_CONFIG=${WAVEGEN_PROJECT:?}/.wavegen/personas/p/opencode.json" in words
    assert (words[-1], service["command"]) == ("opencode", [])
    assert next(mount for mount in service["volumes"] if mount["target"] == "${WAVEGEN_PROJECT:?}")["read_only"]


def test_a_name_that_an_egress_would_have_is_refused(tmp_path: Path) -> None:
    done = call("render", cwd=project(tmp_path, "metadata: {name: x}\nruntime: {sandbox: {shells: {egress-default: {}}}}\n"))
    assert done.status == 2
    assert "'egress-default': names that begin with persona-, landlock- and egress-" in done.stderr


def test_the_same_manifest_is_the_same_files(tmp_path: Path) -> None:
    text = "metadata: {name: x}\nruntime: {sandbox: {default_allowed_domains: [b.org, a.org], env_passthrough: [B, A]}}\n"
    both = [rendered(render_project(tmp_path / name, text)) for name in ("one", "two") if not (tmp_path / name).mkdir()]
    assert both[0] == both[1]
    assert {".wavegen/docker/compose", ".wavegen/docker/compose.yaml", ".wavegen/docker/empty"} <= {str(Path(path)) for path in both[0]}


def test_hostile_names_add_neither_lines_nor_services() -> None:
    def of(name: str) -> tuple[str, str]:
        spelled = (
            json.dumps(name, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\x85", "\\x85").replace("\x7f", "\\x7f").replace("\ufeff", "\\ufeff")
        )
        paths = f"paths: [{{path: {spelled}, access: read}}], deny_read_paths: [{json.dumps('/opt/')[:-1]}{spelled[1:]}]"
        found = planned(f"metadata: {{name: {spelled}}}\nruntime:\n  sandbox: {{{paths}}}\n")
        return compose.compose_file(found), compose.script(found)

    plain = of("plain")
    usable = [name for name in TEXTS if not name.startswith("$") and "*" not in name and "?" not in name and "[" not in name]
    assert len(usable) > 20
    for name in usable:
        made = of(name)
        assert [text.count("\n") for text in made] == [text.count("\n") for text in plain], name
        services = yaml.safe_load(made[0])["services"]
        assert {name: {**service, "image": ""} for name, service in services.items()} == {
            name: {**service, "image": ""} for name, service in yaml.safe_load(plain[0])["services"].items()
        }
        assert subprocess.run(["dash", "-n"], input=made[1], text=True, capture_output=True, check=False).stderr == ""


def test_gaps_are_few_and_about_what_a_manifest_says() -> None:
    def said(text: str) -> set[str]:
        return {f"{gap.shell}: {gap.effect.value}: {gap.what}" for gap in compose.gaps(sandbox(text)) if gap.origin.at}

    assert said("") == set()
    assert said("paths: [{path: /dev/kvm, access: read}, {path: /run/x.sock, access: read, socket: true}]") >= {
        "default: stricter: with compose /dev/kvm is not there",
        "restricted: stricter: no socket at /run/x.sock is reached out of a virtual machine",
    }
    assert "default: ignored: with compose limits.files is the engine's own" in said("limits: {files: 100}")
    assert said("upstream_proxy: true, limits: {files: 100, pids: 99}, shells: {restricted: {loopback: [5432], nested: true}}") == {
        "restricted: stricter: with compose the host's loopback ports are not reached: 5432",
        "restricted: stricter: with compose a proxy on the host's own loopback is not reached",
        "restricted: weaker: with compose nested: true gives the wider filter alone, to the service of the network as well: namespaces may fail all the same",
        "default: ignored: with compose limits.files is the engine's own",
        "restricted: ignored: with compose limits.files is the engine's own",
    }


# --- the script, with a stand-in for compose


@dataclass(frozen=True, slots=True)
class Tried:
    status: int
    stderr: str
    argv: list[list[str]]
    """What compose was started with, each time."""
    files: list[dict[str, Any]]
    """What was added for it, with the variables' values in place."""
    variables: dict[str, str]

    def mounts(self, service: str = "restricted") -> dict[str, tuple[str, bool]]:
        """What is shown at a target, and whether it is read-only."""
        return {item["target"]: (item.get("source", ""), item.get("read_only", False)) for item in self.files[0][service].get("volumes", ())}


STAND_IN = """\
#!/usr/bin/python3
import json, os, sys
argv = sys.argv[1:]
added = [argv[i + 1] for i, word in enumerate(argv) if word == "-f"][1:]
text = [open(name).read() for name in added]
with open(os.environ["TOLD"], "a") as out:
    out.write(json.dumps([argv, text, dict(os.environ)]) + "\\n")
sys.exit(int(os.environ.get("ENDS", "0")) if "down" not in argv else 0)
"""


def place(tmp_path: Path, text: str = "") -> Path:
    """A rendered project in a home, with a stand-in for compose beside it."""
    home = tmp_path / "home"
    home.mkdir()
    root = render_project(home, f"metadata: {{name: Demo}}\nruntime:\n  sandbox: {{default_allowed_domains: [x.org], {text}}}\n")
    stand_in = tmp_path / "compose"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    return root


def owned(path: Path) -> None:
    """Give a tree to the unprivileged user as whom scripts are tried where the tests are root."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "-h", "65534:65534", str(path)], check=True)


def attempt(root: Path, *words: str, shell: Sequence[str] = (), env: Mapping[str, str] | None = None, as_root: bool = False, script: str = "") -> Tried:
    home, told = root.parent, root.parent.parent / "told"
    told.write_text("")
    told.chmod(0o666)
    if not as_root:
        owned(home)
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 and not as_root else ()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [*user, *shell, script or str(root / ".wavegen/docker/compose"), *words],
        env={**clean, "HOME": str(home), "WAVEGEN_COMPOSE": str(root.parent.parent / "compose"), "TOLD": str(told), "TMPDIR": str(home), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = [json.loads(line) for line in told.read_text().splitlines()]
    files = []
    for _, texts, environment in calls[:1]:
        loaded = yaml.safe_load(texts[0])["services"]
        for service in loaded.values():
            for item in service.get("volumes", ()):
                for key in ("source", "target"):
                    if key in item:
                        assert item[key].startswith("${WAVEGEN_PATH_")
                        item[key] = environment[item[key][2:-3]]
        files.append(loaded)
    return Tried(done.returncode, done.stderr, [argv for argv, _, _ in calls], files, calls[0][2] if calls else {})


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_run_starts_one_shell_and_ends_all_that_belongs_to_it(tmp_path: Path, shell: tuple[str, ...]) -> None:
    root = place(tmp_path, "limits: {cpus: 0.5}")
    (root / ".envrc").write_text("x")
    done = attempt(root, "run", "-T", "restricted", "printf", "%s", "a b", shell=shell, env={"ENDS": "7", "GH_TOKEN": "s"})
    assert (done.status, done.stderr) == (7, "")
    uid = os.geteuid() or 65534
    docker = str(root / ".wavegen/docker")
    argv, down = done.argv
    assert argv[:5] == ["--project-directory", docker, "--env-file", f"{docker}/empty", "-p"]
    assert argv[5].startswith("wavegen-demo-")
    assert argv[6:8] == ["-f", f"{docker}/compose.yaml"]
    assert argv[10:] == ["run", "--rm", "-T", "restricted", "printf", "%s", "a b"]
    assert down[:10] == argv[:10]
    assert down[10:] == ["down", "--volumes", "--timeout", "1"]
    assert done.variables | {
        "WAVEGEN_UID": str(uid), "WAVEGEN_PROJECT": str(root), "WAVEGEN_HOME": str(root.parent), "WAVEGEN_CPUS": "0.50",
    } == done.variables  # fmt: skip
    assert int(done.variables["WAVEGEN_MEMORY"]) > 2**27
    assert not list(root.parent.glob(".local/state/wavegen/.compose.*"))
    assert set(done.files[0]) == {"restricted", "egress-restricted"}
    mounts = done.mounts()
    assert mounts[str(root / ".envrc")] == (str(root / ".envrc"), True)
    state = root.parent / ".local/state/wavegen" / str(root).replace("/", "%2F") / "restricted"
    assert mounts[str(root.parent)] == (str(state / "home"), False)
    assert state.stat().st_mode & 0o777 == 0o700
    # Where the project is mounted in the home the engine would make directories of root's.
    assert (state / "home" / root.name).is_dir()
    assert done.mounts("egress-restricted") == {"/run/state": (str(state), False), "/run/state/home": ("", True)}


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_what_exists_is_guarded_and_nothing_else_is_made(tmp_path: Path, shell: tuple[str, ...]) -> None:
    root = place(tmp_path)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".vscode").mkdir()
    owned(root.parent)
    before = snapshot(root)
    done = attempt(root, "run", "default", shell=shell)
    assert done.status == 0, done.stderr
    assert snapshot(root) == before
    mounts = {target: read_only for target, (source, read_only) in done.mounts("default").items() if target == source}
    assert mounts == {str(root / name): name != ".git" for name in (".git", ".git/hooks", ".git/config", ".vscode")}


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_what_is_hidden_is_masked_wherever_it_is_shown(tmp_path: Path, shell: tuple[str, ...]) -> None:
    root = place(tmp_path, "deny_read_paths: [secret, keys, ~/data/s, ~/.ssh, ~/gone, 'q $x'], paths: [{path: ~/data, access: write}]")
    home = root.parent
    for path in (root / "secret", home / "data/s", home / ".ssh/id", root / "keys/k", root / "q $x"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("s")
    done = attempt(root, "run", "restricted", shell=shell)
    assert done.status == 0, done.stderr
    nothing = (str(root / ".wavegen/docker/empty"), True)
    mounts = done.mounts()
    assert {path: mounts.get(str(path)) for path in (root / "secret", root / "keys", home / "data/s", root / "q $x", home / ".ssh")} == {
        root / "secret": nothing, root / "keys": ("", True), home / "data/s": nothing, root / "q $x": nothing, home / ".ssh": None,
    }  # fmt: skip
    assert mounts[str(home / "data")] == (str(home / "data"), False)


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.startswith("$") and not set(name) & set("*?[")])
def test_a_place_of_any_name_is_mounted_by_that_name(tmp_path: Path, name: str) -> None:
    root = place(tmp_path, f"paths: [{{path: {json.dumps('/' + str(tmp_path)[1:] + '/')[:-1]}{json.dumps(name, ensure_ascii=False)[1:]}, access: read}}]")
    (tmp_path / name).write_text("x")
    done = attempt(root, "run", "restricted")
    assert (done.status, done.stderr) == (0, "")
    assert done.mounts()[str(tmp_path / name)] == (str(tmp_path / name), True)
    assert not list(tmp_path.rglob("owned"))


def link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


REFUSED = {
    "a guarded link": ("", lambda root: link(root / ".envrc", root / "x"), ".envrc is a symlink, and the host runs or follows what is there"),
    "a link above": ("", lambda root: (link(root / ".git", root / "g"), (root / "g").mkdir()), ".git is a symlink, and the host runs"),
    "a pinned link": ("", lambda root: ((root / "flake.lock").rename(root / "l"), link(root / "flake.lock", root / "l")), "flake.lock is a symlink, which an agent could"),
    "a missing pin": ("", lambda root: (root / "flake.lock").unlink(), "flake.lock is missing (run wavegen render)"),
    "the overlay": ("", lambda root: link(root / "wave.sandbox.yaml", root / "wave.yaml"), "wave.sandbox.yaml is a symlink"),
    "a missing grant": ("paths: [{path: ~/d, access: read}]", lambda _: None, "/d does not exist (wave.yaml:3 asks for it; create it, or write optional: true)"),
    "a grant's link in the project": ("paths: [{path: d, access: read}]", lambda root: link(root / "d", root.parent), "d is a link that a command could have made"),
    "a link of the home's to elsewhere": ("paths: [{path: ~/d, access: read}]", lambda root: link(root.parent / "d", Path("/etc")), "leads to /etc, elsewhere"),
    "another name of the project": (
        "paths: [{path: ~/d, access: write}]", lambda root: link(root.parent / "d", root), "d shows the project under another name"),
    "a link into the project": ("paths: [{path: ~/d, access: read}]", lambda root: link(root.parent / "d", root / "wave.yaml"), "wave.yaml is part of the fence"),
    "granted and hidden": ("paths: [{path: ~/d/e, access: read}], deny_read_paths: [~/k]", lambda root: ((root.parent / "d/e").mkdir(parents=True), link(root.parent / "k", root.parent / "d")), "is both granted and hidden"),
    "a hidden link's place": ("deny_read_paths: [d]", lambda root: link(root / "d", root / "e"), "d is a link that a command could have made"),
    "a home's mount": ("paths: [{path: ~/d, access: read}]", lambda root: (
        (root.parent / "d").mkdir(),
        link(root.parent / ".local/state/wavegen" / str(root).replace("/", "%2F") / "restricted/home/d", Path("/etc")),
    ), "d is a symlink where the manifest mounts something"),
}  # fmt: skip


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("case", REFUSED)
def test_what_could_be_turned_elsewhere_is_refused(tmp_path: Path, case: str) -> None:
    text, make, expected = REFUSED[case]
    root = place(tmp_path, text)
    make(root)
    for shell in SHELLS:
        done = attempt(root, "run", "restricted", shell=shell)
        assert (done.status, done.argv) == (125, []), done.stderr
        assert expected in done.stderr
        assert not list(root.parent.glob(".local/state/wavegen/.compose.*"))


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run",), "run was told no shell"),
        (("run", "yolo"), "there is no shell yolo (one of: default restricted )"),
        (("run", "egress-restricted"), "there is no shell egress-restricted"),
        (("run", "restricted default"), "there is no shell restricted default"),
        (("run", "-v", "/:/host", "restricted"), "run takes no -v"),
        (("run", "--entrypoint", "sh", "restricted"), "run takes no --entrypoint"),
        (("-f", "x.yaml", "run", "restricted"), "-f stands before a command of compose's"),
    ],
)
def test_what_would_loosen_the_fence_is_no_word_of_run(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    done = attempt(place(tmp_path), *words)
    assert (done.status, done.argv) == (125, [])
    assert expected in done.stderr


@pytest.mark.needs("bash", "user")
def test_other_commands_are_about_every_shell(tmp_path: Path) -> None:
    done = attempt(place(tmp_path), "up", "--detach", env={"ENDS": "3"})
    assert done.status == 3
    assert set(done.files[0]) == {"default", "restricted", "egress-restricted"}
    assert [argv[10:] for argv in done.argv] == [["up", "--detach"]]


@pytest.mark.needs("bash", "user")
def test_root_works_as_the_projects_owner_or_not_at_all(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    root = place(tmp_path)
    done = attempt(root, "run", "restricted", as_root=True)
    assert (done.status, done.argv) == (125, [])
    assert "root would be root in the container, too" in done.stderr
    subprocess.run(["chown", "-R", "1234:4321", str(root)], check=True)
    done = attempt(root, "run", "restricted", as_root=True)
    assert done.status == 0, done.stderr
    assert (done.variables["WAVEGEN_UID"], done.variables["WAVEGEN_GID"]) == ("1234", "4321")
    assert os.path.dirname(os.path.dirname(done.argv[0][9])) == str(root.parent / ".local/state/wavegen")  # not where TMPDIR says
    home = next((root.parent / ".local/state/wavegen").glob("*/restricted/home"))
    assert (home.stat().st_uid, home.stat().st_gid) == (1234, 4321)
    subprocess.run(["chown", "1234:0", str(root)], check=True)
    done = attempt(root, "run", "restricted", as_root=True)
    assert (done.variables["WAVEGEN_UID"], done.variables["WAVEGEN_GID"]) == ("1234", "1234")


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_what_may_be_written_under_another_name_is_an_agents_as_well(tmp_path: Path, shell: tuple[str, ...]) -> None:
    """~/data leads elsewhere: what one shell writes there must not lead another's mounts."""
    root = place(tmp_path, "shells: {w: {paths: [{path: ~/data, access: write}]}, restricted: {paths: [{path: ~/data/cfg, access: read}]}}")
    (root.parent / "disk/data").mkdir(parents=True)
    (root.parent / "data").symlink_to("disk/data")
    (root.parent / ".ssh").mkdir()
    (root.parent / "disk/data/cfg").symlink_to("../../.ssh")
    done = attempt(root, "run", "restricted", shell=shell)
    assert (done.status, done.argv) == (125, [])
    assert "disk/data/cfg is a link that a command could have made" in done.stderr


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("elsewhere", ["ssh://a@b", "tcp://127.0.0.1:2375"])
def test_a_daemon_elsewhere_is_given_nothing(tmp_path: Path, elsewhere: str) -> None:
    done = attempt(place(tmp_path), "run", "restricted", env={"DOCKER_HOST": elsewhere})
    assert (done.status, done.argv) == (125, [])
    assert "docker's daemon is elsewhere" in done.stderr


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("shell", SHELLS, ids="-".join)
def test_a_name_with_control_characters_is_refused_where_it_is_granted_and_masked_where_it_is_hidden(tmp_path: Path, shell: tuple[str, ...]) -> None:
    root = place(tmp_path, 'deny_read_paths: ["a\\nb"]')
    (root / "a\nb").write_text("s")
    done = attempt(root, "run", "restricted", shell=shell)
    assert done.mounts()[str(root / "a\nb")] == (str(root / ".wavegen/docker/empty"), True)
    (root / "wave.yaml").write_text('metadata: {name: x}\nruntime: {sandbox: {paths: [{path: "a\\tb", access: write}]}}\n')
    (root / "a\tb").write_text("s")
    assert call("render", cwd=root).status == 0
    done = attempt(root, "run", "restricted", shell=shell)
    assert (done.status, done.argv) == (125, [])
    assert "a path has control characters" in done.stderr


@pytest.mark.needs("bash", "user")
@pytest.mark.parametrize("home", ["", "/", "nowhere"])
def test_without_a_home_nothing_is_started(tmp_path: Path, home: str) -> None:
    done = attempt(place(tmp_path), "run", "restricted", env={"HOME": home})
    assert (done.status, done.argv) == (125, [])
    assert "HOME is" in done.stderr


@pytest.mark.needs("bash", "user")
def test_a_project_that_holds_the_home_is_refused(tmp_path: Path) -> None:
    root = place(tmp_path)
    (root / "h").mkdir()
    done = attempt(root, "run", "restricted", env={"HOME": str(root / "h")})
    assert (done.status, done.argv) == (125, [])
    assert "is, or holds, the home directory" in done.stderr


@pytest.mark.needs("shellcheck")
def test_the_scripts_are_what_any_shell_of_sh_takes(tmp_path: Path) -> None:
    root = place(tmp_path, "upstream_proxy: true, deny_read_paths: [a], paths: [{path: ~/b, access: write, optional: true}], home: tmpfs, limits: {cpus: 1}")
    for script in (".wavegen/docker/compose", ".wavegen/runtime/awaited.sh"):
        done = subprocess.run(["shellcheck", "-s", "sh", str(root / script)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
    # What bash 3.2 and dash do not have, and shellcheck takes for sh's own.
    text = (root / ".wavegen/docker/compose").read_text()
    assert not [word for word in ("  local ", "[[ ", "declare", "mapfile", "${!", "<(", "$'", "<<<", "+=", "stat -", "realpath", "readlink -f") if word in text]


# --- compose itself


def containers(tmp_path: Path, engine: Engine, text: str = "") -> tuple[Path, dict[str, str]]:
    """A project of an unprivileged user's that the engine's image serves, and what leads the script to the engine."""
    home = tmp_path / "home"
    home.mkdir()
    image = engine.image()
    allowed = "default_allowed_domains: [y.example]"
    root = render_project(home, f"metadata: {{name: demo}}\nruntime:\n  sandbox: {{docker_image: '{image}', {allowed}, {text}}}\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    environment = {**os.environ, **engine.environment(), "HOME": str(home), "WAVEGEN_COMPOSE": "docker-compose"}
    environment["PATH"] = os.environ["PATH"]
    return root, {name: value for name, value in environment.items() if not name.startswith("XDG_")}


def as_user(root: Path) -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    subprocess.run(["chown", "-R", "-h", "23456:65534", str(root.parent)], check=True)
    return ("setpriv", "--reuid=23456", "--regid=65534", "--clear-groups")


@pytest.mark.needs("docker", "docker-compose", "user")
def test_docker_compose_takes_it(tmp_path: Path, engine: Engine) -> None:
    root, environment = containers(tmp_path, engine, "deny_read_paths: [s], limits: {cpus: 64}, shells: {n: {network: none}}")
    (root / "s").write_text("s")
    done = subprocess.run([*as_user(root), str(root / ".wavegen/docker/compose"), "config"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert set(shown["services"]) == {"default", "restricted", "egress-restricted", "n"}
    mounts = {mount["target"]: mount["source"] for mount in shown["services"]["n"]["volumes"] if mount["type"] == "bind"}
    assert mounts[str(root / "s")] == str(root / ".wavegen/docker/empty")
    assert float(shown["services"]["n"]["cpus"]) == os.cpu_count()


@pytest.mark.needs("docker", "docker-compose", "user")
def test_what_is_not_here_is_not_fetched(tmp_path: Path, engine: Engine) -> None:
    """docker-compose 1.29 knows no pull_policy: whoever publishes wavegen/NAME would be started with the variables that are secret."""
    root, environment = containers(tmp_path, engine)
    (root / "wave.yaml").write_text("metadata: {name: nobody-built-this}\n")
    assert call("render", cwd=root).status == 0
    prefix, script = as_user(root), str(root / ".wavegen/docker/compose")
    for words in (("run", "-T", "default", "true"), ("up", "--detach"), ("pull",)):
        done = subprocess.run([*prefix, script, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 125, done.stderr
        what = "wavegen/nobody-built-this:latest"
        assert done.stderr == f"wavegen: error: the image {what} is not here (build it: docker build -t {what} .wavegen/docker)\n"
    assert subprocess.run([*prefix, script, "config"], env=environment, capture_output=True, timeout=60, check=False).returncode == 0


INSIDE = r"""
id -u; pwd; echo "$GH_TOKEN"; cat secret; ls -A keys; ls -A ~ | grep -v project
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'
for f in wave.yaml .wavegen/x .git/hooks/x .git/config /x /run/wavegen/x; do (echo x >>$f) 2>/dev/null && echo "wrote $f"; done
mv .git g 2>/dev/null; rm -rf .git/hooks 2>/dev/null; test -d .git/hooks && echo held
echo x >mine; echo x >~/kept
exit 7
"""


@pytest.mark.needs("docker", "docker-compose", "user")
def test_a_shell_runs_and_nothing_of_it_is_left(tmp_path: Path, engine: Engine) -> None:
    root, environment = containers(tmp_path, engine, "deny_read_paths: [secret, keys], env_passthrough: [GH_TOKEN], shells: {n: {network: none}}")
    (root / "keys").mkdir()
    for path in (root / "secret", root / "keys/k"):
        path.write_text("SECRET")
    prefix = as_user(root)
    environment |= {"GH_TOKEN": "a $b 'c'", "HTTP_PROXY": "http://u:p@h"}
    before = snapshot(root)
    done = subprocess.run(
        [*prefix, str(root / ".wavegen/docker/compose"), "run", "-T", "n", "bash", "-c", INSIDE],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    uid = "23456" if prefix else str(os.getuid())
    zero = "0000000000000000"
    assert done.stdout.splitlines() == [uid, str(root), "a $b 'c'", "", f"CapEff:{zero}", f"CapBnd:{zero}", "NoNewPrivs:1", "Seccomp:2", "held"]
    after = snapshot(root)
    assert after.pop("mine")
    assert after == before
    assert next(root.parent.glob(".local/state/wavegen/*/n/home/kept")).read_text() == "x\n"
    for kind in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q", "--filter", "name=wavegen")):
        assert engine.run(*kind).stdout == ""


NETWORK = r"""
import json, socket, urllib.request
print(socket.gethostbyname("y.example").startswith("127."))
try:
    socket.gethostbyname("z.example")
except OSError:
    print("refused")
print(urllib.request.urlopen("http://127.0.0.1:8999/x", timeout=10).read().decode())
"""
SERVER = """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 8999), Answer)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.mark.needs("docker", "docker-compose", "user")
def test_a_filtered_shell_reaches_what_is_listed_through_the_service_beside_it(tmp_path: Path, engine: Engine) -> None:
    """The private daemon has no way out of its bridge: the service gets the host's network here, by an added line."""
    root, environment = containers(tmp_path, engine, "shells: {restricted: {loopback: [8999]}}")
    file = root / ".wavegen/docker/compose.yaml"
    text = file.read_text()
    mark = '  "egress-restricted":\n'
    assert text.count(mark) == 1
    file.write_text(text.replace(mark, f'{mark}    network_mode: "host"\n'))
    with subprocess.Popen(["/usr/bin/python3", "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stdout.readline() == "ready\n"
        try:
            done = subprocess.run(
                [*as_user(root), str(root / ".wavegen/docker/compose"), "run", "-T", "restricted", "python3", "-c", NETWORK],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
            )  # fmt: skip
        finally:
            server.kill()
    assert (done.returncode, done.stdout) == (0, "True\nrefused\nserved\n"), done.stderr
    log = next(root.parent.glob(".local/state/wavegen/*/restricted/network.jsonl")).read_text()
    assert {(entry["name"], entry["verdict"]) for entry in map(json.loads, log.splitlines())} == {("z.example", "deny"), ("127.0.0.1", "allow")}, log
    assert engine.run("ps", "-aq").stdout == ""


@pytest.mark.needs("docker", "docker-compose", "user")
def test_what_a_killed_script_leaves_is_ended_by_down(tmp_path: Path, engine: Engine) -> None:
    root, environment = containers(tmp_path, engine)
    prefix = as_user(root)
    script = str(root / ".wavegen/docker/compose")
    with subprocess.Popen(
        [*prefix, script, "run", "-T", "restricted", "sh", "-c", "touch started; exec sleep 600"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as running:  # fmt: skip
        until = time.monotonic() + 30
        while not (root / "started").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGKILL)
    assert len(engine.run("ps", "-q").stdout.split()) == 2
    assert shutil.which("docker")
    ended = subprocess.run(
        [*prefix, script, "down", "--timeout", "1"], env={**environment, **engine.environment()}, capture_output=True, text=True, timeout=90, check=False
    )
    assert ended.returncode == 0, ended.stderr
    for kind in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q", "--filter", "name=wavegen")):
        assert engine.run(*kind).stdout == ""

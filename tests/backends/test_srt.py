"""The settings for srt: literally, against a model that takes nothing that srt would drop, and in srt itself, old and new."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import SRT, SRT_OLD
from fence import PYTHON, Fence, name_of, users
from helpers import ROOT, call, project, render_project, snapshot
from stand_in import Server, echo

from wavegen import backends
from wavegen.backends.sandboxes import srt
from wavegen.core.errors import ManifestError
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Gap, Plan
from wavegen.policy.planner import plan_manifest

CORPUS = ROOT.parent / "shared/manifests"


def planned(text: str) -> Plan:
    return plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


def sandbox(text: str) -> Plan:
    return planned(f"metadata: {{name: x}}\nruntime:\n  sandbox: {{outputs: [srt], {text}}}\n")


def of_shell(found: Plan, name: str = "restricted") -> dict[str, Any]:
    shell = found.find_shell(name)
    assert shell
    settings: dict[str, Any] = srt.srt_settings(shell)
    return settings


def gaps(found: Plan) -> list[Gap]:
    """Those that a line of the manifest asks for."""
    return [gap for gap in srt.gaps(found) if gap.origin.at]


def said(found: Plan) -> list[str]:
    return sorted({f"{gap.effect.value}: {gap.what}" for gap in gaps(found)})


# --- a model of both versions' settings that is closed: what it does not know is wrong

_LABEL = r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?({_LABEL}\.)+{_LABEL}")
_PATHS = {"denyRead", "allowRead", "allowWrite", "denyWrite"}
_NETWORK = {"allowedDomains", "deniedDomains", "strictAllowlist", "deniedResolvedAddresses"}
_REQUIRED = {("network", "allowedDomains"), ("network", "deniedDomains"), ("filesystem", "denyRead"), ("filesystem", "allowWrite"), ("filesystem", "denyWrite")}


def complaints(settings: object) -> list[str]:
    """What one of the versions would refuse, drop or take for something else."""
    if not isinstance(settings, dict):
        return ["no object"]
    found = [f"unknown: {name}" for name in set(settings) - {"network", "filesystem"}]
    for section, known in (("network", _NETWORK), ("filesystem", _PATHS)):
        part = settings.get(section)
        if not isinstance(part, dict):
            found.append(f"no {section}")
            continue
        found += [f"unknown: {section}.{name}" for name in set(part) - known]
        found += [f"missing: {section}.{name}" for where, name in _REQUIRED if where == section and name not in part]
        for name in set(part) & known:
            found += [f"{section}.{name}: {wrong}" for wrong in _wrong(name, part[name])]
    return found


def _wrong(name: str, value: object) -> list[str]:
    if name == "strictAllowlist":
        return [] if value is True else [repr(value)]
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return ["no list of texts"]
    if len(set(value)) != len(value):
        return ["twice the same"]
    check = _path if name in _PATHS else _network if name == "deniedResolvedAddresses" else _domain
    return [entry for entry in value if not check(entry)]


def _path(text: str) -> bool:
    parts = text.split("/")
    absolute = text.startswith("/") and len(text) > 1
    return (text == "." or absolute or text.startswith(("~/", "./"))) and not re.search(r"[]*?[\0]", text) and ".." not in parts and "" not in parts[1:]


def _network(text: str) -> bool:
    return str(ipaddress.ip_network(text, strict=False)) == text


def _domain(text: str) -> bool:
    """Also an address of IPv4. A wildcard needs two labels: `*.com` is refused."""
    return bool(_HOST.fullmatch(text)) and (not text.startswith("*.") or text.count(".") > 1) and not text.endswith(".localhost")


GOOD = {"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("network", "allowedDomains", ["*"]),
        ("network", "allowedDomains", ["*.com"]),
        ("network", "allowedDomains", ["a.example:443"]),
        ("network", "allowedDomains", ["localhost"]),
        ("network", "allowedDomains", ["[::1]"]),
        ("network", "allowedDomains", ["a.example."]),
        ("network", "allowedDomains", [" a.example"]),
        ("network", "allowDomains", []),
        ("network", "strictAllowlist", False),
        ("network", "allowAllUnixSockets", True),
        ("network", "deniedResolvedAddresses", ["10.0.0.1/8"]),
        ("filesystem", "denyRead", ["~/*.pem"]),
        ("filesystem", "denyRead", ["a]b"]),
        ("filesystem", "denyRead", [""]),
        ("filesystem", "denyRead", ["../x"]),
        ("filesystem", "denyWrite", ["./x/"]),
        ("filesystem", "denyRead", "~/x"),
        ("filesystem", "disabled", True),
    ],
)
def test_the_model_refuses_what_a_version_refuses_drops_or_widens(section: str, key: str, value: object) -> None:
    assert complaints(GOOD) == []
    settings: dict[str, dict[str, object]] = {name: dict(part) for name, part in GOOD.items()}
    settings[section][key] = value
    assert complaints(settings)


@pytest.mark.parametrize(("section", "key"), sorted(_REQUIRED))
def test_the_model_misses_each_list_that_is_required(section: str, key: str) -> None:
    settings = {name: {k: v for k, v in part.items() if (name, k) != (section, key)} for name, part in GOOD.items()}
    assert complaints(settings) == [f"missing: {section}.{key}"]


# --- what is rendered

SMALL = """\
metadata: {name: small}
runtime:
  sandbox:
    outputs: [flake, srt]
    deny_read_paths: [~/diary, /data/private, notes/secret]
    default_allowed_domains: [api.example.com, "*.example.org"]
    paths:
      - {path: ~/shared, access: write}
      - {path: /opt/cache, access: write}
      - {path: vendor, access: read}
      - {path: ~/.gitconfig, access: read}
    shells:
      restricted: {denied_domains: [old.example.org]}
      silent: {network: none}
"""


def test_the_settings_of_a_small_manifest() -> None:
    found = of_shell(planned(SMALL))
    own = ["~/diary", "/data/private", "./notes/secret"]
    assert found["filesystem"]["denyRead"][:3] == own
    assert found["filesystem"]["denyRead"][3:4] == ["~/.ssh"]
    assert {"~/.aws", "~/.netrc", "~/.config/gh", "~/.local/state/wavegen", "/etc/shadow"} <= set(found["filesystem"]["denyRead"])
    del found["filesystem"]["denyRead"]
    assert "10.0.0.0/8" in found["network"].pop("deniedResolvedAddresses")
    assert found == {
        "network": {"allowedDomains": ["*.example.org", "api.example.com"], "deniedDomains": ["old.example.org"], "strictAllowlist": True},
        "filesystem": {
            "allowWrite": [".", "~/shared", "/opt/cache"],
            # ~/.gitconfig might be below /opt/cache, as far as the manifest tells.
            "denyWrite": ["./wave.yaml", "./flake.nix", "./flake.lock", "./.wavegen", "./vendor", "~/.gitconfig"],
        },
    }
    silent = of_shell(planned(SMALL), "silent")
    assert silent["network"] == {"allowedDomains": [], "deniedDomains": [], "strictAllowlist": True}
    assert said(planned(SMALL)) == []


def test_the_file_is_what_the_settings_say_and_each_fenced_shell_has_one(tmp_path: Path) -> None:
    root = render_project(tmp_path, SMALL)
    assert sorted(path.name for path in (root / ".wavegen/srt").iterdir()) == ["default.json", "restricted.json", "silent.json"]
    for name in ("default", "restricted", "silent"):
        assert json.loads((root / f".wavegen/srt/{name}.json").read_text()) == of_shell(planned(SMALL), name)


def test_the_overlay_is_read_only_where_there_is_one(tmp_path: Path) -> None:
    root = render_project(tmp_path, SMALL, "--accept-new", overlay="metadata: {name: other}\n")
    assert "./wave.sandbox.yaml" in json.loads((root / ".wavegen/srt/default.json").read_text())["filesystem"]["denyWrite"]


def test_a_project_that_is_only_read_is_not_written() -> None:
    found = of_shell(sandbox("paths: [{path: ., access: read}, {path: out, access: write}]"))
    assert found["filesystem"]["allowWrite"] == ["./out"]


def test_a_granted_secret_is_shown_and_one_below_a_secret_is_shown_again() -> None:
    found = sandbox("paths: [{path: ~/.aws, access: read}, {path: ~/.config, access: write}, {path: ~/.ssh/known_hosts, access: read}]")
    paths = of_shell(found)["filesystem"]
    assert not {"~/.aws", "~/.config/gh", "~/.config/gcloud"} & set(paths["denyRead"])
    assert "~/.ssh" in paths["denyRead"]
    assert paths["allowRead"] == ["~/.ssh/known_hosts"]
    assert said(found) == ["stricter: srt 0.0.21 hides ~/.ssh/known_hosts with ~/.ssh"]


def test_what_is_granted_again_below_what_stays_read_only_is_a_gap() -> None:
    found = sandbox("paths: [{path: src, access: read}, {path: src/out, access: write}]")
    assert said(found) == ["stricter: srt keeps ./src/out read-only, as ./src is"]


@pytest.mark.parametrize("entry", ["deny_read_paths: ['~/a]b']", "deny_read_paths: ['a]b']", "paths: [{path: 'a]b', access: read}]"])
def test_where_srt_would_skip_a_rule_that_takes_something_away_it_gets_no_file(tmp_path: Path, entry: str) -> None:
    found = sandbox(entry)
    assert [what.startswith("ignored: there is no .wavegen/srt/") for what in said(found)] == [True, True]
    assert list(srt.render(found)) == []
    # The other fences hold it.
    assert call("render", cwd=project(tmp_path, f"metadata: {{name: x}}\nruntime:\n  sandbox: {{{entry}}}\n")).status == 0


def test_a_name_that_srt_takes_for_a_pattern_is_only_missing_where_the_rule_grants_it() -> None:
    found = sandbox("paths: [{path: '~/a]b', access: write}]")
    assert said(found) == ["stricter: srt takes ~/a]b for a pattern, and skips it"]
    assert complaints(of_shell(found)) == []


def test_no_port_can_be_said_and_each_list_that_names_one_is_one_gap() -> None:
    found = sandbox("default_allowed_domains: ['git.example.com:22', 'db.example.com:5432', web.example.com, 'any.example.com:*']")
    assert of_shell(found)["network"]["allowedDomains"] == ["any.example.com", "db.example.com", "git.example.com", "web.example.com"]
    assert said(found) == ["weaker: srt 0.0.21 takes no port: db.example.com:5432, git.example.com:22 on every port"]
    assert len([gap for gap in backends.collect_gaps(found) if gap.backend == srt.NAME and "takes no port" in gap.what]) == 1


def test_what_the_launcher_refuses_though_it_is_listed_is_not_let_through() -> None:
    listed = "localhost, 127.0.0.1, 10.1.2.3, metadata.google.internal, 169.254.169.254, printer.local, '*.google.internal', nas"
    network = of_shell(sandbox(f"default_allowed_domains: [{listed}]"))["network"]
    assert network["allowedDomains"] == ["*.google.internal"]
    assert network["deniedDomains"] == ["metadata.google.internal"]


def test_a_private_address_that_is_listed_opens_no_other() -> None:
    found = sandbox("default_allowed_domains: [{host: 10.1.2.3, allow_private: true}, a.example.com]")
    network = of_shell(found)["network"]
    assert network["allowedDomains"] == ["10.1.2.3", "a.example.com"]
    assert "10.0.0.0/8" in network["deniedResolvedAddresses"]
    assert said(found) == []


def test_a_name_that_may_be_private_opens_private_addresses_to_all_and_a_gap_says_so() -> None:
    found = sandbox("default_allowed_domains: [{host: printer.local, allow_private: true}, a.example.com]")
    network = of_shell(found)["network"]
    assert network["allowedDomains"] == ["a.example.com", "printer.local"]
    assert "deniedResolvedAddresses" not in network
    assert said(found) == ["weaker: srt allows private addresses for all names or for none: as printer.local may be private, every listed name may"]


def test_what_cannot_be_said_is_not_let_through() -> None:
    found = sandbox("default_allowed_domains: ['*.dev', '[2606:4700::1111]', {host: nas, allow_private: true}, ok.example.com]")
    assert of_shell(found)["network"]["allowedDomains"] == ["ok.example.com"]
    assert [text for text in said(found) if "cannot express" in text] == [
        "stricter: srt cannot express *.dev, [2606:4700::1111], nas, or a denial of a part of it, and does not allow it"
    ]


def test_a_denial_that_cannot_be_said_takes_what_it_is_about() -> None:
    found = sandbox(
        "default_allowed_domains: [a.example.dev, '*.example.dev', b.example.com], denied_domains: ['*.dev', '[2606:4700::1111]', 'b.example.com:22']"
    )
    network = of_shell(found)["network"]
    assert (network["allowedDomains"], network["deniedDomains"]) == (["b.example.com"], ["b.example.com"])
    assert "stricter: srt 0.0.21 takes no port: b.example.com:22 denied on every port" in said(found)


@pytest.mark.parametrize(
    ("entry", "gap"),
    [
        ("limits: {pids: 100}", "ignored: srt sets no limits"),
        ("seccomp: strict", "weaker: seccomp: strict is srt's own filter"),
        ("shells: {x: {network: open}}", "stricter: with srt network: open is no network"),
        ("shells: {x: {loopback: [5432]}}", "stricter: the host's loopback ports are not reached with srt: 5432; localhost in its list would be all of them"),
        ("shells: {x: {nested: true}}", "stricter: nested: true has no effect: newer versions of srt refuse namespaces"),
        ("paths: [{path: /run/docker.sock, access: write, socket: true}]", "stricter: srt lets nobody connect to the socket at /run/docker.sock"),
        ("paths: [{path: /dev/kvm, access: write}]", "stricter: srt makes /dev anew, without /dev/kvm"),
    ],
)
def test_what_srt_does_not_hold_is_a_gap_with_the_line_that_asked_for_it(entry: str, gap: str) -> None:
    assert gap in said(sandbox(entry))


def test_what_never_holds_is_said_without_a_line_and_few_times() -> None:
    found = [gap for gap in backends.collect_gaps(planned(SMALL)) if gap.backend == srt.NAME]
    assert len([gap for gap in found if gap.origin.at is None]) == 3
    assert all(gap.remedy and not gap.fatal for gap in found)


def real_settings() -> list[dict[str, Any]]:
    """The settings of every shell of every manifest that could be found and planned, and of those that are written here."""
    texts = [SMALL, REAL, *(file.read_text("utf-8") for file in sorted(CORPUS.glob("*.yaml")))]
    found = []
    for text in texts:
        with contextlib.suppress(ManifestError):
            found += [dict[str, Any](srt.srt_settings(shell)) for shell in srt.srt_shells(planned(text))]
    return found


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real manifests is not beside the repository")
def test_the_settings_of_every_manifest_that_could_be_found_are_those_that_both_versions_take() -> None:
    found = real_settings()
    assert len(found) >= 2 * 90
    assert [complaints(settings) for settings in found] == [[]] * len(found)


# What a version makes of each settings file: null where it refuses it.
PARSE = """
const { SandboxRuntimeConfigSchema: schema } = await import(process.argv[1]);
const text = await new Promise(resolve => { let all = ''; process.stdin.on('data', d => all += d).on('end', () => resolve(all)); });
console.log(JSON.stringify(JSON.parse(text).map(one => { const r = schema.safeParse(one); return r.success ? r.data : null; })));
"""
NEWER = {"network": {"strictAllowlist", "deniedResolvedAddresses"}, "filesystem": {"allowRead"}}


@pytest.mark.parametrize("old", [pytest.param(True, marks=pytest.mark.needs("srt-old", "node")), pytest.param(False, marks=pytest.mark.needs("srt", "node"))])
def test_a_version_takes_all_of_it_and_drops_nothing_but_what_is_newer(*, old: bool) -> None:
    program = SRT_OLD if old else SRT
    schema = Path(program if "/" in program else shutil.which(program) or "").resolve().parent / "sandbox/sandbox-config.js"
    given = real_settings()
    refused = {**GOOD, "network": {"allowedDomains": ["*.com"], "deniedDomains": []}}
    argv = ["node", "--input-type=module", "-e", PARSE, str(schema)]
    done = subprocess.run(argv, input=json.dumps([*given, refused]), capture_output=True, text=True, check=True)
    kept = {name: NEWER[name] if old else set() for name in NEWER}
    wanted = [{name: {key: value for key, value in part.items() if key not in kept[name]} for name, part in one.items()} for one in given]
    assert json.loads(done.stdout) == [*wanted, None]


# --- in srt itself

REAL = """\
metadata: {name: fence}
runtime:
  sandbox:
    outputs: [flake, srt]
    deny_read_paths: [~/diary, hidden/file, ~/.docker/buildx/secret, "~/it's \\"a\\" $HOME `x` ! \\\\ name", "two  words"]
    default_allowed_domains: [listed.test, "*.below.test"]
    paths:
      - {path: ~/shared, access: write}
      - {path: ~/.ssh/known_hosts, access: read}
      - {path: ~/.docker/buildx, access: write}
      - {path: vendor, access: read}
    shells:
      restricted: {denied_domains: [not.below.test]}
      silent: {network: none}
"""
ODD = 'it\'s "a" $HOME `x` ! \\ name'
OWN = ("wave.yaml", "flake.nix", "flake.lock", ".wavegen/lock.json", ".wavegen/bin/default", ".wavegen/srt/restricted.json")
HOME_FILES = (
    "diary",
    ODD,
    ".ssh/id",
    ".ssh/known_hosts",
    ".netrc",
    "plain",
    "shared/old",
    ".docker/config.json",
    ".docker/buildx/secret",
    ".docker/buildx/open",
)
PROJECT_FILES = ("hidden/file", "hidden/other", "two  words", "vendor/file", "src", ".git/hooks/pre-commit", ".git/config")

# Each attempt with its error's name, or "ok"; of a name the proxy's answer.
TRY = r"""
import base64, errno, json, os, socket, sys, urllib.parse
wanted, answer = json.loads(sys.argv[1]), {}
def attempt(name, do):
    try:
        do()
        answer[name] = "ok"
    except OSError as failed:
        answer[name] = errno.errorcode.get(failed.errno, str(failed))
def read(path):
    with open(path) as file:
        if "CANARY" not in file.read():
            raise OSError(errno.ENODATA, "")
for path in wanted["read"]:
    attempt("read " + path, lambda: read(path))
for path in wanted["write"]:
    attempt("write " + path, lambda: open(path, "a").close())
for path in wanted["make"]:
    attempt("make " + path, lambda: (open(path, "x").close(), os.remove(path)))
for path in wanted["replace"]:
    attempt("replace " + path, lambda: os.rename(path, path + ".old"))
proxy = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY", ""))
for host in wanted["names"]:
    def connect():
        with socket.create_connection((proxy.hostname, proxy.port), 20) as sock:
            token = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
            sock.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode())
            answer["name " + host] = sock.recv(4096).decode().split()[1]
    if proxy.hostname:
        connect()
    else:
        answer["name " + host] = "no proxy"
attempt("direct", lambda: socket.create_connection(("192.0.2.1", 443), 5).close())
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Srt:
    """A rendered project, and a version of srt in which commands are run there."""

    fence: Fence
    program: tuple[str, ...]
    old: bool

    def run(self, command: str, *, shell: str = "restricted", settings: Path | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        fence = self.fence
        user = ["setpriv", f"--reuid={fence.uid}", f"--regid={fence.uid}", "--clear-groups", "--"] if fence.uid != os.getuid() else []
        path = settings or fence.project / f".wavegen/srt/{shell}.json"
        return subprocess.run(
            [*user, *self.program, "--settings", str(path), "-c", command],
            cwd=cwd or fence.project,
            env=fence.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def tried(self, shell: str, *, settings: Path | None = None, **wanted: list[str]) -> dict[str, str]:
        """What came of attempts inside."""
        script = self.fence.base / "try.py"
        script.write_text(TRY)
        everything = {name: wanted.get(name, []) for name in ("read", "write", "make", "replace", "names")}
        done = self.run(shlex.join([PYTHON, "-I", "-S", str(script), json.dumps(everything)]), shell=shell, settings=settings)
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, str] = json.loads(done.stdout)
        return found


def installed(program: str, fence: Fence) -> tuple[str, ...]:
    """How srt is started by the fence's user, who may not reach where it is installed."""
    real = Path(program if "/" in program else shutil.which(program) or program).resolve()
    place = next((parent for parent in real.parents if parent.name == "node_modules"), None)
    if fence.uid == os.getuid() or not place:
        return (str(real),)
    shutil.copytree(place, fence.base / "npm/node_modules", symlinks=True)
    return ("node", str(fence.base / "npm/node_modules" / real.relative_to(place)))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((uid, old), id=f"{'old' if old else 'new'}-{name_of(uid)}", marks=pytest.mark.needs("bwrap", "srt-old" if old else "srt"))
        for old in (False, True)
        for uid in users()
    ],
)
def one(request: pytest.FixtureRequest) -> Iterator[Srt]:
    uid, old = request.param
    fence = Fence.create(REAL, uid=uid)
    for base, names in ((fence.home, HOME_FILES), (fence.project, PROJECT_FILES)):
        for name in names:
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("CANARY\n")
    program = installed(SRT_OLD if old else SRT, fence)
    fence.own()
    yield Srt(fence, program, old)
    fence.remove()


def test_the_settings_are_taken_without_a_word_and_nothing_is_left_behind(one: Srt) -> None:
    before = snapshot(one.fence.project), snapshot(one.fence.home)
    for shell in ("default", "restricted", "silent"):
        done = one.run("echo inside; exit 7", shell=shell)
        assert (done.returncode, done.stdout, done.stderr) == (7, "inside\n", "")
    assert (snapshot(one.fence.project), snapshot(one.fence.home)) == before


def test_what_is_granted_works_and_what_is_not_is_refused(one: Srt) -> None:
    home, root = one.fence.home, one.fence.project
    found = one.tried(
        "restricted",
        read=[str(root / "src"), str(root / "vendor/file"), str(root / "hidden/other"), str(home / "shared/old"), str(home / "plain")],
        write=[str(root / "src"), str(home / "shared/old"), str(root / "vendor/file"), str(home / "plain")],
        make=[str(root / "new"), str(home / "shared/new"), str(root / "vendor/new"), str(home / "new"), str(root.parent / "new")],
    )
    work = {f"read {root / 'src'}", f"read {root / 'vendor/file'}", f"read {root / 'hidden/other'}", f"read {home / 'shared/old'}", f"read {home / 'plain'}"}
    work |= {f"write {root / 'src'}", f"write {home / 'shared/old'}", f"make {root / 'new'}", f"make {home / 'shared/new'}"}
    assert {name for name, outcome in found.items() if outcome == "ok"} == work
    assert {outcome for name, outcome in found.items() if name not in work and name != "direct"} == {"EROFS"}


def test_the_files_of_the_fence_are_neither_written_nor_replaced(one: Srt) -> None:
    root = one.fence.project
    before = snapshot(root)
    found = one.tried("restricted", write=[str(root / name) for name in OWN], replace=[str(root / name) for name in ("wave.yaml", "flake.nix", ".wavegen")])
    del found["direct"]
    assert set(found.values()) <= {"EROFS", "EBUSY"}
    assert snapshot(root) == before


def test_git_hooks_and_settings_are_guarded_by_srt_itself(one: Srt) -> None:
    root = one.fence.project
    found = one.tried("restricted", write=[str(root / ".git/hooks/pre-commit"), str(root / ".git/config")])
    del found["direct"]
    assert set(found.values()) == {"EROFS"}


def test_what_is_hidden_cannot_be_read_whatever_its_name(one: Srt) -> None:
    home, root = one.fence.home, one.fence.project
    names = ("diary", ODD, ".ssh/id", ".netrc", ".docker/config.json", ".docker/buildx/secret")
    hidden = [*(str(home / name) for name in names), str(root / "hidden/file"), str(root / "two  words")]
    assert all("CANARY" in Path(name).read_text() for name in hidden)
    found = one.tried("restricted", read=hidden)
    assert {found[f"read {name}"] for name in hidden} <= {"ENOENT", "EACCES", "ENODATA"}


def test_what_is_hidden_stays_so_where_its_directory_is_renamed(one: Srt) -> None:
    root = one.fence.project
    done = one.run("mv hidden elsewhere && cat elsewhere/file; mv elsewhere hidden; cat hidden/other")
    assert (done.stdout, "file" in done.stderr) == ("CANARY\n", True)
    assert (root / "hidden/file").read_text() == "CANARY\n"


def test_what_the_manifest_grants_of_a_hidden_directory_is_there_in_newer_versions(one: Srt) -> None:
    """0.0.21 has no word for it, and a gap says so."""
    home = one.fence.home
    found = one.tried("restricted", read=[str(home / ".ssh/known_hosts")], write=[str(home / ".docker/buildx/open")])
    del found["direct"]
    assert set(found.values()) == {"ENOENT" if one.old else "ok"}


def test_listed_names_pass_the_filter_and_others_do_not(one: Srt) -> None:
    # No name below .test has an address: one that passes is looked up, and that fails.
    names = {"listed.test:443": "502", "x.below.test:443": "502", "below.test:443": "403", "not.below.test:443": "403"}
    names |= {"other.test:443": "403", "localhost:22": "403", "127.0.0.1:22": "403", "169.254.169.254:80": "403"}
    found = one.tried("restricted", names=list(names))
    assert {name: found[f"name {name}"] for name in names} == names
    assert found["direct"] in ("ENETUNREACH", "EHOSTUNREACH")


def test_it_is_the_list_that_refuses_a_server_of_the_host(one: Srt) -> None:
    settings = json.loads((one.fence.project / ".wavegen/srt/restricted.json").read_text())
    settings["network"]["allowedDomains"].append("127.0.0.1")
    file = one.fence.base / "settings.json"
    file.write_text(json.dumps(settings))
    one.fence.own()
    server = Server(echo)
    name = f"127.0.0.1:{server.port}"
    try:
        answers = [one.tried("restricted", names=[name], settings=path)[f"name {name}"] for path in (None, file)]
    finally:
        server.close()
    assert answers == ["403", "200"]


def test_without_a_network_no_proxy_lets_anything_through(one: Srt) -> None:
    found = one.tried("silent", names=["listed.test:443"])
    assert found["name listed.test:443"] == ("no proxy" if one.old else "403")
    assert found["direct"] in ("ENETUNREACH", "EHOSTUNREACH")


def test_settings_that_srt_dislikes_are_what_the_model_is_for(one: Srt) -> None:
    """Why nothing here relies on srt: 0.0.21 goes on without the settings, and both take a word that is misspelt."""
    good = json.loads((one.fence.project / ".wavegen/srt/restricted.json").read_text())
    bad = {**good, "network": {**good["network"], "allowedDomains": ["listed.test:443", "*.com"]}}
    misspelt = {**good, "filesystem": {**good["filesystem"], "denyReed": ["~/plain"]}}
    home = one.fence.home
    file = one.fence.base / "settings.json"
    outcomes = []
    for settings in (good, bad, misspelt):
        file.write_text(json.dumps(settings))
        one.fence.own()
        done = one.run(f"cat {home}/diary {home}/plain", settings=file)
        outcomes.append((done.stdout.count("CANARY"), bool(re.search("[Ii]nvalid", done.stderr))))
    assert outcomes == [(1, False), (2 if one.old else 0, True), (1, False)]
    assert [bool(complaints(settings)) for settings in (good, bad, misspelt)] == [False, True, True]


def test_it_is_the_directory_that_it_is_started_in_that_is_written(one: Srt) -> None:
    """So it is started in the project's root: above it, the manifest would be like any file."""
    done = one.run("echo >>project/wave.yaml", cwd=one.fence.project.parent)
    assert done.returncode == 0
    one.fence.write("wave.yaml", REAL)
    one.fence.own()
    assert one.run("echo >>wave.yaml").returncode != 0

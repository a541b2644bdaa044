"""The real nix on rendered, unmodified flakes: every way into a shell, and on which side of the fence it ended."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fence import wait_until
from helpers import ROOT, call, render_project, rendered
from helpers import project as project_of
from nix_env import STUB, NixEnv, NixUnavailableError, pin_stub

from wavegen import VERSION, backends
from wavegen.project.loader import load_project

if TYPE_CHECKING:
    from engine import Engine

pytestmark = pytest.mark.needs("nix", "bwrap")

SYSTEMS = ["aarch64-darwin", "aarch64-linux", "x86_64-darwin", "x86_64-linux"]
SHELLS = ["default", "restricted", "yolo"]
ENTRIES = [*SHELLS, "persona-greeter"]

# No API key is passed through, so that no shell has a reason to say anything.
MANIFEST = """\
metadata: {name: my tool}
runtime:
  sandbox:
    packages: [hello, strace, claude-code]
    unfree: [claude-code]
    package: nix/package.nix
adapters: {hello: {}}
personas: {greeter: {}}
"""
PACKAGE = '{ writeShellScriptBin }: writeShellScriptBin "my-tool" "echo from the package"\n'

# Says what it sees, and leaves a proof that the project is the host's own. Nothing here asks an environment variable.
WITNESS = """\
cd "${BASH_SOURCE[0]%/*}" || exit
for kind in mnt pid user; do echo "saw $kind $(readlink /proc/self/ns/$kind)"; done
if [[ -e $1 ]]; then echo 'saw canary yes'; else echo 'saw canary no'; fi
if [[ $(<wave.yaml) == *metadata* ]]; then echo 'saw manifest yes'; fi
echo "$2" >proof
"""


class Witness:
    """A command that tells, run by whatever way into a shell, where it is."""

    def __init__(self, nix: NixEnv, project: Path) -> None:
        self.nonce = secrets.token_hex(8)
        self.project = project
        canary = nix.home / "canary"
        canary.write_text("a file of the real home directory\n", "utf-8")
        (project / "witness.sh").write_text(WITNESS, "utf-8")
        self.argv = ("bash", str(project / "witness.sh"), str(canary), self.nonce)
        self.typed = f"{shlex.join(self.argv)}\n".encode()

    def verdict(self, said: str) -> str:
        """`inside` or `outside`: only where everything that was seen agrees on it."""
        seen = dict(re.findall(r"^saw (\w+) (\S+)$", said, re.MULTILINE))
        assert sorted(seen) == ["canary", "manifest", "mnt", "pid", "user"], said
        assert (self.project / "proof").read_text("utf-8").strip() == self.nonce, "the project inside is not the host's"
        foreign = {kind for kind in ("mnt", "pid", "user") if seen[kind] != os.readlink(f"/proc/self/ns/{kind}")}
        match seen["canary"], len(foreign):
            case "no", 3:
                return "inside"
            case "yes", 0:
                return "outside"
        return f"neither: {seen}"


@pytest.fixture(scope="module")
def nix(tmp_path_factory: pytest.TempPathFactory) -> NixEnv:
    return environment(tmp_path_factory.mktemp("nix"))


@pytest.fixture(scope="module")
def project(nix: NixEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rendered project, its shells already built: what is built later would be said on a terminal."""
    root = tmp_path_factory.mktemp("rendered")
    made = make(nix, root, MANIFEST)
    for shell in ENTRIES:
        assert nix.run(["develop", f".#{shell}", "--command", "true"], made).returncode == 0
    return made


@pytest.fixture
def witness(nix: NixEnv, project: Path) -> Witness:
    return Witness(nix, project)


@pytest.fixture
def tidy(nix: NixEnv) -> Iterator[None]:
    """Fails where something was left behind in the temporary directory."""
    before = set(os.listdir(nix.tmp))
    yield
    assert set(os.listdir(nix.tmp)) <= before


def environment(directory: Path, stub: Path = STUB) -> NixEnv:
    try:
        env = NixEnv.create(directory)
        env.stub_nar_hash(stub)
    except NixUnavailableError as why:
        if os.environ.get("CI"):
            pytest.fail(str(why), pytrace=False)
        pytest.skip(str(why))
    return env


def make(nix: NixEnv, root: Path, manifest: str, stub: Path = STUB) -> Path:
    """A rendered project whose nixpkgs is the stub. Only the lock is touched, and there one hash."""
    made = render_project(root, manifest)
    (made / "nix").mkdir(exist_ok=True)
    (made / "nix" / "package.nix").write_text(PACKAGE, "utf-8")
    (made / "sub" / "directory").mkdir(parents=True, exist_ok=True)
    pin_stub(made / "flake.lock", nix.stub_nar_hash(stub))
    return made


def check_all_systems(nix: NixEnv, project: Path) -> None:
    done = nix.run(["flake", "check", "--all-systems"], project)
    if "unrecognised flag" in done.stderr:  # an old one, which always checks them all
        done = nix.run(["flake", "check"], project)
    assert done.returncode == 0, done.stderr


def evaluate(nix: NixEnv, project: Path, attribute: str, function: str = "x: x") -> object:
    done = nix.run(["eval", "--json", f".#{attribute}", "--apply", function], project)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def git(nix: NixEnv, project: Path, *args: str) -> None:
    nix.run(args, project, program="/usr/bin/git").check_returncode()


# --- the flake


def test_the_flake_checks_on_all_systems(nix: NixEnv, project: Path) -> None:
    check_all_systems(nix, project)


def test_every_shell_evaluates_on_every_system(nix: NixEnv, project: Path) -> None:
    shells = evaluate(nix, project, "devShells", "builtins.mapAttrs (_: builtins.mapAttrs (_: shell: shell.drvPath))")
    assert isinstance(shells, dict)
    assert {system: sorted(found) for system, found in shells.items()} == dict.fromkeys(SYSTEMS, sorted(ENTRIES))


def test_packages_and_apps_are_the_shells_where_there_is_bubblewrap_and_the_project_s_own_package(nix: NixEnv, project: Path) -> None:
    names = "builtins.mapAttrs (_: builtins.attrNames)"
    linux = {system for system in SYSTEMS if system.endswith("linux")}
    assert evaluate(nix, project, "packages", names) == {s: sorted(["my-tool", *(["image", *ENTRIES] if s in linux else [])]) for s in SYSTEMS}
    assert evaluate(nix, project, "apps", names) == {s: sorted(ENTRIES) if s in linux else [] for s in SYSTEMS}


def test_the_project_s_package_is_built_by_its_name(nix: NixEnv, project: Path) -> None:
    done = nix.run(["shell", ".#my-tool", "--command", "my-tool"], project)
    assert (done.returncode, done.stdout) == (0, "from the package\n"), done.stderr


@pytest.mark.needs("docker")
def test_the_image_of_nix_is_the_one_that_containers_are_started_from(nix: NixEnv, project: Path, engine: Engine) -> None:
    built = nix.run(["build", ".#image", "--no-link", "--json"], project)
    assert built.returncode == 0, built.stderr
    loaded = engine.run("load", "--input", json.loads(built.stdout)[0]["outputs"]["out"])
    assert "Loaded image: wavegen/my-tool:latest" in loaded.stdout, loaded.stderr
    assert "\nimage\twavegen/my-tool:latest\t" in (project / ".wavegen/rules/default").read_text("utf-8")
    config = json.loads(engine.run("image", "inspect", "-f", "{{json .Config}}", "wavegen/my-tool:latest").stdout)
    assert (config["Env"], config["User"], config["Cmd"], config.get("Entrypoint"), config.get("Volumes")) == (
        ["PATH=/bin"],
        "65534:65534",
        ["bash"],
        None,
        None,
    )
    made = engine.run("create", "--network", "none", "wavegen/my-tool:latest").stdout.strip()
    try:
        archive = subprocess.run([engine.client, "export", made], env=engine.environment(), stdout=subprocess.PIPE, check=True).stdout
    finally:
        engine.run("rm", made)
        engine.run("image", "rm", "wavegen/my-tool:latest")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        names = {member.name.removeprefix("./"): member for member in files}
        for program, package in (
            ("bash", "bash-interactive"),
            ("ls", "coreutils"),
            ("git", "git"),
            ("python3", "python3"),
            ("hello", "hello"),
            ("claude", "claude-code"),
        ):
            target = names[f"bin/{program}"].linkname
            assert package in target
            assert target.removeprefix("/") in names
        assert "usr/bin/env" in names
        assert "etc/ssl/certs/ca-certificates.crt" in names


@pytest.mark.needs("docker")
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_a_container_has_the_packages_that_the_path_leads_to_whatever_its_image(nix: NixEnv, tmp_path: Path, engine: Engine, shell: str) -> None:
    made = make(nix, tmp_path, MANIFEST.replace("  sandbox:\n", f"  sandbox:\n    docker_image: '{engine.image()}'\n"))
    if os.geteuid() == 0:  # root's containers run as the project's owner
        subprocess.run(["chown", "-R", "65534:65534", made], check=True)
    environment = {name: value for name, value in engine.environment().items() if name != "PATH"}
    develop = ["develop", ".#yolo", "--command", f".wavegen/docker/run-{shell}", "hello"]
    done = nix.run(develop, made, env=environment)
    assert (done.returncode, done.stdout) == (0, "Hello from the stub nixpkgs\n"), done.stderr


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("registry.example.org:5000/a/b:1.2", ["registry.example.org:5000/a/b", "1.2"]),
        ("localhost:5000/x", ["localhost:5000/x", "latest"]),
        (f"a/b@sha256:{'0' * 64}", None),
    ],
)
def test_an_image_of_one_s_own_is_built_under_its_name_unless_a_digest_says_what_it_is(
    nix: NixEnv, tmp_path: Path, written: str, expected: list[str] | None
) -> None:
    made = make(nix, tmp_path, MANIFEST.replace("  sandbox:\n", f"  sandbox:\n    docker_image: '{written}'\n"))
    names = "p: if p ? image then [ p.image.imageName p.image.imageTag ] else null"
    assert evaluate(nix, made, "packages.x86_64-linux", names) == expected


def test_rendering_leaves_the_lock_as_nix_itself_would_write_it(nix: NixEnv, project: Path) -> None:
    before = (project / "flake.lock").read_bytes()
    assert nix.run(["flake", "lock"], project).returncode == 0
    assert (project / "flake.lock").read_bytes() == before


@pytest.mark.parametrize("system", ["aarch64-darwin", "x86_64-darwin"])
def test_on_darwin_the_shell_is_loud_and_lacks_what_is_linux_s(nix: NixEnv, project: Path, tmp_path: Path, system: str) -> None:
    hook = evaluate(nix, project, f"devShells.{system}.default.shellHook")
    assert isinstance(hook, str)
    assert "bwrap" not in hook
    script = tmp_path / "nix-shell.aBcDeF"  # the name by which the hook knows the rc file of `nix develop`
    script.write_text(f"{hook}\necho went on\n", "utf-8")
    done = nix.run([str(script)], project, program="/bin/bash")
    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert re.findall(r"wavegen: (.*?)(?:\x1b|$)", done.stderr, re.MULTILINE) == [
        "default: NOT SANDBOXED: bubblewrap needs Linux; paths, processes and the network are not fenced",
        "not on this system: strace",
    ]


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> tuple[NixEnv, Path]:
    """A nixpkgs that has ended x86_64-darwin as nixpkgs 26.11 does, and in which darwin may not even look at bubblewrap."""
    stub = tmp_path_factory.mktemp("later") / "nixpkgs"
    shutil.copytree(STUB, stub)
    replace(stub / "lib.nix", "flakeExposed = platforms.linux ++ platforms.darwin", 'flakeExposed = platforms.linux ++ [ "aarch64-darwin" ]')
    replace(stub / "default.nix", "  hostPlatform = {", '  hostPlatform = if system == "x86_64-darwin" then throw "dropped" else {')
    replace(stub / "default.nix", "bubblewrap = mkTool {", 'bubblewrap = if hostPlatform.isDarwin then throw "looked at" else mkTool {')
    env = environment(tmp_path_factory.mktemp("nix-later"), stub)
    return env, make(env, tmp_path_factory.mktemp("rendered-later"), MANIFEST, stub)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{old} in {path.name}"
    path.write_text(text.replace(old, new), "utf-8")


def test_a_system_that_nixpkgs_has_ended_is_left_out(later: tuple[NixEnv, Path]) -> None:
    check_all_systems(*later)
    assert evaluate(*later, "devShells", "builtins.attrNames") == [s for s in SYSTEMS if s != "x86_64-darwin"]


def test_darwin_does_not_look_at_bubblewrap(later: tuple[NixEnv, Path]) -> None:
    assert str(evaluate(*later, "devShells.aarch64-darwin.default.drvPath")).startswith("/nix/store/")
    assert evaluate(*later, "packages.aarch64-darwin", "builtins.mapAttrs (_: p: p.name)") == {"my-tool": "my-tool"}


def test_an_unfree_package_is_refused_until_the_manifest_names_it(nix: NixEnv, project: Path, tmp_path: Path) -> None:
    refused = make(nix, tmp_path, MANIFEST.replace("[claude-code]\n", "[]\n"))
    done = nix.run(["develop", "--command", "true"], refused)
    assert done.returncode not in (0, 125)
    assert "unfree" in done.stderr
    allowed = nix.run(["develop", "--command", "claude"], project)
    assert (allowed.returncode, allowed.stdout) == (0, "claude from the stub nixpkgs\n"), allowed.stderr


def test_an_unknown_package_names_the_manifest_s_line(nix: NixEnv, tmp_path: Path) -> None:
    made = make(nix, tmp_path, "metadata: {name: demo}\nruntime:\n  sandbox:\n    packages:\n      - hello\n      - no.such-thing\n")
    done = nix.run(["develop", "--command", "true"], made)
    assert done.returncode not in (0, 125)
    assert "wave.yaml: packages: nixpkgs has no attribute no.such-thing" in done.stderr


# --- every way into a shell


def command(*args: str, **env: str) -> Callable[[NixEnv, Witness], str]:
    def run(nix: NixEnv, witness: Witness) -> str:
        done = nix.run([*args, *witness.argv], witness.project, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def below(*args: str) -> Callable[[NixEnv, Witness], str]:
    return lambda nix, witness: nix.run([*args, *witness.argv], witness.project / "sub" / "directory").stdout


def on_terminal(*args: str) -> Callable[[NixEnv, Witness], str]:
    return lambda nix, witness: nix.run_pty([*args, *witness.argv], witness.project).output


def typed(*args: str, **env: str) -> Callable[[NixEnv, Witness], str]:
    return lambda nix, witness: nix.run_pty(args, witness.project, witness.typed + b"exit\n", env=env).output


FENCED = {
    "command": command("develop", "--command"),
    "command-restricted": command("develop", ".#restricted", "--command"),
    "command-posix": command("develop", "--command", POSIXLY_CORRECT="1"),
    "command-under-direnv": command("develop", "--command", DIRENV_IN_ENVRC="1"),
    "command-below": below("develop", "--command"),
    "command-terminal": on_terminal("develop", "--command"),
    "command-terminal-restricted": on_terminal("develop", ".#restricted", "--command"),
    "interactive": typed("develop"),
    "interactive-restricted": typed("develop", ".#restricted"),
    "command-persona": command("develop", ".#persona-greeter", "--command"),
    "run-default": command("run", ".#default", "--"),
    "run-restricted": command("run", ".#restricted", "--"),
    "run-persona": command("run", ".#persona-greeter", "--", "--exec"),
    "run-below": below("run", ".#restricted", "--"),
    "run-terminal": on_terminal("run", ".#default", "--"),
    "shell": command("shell", ".#restricted", "--command", "restricted", "--"),
}


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("way", FENCED.values(), ids=FENCED)
def test_a_command_is_inside(nix: NixEnv, witness: Witness, way: Callable[[NixEnv, Witness], str]) -> None:
    assert witness.verdict(way(nix, witness)) == "inside"


def test_nix_run_hands_options_to_the_launcher(nix: NixEnv, project: Path) -> None:
    done = nix.run(["run", f"{project}#restricted", "--", "--project", str(project), "pwd"], nix.root)
    assert (done.returncode, done.stdout) == (0, f"{project}\n"), done.stderr
    shown = nix.run(["run", ".#restricted", "--", "--print", "true"], project)
    assert (shown.returncode, shown.stdout.splitlines()[-2:]) == (0, ["--", "true"]), shown.stderr


def test_a_persona_starts_its_program_with_the_packages_of_its_shell(nix: NixEnv, project: Path) -> None:
    inside = nix.run(["run", ".#restricted", "--", "hello"], project)
    done = nix.run(["run", ".#persona-greeter"], project)
    assert (inside.returncode, done.returncode, done.stdout) == (0, 0, inside.stdout), done.stderr


@pytest.mark.usefixtures("tidy")
def test_the_dev_shell_of_a_persona_starts_its_program(nix: NixEnv, project: Path) -> None:
    done = nix.run_pty(["develop", ".#persona-greeter"], project)
    assert (done.status, done.output) == (0, "Hello from the stub nixpkgs\n")


@contextlib.contextmanager
def removed_at_last() -> Iterator[str]:
    """A temporary directory, into which a look at what was left behind may still write when all else is done."""
    place = tempfile.mkdtemp()
    try:
        yield place
    finally:
        wait_until(lambda: shutil.rmtree(place, ignore_errors=True) or not os.path.exists(place), f"{place} can be removed")


@pytest.mark.needs("user")
@pytest.mark.parametrize("shell", ["default", "restricted", "persona-greeter"])
def test_a_user_is_inside_as_root_is(nix: NixEnv, project: Path, shell: str) -> None:
    built = nix.run(["build", f".#{shell}", "--no-link", "--json"], project)
    program = f"{json.loads(built.stdout)[0]['outputs']['out']}/bin/{shell}"
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
    with removed_at_last() as place:
        own, home = Path(place, "project"), Path(place, "home")
        shutil.copytree(project, own)
        home.mkdir()
        Path(place).chmod(0o755)
        if user:
            subprocess.run(["chown", "-R", "65534:65534", own, home], check=True)
        witness = Witness(nix, own)
        (home / "canary").write_text("of the home\n", "utf-8")
        argv = [*user, program, "--exec" if shell.startswith("persona-") else "--", *witness.argv[:2], str(home / "canary"), witness.nonce]
        done = nix.run(argv[1:], own, program=argv[0], env={"HOME": str(home), **dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME"), "")})
        assert witness.verdict(done.stdout) == "inside", done.stderr


BY_HAND = """{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
  outputs = { nixpkgs, ... }: { inherit (import ./.wavegen/shells.nix { inherit nixpkgs; HANDED }) devShells packages apps; };
}
"""


def test_a_project_without_the_launcher_takes_that_of_an_input(nix: NixEnv, tmp_path: Path) -> None:
    manifest = MANIFEST.replace("sandbox:", "sandbox:\n    vendor: false", 1)
    made = render_project(tmp_path, manifest)
    (made / "nix").mkdir(exist_ok=True)
    (made / "nix" / "package.nix").write_text(PACKAGE, "utf-8")
    pin_stub(made / "flake.lock", nix.stub_nar_hash(STUB))
    (made / "flake.nix").write_text(BY_HAND.replace("HANDED", ""))
    done = nix.run(["develop", "--command", "true"], made)
    assert done.returncode not in (0, 125)
    assert "this project holds no launcher (vendor: false)" in done.stderr
    shutil.copytree(ROOT / "wavegen/launcher", made / "src/wavegen/launcher", ignore=shutil.ignore_patterns("__pycache__"))
    (made / "flake.nix").write_text(BY_HAND.replace("HANDED", "wavegen = ./src;"))
    witness = Witness(nix, made)
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"
    # Nor does a launcher that somebody adds, and lists in the lock, take its place.
    added, lock = made / ".wavegen/launcher/__main__.py", made / ".wavegen/lock.json"
    added.parent.mkdir()
    added.write_text("raise SystemExit('added')\n")
    listed = json.loads(lock.read_text())
    listed["outputs"][".wavegen/launcher/__main__.py"] = f"sha256:{hashlib.sha256(added.read_bytes()).hexdigest()}"
    lock.write_text(json.dumps(listed))
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"


MUTATIONS = {
    "no-hook": ("shellHook = if isLinux then hook name shell else warning name shell;", 'shellHook = "";'),
    "rc-file-of-another-name": ("*/nix-shell.??????)", "*/nix-other.??????)"),
    "no-exec": ("exec() {", "wave_exec() {"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_without_the_hook_the_same_check_says_outside(nix: NixEnv, tmp_path: Path, mutation: str) -> None:
    made = make(nix, tmp_path, MANIFEST)
    replace(made / ".wavegen" / "shells.nix", *MUTATIONS[mutation])
    witness = Witness(nix, made)
    assert witness.verdict(FENCED["command"](nix, witness)) == "outside"
    if mutation != "no-exec":
        assert witness.verdict(FENCED["interactive"](nix, witness)) == "outside"


# --- where the system has none of it: NixOS

HIDE = 'for name in bash bwrap perl python3; do mount --bind /dev/null "$(readlink -f "/usr/bin/$name")"; done; exec "$@"'


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> tuple[NixEnv, Path]:
    """A nixpkgs whose bash, bwrap and Python are programs of its own, and a project whose packages are built."""
    stub = tmp_path_factory.mktemp("bare") / "nixpkgs"
    shutil.copytree(STUB, stub)
    replace(stub / "default.nix", 'ln -s "/bin/$program"', 'cp -L "/bin/$program"')
    for name in ("bubblewrap", "python3"):
        replace(stub / "default.nix", f"    {name} = mkTool {{", f"    {name} = mkLinks {{")
    env = environment(tmp_path_factory.mktemp("nix-bare"), stub)
    return env, make(env, tmp_path_factory.mktemp("rendered-bare"), MANIFEST, stub)


@pytest.mark.parametrize("shell", ["default", "restricted", "persona-greeter"])
def test_programs_of_the_store_do_where_the_system_has_none(bare: tuple[NixEnv, Path], shell: str) -> None:
    nix, made = bare
    built = nix.run(["build", f".#{shell}", "--no-link", "--json"], made)
    assert built.returncode == 0, built.stderr
    program = f"{json.loads(built.stdout)[0]['outputs']['out']}/bin/{shell}"
    own = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    witness = Witness(nix, made)
    words = ["--exec"] if shell.startswith("persona-") else ["--"]
    done = nix.run([*own[1:], "sh", "-ec", HIDE, "sh", program, *words, *witness.argv], made, program=own[0])
    assert witness.verdict(done.stdout) == "inside", done.stderr
    told = nix.run([*own[1:], "sh", "-ec", HIDE, "sh", program, *words, "bash", "-c", 'echo "$SHELL"; type -P bash'], made, program=own[0])
    assert re.fullmatch(r"(/nix/store/\S+-bash-interactive-5\.2/bin/bash\n){2}", told.stdout), told.stderr


# --- what of the project gets into the store


def test_what_the_lock_does_not_list_stays_outside_and_what_it_lists_must_be_as_rendered(nix: NixEnv, tmp_path: Path) -> None:
    made = make(nix, tmp_path, MANIFEST)
    path = "devShells.x86_64-linux.restricted.shellHook"
    before = evaluate(nix, made, path)
    for name in ("launcher/arguments/__init__.py", "launcher/__pycache__/start.cpython-311.pyc", "rules/other"):
        (made / ".wavegen" / name).parent.mkdir(exist_ok=True)
        (made / ".wavegen" / name).write_text("raise SystemExit('planted')\n", "utf-8")
    assert evaluate(nix, made, path) == before
    rules = made / ".wavegen/rules/restricted"
    replace(rules, "network\tnone", "network\thost")
    edited = nix.run(["develop", ".#restricted", "--command", "echo", "ran"], made)
    assert (edited.returncode == 0, edited.stdout) == (False, "")
    assert ".wavegen/rules/restricted is not what was rendered" in edited.stderr
    rules.unlink()
    missing = nix.run(["develop", ".#restricted", "--command", "echo", "ran"], made)
    assert (missing.returncode == 0, missing.stdout) == (False, "")
    assert ".wavegen/rules/restricted is missing" in missing.stderr


def test_the_launcher_in_the_store_is_compiled_and_python_takes_what_was_compiled(nix: NixEnv, project: Path) -> None:
    done = nix.run(["build", ".#default", "--no-link", "--json"], project)
    text = Path(json.loads(done.stdout)[0]["outputs"]["out"], "bin/default").read_text("utf-8")
    (launcher,) = map(Path, re.findall(r"(/nix/store/\S+/launcher)/__main__\.py", text))
    sources = sorted(source.relative_to(launcher) for source in launcher.rglob("*.py"))
    assert sources == sorted(source.relative_to(project / ".wavegen/launcher") for source in (project / ".wavegen/launcher").rglob("*.py"))
    for source in sources:
        (compiled,) = (launcher / source).parent.glob(f"__pycache__/{source.stem}.*.pyc")
        # PEP 552: hash-based, and not compared with the source.
        assert compiled.read_bytes()[4:8] == b"\1\0\0\0"
    again = nix.run(["build", ".#default", "--no-link", "--rebuild"], project)
    assert again.returncode == 0, again.stderr


# --- nix develop --command

HARD = ["a b", "it's", '"', "$HOME", "$(id)", "*", "", "two\nlines", "--", "-x", "\\", "é", ""]


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_arguments_arrive_as_they_are(nix: NixEnv, project: Path, terminal: bool) -> None:
    args = ["develop", "--command", "printf", "%s\\0", *HARD]
    said = nix.run_pty(args, project).output if terminal else nix.run(args, project).stdout
    assert said.split("\0") == [*HARD, ""]


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_the_exit_status_is_the_command_s(nix: NixEnv, project: Path, terminal: bool) -> None:
    args = ["develop", "--command", "sh", "-c", "exit 7"]
    assert (nix.run_pty(args, project).status if terminal else nix.run(args, project).returncode) == 7


def test_a_signal_is_128_and_its_number(nix: NixEnv, project: Path) -> None:
    assert nix.run(["develop", "--command", "sh", "-c", "kill -TERM $$"], project).returncode == 143


def test_standard_input_reaches_the_command(nix: NixEnv, project: Path) -> None:
    assert nix.run(["develop", "--command", "cat"], project, stdin="one\ntwo").stdout == "one\ntwo"
    assert "<typed>" in nix.run_pty(["develop", "--command", "sed", "-n", "s/.*/<&>/p;q"], project, b"typed\n").output


def test_nothing_but_the_command_writes(nix: NixEnv, project: Path) -> None:
    done = nix.run(["develop", "--command", "sh", "-c", "printf out; printf err >&2"], project)
    assert (done.stdout, done.stderr) == ("out", "err")


def test_the_packages_are_on_the_path(nix: NixEnv, project: Path) -> None:
    done = nix.run(["develop", ".#restricted", "--command", "hello"], project)
    assert done.stdout == "Hello from the stub nixpkgs\n", done.stderr


def test_a_command_that_is_not_there_is_127(nix: NixEnv, project: Path) -> None:
    done = nix.run(["develop", "--command", "no-such-command"], project)
    assert done.returncode == 127
    assert "no-such-command: command not found inside" in done.stderr


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("phase", [["--build"], ["--unpack"], ["--phase", "installPhase"]], ids=lambda phase: phase[-1].strip("-"))
def test_phases_are_refused(nix: NixEnv, project: Path, phase: list[str]) -> None:
    done = nix.run(["develop", *phase], project)
    assert (done.returncode, done.stdout) == (125, "")
    assert "use nix develop --command" in done.stderr


def test_without_a_home_nothing_is_run(nix: NixEnv, project: Path) -> None:
    done = nix.run(["develop", "--ignore-environment", "--command", "echo", "ran"], project)
    assert (done.returncode, done.stdout) == (125, "")
    assert "HOME is not set" in done.stderr


def test_from_outside_the_project_nothing_is_run(nix: NixEnv, project: Path) -> None:
    done = nix.run(["develop", str(project), "--command", "echo", "ran"], nix.root)
    assert (done.returncode, done.stdout) == (125, "")
    assert "no rendered project at or above" in done.stderr


# --- the interactive shell


@pytest.mark.usefixtures("tidy")
def test_the_interactive_shell_has_its_terminal_and_says_what_it_is(nix: NixEnv, project: Path) -> None:
    feed = b"set -o | grep monitor; stty size && tty\nsleep 60 &\njobs; kill %1\nexit 3\n"
    done = nix.run_pty(["develop"], project, feed)
    assert done.status == 3
    assert "shell default: fenced by bubblewrap" in done.output
    assert "job control" not in done.output
    assert re.search(r"^monitor\s+on$", done.output, re.MULTILINE), done.output
    assert re.search(r"^\[1\].*Running", done.output, re.MULTILINE), done.output


def test_the_end_of_input_ends_the_interactive_shell(nix: NixEnv, project: Path) -> None:
    assert nix.run_pty(["develop", ".#restricted"], project, b"false\n\x04").status == 1


# --- where the variables alone are wanted

EVALUATED = 'eval "$(nix print-dev-env)"; type -t exec; command -v hello; echo "${_wavegen_rc-unset}"\n'


def test_print_dev_env_in_a_script_starts_nothing(nix: NixEnv, witness: Witness) -> None:
    done = nix.run(["-c", EVALUATED + shlex.join(witness.argv)], witness.project, program="/bin/bash")
    assert re.match(r"builtin\n/nix/store/\S+-hello-2\.12/bin/hello\nunset\nsaw ", done.stdout), done.stdout
    assert witness.verdict(done.stdout) == "outside"
    assert "wavegen" not in done.stderr


def test_print_dev_env_in_an_interactive_shell_starts_nothing(nix: NixEnv, witness: Witness) -> None:
    done = nix.run_pty(["--norc", "-i"], witness.project, EVALUATED.encode() + witness.typed + b"exit\n", program="/bin/bash")
    assert re.search(r"^builtin\n/nix/store/\S+-hello-2\.12/bin/hello\nunset\n", done.output, re.MULTILINE), done.output
    assert witness.verdict(done.output) == "outside"


@pytest.mark.parametrize(("shell", "reason"), [("default", "direnv copies variables and starts no fence; nix develop does"), ("yolo", "no fence is asked for")])
def test_direnv_gets_the_variables_and_says_that_nothing_is_fenced(nix: NixEnv, witness: Witness, shell: str, reason: str) -> None:
    envrc = EVALUATED.replace("print-dev-env", f"print-dev-env .#{shell}") + shlex.join(witness.argv)
    done = nix.run(["-c", envrc], witness.project, program="/bin/bash", env={"DIRENV_IN_ENVRC": "1"})
    assert re.match(r"builtin\n/nix/store/\S+-hello-2\.12/bin/hello\nunset\nsaw ", done.stdout), done.stdout
    assert witness.verdict(done.stdout) == "outside"
    assert f"wavegen: {shell}: NOT SANDBOXED: {reason}" in done.stderr


# --- without a fence


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("way", [["develop", ".#yolo", "--command"], ["run", ".#yolo", "--"]], ids=lambda way: way[0])
def test_yolo_is_outside_and_says_so(nix: NixEnv, witness: Witness, way: list[str]) -> None:
    done = nix.run([*way, *witness.argv], witness.project)
    assert done.stdout.startswith("saw ")
    assert witness.verdict(done.stdout) == "outside"
    assert "yolo: NOT SANDBOXED" in done.stderr


def test_commands_that_nix_develop_reads_from_a_pipe_are_outside_and_a_gap_says_so(nix: NixEnv, witness: Witness) -> None:
    # bash reads no rc file then, and so no hook. The day this is inside, the gap goes.
    done = nix.run(["develop"], witness.project, stdin=witness.typed.decode())
    assert witness.verdict(done.stdout) == "outside"
    gaps = backends.collect_gaps(load_project(str(witness.project / "wave.yaml")).plan)
    assert [gap.effect.value for gap in gaps if gap.backend == "flake" and "where it reads commands from a pipe" in gap.what] == ["ignored"]


def test_without_a_terminal_as_stderr_what_is_typed_is_outside(nix: NixEnv, witness: Witness) -> None:
    # bash takes itself for no interactive shell then, and reads no rc file.
    done = nix.run_pty(["-c", "nix develop 2>log"], witness.project, witness.typed + b"exit\n", program="/bin/sh")
    assert witness.verdict(done.output) == "outside"


def test_an_interactive_shell_in_posix_mode_is_outside(nix: NixEnv, witness: Witness) -> None:
    # Nor does bash read an rc file in posix mode, which POSIXLY_CORRECT turns on.
    assert witness.verdict(typed("develop", POSIXLY_CORRECT="1")(nix, witness)) == "outside"


def test_in_a_directory_with_an_apostrophe_nix_s_own_rc_file_is_broken(nix: NixEnv, witness: Witness) -> None:
    # Nix writes the working directory into it after quoting. A command is not run then; an interactive shell is, unfenced.
    here = witness.project / "it's"
    here.mkdir(exist_ok=True)
    done = nix.run(["develop", "--command", "echo", "ran"], here)
    assert done.stdout == ""
    assert done.returncode != 0
    said = nix.run_pty(["develop"], here, witness.typed + b"exit\n").output
    assert "syntax error" in said
    assert witness.verdict(said) == "outside"
    assert witness.verdict(nix.run(["run", ".#default", "--", *witness.argv], here).stdout) == "inside"


# --- where the project is, and what else is there


def test_a_project_whose_path_has_a_space(nix: NixEnv, tmp_path: Path) -> None:
    (tmp_path / "sp ace").mkdir()
    witness = Witness(nix, make(nix, tmp_path / "sp ace", MANIFEST))
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"
    git(nix, witness.project, "init", "--quiet")
    git(nix, witness.project, "add", "--intent-to-add", ".")
    done = nix.run(["develop", "--command", *witness.argv], witness.project)
    if "is not a valid URL" in done.stderr:  # Nix before 2.19, in a git repository
        wrapper = witness.project / ".wavegen" / "bin" / "default"
        done = nix.run(list(witness.argv), witness.project, program=wrapper)
    assert witness.verdict(done.stdout) == "inside"


def test_in_a_git_repository_it_is_enough_that_git_knows_the_files(nix: NixEnv, tmp_path: Path) -> None:
    witness = Witness(nix, make(nix, tmp_path, MANIFEST))
    git(nix, witness.project, "init", "--quiet")
    assert nix.run(["develop", "--command", "true"], witness.project).returncode not in (0, 125)
    git(nix, witness.project, "add", "--intent-to-add", "--", "flake.nix", "flake.lock", ".wavegen", "nix")
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"
    assert witness.verdict(FENCED["run-below"](nix, witness)) == "inside"


def test_a_flake_written_by_hand_takes_the_shells_by_the_printed_line(nix: NixEnv, tmp_path: Path) -> None:
    made = tmp_path / "project"
    made.mkdir()
    own = "packages.%s.own = nixpkgs.legacyPackages.%s.hello;".replace("%s", "x86_64-linux")
    by_hand = f'{{\n  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";\n  outputs = {{ nixpkgs, ... }}: {{\n    {own}\n  }};\n}}\n'
    (made / "flake.nix").write_text(by_hand, "utf-8")
    (made / "wave.yaml").write_text(MANIFEST.replace("    package: nix/package.nix\n", ""), "utf-8")
    done = call("render", cwd=made)
    assert done.status == 0, done.output
    assert (made / "flake.nix").read_text("utf-8") == by_hand
    printed = re.findall(r"add the shells to its outputs:\n +(.+)\n", done.stderr)
    assert len(printed) == 1, done.stderr
    replace(made / "flake.nix", own, f"{own}\n    {printed[0]}")
    pin_stub(made / "flake.lock", nix.stub_nar_hash())
    check_all_systems(nix, made)
    witness = Witness(nix, made)
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"
    assert witness.verdict(FENCED["interactive-restricted"](nix, witness)) == "inside"


def test_a_package_named_like_a_shell_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST.replace("my tool", "restricted"), encoding="utf-8")
    done = call("render", cwd=tmp_path)
    assert done.status == 2
    assert "two packages called 'restricted'" in done.output


def test_a_shell_of_another_project_does_not_fence_this_one(nix: NixEnv, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    mine, other = make(nix, tmp_path / "a", MANIFEST), make(nix, tmp_path / "b", MANIFEST.replace("my tool", "other"))
    done = nix.run(["run", f"path:{other}#default", "--", "echo", "RAN"], cwd=mine)
    assert (done.returncode, done.stdout) == (125, "")
    assert "was not rendered from the manifest of" in done.stderr
    assert nix.run(["run", f"path:{mine}#default", "--", "echo", "RAN"], cwd=mine).stdout == "RAN\n"


# --- this repository


def test_what_is_rendered_here_is_what_its_manifest_says() -> None:
    done = call("render", "--check", cwd=ROOT)
    assert (done.status, done.output) == (0, "")


@pytest.fixture(scope="module")
def repository(nix: NixEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has, or would have, of this repository, with the stub in its lock."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    copy = tmp_path_factory.mktemp("repository") / "wavegen"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    pin_stub(copy / "flake.lock", nix.stub_nar_hash())
    return copy


@pytest.mark.needs("git")
def test_this_repository_s_flake_checks_and_its_shells_are_fenced(nix: NixEnv, repository: Path) -> None:
    check_all_systems(nix, repository)
    witness = Witness(nix, repository)
    assert witness.verdict(FENCED["command"](nix, witness)) == "inside"
    assert witness.verdict(FENCED["run-restricted"](nix, witness)) == "inside"


@pytest.mark.needs("git")
def test_this_repository_s_package_is_built_from_what_the_wheel_needs(nix: NixEnv, repository: Path) -> None:
    assert evaluate(nix, repository, "packages", "builtins.mapAttrs (_: found: found.wavegen.name)") == dict.fromkeys(SYSTEMS, f"wavegen-{VERSION}")
    done = nix.run(["build", ".#wavegen", "--out-link", "result"], repository)
    assert done.returncode == 0, done.stderr
    text = (repository / "result" / "bin" / "wavegen").read_text("utf-8")
    source = Path(*re.findall(r"PYTHONPATH=(/nix/store/\S+)", text))
    assert sorted(os.listdir(source)) == ["README.md", "hatch_build.py", "nix", "pyproject.toml", "templates", "wavegen"]
    for part in ("nix", "templates", "wavegen/backends"):
        assert set(os.listdir(source / part)) == set(os.listdir(repository / part))
    # The stand-in builds no wheel; from the same files, that is what a build makes.
    wheels = []
    for number, sources in enumerate((source, ROOT)):
        out = repository.parent / f"wheel-{number}"
        subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", out, sources], check=True, capture_output=True)
        (wheel,) = out.glob("*.whl")
        wheels.append({name: zipfile.ZipFile(wheel).read(name) for name in zipfile.ZipFile(wheel).namelist()})
    assert wheels[0] == wheels[1]
    assert any(name.endswith("/share/man/man1/wavegen-verify.1") for name in wheels[0])


@pytest.mark.needs("git")
def test_nix_run_starts_the_package_and_renders_what_the_checkout_does(nix: NixEnv, repository: Path, tmp_path: Path) -> None:
    """The stand-in starts the store's copy of the sources with the system's Python, which finds the dependencies where a user would put them."""
    site = subprocess.run(["/usr/bin/python3", "-m", "site", "--user-site"], env=nix.environ(), capture_output=True, text=True, check=False).stdout.strip()
    Path(site).mkdir(parents=True, exist_ok=True)
    for name in ("click", "jinja2", "markupsafe", "yaml"):
        found = importlib.util.find_spec(name)
        assert found
        assert found.origin
        if not (Path(site) / name).exists():
            (Path(site) / name).symlink_to(Path(found.origin).parent)
    said = nix.run(["run", f"{repository}#wavegen", "--", "--version"], tmp_path)
    assert (said.returncode, said.stdout.strip()) == (0, f"wavegen, version {VERSION}"), said.stderr
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, there = (made(tmp_path / name, MANIFEST) for made, name in ((render_project, "here"), (project_of, "there")))
    done = nix.run(["run", f"{repository}#wavegen", "--", "render"], there)
    assert done.returncode == 0, done.stderr
    assert rendered(there) == rendered(here)

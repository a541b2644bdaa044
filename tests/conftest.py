"""What every test stands on: a private home, and `needs(TOOL)` for tests that start programs of the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from engine import Engine, Podman

_VENV = Path(__file__).resolve().parent.parent / ".venv"
_NPM = _VENV / "npm"


def of_npm(variable: str, place: str, name: str) -> str:
    """A program of npm: what the variable names, or what scripts/setup has installed; otherwise its name, for the PATH."""
    installed = _NPM / place / "node_modules/.bin" / name
    return os.environ.get(variable) or (str(installed) if installed.exists() else name)


CLAUDE = of_npm("WAVEGEN_CLAUDE", "claude", "claude")
# Debian's, which fits the daemon beside it, before any other that a machine has on its PATH.
DOCKER = os.environ.get("WAVEGEN_TEST_DOCKER") or ("/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker")
# Whoever starts the tests in the background (`make test &`) has these ignored, and with them every program that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

SRT = of_npm("WAVEGEN_SRT", "srt-new", "srt")
SRT_OLD = of_npm("WAVEGEN_SRT_OLD", "srt-old", "srt")
_AS_ROOT = 'PATH=$PATH:/usr/sbin:/sbin; root() { [ "$(id -u)" = 0 ] || set -- sudo -n "$@"; "$@"; }; root true || { echo "an engine needs root, or sudo without a password" >&2; exit 1; }; '
_WITH_IDS = """
PATH=$PATH:/usr/sbin:/sbin
podman --version && runc --version && command -v newuidmap nsenter && test -e /etc/subuid && test -e /etc/subgid || exit 1
if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user true; else grep "^$(id -un):" /etc/subuid; fi
"""

# What shows that a tool works. That it is on the PATH shows nothing: a container may forbid what it does.
TOOLS = {
    "bash": ("bash", "-c", "((BASH_VERSINFO[0] >= 5))"),
    "bwrap": ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"),
    "curl": ("curl", "--version"),
    "claude": (CLAUDE, "--version"),
    # A daemon of the tests' own needs namespaces; that it starts is shown by the fixture.
    "docker": ("sh", "-c", _AS_ROOT + '"$0" --version && dockerd --version && runc --version && root unshare --mount --pid --fork --mount-proc true', DOCKER),
    "docker-compose": ("sh", "-c", 'docker-compose version || "$0" compose version', DOCKER),
    "direnv": ("direnv", "version"),
    "fish": ("fish", "--version"),
    "git": ("git", "--version"),
    "go": ("go", "version"),
    "hg": ("hg", "--version"),
    "java": ("javac", "-version"),
    "man": ("sh", "-c", "echo .TH x 1 | man --warnings -l -"),
    "mandoc": ("sh", "-c", "echo .Dd x | mandoc"),
    "mkdocs": (str(_VENV / "site/bin/mkdocs"), "--version"),
    "nc": ("nc", "-h"),
    "nix": ("nix-instantiate", "--eval", "--expr", "1"),
    "node": ("node", "-e", "fetch"),
    "npm": ("npm", "--version"),
    "openssl": ("openssl", "version"),
    "pip": ("/usr/bin/python3", "-m", "pip", "--version"),
    "landlock": ("/usr/bin/python3", "-c", "import ctypes; exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)"),
    "perl": ("perl", "-e", "1"),
    "podman": ("sh", "-c", _AS_ROOT + "podman --version && runc --version"),
    # Of a user who has further ids: root gives them to one for the time of the tests.
    "podman-rootless": ("sh", "-c", _WITH_IDS),
    "postgres": ("sh", "-c", "psql --version && ls /usr/lib/postgresql/*/bin/initdb"),
    "seccomp": ("/usr/bin/python3", "-c", "import seccomp"),
    "shellcheck": ("shellcheck", "--version"),
    "ssh": ("ssh", "-V"),
    # 0.0.21 says 1.0.0, whatever it is.
    "srt": ("sh", "-c", 'rg --version && socat -V && v=$("$0" --version) && [ "$v" != 1.0.0 ]', SRT),
    "srt-old": ("sh", "-c", 'rg --version && socat -V && v=$("$0" --version) && [ "$v" = 1.0.0 ]', SRT_OLD),
    "socat": ("socat", "-V"),
    "sshd": ("sh", "-c", "test -x /usr/sbin/sshd"),
    "strace": ("strace", "true"),
    "tmux": ("tmux", "-V"),
    "user": ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"),
    "zsh": ("zsh", "--version"),
    "opencode": (os.environ.get("WAVEGEN_OPENCODE") or "opencode", "--version"),
    "gemini": (os.environ.get("WAVEGEN_GEMINI") or "gemini", "--version"),
}
# Agents' own programs: what is written for them is tested without them, and nobody must install them, in CI neither.
OPTIONAL = {"opencode": "WAVEGEN_OPENCODE", "gemini": "WAVEGEN_GEMINI"}
MAY_SKIP = "WAVEGEN_MAY_SKIP"

_wanted: set[str] = set()
_ran: set[str] = set()


@cache
def broken(tool: str) -> str:
    """Why a tool does not work here; empty where it does."""
    if tool == "user" and os.geteuid() != 0:
        return ""  # already one
    argv = TOOLS[tool]
    if not shutil.which(argv[0]):
        optional = f" (optional, in CI too; {OPTIONAL[tool]} may name it)" if tool in OPTIONAL else ""
        return f"{argv[0]} is not on the PATH{optional}"
    with tempfile.TemporaryDirectory() as directory:
        # Private places: a first nix would make its state below HOME or below /nix.
        environment = {**os.environ, "HOME": directory, "NIX_STATE_DIR": directory, "NIX_REMOTE": "dummy://"}
        try:
            done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as failed:
            return f"{argv[0]}: {failed}"
    return "" if done.returncode == 0 else f"{argv[0]} fails: {done.stderr.strip() or done.returncode}"


def may_skip() -> set[str]:
    """The tools that this CI run is excused from, by WAVEGEN_MAY_SKIP=a,b, and the optional ones."""
    return set(OPTIONAL) | {tool.strip() for tool in os.environ.get(MAY_SKIP, "").split(",") if tool.strip()}


def tools_of(item: pytest.Item) -> tuple[str, ...]:
    """The tools that a test's `needs` markers name, sorted."""
    return tuple(sorted({str(tool) for marker in item.iter_markers("needs") for tool in marker.args}))


def pytest_configure(config: pytest.Config) -> None:
    if unknown := may_skip() - set(TOOLS):
        raise pytest.UsageError(f"{MAY_SKIP} names unknown tools: {', '.join(sorted(unknown))} (known: {', '.join(TOOLS)})")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("needs"):
            if marker.kwargs or not marker.args or not set(marker.args) <= set(TOOLS):
                raise pytest.UsageError(f"{item.nodeid}: needs{marker.args} must name some of: {', '.join(TOOLS)}")
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword and not config.option.markexpr:
        _wanted.update(TOOLS)
    _wanted.update(tool for item in items for tool in tools_of(item))


def pytest_runtest_setup(item: pytest.Item) -> None:
    gone = {tool: why for tool in tools_of(item) if (why := broken(tool))}
    if not gone:
        return
    reason = "; ".join(gone.values())
    if os.environ.get("CI") and not set(gone) <= may_skip():
        pytest.fail(f"needs {', '.join(gone)}: {reason}", pytrace=False)
    pytest.skip(f"needs {', '.join(gone)}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call" and not report.skipped:
        _ran.update(tools_of(item))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a tool whose tests were all skipped would prove nothing, and nobody would see it."""
    idle = _wanted - _ran - may_skip()
    if os.environ.get("CI") and idle and not session.config.option.collectonly:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.write_line(f"\nno test ran that needs: {', '.join(sorted(idle))}", red=True)
        if exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker daemon of this session's own. Tests that use it are marked `needs("docker")`."""
    import engine as of_tests

    with of_tests.started(DOCKER) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """Podman with places of this session's own. Tests that use it are marked `needs("podman")`."""
    import engine as of_tests

    with of_tests.podman() as program:
        yield program


@pytest.fixture(scope="session")
def rootless() -> Iterator[Podman]:
    """Podman of a user, whom `who` starts commands as. Tests that use it are marked `needs("podman-rootless")`."""
    import engine as of_tests

    with of_tests.rootless() as program:
        yield program


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of the test's own, and no setting of the caller's git, XDG or wavegen. Not below tmp_path: that may be a project."""
    for name in tuple(os.environ):
        if name.startswith(("XDG_", "GIT_")) or name in ("SANDBOX_ACTIVE", "WAVEGEN_SHELL", "IN_NIX_SHELL", "BASH_ENV", "ENV", "CDPATH"):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for kind, place in (("CONFIG", ".config"), ("CACHE", ".cache"), ("DATA", ".local/share"), ("STATE", ".local/state"), ("RUNTIME", ".run")):
        name = f"XDG_{kind}_DIR" if kind == "RUNTIME" else f"XDG_{kind}_HOME"
        (home / place).mkdir(parents=True, mode=0o700)
        monkeypatch.setenv(name, str(home / place))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home

"""What a project is made with: its languages, the packages they need, and the hosts that their tools fetch from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from wavegen.project import registries
from wavegen.project.inspection import Surroundings, host_of, text_of
from wavegen.project.registries import Find

# [ \t] and not \s: that takes quadratic time on empty lines.
_REMOTE = re.compile(r"^[ \t]*(\[[^\n]*)|^[ \t]*(?:push)?url[ \t]*=[ \t]*(\S+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What is known about a project."""

    languages: tuple[str, ...]
    packages: Mapping[str, str]
    """nixpkgs attribute → why."""
    hosts: Mapping[str, tuple[str, ...]]
    """Entry of an allow list → where it was read."""
    missing: tuple[str, ...]
    """What could not be found out, and how to."""
    forge: str
    """The host of a remote of git's that `gh` works with."""


def detect_ecosystems(around: Surroundings) -> Recognised:
    """What the project is. Never fails; the same files and settings give the same answer."""
    languages: list[str] = []
    packages = {"git": "for every project"}
    hosts: dict[str, set[str]] = {}
    missing = []
    for ecosystem in _ECOSYSTEMS:
        marker = next((name for name in ecosystem.markers if around.has_file(name)), "")
        if not marker:
            continue
        typed = ecosystem.language == "javascript" and around.has_file("tsconfig.json")
        languages.append("typescript" if typed else ecosystem.language)
        packages |= {name: lock or marker for name, lock in ecosystem.packages.items() if not lock or around.has_file(lock)}
        if not _collect_hosts(ecosystem.finds(around), hosts):
            missing.append(ecosystem.missing)
    remotes: dict[str, set[str]] = {}
    _collect_hosts(_find_remote_urls(around), remotes)
    for host, origins in remotes.items():
        hosts.setdefault(host, set()).update(origins)
    forge = next((host.partition(":")[0] for host in sorted(remotes) if "github" in host), "")
    if forge:
        packages["gh"] = f"{forge} is a remote"
    makefile = next((name for name in ("GNUmakefile", "Makefile", "makefile") if around.has_file(name)), "")
    if makefile:
        packages["gnumake"] = makefile
    return Recognised(
        languages=tuple(languages),
        packages=packages,
        hosts={host: tuple(sorted(origins)) for host, origins in sorted(hosts.items())},
        missing=tuple(missing),
        forge=forge,
    )


def _collect_hosts(finds: Iterable[Find], hosts: dict[str, set[str]]) -> bool:
    """Put the hosts of finds into `hosts`; whether one of them may be a registry's."""
    registry = False
    for find in dict.fromkeys(finds):
        host = host_of(find.url)
        if host:
            hosts.setdefault(host, set()).add(find.origin)
            registry = registry or find.may_be_registry
    return registry


def _find_remote_urls(around: Surroundings) -> Iterator[Find]:
    inside = False
    for match in _REMOTE.finditer(_git_config(around)):
        if match[1]:
            inside = match[1].lower().startswith("[remote ")
        elif inside:
            yield Find(match[2].strip('"'), ".git/config")


def _git_config(around: Surroundings) -> str:
    """The settings of the repository: of a worktree or a submodule too, whose .git is a file that says where they are."""
    pointer = around.read_project_text(".git")
    if not pointer.startswith("gitdir:"):
        return around.read_project_text(".git/config")
    directory = os.path.join(around.root, pointer.removeprefix("gitdir:").strip())
    common = text_of(os.path.join(directory, "commondir")).strip()
    return text_of(os.path.join(directory, common, "config"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ecosystem:
    language: str
    markers: tuple[str, ...]
    """The files that show it."""
    packages: Mapping[str, str]
    """nixpkgs attribute → the lock file that asks for it, or nothing where the language alone does."""
    finds: Callable[[Surroundings], Iterator[Find]]
    missing: str
    """What to say where no host can be a registry's."""


_ECOSYSTEMS = (
    _Ecosystem(
        language="go",
        markers=("go.mod",),
        packages={"go": "", "gopls": ""},
        finds=registries.find_go_urls,
        missing="host of the Go module proxy: not found; see `go env GOPROXY`",
    ),
    _Ecosystem(
        language="javascript",
        markers=("package.json",),
        packages={"nodejs": "", "pnpm": "pnpm-lock.yaml", "yarn": "yarn.lock"},
        finds=registries.find_javascript_urls,
        missing="host of the npm registry: not found; see `npm config get registry`",
    ),
    _Ecosystem(
        language="python",
        markers=("pyproject.toml", "setup.py", "Pipfile", "requirements.txt"),
        packages={"python3": "", "uv": "uv.lock", "poetry": "poetry.lock", "pdm": "pdm.lock", "pipenv": "Pipfile.lock"},
        finds=registries.find_python_urls,
        missing="host of the Python package index: not found; see `pip config list`",
    ),
    _Ecosystem(
        language="rust",
        markers=("Cargo.toml",),
        packages={"cargo": "", "rustc": ""},
        finds=registries.find_rust_urls,
        missing="host of the Rust crate registry: not found; run `cargo fetch` once and see ~/.cargo/registry/index",
    ),
)

"""The URLs that a project's tools fetch from, read from lock files and from the tools' own settings.

No registry is named here: users have mirrors, and a host that nobody fetches from is a hole in the fence.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from wavegen.project.inspection import Surroundings, names_in, pattern_host, text_of

SYSTEM_PIP_CONFIG = "/etc/pip.conf"

# Searched in files of any content: nothing here may take quadratic time, hence [ \t] after ^ and the bounds. No URL ends
# before its delimiter, as a shorter one may end in the middle of a password and take the user for the host.
_URL = re.compile(r"(?:[a-z]{2,9}\+)?[a-z]{2,6}://\S+")
_NPM_URL = re.compile(r'"resolved"\s*:\s*"([^"\n]+)"')
_PIPENV_URL = re.compile(r'"(?:url|git|file)"\s*:\s*"([^"\n]+)"')
_TOML_URL = re.compile(r"""\b(?:url|registry|git|source)[ \t]*=[ \t]*(?:"([^"\n]+)"|'([^'\n]+)')""")
_YAML_URL = re.compile(r"\b(?:tarball|registry|repo):\s*(\S+)")
_YARN_URL = re.compile(r'\bresol(?:ved|ution:)\s+"(?:[^"\n]*?@)?((?:git\+)?(?:https?|ssh)://[^"\n]+)"')
_NPM_SETTING = re.compile(r"^[ \t]*(?:@[^:=\s]+:)?(?:registry\b[ \t]*=?|npmRegistryServer:)[ \t]*(\S+)", re.MULTILINE)
_INDEX_DIRECTORY = re.compile(r"(.+)-[0-9a-f]{16}")
_PIP_DEFAULT = re.compile(r"\(default:?\s+(https?://\S+)\)")
_TOML_LIMIT = 1024**2  # tomllib reads about 2 MB a second


@dataclass(frozen=True, slots=True)
class Find:
    """A URL, and where it was read."""

    url: str
    origin: str

    @property
    def may_be_registry(self) -> bool:
        """Whether it may be a registry's: not a repository of git, which cargo calls registry+https too."""
        return not self.url.startswith(("git", "ssh", "registry+"))


def _find_matches(pattern: re.Pattern[str], text: str, origin: str) -> Iterator[Find]:
    """One find per match; lock files are searched and not parsed, as tomllib takes seconds for large ones."""
    for match in pattern.finditer(text):
        yield Find(match[match.lastindex or 0].strip("\"'<>,;(){}"), origin)


# --- JavaScript


def find_javascript_urls(around: Surroundings) -> Iterator[Find]:
    """The registries and tarballs of npm, yarn and pnpm."""
    for name in ("npm-shrinkwrap.json", "package-lock.json"):
        yield from _find_matches(_NPM_URL, around.read_project_text(name), name)
    yield from _find_matches(_YARN_URL, around.read_project_text("yarn.lock"), "yarn.lock")
    yield from _find_matches(_YAML_URL, around.read_project_text("pnpm-lock.yaml"), "pnpm-lock.yaml")
    for name in (".npmrc", ".yarnrc", ".yarnrc.yml"):
        yield from _find_matches(_NPM_SETTING, around.read_project_text(name), name)
        yield from _find_matches(_NPM_SETTING, text_of(os.path.join(around.home, name)), f"~/{name}")
    yield Find(around.query_tool("npm", "config", "get", "registry").strip(), "npm config get registry")


# --- Python


def find_python_urls(around: Surroundings) -> Iterator[Find]:
    """The indexes and files of pip, uv, poetry, pdm and pipenv."""
    for name in ("poetry.lock", "uv.lock", "pdm.lock", "pylock.toml", "Pipfile"):
        yield from _find_matches(_TOML_URL, around.read_project_text(name), name)
    yield from _find_matches(_PIPENV_URL, around.read_project_text("Pipfile.lock"), "Pipfile.lock")
    for name in names_in(around.root):
        if fnmatch(name, "requirements*.txt"):
            yield from _find_matches(_URL, re.sub(r"(?m)(^|\s)#.*$", "", around.read_project_text(name)), name)
    yield from _python_index_urls(around.read_project_text("pyproject.toml"), "pyproject.toml", "tool")
    yield from _python_index_urls(around.read_project_text("uv.toml"), "uv.toml")
    own = os.path.join(around.config_directory, "uv/uv.toml")
    yield from _python_index_urls(text_of(own), around.abbreviate_home(own))
    yield from _pip_setting_urls(around)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"):
        yield from _find_matches(_URL, around.env.get(name, ""), f"${name}")


def _python_index_urls(text: str, origin: str, *path: str) -> Iterator[Find]:
    """The indexes of [tool.uv], [tool.poetry] and [tool.pdm], or of uv's own file."""
    root = _parse_toml(text)
    tables = [_nested_table(root, *path, name) for name in ("uv", "poetry", "pdm")] if path else [root]
    for table in tables:
        for key in ("index", "source"):
            yield from (Find(entry["url"], origin) for entry in _as_list(table.get(key)) if isinstance(entry, dict) and isinstance(entry.get("url"), str))
        for key in ("index-url", "extra-index-url"):
            yield from (Find(entry, origin) for entry in _as_list(table.get(key)) if isinstance(entry, str))


def _pip_setting_urls(around: Surroundings) -> Iterator[Find]:
    places = [
        (around.env.get("PIP_CONFIG_FILE", ""), "$PIP_CONFIG_FILE"),
        *((path, around.abbreviate_home(path)) for path in (os.path.join(around.config_directory, "pip/pip.conf"), os.path.join(around.home, ".pip/pip.conf"))),
        (SYSTEM_PIP_CONFIG, SYSTEM_PIP_CONFIG),
        *((f"{directory}/pip/pip.conf", f"{directory}/pip/pip.conf") for directory in (around.env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")),
    ]
    for path, origin in places:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(text_of(path) if os.path.isabs(path) else "")
        except configparser.Error:
            continue
        for section in parser.sections():
            for key, value in parser.items(section):
                if key.replace("_", "-") in ("index-url", "extra-index-url", "find-links"):
                    yield from _find_matches(_URL, value or "", origin)
    usage = around.query_tool("pip", "install", "--help") or around.query_tool("pip3", "install", "--help")
    yield from _find_matches(_PIP_DEFAULT, usage, "pip install --help")


# --- Rust


def find_rust_urls(around: Surroundings) -> Iterator[Find]:
    """The indexes, downloads and repositories of cargo."""
    yield from _find_matches(_TOML_URL, around.read_project_text("Cargo.lock"), "Cargo.lock")
    for name in ("config", "config.toml"):
        yield from _cargo_config_urls(around.read_project_text(f".cargo/{name}"), f".cargo/{name}")
        own = os.path.join(around.cargo_directory, name)
        yield from _cargo_config_urls(text_of(own), around.abbreviate_home(own))
    indexes = os.path.join(around.cargo_directory, "registry/index")
    for name in names_in(indexes):
        match = _INDEX_DIRECTORY.fullmatch(name)
        if match:
            yield Find(f"https://{match[1]}/", around.abbreviate_home(indexes))
            config = _parse_json(text_of(os.path.join(indexes, name, "config.json")))
            yield Find(str(config.get("dl", "")), f"dl in {around.abbreviate_home(indexes)}")


def _cargo_config_urls(text: str, origin: str) -> Iterator[Find]:
    root = _parse_toml(text)
    for section, key in (("registries", "index"), ("source", "registry"), ("source", "git")):
        for entry in _nested_table(root, section).values():
            if isinstance(entry, dict) and isinstance(entry.get(key), str):
                yield Find(entry[key], origin)


# --- Go


def find_go_urls(around: Surroundings) -> Iterator[Find]:
    """The module proxies, the checksum database and the private repositories of go."""
    keys = ("GOPROXY", "GOSUMDB", "GOPRIVATE")
    path = around.env.get("GOENV") or os.path.join(around.config_directory, "go/env")
    lines = dict(line.strip().split("=", 1) for line in text_of(path).splitlines() if "=" in line) if os.path.isabs(path) else {}
    asked = dict(zip(keys, around.query_tool("go", "env", *keys).splitlines(), strict=False))
    for key in keys:
        sources = ((around.env.get(key), f"${key}"), (lines.get(key), around.abbreviate_home(path)), (asked.get(key), f"go env {key}"))
        value, origin = next(((value, origin) for value, origin in sources if value), ("", ""))
        for url in _parse_go_setting(key, value):
            yield Find(url, origin)


def _parse_go_setting(key: str, value: str) -> list[str]:
    match key:
        case "GOPROXY":
            parts = [part.strip() for part in re.split(r"[,|]", value)]
            # Anything else is the rest of a URL with a comma in its password.
            return parts if all("://" in part or part in ("direct", "off", "") for part in parts) else []
        case "GOSUMDB":
            # "name", "name+key" or "name+key url": with a url, the name is not asked.
            last = (value.split() or [""])[-1]
            return [last if "://" in last else f"https://{last.partition('+')[0]}/"]
        case _:
            # Repositories, not registries: git+ says so.
            return [f"git+https://{host}/" for pattern in value.split(",") if (host := pattern_host(pattern))]


# --- parsed files


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text) if len(text) <= _TOML_LIMIT else {}
    except (ValueError, RecursionError):
        return {}


def _parse_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _nested_table(value: Any, *path: str) -> dict[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

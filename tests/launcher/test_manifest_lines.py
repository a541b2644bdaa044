"""Lines of the manifest are looked up when they are said: the first line that has the entry, and the file alone where none has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wavegen.launcher.host import RealHost
from wavegen.launcher.manifest_lines import find_line, find_path_line
from wavegen.launcher.rules import PathRule

MANIFEST = """\
# ~/.gitconfig is granted below
runtime:
  sandbox:
    default_allowed_domains: [api.example.com.evil.org, "api.example.com:8443", not-api.example.com]
    paths:
      - {path: ~/.gitconfig.d, access: read}
      - {path: ~/.gitconfig/, access: read}  # secrets
      - ./secrets/x
    deny_read_paths: ['secrets', "/etc/hostname"]
    allowed: [ API.Example.com ]
    domains: ["*.example.com"]
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("api.example.com", "wave.yaml:10"),
        ("api.example.com:8443", "wave.yaml:4"),
        ("*.example.com", "wave.yaml:11"),
        ("example.com", "wave.yaml"),
        ("other.example", "wave.yaml"),
        ("", "wave.yaml"),
    ],
)
def test_a_host_is_found_as_a_word_of_its_own(project: str, entry: str, said: str) -> None:
    assert find_line(RealHost(), project, "wave.yaml", entry) == said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("~/.gitconfig", "wave.yaml:7"),
        ("~/.gitconfig.d", "wave.yaml:6"),
        ("./secrets/x", "wave.yaml:8"),
        ("./secrets", "wave.yaml:9"),
        ("/etc/hostname", "wave.yaml:9"),
        ("~/.ssh", "wave.yaml"),
    ],
)
def test_a_path_is_found_as_the_manifest_writes_it(project: str, path: str, said: str) -> None:
    assert find_path_line(RealHost(), project, PathRule("read", path, (), "wave.yaml")) == said


def test_the_reason_stays_and_defaults_are_left_alone(project: str) -> None:
    assert find_line(RealHost(), project, "wave.yaml: API host of adapter claude", "api.example.com") == "wave.yaml:10: API host of adapter claude"
    assert find_line(RealHost(), project, "default: other users", "other") == "default: other users"


@pytest.mark.parametrize("kind", ["missing", "link", "directory", "pipe", "binary"])
def test_a_manifest_that_cannot_be_read_has_no_lines(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "wave.yaml"
    match kind:
        case "link":
            (tmp_path / "other").write_text("secrets")
            place.symlink_to("other")
        case "directory":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "binary":
            place.write_bytes(b"\xff\0secre")
        case _:
            pass
    assert find_line(RealHost(), str(tmp_path), "wave.yaml", "secrets") == "wave.yaml"

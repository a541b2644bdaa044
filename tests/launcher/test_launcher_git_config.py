"""The launcher reads git's settings as git itself does."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from wavegen.launcher.git_config import named_kind, parse_config, split_command

_HEADERS = ("[core]", "[Core]", '[a "b c"]', '[a "b\\"c"]', '[a "b\\\\"]', "[a.B]", '[a.B "C"]', "[a-1]", '[a ""]', '[a   "x"]', '[a\t"]y"]')
_VALUES = (
    "v",
    " v w ",
    "true",
    "/a/b",
    "~/x",
    "é",
    '"a b"',
    '" # "',
    "a\\nb",
    "\\t",
    "\\b",
    '\\"',
    "\\\\",
    "a\\\nb",
    "a\\\r\nb",
    "a # note",
    "a;b",
    '"#" c',
    'x" "y',
    "",
)
_PIECES = (
    *(*_HEADERS, *_VALUES, "[]", "[a b]", "[a", '[a "b', '[a "b" ]', "[ a]", "[.a]", "key", "hooksPath", "x-Y9", "9x", "_k", " = ", "=", " =", "= "),
    *("\x0b", '"', "\\x", "\\\n", "#", ";", "\n", "\n", "\r\n", "\r", " ", "\t", "\n[core] k = v\n", "\nfsmonitor = ./x\n"),
)


def _write_line(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.1:
        return "".join(chance.choice(_PIECES) for _ in range(chance.randrange(1, 6)))
    if kind < 0.3:
        return chance.choice(_HEADERS) + chance.choice(("", " ", " # note", " k = v", "k=v"))
    if kind < 0.4:
        return chance.choice(("", "# note", "\t; note", "key", "\tkey ", "  "))
    return f"{chance.choice(('', ' ', chr(9)))}{chance.choice(('key', 'K-1', 'x'))}{chance.choice(('=', ' = ', '= ', ' ='))}{chance.choice(_VALUES)}{chance.choice(('', ' ', ' # c', ' ; c'))}"


def _level(value: str) -> str:
    return value.replace("\t", " ").replace("\r", " ")


def _read_by_git(text: bytes, path: Path) -> list[tuple[str, str | None]]:
    path.write_bytes(text)
    done = subprocess.run(["git", "config", "--file", path, "--list", "-z"], capture_output=True, check=False)
    found = [piece.partition(b"\n") for piece in done.stdout.split(b"\0")[:-1]]
    return [(name.decode(), _level(value.decode()) if newline else None) for name, newline, value in found]


def _read_by_us(text: bytes) -> list[tuple[str, str | None]]:
    named = [
        (f"{section}.{'' if sub is None else sub + '.'}{key}" if section or sub is not None else key, value) for section, sub, key, value in parse_config(text)
    ]
    # git before 2.45 makes a blank of each white space in a value.
    return [(name, None if value is None else _level(value)) for name, value in named]


@pytest.mark.parametrize("seed", range(8))
def test_settings_are_those_that_git_reads(seed: int, tmp_path: Path) -> None:
    """Texts made of pieces of the grammar, most of them broken somewhere: the same settings up to the line that git refuses."""
    chance, valid = random.Random(seed), 0
    for _ in range(120):
        text = "".join(_write_line(chance) + chance.choice(("\n", "\n", "\r\n")) for _ in range(chance.randrange(1, 9)))
        if chance.random() < 0.8:
            text = f"[core]\n{text}"
        if chance.random() < 0.1:
            text = "\ufeff" + text
        if chance.random() < 0.2:
            text = text.rstrip("\n")
        expected = _read_by_git(text.encode(), tmp_path / "config")
        assert _read_by_us(text.encode()) == expected, repr(text)
        valid += len(expected)
    assert valid > 200


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[include] path = x", "include"),
        ('[includeIf "gitdir:/x"] path = x', "include"),
        ("[core] hooksPath = x ; note", "place"),
        ("[core]\nhookspath", None),
        ("[core] fsmonitor = ./x", "command"),
        ('[filter "f"] smudge = ./x', "command"),
        ("[alias] st = status", None),
        ("[alias] x = !./x", "command"),
        ("[core] worktree = ../x", None),
        ('[remote "o"] url = ../x', None),
    ],
)
def test_settings_that_name_files(text: str, kind: str | None) -> None:
    """Each kind of setting by one line, as git lets people write it."""
    assert [named_kind(setting) for setting in parse_config(text.encode())] == [kind]


def test_words_of_a_command_that_are_files() -> None:
    """A word is a file for certain where it has a slash or stands behind an interpreter."""
    assert list(split_command("!make test")) == [("make", False), ("test", False)]
    assert [word for word, certain in split_command("!cd a && A=1 python filter.py; './b c'") if certain] == ["filter.py", "./b"]
    assert list(split_command('!"$(git rev-parse --show-toplevel)/x.sh"')) == [("./x.sh", True)]

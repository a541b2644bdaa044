"""Any text survives every target language byte for byte, alone and in what is rendered."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import call, in_place_of_bwrap, project

from wavegen.core import quote

PICKED = (
    "", " ", "a", "'", '"', "''", "'''", '""', "''${x}", "''$", "''\\n", "$", "$$", "${", "${x}", "$${x}", "$$${x}", "\\${x}", "$(touch owned)", "`touch owned`",
    "\\", "a\\", "\\\\", "\\n", "\\x41", "\n", "a\nb", "\n\n", "\r", "\r\n", "\t", "\x1b[31m", "\x01", "\x7f", "\x01" + "7", "\x011", "é", "😀", "\u2028", "\u2029",
    "\x85", "\ufeff", "\u202e", "-", "--", "-n", "-e", "~", "~root", "~/x", "*", "?", "[a]", "{a,b}", "!", "!!", "#", "a # b", "%s", "%n", "&", "|", ";", "<(x)",
    ">x", "=", "a=b", "(", ")", "{{ x }}", "{% x %}", "{@ x @}", "*/", "<!--", "EOF", "a b  c", " lead", "trail ", "\ud7ff", "\U0010ffff",
    "$'x'", '$"x"', "\\'", "';touch owned;'", '";touch owned;"', "a" * 5000, "/nix/store/x", "C:\\x", "@x", "\x1b]0;x\x07", "\x08\x0b\x0c",
)  # fmt: skip
ALPHABET = "ab1 '\"\\$`{}()[]<>|&;!#~*?%=,-_/.:\n\r\t\x1b\x01\x7fé😀\u2028\u00a0"


def strings() -> list[str]:
    """The picked ones and 500 of a fixed seed: none holds NUL, which no target can hold."""
    chance = random.Random(7)
    drawn = ["".join(chance.choices(ALPHABET, k=chance.randint(1, 24))) for _ in range(500)]
    return [*PICKED, *drawn]


@pytest.mark.needs("bash")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_any_text_survives_a_posix_shell(shell: str) -> None:
    line = "".join(f"printf '%s\\0' {quote.quote_posix(text)}\n" for text in strings())
    done = subprocess.run([shell, "-u"], input=line.encode(), env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.split(b"\0")[:-1] == [text.encode() for text in strings()]


@pytest.mark.needs("bash")
def test_any_text_survives_bash(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("".join(f"printf '%s\\0' {quote.quote_bash(text)}  # {quote.escape_comment(text)}\n" for text in strings()), "utf-8")
    done = subprocess.run(["bash", "-u", str(script)], cwd=tmp_path, env={"LC_ALL": "C"}, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.split(b"\0")[:-1] == [text.encode() for text in strings()]
    assert [p.name for p in tmp_path.iterdir()] == ["script.sh"]


@pytest.mark.needs("bash")
def test_any_text_survives_bash_in_an_array_and_in_any_locale(tmp_path: Path) -> None:
    words = " ".join(quote.quote_bash(text) for text in strings())
    for locale in ("C", "C.UTF-8", "POSIX"):
        done = subprocess.run(
            ["bash", "-us"], input=f"a=({words}); printf '%s\\0' \"${{a[@]}}\"".encode(), env={"LC_ALL": locale}, capture_output=True, check=False
        )
        assert done.stdout.split(b"\0")[:-1] == [text.encode() for text in strings()]


@pytest.mark.needs("nix")
def test_any_text_survives_nix(tmp_path: Path) -> None:
    source = tmp_path / "strings.nix"
    source.write_text("[\n" + "".join(f"{quote.quote_nix(text)}  # {quote.escape_comment(text)}\n" for text in strings()) + "]\n", "utf-8", newline="")
    assert nix("--eval", "--strict", "--json", str(source), tmp_path=tmp_path) == strings()


@pytest.mark.needs("nix")
def test_any_text_survives_json_into_nix(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(quote.json_text({"strings": strings()}), "utf-8", newline="")
    (tmp_path / "read.nix").write_text("(builtins.fromJSON (builtins.readFile ./data.json)).strings")
    assert nix("--eval", "--strict", "--json", str(tmp_path / "read.nix"), tmp_path=tmp_path) == strings()


def nix(*args: str, tmp_path: Path) -> object:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NIX_STATE_DIR": str(tmp_path / "state"), "NIX_REMOTE": "dummy://"}
    done = subprocess.run(["nix-instantiate", *args], env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_any_text_survives_json() -> None:
    assert [json.loads(quote.json_text(text)) for text in strings()] == strings()
    nested = {text: [text, {"deep": [text]}] for text in strings()}
    assert json.loads(quote.json_text(nested)) == nested
    assert list(json.loads(quote.json_text(nested))) == list(nested)  # in the order given


def test_any_text_survives_toml() -> None:
    text = "".join(f"s{number} = {quote.quote_toml(text)}  # {quote.escape_comment(text)}\n" for number, text in enumerate([*strings(), "a\0b"]))
    assert list(tomllib.loads(text).values()) == [*strings(), "a\0b"]


@pytest.mark.parametrize("function", [quote.quote_bash, quote.quote_nix, quote.quote_toml, quote.escape_comment], ids=lambda function: function.__name__)
def test_quoted_text_is_one_line(function: Callable[[str], str]) -> None:
    assert not [text for text in strings() if "\n" in function(text) or "\r" in function(text)]


def test_text_in_a_comment_cannot_end_it_or_turn_the_terminal() -> None:
    assert all(quote.escape_comment(text).isprintable() for text in strings())
    assert quote.escape_comment("a\nb \x1b[2J \u2028 é") == "a\\nb \\x1b[2J \\u2028 é"


def test_nul_is_refused_where_nothing_can_hold_it() -> None:
    for function in (quote.quote_bash, quote.quote_nix):
        with pytest.raises(ValueError, match="NUL"):
            function("a\0b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain-1.0_/x:y=z", "plain-1.0_/x:y=z", id="plain"),
        pytest.param("", "''", id="empty"),
        pytest.param("a b", "'a b'", id="space"),
        pytest.param("it's", "'it'\"'\"'s'", id="quote"),
        pytest.param("~/x", "'~/x'", id="tilde"),
        pytest.param("a\n1", "$'a\\n1'", id="newline"),
        pytest.param("\x1b1", "$'\\0331'", id="escape-before-a-digit"),
    ],
)
def test_bash_words_are_readable(text: str, expected: str) -> None:
    assert quote.quote_bash(text) == expected


def test_json_has_one_line_for_each_innermost_object() -> None:
    value = {"a": [{"x": 1, "y": []}, {"x": 2}], "b": {}, "c": [1, 2], "d": {"e": {"f": "é"}}}
    assert quote.json_text(value) == (
        '{\n  "a": [\n    {"x": 1, "y": []},\n    {"x": 2}\n  ],\n  "b": {},\n  "c": [1, 2],\n  "d": {\n    "e": {"f": "é"}\n  }\n}\n'
    )


# --- end to end


def names() -> list[str]:
    """Those that can name a file of the project, and are no pattern."""
    usable = [t for t in strings() if t.strip() and not set(t) & set("/*?[") and len(t.encode()) < 200 and t not in (".", "..") and t[0] != "~"]
    return sorted(set(usable))


def hostile_project(tmp_path: Path) -> Path:
    """A project whose manifest has a hostile string wherever any text may stand."""
    name = "n ${x} $${y} ''${z} $(touch owned) `touch owned` \" ' \\ é😀 \n\r\t\u2028 {{ x }} # */"
    half = len(names()) // 2
    manifest = {
        "metadata": {"name": name, "description": name},
        "adapters": {name: {"binary": name, "default_permissions": {"deny": [f"Bash({' '.join(name.split())})"]}}},
        "personas": {f"p{i}": {"adapter": name, "description": text, "system_prompt": text, "model": text} for i, text in enumerate(names()[::40])},
        "runtime": {
            "sandbox": {
                "unfree": [name],
                "paths": [{"path": text, "access": "read"} for text in names()[:half]],
                "deny_read_paths": [*names()[half:], *(f"~/{text}" for text in names())],
                "shells": {"a" * 64: {}, "0-_Z": {"paths": [{"path": f"/opt/{text}", "access": "write", "optional": True} for text in names()]}},
            },
        },
    }
    # JSON is YAML, but for line separators that YAML would fold and surrogate pairs that it does not join.
    text = json.dumps(manifest, ensure_ascii=False, indent=0)
    for raw in "\u2028\u2029\x85\x7f\ufeff":
        text = text.replace(raw, f"\\u{ord(raw):04x}")
    root = project(tmp_path, text)
    done = call("render", cwd=root)
    assert done.status == 0, done.output[:3000]
    for name in names():
        (root / name).write_text(name, "utf-8")
    return root


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_project(tmp_path_factory.mktemp("hostile"))


@pytest.mark.needs("bash")
def test_wrappers_of_a_hostile_manifest_are_sound_bash(hostile: Path) -> None:
    for script in sorted((hostile / ".wavegen/bin").iterdir()):
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


@pytest.mark.needs("shellcheck")
def test_wrappers_of_a_hostile_manifest_pass_shellcheck(hostile: Path) -> None:
    scripts = sorted(str(script) for script in (hostile / ".wavegen/bin").iterdir())
    assert len(scripts) == 5 + len(names()[::40])
    # SC1003 takes a backslash at the end of single quotes for a mistake.
    done = subprocess.run(
        ["shellcheck", "--norc", "--shell=bash", "--exclude=SC1003", *scripts],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.needs("nix")
def test_the_flake_of_a_hostile_manifest_says_what_the_manifest_says(hostile: Path, tmp_path: Path) -> None:
    for file in ("flake.nix", ".wavegen/shells.nix"):
        done = subprocess.run(
            ["nix-instantiate", "--parse", str(hostile / file)], env={**os.environ, "NIX_REMOTE": "dummy://"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    plan = json.loads((hostile / ".wavegen/plan.json").read_text("utf-8"))
    expression = f"{{ inherit (import {hostile}/flake.nix) description; plan = builtins.fromJSON (builtins.readFile {hostile}/.wavegen/plan.json); }}"
    read = nix("--eval", "--strict", "--json", "--expr", expression, tmp_path=tmp_path)
    assert read == {"description": plan["name"], "plan": plan}
    assert plan["unfree"] == [plan["name"]]


@pytest.mark.needs("bash", "bwrap")
def test_the_wrapper_of_a_hostile_manifest_hands_each_path_to_bwrap_unharmed(hostile: Path, tmp_path: Path) -> None:
    """A bwrap that only tells what it was given stands in for the real one."""
    told = tmp_path / "bwrap"
    told.write_text("""#!/bin/sh
for word; do [ "$before" != --args ] || cat "/proc/self/fd/$word"; before=$word; done
printf '%s\\0' "$@"
""")
    told.chmod(0o755)
    argv = [*in_place_of_bwrap(told), str(hostile / ".wavegen/bin/default"), "--", "true", "$(touch owned)"]
    done = subprocess.run(argv, cwd=hostile, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    argv = [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]
    shown = {place for option, source, place in zip(argv, argv[1:], argv[2:], strict=False) if option == "--ro-bind" and source == place}
    hidden = {place for option, source, place in zip(argv, argv[1:], argv[2:], strict=False) if (option, source) == ("--ro-bind", "/dev/null")}
    half = len(names()) // 2
    assert {f"{hostile}/{name}" for name in names()[:half]} <= shown
    assert {f"{hostile}/{name}" for name in names()[half:]} <= hidden
    assert argv[-3:] == ["--", "true", "$(touch owned)"]
    assert not list(hostile.parent.rglob("owned"))

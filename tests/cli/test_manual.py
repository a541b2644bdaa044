"""Pages for man: they say what --help says, are right roff, and are the same each time."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import click
import pytest
from helpers import call, wavegen

from wavegen import VERSION
from wavegen.cli.main import cli
from wavegen.cli.manual import Page, render_roff

PLAIN = {"MANWIDTH": "1000", "MANPAGER": "cat", "LC_ALL": "C.UTF-8", "GROFF_NO_SGR": "1", "MAN_KEEP_FORMATTING": ""}


def commands(command: click.Command = cli, *name: str) -> dict[tuple[str, ...], click.Command]:
    found = {name: command}
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            found |= commands(one, *name, below)
    return found


ALL = commands()


def shown(source: str) -> str:
    """A page as a terminal shows it, in one long line for each paragraph."""
    done = subprocess.run(
        ["man", "--warnings", "--no-hyphenation", "--no-justification", "-l", "-"],
        input=source,
        env={**os.environ, **PLAIN},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return re.sub(r".\x08", "", done.stdout)


@pytest.mark.needs("man")
@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_a_page_shows_what_help_says(name: tuple[str, ...], tmp_path: Path) -> None:
    done = call("manual", *name, cwd=tmp_path)
    assert done.status == 0, done.output
    page = " ".join(shown(done.stdout).split())
    command = ALL[name]
    assert page.startswith(f"WAVEGEN{''.join(f'-{word.upper()}' for word in name)}(1)")
    for param in command.params:
        if isinstance(param, click.Option):
            assert f"{', '.join(param.opts)} " in page
            assert " ".join((param.help or "").split()) in page
    for paragraph in re.split(r"\n{2,}", (command.help or "").replace("\b\n", "")):
        assert " ".join(re.sub("^\\s*Exit status: ", "", paragraph).split()) in page
    assert "EXIT STATUS" in page or isinstance(command, click.Group)
    assert f"wavegen {VERSION}" in page


@pytest.mark.needs("man")
def test_what_keeps_its_lines_keeps_them(tmp_path: Path) -> None:
    lines = [line.strip() for line in shown(call("manual", "run", cwd=tmp_path).stdout).splitlines()]
    assert "wavegen run --persona navigator -- -p 'Where is the parser?'" in lines


@pytest.mark.needs("man")
def test_no_character_of_a_text_is_roff(tmp_path: Path) -> None:
    """What may be written in a help text arrives as it is; nothing of it is a request, an escape or a quotation mark."""
    nasty = r""".so /etc/passwd \n(.g \fB '"quoted" -x --long ~/a^b `c` 10% \\ é → "'"""
    page = Page(name="wavegen x", summary=nasty, usage="", text=f"{nasty}\n\n\b\n{nasty}\n.so x", epilog="", options=((nasty, nasty),), verbs=(("'v", ".br"),))
    text = shown(render_roff(page, version='1"', all_names=("wavegen x", "wavegen")))
    assert text.count(nasty) == 5
    assert "'v" in text
    assert ".br" in text


@pytest.mark.needs("mandoc")
@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_a_page_passes_mandoc(name: tuple[str, ...], tmp_path: Path) -> None:
    source = call("manual", *name, cwd=tmp_path).stdout
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=source, capture_output=True, text=True, check=False)
    # There is none, so that the bytes are the same each day.
    assert [line for line in done.stdout.splitlines() if 'missing date, using ""' not in line] == []


def test_all_pages_are_written_and_the_same_each_time(tmp_path: Path) -> None:
    written = []
    for number, env in enumerate(({"LC_ALL": "C", "COLUMNS": "40", "PYTHONHASHSEED": "1"}, {"LC_ALL": "C.UTF-8", "COLUMNS": "200", "PYTHONHASHSEED": "2"})):
        done = wavegen("manual", "--directory", f"{number}/man1", cwd=tmp_path, env=env)
        assert done.status == 0, done.output
        assert done.stdout.splitlines()[0] == f"wrote {number}/man1/wavegen.1"
        written.append({file.name: file.read_bytes() for file in (tmp_path / f"{number}/man1").iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {f"{'-'.join(('wavegen', *name))}.1" for name in ALL}
    assert written[0]["wavegen-seccomp-learn.1"].decode() == call("manual", "seccomp", "learn", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("nothing",), 2, "there is no command 'nothing' (wavegen --help lists them)"),
        (("run", "more"), 2, "there is no command 'run more'"),
        (("--directory", ""), 2, "the name of the directory is empty"),
        (("--directory", "there", "run"), 2, "--directory writes the pages of all commands (leave the verb out)"),
        (("--directory", "/proc/none"), 3, "/proc/none cannot be written: No such file or directory"),
        (("--directory", "file"), 3, "file cannot be written: File exists"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes(args: tuple[str, ...], status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = wavegen("manual", *args, cwd=tmp_path)
    assert (done.status, done.stdout) == (status, "")
    assert f"wavegen: error: {said}" in done.stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_help_says_how_a_command_ends(name: tuple[str, ...], tmp_path: Path) -> None:
    text = call(*name, "--help", cwd=tmp_path).stdout
    if name and isinstance(ALL[name], click.Group):
        return
    assert len(re.findall(r"xit status", text)) == 1


def test_the_version_is_said(tmp_path: Path) -> None:
    assert wavegen("--version", cwd=tmp_path).stdout == f"wavegen, version {VERSION}\n"

"""The words of a GNU find that tells whether an audit is worth its time: whether anything changed that one would look at.

From the same table as the audit's own, of which this module is given the text: code of the package does not load what runs beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

_SIGNS = "\\*?["


def find_words(table: str, project: str = "$project", marker: str = "$marker") -> tuple[str, ...]:
    """The command, a word each: it prints one path or nothing. `table` is the text of runtime/audit_table.py.

    To be run with LC_ALL=C. Something may have changed where it prints, writes an error or fails; also where it prints nothing and a file of the
    fence's own is gone. Nothing is left out of the walk: git reads .git, and a pointer may lead anywhere in it. A directory that changed may be
    one that was moved there, with everything in it as old as it was; a program that changed may have got capabilities. What it cannot know is which
    files git's settings name: of these it sees the executable ones, and those that were replaced.
    """
    literals = _literals(table)
    tests = ["-type d", "-type l", "-type p", "-type s", "-type b", "-type c", "-perm /6111"]
    words = [word for test in tests for word in ("-o", *test.split())]
    words += [word for name in ("-*", "*[! -~]*") for word in ("-o", "-name", name)]
    words += [word for test, glob in dict.fromkeys(_globs(literals)) for word in ("-o", test, glob)]
    # -printf of nothing: find would else ask for the names first, which are many, and only then whether anything changed (14 times as long).
    # -noleaf: some file systems do not count the directories in a directory.
    return ("find", "-P", project, "-noleaf", "-mindepth", "1", "-newercm", marker, "-printf", "", "(", *words[1:], ")", "-print", "-quit")


def _literals(table: str) -> Mapping[str, Any]:
    found = {}
    for node in ast.parse(table).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in ("ROWS", "GIT_FILES", "GIT_FOLDERS"):
                found[name] = ast.literal_eval(value)
    return found


def _globs(literals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "-iname", ".git"
    for name in literals["GIT_FILES"]:
        yield "-iname", name
    for name in literals["GIT_FOLDERS"]:
        yield "-ipath", f"*/{name}/*"
    for row in literals["ROWS"]:
        for pattern in row[2]:
            plain = _escaped(pattern.lstrip("/"))
            if pattern.endswith("/**"):
                yield "-ipath", f"*/{plain[:-1]}"
            elif "/" in pattern:
                yield "-ipath", f"*/{plain}"
            else:
                yield "-iname", plain


def _escaped(pattern: str) -> str:
    """Only the star has a meaning in the table."""
    return "".join(f"\\{char}" if char in _SIGNS and char != "*" else char for char in pattern)

"""What was found, for people, for programs, and as a script that a person reads and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from wavegen.core.errors import one_line
from wavegen.core.terminal import Style, apply_style
from wavegen.doctor import VERSION, Check, State, exit_code_of_checks
from wavegen.explain.known_errors import Trouble

_STYLES = {State.OK: Style.GOOD, State.WEAKER: Style.WARNING, State.MISSING: Style.BAD}
_OWN = ("export ", "unset ", "nix develop")
"""What is for the shell of whoever reads it: a script that ends changes nothing by it."""
_FIRST, _SECOND = 8, 18
"""Columns of the states and of the names."""


def render_check_table(checks: Iterable[Check], *, colour: bool = False) -> Iterator[str]:
    """Lines: one check a line; below it what it costs, what mends it, and the commands that do."""
    for group, members in groupby(checks, key=lambda check: check.group):
        yield group
        for check in members:
            yield from _check_lines(check, colour=colour)


def _check_lines(check: Check, *, colour: bool) -> Iterator[str]:
    state = apply_style(f"{check.state.value:<{_FIRST}}", _STYLES[check.state], colour=colour)
    yield f"  {state}{one_line(check.name):<{_SECOND}}  {one_line(check.found)}"
    indent = " " * (2 + _FIRST)
    if check.state is State.OK:
        return
    if check.costs:
        concerned = f" ({', '.join(check.shells)})" if check.shells and check.state is State.WEAKER and check.shells[0] not in check.costs else ""
        yield one_line(f"{indent}costs: {check.costs}{concerned}")
    if check.remedy:
        yield one_line(f"{indent}mend:  {check.remedy}")
    for trouble in check.troubles:
        yield one_line(f"{indent}known: {trouble.cause}")
    for command in check.commands:
        yield from (f"{indent}  $ {one_line(line)}" if number == 0 else f"{indent}    {one_line(line)}" for number, line in enumerate(command.split("\n")))


def summary_line(checks: Iterable[Check], *, manifest: bool) -> str:
    """The last line: what the exit status says."""
    found = tuple(checks)
    needed = "this manifest needs" if manifest else "the shells of every manifest need"
    match exit_code_of_checks(found):
        case 0:
            return f"all is there that {needed}"
        case 1:
            return f"every shell can start, but something that {needed} is weaker here (wavegen doctor --fix-hints prints what mends it)"
        case _:
            return f"something is missing that {needed}: some cannot start here (wavegen doctor --fix-hints prints what mends it)"


def checks_as_json(checks: Iterable[Check], *, manifest: str) -> dict[str, object]:
    """The document. Keys are never taken away or change their meaning within a version; new ones may come.

    version: 1. manifest: its name; null where there is none. exit_code: 0, 1 or 3. checks: in the order of the table, each with
    name (unique), group, state (ok, weaker, missing), found, costs, remedy (texts, empty where there is nothing to say), commands
    (lines of a shell script), shells (those of the manifest that cannot start, where the state is missing, or hold less),
    troubles (names of recognised messages, as --message knows them).
    """
    found = tuple(checks)
    return {
        "version": VERSION,
        "manifest": one_line(manifest) if manifest else None,
        "exit_code": exit_code_of_checks(found),
        "checks": [
            {
                "name": one_line(check.name),
                "group": check.group,
                "state": check.state.value,
                "found": one_line(check.found),
                "costs": one_line(check.costs),
                "remedy": one_line(check.remedy),
                "commands": list(check.commands),
                "shells": [one_line(name) for name in check.shells],
                "troubles": [trouble.name for trouble in check.troubles],
            }
            for check in found
        ],
    }


def render_fix_script(checks: Iterable[Check]) -> Iterator[str]:
    """The commands that mend, in order: first what keeps shells of the manifest from starting, then what makes them weaker."""
    yield "#!/bin/sh"
    yield "# Printed by wavegen doctor --fix-hints. Nothing of it was run: read it first, and leave out what you do not want."
    yield "set -eu"
    said: set[str] = set()
    order = sorted((check for check in checks if check.state is not State.OK), key=lambda check: (not check.shells, check.state is not State.MISSING))
    for check in order:
        new = [command for command in check.commands if command not in said]
        said |= set(new)
        if not new and not check.shells:
            continue  # nothing to do about it, and nothing waits for it
        yield ""
        yield one_line(f"# {check.name}: {check.found}")
        yield from (one_line(f"# {line}") for line in (check.costs, check.remedy) if line)
        # What the manifest does not need is nobody's to switch on by running this whole.
        yield from (line for command in new for line in ((command,) if check.shells and not command.startswith(_OWN) else _comment_out(command)))


def _comment_out(command: str) -> Iterator[str]:
    yield from (line if line.startswith("#") else f"# {line}" for line in command.split("\n"))


def describe_troubles(troubles: Iterable[Trouble]) -> Iterator[str]:
    """What a message means."""
    for number, trouble in enumerate(troubles):
        if number:
            yield ""
        yield f"{trouble.name}" + (f" ({trouble.program})" if trouble.program else "")
        yield f"  cause: {trouble.cause}"
        yield f"  mend:  {trouble.remedy}"
        yield from (f"    $ {command}" for command in trouble.commands)


def troubles_json(troubles: Iterable[Trouble]) -> dict[str, object]:
    """The same for programs: version 1, and troubles with name, program, cause, remedy and commands."""
    listed = [{"name": one.name, "program": one.program, "cause": one.cause, "remedy": one.remedy, "commands": list(one.commands)} for one in troubles]
    return {"version": VERSION, "troubles": listed}

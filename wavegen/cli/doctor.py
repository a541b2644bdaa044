"""`wavegen doctor`."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from wavegen.cli.messages import MANIFEST, print_program_message
from wavegen.core.terminal import should_colour

_MESSAGE_LIMIT = 1 << 20


@click.command()
@MANIFEST
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--fix-hints", is_flag=True, help="Print only the commands that mend, as a shell script to be read; nothing is run.")
@click.option("--message", metavar="TEXT", help="Say what an error message means, and what to do; `-` reads it from the input.")
def doctor(manifest: str | None, *, as_json: bool, fix_hints: bool, message: str | None) -> None:
    """Say what this machine can hold of the manifest, and why not.

    Namespaces, mounts, filters and engines are tried, not guessed; nothing is changed, left behind, or asked of the network.
    Without a manifest it looks at the machine alone.

    \b
      wavegen doctor
      wavegen doctor --fix-hints >mend.sh
      wavegen doctor --message 'bwrap: setting up uid map: Permission denied'
      nix develop 2>&1 | wavegen doctor --message -

    Exit status: 0 all is there that the manifest needs, 1 something of it holds less here, 3 a shell of it cannot start here.
    With --message: 0 the message is known, 1 it is not.
    """
    from wavegen.cli.progress import Waiting
    from wavegen.core.errors import UsageError
    from wavegen.core.quote import json_text
    from wavegen.doctor import collect, exit_code_of_checks, show
    from wavegen.doctor.machine import ThisMachine

    if as_json and fix_hints:
        raise UsageError("--fix-hints prints a script, not JSON", "leave one of them out")
    if message is not None:
        if fix_hints:
            raise UsageError("--message asks about a text, --fix-hints about this machine", "leave one of them out")
        _explain_message(message, as_json=as_json)
    with Waiting("looking") as waiting:
        loaded = collect.load_project_if_present(manifest)
        checks = collect.run_all_checks(ThisMachine(avoided=collect.writable_directories(loaded)), loaded, waiting.set_activity)
    if as_json:
        click.echo(json_text(show.checks_as_json(checks, manifest=loaded.plan.manifest if loaded else "")), nl=False)
    elif fix_hints:
        for line in show.render_fix_script(checks):
            click.echo(line)
    else:
        colour = should_colour(sys.stdout)
        for line in show.render_check_table(checks, colour=colour):
            click.echo(line, color=colour or None)
        print_program_message("note", show.summary_line(checks, manifest=loaded is not None))
    sys.exit(exit_code_of_checks(checks))


def _explain_message(message: str, *, as_json: bool) -> NoReturn:
    from wavegen.core.errors import UsageError
    from wavegen.core.quote import json_text
    from wavegen.doctor import show
    from wavegen.explain.known_errors import recognise_troubles

    text = message
    if message == "-":
        text = sys.stdin.buffer.read(_MESSAGE_LIMIT).decode("utf-8", "replace") if sys.stdin else ""
    if not text.strip():
        raise UsageError("the message is empty", "give the text of an error, or - to read it")
    troubles = recognise_troubles(text)
    if as_json:
        click.echo(json_text(show.troubles_json(troubles)), nl=False)
    else:
        for line in show.describe_troubles(troubles):
            click.echo(line)
    if not troubles:
        print_program_message("note", "this message is not known; wavegen doctor looks at the machine")
    sys.exit(0 if troubles else 1)

"""`wavegen audit`."""

from __future__ import annotations

import sys

import click

from wavegen.cli.messages import MANIFEST, print_program_message
from wavegen.core.terminal import should_colour


@click.command()
@MANIFEST
@click.option("--all", "everything", is_flag=True, help="All files that the host would run or follow and that were never accepted, however old.")
@click.option("--severity", type=click.Choice(["critical", "high", "medium", "low"]), default="low", show_default=True, help="Only what is as bad, or worse.")
@click.option("--accept", is_flag=True, help="Take what is there now for known, after you have read it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def audit(manifest: str | None, *, everything: bool, severity: str, accept: bool, as_json: bool) -> None:
    """Name what shells left in the project that the host would run or follow later.

    Mounts cannot keep a shell from making what is not there: hooks of a new repository, an .envrc, a task, a setuid
    program, a link that leads out. Compared with the entry of the first session that was not accepted yet. Nothing is
    run for it, git least of all.

    Exit status: 0 nothing, 1 findings, 3 something could not be looked at.
    """
    from wavegen.audit import findings as left_behind
    from wavegen.cli.progress import Waiting
    from wavegen.project import project_root
    from wavegen.project.state_dir import state_directory

    root, _ = project_root.find_project(manifest)
    place = state_directory(root)
    with Waiting("looking"):
        found = left_behind.collect_audit_findings(root, place, everything=everything)
    shown = left_behind.at_least(found.findings, severity)
    if as_json:
        click.echo(found.text, nl=False)
    else:
        colour = should_colour(sys.stdout)
        for line in left_behind.render_finding_table(shown, colour=colour):
            click.echo(line, color=colour or None)
        if not shown:
            print_program_message("note", "nothing new since the last audit (--all lists what is there)")
    if accept:
        left_behind.accept_current_state(root, place)
        print_program_message("note", "what is there now is known")
    elif shown and not as_json:
        print_program_message("note", "after you have read it: wavegen audit --accept")
    sys.exit(found.audit_exit_status if shown or not found.complete else 0)

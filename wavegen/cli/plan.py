"""`wavegen plan`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from wavegen.cli.messages import MANIFEST, print_problems
from wavegen.core.terminal import Style, apply_style, should_colour

if TYPE_CHECKING:
    from wavegen.explain.plan_diff import Change
    from wavegen.project.loader import Project


@click.command()
@MANIFEST
@click.option("-s", "--shell", "shells", metavar="SHELL", multiple=True, help="This shell, or persona-NAME, alone; may be repeated.")
@click.option("-p", "--persona", "personas", metavar="NAME", multiple=True, help="This persona alone; may be repeated.")
@click.option("-v", "--verbose", is_flag=True, help="Also show defaults that no line of the manifest causes.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON; with --diff, the changes.")
@click.option("--diff", "revision", metavar="REV", help="What the manifest loosens and tightens compared with that of a git revision.")
@click.option("--fail-on-loosening", is_flag=True, help="With --diff: exit 1 where something is loosened, or cannot be told.")
def plan(  # noqa: PLR0913  one for each option
    manifest: str | None,
    shells: tuple[str, ...],
    personas: tuple[str, ...],
    revision: str | None,
    *,
    verbose: bool,
    as_json: bool,
    fail_on_loosening: bool,
) -> None:
    """Show what each shell may touch, by which line of the manifest, and what the fence cannot hold.

    With --diff REV, what a change of the manifest loosens, first, and tightens: the policies are compared, not the
    texts, so that a line that moved is no change. The manifest of REV is read by git, and nothing of it is run.

    \b
      wavegen plan --shell restricted
      wavegen plan --diff origin/main --fail-on-loosening
    """
    from dataclasses import replace

    from wavegen import backends
    from wavegen.backends.project.plan_files import plan_json
    from wavegen.core.errors import UsageError
    from wavegen.core.quote import json_text
    from wavegen.explain.plan_table import render_plan_table
    from wavegen.project import loader, wrappers
    from wavegen.verify.run import select_policies

    if fail_on_loosening and revision is None:
        raise UsageError("--fail-on-loosening compares with a revision", "write --diff REV, too")
    loaded = loader.load_project(manifest, accept=True)
    if revision is not None:
        if shells or personas or verbose:
            raise UsageError("--diff compares all shells and personas", "leave --shell, --persona and --verbose out")
        _print_plan_diff(loaded, revision, as_json=as_json, fail=fail_on_loosening)
        return
    shown = loaded.plan
    if shells or personas:
        fences = select_policies(shown, (*shells, *(wrappers.persona_of(shown, name).name for name in personas)), personas=True)
        shown = replace(
            shown, shells=tuple(shell for shell in shown.shells if shell in fences), personas=tuple(one for one in shown.personas if one.fence in fences)
        )
    if as_json:
        click.echo(json_text(plan_json(shown)), nl=False)
        print_problems(loaded.plan.notes, backends.collect_gaps(shown))
        return
    colour = should_colour(sys.stdout)
    for line in render_plan_table(shown, backends.collect_gaps(shown), verbose=verbose, colour=colour):
        click.echo(line, color=colour or None)
    print_problems(loaded.plan.notes, ())


def _print_plan_diff(loaded: Project, revision: str, *, as_json: bool, fail: bool) -> None:
    from wavegen.core.quote import json_text
    from wavegen.explain import plan_diff
    from wavegen.explain.plan_at_revision import load_plan_at_revision

    changes = plan_diff.compare_plans(load_plan_at_revision(loaded, revision), loaded.plan)
    if as_json:
        click.echo(json_text({"version": 1, "revision": revision, "changes": [_change_as_json(change) for change in changes]}), nl=False)
    else:
        colour = should_colour(sys.stdout)
        for change in changes:
            click.echo(_format_change(change, colour=colour), color=colour or None)
        if not changes:
            click.echo("nothing is loosened, tightened or changed")
    sys.exit(1 if fail and any(change.way is not plan_diff.Way.TIGHTENS for change in changes) else 0)


def _change_as_json(change: Change) -> dict[str, Any]:
    return {
        "way": change.way.value,
        "where": change.where,
        "what": change.what,
        "before": change.before,
        "after": change.after,
        "origin": str(change.origin) if change.origin else None,
    }


def _format_change(change: Change, *, colour: bool) -> str:
    from wavegen.core.errors import one_line
    from wavegen.explain.plan_diff import Way

    styles = {Way.LOOSENS: Style.BAD, Way.CHANGES: Style.WARNING, Way.TIGHTENS: Style.GOOD}
    way = apply_style(f"{change.way.value:<8}", styles[change.way], colour=colour)
    return f"{way}  {one_line(f'{change.where}: {change.what}: {change.before} -> {change.after}')}" + (
        f"  # {one_line(str(change.origin))}" if change.origin else ""
    )

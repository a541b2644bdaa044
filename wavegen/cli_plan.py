"""`wavegen plan`."""

from __future__ import annotations

import click

from wavegen.cli_messages import MANIFEST, show


@click.command()
@MANIFEST
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON: what .wavegen/plan.json holds.")
def plan(manifest: str | None, *, as_json: bool) -> None:
    """Show what each shell may touch, by which line of the manifest, and what the fence cannot hold."""
    from wavegen import backends, project
    from wavegen.backends.tree import plan_json
    from wavegen.quote import json_text
    from wavegen.report import table

    loaded = project.load(manifest, accept=True)
    gaps = backends.gaps(loaded.plan)
    if as_json:
        click.echo(json_text(plan_json(loaded.plan)), nl=False)
    else:
        for line in table(loaded.plan):
            click.echo(line)
    show(loaded.plan.notes, gaps)

"""`wavegen verify`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from wavegen import VERSION
from wavegen.cli.messages import MANIFEST
from wavegen.core.terminal import should_colour

if TYPE_CHECKING:
    from wavegen.verify.model import Report


@click.command()
@MANIFEST
@click.option("-s", "--shell", "shells", metavar="SHELL", multiple=True, help="A shell, or persona-NAME; may be repeated. Default: all shells with a fence.")
@click.option("--personas", is_flag=True, help="The fences of all personas, too.")
@click.option(
    "--via",
    type=click.Choice(["wrapper", "nix", "docker"]),
    default="wrapper",
    show_default=True,
    help="Enter by .wavegen/bin, by nix develop, or as a container: by .wavegen/docker (podman where WAVEGEN_CONTAINER says so).",
)
@click.option("--under", metavar="DIR", help="Where the throw-away project is made. Default: beside the project, else where temporary files are.")
@click.option("-v", "--verbose", is_flag=True, help="Every probe in full, also those that held.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--junit", metavar="FILE", help="Write a JUnit report.")
@click.option("--sarif", metavar="FILE", help="Write a SARIF report, for code scanning.")
@click.option("--html", metavar="FILE", help="Write one self-contained page.")
@click.option("--baseline", metavar="FILE", help="The JSON of an earlier run: fail on anything that got worse.")
def verify(  # noqa: PLR0913  one for each option
    manifest: str | None,
    shells: tuple[str, ...],
    via: str,
    under: str | None,
    *,
    personas: bool,
    verbose: bool,
    as_json: bool,
    junit: str | None,
    sarif: str | None,
    html: str | None,
    baseline: str | None,
) -> None:
    """Prove that the fences hold: enter each shell, try to get out, and report what came of it.

    Everything is tried in a throw-away copy of what is rendered, with a throw-away home in which canaries are planted:
    nothing of yours is read or changed. The same is tried in yolo, as a control: what is out of reach there too proves
    nothing.

    \b
      HELD          reachable outside, stopped inside; or works in both, as it should
      BROKEN        reached inside though the policy forbids it; or does not work, though it should
      INCONCLUSIVE  out of reach outside too, a tool is missing, or no answer in time
      OPEN          the policy lets it through, or a gap says so

    Exit status: 0 all held, 1 something is broken or worse than the baseline, 3 something could not be checked.
    """
    from dataclasses import replace

    from wavegen.cli.progress import Waiting
    from wavegen.core.quote import json_text
    from wavegen.project import loader
    from wavegen.verify.reports.baseline import find_regressions, parse_baseline
    from wavegen.verify.reports.json_report import as_json as json_report
    from wavegen.verify.reports.table import render_verdict_table
    from wavegen.verify.run import verify_project as run_probes
    from wavegen.verify.score import exit_code

    loaded = loader.load_project(manifest)
    # An empty name is a variable that was not set: no reason to compare with nothing, or to write nothing.
    before = parse_baseline(_read_json(baseline)) if baseline is not None else ()
    reports = {file: how for file, how in ((junit, _render_junit), (sarif, _render_sarif), (html, _render_html)) if file is not None}
    for file in reports:
        _check_writable(file, loaded.root)
    with Waiting("verifying") as shown:
        report = run_probes(loaded, shells=shells, personas=personas, via=via, under=under, progress=shown.show_count)
    report = replace(report, worse=find_regressions(before, report, only=shells))
    if as_json:
        click.echo(json_text(json_report(report)), nl=False)
    else:
        colour = should_colour(sys.stdout)
        for line in render_verdict_table(report, verbose=verbose, colour=colour):
            click.echo(line, color=colour or None)
    for file, how in reports.items():
        _write_report(file, how(report))
    sys.exit(exit_code(report))


def _check_writable(path: str, root: str) -> None:
    """Before the work rather than after it; and never over what the project is made of."""
    from wavegen.core.errors import MachineError, UsageError

    if not path:
        raise UsageError("the name of a report is empty", "name a file, or leave the option out")
    directory = os.path.dirname(os.path.abspath(path))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise MachineError(f"{path} cannot be written: {directory} cannot be", "name a file in a directory of yours")
    real = os.path.realpath(path)
    fence = [os.path.join(root, name) for name in ("wave.yaml", "wave.sandbox.yaml", "flake.nix", "flake.lock", ".wavegen")]
    if os.path.exists(real) and any(real == name or real.startswith(f"{name}/") for name in fence):
        raise UsageError(f"{path} is part of the fence", "name another file")


def _render_junit(report: Report) -> str:
    from wavegen.verify.reports.junit import as_junit

    return as_junit(report)


def _render_sarif(report: Report) -> str:
    from wavegen.core.quote import json_text
    from wavegen.verify.reports.sarif import as_sarif

    return json_text(as_sarif(report, VERSION))


def _render_html(report: Report) -> str:
    from wavegen.verify.reports.html import as_html

    return as_html(report)


def _read_json(path: str) -> Any:
    import json

    from wavegen.core.errors import UsageError

    if not path:
        raise UsageError("the name of the baseline is empty", "name a file, or leave --baseline out")
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as failed:
        raise UsageError(f"{path} cannot be read: {failed.strerror}", "write it with `wavegen verify --json >FILE`") from None
    except ValueError:
        raise UsageError(f"{path} is no JSON", "write it with `wavegen verify --json >FILE`") from None


def _write_report(path: str, text: str) -> None:
    from wavegen.core.errors import MachineError

    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as failed:
        raise MachineError(f"{path} cannot be written: {failed.strerror}", "name a file in a directory of yours") from None

"""`wavegen log`."""

from __future__ import annotations

import click

from wavegen.cli.messages import MANIFEST, format_count, print_program_message


@click.command()
@MANIFEST
@click.option(
    "-s", "--shell", "shells", metavar="SHELL", multiple=True, help="A shell to show, or persona-NAME; may be repeated. Default: all that have a fence."
)
@click.option("--denied", is_flag=True, help="Only what was refused, or allowed and out of reach.")
@click.option("--suggest", is_flag=True, help="Print the lines of YAML that would allow what was refused.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as the launcher wrote them.")
def log(manifest: str | None, shells: tuple[str, ...], *, denied: bool, suggest: bool, as_json: bool) -> None:
    """Show what filtered shells asked the network for, and by which line of the manifest they got it or not.

    Oldest first; one line a decision, the same refusal several times in a row on one. With --suggest, what would
    have to stand in the manifest: whatever ran inside chose those names, so read each of them.
    """
    from wavegen.cli.progress import Waiting
    from wavegen.core.errors import UsageError
    from wavegen.explain import suggestions
    from wavegen.project import loader
    from wavegen.project import network_log as network
    from wavegen.verify.run import select_policies

    if suggest and as_json:
        raise UsageError("--suggest prints YAML, not JSON", "leave one of them out")
    with Waiting("reading"):
        loaded = loader.load_project(manifest, accept=True)
        policies = select_policies(loaded.plan, shells, personas=True)
        found = network.read_network_log(loaded, policies)
    if found.unreadable:
        print_program_message(
            "warning", format_count(found.unreadable, "line of the log is no decision and was left out", "lines of the log are no decisions and were left out")
        )
    if not found.found:
        print_program_message("note", "there is no log yet: a filtered shell writes it when something inside asks for the network")
        return
    if suggest:
        advice = suggestions.suggest_entries(found.decisions, policies, suggestions.manifest_of(loaded))
        lines = advice.lines
        if advice.invalid:
            print_program_message("warning", format_count(advice.invalid, "name is not valid and was left out", "names are not valid and were left out"))
        if lines:
            print_program_message("warning", "this is what an agent asked for: read it before you paste it")
    else:
        shown = tuple(decided for decided in found.decisions if not denied or network.was_refused(decided))
        lines = tuple(map(network.json_line, shown) if as_json else network.render_decision_table(shown))
    for line in lines:
        click.echo(line)
    if not lines:
        print_program_message(
            "note", "nothing was refused that an entry would allow" if suggest else "nothing was refused" if denied else "nothing was asked for"
        )

"""`wavegen explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from wavegen.cli.messages import MANIFEST
from wavegen.core.terminal import Style, apply_style, should_colour

if TYPE_CHECKING:
    from wavegen.explain.model import Answer

_KINDS = ("path", "host", "variable", "syscall", "tool")


@click.command()
@MANIFEST
@click.option(
    "-s", "--shell", "shells", metavar="SHELL", multiple=True, help="Only this shell, or persona-NAME; may be repeated. Default: all shells with a fence."
)
@click.option("-p", "--persona", "personas", metavar="NAME", multiple=True, help="Of this persona's fence and tools; may be repeated.")
@click.option("--kind", type=click.Choice(_KINDS), help="The kind of WHAT, if its form fits several kinds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.argument("what")
def explain(  # noqa: PLR0913  one for each option
    manifest: str | None, shells: tuple[str, ...], personas: tuple[str, ...], kind: str | None, what: str, *, as_json: bool
) -> None:
    """Say whether WHAT is let through, by which line of the manifest, in which fence, and what to write to change that.

    WHAT is a path (relative ones are the project's), a host, host:port or URL, a variable, a system call, or a tool of
    an agent. A word that could be several of these is explained as each of them.

    \b
      wavegen explain ~/.ssh/id_ed25519
      wavegen explain https://pypi.org/simple --shell restricted
      wavegen explain '$GH_TOKEN'
      wavegen explain ptrace
      wavegen explain 'Bash(git push:*)' --persona navigator
    """
    from wavegen.core.quote import json_text
    from wavegen.explain import targets as why
    from wavegen.project import loader, wrappers
    from wavegen.verify.run import select_policies

    loaded = loader.load_project(manifest, accept=True)
    named = tuple(wrappers.persona_of(loaded.plan, name).name for name in personas)
    policies = select_policies(loaded.plan, (*shells, *named), personas=False)
    roles = tuple(persona for persona in loaded.plan.personas if not (shells or named) or persona.fence in policies)
    kinds = (why.Kind(kind),) if kind else why.possible_kinds(what, loaded)
    answers = [answer for one in kinds for answer in why.explain_target(loaded, what, one, policies, roles)]
    if as_json:
        click.echo(json_text({"version": 1, "what": what, "answers": [_answer_as_json(answer) for answer in answers]}), nl=False)
        return
    colour = should_colour(sys.stdout)
    for line in _format_answers(answers, colour=colour):
        click.echo(line, color=colour or None)
    if why.Kind.TOOL in kinds and not roles:
        from wavegen.cli.messages import print_program_message

        print_program_message("note", "tools are bound by personas, and there is none here")


def _answer_as_json(answer: Answer) -> dict[str, Any]:
    return {
        "kind": answer.kind,
        "what": answer.what,
        "shell": answer.shell,
        "verdict": answer.verdict.value,
        "detail": answer.detail,
        "origin": str(answer.origin),
        "fences": list(answer.fences),
        "notes": list(answer.notes),
        "change": list(answer.change),
    }


def _format_answers(answers: list[Answer], *, colour: bool) -> Any:
    """A block for each thing that was explained, and in it one for each fence; fences that say the same share one."""
    from itertools import groupby

    from wavegen.core.errors import one_line
    from wavegen.explain.model import Verdict

    styles = {Verdict.ALLOWED: Style.GOOD, Verdict.PARTLY: Style.WARNING, Verdict.REFUSED: Style.BAD}
    first = True
    for _, about in groupby(sorted(answers, key=lambda answer: _KINDS.index(answer.kind)), key=lambda answer: answer.kind):
        together: dict[tuple[Any, ...], list[Answer]] = {}
        for answer in about:
            said = (answer.what, answer.verdict, answer.detail, answer.origin, answer.fences, answer.notes, answer.change)
            together.setdefault(said, []).append(answer)
        heading = ""
        for same in together.values():
            answer = same[0]
            if heading != f"{answer.kind} {answer.what}":
                if not first:
                    yield ""
                heading, first = f"{answer.kind} {answer.what}", False
                yield one_line(heading)
            shells = ", ".join(one.shell for one in same)
            verdict = apply_style(answer.verdict.value, styles[answer.verdict], colour=colour)
            yield f"  {one_line(shells)}: {verdict}: {one_line(answer.detail)}  # {one_line(str(answer.origin))}"
            if answer.fences:
                yield f"    held by:   {one_line(', '.join(answer.fences))}"
            for label, texts in (("note:", answer.notes), ("to change:", answer.change)):
                for text in texts:
                    yield f"    {label:<10} {one_line(text)}"

"""The verb `manual`, and what every command says of how it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from wavegen import VERSION

PROGRAM = "wavegen"
_STATUS = "Exit status: 0 done, 2 manifest or usage, 3 the machine, 70 a bug."
_STATUSES = {
    "wavegen render": "Exit status: 0 done, 1 the disk differs (with --check), 2 manifest or usage, 3 the machine, 70 a bug.",
    "wavegen seccomp learn": "Exit status: the command's own; 2 usage, 3 the machine, 70 a bug.",
}


def register_manual(cli: click.Group) -> None:
    """Add the verb to the command line, and to each command that does not say how it ends the line that does."""
    cli.add_command(manual)
    for name, command in _walk_commands(PROGRAM, cli):
        if not isinstance(command, click.Group) and "xit status" not in f"{command.help}{command.epilog}":
            command.epilog = _STATUSES.get(name, _STATUS)


@click.command()
@click.argument("verb", nargs=-1)
@click.option("--directory", metavar="DIR", help="Write the pages of all commands to this directory, which is made where there is none.")
@click.pass_context
def manual(ctx: click.Context, verb: tuple[str, ...], directory: str | None) -> None:
    """Print the manual page of VERB, or of wavegen itself, as man reads it.

    The pages say what --help says. What pip, pipx and Nix install has them where man looks.

    \b
      wavegen manual verify | man -l -
      wavegen manual --directory ~/.local/share/man/man1
    """
    from wavegen.core.errors import UsageError

    written = render_manual_pages(ctx.find_root().command)
    if directory is not None:
        if verb:
            raise UsageError("--directory writes the pages of all commands", "leave the verb out")
        _write_pages(directory, written)
        return
    page = written.get(_page_file(" ".join((PROGRAM, *verb))))
    if page is None:
        raise UsageError(f"there is no command {' '.join(verb)!r}", "wavegen --help lists them")
    click.echo(page, nl=False)


def render_manual_pages(cli: click.Command) -> dict[str, str]:
    """The manual page of each command, by the name of its file."""
    from wavegen.cli.manual import file_of, render_roff

    found = [(name, command) for name, command in _walk_commands(PROGRAM, cli) if not command.hidden]
    names = tuple(name for name, _ in found)
    return {file_of(name): render_roff(_page_of_command(name, command), version=VERSION, all_names=names) for name, command in found}


def _page_of_command(name: str, command: click.Command) -> Any:
    from wavegen.cli.manual import Page

    # One that has no parent, as no option of a group counts below it; wide enough that nothing is cut.
    ctx = click.Context(command, info_name=name, max_content_width=10_000, terminal_width=10_000, help_option_names=["-h", "--help"])
    usage = " ".join(command.collect_usage_pieces(ctx))
    records = (param.get_help_record(ctx) for param in command.get_params(ctx) if isinstance(param, click.Option))
    verbs = command.commands if isinstance(command, click.Group) else {}
    return Page(
        name=name,
        summary=command.get_short_help_str(10_000).rstrip("."),
        usage=usage,
        text=_dedent_help(command.help or ""),
        epilog=_dedent_help(command.epilog or ""),
        options=tuple(record for record in records if record),
        verbs=tuple((below, verbs[below].get_short_help_str(10_000)) for below in sorted(verbs) if not verbs[below].hidden),
    )


def _dedent_help(text: str) -> str:
    import inspect

    return inspect.cleandoc(text)


def _page_file(name: str) -> str:
    from wavegen.cli.manual import file_of

    return file_of(name)


def _write_pages(directory: str, written: dict[str, str]) -> None:
    from wavegen.core.errors import MachineError, UsageError

    if not directory:
        raise UsageError("the name of the directory is empty", "name one, or leave --directory out")
    try:
        os.makedirs(directory, exist_ok=True)
        for name, text in written.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as failed:
        raise MachineError(f"{failed.filename} cannot be written: {failed.strerror}", "name a directory of yours") from None
    for name in written:
        click.echo(f"wrote {os.path.join(directory, name)}")


def _walk_commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with how each is called, in the order of their names."""
    yield name, command
    if isinstance(command, click.Group):
        for below in sorted(command.commands):
            yield from _walk_commands(f"{name} {below}", command.commands[below])

"""The verbs that speak of the command line itself, `completion` and `manual`, and what TAB completes in all others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from wavegen import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "wavegen"
_VARIABLE = "_WAVEGEN_COMPLETE"
# What is completed is put on a command line as it is, so what a shell would read otherwise is not offered.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_STATUS = "Exit status: 0 done, 2 manifest or usage, 3 the machine, 70 a bug."
_STATUSES = {
    "wavegen render": "Exit status: 0 done, 1 the disk differs (with --check), 2 manifest or usage, 3 the machine, 70 a bug.",
    "wavegen seccomp learn": "Exit status: the command's own; 2 usage, 3 the machine, 70 a bug.",
}


def register(cli: click.Group) -> None:
    """Add the verbs to the command line, and to what stands there how it is completed and how it ends."""
    cli.add_command(completion)
    cli.add_command(manual)
    for name, command in _commands(PROGRAM, cli):
        if not isinstance(command, click.Group) and "xit status" not in f"{command.help}{command.epilog}":
            command.epilog = _STATUSES.get(name, _STATUS)
        for param in command.params:
            if (found := _completed(param)) is not None:
                param.type = _Completed(param.type, found)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands of wavegen in SHELL: bash, zsh or fish.

    It completes verbs, options, files, and the shells, personas and adapters of the manifest that is nearest.

    \b
      bash  wavegen completion bash >~/.local/share/bash-completion/completions/wavegen
      zsh   wavegen completion zsh >DIRECTORY/_wavegen      a DIRECTORY of $fpath
      fish  wavegen completion fish >~/.config/fish/completions/wavegen.fish
    """
    click.echo(completion_script(_root(ctx), shell), nl=False)


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
    from wavegen.errors import UsageError

    written = pages(_root(ctx))
    if directory is not None:
        if verb:
            raise UsageError("--directory writes the pages of all commands", "leave the verb out")
        _write(directory, written)
        return
    page = written.get(_file(" ".join((PROGRAM, *verb))))
    if page is None:
        raise UsageError(f"there is no command {' '.join(verb)!r}", "wavegen --help lists them")
    click.echo(page, nl=False)


def completion_script(cli: click.Command, shell: str) -> str:
    """The script for a shell: click's own. Raises ValueError for a shell that it does not know."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(shell)
    # Not kind.source(), which starts a bash to see how old it is.
    return ShellComplete.source(kind(cli, {}, PROGRAM, _VARIABLE))


def pages(cli: click.Command) -> dict[str, str]:
    """The manual page of each command, by the name of its file."""
    from wavegen.manual import file_of, roff

    found = [(name, command) for name, command in _commands(PROGRAM, cli) if not command.hidden]
    names = tuple(name for name, _ in found)
    return {file_of(name): roff(_page(name, command), version=VERSION, all_names=names) for name, command in found}


def _page(name: str, command: click.Command) -> Any:
    from wavegen.manual import Page

    # One that has no parent, as no option of a group counts below it; wide enough that nothing is cut.
    ctx = click.Context(command, info_name=name, max_content_width=10_000, terminal_width=10_000, help_option_names=["-h", "--help"])
    usage = " ".join(command.collect_usage_pieces(ctx))
    records = (param.get_help_record(ctx) for param in command.get_params(ctx) if isinstance(param, click.Option))
    verbs = command.commands if isinstance(command, click.Group) else {}
    return Page(
        name=name,
        summary=command.get_short_help_str(10_000).rstrip("."),
        usage=usage,
        text=_dedented(command.help or ""),
        epilog=_dedented(command.epilog or ""),
        options=tuple(record for record in records if record),
        verbs=tuple((below, verbs[below].get_short_help_str(10_000)) for below in sorted(verbs) if not verbs[below].hidden),
    )


def _dedented(text: str) -> str:
    import inspect

    return inspect.cleandoc(text)


def _file(name: str) -> str:
    from wavegen.manual import file_of

    return file_of(name)


def _write(directory: str, written: dict[str, str]) -> None:
    from wavegen.errors import MachineError, UsageError

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


def _root(ctx: click.Context) -> click.Command:
    return ctx.find_root().command


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with how each is called, in the order of their names."""
    yield name, command
    if isinstance(command, click.Group):
        for below in sorted(command.commands):
            yield from _commands(f"{name} {below}", command.commands[below])


# --- what TAB completes


if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # which click 8.1 has without brackets


class _Completed(_Type):
    """A type of which TAB knows more than click does; what it makes of a value stays as it was."""

    def __init__(self, of: click.ParamType[Any], found: Callable[[click.Context, str], list[CompletionItem[str]]]) -> None:
        self.name = of.name
        self._of = of
        self._found = found

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As the type that was there."""
        return self._of.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG002  click's
        """What could stand here."""
        return self._found(ctx, incomplete)


def _completed(param: click.Parameter) -> Callable[[click.Context, str], list[CompletionItem[str]]] | None:
    """What could stand in an option or argument, by its name or what --help calls its value; None: click knows, or nobody."""
    match param.name, param.metavar:
        case (("shell" | "shells"), "SHELL"):
            # What takes a persona's fence for a shell says so.
            return _of_manifest(_fences if "persona-" in (getattr(param, "help", None) or "") else _shells)
        case "persona", "NAME":
            return _of_manifest(_personas)
        case "adapter", "NAME":
            return _of_manifest(_adapters)
        case "backend", "NAME":
            return lambda _, incomplete: _starting(("bubblewrap", "docker", "landlock"), incomplete)
        case "verb", _:
            return _verbs
        case (_, "FILE") | ("command", _):
            return lambda _, incomplete: _path("file", incomplete)
        case _, "DIR":
            return lambda _, incomplete: _path("dir", incomplete)
        case _:
            return None


def _of_manifest(names: Callable[[Any], tuple[str, ...]]) -> Callable[[click.Context, str], list[CompletionItem[str]]]:
    """Names of a plan; those that every manifest has where there is none, or it is not right: nothing is said about that here."""

    def found(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from wavegen import project
        from wavegen.errors import WavegenError

        try:
            plan = project.load(ctx.params.get("manifest"), accept=True).plan
        except (WavegenError, OSError):
            plan = None
        return _starting(names(plan), incomplete)

    return found


def _shells(plan: Any) -> tuple[str, ...]:
    return tuple(shell.name for shell in plan.shells) if plan else ("default", "restricted", "yolo")


def _fences(plan: Any) -> tuple[str, ...]:
    return tuple(fence.name for fence in plan.fences()) if plan else _shells(plan)


def _personas(plan: Any) -> tuple[str, ...]:
    return tuple(persona.name for persona in plan.personas) if plan else ()


def _adapters(plan: Any) -> tuple[str, ...]:
    return tuple(sorted({agent.adapter for persona in plan.personas for agent in persona.agents})) if plan else ()


def _verbs(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    found: click.Command = _root(ctx)
    for word in ctx.params.get("verb") or ():
        found = getattr(found, "commands", {}).get(word, found)
    return _starting(tuple(sorted(getattr(found, "commands", {}))), incomplete)


def _starting(names: tuple[str, ...], incomplete: str) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def _path(kind: str, incomplete: str) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]

"""The verb `completion`, and what TAB knows of options and arguments beyond what click does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wavegen.policy.model import Plan

_PROGRAM = "wavegen"
_VARIABLE = "_WAVEGEN_COMPLETE"
# What is completed is put on a command line as it is, so what a shell would read otherwise is not offered.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def register_completion(cli: click.Group) -> None:
    """Add the verb to the command line, and to all that stands there how it is completed."""
    cli.add_command(completion)
    for command in _walk_commands(cli):
        for param in command.params:
            if (found := _completer_for(param)) is not None:
                param.type = _Completed(param.type, found)
    if _VARIABLE in os.environ:
        _values_behind_equals_signs()


@click.command(epilog="Exit status: 0 done, 2 usage, 70 a bug.")
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
    click.echo(completion_script(ctx.find_root().command, shell), nl=False)


def completion_script(cli: click.Command, shell: str) -> str:
    """The script for a shell: click's own, mended for zsh. Raises ValueError for a shell that it does not know."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(shell)
    # Not kind.source(), which starts a bash to see how old it is.
    written = ShellComplete.source(kind(cli, {}, _PROGRAM, _VARIABLE))
    # As a file of $fpath it is a function, which click's asks for at its first call alone: the second TAB completed nothing.
    return written.replace("[[ $zsh_eval_context[-1] == loadautofunc ]]", f"[[ $zsh_eval_context[-1] == loadautofunc || ${{funcstack[1]-}} == _{_PROGRAM} ]]")


def _walk_commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from _walk_commands(below)


def _values_behind_equals_signs() -> None:
    """Teach click `--option=VALUE`: bash makes three words of it, and the others want it back as one."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete, add_completion_class

    class Bash(BashComplete):
        def get_completion_args(self) -> tuple[list[str], str]:
            args, incomplete = super().get_completion_args()
            return (args[:-1] if args[-1:] == ["="] else args), incomplete

    class Zsh(ZshComplete):
        def format_completion(self, item: CompletionItem[str]) -> str:
            return super().format_completion(_restore_option_name(self.get_completion_args()[1], item))

    class Fish(FishComplete):
        def format_completion(self, item: CompletionItem[str]) -> str:
            return super().format_completion(_restore_option_name(self.get_completion_args()[1], item))

    for kind in (Bash, Zsh, Fish):
        add_completion_class(kind)


def _restore_option_name(incomplete: str, item: CompletionItem[str]) -> CompletionItem[str]:
    name, equals, _ = incomplete.partition("=")
    if equals and name.startswith("--") and item.type == "plain":
        item.value = f"{name}={item.value}"
    return item


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


def _completer_for(param: click.Parameter) -> Callable[[click.Context, str], list[CompletionItem[str]]] | None:
    """What could stand in an option or argument, by its name or what --help calls its value; None: click knows, or nobody."""
    match param.name, param.metavar:
        case (("shell" | "shells"), "SHELL"):
            # What takes a persona's fence for a shell says so.
            return _complete_from_plan(_fence_names if "persona-" in (getattr(param, "help", None) or "") else _shell_names)
        case "persona", "NAME":
            return _complete_from_plan(_persona_names)
        case "adapter", "NAME":
            return _complete_from_plan(_adapter_names)
        case "backend", "NAME":
            return lambda _, incomplete: _complete_names(("bubblewrap", "docker", "landlock"), incomplete)
        case "verb", _:
            return _complete_verbs
        case (_, "FILE") | ("command", _):
            return lambda _, incomplete: _complete_path("file", incomplete)
        case _, "DIR":
            return lambda _, incomplete: _complete_path("dir", incomplete)
        case _:
            return None


def _complete_from_plan(names: Callable[[Any], tuple[str, ...]]) -> Callable[[click.Context, str], list[CompletionItem[str]]]:
    """Names of a plan; those that every manifest has where there is none, or it is not right: nothing is said about that here."""

    def complete_plan_names(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from wavegen.core.errors import WavegenError
        from wavegen.project import loader

        try:
            plan = loader.load_project(ctx.params.get("manifest"), accept=True).plan
        except (WavegenError, OSError):
            plan = None
        return _complete_names(names(plan), incomplete)

    return complete_plan_names


def _shell_names(plan: Plan | None) -> tuple[str, ...]:
    return tuple(shell.name for shell in plan.shells) if plan else ("default", "restricted", "yolo")


def _fence_names(plan: Plan | None) -> tuple[str, ...]:
    return tuple(fence.name for fence in plan.all_fences()) if plan else _shell_names(plan)


def _persona_names(plan: Plan | None) -> tuple[str, ...]:
    return tuple(persona.name for persona in plan.personas) if plan else ()


def _adapter_names(plan: Plan | None) -> tuple[str, ...]:
    return tuple(sorted({agent.adapter for persona in plan.personas for agent in persona.agents})) if plan else ()


def _complete_verbs(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    found: click.Command = ctx.find_root().command
    for word in ctx.params.get("verb") or ():
        found = getattr(found, "commands", {}).get(word, found)
    return _complete_names(tuple(sorted(getattr(found, "commands", {}))), incomplete)


def _complete_names(names: tuple[str, ...], incomplete: str) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def _complete_path(kind: str, incomplete: str) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]

"""The launcher's own options, which end with the command or with what an agent is given."""

from __future__ import annotations

import posix

from .errors import CannotStartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .rules import Rules

_VALUES = {
    "--project": "a directory",
    "--report": "the number of an open descriptor above 2",
    "--connect-to": "NAME:PORT:ADDRESS:PORT",
    "--adapter": "a name",
    "--artifacts": "a directory",
    "--output": "a directory",
    "--tools": "directories with colons between",
    "--backend": "bubblewrap, docker or landlock",
}
_LARGEST_DESCRIPTOR = 10_000_000


class Arguments:
    """What a caller asks for.

    project: the directory, empty for the script's own; report: the descriptor that is told `started` or `unfenced`, -1 for none; command:
    empty for an interactive shell or an agent without words; wants_print: print what would be started; is_instead: a persona's command in
    place of its agent; tools: directories of programs that come after the system's and before the caller's PATH: the Nix flake names them.
    """

    def __init__(self, rules: Rules, words: list[str]) -> None:
        """Raises CannotStartError for what cannot be meant."""
        self.project = self.adapter = self.artifacts = self.output = self.tools = self.backend = ""
        self.report = -1
        self.wants_print = self.is_instead = False
        self.connect_to: list[str] = []
        self._rules = rules
        rest = list(words)
        while rest and rest[0].startswith("-"):
            option, equals, value = rest[0].partition("=")
            if rest[0] == "--":
                rest.pop(0)
                break
            if option in _VALUES and self._accepts_option(option):
                rest.pop(0)
                self._set_option(option, value if equals else rest.pop(0) if rest else "")
            elif rest[0] == "--print-fence" or (rest[0] == "--print" and not rules.agents):
                # Of agents --print is an option, too.
                self.wants_print = bool(rest.pop(0))
            elif rest[0] == "--exec":
                self.is_instead = bool(rest.pop(0))
            elif rules.agents and not self.is_instead:
                break
            else:
                self._refuse_usage(f"unknown option {rest[0]}")
        self.command = rest

    @property
    def starts_agent(self) -> bool:
        """Whether a persona's agent is started, and not a command in its place."""
        return bool(self._rules.setting_value("persona")) and not self.is_instead

    def _accepts_option(self, option: str) -> bool:
        return (option != "--connect-to" or self._rules.filters_connections) and (option != "--adapter" or bool(self._rules.setting_value("persona")))

    def _set_option(self, option: str, value: str) -> None:
        if not value:
            self._refuse_usage(f"{option} needs {_VALUES[option]}")
        if option == "--connect-to":
            self.connect_to.append(value)
        elif option == "--report":
            self.report = self._parse_descriptor(value)
        else:
            setattr(self, option[2:], value)

    def _parse_descriptor(self, text: str) -> int:
        if text.isascii() and text.isdigit() and 2 < int(text) < _LARGEST_DESCRIPTOR:
            try:
                posix.fstat(int(text))
            except OSError:
                self._refuse_usage(f"--report needs {_VALUES['--report']}")
            try:
                posix.write(int(text), b"")
            except OSError as failed:
                raise CannotStartError(f"the report cannot be written: {failed.strerror}", "open the descriptor for writing") from None
            return int(text)
        self._refuse_usage(f"--report needs {_VALUES['--report']}")

    def _refuse_usage(self, what: str) -> NoReturn:
        last = "[--adapter NAME] [--] [WORD-FOR-THE-AGENT...] | --exec COMMAND..." if self._rules.setting_value("persona") else "[--] [COMMAND [ARGUMENT...]]"
        shown = "--print-fence" if self._rules.setting_value("persona") else "--print"
        proxied = " [--connect-to NAME:PORT:ADDRESS:PORT]" if self._rules.filters_connections else ""
        raise CannotStartError(what, f"usage: {self._rules.setting_value('shell')} [--project DIR] [{shown}] [--report FD]{proxied} {last}")


def agent_words(rules: Rules, arguments: Arguments, *, sandboxed: bool = True) -> list[str]:
    """What `inside/agent.sh` is given: the persona's programs, of which it starts the first that is there, and the caller's words.

    Raises CannotStartError where the persona has no such adapter.
    """
    persona, names = rules.setting_value("persona"), ", ".join(name for name, _ in rules.agents)
    if not names:
        raise CannotStartError(f"persona {persona} has no adapter, and with it no program", "name one in the manifest, or start a command with --exec")
    words = [word for name, words in rules.agents if arguments.adapter in ("", name) for word in words]
    if not words:
        raise CannotStartError(f"persona {persona} has no adapter {arguments.adapter}", f"its adapters: {names}")
    if not sandboxed:
        # The settings by which an agent has a sandbox of its own.
        words = [word[:-21] + "/settings.json" if word.endswith("/settings.fenced.json") else word for word in words]
    return [*words, "0", *arguments.command]


def agent_start(text: str, written: Sequence[str], words: list[str]) -> list[str]:
    """The command line of `inside/agent.sh`, given as text. `written`: its places, each with its sign; `words`: of `agent_words`."""
    return ["/bin/sh", "-c", text, "agent.sh", str(len(written)), *written, *words]

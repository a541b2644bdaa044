"""What a shell may do, as the launcher reads it: `.wavegen/rules/<shell>`, one rule a line, fields separated by tabs, its origin last.

    KEY        VALUE  ORIGIN                    a setting: shell, network, root, home, seccomp, pids, ...
    use        GROUP                            the rules of that group of the file `base` beside it
    path       ACCESS PATH FLAGS ORIGIN         hide, read, write or tmpfs (backends/sandboxes write them; see PathRule)
    pass       NAME   ORIGIN                    a variable of the caller that arrives
    env        NAME   VALUE  ORIGIN             a variable with a fixed value
    allow      ENTRY  FLAGS  ORIGIN             a host that may be reached; deny likewise
    loopback   PORT   ORIGIN
    agent      NAME   COUNT  VARIABLES WORD...  a program of a persona, with its words (variables first)
    banner     TEXT                             banner_landlock likewise: where Landlock alone holds the shell
    writable   PATH                             what any shell of the project may write
    login      NAME                             a variable whose absence is worth a word

In fields `\\t`, `\\n`, `\\r` and `\\\\` stand for the characters that would end them, and `\\u` with six hexadecimal digits for any other that a terminal would not
print. One reader, for whoever asks what is enforced.
"""

from __future__ import annotations

from .errors import CannotStartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HIDE, READ, WRITE, TMPFS = "hide", "read", "write", "tmpfs"
PROXIED = ("open", "filtered")
"""The networks whose connections are filtered, one by one."""
_LISTS = {"allow": 3, "deny": 3, "loopback": 2, "env": 3, "pass": 2, "banner": 1, "banner_landlock": 1, "writable": 1, "login": 1}
"""Lists of rules, and how many fields each has behind its keyword."""
_BASE = ".wavegen/rules/base"
SETTINGS = (
    *("shell", "unsandboxed", "persona", "fallback", "network", "upstream", "root", "home", "seccomp", "nested"),
    *("pids", "files", "memory", "memory_share", "cpus", "tmpfs_size", "bounded", "image", "landlock", "private", "seccomp_landlock"),
)
"""Keywords with one value each; see backends/sandboxes for what they say."""


class PathRule:
    """One rule about a path. `path` and `source` begin with an anchor: `/`, `~`, `.`, `~/..`, `./..`, `$STATE` or `$LAUNCHER`."""

    __slots__ = ("access", "flags", "origin", "path", "source")

    def __init__(self, access: str, path: str, flags: Iterable[str], origin: str, source: str = "") -> None:
        self.access, self.path, self.flags, self.origin, self.source = access, path, frozenset(flags), origin, source
        """flags: required, socket, pinned (a file of the sandbox itself), guarded (what the host runs later), private (what others cannot read is hidden)."""

    @property
    def is_named(self) -> bool:
        """Whether the manifest asks for it; otherwise it is a default."""
        return not self.origin.startswith("default: ")


class Rules:
    """All rules of one shell or persona."""

    def __init__(self) -> None:
        self.settings: dict[str, tuple[str, str]] = {}
        self.paths: list[PathRule] = []
        self.lists: dict[str, list[tuple[str, ...]]] = {name: [] for name in _LISTS}
        self.agents: list[tuple[str, list[str]]] = []
        """Each agent's name, and its words as agent_command takes them: count, variables, words."""
        self.base: Callable[[], str] = str
        self.texts: dict[str, str] = {}
        """All that was read, by the name of its file."""

    def setting_value(self, key: str) -> str:
        """A setting's value; empty where it is not set."""
        return self.settings.get(key, ("", ""))[0]

    def setting_origin(self, key: str) -> str:
        """Why a setting is as it is."""
        return self.settings.get(key, ("", "default"))[1]

    def group_lines(self, name: str) -> list[str]:
        """The rules of a group of the file `base`. Raises KeyError where it has none of that name."""
        text = self.texts.get(_BASE) or self.texts.setdefault(_BASE, self.base())
        before, found, rest = text.partition(f"group\t{name}\n")
        if not found or (before and not before.endswith("\n")):
            raise KeyError(name)
        return [line for line in rest.partition("\ngroup\t")[0].split("\n") if line]

    def group_paths(self, name: str) -> list[PathRule]:
        """The rules about paths of a group, whether this shell uses it or not."""
        found = Rules()
        try:
            for line in self.group_lines(name):
                _add_parsed_rule(found, [_unescape_field(field) for field in line.split("\t")], _BASE, 0)
        except KeyError:
            raise CannotStartError(f"{_BASE} has no group {name}", "run wavegen render with the version of wavegen that you use") from None
        return found.paths

    @property
    def filters_connections(self) -> bool:
        """Whether each connection is checked against the rules."""
        return self.setting_value("network") in PROXIED


def read_rules(text: str, base: Callable[[], str], where: str) -> Rules:
    """The rules of a file. `base`: gives the text of the file with the groups; `where`: the file's name in messages. Raises CannotStartError."""
    rules = Rules()
    rules.base, rules.texts[where] = base, text
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if fields[0] == "use" and len(fields) == 2:
            try:
                members = rules.group_lines(fields[1])
            except KeyError:
                raise _unknown_rule_error(where, number) from None
            for member in members:
                _add_parsed_rule(rules, member.split("\t"), where, number)
        else:
            _add_parsed_rule(rules, fields, where, number)
    if not rules.setting_value("shell"):
        raise CannotStartError(f"{where} names no shell", "run wavegen render")
    return rules


def _add_parsed_rule(rules: Rules, fields: list[str], where: str, number: int) -> None:
    try:
        key, *values = map(_unescape_field, fields)
    except (ValueError, OverflowError):
        raise _unknown_rule_error(where, number) from None
    if key == "path" and len(values) == 4 and values[0] in (HIDE, READ, WRITE, TMPFS):
        flags = values[2].split(",") if values[2] != "-" else []
        source = next((flag[7:] for flag in flags if flag.startswith("source=")), "")
        rules.paths.append(PathRule(values[0], values[1], flags, values[3], source))
    elif key == "agent" and len(values) > 3:
        rules.agents.append((values[0], values[1:]))
    elif key in _LISTS and len(values) == _LISTS[key]:
        rules.lists[key].append(tuple(values))
    elif key in SETTINGS and len(values) == 2:
        rules.settings[key] = (values[0], values[1])
    else:
        raise _unknown_rule_error(where, number)


def _unknown_rule_error(where: str, number: int) -> CannotStartError:
    return CannotStartError(f"{where}:{number}: the launcher does not know this rule", "run wavegen render with the version of wavegen that you use")


_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def escape_field(text: str) -> str:
    """A field as it is written."""
    for plain, written in _ESCAPES:
        text = text.replace(plain, written)
    return text if text.isprintable() else "".join(letter if letter.isprintable() else f"\\u{ord(letter):06x}" for letter in text)


def _unescape_field(field: str) -> str:
    """Raises ValueError."""
    return field if "\\" not in field else "\\".join(map(_unescape_part, field.split("\\\\")))


def _unescape_part(part: str) -> str:
    for plain, written in _ESCAPES[1:]:
        part = part.replace(written, plain)
    first, *rest = part.split("\\u")
    return first + "".join(chr(int(piece[:6], 16)) + piece[6:] for piece in rest)

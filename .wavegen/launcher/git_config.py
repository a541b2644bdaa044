"""Git's settings as git reads them, and which of them name a file or a program. Starts nothing and reads no file."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Setting = tuple[str, "str | None", str, "str | None"]
    """Section and key in lower case, the subsection as written, the value; None where there is no subsection or no `=`."""

_KEY = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
_ALPHA = _KEY[:52]
_SPACE = b" \t\n\r"
"""What git takes for white space (ctype.c)."""
_ESCAPES = {0x74: b"\t", 0x62: b"\b", 0x6E: b"\n", 0x5C: b"\\", 0x22: b'"'}
_LF, _QUOTE, _BACKSLASH = 10, 0x22, 0x5C
_ENCODING = sys.getfilesystemencoding()


def decode_path(data: bytes) -> str:
    """Bytes as a path of this process."""
    return data.decode(_ENCODING, "surrogateescape")


def parse_config(text: bytes) -> list[Setting]:
    """The settings of a file in its order, up to the first line that git refuses. Never raises."""
    return scan_config(text)[0]


def scan_config(text: bytes) -> tuple[list[Setting], bool]:
    """The settings of a file, and whether git takes the file to its end: the grammar of git's config.c (git_parse_source)."""
    # The end is one more line end for git, and a backslash before it takes one.
    data = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n") + b"\n\n"
    found: list[Setting] = []
    at, section = 0, b""
    try:
        while at < len(data):
            if data[at] in _SPACE:
                at += 1
            elif data[at] in b"#;":
                at = data.index(b"\n", at)
            elif data[at] == 0x5B:  # [
                section, at = _read_section(data, at + 1)
            else:
                end = data.index(b"\n", at)
                name, equals, value = data[at:end].partition(b"=")
                key = name.rstrip(b" \t")
                if key.translate(None, _KEY) or not key or key[0] not in _ALPHA:
                    return found, False
                if b'"' in value or b"\\" in value or b"#" in value or b";" in value or b"\r" in value:
                    value, end = _read_value(data, at + len(name) + 1)
                else:
                    value = value.strip(b" \t")
                # git hands on C strings.
                head, dot, sub = section.partition(b".")
                content = decode_path(value.partition(b"\0")[0]) if equals else None
                found.append((decode_path(head), decode_path(sub) if dot else None, decode_path(key.lower()), content))
                at = end
    except ValueError:
        return found, False
    return found, True


def _read_section(data: bytes, at: int) -> tuple[bytes, int]:
    """The name between brackets, `section` or `section.subsection`, and where it ends. Raises ValueError where git refuses it."""
    start = at
    while data[at] in _KEY or data[at] == 0x2E:
        at += 1
    name = data[start:at].lower()
    if data[at] == 0x5D and name:  # ]
        return name, at + 1
    while data[at] in b" \t\r":
        at += 1
    if data[at] != _QUOTE or at == start + len(name):
        raise ValueError
    sub = bytearray()
    at += 1
    while data[at] != _QUOTE:
        at += data[at] == _BACKSLASH
        if data[at] in (_LF, 0):  # a NUL would end the name for git, but not for us
            raise ValueError
        sub.append(data[at])
        at += 1
    if data[at + 1] != 0x5D:
        raise ValueError
    return name + b"." + bytes(sub), at + 2


def _read_value(data: bytes, at: int) -> tuple[bytes, int]:
    """A value with quotes, escapes, continued lines or a comment, and where it ends. Raises ValueError where git refuses it."""
    value, quoted, kept = bytearray(), False, 0
    while data[at] != _LF:
        char = data[at]
        at += 1
        if char in _SPACE and not quoted:
            value += bytes((char,)) if value else b""
            continue
        if char in b"#;" and not quoted:
            at = data.index(b"\n", at)
            break
        if char == _BACKSLASH:
            kept = len(value)  # white space before a backslash is not at the end
            if data[at] not in _ESCAPES and data[at] != _LF:
                raise ValueError
            value += _ESCAPES.get(data[at], b"")
            at += 1
            if data[at - 1] == _LF:
                continue
        elif char == _QUOTE:
            quoted = not quoted
        else:
            value.append(char)
        kept = len(value)
    if quoted:
        raise ValueError
    return bytes(value[:kept]), at


# --- which of them name files (git-config(1))

INCLUDE, PLACE, COMMAND = "include", "place", "command"
"""What a value is: settings of git's, a file or directory that git uses, a command line with names of files in it."""
_PLACES = {("core", "hookspath"), ("core", "attributesfile"), ("init", "templatedir"), ("gpg", "allowedsignersfile")}
_COMMANDS = {"fsmonitor", "clean", "smudge", "process", "external", "uploadpack", "receivepack", "path", "args", "browser", "vcs"}
_COMMAND_ENDS = ("command", "cmd", "program", "helper", "driver", "editor", "pager", "hook", "filter", "proxy", "textconv", "askpass", "tunnel")
_SHELL_SIGNS = str.maketrans("\"'();|&`", "        ")
_TOP = "$(git rev-parse --show-toplevel)/"
_RUNNERS = ("sh", "bash", "dash", "zsh", "ksh", "env", "exec", ".", "source", "python", "python3", "node", "perl", "ruby", "php", "deno", "bun", "lua", "uv")
MOST_WORDS = 64


def named_kind(setting: Setting) -> str | None:
    """What kind of name the value of a setting is; None where it names neither a file nor a program."""
    section, _, key, value = setting
    if not value:
        return None
    if key == "path" and section in ("include", "includeif"):
        return INCLUDE
    if (section, key) in _PLACES:
        return PLACE
    if section == "alias" or (section, key) == ("submodule", "update"):
        return COMMAND if value.startswith("!") else None
    return COMMAND if section == "pager" or key in _COMMANDS or key.endswith(_COMMAND_ENDS) else None


def split_command(value: str) -> Iterator[tuple[str, bool]]:
    """Words of a command line that may be names of files, and whether each is one whatever it looks like: a program, or an interpreter's file.

    `!make test` does not make a file `test` a program; `python x.py` and `./x` are.
    """
    before = ""
    for word in value.lstrip("!").replace(_TOP, "./").translate(_SHELL_SIGNS).split()[:MOST_WORDS]:
        if word[0] in "-$" or "=" in word:
            continue
        yield word, "/" in word or before.rpartition("/")[2] in _RUNNERS
        before = word

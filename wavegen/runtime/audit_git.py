"""Git's settings as git reads them, and which of them make git start a program or go elsewhere. Starts nothing, git least of all.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SPACE = b" \t\n\r"
"""What git takes for white space, see its ctype.c."""
_KEY = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_ALPHA = _KEY - frozenset(b"0123456789-")
_ESCAPES = {0x74: 9, 0x62: 8, 0x6E: 10, 0x5C: 0x5C, 0x22: 0x22}
_LF, _CR, _QUOTE, _BACKSLASH = 10, 13, 0x22, 0x5C


class BadConfigError(Exception):
    """A line that git refuses, too."""


class _Reader:
    """The bytes of a file as git's get_next_char hands them out: CR LF is LF, and the end is one more LF."""

    def __init__(self, data: bytes) -> None:
        self.data = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
        self.at = 0
        self.ended = False

    def next(self) -> int:
        if self.at >= len(self.data):
            self.ended = True
            return _LF
        char = self.data[self.at]
        self.at += 1
        if char == _CR and self.data[self.at : self.at + 1] == b"\n":
            self.at += 1
            return _LF
        return char


def settings(data: bytes) -> Iterator[tuple[str, str | None]]:
    """Name and value of each setting in the order of the file: `section.Sub.key`, None without `=`. Raises BadConfigError.

    The same state machine as git's config.c (git_parse_source), so that both see the same settings.
    """
    reader, section, comment = _Reader(data), b"", False
    while True:
        char = reader.next()
        if char == _LF:
            if reader.ended:
                return
            comment = False
        elif comment or char in _SPACE:
            continue
        elif char in b"#;":
            comment = True
        elif char == 0x5B:  # [
            section = _section(reader) + b"."
        elif char in _ALPHA:
            name, value = _setting(reader, char)
            # git hands on C strings.
            yield _text(section + name), None if value is None else _text(value.split(b"\0")[0])
        else:
            raise BadConfigError


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _section(reader: _Reader) -> bytes:
    name = bytearray()
    while True:
        char = reader.next()
        if reader.ended:
            raise BadConfigError
        if char == 0x5D:  # ]
            if not name:
                raise BadConfigError
            return bytes(name).lower()
        if char in _SPACE:
            return bytes(name).lower() + b"." + _subsection(reader, char)
        if char not in _KEY and char != 0x2E:
            raise BadConfigError
        name.append(char)


def _subsection(reader: _Reader, char: int) -> bytes:
    while char in _SPACE:
        if char == _LF:
            raise BadConfigError
        char = reader.next()
    if char != _QUOTE:
        raise BadConfigError
    name = bytearray()
    while True:
        char = reader.next()
        if char == _QUOTE:
            break
        if char == _BACKSLASH:
            char = reader.next()
        if char in (_LF, 0):  # a NUL would end the name for git, but not for us
            raise BadConfigError
        name.append(char)
    if reader.next() != 0x5D:
        raise BadConfigError
    return bytes(name)


def _setting(reader: _Reader, char: int) -> tuple[bytes, bytes | None]:
    name = bytearray((char,))
    while (char := reader.next()) in _KEY and not reader.ended:
        name.append(char)
    while char in b" \t":
        char = reader.next()
    if char == _LF:
        return bytes(name).lower(), None
    if char != 0x3D:  # =
        raise BadConfigError
    return bytes(name).lower(), _value(reader)


def _value(reader: _Reader) -> bytes:  # noqa: C901  git's own state machine
    value, quoted, comment, kept = bytearray(), False, False, 0
    while True:
        char = reader.next()
        if char == _LF:
            if quoted:
                raise BadConfigError
            return bytes(value[:kept])
        if comment:
            continue
        if char in _SPACE and not quoted:
            if value:
                value.append(char)
            continue
        if not quoted and char in b"#;":
            comment = True
            continue
        if char == _BACKSLASH:
            kept = len(value)  # white space before it is not at the end
            char = reader.next()
            if char == _LF:
                continue
            if char not in _ESCAPES:
                raise BadConfigError
            value.append(_ESCAPES[char])
        elif char == _QUOTE:
            quoted = not quoted
        else:
            value.append(char)
        kept = len(value)


# --- what they do

# section: keys, each with how bad it is; `*` for any. Named as git-config(1) does, in lower case; a subsection does not matter.
_SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "core": {
        "critical": ("fsmonitor", "hookspath", "sshcommand", "worktree", "pager", "editor", "alternaterefscommand", "gitproxy", "askpass"),
        "high": ("attributesfile",),
    },
    "pager": {"critical": ("*",)},
    "include": {"critical": ("path",)},
    "includeif": {"critical": ("path",)},
    "filter": {"critical": ("clean", "smudge", "process")},
    "diff": {"critical": ("external", "command", "textconv")},
    "merge": {"critical": ("driver",), "medium": ("tool", "guitool")},
    "difftool": {"high": ("cmd", "path")},
    "mergetool": {"high": ("cmd", "path")},
    "sequence": {"critical": ("editor",)},
    "credential": {"critical": ("helper",)},
    "gpg": {"critical": ("program", "defaultkeycommand")},
    "browser": {"high": ("cmd", "path")},
    "man": {"high": ("cmd", "path")},
    "guitool": {"high": ("cmd",)},
    "remote": {"critical": ("uploadpack", "receivepack", "vcs"), "medium": ("url", "pushurl", "proxy", "promisor", "partialclonefilter")},
    "branch": {"medium": ("remote", "pushremote")},
    "url": {"high": ("insteadof", "pushinsteadof")},
    "protocol": {"high": ("allow",)},
    "submodule": {"critical": ("update",), "medium": ("url",)},
    "extensions": {"high": ("worktreeconfig", "partialclone", "refstorage")},
    "uploadpack": {"critical": ("packobjectshook",)},
    "receive": {"high": ("procreceiverefs", "denycurrentbranch", "certnonceseed")},
    "interactive": {"critical": ("difffilter",)},
    "sendemail": {"high": ("*",)},
    "svn": {"high": ("*",)},
    "svn-remote": {"high": ("*",)},
    "trailer": {"critical": ("command", "cmd")},
    "maintenance": {"medium": ("repo", "strategy")},
    "imap": {"high": ("tunnel", "host")},
    "http": {"medium": ("proxy", "sslverify", "sslcert", "sslkey", "sslcainfo", "sslcapath", "extraheader", "cookiefile", "savecookies", "proxysslcert")},
    "lfs": {"critical": ("path", "args"), "medium": ("*",)},
    "web": {"high": ("browser",)},
    "instaweb": {"high": ("*",)},
    "help": {"high": ("browser",), "medium": ("autocorrect",)},
    "format": {"medium": ("outputdirectory", "signaturefile")},
    "blame": {"medium": ("ignorerevsfile",)},
    "mailmap": {"low": ("file",)},
    "hook": {"critical": ("command", "event")},
    "bisect": {"high": ("*",)},
    "cvsserver": {"low": ("*",)},
    "gitcvs": {"high": ("*",)},
    "tar": {"high": ("command",)},
    "init": {"high": ("templatedir",)},
    "commit": {"medium": ("template",)},
    "fetch": {"medium": ("bundleuri",)},
    "safe": {"medium": ("*",)},
    "alias": {"low": ("*",)},
}
# Settings that git or a helper of it knows and this table does not.
_ENDINGS = ("command", "cmd", "program", "helper", "driver", "editor", "pager", "hook", "filter", "proxy", "textconv", "tunnel", "path", "askpass")
_TRUTH = ("true", "false", "yes", "no", "on", "off", "1", "0", "")
_ORDER = ("critical", "high", "medium", "low")


def danger(name: str, value: str | None) -> str | None:
    """How bad a setting is that starts a program or leads elsewhere: critical, high, medium or low; None where it does neither."""
    section, _, rest = name.partition(".")
    key = rest.rpartition(".")[2]
    text = value or ""
    if section == "alias":
        return _alias(text)
    if _harmless(section, key, text):
        return None
    if (section in ("remote", "submodule", "url", "branch") and "::" in text) or (section == "url" and "::" in rest):
        return "critical"  # a remote helper: ext:: starts any program
    keys = _SECTIONS.get(section, {})
    for severity in _ORDER:
        if key in keys.get(severity, ()) or "*" in keys.get(severity, ()):
            return severity
    return "medium" if key.endswith(_ENDINGS) and section not in ("color", "advice", "gui", "submodule") else None


def _alias(text: str) -> str:
    words = text.split()
    starts = text.lstrip().startswith("!") or any(word.startswith(("-c", "-x", "-O", "--exec", "--config", "--ext", "--upload", "--open")) for word in words)
    return "high" if starts else "medium"  # some commands of git start what an argument names


def _harmless(section: str, key: str, text: str) -> bool:
    """Usual values of dangerous keys."""
    if (section, key) == ("core", "fsmonitor"):
        return text.lower() in _TRUTH  # git's own watcher, or none
    if (section, key) == ("submodule", "update"):
        return text.lower() in ("checkout", "rebase", "merge", "none")
    if section == "pager":
        return text.lower() in _TRUTH
    if (section, key) == ("http", "sslverify"):
        return text.lower() in ("true", "yes", "on", "1")
    if (section, key) == ("protocol", "allow"):
        return text.lower() in ("never", "user")
    if section == "branch":
        return not set(text) & set(":/")  # the name of a remote, not an address
    return section == "lfs" and key in ("repositoryformatversion", "access", "locksverify")


def names_files(value: str) -> Iterator[str]:
    """Words of a setting's value that may be the path of a file or a directory."""
    for word in value.lstrip("!").replace(";", " ").split()[:16]:
        bare = word.strip("\"'()")
        if bare and bare[0] not in "-~$" and "=" not in bare:
            yield bare

"""Which of git's settings make git start a program or go elsewhere, and which files of the project they name."""

from __future__ import annotations

from ..git_config import COMMAND, named_kind, split_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..git_config import Setting

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


def setting_name(setting: Setting) -> str:
    """A setting's name as git lists it: `section.Sub.key`."""
    section, sub, key, _ = setting
    return f"{section}.{key}" if sub is None else f"{section}.{sub}.{key}"


def setting_severity(setting: Setting) -> str | None:
    """How bad a setting is that starts a program or leads elsewhere: critical, high, medium or low; None where it does neither."""
    section, sub, key, value = setting
    text = value or ""
    if section == "alias":
        return _alias_severity(text)
    if _is_harmless_setting(section, key, text):
        return None
    if (section in ("remote", "submodule", "url", "branch") and "::" in text) or (section == "url" and "::" in (sub or "")):
        return "critical"  # a remote helper: ext:: starts any program
    keys = _SECTIONS.get(section, {})
    for severity in _ORDER:
        if key in keys.get(severity, ()) or "*" in keys.get(severity, ()):
            return severity
    return "medium" if key.endswith(_ENDINGS) and section not in ("color", "advice", "gui", "submodule") else None


def _alias_severity(text: str) -> str:
    words = text.split()
    starts = text.lstrip().startswith("!") or any(word.startswith(("-c", "-x", "-O", "--exec", "--config", "--ext", "--upload", "--open")) for word in words)
    return "high" if starts else "medium"  # some commands of git start what an argument names


def _is_harmless_setting(section: str, key: str, text: str) -> bool:
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


def path_candidates(setting: Setting) -> Iterator[str]:
    """What in a setting's value may be the path of a file or a directory of the project."""
    kind, value = named_kind(setting), setting[3] or ""
    if kind == COMMAND:
        yield from (word for word, _ in split_command(value))
    elif kind is not None and not value.startswith("~"):
        yield value

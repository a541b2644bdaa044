"""What to write in a manifest so that an answer would be otherwise: the entry, and the list of this manifest that it belongs into. Pure."""

from __future__ import annotations

from wavegen.core.errors import InvalidValueError, one_line
from wavegen.explain import suggestions
from wavegen.explain.suggestions import persona_named, sandbox_of, shell_name, written_shell
from wavegen.manifest.decoder import Marks
from wavegen.manifest.model import Manifest, NetworkMode
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule, Policy
from wavegen.policy.paths import granted_path, holds_socket


def describe_list_key(marks: Marks | None, key: str, name: str) -> str:
    """A list of the manifest, with its line where it is written."""
    if marks and key in marks:
        return f"{name} ({one_line(str(marks.location_of(key)))})"
    return f"{name}, which is not written"


def describe_shell_key(manifest: Manifest, policy: Policy) -> str:
    """The mapping of a shell, with its line where it is written."""
    name = shell_name(manifest, policy)
    written = written_shell(manifest, policy)
    return f"runtime.sandbox.shells.{name}" + (f" ({one_line(str(written.at.here))})" if written else ", which is not written")


def origin_location(origin: Origin) -> str:
    """`file:line`."""
    return f"{origin.at.file}:{origin.at.line}" if origin.at else ""


# --- the network


def allow_host_remedy(manifest: Manifest, policy: Policy, asked: tuple[str, int], reason: str, origin: Origin | None = None) -> tuple[str, ...]:
    """What would let a host through, by the same advice as `wavegen log --suggest` gives. `asked`: name and port."""
    name, port = asked
    if reason == "denied" and origin is not None:
        return (f"remove the entry of denied_domains at {origin_location(origin)}",)
    lines = suggestions.suggest_entries((suggestions.hypothetical_refusal(policy.name, name, port, reason),), (policy,), manifest).lines
    # Behind the entry stands when it was asked for, which nobody did.
    bare = [line.partition("  # ")[0].strip() for line in lines]
    entries = [line for line in bare if line and not line.startswith("#")]
    warned = [line[1:].strip() for line in bare if line.startswith("# -")]
    if not entries and not warned:
        if policy.network.mode is NetworkMode.NONE:
            return (f"write `network: filtered` under {describe_shell_key(manifest, policy)}, and `- {name}` in its domains",)
        return ("nothing: no entry is for that",)
    if any(entry.startswith("loopback:") for entry in entries):
        return tuple(f"write `{entry}` under {describe_shell_key(manifest, policy)}" for entry in entries)
    into = suggestions.domain_list_for(policy, manifest)
    where = f"{into.name} ({one_line(str(into.at))})" if into.at else f"{into.name}, which is not written"
    copied = (f"once it is written it replaces, so copy what is needed: {', '.join(into.replaces)}",) if into.replaces else ()
    return (*(f"add `{entry}` to {where}" for entry in (*entries, *warned)), *copied)


# --- variables


def allow_variable_remedy(manifest: Manifest, policy: Policy, name: str) -> tuple[str, ...]:
    """What would let a variable of the host in."""
    sandbox, persona, shell = sandbox_of(manifest), persona_named(manifest, policy), written_shell(manifest, policy)
    lets_in = {str(entry) for entry in (*sandbox.env_passthrough, *(shell.env_passthrough if shell else ()))}
    lines = []
    if name not in lets_in:
        if shell and shell.env_passthrough:
            where = describe_list_key(shell.at, "env_passthrough", f"runtime.sandbox.shells.{shell_name(manifest, policy)}.env_passthrough")
        else:
            where = describe_list_key(sandbox.at, "env_passthrough", "runtime.sandbox.env_passthrough")
        lines.append(f"add `{name}` to {where}")
    if persona and persona[1].sandbox and persona[1].sandbox.env_passthrough is not None:
        lines.append(f"add `{name}` to " + describe_list_key(persona[1].sandbox.at, "env_passthrough", f"personas.{persona[0]}.sandbox.env_passthrough"))
    return tuple(lines)


# --- paths


def show_path_remedy(manifest: Manifest, policy: Policy, path: HostPath, rule: PathRule | None) -> tuple[str, ...]:
    """What would show a path that is hidden, or has another in its place."""
    if rule and rule.origin.at and rule.access is Access.HIDE:
        return (f"remove the entry of deny_read_paths at {origin_location(rule.origin)}",)
    return _grant_path_remedy(manifest, policy, path, "read")


def write_path_remedy(manifest: Manifest, policy: Policy, path: HostPath, rule: PathRule) -> tuple[str, ...]:
    """What would make a path writable that is read-only."""
    if rule.pinned:
        return ("nothing: it is part of the fence; change it outside",)
    persona = persona_named(manifest, policy)
    if persona and rule.path == HostPath(Anchor.PROJECT):
        return (f"write `project: write` under personas.{persona[0]}.sandbox, or allow it a tool that writes",)
    if rule.origin.at:
        return (f"write `access: write` in the entry at {origin_location(rule.origin)}",)
    return _grant_path_remedy(manifest, policy, path, "write")


def _grant_path_remedy(manifest: Manifest, policy: Policy, path: HostPath, access: str) -> tuple[str, ...]:
    text = str(path) if path.anchor is not Anchor.PROJECT else path.tail or "."
    try:
        granted_path(text)
    except InvalidValueError as bad:
        return (f"nothing: {bad.what} ({bad.hint})",)
    sandbox, shell = sandbox_of(manifest), written_shell(manifest, policy)
    if shell and shell.paths:
        where = describe_list_key(shell.at, "paths", f"runtime.sandbox.shells.{shell_name(manifest, policy)}.paths")
    else:
        where = describe_list_key(sandbox.at, "paths", "runtime.sandbox.paths")
    socket = holds_socket(path)
    more = ", socket: true" if socket else ""
    warning = (f"that shows the socket {socket}: the server behind it runs outside the sandbox",) if socket else ()
    return (f"add `- {{path: {_quote_yaml(text)}, access: {access}{more}}}` to {where}", *warning)


def _quote_yaml(text: str) -> str:
    plain = text.isascii() and text and all(c.isalnum() or c in "._-/~" for c in text) and text != "~" and not text.startswith("-")
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

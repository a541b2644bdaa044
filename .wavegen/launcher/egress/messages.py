"""Why something is refused, in words for whoever meets it inside. Pure.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

from . import names, special_names
from .rules import DEFAULT_PORTS, Rule

_BECAUSE = {
    "not-listed": "it is not on the list",
    "denied": "a line of the manifest refuses it",
    "port": "it is let through on other ports alone",
    "bad-name": "it is no host's name",
    "literal": "addresses are let through only where they are listed as such",
    "local-name": "it is a name of this machine's own network",
    "not-public": "it leads to an address that is not on the internet",
    "metadata": "it hands out the credentials of the machine that this runs on",
    "own-address": "it leads back to this machine",
    "loopback-port": "inside, the loopback is the shell's own; no port of the host's is let in here",
    "unresolved": "the host's resolver knows no address for it",
    "unreachable": "it does not answer",
    "sni-missing": "the TLS client named no server, so that nobody can tell whom it asks",
    "sni-mismatch": "the TLS client named another server than it connected to",
    "not-tls": "what was said on port 443 is not TLS",
    "method": "this way of asking is not offered",
    "bad-request": "the request is malformed",
    "limit": "there are too many connections at once",
    "timeout": "nothing was said for too long",
    "ended": "it ended too early",
}


def reason_in_words(reason: str) -> str:
    """A reason's code in words."""
    return _BECAUSE.get(reason, reason)


def explain_refusal(shell: str, reason: str, target: names.Target, port: int, rule: Rule | None, *, listed: bool) -> str:
    """What was refused, by what, and the line that would let it through, where the shell has a list (`listed`)."""
    where = f" ({rule}, {rule.manifest_location})" if rule else ""
    said = f"{target.authority_text()}:{port} is refused in the shell {shell}: {reason_in_words(reason)}{where}"
    line = _suggest_manifest_line(reason, target, port) if listed or reason in ("loopback-port", "own-address") else ""
    return f"{said}\n{line}" if line else said


def _suggest_manifest_line(reason: str, target: names.Target, port: int) -> str:
    entry = target.authority_text() + ("" if port in DEFAULT_PORTS else f":{port}")
    quoted = f'"{entry}"' if ":" in entry else entry
    if reason in ("not-listed", "port", "literal"):
        added = f"- {quoted}"
    elif reason in ("local-name", "not-public"):
        if special_names.is_loopback_name(target.name) or (target.address and names.classify_address(target.address) == names.NEVER):
            return ""
        added = f"- {{host: {quoted}, allow_private: true}}"
    elif reason in ("loopback-port", "own-address"):
        return f"If that is meant, let the port in: loopback: [{port}] for this shell, then wavegen render, outside; inside it is localhost:{port}"
    else:
        return ""
    return f"If that is meant, add to the domains of this shell, or to default_allowed_domains, then wavegen render, outside:\n  {added}"

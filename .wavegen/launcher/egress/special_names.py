"""Names that are nobody's on the internet: the one table, and what each means. Pure."""

from __future__ import annotations

_LOOPBACK = "localhost"
_LOCAL = (_LOOPBACK, "local", "localdomain", "invalid", "onion")
"""RFC 6761, 6762 and 7686, and what resolvers put behind a name: whatever these lead to is of this machine or its link."""
_INTRANETS = (_LOOPBACK, "corp", "home", "internal", "intranet", "lan", "local", "private")
"""Where organisations have names of their own (RFC 6762, appendix G; ICANN has reserved `internal`). Resolvers lead to them, and addresses decide."""


def is_local_name(name: str) -> bool:
    """Whether a name is of this machine or its link, or has no dot: whatever it leads to is not on the internet."""
    return "." not in name or name.rpartition(".")[2] in _LOCAL


def is_loopback_name(name: str) -> bool:
    """Whether a name leads to the loopback of whoever asks, whatever a list says (RFC 6761, 6.3)."""
    return name.rpartition(".")[2] == _LOOPBACK


def is_intranet_suffix(name: str) -> bool:
    """Whether all names below this one belong to the network around."""
    return name in _INTRANETS

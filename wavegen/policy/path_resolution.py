"""Which of a policy's rules decides about a path, as far as anchors tell: for what is compared and probed, where no machine is looked at. Pure.

Of two mounts the later one holds, and wrappers mount shallow paths before deep ones, the system's before those of the project and the
home, and what the manifest hides last of all.
"""

from __future__ import annotations

from wavegen.policy.model import Access, HostPath, PathRule

_Parts = tuple[str, ...]
"""A path in parts, of which the first is its anchor."""


class PlacedRules:
    """Rules by the paths that they are about, where no machine is looked at: a path is known by its anchor alone."""

    __slots__ = ("_hidden", "_last", "_rules")

    def __init__(self, rules: tuple[PathRule, ...]) -> None:
        self._rules = rules
        self._last: dict[_Parts, PathRule] = {}
        """Of two rules for one path the later."""
        self._hidden: dict[_Parts, int] = {}
        """What the manifest hides, by its place among the rules."""
        for number, rule in enumerate(rules):
            parts = _path_parts(rule.path)
            self._last[parts] = rule
            if rule.access is Access.HIDE and rule.origin.at:
                self._hidden.setdefault(parts, number)

    def rule_for_path(self, path: HostPath) -> PathRule | None:
        """The rule for the deepest path at or above this one. What the manifest hides stays hidden, whatever shows it or what is below it."""
        parts = _path_parts(path)
        above = [parts[:length] for length in range(len(parts), 0, -1)]
        hidden = [self._hidden[place] for place in above if place in self._hidden]
        if hidden:
            return self._rules[min(hidden)]
        return next((self._last[place] for place in above if place in self._last), None)


_latest = PlacedRules(())


def governing_rule(rules: tuple[PathRule, ...], path: HostPath) -> PathRule | None:
    """The rule that decides about a path. The rules that were asked about last are kept by their paths: a policy is asked many times."""
    global _latest  # noqa: PLW0603
    placed = _latest
    if placed._rules is not rules:  # noqa: SLF001
        placed = _latest = PlacedRules(rules)
    return placed.rule_for_path(path)


def _path_parts(path: HostPath) -> _Parts:
    return (path.anchor.value, *path.tail_parts())

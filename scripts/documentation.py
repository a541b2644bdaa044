"""The pages of docs/ that say what the program itself knows: `python scripts/documentation.py [--check]` writes them, or says which differ.

docs/manifest.md is the schema; docs/protection.md is what the policy of an empty manifest makes of every probe; docs/troubleshooting.md is the
table of messages that `wavegen doctor --message` knows; CONTRIBUTING.md holds the table of packages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from wavegen.explain.known_errors import TROUBLES, Trouble
from wavegen.manifest.json_schema import manifest_schema
from wavegen.manifest.model import Manifest
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Policy
from wavegen.policy.planner import plan_manifest
from wavegen.verify.catalogue import PROBES, cases_for_policy
from wavegen.verify.model import Case, Want

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from layers import rows_as_markdown  # noqa: E402  the tests' own table

SHELLS = ("default", "restricted")
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "array": "list", "object": "mapping"}


def pages() -> Mapping[str, str]:
    """Every page that is written, by its name."""
    return {
        "docs/manifest.md": manifest(),
        "docs/protection.md": protection(),
        "docs/troubleshooting.md": troubleshooting(),
        "CONTRIBUTING.md": contributing((ROOT / "CONTRIBUTING.md").read_text("utf-8")),
    }


def contributing(text: str) -> str:
    """The page with its table of packages as the tests have it."""
    before, begin, rest = text.partition("| packages | |\n")
    return before + rows_as_markdown() + rest[rest.index("\n\n") + 1 :] if begin else text


# --- the manifest


def manifest() -> str:
    """Every key, section by section, as they are met from the top."""
    schema = manifest_schema()
    sections = "\n".join("\n".join(_section(name, place, schema["$defs"][name])) for name, place in _met(schema["$defs"]))
    return f"""\
# The manifest

What `wave.yaml` may say, as `wavegen schema` has it for editors. Keys that are **needed** have no default. Sections that decide what is
fenced take no unknown key; elsewhere one is a note, as the manifest may hold what other programs read. "Kept for Wave" is read by nobody
here. `wave.sandbox.yaml` beside it may hold `runtime.sandbox` alone, for a fence that is not part of a shared manifest.

A list of names is written `[a, b]` or a line each; a mapping `{{a: 1}}` or indented.

{sections}"""


def _met(definitions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The mappings in the order in which a reader comes to them, each once, and where the first of its kind stands."""
    waiting, seen = [(Manifest.__name__, "")], {Manifest.__name__}
    while waiting:
        name, place = waiting.pop(0)
        yield name, place
        for key, value in definitions[name]["properties"].items():
            for other, more in _mappings(value):
                if other not in seen:
                    seen.add(other)
                    waiting.append((other, f"{place}{key}{more}."))


def _mappings(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2], ""
    for some in value.get("anyOf", ()):
        yield from _mappings(some)
    if isinstance(value.get("items"), dict):
        yield from ((name, f"[]{more}") for name, more in _mappings(value["items"]))
    if isinstance(value.get("additionalProperties"), dict):
        yield from ((name, f".NAME{more}") for name, more in _mappings(value["additionalProperties"]))


def _section(name: str, place: str, definition: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {f'`{place[:-1]}`' if place else 'At the top'}" + ("" if definition["additionalProperties"] else "\n\nNo other keys.")
    yield f'\n<a id="{name.lower()}"></a>\n\n| key | what | written as |\n|---|---|---|'
    for key, value in definition["properties"].items():
        needed = " **Needed.**" if key in definition.get("required", ()) else ""
        yield f"| `{key}` | {_cell(value.get('description', ''))}{needed} | {_cell(_kind(value))} |"
    yield ""


def _kind(value: Mapping[str, Any]) -> str:
    """How a value is written, in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[mapping](#{name.lower()})"
    if "anyOf" in value:
        return ", or ".join(dict.fromkeys(_kind(some) for some in value["anyOf"]))
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"] if word is not None)
    kinds = value.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if kinds == ["array"]:
        return f"list of {_kind(value['items'])}"
    if kinds == ["object"] and isinstance(value.get("additionalProperties"), dict):
        return f"mapping of names to {_kind(value['additionalProperties'])}"
    # The text of any scalar is taken, as a name may look like a number.
    return "text" if "string" in kinds else " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


# --- what is protected


def protection() -> str:
    """What every probe finds in the fenced shells that an empty manifest has."""
    made = plan_manifest(Source("wave.yaml", b"metadata: {name: project}\n"), None, "wave.sandbox.yaml")
    found = {shell.name: _by_probe(shell) for shell in made.shells}
    tables = []
    for group, probes in groupby(PROBES, key=lambda probe: probe.group):
        rows = [(probe, [_verdict(found[shell].get(probe.id, ())) for shell in SHELLS]) for probe in probes]
        lines = [f"| {probe.id} | {_cell(probe.question)} | {probe.severity.name.lower()} | {' | '.join(cells)} |" for probe, cells in rows if any(cells)]
        tables.append(
            "\n".join((f"## {group.value.capitalize()}\n", f"| | | weight | {' | '.join(SHELLS)} |", f"|---|---|---|{'---|' * len(SHELLS)}", *lines, ""))
        )
    return f"""\
# What each shell protects against

What the policy of an empty manifest makes of every question that `wavegen verify` asks, from inside, and outside as a control. A manifest's
grants open what they name; for yours, run `wavegen verify`, whose report has the same lines with what came of each, and why.

**held**: reached outside, and not inside. **works**: must work in spite of the fence. **open**: the policy lets it through. **some open**: of
several targets part is held. An empty cell: the question has no meaning there, or a wider one beside it is held. `yolo` holds nothing:
it is the control, in which each of these must be reached for the answer to count.

{chr(10).join(tables)}"""


def _by_probe(shell: Policy) -> Mapping[str, tuple[Case, ...]]:
    ordered = sorted(cases_for_policy(shell), key=lambda case: case.probe.id)
    return {name: tuple(some) for name, some in groupby(ordered, key=lambda case: case.probe.id)}


def _verdict(some: tuple[Case, ...]) -> str:
    wanted = {case.expectation.want for case in some}
    match wanted:
        case _ if not wanted:
            return ""
        case _ if wanted == {Want.STOPPED}:
            return "held"
        case _ if wanted == {Want.WORKS}:
            return "works"
        case _ if wanted == {Want.OPEN}:
            return "open"
    return "some open"


# --- messages


def troubleshooting() -> str:
    """Every message that is known, by who says it."""
    parts = []
    for program, troubles in groupby(sorted(TROUBLES, key=lambda trouble: (trouble.program == "", trouble.program)), key=lambda trouble: trouble.program):
        entries = "\n".join("\n".join(_entry(trouble)) for trouble in troubles)
        parts.append(f"## {program or 'Whatever runs inside'}\n\n{entries}")
    return f"""\
# Troubleshooting

By the message that you see. `wavegen doctor --message 'TEXT'` looks one up (`-` reads it), and `wavegen doctor` looks at the machine and prints what
mends it. Messages that begin with `wavegen:` say what to do in their parentheses.

{chr(10).join(parts)}"""


def _entry(trouble: Trouble) -> Iterator[str]:
    yield f"### `{trouble.says}`\n"
    yield f"Why: {trouble.cause}.\n"
    yield f"What to do: {trouble.remedy}.\n"
    if trouble.commands:
        yield "\n".join(("```sh", *trouble.commands, "```", ""))


def main() -> int:
    """Write the pages, or with --check say which are not what they should be."""
    wanted = pages()
    stale = [name for name, text in wanted.items() if not (ROOT / name).exists() or (ROOT / name).read_text("utf-8") != text]
    for name in stale:
        if "--check" in sys.argv[1:]:
            print(f"{name}: error: is not what the program says (run scripts/documentation.py)", file=sys.stderr)
        else:
            (ROOT / name).write_text(wanted[name], "utf-8")
            print(f"wrote {name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())

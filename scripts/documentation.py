"""The pages of docs/ that say what the program itself knows: `python scripts/documentation.py [--check]` writes them, or says which differ.

docs/manifest.md is the schema; docs/map.md says what becomes of each key; docs/protection.md is what the policy of an empty manifest makes of every
probe; docs/troubleshooting.md is the table of messages that `wavegen doctor --message` knows; CONTRIBUTING.md holds the table of packages.
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
from layers import rows_as_markdown  # noqa: E402  the tests' own tables
from manifest_map import OTHER_KEYWORDS, SECTIONS, Row, Section  # noqa: E402

SHELLS = ("default", "restricted")
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "array": "list", "object": "mapping"}


def pages() -> Mapping[str, str]:
    """Every page that is written, by its name."""
    return {
        "docs/manifest.md": manifest(),
        "docs/map.md": key_map(),
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
here. `wave.sandbox.yaml` beside it may hold `runtime.sandbox` alone, for a fence that is not part of a shared manifest. What enforces a key, and
which function does, stands in [the map](map.md).

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


# --- what becomes of a key

_PRINT = "`--print` shows"
_COLUMNS = ("key", "policy", "rendered by", "rule or file", "read by", _PRINT, "probes")


def key_map() -> str:
    """The table of tests/support/manifest_map.py, a section for each mapping of the manifest."""
    index = " · ".join(f"[{section.place or 'at the top'}](#{section.mapping.lower()})" for section in SECTIONS)
    sections = "\n".join(map(_map_section, SECTIONS))
    others = "".join(f"| `{word}` | {meaning} |\n" for word, meaning in OTHER_KEYWORDS.items())
    places = sorted({place for section in SECTIONS for row in section.rows for place in (*row.rendered, *row.read)}, key=_function_label)
    links = "".join(f"[`{_function_label(place)}`]: ../{place.partition('::')[0]}\n" for place in places)
    return f"""\
# From a manifest key to what enforces it

Find the key, and read its row from left to right.

{index}

| column | |
|---|---|
| policy | the attribute of `Plan`, `Policy` (a shell) or `PersonaPolicy` in [policy/model.py](../wavegen/policy/model.py). [policy/planner.py](../wavegen/policy/planner.py) sets it for shells, [policy/persona_planner.py](../wavegen/policy/persona_planner.py) for personas; what holds without the key stands in [policy/defaults.py](../wavegen/policy/defaults.py) |
| rendered by | the functions of the back ends that write it |
| rule or file | the keyword of the line in `.wavegen/rules/SHELL`, or in `.wavegen/rules/persona-NAME`; [launcher/rules.py](../wavegen/launcher/rules.py) explains the keywords. A path is another rendered file |
| read by | the functions of the launcher that enforce it with bubblewrap, and what else reads it. Containers are started by [container.client_command_line](../wavegen/launcher/container.py), Landlock alone by [landlock.restriction_words](../wavegen/launcher/landlock.py) with the paths of [grants.resolve_grants](../wavegen/launcher/grants.py) |
| `--print` shows | what differs in the output of `.wavegen/bin/SHELL --print -- true`, or of `.wavegen/bin/persona-NAME --print-fence`. `--limit` is an option of [inside/restrict_and_exec.py](../wavegen/launcher/inside/restrict_and_exec.py), which starts the command inside |
| probes | what `wavegen verify` tries because of it; [protection.md](protection.md) has their questions |

`tests/whole/test_map.py` renders each key of this page, and compares.

{sections}
## Other keywords of rules

| keyword | |
|---|---|
{others}
{links}"""


def _map_section(section: Section) -> str:
    # Keys of several mappings have the same name: it is searched for, and found once.
    above = f"{section.place}.".removeprefix(".").removeprefix("runtime.sandbox.")
    rows = [_map_cells(row, above) for row in section.rows]
    # A column in which no row has anything to say is left out, and that of --print where no key changes rules.
    shown = [number for number, _ in enumerate(_COLUMNS) if any(row[number] for row in rows)]
    shown = [number for number in shown if _COLUMNS[number] != _PRINT or any(row.rules for row in section.rows)]
    places = ", ".join(f"`{place}`" for place in (section.place, *section.also) if place) or "At the top"
    lines = (_COLUMNS, ["---"] * len(_COLUMNS), *rows)
    table = "\n".join(f"| {' | '.join(line[number] for number in shown)} |" for line in lines)
    return f'## {places}\n\n<a id="{section.mapping.lower()}"></a>\n\n[What they mean](manifest.md#{section.mapping.lower()}).\n\n{table}\n'


def _map_cells(row: Row, above: str) -> tuple[str, ...]:
    key = f"`{above}{row.key}`"
    if row.below:
        place = next(section.place for section in SECTIONS if section.mapping == row.below)
        return (key, f"see [{place}](#{row.below.lower()})", "", "", "", "", "")
    if row.unread:
        return (key, f"none: {row.unread}", "", "", "", "", "")
    files = (entry.partition(" ~ ")[0].partition(": ") for entry in row.files)
    rules = [f"`{word}`" for word in row.rules] + [f"flag `{row.flag}`"] * bool(row.flag)
    return (
        key,
        ", ".join(f"`{path}`" for path in row.policy),
        ", ".join(f"[`{_function_label(place)}`]" for place in row.rendered),
        ", ".join((*rules, *dict.fromkeys(f"{path} `{word}`" if word else path for path, _, word in files))),
        ", ".join((*(f"[`{_function_label(place)}`]" for place in row.read), *[row.program] * bool(row.program))),
        _cell(_printed(row)),
        _cell(" ".join(row.probes) or f"none: {row.untried}"),
    )


def _function_label(place: str) -> str:
    """A function as the page has it, which is also the name of the link to its file."""
    path, _, name = place.partition("::")
    module = path.removesuffix("/__init__.py").removesuffix(".py").removeprefix("wavegen/").removeprefix("launcher/")
    return f"{module if module.startswith('egress/') else module.rpartition('/')[2]}.{name}" if name else path


def _printed(row: Row) -> str:
    if row.started:
        return f"nothing; at the start `{' '.join(row.started)}`"
    return row.shown or ", ".join(f"`{option}`" for option in row.printed) or "nothing"


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

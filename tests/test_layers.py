"""Which module may import which, read from the source: the order of the layers is the order of the table below."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

# A module imports only from rows above its own, and from modules that stand before it in its row.
ROWS = (
    ("wavegen",),  # the version
    ("launcher",),  # a package that imports nothing of wavegen
    ("errors", "quote", "terminal", "troubles"),
    ("nodes",),
    ("decode",),
    ("manifest", "schema"),
    ("policy",),
    ("seccomp", "seccomp.syscalls", "seccomp.filters", "seccomp.bpf", "seccomp.oci", "seccomp.explain"),
    (
        "images",
        "distribution",
        "suffixes",
        "host_rules",
        "domains",
        "paths",
        "defaults",
        "path_rules",
        "presets",
        "adapters",
        "image_plan",
        "personas",
        "roles",
        "planner",
    ),
    ("resources",),
    ("project_root", "repository", "kept", "handover", "last_render", "script_start"),
    ("backends", "backends._templates", "backends.tree", "backends.flake", "backends.guidance"),
    ("backends.tool_lists", "backends.claude_rules", "backends.claude_hooks", "backends.claude", "backends.opencode", "backends.gemini", "backends.programs"),
    (
        "backends.agents",
        "backends.banner",
        "backends.rules_file",
        "backends.bwrap",
        "backends.landlock",
        "backends.srt",
        "backends.docker",
        "backends.image",
        "backends.compose",
    ),
    ("reach",),
    ("probes", "probes.score", "probes.expect", "probes.expect_files", "probes.expect_network", "probes.expect_process"),
    ("probes.catalogue", "probes.judge", "probes.table", "probes.json_report"),
    ("probes.baseline", "probes.junit", "probes.sarif", "probes.html"),
    (
        "manual",
        "tools",
        "output",
        "git",
        "project",
        "launch",
        "shell_mounts",
        "plan_table",
        "surroundings",
        "registries",
        "recognise",
        "starter",
    ),
    ("containers", "outside", "host_facts", "place", "planting", "ground", "entry", "trials", "verify"),
    ("log", "child", "given", "sandbox", "learn", "audit"),
    ("suggest", "remedy", "explained", "explain_paths", "explain_tools", "explain", "plan_diff", "earlier"),
    ("doctor", "doctor.machine", "doctor.kernel", "doctor.programs", "doctor.bubblewrap", "doctor.nix", "doctor.engines", "doctor.collect", "doctor.show"),
    (
        "cli_progress",
        "cli_messages",
        "cli_manual",
        "cli_completion",
        "cli_verify",
        "cli_log",
        "cli_audit",
        "cli_seccomp",
        "cli_plan",
        "cli_explain",
        "cli_doctor",
        "cli",
    ),
    ("__main__",),
)
ORDER = {module: place for place, module in enumerate(module for row in ROWS for module in row)}
# The package hands on what a program imports from it, and only when asked. The table of back ends names each of them, and each of
# them uses what stands beside the table.
BACK_ENDS = ("tree", "flake", "bwrap", "landlock", "guidance", "claude", "opencode", "gemini", "programs", "srt", "docker", "image", "compose")
KNOWN = {("wavegen", "errors"), ("wavegen", "sandbox"), *(("backends", f"backends.{name}") for name in BACK_ENDS)}

CLI = ("cli", "cli_messages", "cli_manual", "cli_completion", "cli_verify", "cli_log", "cli_audit", "cli_seccomp", "cli_plan", "cli_explain", "cli_doctor")
"""What prints and exits: a group of commands, and the modules that hold the longer of them."""

MACHINE = {
    "os",
    "subprocess",
    "socket",
    "tempfile",
    "shutil",
    "pathlib",
    "fcntl",
    "signal",
    "pty",
    "selectors",
    "urllib.request",
    "http",
    "asyncio",
    "threading",
    "multiprocessing",
    "ctypes",
    "termios",
}
TOUCH_THE_MACHINE = {
    "shell_mounts",
    "tools",
    "output",
    "git",
    "repository",
    "kept",
    "project",
    "launch",
    "surroundings",
    "registries",
    "recognise",
    "starter",
    "resources",
    "project_root",
    "handover",
    "last_render",
    "script_start",
    *CLI,
    "cli_progress",
    "terminal",
    "explain_paths",
    "explain",
    "outside",
    "containers",
    "host_facts",
    "place",
    "given",
    "ground",
    "planting",
    "entry",
    "trials",
    "verify",
    "log",
    "child",
    "sandbox",
    "learn",
    "audit",
    "doctor.machine",
    "doctor.kernel",
    "doctor.nix",
    "doctor.collect",
    "doctor.engines",
}
THIRD_PARTY = {**{name: {"click"} for name in CLI}, "nodes": {"yaml"}, "backends._templates": {"jinja2"}}


def modules() -> dict[str, ast.Module]:
    """Every module of the package but those that are run inside a shell, by its name below the package; the launcher is one."""
    package = ROOT / "wavegen"
    found = {"launcher": ast.Module([], [])}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        if parts[0] in ("data", "launcher") or parts[:2] == ("probes", "inside"):
            continue
        found[".".join(part for part in parts if part != "__init__") or "wavegen"] = ast.parse(file.read_text("utf-8"))
    return found


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports anywhere: `from a import b` is a.b, whether b is a module or not."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(level=level) if level:
                yield "."  # within the launcher
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)


def own(tree: ast.Module) -> set[str]:
    """The modules of the package that a module imports."""
    found = set()
    for name in imports(tree):
        if name.split(".")[0] == "wavegen":
            below = name.split(".")[1:]
            longest = next((".".join(below[:n]) for n in (2, 1) if ".".join(below[:n]) in ORDER), "wavegen")
            found.add(longest)
    return found


def test_every_module_stands_in_the_table() -> None:
    assert set(modules()) == set(ORDER)


def test_a_module_imports_only_what_stands_above_it() -> None:
    upward = {(name, used) for name, tree in modules().items() for used in own(tree) if ORDER[used] >= ORDER[name]}
    assert upward == KNOWN


def test_only_the_launcher_imports_from_beside_itself() -> None:
    assert not [name for name, tree in modules().items() if "." in imports(tree)]


def test_imports_are_found_at_all() -> None:
    """The tests here would pass if nothing was found."""
    uses = {name: own(tree) for name, tree in modules().items()}
    assert uses["errors"] == uses["quote"] == set()
    assert uses["decode"] == {"errors", "nodes"}
    assert uses["schema"] == {"decode", "manifest"}
    assert {"defaults", "roles", "domains", "policy"} <= uses["planner"]
    assert {"output", "planner"} <= uses["project"]
    assert {"backends", "backends.flake", "output", "project", "sandbox", "starter"} <= uses["cli"]


def test_only_the_last_layers_touch_the_machine() -> None:
    found = {
        name
        for name, tree in modules().items()
        for used in imports(tree)
        if used in MACHINE or used.rpartition(".")[0] in MACHINE or used.split(".")[0] in MACHINE
    }
    assert found <= TOUCH_THE_MACHINE
    assert {"output", "project", "launch", "cli"} <= found


def test_third_party_packages_are_loaded_in_one_place_each() -> None:
    used = {
        name: {top for used in imports(tree) if (top := used.split(".")[0]) != "wavegen" and top not in sys.stdlib_module_names}
        for name, tree in modules().items()
    }
    assert {name: packages for name, packages in used.items() if packages} == THIRD_PARTY


@pytest.mark.parametrize("call", ["print", "exit", "input", "open", "eval", "exec", "compile", "__import__"])
def test_pure_layers_neither_print_nor_exit_nor_open_files(call: str) -> None:
    callers = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call
    }
    assert callers <= (
        {
            "output",
            "kept",
            "surroundings",
            "registries",
            "recognise",
            "starter",
            "resources",
            "cli",
            "cli_verify",
            "outside",
            "planting",
            "ground",
            "host_facts",
            "entry",
            "trials",
        }
        | {"launch", "handover", "last_render", "child", "learn", "cli_manual", "doctor.machine"}
        if call == "open"
        else set()
    )


LAUNCHER = tuple(sorted((ROOT / "wavegen/launcher").rglob("*.py")))
SLOW = {"argparse", "ctypes", "dataclasses", "enum", "json", "pathlib", "re", "typing"}


@pytest.mark.parametrize("file", LAUNCHER, ids=lambda file: str(file.relative_to(ROOT / "wavegen/launcher")))
def test_the_launcher_stands_on_the_standard_library_of_python_3_9_and_imports_nothing_slow(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 9))
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    for node in ast.walk(tree):
        used = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if not (isinstance(node, ast.ImportFrom) and node.level):
            # It is its own package by the time that `__main__` names it.
            assert all(name.split(".")[0] in sys.stdlib_module_names or (name == "launcher.start" and file.name == "__main__.py") for name in used), used
    at_once = {
        name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in imports(ast.Module([node], [])) if not name.startswith(".")
    }
    assert not {name.split(".")[0] for name in at_once} & SLOW


def test_modules_that_are_run_inside_a_shell_use_the_standard_library_alone() -> None:
    files = sorted((ROOT / "wavegen/probes/inside").glob("*.py"))
    assert files
    known = {file.stem for file in files} | set(sys.stdlib_module_names)
    for file in files:
        for name in imports(ast.parse(file.read_text("utf-8"))):
            assert name.split(".")[0] in known or name.startswith("wavegen.launcher."), (file.name, name)


def test_what_holds_the_canaries_uses_the_standard_library_alone() -> None:
    """It is started without site-packages, so that it is there at once."""
    assert {name.split(".")[0] for name in imports(modules()["outside"])} <= set(sys.stdlib_module_names)


# --- templates

EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
QUOTING = {"sh", "nix", "comment", "words", "html", "posix", "compose"}
# What is no text of a manifest's, or has been quoted word by word where it was put together.
ALLOWED = {"header", "line.line", "before", "after", "nobody", '"" if services else " {}"'}


def templates() -> list[Path]:
    return sorted((ROOT / "templates").iterdir())


def test_every_value_in_a_template_ends_in_a_quoting_filter() -> None:
    bare = {e for file in templates() for text in EXPRESSION.findall(file.read_text("utf-8")) if (e := text.strip()).rpartition("|")[2].strip() not in QUOTING}
    assert bare <= ALLOWED, bare - ALLOWED
    assert len(templates()) >= 3


def test_the_allow_list_of_bare_values_holds_nothing_idle() -> None:
    everything = "".join(file.read_text("utf-8") for file in templates())
    assert {e.strip() for e in EXPRESSION.findall(everything)} >= ALLOWED


def test_templates_hold_no_logic_beyond_loops_and_presence() -> None:
    statements = [s for file in templates() for s in re.findall(r"\{%-?\s*(\w+)", file.read_text("utf-8"))]
    assert set(statements) <= {"for", "endfor", "if", "else", "endif", "include"}
    assert "|safe" not in "".join(file.read_text("utf-8").replace(" ", "") for file in templates())

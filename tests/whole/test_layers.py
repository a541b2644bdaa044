"""Which module may import which, read from the source: the order of the layers is the order of the table below."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT
from layers import ROWS

FLOOR = {name: number for number, (names, _) in enumerate(ROWS) for name in names}
# A program that imports wavegen is handed the library, and only when it asks.
UPWARD = {("wavegen", "core.errors"), ("wavegen", "project.library")}
# Modules that import each other: the table of back ends names each of them, and each of them uses what stands beside the table.
TABLES = {"backends"}

CLI = (
    "cli.main",
    "cli.messages",
    "cli.manual_pages",
    "cli.completion",
    "cli.verify",
    "cli.log",
    "cli.audit",
    "cli.seccomp",
    "cli.plan",
    "cli.explain",
    "cli.doctor",
)
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
    "project.shell_mounts",
    "core.host_programs",
    "project.rendered_tree",
    "project.git",
    "project.repository",
    "project.state_dir",
    "project.loader",
    "project.wrappers",
    "project.inspection",
    "project.registries",
    "project.ecosystems",
    "project.starter",
    "core.resources",
    "project.project_root",
    "project.handover",
    "project.last_render",
    "project.script_start",
    *CLI,
    "cli.progress",
    "core.terminal",
    "explain.paths",
    "explain.targets",
    "verify.canary_server",
    "verify.containers",
    "verify.host_facts",
    "verify.testbed_location",
    "project.checked_arguments",
    "verify.testbed",
    "verify.canaries",
    "verify.session",
    "verify.launcher_probes",
    "verify.run",
    "project.network_log",
    "project.wrapper_process",
    "project.library",
    "learn.syscalls",
    "audit.findings",
    "doctor.machine",
    "doctor.kernel",
    "doctor.nix",
    "doctor.collect",
    "doctor.engines",
}
THIRD_PARTY = {**{name: {"click"} for name in CLI}, "manifest.yaml_nodes": {"yaml"}, "backends.templates": {"jinja2"}}


def modules() -> dict[str, ast.Module]:
    """Every module of the package but those that are run inside a shell, by its name below the package; the launcher is one."""
    package = ROOT / "wavegen"
    found = {"launcher": ast.Module([], [])}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        if parts[0] in ("data", "launcher") or parts[:2] == ("verify", "inside"):
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


MODULES = modules()


def own(tree: ast.Module) -> set[str]:
    """The modules of the package that a module imports, as the longest name that is one."""
    found = set()
    for name in imports(tree):
        if name.split(".")[0] == "wavegen":
            below = name.split(".")[1:]
            found.add(next((".".join(below[:n]) for n in (3, 2, 1) if ".".join(below[:n]) in MODULES or below[:n] == ["launcher"]), "wavegen"))
    return found


def test_every_module_stands_in_a_package_of_the_table() -> None:
    assert {name.split(".")[0] for name in MODULES} == {"wavegen", "__main__", *FLOOR}


def test_a_package_imports_only_from_rows_above_its_own() -> None:
    floor = {"wavegen": -1, "__main__": len(ROWS), **FLOOR}
    upward = set()
    for name, tree in MODULES.items():
        for used in own(tree):
            here, there = name.split(".")[0], used.split(".")[0]
            if here != there and floor[there] >= floor[here]:
                upward.add((name, used))
    assert upward == UPWARD


def test_no_modules_import_each_other() -> None:
    left = {name: own(tree) - {"wavegen", name} for name, tree in MODULES.items() if name != "wavegen" and name not in TABLES}
    left = {name: {used for used in uses if used in left} for name, uses in left.items()}
    while free := {name for name, uses in left.items() if not uses}:
        left = {name: uses - free for name, uses in left.items() if name not in free}
    assert left == {}


def test_only_the_launcher_imports_from_beside_itself() -> None:
    assert not [name for name, tree in MODULES.items() if "." in imports(tree)]


def test_imports_are_found_at_all() -> None:
    """The tests here would pass if nothing was found."""
    uses = {name: own(tree) for name, tree in MODULES.items()}
    assert uses["core.errors"] == uses["core.quote"] == set()
    assert uses["manifest.decoder"] == {"core.errors", "manifest.yaml_nodes"}
    assert uses["manifest.json_schema"] == {"manifest.decoder", "manifest.model"}
    assert {"policy.defaults", "policy.persona_planner", "policy.domains", "policy.model", "seccomp.filters"} <= uses["policy.planner"]
    assert {"project.rendered_tree", "policy.planner"} <= uses["project.loader"]
    assert {"backends", "backends.project.flake", "project.rendered_tree", "project.loader", "project.library", "project.starter"} <= uses["cli.main"]


def test_only_the_last_layers_touch_the_machine() -> None:
    found = {
        name
        for name, tree in MODULES.items()
        for used in imports(tree)
        if used in MACHINE or used.rpartition(".")[0] in MACHINE or used.split(".")[0] in MACHINE
    }
    assert found <= TOUCH_THE_MACHINE
    assert {"project.rendered_tree", "project.loader", "project.wrappers", "cli.main"} <= found


def test_third_party_packages_are_loaded_in_one_place_each() -> None:
    used = {
        name: {top for used in imports(tree) if (top := used.split(".")[0]) != "wavegen" and top not in sys.stdlib_module_names}
        for name, tree in MODULES.items()
    }
    assert {name: packages for name, packages in used.items() if packages} == THIRD_PARTY


@pytest.mark.parametrize("call", ["print", "exit", "input", "open", "eval", "exec", "compile", "__import__"])
def test_pure_layers_neither_print_nor_exit_nor_open_files(call: str) -> None:
    callers = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call
    }
    assert callers <= (
        {
            "project.rendered_tree",
            "project.state_dir",
            "project.inspection",
            "project.registries",
            "project.ecosystems",
            "project.starter",
            "core.resources",
            "cli.main",
            "cli.verify",
            "verify.canary_server",
            "verify.canaries",
            "verify.testbed",
            "verify.host_facts",
            "verify.session",
            "verify.launcher_probes",
        }
        | {"project.wrappers", "project.handover", "project.last_render", "project.wrapper_process", "learn.syscalls", "cli.manual_pages", "doctor.machine"}
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
    files = sorted((ROOT / "wavegen/verify/inside").glob("*.py"))
    assert files
    known = {file.stem for file in files} | set(sys.stdlib_module_names)
    for file in files:
        for name in imports(ast.parse(file.read_text("utf-8"))):
            assert name.split(".")[0] in known or name.startswith("wavegen.launcher."), (file.name, name)


def test_what_holds_the_canaries_uses_the_standard_library_alone() -> None:
    """It is started without site-packages, so that it is there at once."""
    assert {name.split(".")[0] for name in imports(MODULES["verify.canary_server"])} <= set(sys.stdlib_module_names)


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

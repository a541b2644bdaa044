"""The command line: with the other modules of this package, which hold the longer verbs, the only ones with click, printing or exit."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from wavegen import VERSION
from wavegen.cli import completion, manual_pages
from wavegen.cli.audit import audit
from wavegen.cli.doctor import doctor
from wavegen.cli.explain import explain
from wavegen.cli.log import log
from wavegen.cli.messages import MANIFEST, print_message, print_problems, print_program_message, raise_fatal_gaps
from wavegen.cli.plan import plan
from wavegen.cli.seccomp import seccomp
from wavegen.cli.verify import verify

if TYPE_CHECKING:
    from wavegen.backends import File
    from wavegen.project.loader import Project
    from wavegen.project.rendered_tree import Finding

_BUG = 70


class _Group(click.Group):
    """Expected failures become messages and exit codes; anything else is a bug and says what to report."""

    def invoke(self, ctx: click.Context) -> Any:
        from wavegen.core.errors import WavegenError

        try:
            return super().invoke(ctx)
        except WavegenError as failed:
            for line in failed.message_lines():
                print_message(line)
            ctx.exit(failed.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as bug:
            if isinstance(bug, OSError) and bug.errno in (errno.ENOSPC, errno.EPIPE):
                raise  # to `main`, as --help gets there too
            _report_bug(bug)
            ctx.exit(_BUG)


def _discard_stdout() -> None:
    """Python flushes stdout once more at its end, and would print a traceback."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the rest of the process


def _report_bug(bug: Exception) -> None:
    import platform
    import traceback

    frames = traceback.extract_tb(bug.__traceback__)
    where = "; ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames[-4:])
    print_message(f"wavegen: bug: {type(bug).__name__}: {bug}")
    click.echo(f"  at {where}", err=True)
    click.echo(f"  wavegen {VERSION}, Python {platform.python_version()}, {platform.platform()}", err=True)
    click.echo("  please report these lines, with the manifest if you can share it", err=True)


_STATUS = """Exit status: 0 done, 1 findings, 2 manifest or usage, 3 the machine, 70 a bug; `run`: the command's own, or 125
where the fence could not be built."""


@click.group(cls=_Group, epilog=_STATUS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="wavegen")
def cli() -> None:
    """Fence coding agents: one manifest, wave.yaml, rendered into a Nix flake and scripts for bubblewrap.

    \b
      wavegen init       write a starter manifest for this project
      wavegen render     after each change of the manifest
      nix develop        the fenced shell, every day; without Nix: .wavegen/bin/default
      wavegen run CMD    one command inside, from the manifest as it is now
      wavegen verify     try to get out of every shell, and report what held
      wavegen audit      what shells left behind that the host would run
      wavegen doctor     what this machine can hold, and what mends it
    """


@cli.command()
@MANIFEST
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with one reason a line where the disk differs.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change as a unified diff. With --check, exit 1 on any.")
@click.option("--git-add", is_flag=True, help="Run the `git add -N` that flakes need for new files, instead of printing it.")
@click.option("--accept-new", is_flag=True, help="Take a manifest or wave.sandbox.yaml that was not there at the last render.")
def render(manifest: str | None, *, check: bool, diff: bool, git_add: bool, accept_new: bool) -> None:
    """Render the manifest into flake.nix and .wavegen/.

    Files that are already right are not touched. A flake.nix written by hand and an existing flake.lock are left
    alone. What a fence cannot hold is listed as a gap, with the manifest line that asked for it.
    """
    from wavegen import backends
    from wavegen.backends.project.flake import HAND_OVER
    from wavegen.cli.progress import Waiting
    from wavegen.manifest.model import BackendName, Output
    from wavegen.project import loader, repository
    from wavegen.project.rendered_tree import Tree, sha256_digest
    from wavegen.project.state_dir import record_lock_digest

    with Waiting("rendering"):
        loaded = loader.load_project(manifest, accept=accept_new)
        gaps = backends.collect_gaps(loaded.plan)
        raise_fatal_gaps(gaps, loaded.sources)
        files = backends.render_all_files(loaded.plan)
        tree = Tree(loaded.root, files, loaded.inputs)
        findings = tree.find_differences() if check or diff else ()
    if check or diff:
        _show_findings(loaded, files, tree.files[-1].content_bytes, tree.render_diff() if diff else (f"{finding}\n" for finding in findings))
        sys.exit(1 if check and findings else 0)
    with Waiting("writing"):
        done = tree.write_tree()
    if done:
        # Those that every manifest has are said the first time; later they would hide what a change brought.
        first = not tree.before.outputs
        shown = [gap for gap in gaps if backends.is_gap_of_active_backend(loaded.plan, gap) and (gap.origin.at or first)]
        print_problems((*loaded.plan.notes, *loader.path_notes(loaded.root)), shown)
        if len(shown) < len(gaps):
            why = "of fences that this manifest does not start" if first else "as before"
            print_program_message("note", f"{len(gaps) - len(shown)} more gaps, {why} (wavegen plan -v lists them)")
    for line in _summarise_changes(done):
        click.echo(line)
    _after_render(tree, done, git_add=git_add)
    if done and not loaded.plan.vendored and Output.FLAKE in loaded.plan.outputs:
        click.echo(f"flake.nix is yours to write: with an input `wavegen` (flake = false), the shells are\n    {HAND_OVER}", err=True)
    _record_render(loaded, files, tree.files[-1].content_bytes)
    if done or loaded.plan.backend is BackendName.LANDLOCK:
        record_lock_digest(loaded.root, sha256_digest(tree.files[-1].content_bytes))
    kept = repository.pin_repository_settings(loaded.root)
    for path in kept:
        click.echo(f"wrote {path}")
    if kept:
        programs = " and ".join(name for name, directory in (("git", ".git/"), ("hg", ".hg/")) if any(path.startswith(directory) for path in kept))
        print_program_message("note", f"{' and '.join(kept)} says what {programs} assumes anyway; now shells cannot say otherwise")
    elif not done:
        click.echo("up to date")


_LAUNCHER = ".wavegen/launcher/"


def _summarise_changes(done: Iterable[Finding]) -> Iterator[str]:
    """What was written and removed, a line each; of many files of the launcher, which nobody reads one by one, how many."""
    from wavegen.project.rendered_tree import Reason

    for word, is_gone in (("removed", True), ("wrote", False)):
        paths = [finding.path for finding in done if (finding.reason is Reason.ORPHAN) is is_gone]
        many = [path for path in paths if path.startswith(_LAUNCHER)]
        if len(many) > _MANY:
            yield f"{word} {_LAUNCHER} ({len(many)} files)"
            paths = [path for path in paths if not path.startswith(_LAUNCHER)]
        yield from (f"{word} {path}" for path in paths)


_MANY = 3


def _show_findings(loaded: Project, files: Sequence[File], lock: bytes, lines: Iterable[str]) -> None:
    clean = True
    for line in lines:
        click.echo(line, nl=False)
        clean = False
    if clean:
        _record_render(loaded, files, lock)


def _record_render(loaded: Project, files: Sequence[File], lock: bytes) -> None:
    """Leave word that what is on the disk is what is rendered, for the next `run` and `render --check`."""
    from wavegen.manifest.model import Output
    from wavegen.project import last_render, wrappers

    plan = loaded.plan
    rendered: dict[str, object] = {"manifest": plan.manifest, "shell": wrappers.shell_of(plan, None).name, "backend": plan.backend.value}
    rendered["executable"] = [file.path for file in files if file.executable]
    rendered["required"] = [file.path for file in files if file.only_if_missing]
    rendered["flake"] = Output.FLAKE in plan.outputs
    last_render.record_last_render(loaded.root, lock, rendered)


def _after_render(tree: Any, done: Iterable[Finding], *, git_add: bool) -> None:
    """What is left to do for the user."""
    from wavegen.backends.project.flake import ADOPT, FLAKE
    from wavegen.project.rendered_tree import Reason

    if FLAKE in tree.foreign:
        click.echo(f"{FLAKE} is written by hand and stays as it is; add the shells to its outputs:\n    {ADOPT}", err=True)
    new = [finding.path for finding in done if finding.reason is Reason.MISSING]
    if (new or git_add) and os.path.lexists(os.path.join(tree.root, ".git")):
        from wavegen.project import git

        paths = ("flake.nix", "flake.lock", ".wavegen")
        if git_add:
            git.add_paths_to_index(tree.root, paths)
        else:
            click.echo(f"flakes see only what git knows: {' '.join(git.add_command(paths))}", err=True)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@MANIFEST
@click.option("-s", "--shell", metavar="SHELL", help="The shell to run in. Default: default.")
@click.option("-p", "--persona", metavar="NAME", help="Start the agent of a persona in its fence; COMMAND is then words for the agent.")
@click.option("--adapter", metavar="NAME", help="The adapter to start, one of the persona's. Default: the first whose program is inside.")
@click.option("--exec", "instead", is_flag=True, help="Run COMMAND in the persona's fence in place of its agent.")
@click.option("-b", "--backend", metavar="NAME", help="bubblewrap, docker or landlock, in place of the manifest's.")
@click.option("--artifacts", metavar="DIR", help="With docker: what is at /artifacts, read-only. All but the output is forgotten.")
@click.option("--output", metavar="DIR", help="With docker: make this directory of what is left in /workspace/output.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913, PLR0917  one for each option
    manifest: str | None,
    shell: str | None,
    persona: str | None,
    adapter: str | None,
    backend: str | None,
    artifacts: str | None,
    output: str | None,
    *,
    instead: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND inside a shell, by the manifest as it is now; without COMMAND, an interactive bash.

    The exit status is the command's own (128+n where signal n ended it); 125 where the fence could not be built,
    and then nothing was run.

    \b
      wavegen run -- make test
      wavegen run --shell restricted -- claude
      wavegen run --persona navigator -- -p 'Where is the parser?'
      wavegen run --persona navigator --exec -- git log
      wavegen run --backend docker --shell restricted -- make test
    """
    from wavegen.core.errors import FenceError, WavegenError
    from wavegen.project.library import Sandbox

    try:
        # As they were given: an empty name is a variable that was not set, and must not stand for another shell.
        sandbox = Sandbox.load(manifest)
        sandbox.replace(command, shell=shell, persona=persona, adapter=adapter, instead=instead, backend=backend, artifacts=artifacts, output=output)
    except WavegenError as failed:
        # Any other status could be the command's own.
        for line in failed.message_lines():
            print_message(line)
        sys.exit(FenceError.exit_code)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of wave.yaml, for editors.

    `render` writes it to .wavegen/wave.schema.json, and the manifest that `init` writes points there.
    """
    from wavegen.core.quote import json_text
    from wavegen.manifest.json_schema import manifest_schema

    click.echo(json_text(manifest_schema()), nl=False)


@cli.command()
@click.option("--print", "only_print", is_flag=True, help="Print the manifest instead of writing it.")
@click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False))
def init(directory: str, *, only_print: bool) -> None:
    """Write a commented wave.yaml for the project in DIRECTORY (default: here).

    Recognises go.mod, package.json, pyproject.toml and Cargo.toml and picks packages for them. The hosts to allow
    are read from the project's lock files and the tools' own configuration. Never overwrites.
    """
    from wavegen.core.errors import MachineError, UsageError
    from wavegen.project.project_root import MANIFEST
    from wavegen.project.starter import starter_manifest

    text = starter_manifest(os.path.realpath(directory))
    if only_print:
        click.echo(text, nl=False)
        return
    path = os.path.join(directory, MANIFEST)
    try:
        with open(path, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists", "edit it; init --print shows what would be written") from None
    except OSError as failed:
        raise MachineError(f"{path} cannot be written: {failed.strerror}", "check the directory's permissions") from None
    click.echo(f"wrote {path}")
    click.echo("next: read it, then run wavegen render", err=True)


for _verb in (audit, doctor, explain, log, plan, seccomp, verify):
    cli.add_command(_verb)
manual_pages.register_manual(cli)
completion.register_completion(cli)


def main() -> None:
    """The entry point."""
    try:
        cli(prog_name="wavegen")
    except OSError as failed:
        if failed.errno != errno.ENOSPC:
            raise
        # What is written to the project has messages of its own; this is what is printed.
        _discard_stdout()
        print_program_message("error", "the output cannot be written: no space left (make room, or print elsewhere)")
        sys.exit(3)

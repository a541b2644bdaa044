"""The command line: the only module with click, printing or exit."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from wavegen import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

_BUG = 70


class _Group(click.Group):
    """Expected failures become messages and exit codes; anything else is a bug and says what to report."""

    def invoke(self, ctx: click.Context) -> Any:
        from wavegen.errors import WavegenError

        try:
            return super().invoke(ctx)
        except WavegenError as failed:
            for line in failed.lines():
                click.echo(line, err=True)
            ctx.exit(failed.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as bug:
            if isinstance(bug, OSError) and bug.errno in (errno.ENOSPC, errno.EPIPE):
                raise  # to `main`, as --help gets there too
            _report(bug)
            ctx.exit(_BUG)


def _silence() -> None:
    """Python flushes stdout once more at its end, and would print a traceback."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the rest of the process


def _report(bug: Exception) -> None:
    import platform
    import traceback

    frames = traceback.extract_tb(bug.__traceback__)
    where = "; ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames[-4:])
    click.echo(f"wavegen: bug: {type(bug).__name__}: {bug}", err=True)
    click.echo(f"  at {where}", err=True)
    click.echo(f"  wavegen {VERSION}, Python {platform.python_version()}, {platform.platform()}", err=True)
    click.echo("  please report these lines, with the manifest if you can share it", err=True)


_MANIFEST = click.option("-m", "--manifest", metavar="FILE", help="The manifest. Default: wave.yaml here or in the nearest directory above.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="wavegen")
def cli() -> None:
    """Fence coding agents: one manifest, wave.yaml, rendered into a Nix flake and bubblewrap wrappers.

    \b
      wavegen init       write a starter manifest for this project
      wavegen render     after each change of the manifest
      nix develop        the fenced shell, every day; without Nix: .wavegen/bin/default
      wavegen run CMD    one command inside, from the manifest as it is now
      wavegen verify     try to get out of every shell, and report what held
      wavegen audit      what shells left behind that the host would run
      wavegen doctor     what this machine can hold, and what mends it

    Exit status: 0 done, 1 findings, 2 manifest or usage, 3 the machine, 70 a bug; `run`: the command's own, or 125
    where the fence could not be built.
    """


@cli.command()
@_MANIFEST
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with one reason a line where the disk differs.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change as a unified diff. With --check, exit 1 on any.")
@click.option("--git-add", is_flag=True, help="Run the `git add -N` that flakes need for new files, instead of printing it.")
@click.option("--accept-new", is_flag=True, help="Take a manifest or wave.sandbox.yaml that was not there at the last render.")
def render(manifest: str | None, *, check: bool, diff: bool, git_add: bool, accept_new: bool) -> None:
    """Render the manifest into flake.nix and .wavegen/.

    Files that are already right are not touched. A flake.nix written by hand and an existing flake.lock are left
    alone. What a fence cannot hold is listed as a gap, with the manifest line that asked for it.
    """
    from wavegen import backends, project, repository
    from wavegen.kept import note_rendered
    from wavegen.manifest import BackendName
    from wavegen.output import Reason, Tree, digest

    loaded = project.load(manifest, accept=accept_new)
    gaps = backends.gaps(loaded.plan)
    _refuse(gaps, loaded.sources)
    tree = Tree(loaded.root, backends.render(loaded.plan), loaded.inputs)
    if check or diff:
        findings = tree.findings()
        for line in tree.diff() if diff else (f"{finding}\n" for finding in findings):
            click.echo(line, nl=False)
        sys.exit(1 if check and findings else 0)
    done = tree.write()
    if done:
        # Those that every manifest has are said the first time; later they would hide what a change brought.
        shown = [gap for gap in gaps if gap.origin.at or not tree.before.outputs]
        _show((*loaded.plan.notes, *project.path_notes(loaded.root)), shown)
        if len(shown) < len(gaps):
            click.echo(f"wavegen: note: {len(gaps) - len(shown)} more gaps, as before (wavegen plan lists them)", err=True)
    for finding in done:
        click.echo(f"{'removed' if finding.reason is Reason.ORPHAN else 'wrote'} {finding.path}")
    _after_render(tree, done, git_add=git_add)
    if done or loaded.plan.backend is BackendName.LANDLOCK:
        note_rendered(loaded.root, digest(tree.files[-1].data))
    if repository.keep_to_itself(loaded.root):
        click.echo(f"wrote {repository.COMMONDIR}")
        click.echo(f"wavegen: note: {repository.COMMONDIR} says what git assumes anyway; now shells cannot say otherwise", err=True)
    elif not done:
        click.echo("up to date")


def _after_render(tree: Any, done: Any, *, git_add: bool) -> None:
    """What is left to do for the user."""
    from wavegen.backends.flake import ADOPT, FLAKE
    from wavegen.output import Reason

    if FLAKE in tree.foreign:
        click.echo(f"{FLAKE} is written by hand and stays as it is; add the shells to its outputs:\n    {ADOPT}", err=True)
    new = [finding.path for finding in done if finding.reason is Reason.MISSING]
    if (new or git_add) and os.path.lexists(os.path.join(tree.root, ".git")):
        from wavegen import git

        paths = ("flake.nix", "flake.lock", ".wavegen")
        if git_add:
            git.add(tree.root, paths)
        else:
            click.echo(f"flakes see only what git knows: {' '.join(git.add_command(paths))}", err=True)


def _show(notes: Any, gaps: Any) -> None:
    for problem in (*notes, *(gap.problem() for gap in gaps)):
        click.echo(problem.line(), err=True)


def _refuse(gaps: Any, sources: dict[str, str]) -> None:
    from wavegen.errors import ManifestError

    fatal = tuple(gap.problem() for gap in gaps if gap.fatal)
    if fatal:
        raise ManifestError(fatal, sources)


@cli.command()
@_MANIFEST
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON: what .wavegen/plan.json holds.")
def plan(manifest: str | None, *, as_json: bool) -> None:
    """Show what each shell may touch, by which line of the manifest, and what the fence cannot hold."""
    from wavegen import backends, project
    from wavegen.backends.tree import plan_json
    from wavegen.quote import json_text
    from wavegen.report import table

    loaded = project.load(manifest, accept=True)
    gaps = backends.gaps(loaded.plan)
    if as_json:
        click.echo(json_text(plan_json(loaded.plan)), nl=False)
    else:
        for line in table(loaded.plan):
            click.echo(line)
    _show(loaded.plan.notes, gaps)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_MANIFEST
@click.option("-s", "--shell", metavar="SHELL", help="The shell to run in. Default: default.")
@click.option("-p", "--persona", metavar="NAME", help="Start the agent of a persona in its fence; COMMAND is then words for the agent.")
@click.option("--adapter", metavar="NAME", help="Of the persona's adapters this one. Default: the first whose program is inside.")
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
    from wavegen.errors import FenceError, WavegenError
    from wavegen.sandbox import Sandbox

    try:
        # As they were given: an empty name is a variable that was not set, and must not stand for another shell.
        sandbox = Sandbox.load(manifest)
        sandbox.replace(command, shell=shell, persona=persona, adapter=adapter, instead=instead, backend=backend, artifacts=artifacts, output=output)
    except WavegenError as failed:
        # Any other status could be the command's own.
        for line in failed.lines():
            click.echo(line, err=True)
        sys.exit(FenceError.exit_code)


@cli.command()
@_MANIFEST
@click.option("-s", "--shell", "shells", metavar="SHELL", multiple=True, help="A shell, or persona-NAME; may be repeated. Default: all shells with a fence.")
@click.option("--personas", is_flag=True, help="The fences of all personas, too.")
@click.option(
    "--via",
    type=click.Choice(["wrapper", "nix", "docker"]),
    default="wrapper",
    show_default=True,
    help="Enter by .wavegen/bin, by nix develop, or as a container: by .wavegen/docker (podman where WAVEGEN_CONTAINER says so).",
)
@click.option("--under", metavar="DIR", help="Where the throw-away project is made. Default: beside the project, else where temporary files are.")
@click.option("-v", "--verbose", is_flag=True, help="Every probe in full, also those that held.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--junit", metavar="FILE", help="Write a JUnit report.")
@click.option("--sarif", metavar="FILE", help="Write a SARIF report, for code scanning.")
@click.option("--html", metavar="FILE", help="Write one self-contained page.")
@click.option("--baseline", metavar="FILE", help="The JSON of an earlier run: fail on anything that got worse.")
def verify(  # noqa: PLR0913  one for each option
    manifest: str | None,
    shells: tuple[str, ...],
    via: str,
    under: str | None,
    *,
    personas: bool,
    verbose: bool,
    as_json: bool,
    junit: str | None,
    sarif: str | None,
    html: str | None,
    baseline: str | None,
) -> None:
    """Prove that the fences hold: enter each shell, try to get out, and report what came of it.

    Everything is tried in a throw-away copy of what is rendered, with a throw-away home in which canaries are planted:
    nothing of yours is read or changed. The same is tried in yolo, as a control: what is out of reach there too proves
    nothing.

    \b
      HELD          reachable outside, stopped inside; or works in both, as it should
      BROKEN        reached inside though the policy forbids it; or does not work, though it should
      INCONCLUSIVE  out of reach outside too, a tool is missing, or no answer in time
      OPEN          the policy lets it through, or a gap says so

    Exit status: 0 all held, 1 something is broken or worse than the baseline, 3 something could not be checked.
    """
    from dataclasses import replace

    from wavegen import project
    from wavegen.probes.baseline import read, worse
    from wavegen.probes.json_report import as_json as json_report
    from wavegen.probes.score import exit_code
    from wavegen.probes.table import table
    from wavegen.quote import json_text
    from wavegen.verify import verify as run_probes

    loaded = project.load(manifest)
    # An empty name is a variable that was not set: no reason to compare with nothing, or to write nothing.
    before = read(_read_json(baseline)) if baseline is not None else ()
    reports = {file: how for file, how in ((junit, _junit), (sarif, _sarif), (html, _html)) if file is not None}
    for file in reports:
        _check_writable(file, loaded.root)
    report = run_probes(loaded, shells=shells, personas=personas, via=via, under=under, progress=_progress())
    report = replace(report, worse=worse(before, report, only=shells))
    if as_json:
        click.echo(json_text(json_report(report)), nl=False)
    else:
        colour = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in table(report, verbose=verbose, colour=colour):
            click.echo(line)
    for file, how in reports.items():
        _write_report(file, how(report))
    sys.exit(exit_code(report))


def _check_writable(path: str, root: str) -> None:
    """Before the work rather than after it; and never over what the project is made of."""
    from wavegen.errors import MachineError, UsageError

    if not path:
        raise UsageError("the name of a report is empty", "name a file, or leave the option out")
    directory = os.path.dirname(os.path.abspath(path))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise MachineError(f"{path} cannot be written: {directory} cannot be", "name a file in a directory of yours")
    real = os.path.realpath(path)
    fence = [os.path.join(root, name) for name in ("wave.yaml", "wave.sandbox.yaml", "flake.nix", "flake.lock", ".wavegen")]
    if os.path.exists(real) and any(real == name or real.startswith(f"{name}/") for name in fence):
        raise UsageError(f"{path} is part of the fence", "name another file")


def _junit(report: Any) -> str:
    from wavegen.probes.junit import as_junit

    return as_junit(report)


def _sarif(report: Any) -> str:
    from wavegen.probes.sarif import as_sarif
    from wavegen.quote import json_text

    return json_text(as_sarif(report, VERSION))


def _html(report: Any) -> str:
    from wavegen.probes.html import as_html

    return as_html(report)


def _read_json(path: str) -> Any:
    import json

    from wavegen.errors import UsageError

    if not path:
        raise UsageError("the name of the baseline is empty", "name a file, or leave --baseline out")
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as failed:
        raise UsageError(f"{path} cannot be read: {failed.strerror}", "write it with `wavegen verify --json >FILE`") from None
    except ValueError:
        raise UsageError(f"{path} is no JSON", "write it with `wavegen verify --json >FILE`") from None


def _write_report(path: str, text: str) -> None:
    from wavegen.errors import MachineError

    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as failed:
        raise MachineError(f"{path} cannot be written: {failed.strerror}", "name a file in a directory of yours") from None


def _progress() -> Any:
    """A line that counts, on a terminal; it is wiped out by the last count."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None

    def show(shell: str, done: int, of: int) -> None:
        text = f"{shell}: {done} of {of} probes" if done < of else ""
        click.echo(f"\r\033[K{text}", nl=False, err=True)

    return show


@cli.command()
@_MANIFEST
@click.option(
    "-s", "--shell", "shells", metavar="SHELL", multiple=True, help="A shell to show, or persona-NAME; may be repeated. Default: all that have a fence."
)
@click.option("--denied", is_flag=True, help="Only what was refused, or allowed and out of reach.")
@click.option("--suggest", is_flag=True, help="Print the lines of YAML that would allow what was refused.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as the launcher wrote them.")
def log(manifest: str | None, shells: tuple[str, ...], *, denied: bool, suggest: bool, as_json: bool) -> None:
    """Show what filtered shells asked the network for, and by which line of the manifest they got it or not.

    Oldest first; one line a decision, the same refusal several times in a row on one. With --suggest, what would
    have to stand in the manifest: whatever ran inside chose those names, so read each of them.
    """
    from wavegen import log as network
    from wavegen import project
    from wavegen.errors import UsageError
    from wavegen.manifest import Sandbox
    from wavegen.verify import chosen

    if suggest and as_json:
        raise UsageError("--suggest prints YAML, not JSON", "leave one of them out")
    loaded = project.load(manifest, accept=True)
    policies = chosen(loaded.plan, shells, personas=True)
    found = network.read(loaded, policies)
    if found.unreadable:
        _tell("warning", _counted(found.unreadable, "line of the log is no decision and was left out", "lines of the log are no decisions and were left out"))
    if not found.found:
        _tell("note", "there is no log yet: a filtered shell writes it when something inside asks for the network")
        return
    if suggest:
        advice = network.advice(found.decisions, policies, network.manifest_of(loaded).runtime.sandbox or Sandbox())
        lines = advice.lines
        if advice.invalid:
            _tell("warning", _counted(advice.invalid, "name is not valid and was left out", "names are not valid and were left out"))
        if lines:
            _tell("warning", "this is what an agent asked for: read it before you paste it")
    else:
        shown = tuple(decided for decided in found.decisions if not denied or network.refused(decided))
        lines = tuple(map(network.json_line, shown) if as_json else network.table(shown))
    for line in lines:
        click.echo(line)
    if not lines:
        _tell("note", "nothing was refused that an entry would allow" if suggest else "nothing was refused" if denied else "nothing was asked for")


def _tell(severity: str, what: str) -> None:
    click.echo(f"wavegen: {severity}: {what}", err=True)


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


@cli.command()
@_MANIFEST
@click.option("--all", "everything", is_flag=True, help="Whatever the host would run or follow and was never accepted, whenever it came.")
@click.option("--severity", type=click.Choice(["critical", "high", "medium", "low"]), default="low", show_default=True, help="Only what is as bad, or worse.")
@click.option("--accept", is_flag=True, help="Take what is there now for known, after you have read it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def audit(manifest: str | None, *, everything: bool, severity: str, accept: bool, as_json: bool) -> None:
    """Name what shells left in the project that the host would run or follow later.

    Mounts cannot keep a shell from making what is not there: hooks of a new repository, an .envrc, a task, a setuid
    program, a link that leads out. Compared with the entry of the first session that was not accepted yet. Nothing is
    run for it, git least of all.

    Exit status: 0 nothing, 1 findings, 3 something could not be looked at.
    """
    from wavegen import audit as left_behind
    from wavegen import project
    from wavegen.kept import state

    root, _ = project.find(manifest)
    place = state(root)
    found = left_behind.audit(root, place, everything=everything)
    shown = left_behind.at_least(found.findings, severity)
    if as_json:
        click.echo(found.text, nl=False)
    else:
        for line in left_behind.table(shown):
            click.echo(line)
        if not shown:
            _tell("note", "nothing" if found.entered or everything else "no session since the last audit (--all lists what is there)")
    if accept:
        left_behind.accept(root, place)
        _tell("note", "what is there now is known")
    elif shown and not as_json:
        _tell("note", "after you have read it: wavegen audit --accept")
    sys.exit(found.status if shown or not found.complete else 0)


@cli.command()
@_MANIFEST
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--fix-hints", is_flag=True, help="Print only the commands that mend, as a shell script to be read; nothing is run.")
@click.option("--message", metavar="TEXT", help="Say what an error message means, and what to do; `-` reads it from the input.")
def doctor(manifest: str | None, *, as_json: bool, fix_hints: bool, message: str | None) -> None:
    """Say what this machine can hold of the manifest, and why not.

    Namespaces, mounts, filters and engines are tried, not guessed; nothing is changed, left behind, or asked of the network.
    Without a manifest it looks at the machine alone.

    \b
      wavegen doctor
      wavegen doctor --fix-hints >mend.sh
      wavegen doctor --message 'bwrap: setting up uid map: Permission denied'
      nix develop 2>&1 | wavegen doctor --message -

    Exit status: 0 all is there that the manifest needs, 1 something of it holds less here, 3 a shell of it cannot start here.
    With --message: 0 the message is known, 1 it is not.
    """
    from wavegen.doctor import collect, exit_code, show
    from wavegen.doctor.machine import ThisMachine
    from wavegen.errors import UsageError
    from wavegen.quote import json_text

    if as_json and fix_hints:
        raise UsageError("--fix-hints prints a script, not JSON", "leave one of them out")
    if message is not None:
        if fix_hints:
            raise UsageError("--message asks about a text, --fix-hints about this machine", "leave one of them out")
        _explain_message(message, as_json=as_json)
    loaded = collect.found(manifest)
    checks = collect.checks(ThisMachine(avoided=collect.writable(loaded)), loaded, _looked_at())
    if as_json:
        click.echo(json_text(show.as_json(checks, manifest=loaded.plan.manifest if loaded else "")), nl=False)
    elif fix_hints:
        for line in show.script(checks):
            click.echo(line)
    else:
        colour = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in show.table(checks, colour=colour):
            click.echo(line)
        _tell("note", show.summary(checks, manifest=loaded is not None))
    sys.exit(exit_code(checks))


_MESSAGE_LIMIT = 1 << 20


def _explain_message(message: str, *, as_json: bool) -> NoReturn:
    from wavegen.doctor import show
    from wavegen.errors import UsageError
    from wavegen.quote import json_text
    from wavegen.troubles import recognise

    text = message
    if message == "-":
        text = sys.stdin.buffer.read(_MESSAGE_LIMIT).decode("utf-8", "replace") if sys.stdin else ""
    if not text.strip():
        raise UsageError("the message is empty", "give the text of an error, or - to read it")
    troubles = recognise(text)
    if as_json:
        click.echo(json_text(show.troubles_json(troubles)), nl=False)
    else:
        for line in show.recognised(troubles):
            click.echo(line)
    if not troubles:
        _tell("note", "this message is not known; wavegen doctor looks at the machine")
    sys.exit(0 if troubles else 1)


def _looked_at() -> Callable[[str], None]:
    """What is looked at, on a terminal: a line that the next one wipes out."""
    terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(what: str) -> None:
        if terminal:
            click.echo(f"\r\033[K{f'looking at: {what}' if what else ''}", nl=False, err=True)

    return show


@cli.group()
def seccomp() -> None:
    """System call filters: what they say, and what a command needs."""


@seccomp.command()
@_MANIFEST
@click.option("-s", "--shell", metavar="SHELL", default="default", show_default=True, help="Whose filter: a shell, or persona-NAME.")
@click.option("--arch", type=click.Choice(["x86_64", "aarch64"]), help="For which processor. Default: this machine's.")
@click.option("--program", is_flag=True, help="Print the program that the kernel runs instead.")
@click.option("--json", "as_json", is_flag=True, help="Print it as docker and podman read it.")
def explain(manifest: str | None, shell: str, *, arch: str | None, program: bool, as_json: bool) -> None:
    """Print a shell's filter: each rule with the answer and why."""
    import platform

    from wavegen import launch, project
    from wavegen.backends import bwrap, landlock
    from wavegen.errors import UsageError
    from wavegen.manifest import BackendName
    from wavegen.quote import json_text
    from wavegen.seccomp import Arch, bpf
    from wavegen.seccomp.explain import lines, listing
    from wavegen.seccomp.oci import profile

    loaded = project.load(manifest, accept=True)
    policy = loaded.plan.fence(shell) or launch.shell_of(loaded.plan, shell)
    alone = policy.fenced and loaded.plan.backend is BackendName.LANDLOCK
    found = (landlock if alone else bwrap).filter_of_shell(policy)
    if found is None:
        raise UsageError(f"{shell} has no system call filter", "remove seccomp: off, or name a shell that has a fence")
    name = (arch or platform.machine()).upper()
    if name not in Arch.__members__:
        raise UsageError(f"there is no filter for {platform.machine()}", "name one with --arch")
    if as_json:
        click.echo(json_text(profile(found)), nl=False)
        return
    for line in listing(bpf.program(found, Arch[name])) if program else lines(found, Arch[name]):
        click.echo(line)


@seccomp.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def learn(command: tuple[str, ...]) -> None:
    """Run COMMAND, without a fence, and print what `seccomp: strict` would have to let through.

    \b
      wavegen seccomp learn -- make test
    """
    from wavegen import learn as learning

    found = learning.learn(command)
    for line in learning.proposal(found):
        click.echo(line)
    sys.exit(found.status)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of wave.yaml, for editors.

    `render` writes it to .wavegen/wave.schema.json, and the manifest that `init` writes points there.
    """
    from wavegen.quote import json_text
    from wavegen.schema import manifest_schema

    click.echo(json_text(manifest_schema()), nl=False)


@cli.command()
@click.option("--print", "only_print", is_flag=True, help="Print the manifest instead of writing it.")
@click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False))
def init(directory: str, *, only_print: bool) -> None:
    """Write a commented wave.yaml for the project in DIRECTORY (default: here).

    Recognises go.mod, package.json, pyproject.toml and Cargo.toml and picks packages for them. The hosts to allow
    are read from the project's lock files and the tools' own configuration. Never overwrites.
    """
    from wavegen.errors import MachineError, UsageError
    from wavegen.project import MANIFEST
    from wavegen.starter import starter

    text = starter(os.path.realpath(directory))
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


def main() -> None:
    """The entry point."""
    try:
        cli(prog_name="wavegen")
    except OSError as failed:
        if failed.errno != errno.ENOSPC:
            raise
        # What is written to the project has messages of its own; this is what is printed.
        _silence()
        click.echo("wavegen: error: the output cannot be written: no space left (make room, or print elsewhere)", err=True)
        sys.exit(3)

"""The library: commands in the shells of a project, their output, and what of the network they were refused.

    from wavegen import Sandbox
    result = Sandbox.load("wave.yaml").run(["pytest", "-q"], shell="restricted", timeout=60)

All times are seconds, all output is bytes. It knows no agent: what a persona starts stands in the manifest.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from wavegen import launch, project
from wavegen.errors import FenceError, UsageError
from wavegen.manifest import NetworkMode
from wavegen.policy import Policy

if TYPE_CHECKING:
    from wavegen.child import Child
    from wavegen.log import Decision, Mark

_TIMED_OUT = 124  # as timeout(1) has it
_STARTED, _UNFENCED = b"started", b"unfenced"
_ERROR = "wavegen: error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A command that was started, and has ended."""

    status: int
    """The command's own exit status; 128+n where signal n ended it, 126 and 127 where there is no such program inside, 124 where `timed_out`."""
    stdout: bytes
    stderr: bytes
    """The command's, with what wavegen itself says before and after: lines that begin with `wavegen: `."""
    timed_out: bool
    """Whether it was ended because the time was up. The output is what was written until then."""
    fenced: bool
    """Whether it ran in a fence: not so in `yolo`, and where the manifest takes the fence away or `fallback: warn` did without."""
    refused: tuple[Decision, ...]
    """What it asked of the network and was refused, oldest first: `name`, `port` (0: unknown), `reason`, and the `rule` with its `line` of
    the manifest, where one says so. Of shells whose network is judged (`filtered`, `open`); the same again within five seconds
    is told once, and of more than 200 a minute the number."""

    @property
    def stdout_text(self) -> str:
        """`stdout` as UTF-8; what is none is replaced by U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """`stderr` as UTF-8; what is none is replaced by U+FFFD."""
        return self.stderr.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Start:
    """What is to be started, and how it is asked for. `where`: the fence."""

    where: Policy
    options: tuple[str, ...]
    command: tuple[str, ...]


class _Report:
    """Where the wrapper says that the command was started: a pipe, so that nothing is left of it however this process ends.

    What is written to a pipe is never taken back. The first word is written before the command is there, and stays.
    """

    def __init__(self) -> None:
        """`tell`: the end that the wrapper inherits. Raises OSError."""
        self._heard, self.tell = os.pipe()
        os.set_blocking(self._heard, False)
        self._said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._heard)
        os.close(self.tell)

    def word(self) -> bytes:
        """The first word, empty as long as there is none."""
        if b"\n" not in self._said:
            with contextlib.suppress(BlockingIOError):
                self._said += os.read(self._heard, 64)
        return self._said.partition(b"\n")[0]


class Sandbox:
    """The shells and personas of a project, by its manifest as it was when this was loaded. Several threads may use one."""

    def __init__(self, loaded: project.Project) -> None:
        """See `load`."""
        self._project = loaded

    @classmethod
    def load(cls, manifest: str | os.PathLike[str] | None = None, *, accept: bool = False) -> Sandbox:
        """The named manifest, else the nearest wave.yaml at or above the working directory, as the command line finds it.

        `accept`: also a manifest or wave.sandbox.yaml that was not there at the last render, which a command may have written.
        What was never rendered is loaded, but nothing starts in it. Raises ManifestError and UsageError.
        """
        return cls(project.load(None if manifest is None else os.fspath(manifest), accept=accept))

    @property
    def root(self) -> str:
        """The project's directory: absolute, and without links."""
        return self._project.root

    def run(  # noqa: PLR0913  by keyword: what a run can differ in
        self,
        command: Sequence[str],
        *,
        shell: str | None = None,
        persona: str | None = None,
        timeout: float | None = None,
        input: bytes | str | None = None,  # noqa: A002  as subprocess.run has it
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        connect_to: Sequence[str] = (),
    ) -> Result:
        """Run a command in a shell (else in `default`), or in the fence of a persona, and wait until it has ended.

        `timeout`: seconds, the start of the fence among them, after which the command gets SIGTERM, and three seconds later
        SIGKILL, with all that runs inside. `input`: its standard input, a str as UTF-8; nothing by default. `env`: variables
        besides those of this process; which of them arrive inside is the manifest's choice alone. `cwd`: a directory of the
        project, absolute or from its root, which is the default. `connect_to`: NAME:PORT:ADDRESS:PORT, to be connected
        to in place of an allowed name. All output is kept in memory. An exception in this thread meanwhile, of Ctrl-C for one,
        ends the command, too; where this process is killed, the command goes on to its own end.

        Raises FenceError where the command was not started because of the fence, whatever else it says; UsageError for what
        is asked in a way that cannot work, an unknown shell for one; MachineError where the log cannot be read. What has
        returned was started, so a status of 125 is the command's own.
        """
        words = _words(command, "the command")
        if not words:
            raise UsageError("there is no command", "name a program, and what it is given")
        where = self._fence(shell, persona)
        options = (*_elsewhere(where, connect_to), *(("--exec",) if persona is not None else ()))
        return self._run(_Start(where, options, words), timeout, input, env, cwd)

    def agent(  # noqa: PLR0913  by keyword: what a run can differ in
        self,
        words: Sequence[str] = (),
        *,
        persona: str,
        adapter: str | None = None,
        timeout: float | None = None,
        input: bytes | str | None = None,  # noqa: A002  as subprocess.run has it
        env: Mapping[str, str] | None = None,
        connect_to: Sequence[str] = (),
    ) -> Result:
        """Start the agent of a persona in its fence, and wait until it has ended.

        `words`: what it is given besides what the manifest says; `adapter`: one of the persona's, else the first whose program is
        inside. It runs in the project's root. All else is as for `run`; the status is 127 where no program of it is inside.
        """
        where = self._fence(None, persona)
        options = (*_elsewhere(where, connect_to), *(("--adapter", adapter) if adapter is not None else ()))
        return self._run(_Start(where, options, _words(words, "what the agent is given")), timeout, input, env, None)

    def replace(
        self, command: Sequence[str], *, shell: str | None = None, persona: str | None = None, adapter: str | None = None, instead: bool = False
    ) -> NoReturn:
        """Become the command, with this process's terminal, directory and variables: it does not come back, and its status is this process's.

        Without words an interactive bash, or the persona's agent; `instead`: the words are a command in place of the agent.
        Raises FenceError and UsageError.
        """
        where = self._fence(shell, persona)
        options = (*(("--adapter", adapter) if adapter is not None else ()), *(("--exec",) if instead else ()))
        words = _words(command, "the command")
        handle = launch.in_memory(launch.script_of(self._project, where))
        os.set_inheritable(handle, True)  # noqa: FBT003
        bash = launch.bash(self.root, os.environ.get("PATH", ""))
        try:
            os.execv(bash, launch.arguments(bash, handle, self.root, options, words))
        except OSError as failed:
            raise _no_bash(bash, failed) from None

    def _fence(self, shell: str | None, persona: str | None) -> Policy:
        if persona is None:
            return launch.shell_of(self._project.plan, shell)
        if shell is not None:
            raise UsageError("a persona has its shell from the manifest", "name a shell, or a persona")
        return launch.persona_of(self._project.plan, persona)

    def _run(
        self, start: _Start, timeout: float | None, given: bytes | str | None, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
    ) -> Result:
        if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
            raise UsageError(f"{timeout} is no time to wait", "say how many seconds, or None")
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # bwrap would inherit that, and wait forever.
            raise UsageError("this process ignores SIGCHLD, and with it how its children end", "signal.signal(SIGCHLD, SIG_DFL) before")
        environment = _environment(env)
        directory = self._directory(cwd)
        data = given.encode() if isinstance(given, str) else given
        mark = self._mark(start.where, environment)
        from wavegen.child import Child

        with contextlib.ExitStack() as handles:
            bash = launch.bash(self.root, environment.get("PATH", ""))
            text = launch.script_of(self._project, start.where)
            try:
                report = handles.enter_context(_Report())
                script = launch.in_memory(text)
                handles.callback(os.close, script)
                options = ("--report", str(report.tell), *start.options)
                arguments = launch.arguments(bash, script, self.root, options, start.command)
                child = Child(arguments, given=data, handles=(script, report.tell), environment=environment, directory=directory)
            except OSError as failed:
                raise _no_bash(bash, failed) from None
            with child:
                timed_out = not child.wait(timeout)
                if timed_out:
                    child.end(fenced=start.where.fenced and report.word() != _UNFENCED)
                elif start.where.fenced:
                    child.kill()  # of a wrapper that was killed something may be left for an instant
                child.drain()
            return self._result(child, start, report.word(), mark, timeout if timed_out else None)

    def _result(self, child: Child, start: _Start, word: bytes, mark: Mark | None, waited: float | None) -> Result:
        said = child.output("stderr")
        if word not in (_STARTED, _UNFENCED):
            raise _not_started(said.decode("utf-8", "replace"), child.status, waited)
        refused: tuple[Decision, ...] = ()
        if mark and word == _STARTED:
            from wavegen.log import Verdict

            refused = tuple(decided for decided in mark.since(start.where.name, child.pid) if decided.verdict is Verdict.DENY)
        return Result(
            status=child.status if waited is None else _TIMED_OUT,
            stdout=child.output("stdout"),
            stderr=said,
            timed_out=waited is not None,
            fenced=word == _STARTED,
            refused=refused,
        )

    def _mark(self, where: Policy, environment: Mapping[str, str]) -> Mark | None:
        if not _judged(where):
            return None
        from wavegen.kept import state
        from wavegen.log import Mark

        return Mark(os.path.join(state(self.root, environment), where.name))

    def _directory(self, cwd: str | os.PathLike[str] | None) -> str:
        if cwd is None:
            return self.root
        path = os.path.realpath(os.path.join(self.root, os.fspath(cwd)))
        if not os.path.isdir(path) or os.path.commonpath((path, self.root)) != self.root:
            # The wrapper would take the project's root in its place.
            raise UsageError(f"{os.fspath(cwd)} is no directory of the project {self.root}", "name one, or leave out cwd")
        return path


def _judged(where: Policy) -> bool:
    return where.fenced and where.network.mode in (NetworkMode.FILTERED, NetworkMode.OPEN)


def _words(given: Sequence[str], what: str) -> tuple[str, ...]:
    """As a tuple. Raises UsageError for what a program cannot be given, and for one text, which would be a sequence of letters."""
    words: tuple[object, ...] = () if isinstance(given, (str, bytes)) else tuple(given)
    texts = tuple(word for word in words if isinstance(word, str) and "\0" not in word)
    if isinstance(given, (str, bytes)) or len(texts) < len(words):
        raise UsageError(f"{what} is no sequence of str without NUL", 'write it as ["make", "test"]')
    return texts


def _elsewhere(where: Policy, connect_to: Sequence[str]) -> list[str]:
    if connect_to and not _judged(where):
        raise UsageError(f"{where.name} has no network that is judged", "leave out connect_to, or name a shell with network: filtered or open")
    return [word for place in _words(connect_to, "connect_to") for word in ("--connect-to", place)]


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (env or {}).items():
        texts: tuple[object, ...] = (name, value)
        if not all(isinstance(text, str) and "\0" not in text for text in texts) or not name or "=" in name:
            raise UsageError(f"{name!r} and its value are no variable", "give names without = and values that are str, both without NUL")
    return {**os.environ, **(env or {})}


def _not_started(said: str, status: int, waited: float | None) -> FenceError:
    """Why nothing was run, in the wrapper's own words where it has any."""
    errors = [line.removeprefix(_ERROR) for line in said.splitlines() if line.startswith(_ERROR)]
    if waited is not None:
        return FenceError(f"the command was not started within {waited:g} s", errors[-1] if errors else "give it more time", said)
    if errors:
        # The same text again, wherever it is divided.
        what, _, hint = errors[-1].removesuffix(")").partition(" (")
        return FenceError(what, hint, said)
    return FenceError(f"the fence ended with status {status} before the command was started", "what it said stands in `said` of this error", said)


def _no_bash(bash: str, failed: OSError) -> FenceError:
    return FenceError(f"{bash} cannot be started: {failed.strerror}", "check the command's length, bash itself, and the limit of open files")

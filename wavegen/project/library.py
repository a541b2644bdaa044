"""The library: commands in the shells of a project, their output, and what of the network they were refused.

    from wavegen import Sandbox
    result = Sandbox.load("wave.yaml").run(["pytest", "-q"], shell="restricted", timeout=60)

All times are seconds, all output is bytes. It knows no agent: what a persona starts stands in the manifest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from wavegen.core.errors import FenceError, UsageError
from wavegen.manifest.model import BackendName
from wavegen.policy.model import Policy
from wavegen.project import checked_arguments, handover, loader, wrappers

if TYPE_CHECKING:
    from wavegen.project.network_log import Decision, Mark
    from wavegen.project.wrapper_process import Child

MAX_OUTPUT = 64 << 20
"""Bytes of output that are kept of a run, where it is not said how many."""
_TIMED_OUT = 124  # as timeout(1) has it
_STARTED, _UNFENCED = b"started", b"unfenced"
_ERROR = "wavegen: error: "
_COMMAND = '["make", "test"]'


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
    truncated: bool
    """Whether there was more output than `max_output`: it was ended because of that, and `status` is what that made of it; where it
    had ended before, its own. The output is the first of it, up to that many bytes."""
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
    backend: BackendName
    options: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How long it may take, and how much it may say."""

    timeout: float | None
    output: int

    def __post_init__(self) -> None:
        """Raises UsageError."""
        seconds, most = self.timeout, self.output
        if seconds is not None and not (checked_arguments.is_number_of_type(seconds, (int, float)) and 0 < seconds <= _LONGEST):
            raise UsageError(f"{checked_arguments.short_repr(seconds)} is no time to wait", "say how many seconds, as a number, or None")
        if not checked_arguments.is_number_of_type(most, (int,)) or most < 0:
            raise UsageError(f"{checked_arguments.short_repr(most)} is no size of an output", "say how many bytes, as a whole number")


_LONGEST = 1e9  # seconds: thirty years


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

    def first_word(self) -> bytes:
        """The first word, empty as long as there is none."""
        if b"\n" not in self._said:
            with contextlib.suppress(BlockingIOError):
                self._said += os.read(self._heard, 64)
        return self._said.partition(b"\n")[0]


class Sandbox:
    """The shells and personas of a project, by its manifest as it was when this was loaded. Several threads may use one."""

    def __init__(self, loaded: loader.Project) -> None:
        """See `load`."""
        self._project = loaded

    @classmethod
    def load(cls, manifest: str | os.PathLike[str] | None = None, *, accept: bool = False) -> Sandbox:
        """The named manifest, else the nearest wave.yaml at or above the working directory, as the command line finds it.

        `accept`: also a manifest or wave.sandbox.yaml that was not there at the last render, which a command may have written.
        What was never rendered is loaded, but nothing starts in it. Raises ManifestError and UsageError.
        """
        name = None if manifest is None else checked_arguments.path_of(manifest, "the manifest", "name the file, or leave it out")
        return cls(loader.load_project(name, accept=accept))

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
        backend: str | None = None,
        artifacts: str | os.PathLike[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        input: bytes | str | None = None,  # noqa: A002  as subprocess.run has it
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        connect_to: Sequence[str] = (),
        max_output: int = MAX_OUTPUT,
    ) -> Result:
        """Run a command in a shell (else in `default`), or in the fence of a persona, and wait until it has ended.

        `timeout`: seconds, the start of the fence among them, after which the command gets SIGTERM, and three seconds later
        SIGKILL, with all that runs in its fence; without one, with all that is still a descendant of it then. `input`: its standard input, a str as UTF-8; nothing by default. `env`: variables
        besides those of this process; which of them arrive inside is the manifest's choice alone. `cwd`: a directory of the
        project, absolute or from its root, which is the default. `connect_to`: NAME:PORT:ADDRESS:PORT, to be connected
        to in place of an allowed name. `backend`: bubblewrap, docker or landlock in place of the manifest's. `artifacts`, `output`: with
        docker, a directory that is at /artifacts, and one that is made of what is left in /workspace/output, by which all else of
        the run is forgotten. `max_output`: bytes of stdout and stderr together, kept in memory; a command that writes more is
        ended as if its time were up. An exception in this thread meanwhile, of Ctrl-C for one, ends the command, too; where this
        process is killed, the command goes on to its own end.

        Raises FenceError where the command was not started because of the fence, whatever else it says; UsageError for what
        is asked in a way that cannot work, an unknown shell for one; MachineError where the log cannot be read. What has
        returned was started, so a status of 125 is the command's own.
        """
        words = checked_arguments.checked_words(command, "the command", _COMMAND)
        if not words:
            raise UsageError("there is no command", "name a program, and what it is given")
        where = self._policy_for(shell, persona)
        held = wrappers.backend_of(self._project.plan, backend)
        options = (
            *checked_arguments.connect_to_options(where, connect_to),
            *checked_arguments.container_directory_options(where, held, artifacts, output),
            *(("--exec",) if persona is not None else ()),
        )
        return self._run_wrapper(_Start(where, held, options, words), _Bounds(timeout, max_output), input, env, cwd)

    def agent(  # noqa: PLR0913  by keyword: what a run can differ in
        self,
        words: Sequence[str] = (),
        *,
        persona: str,
        adapter: str | None = None,
        backend: str | None = None,
        timeout: float | None = None,
        input: bytes | str | None = None,  # noqa: A002  as subprocess.run has it
        env: Mapping[str, str] | None = None,
        connect_to: Sequence[str] = (),
        max_output: int = MAX_OUTPUT,
    ) -> Result:
        """Start the agent of a persona in its fence, and wait until it has ended.

        `words`: what it is given besides what the manifest says; `adapter`: one of the persona's, else the first whose program is
        inside. It runs in the project's root. All else is as for `run`; the status is 127 where no program of it is inside.
        """
        where = self._policy_for(None, persona)
        options = (*checked_arguments.connect_to_options(where, connect_to), *checked_arguments.adapter_option(adapter))
        start = _Start(
            where,
            wrappers.backend_of(self._project.plan, backend),
            options,
            checked_arguments.checked_words(words, "what the agent is given", '["-p", "a question"]'),
        )
        return self._run_wrapper(start, _Bounds(timeout, max_output), input, env, None)

    def replace(  # noqa: PLR0913  by keyword: what a run can differ in
        self,
        command: Sequence[str],
        *,
        shell: str | None = None,
        persona: str | None = None,
        adapter: str | None = None,
        instead: bool = False,
        backend: str | None = None,
        artifacts: str | None = None,
        output: str | None = None,
    ) -> NoReturn:
        """Become the command, with this process's terminal, directory and variables: it does not come back, and its status is this process's.

        Without words an interactive bash, or the persona's agent; `instead`: the words are a command in place of the agent.
        Raises FenceError and UsageError. Only the main thread may, as it alone can give the command the signals that Python ignores.
        """
        if persona is None and (adapter is not None or instead):
            raise UsageError("an adapter, or a command in place of an agent, wants a persona", "name the persona")
        where = self._policy_for(shell, persona)
        held = wrappers.backend_of(self._project.plan, backend)
        options = (
            *checked_arguments.adapter_option(adapter),
            *checked_arguments.container_directory_options(where, held, artifacts, output),
            *(("--exec",) if instead else ()),
        )
        words = checked_arguments.checked_words(command, "the command", _COMMAND)
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("only the main thread can become a command", "call it there, or use run")
        ready = wrappers.launch_of(self._project, where, backend=held, agent=not instead)
        try:
            handover.exec_launcher(ready, self.root, ("--backend", held.value, *options), words)
        except OSError as failed:
            raise _launcher_error(failed) from None

    def _policy_for(self, shell: str | None, persona: str | None) -> Policy:
        if shell is not None and persona is not None:
            raise UsageError("a persona has its shell from the manifest", "name a shell, or a persona")
        if persona is not None:
            return wrappers.persona_of(self._project.plan, checked_arguments.name_of(persona, "persona"))
        return wrappers.shell_of(self._project.plan, None if shell is None else checked_arguments.name_of(shell, "shell"))

    def _run_wrapper(
        self, start: _Start, bounds: _Bounds, stdin: bytes | str | None, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
    ) -> Result:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # bwrap would inherit that, and wait forever.
            raise UsageError("this process ignores SIGCHLD, and with it how its children end", "signal.signal(SIGCHLD, SIG_DFL) before")
        environment = checked_arguments.checked_environment(env)
        directory = self._working_directory(cwd)
        data = checked_arguments.input_bytes(stdin)
        mark = self._network_log_mark(start.where, environment)
        from wavegen.project.wrapper_process import Child

        with contextlib.ExitStack() as handles:
            ready = wrappers.launch_of(self._project, start.where, backend=start.backend, agent="--exec" not in start.options)
            try:
                report = handles.enter_context(_Report())
                memory = handover.memory_descriptors(ready)
                for handle in memory:
                    handles.callback(os.close, handle)
                options = ("--backend", start.backend.value, "--report", str(report.tell), *start.options)
                arguments = handover.launcher_arguments(memory[0], self.root, options, start.command)
                child = Child(arguments, given=data, handles=(*memory, report.tell), environment=environment, directory=directory, most=bounds.output)
            except OSError as failed:
                raise _launcher_error(failed) from None
            with child:
                ended = child.wait_for_end(bounds.timeout, bounded=True)
                timed_out = not ended and not child.truncated
                if not ended:
                    child.terminate_command(fenced=start.where.fenced and report.first_word() != _UNFENCED)
                elif start.where.fenced:
                    child.kill_process_tree()  # of a wrapper that was killed something may be left for an instant
                child.drain_output()
            return self._build_result(child, start, report.first_word(), mark, bounds.timeout if timed_out else None)

    def _build_result(self, child: Child, start: _Start, word: bytes, mark: Mark | None, waited: float | None) -> Result:
        said = child.captured_output("stderr")
        if word not in (_STARTED, _UNFENCED):
            raise _not_started_error(said.decode("utf-8", "replace"), child.status, waited)
        refused: tuple[Decision, ...] = ()
        if mark and word == _STARTED:
            from wavegen.project.network_log import Verdict

            refused = tuple(decided for decided in mark.decisions_since_mark(start.where.name, child.wrapper_pid) if decided.verdict is Verdict.DENY)
        return Result(
            status=child.status if waited is None else _TIMED_OUT,
            stdout=child.captured_output("stdout"),
            stderr=said,
            timed_out=waited is not None,
            truncated=child.truncated,
            fenced=word == _STARTED,
            refused=refused,
        )

    def _network_log_mark(self, where: Policy, environment: Mapping[str, str]) -> Mark | None:
        if not checked_arguments.is_network_filtered(where):
            return None
        from wavegen.project.network_log import Mark
        from wavegen.project.state_dir import state_directory

        return Mark(os.path.join(state_directory(self.root, environment), where.name))

    def _working_directory(self, cwd: str | os.PathLike[str] | None) -> str:
        if cwd is None:
            return self.root
        name = checked_arguments.path_of(cwd, "cwd", "name a directory of the project, or leave out cwd")
        path = os.path.realpath(os.path.join(self.root, name))
        if not os.path.isdir(path) or os.path.commonpath((path, self.root)) != self.root:
            # The wrapper would take the project's root in its place.
            raise UsageError(f"{name} is no directory of the project {self.root}", "name one, or leave out cwd")
        return path


def _not_started_error(said: str, status: int, waited: float | None) -> FenceError:
    """Why nothing was run, in the wrapper's own words where it has any."""
    errors = [line.removeprefix(_ERROR) for line in said.splitlines() if line.startswith(_ERROR)]
    if waited is not None:
        return FenceError(f"the command was not started within {waited:g} s", errors[-1] if errors else "give it more time", said)
    if errors:
        # The same text again, wherever it is divided.
        what, _, hint = errors[-1].removesuffix(")").partition(" (")
        return FenceError(what, hint, said)
    return FenceError(f"the fence ended with status {status} before the command was started", "what it said stands in `said` of this error", said)


def _launcher_error(failed: OSError) -> FenceError:
    return FenceError(f"the launcher cannot be started: {failed.strerror}", "check the command's length, and the limit of open files")

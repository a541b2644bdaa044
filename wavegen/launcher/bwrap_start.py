"""One bwrap: what it is started with, how it runs, and what is said where it does not start."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # its namesake makes enumerations, which takes longer than all the rest
import posix
import sys
from _stat import S_ISSOCK

from .bwrap import Descriptors, forbids_sandboxes, open_mounts, option_words, takes_descriptors
from .environment import bash_of, command_environment
from .errors import CannotStartError
from .mounts import BIND, SCRATCH, Mount
from .supervise import InputFile, Life, Report, Signals, is_regular, print_note, start_with_keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cgroups import Groups
    from .rules import Rules
    from .start import Session

_LARGEST = 1 << 20
_MOST_NAMESPACES = "/proc/sys/user/max_user_namespaces"
_NAMESPACES = (
    "see user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns with sysctl; wavegen doctor says which"
)


class BwrapStart:
    """What one bwrap is started with."""

    def __init__(self, session: Session, bwrap: str, mounts: tuple[Mount, ...]) -> None:
        self.session, self.bwrap, self.mounts = session, bwrap, mounts
        self.rules, self.host, self.places = session.rules, session.host, session.places
        self.descriptors = Descriptors()
        self.is_over = True
        self.life: Life
        self.groups: Groups | None = None
        self.scope: list[str] = []
        # On a terminal Ctrl-C is the command's. Of bwrap it would make an end, and with it of all that runs inside.
        self.has_terminal = any(posix.isatty(handle) for handle in (0, 1, 2))
        self.keeps_interrupts = self.has_terminal and signal.getsignal(signal.SIGINT) != signal.SIG_IGN

    def bwrap_options(self) -> list[str]:
        """The options of bwrap up to `--`, by --args: they may be many."""
        rules, descriptors = self.rules, self.descriptors
        found = [word for words, _ in option_words(rules) for word in words]
        if rules.filters_connections:
            found.remove("--unshare-net")  # the launcher's child has made the network
        by_descriptor = takes_descriptors(self.host, self.bwrap)
        found += open_mounts(self.host, self.mounts, rules.setting_value("tmpfs_size"), descriptors, by_descriptor=by_descriptor)
        found += ["--chdir", self.places.start_directory(in_root=self.session.arguments.starts_agent)]
        return found + self._session_words()

    def _session_words(self) -> list[str]:
        """A terminal that is shared with the host stays, with its job control, where the filter keeps the command from typing into it."""
        name = self.rules.setting_value("seccomp")
        if not name:
            return ["--new-session"]
        if posix.uname().machine not in ("x86_64", "aarch64"):
            raise CannotStartError("there is no system call filter for this machine", "write seccomp: off if that is meant")
        words = [] if self.has_terminal else ["--new-session"]
        if name.startswith("@"):
            return [*words, "--seccomp", self.descriptors.add_descriptor(int(name[1:]))]
        path = f"{self.session.own.rpartition('/')[0]}/seccomp/{name}.bpf"
        try:
            handle = posix.open(path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        except OSError as failed:
            raise CannotStartError(f"{path}: {failed.strerror}", "run wavegen render") from None
        if not posix.fstat(handle).st_size:
            raise CannotStartError(f"{path} is empty", "run wavegen render")
        return [*words, "--seccomp", self.descriptors.add_descriptor(handle)]

    # --- the last step before the command

    def inside_words(self, life: int) -> list[str]:
        """The program that takes the last rights from the command, inside, and becomes it. `life`: a pipe that ends with the launcher."""
        host, rules = self.host, self.rules
        perl = self.shown_program("perl")
        python = "" if perl else self.shown_program("python3")
        if not perl and not python:
            return []
        name = "restrict_and_exec" + (".pl" if perl else ".py")
        text = host.read_host_file(f"{self.session.own}/inside/{name}", _LARGEST).decode("utf-8")
        words = [perl, "-T", "-e", text, "--", "--unset", "PERL_BADLANG"] if perl else [python, "-I", "-S", "-c", text]
        words += ["--landlock-masks", rules.setting_value("landlock")]
        # A sandbox inside mounts, which Landlock refuses whoever may write less than everything.
        if not rules.setting_value("nested"):
            words += ["--write-try", "/dev", "--write-try", "/proc"]
            for mount in self.mounts:
                if mount.kind in (BIND, SCRATCH) and not mount.anchors:
                    words += ["--write-try" if mount.kind == BIND else "--write", mount.target]
        pids, memory = rules.setting_value("pids"), granted_memory(rules)
        words += ["--limit", "core=1", "--limit", f"nofile={rules.setting_value('files')}", "--limit", f"data={memory}"]
        # The kernel counts a user's processes for each user namespace (Linux 5.14), and never real root's.
        words += ["--limit", f"nproc={pids}"] if host.uid else []
        for device, inode, path in self.descriptors.expected:
            words += ["--expect", f"{device}:{inode}:{path}"]
        words += ["--life", str(life)]
        words += ["--reset-signal", "INT", "--reset-signal", "QUIT"] if self.keeps_interrupts else []
        report = self.session.arguments.report
        if report > 2:
            # A copy: where bwrap cannot start anything, there is something else to tell.
            words += ["--started", self.descriptors.add_descriptor(posix.dup(report))]
            posix.set_inheritable(report, False)
        return [*words, "--"]

    def shown_program(self, name: str) -> str:
        """A program that is inside, too: of the system, of the tools that Nix names, or of the caller's PATH."""
        path = self.session.locate_program(name)
        return path if path and self._is_shown(path) else ""

    def _is_shown(self, path: str) -> bool:
        covering = [mount for mount in self.mounts if path == mount.target or path.startswith(mount.target.rstrip("/") + "/")]
        last = max(covering, key=lambda mount: len(mount.target)) if covering else None
        return bool(last and last.shows_host and last.source + path[len(last.target) :] == path)

    # --- running it

    def run_sandboxed_command(self) -> int:
        """Start it, serve it, and wait; the command's status."""
        session, rules, descriptors = self.session, self.rules, self.descriptors
        environment = command_environment(rules, self.places, session.caller, shell=bash_of(session.arguments.tools), interactive=session.is_interactive)
        environment["PERL_BADLANG"] = "0"
        session.signals = Signals()
        if rules.setting_value("bounded"):
            self._create_cgroups()
        status_out, status_in = posix.pipe2(posix.O_CLOEXEC)
        self.life = Life(status_out)
        descriptors.add_descriptor(self.life.keepers)
        words = self.bwrap_options()
        inside = self.inside_words(self.life.keepers)
        if not inside:
            return session.refuse_or_fall_back("neither perl nor python3 is on the PATH", "install one of them, or use nix develop", hopeless=True)
        listed = descriptors.add_bytes("\0".join(words).encode("utf-8", "surrogateescape") + b"\0")
        argv = [
            *self.scope,
            self.bwrap,
            "--json-status-fd",
            descriptors.add_descriptor(status_in),
            "--args",
            listed,
            "--",
            *inside,
            *session.command_inside(self.mounts),
        ]
        if session.is_interactive:
            sys.stderr.write("".join(f"{line}\n" for (line,) in rules.lists["banner"]))
            sys.stderr.flush()
        source = InputFile() if is_regular(0) else None
        try:
            status = (
                self._run_filtered(argv, environment, source, status_out)
                if rules.filters_connections
                else self._run_unfiltered(argv, environment, source, status_out)
            )
        finally:
            if source:
                source.restore_file_offset()
            if self.groups:
                self.groups.remove_cgroups()
        return status

    def _prepare_child(self, source: InputFile | None) -> None:
        """In the child."""
        if source:
            posix.dup2(source.source, 0)
        if self.groups:
            self.groups.join_cgroups()

    def _run_unfiltered(self, argv: list[str], environment: dict[str, str], source: InputFile | None, status_out: int) -> int:
        signals = self.session.signals
        pid = start_with_keeper(lambda: self._prepare_child(source), argv, environment, signals, keep_interrupts=self.keeps_interrupts, life=self.life)
        self.descriptors.close_copies()
        report = Report(status_out)
        status = signals.wait_for_child(pid, report.command_process, self.life.close_launcher_end)
        return self._finish_run(status, report)

    def _finish_run(self, status: int, report: Report) -> int:
        if not report.has_ended():
            report.kill_first_process()
        self.is_over = report.is_over()
        if not self.is_over:
            print_note("warning: something inside has not ended; wavegen audit looks at what it leaves")
        if status == 1 and not report.has_ended():
            return self._explain_failure()
        return status

    def _run_filtered(self, argv: list[str], environment: dict[str, str], source: InputFile | None, status_out: int) -> int:
        from .filtered import run_filtered

        return run_filtered(self, argv, environment, source, status_out)

    def _explain_failure(self) -> int:
        """bwrap has said why on stderr. Is it the machine, or this sandbox?"""
        said = _capture_stderr([self.bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--", "/bin/sh", "-c", ":"])
        hopeless = forbids_sandboxes(said, _most_namespaces())
        if hopeless or any(words in said for words in ("setting up uid map", "new namespace", "RTM_NEWADDR")):
            around = self.session.caller.get("WAVEGEN_SHELL")
            if around:
                what, remedy = f"this is inside the shell {around}, which allows no sandbox inside it", "start it outside, or write nested: true for that shell"
                return self.session.refuse_or_fall_back(what, remedy, hopeless=hopeless)
            return self.session.refuse_or_fall_back("this machine does not let bwrap create user namespaces", _NAMESPACES, hopeless=hopeless)
        raise CannotStartError("bwrap could not build the sandbox", "see its message above")

    def _create_cgroups(self) -> None:
        from .cgroups import Bounds, Groups, scope_words

        session, rules = self.session, self.rules
        bounds = Bounds(int(rules.setting_value("pids")), granted_memory(rules), int(rules.setting_value("cpus") or 0))
        self.groups = Groups(bounds)
        missing = self.groups.unbounded_resources
        runtime = session.caller.get("XDG_RUNTIME_DIR", "")
        systemd_run = session.locate_program("systemd-run") if missing and runtime and _is_socket(f"{runtime}/systemd/private") else ""
        if systemd_run:
            self.groups.remove_cgroups()
            self.scope = scope_words(runtime, systemd_run, bounds, {name for name, _ in rules.lists["pass"]})
            return
        said = {"pids": "processes are not bounded", "memory": "memory is bounded for each process alone", "cpu": "processors are not bounded"}
        missing = [said[name] for name in missing if name != "pids" or not self.host.uid]
        if missing:
            # Each shell may have bounds of its own.
            session.note_once(f"unbounded-{rules.setting_value('shell')}", f"no control group can be made here: {', '.join(missing)}")


def granted_memory(rules: Rules) -> int:
    """The bytes that the manifest grants, or a share of what the machine has."""
    written = rules.setting_value("memory")
    if written:
        return int(written)
    with open("/proc/meminfo", encoding="ascii") as stream:
        return int(stream.readline().split()[1]) * 1024 * int(rules.setting_value("memory_share")) // 100


def _capture_stderr(argv: list[str]) -> str:
    import subprocess

    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False).stderr


def _is_socket(path: str) -> bool:
    try:
        return S_ISSOCK(posix.lstat(path).st_mode)
    except OSError:
        return False


def _most_namespaces() -> str:
    try:
        with open(_MOST_NAMESPACES, encoding="ascii") as stream:
            return stream.read()
    except OSError:
        return ""

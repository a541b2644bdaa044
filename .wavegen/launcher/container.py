"""A shell as a container of docker or podman, where bubblewrap cannot be used: an engine's words, a client, and a watchdog that outlives both.

An engine mounts by path, follows links in targets, and makes on the host what is missing of them. So each mount point is made before, by the
project's owner, and `inside/container_entry.sh` compares what was mounted with what was meant. What decides about the container lies in a run
directory below wavegen's state, where no shell can be granted anything. Clients are given an environment of ours.

Longer than 400 lines: one container from its words to its end.
"""

from __future__ import annotations

import _socket as socket
import _thread
import posix
import sys
import time
from _stat import S_ISDIR

from .container_mounts import RunDirectory, docker_mount_words, mount_line, must_be_utf8
from .engine import Engine
from .environment import command_environment
from .errors import CannotStartError
from .filtered import find_upstream, make_egress, network_rules, parse_connect_to, start_egress_thread
from .libc import end_with_parent
from .mounts import BIND, SCRATCH, Mount, resolve_mounts
from .netns import list_wanted_listeners, offer_listeners
from .supervise import Signals, audit_afterwards, print_note, start_child
from .symlinks import is_within_any, resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .start import Session

_STORES = ("/nix/store", "/gnu/store")
_LARGEST = 1 << 20
_INSIDE = "/run/wavegen"
"""Where the run directory's `inside` is in the container."""
_HANDED_OVER = ("container_entry.sh", "restrict_and_exec.pl", "restrict_and_exec.py", "listeners.pl", "listeners.py")
_TALK = 30.0
"""Seconds for the first process inside to say its next word, and for the watchdog to end the container."""
_LOOK, _LOOKS = 3.0, 3
"""Seconds between looks at a container that has not started, and how many find it merely made before it is given up."""
_KEYS = "ctrl-@,ctrl-^,ctrl-_,ctrl-@"
OPTIONS = (
    *("--rm", "--init", "--interactive", "--pull=never", "--entrypoint", "", "--no-healthcheck", "--log-driver", "none", "--detach-keys", _KEYS),
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--hostname", "localhost", "--ipc", "private", "--cgroupns", "private"),
)
"""So in each container: nothing of it is kept, signals arrive, no image is fetched, nothing of the image is started besides the command, the
daemon writes no output to the disk, Ctrl-P Ctrl-Q does not leave it alone, and the command has no rights over it."""
_OF_LOADERS = ("LD_", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_FUNC_", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PERL", "PYTHON")
"""Variables of an image by which whatever is started loads other code: also what takes the command's rights."""
_OF_CLIENTS = ("HOME", "PATH", "TMPDIR", "NOTIFY_SOCKET", "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "USER", "LOGNAME")
_ALSO_OF_CLIENTS = ("DOCKER_", "CONTAINER", "XDG_", "LD_", "PODMAN_", "BUILDAH_", "STORAGE_", "LISTEN_", "_CONTAINERS_", "DBUS_")
"""Variables that clients themselves obey: a command's own value of them is handed over on the command line."""


def run_container(session: Session) -> int:
    """Start the shell as a container and wait; the command's status. Raises CannotStartError."""
    caller, places, rules = session.caller, session.places, session.rules
    if not places.is_apart:
        raise CannotStartError(
            f"wavegen's state directory {places.state} is writable in a shell", "grant no directory above it, or set XDG_STATE_HOME to a directory outside"
        )
    engine = Engine(session)
    if not engine.program:
        return session.refuse_or_fall_back(f"{engine.kind} is not on the PATH", engine.how_to_install, hopeless=True)
    if not session.host.uid:
        # A home that is the owner's, and not the one that root itself has with bubblewrap.
        places.private = f"{places.own}/owner-{engine.uid}"
    stores = [path for path in _STORES if f":{path}/" in f":{caller.get('PATH', '')}"]
    engine.query_engine(rules.setting_value("image"))
    words = engine.read_engine_answers()
    if session.arguments.wants_print:
        return _print_container_words(session, engine, resolve_mounts(rules, places, session.host, stores=stores), words)
    # Made before anybody else makes it: what is not there cannot be hidden.
    session.prepare_state()
    mounts = resolve_mounts(rules, places, session.host, stores=stores)
    marker = session.mark_entry()
    session._look_for_logins()  # noqa: SLF001
    session.signals = Signals()
    container = Container(session, engine, mounts)
    try:
        for name in container.run_directory.fill_run_directory():
            engine.remove_container(f"wavegen-{name}")
        argv = container.client_command_line(words)
        status = container.run_engine_client(argv)
    finally:
        container.clean_up_run()
    audit_afterwards(places.project, places.kept, marker, ended=container.has_ended)
    session.signals.end_if_interrupted(status)
    return status


def _print_container_words(session: Session, engine: Engine, mounts: tuple[Mount, ...], words: list[str]) -> int:
    from .start import quote_shell_word

    container = Container(session, engine, mounts, is_shown=True)
    sys.stdout.write("".join(f"{quote_shell_word(word)}\n" for word in container.client_command_line(words)))
    return 0


class Container:
    """One container: its run directory, its words, its run and its end."""

    def __init__(self, session: Session, engine: Engine, mounts: tuple[Mount, ...], *, is_shown: bool = False) -> None:
        self.session, self.engine, self.mounts = session, engine, mounts
        self.rules, self.places, self.host = session.rules, session.places, session.host
        name = f"{posix.getpid()}-{time.time_ns() // 1000}"
        self.name = f"wavegen-{name}"
        self.run_directory = RunDirectory(session, mounts, (engine.uid, engine.gid), name, is_shown=is_shown)
        self.run_directory.is_podman = engine.is_podman
        self.has_ended = True
        self.output = self.collected = ""
        self._has_watchdog = False
        self._life = self._gone = -1
        self._is_over = False
        self._started = _thread.allocate_lock()
        self._started.acquire()

    # --- words

    def client_command_line(self, told: list[str]) -> list[str]:
        """All words of the client. `told`: those that come of what the engine said."""
        run = self.run_directory
        rules, arguments = self.rules, self.session.arguments
        found = [self.engine.program, "run", *OPTIONS, "--network", "host" if rules.setting_value("network") == "host" else "none", *told]
        found += ["--pids-limit", rules.setting_value("pids"), "--shm-size", rules.setting_value("tmpfs_size")]
        found += docker_mount_words(self.mounts, run)
        found += self._workspace_options()
        found += self._environment_options()
        found += ["--security-opt", f"seccomp={self._prepare_seccomp_filter()}"]
        # A terminal is one stream for output and messages; where they go to different places it would mix them.
        found += ["--tty"] if self.has_terminal else []
        start = self.places.start_directory(in_root=arguments.starts_agent)
        found += ["--user", f"{run.uid}:{run.gid}", "--workdir", start, "--name", self.name]
        found += run.bind_mount_words(f"{run.path}/inside", _INSIDE, read_only=True)
        command = self.session.command_inside(self.mounts)
        must_be_utf8("a path", [start])
        must_be_utf8("a word", command)
        path = "".join(f"{entry}:" for entry in self.session.caller.get("PATH", "").split(":") if is_within_any(entry, _STORES))
        options = self._restriction_options()
        if not run.is_shown:
            run.write_new_file(f"{run.path}/inside/mounts", "".join(mount_line(target, ro) for _, target, ro in run.expected).encode(), 0o444)
        entry = ["/bin/sh", f"{_INSIDE}/container_entry.sh", path, "1" if rules.filters_connections else "0", str(len(options)), *options]
        return [*found, rules.setting_value("image"), *entry, *command]

    @property
    def has_terminal(self) -> bool:
        """Whether input, output and messages all are a terminal."""
        return all(posix.isatty(handle) for handle in (0, 1, 2))

    def _restriction_options(self) -> list[str]:
        """Options of restrict_and_exec, inside."""
        run = self.run_directory
        rules = self.rules
        found = ["--landlock-masks", rules.setting_value("landlock"), "--limit", "core=1", "--limit", f"nofile={rules.setting_value('files')}"]
        if not rules.setting_value("nested"):
            writable = [mount.target for mount in self.mounts if mount.kind in (BIND, SCRATCH) and not mount.anchors]
            for path in ("/dev", "/proc", *writable, *(["/workspace"] if run.is_frozen else [])):
                found += ["--write-try", path]
        for identity, target, _ in run.expected:
            found += ["--expect", f"{identity}:{target}"]
        return found

    def _environment_options(self) -> list[str]:
        rules, session = self.rules, self.session
        environment = command_environment(rules, self.places, session.caller, shell="/bin/sh", interactive=session.is_interactive)
        passed = {name for name, _ in rules.lists["pass"]}
        must_be_utf8("a variable", list(environment.values()))
        words: list[str] = []
        for name in self.engine.image_variables:
            if name not in environment and name.startswith(_OF_LOADERS):
                words += ["--env", f"{name}="]
        for name, value in environment.items():
            if name == "PATH":
                continue  # the image's
            if name in passed and name not in _OF_CLIENTS and not name.startswith(_ALSO_OF_CLIENTS):
                # By name: a value would stand in the process list.
                self.engine.environment[name] = value
                words += ["--env", name]
            else:
                words += ["--env", f"{name}={value}"]
        return words

    def _prepare_seccomp_filter(self) -> str:
        """The file with the system call filter as the engine reads it, copied to where nobody exchanges it."""
        run = self.run_directory
        name = self.rules.setting_value("seccomp")
        path = f"{self.session.own.rpartition('/')[0]}/seccomp/{name}.json"
        if not name or run.is_shown:
            return path if name else "unconfined"
        try:
            if name.startswith("@"):
                with open(int(name[1:]), "rb", closefd=False) as stream:
                    text = stream.read(_LARGEST)
            else:
                text = self.host.read_host_file(path, _LARGEST)
        except OSError:
            text = b""
        if not text:
            raise CannotStartError(f"{path} is missing", "run wavegen render")
        run.write_new_file(f"{run.path}/seccomp.json", text, 0o400)
        return f"{run.path}/seccomp.json"

    # --- results of earlier steps, and of this one

    def _workspace_options(self) -> list[str]:
        """A place for the output, and what earlier steps left; of all else nothing is kept."""
        run = self.run_directory
        arguments, words = self.session.arguments, []
        if not run.is_frozen:
            return []
        if arguments.artifacts:
            path = arguments.artifacts if arguments.artifacts.startswith("/") else f"{self.places.start}/{arguments.artifacts}"
            real = resolve_path(self.host, path)
            if not real or not S_ISDIR(self.host.lstat(real).st_mode):
                raise CannotStartError(f"{arguments.artifacts} is not a directory", "name what is to be at /artifacts")
            must_be_utf8("a path", [real])
            words += run.bind_mount_words(real, "/artifacts", read_only=True)
        words += run.scratch_words("/workspace", "1777")
        if arguments.output:
            from .container_output import prepare_output

            self.output, self.collected = prepare_output(self)
            words += run.bind_mount_words(self.collected, "/workspace/output", read_only=False)
        return words

    # --- start and end

    def run_engine_client(self, argv: list[str]) -> int:
        """Start the client, serve it, and wait; the command's status."""
        run = self.run_directory
        session, rules = self.session, self.rules
        elsewhere = parse_connect_to(session.arguments.connect_to) if rules.filters_connections else {}
        upstream = find_upstream(session.caller) if rules.filters_connections and rules.setting_value("upstream") else None
        if session.is_interactive:
            self._say_banner()
        self._start_watchdog()
        terminal = _terminal_settings() if self.has_terminal else None
        parent = posix.getpid()
        pid = start_child(lambda: end_with_parent(parent), argv, self.engine.environment, session.signals, keep_interrupts=False)
        _thread.start_new_thread(self._relay_started_report, ())
        if not self.engine.is_podman:
            _thread.start_new_thread(self._free_client, ())
        egress = done = None
        if rules.filters_connections and run.channel:
            from .egress.rules import LOCAL_POOL

            judged = network_rules(rules, session.find_line, LOCAL_POOL)
            egress = make_egress(self.places.own, rules.setting_value("shell"), judged, elsewhere, upstream)
            channel = run.channel
            done = start_egress_thread(egress, pid, lambda: self._accept_listeners(channel, list_wanted_listeners(judged)))
        status = session.signals.wait_for_child(pid, lambda: pid)
        self._is_over = True
        if terminal:
            _restore_terminal(terminal)
        self._await_removal()
        if egress and done and run.channel:
            egress.loop.stop_loop()
            self._shut_channel(run.channel)
            done.acquire(timeout=2)
            egress.log.close()
        started = self._has_started()
        if self.collected:
            from .container_output import collect_output

            collect_output(self)
        if started or status > 128:
            return status
        raise CannotStartError("the container did not start the command", "see its message above")

    def _say_banner(self) -> None:
        lines = [line for (line,) in self.rules.lists["banner"]]
        shown = [
            f"wavegen: shell {self.rules.setting_value('shell')}: sandboxed by a container",
            *(line for line in lines[1:] if not line.startswith("  read:")),
        ]
        sys.stderr.write("".join(f"{line}\n" for line in shown))
        sys.stderr.flush()

    def _start_watchdog(self) -> None:
        """Start what removes the container once this launcher is gone, whatever ended it: nobody else would."""
        run = self.run_directory
        life_out, self._life = posix.pipe2(posix.O_CLOEXEC)
        self._gone, gone_in = posix.pipe2(posix.O_CLOEXEC)
        if posix.fork():
            posix.close(life_out)
            posix.close(gone_in)
            self._has_watchdog = True
            return
        try:
            # A session of its own: signals are sent to groups of processes.
            posix.setsid()
            quiet = posix.open("/dev/null", posix.O_RDWR)
            for handle in (0, 1, 2):
                posix.dup2(quiet, handle)
            for name in posix.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) not in (life_out, gone_in):
                    try:
                        posix.close(int(name))
                    except OSError:
                        pass  # the listing's own
            posix.read(life_out, 1)
            is_gone = self.engine.remove_container(self.name)
            run.remove_run_directory()
            if is_gone:
                posix.write(gone_in, b"!")
        finally:
            posix._exit(0)  # noqa: SLF001

    def _await_removal(self) -> None:
        """Wait until the container is gone."""
        run = self.run_directory
        import select

        posix.close(self._life)
        self._life = -1
        ready, _, _ = select.select((self._gone,), (), (), _TALK)
        if ready and posix.read(self._gone, 1) == b"!":
            return
        # Whoever has ended the watchdog has not ended the container.
        if not self.engine.remove_container(self.name):
            self.has_ended = False
            print_note(f"warning: the container {self.name} has not ended; remove it with: {self.engine.kind} rm -f {self.name}")
        run.remove_run_directory()

    def clean_up_run(self) -> None:
        """Remove the run directory where no watchdog does; also a place for output into which nothing was written."""
        run = self.run_directory
        if not self._has_watchdog:
            run.remove_run_directory()
            if self.collected:
                try:
                    posix.rmdir(self.collected)
                except OSError:
                    pass
        elif self._life >= 0:
            posix.close(self._life)

    def _relay_started_report(self) -> None:
        """Wait for the first word from inside, and tell whoever asked by --report."""
        run = self.run_directory
        import select

        select.select((run.report,), (), ())
        if posix.read(run.report, 8) == b"started\n":
            self._is_over = True
            self._started.release()
            if self.session.arguments.report > 2:
                try:
                    posix.write(self.session.arguments.report, b"started\n")
                    posix.close(self.session.arguments.report)
                except OSError:
                    pass  # nobody listens any more

    def _free_client(self) -> None:
        """Remove a container that the daemon has refused to start, as a place of it was gone by then: docker's client waits forever for its removal (--rm).

        While the daemon starts one it tells nobody its state, and what runs is not removed: only a client that has not asked for the start yet could
        be meant, and not between two looks.
        """
        looks = 0
        while looks < _LOOKS:
            time.sleep(_LOOK)
            if self._is_over:
                return
            looks = looks + 1 if self.engine.state_of(self.name) == "created" else 0
        self.engine.remove_unstarted(self.name)

    def _has_started(self) -> bool:
        """Whether the command was started: said before the container's end, and read by a thread."""
        return self._started.acquire(timeout=0.2)

    def _accept_listeners(self, channel: socket.socket, wanted: Sequence[tuple[str, int, str, int]]) -> list[tuple[str, int]]:
        """What the first process inside has opened; none where the client has ended before. Whoever else comes is let go."""
        run = self.run_directory
        while True:
            try:
                handle, _ = channel._accept()  # type: ignore[attr-defined]  # noqa: SLF001
            except OSError:
                return []
            peer = socket.socket(fileno=handle)
            try:
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                if int.from_bytes(credentials[4:8], sys.byteorder) == run.uid:
                    sockets, failure = offer_listeners(peer, wanted)
                    if not failure:
                        # From here on nobody inside can say anything but by what was opened.
                        self._shut_channel(channel)
                        return sockets
            except OSError:
                pass
            finally:
                peer.close()

    def _shut_channel(self, channel: socket.socket) -> None:
        run = self.run_directory
        try:
            channel.shutdown(socket.SHUT_RDWR)
            posix.unlink(f"{run.path}/inside/channel")
        except OSError:
            pass


def _terminal_settings() -> list[object]:
    import termios

    return termios.tcgetattr(0)


def _restore_terminal(settings: list[object]) -> None:
    """A client that is killed leaves it raw."""
    import termios

    try:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)  # type: ignore[arg-type]
    except termios.error:
        pass  # it has hung up

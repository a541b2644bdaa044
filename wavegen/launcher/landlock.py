"""A shell without namespaces: Landlock (landlock(7)) decides what the command opens, a system call filter and ports decide about the network.

Nothing is mounted here, so what is not granted is not there, and of what is granted nothing can be hidden or kept read-only. The project
is written as a whole, with `.wavegen` in it: so all code of the launcher is read before the command starts, what the launcher reads from
the project is compared with the lock, and the lock with the digest that `wavegen render` left where no shell writes.
"""

from __future__ import annotations

import _socket as socket
import posix
import sys

from . import libc
from .arguments import agent_start, agent_words
from .bwrap import Descriptors
from .egress.ports import HTTP_PORT, SOCKS_PORT
from .environment import bash_of, command_environment
from .errors import CannotStartError, escape_unprintable
from .grants import INSTEAD, Grant, landlock_path_options, readable_system, resolve_grants, resolve_or_empty
from .landlock_masks import INSTEAD_OF_MOUNTS, READS, TCP, UDP, WRITES, landlock_masks, least_abi, missing_rights
from .manifest_lines import find_path_line
from .rendered import Rendered, read_all_code
from .supervise import InputFile, Signals, audit_afterwards, end_children, is_regular, print_note, remove_recursively, start_child
from .symlinks import is_within_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .egress.serve import Egress
    from .rules import Rules
    from .start import Session

_HTTP, _SOCKS = f"127.0.0.1:{HTTP_PORT}", f"127.0.0.1:{SOCKS_PORT}"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
_PR_SET_CHILD_SUBREAPER = 36


def run_landlock(session: Session) -> int:
    """Run the command of a session where the machine has no namespaces; its status. Raises CannotStartError."""
    rules, places = session.rules, session.places
    places.private = f"{places.own}/landlock"  # apart from bwrap's, which has no use for the links that lead out of this one
    weak = _check_kernel_support(session)
    rendered = Rendered(session)
    try:
        grants = resolve_grants(rules, places, session.host)
    except OSError as failed:
        where = failed.filename or "a path of the manifest"
        raise CannotStartError(f"{where} cannot be looked at: {failed.strerror}", f"make it accessible: chmod u+rwx {where}") from None
    start = LandlockStart(session, grants, rendered)
    if session.arguments.wants_print:
        from .start import quote_shell_word

        for grant in grants:
            grant.origin = find_path_line(session.host, places.project, grant.rule) if grant.rule else grant.origin
        sys.stdout.write(
            "".join(f"{' '.join(map(quote_shell_word, words))}  # {escape_unprintable(origin)}\n" for words, origin in start.restriction_words(()))
        )
        sys.stdout.write("".join(f"# not enforced: {line}\n" for line in weak))
        return 0
    session.prepare_state()
    rendered.remember_lock_digest()
    marker = session.mark_entry()
    for line in weak:
        session.note_once(f"landlock-{posix.uname().release}-{line.rpartition('restrict ')[2][:20].replace('/', '-')}", line)
    status = start.run_restricted_command()
    audit_afterwards(places.project, places.kept, marker, ended=start.is_over)
    session.signals.end_if_interrupted(status)
    return status


def _check_kernel_support(session: Session) -> list[str]:
    """What this kernel cannot restrict, and need not. Ends the start, or does what `fallback` says, where that is too much."""
    from .inside.restrict_and_exec import ask_landlock

    rules, machine = session.rules, posix.uname().machine
    abi, _ = ask_landlock()
    for line in missing_rights(abi, (*READS, *WRITES, *(TCP if rules.setting_value("network") != "host" else ()))):
        session.refuse_or_fall_back(line, f"use Linux 6.7 or newer, or {INSTEAD}", hopeless=True)
    if machine not in ("x86_64", "aarch64") and _filter_name(rules) != "off":
        session.refuse_or_fall_back(f"there is no system call filter for {machine}", "use x86_64 or aarch64", hopeless=True)
    return missing_rights(abi, INSTEAD_OF_MOUNTS)


def _filter_name(rules: Rules) -> str:
    """The filter of a shell without namespaces: `@N`, a name, or `off`. Raises CannotStartError where none was rendered."""
    given = rules.setting_value("seccomp")
    name = given if given.startswith("@") else rules.setting_value("seccomp_landlock")
    if not name:
        raise CannotStartError("this project is not rendered for Landlock", "write backend: landlock and run wavegen render, or use wavegen run")
    return name


class LandlockStart:
    """What one command is started with."""

    def __init__(self, session: Session, grants: tuple[Grant, ...], rendered: Rendered) -> None:
        self.session, self.grants, self.rendered = session, grants, rendered
        self.rules, self.places, self.host = session.rules, session.places, session.host
        self.temporary = f"{self.places.private}/tmp-{posix.getpid()}"
        self.home = f"{self.places.private}/home" if self.rules.setting_value("home") == "private" else f"{self.temporary}/home"
        self.system = readable_system(self.rules)
        self.descriptors, self.is_over = Descriptors(), True

    def restriction_words(self, ports: Sequence[int]) -> list[tuple[tuple[str, str], str]]:
        """The options of the last step before the command, but for descriptors. `ports`: what may be connected to."""
        from .bwrap_start import granted_memory

        rules = self.rules
        names = INSTEAD_OF_MOUNTS if rules.setting_value("network") == "host" else (*INSTEAD_OF_MOUNTS, *TCP, *UDP)
        needed = (*READS, *WRITES, *(TCP if rules.setting_value("network") != "host" else ()))
        found: list[tuple[tuple[str, str], str]] = [
            (("--landlock-masks", landlock_masks(names)), "default: all that Landlock knows of files, sockets and signals"),
            (("--least-abi", str(least_abi(needed))), "default: an older kernel would leave a way to write or to connect"),
            *landlock_path_options(self.grants, self.system, (self.home, self.temporary)),
            *((("--connect", str(port)), rules.setting_origin("network")) for port in ports),
            (("--limit", "core=1"), "default: a core file would be a copy of secrets"),
            (("--limit", f"nofile={rules.setting_value('files')}"), rules.setting_origin("files")),
            (("--limit", f"data={granted_memory(rules)}"), rules.setting_origin("memory")),
        ]
        if self.host.uid == 0:
            found.append((("--drop-capabilities", "all"), "default: real root's would open what Landlock does not look at"))
        return found

    def run_restricted_command(self) -> int:
        """Start it, serve it, and wait; the command's status."""
        session, rules, places = self.session, self.rules, self.places
        self._make_directories()
        inside = self._inside_words()
        sockets, egress = self._open_network() if rules.filters_connections else ((), None)
        ports = [sock.getsockname()[1] for sock in sockets]
        environment, command = self._landlock_environment(ports), self._command_to_run()
        argv = [*inside, *self._options_by_descriptor(ports), "--", *command]
        read_all_code(self.host, session.own, places, [grant.path for grant in self.grants if grant.may_write])
        libc.call_libc("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what the command leaves running becomes this process's own, and ends with it
        if session.is_interactive:
            sys.stderr.write("".join(f"{line}\n" for (line,) in rules.lists["banner_landlock"]))
            sys.stderr.flush()
        signals, parent = Signals(), posix.getpid()
        session.signals = signals
        source = InputFile() if is_regular(0) else None
        # A terminal is shared where the filter keeps the command from typing into it; /dev/tty must not lead to one otherwise.
        alone = rules.setting_value("seccomp_landlock")[:3] in ("", "off") or not any(posix.isatty(handle) for handle in (0, 1, 2))

        def prepare_restricted_child() -> None:
            libc.end_with_parent(parent)
            if alone:
                posix.setsid()
            if source:
                posix.dup2(source.source, 0)
            posix.chdir(places.start_directory(in_root=session.arguments.starts_agent))

        pid = start_child(prepare_restricted_child, argv, environment, signals, keep_interrupts=False)
        self.descriptors.close_copies()
        try:
            status = self._serve_until_end(egress() if egress else None, sockets, pid, signals)
        finally:
            if source:
                source.restore_file_offset()
            remove_recursively(self.temporary)
        return status

    def _serve_until_end(self, egress: Egress | None, sockets: Sequence[socket.socket], pid: int, signals: Signals) -> int:
        from .filtered import start_egress_thread

        done = start_egress_thread(egress, pid, lambda: [("proxy", sock.detach()) for sock in sockets]) if egress else None
        status = signals.wait_for_child(pid, lambda: pid, reaps=True)
        self.is_over = end_children()
        if not self.is_over:
            print_note("warning: something inside has not ended; wavegen audit looks at what it leaves")
        if egress and done:
            egress.loop.stop_loop()
            done.acquire(timeout=2)  # what was answered last is still to be written down
            egress.log.close()
        return status

    # --- before it

    def _make_directories(self) -> None:
        """The private home, and an empty directory for what is temporary. Those of shells that were killed go."""
        host, folder = self.host, self.places.private
        try:
            host.make_directories(folder)
            for name in posix.listdir(folder):
                number = name[4:] if name.startswith("tmp-") else ""
                if number.isdigit() and (int(number) == posix.getpid() or not posix.access(f"/proc/{number}", posix.F_OK)):
                    remove_recursively(f"{folder}/{name}")
            for path in (self.temporary, self.home):
                host.make_directories(path)
        except OSError as failed:
            raise CannotStartError(f"{failed.filename or folder} cannot be created: {failed.strerror}", "make room there") from None
        for grant in self.grants:
            if grant.rule and grant.rule.path.startswith("~/"):
                self._link_granted_path(grant.rule.path[2:], grant)

    def _link_granted_path(self, tail: str, grant: Grant) -> None:
        """What is granted below the home directory is found in the private one by a link; what stands there already stays."""
        above, _, last = tail.rpartition("/")
        # No link may lead this process anywhere: the home is the command's.
        try:
            place = f"{self.home}/{above}".rstrip("/")
            self.host.make_directories(place)
            handle = self.host.open_without_links(place)
            try:
                posix.symlink(f"{self.places.home}/{tail}", last, dir_fd=handle)
            except FileExistsError:
                pass
            finally:
                posix.close(handle)
        except OSError as failed:
            what = f"~/{above} of the private home is no directory: {failed.strerror}"
            line = find_path_line(self.host, self.places.project, grant.rule) if grant.rule else grant.origin
            raise CannotStartError(what, f"{line} asks for it; remove it from {self.home}") from None

    def _inside_words(self) -> list[str]:
        """The program that takes the rights, as text: at its path there may be another by then."""
        python = self.session.locate_program("python3")
        if not python:
            raise CannotStartError("python3 is not on the PATH", "install python3 3.9 or newer")
        return [
            python,
            "-I",
            "-S",
            "-c",
            self.rendered.read_checked_output(f"{self.session.own.rpartition('/')[2]}/inside/restrict_and_exec.py").decode("utf-8"),
        ]

    def _command_to_run(self) -> list[str]:
        arguments = self.session.arguments
        if not arguments.starts_agent:
            return arguments.command or ["bash"]
        text = self.rendered.read_checked_output(f"{self.session.own.rpartition('/')[2]}/inside/agent.sh").decode("utf-8")
        return agent_start(text, [f"+{path}" for path in self.session.places.written], agent_words(self.rules, arguments))

    def _options_by_descriptor(self, ports: Sequence[int]) -> list[str]:
        """Words and descriptors: what was looked at is what is granted, whatever is at its path by then."""
        found, handles, report = [], self.descriptors, self.session.arguments.report
        for (option, value), _ in self.restriction_words(ports):
            if option in ("--read", "--write"):
                found += [f"{option}-fd", handles.add_descriptor(self._open_granted_path(value))]
            else:
                found += [option, value]
        name, filtered = _filter_name(self.rules), self.rules.setting_value("network") != "host"
        if filtered:
            from .tcp_filter import compile_tcp_filter

            # Landlock does not look at listen(2) on a socket that was never bound, for which the kernel chooses a port.
            program = compile_tcp_filter(posix.uname().machine, may_listen=self.rules.setting_value("network") == "none")
            found += ["--seccomp", handles.add_bytes(program)]
        if name.startswith("@"):
            found += ["--seccomp", handles.add_descriptor(int(name[1:]))]
        elif name != "off":
            found += ["--seccomp", handles.add_bytes(self.rendered.read_checked_output(f"seccomp/{name}.bpf"))]
        if report > 2:
            found += ["--started", handles.add_descriptor(report)]
        return [*found, "--close-from", "3"]

    def _open_granted_path(self, path: str) -> int:
        try:
            return self.host.open_without_links(path)
        except OSError as failed:
            raise CannotStartError(f"{path} cannot be opened: {failed.strerror}", "start again; if that does not help, look at what it is now") from None

    def _landlock_environment(self, ports: Sequence[int]) -> dict[str, str]:
        session, rules, places, caller = self.session, self.rules, self.places, self.session.caller
        found = command_environment(rules, places, caller, shell=bash_of(session.arguments.tools), interactive=session.is_interactive)
        # What cannot be read would hide that a command is not there; and an agent is not started from where a command could have put it.
        readable = [*(resolve_or_empty(self.host, rule.path) for rule in self.system), *(grant.path for grant in self.grants)]
        written = places.written[1:] if session.arguments.starts_agent else ()
        reals = [(directory, resolve_or_empty(self.host, directory)) for directory in caller.get("PATH", "").split(":") if directory.startswith("/")]
        path = [directory for directory, real in reals if real and is_within_any(real, [place for place in readable if place])]
        path = [directory for directory in path if not is_within_any(resolve_or_empty(self.host, directory), written)]
        found.update(dict.fromkeys(_TEMPORARY, self.temporary))
        found.update(HOME=self.home, PATH=":".join(path) or "/usr/local/bin:/usr/bin:/bin", PWD=places.start_directory(in_root=session.arguments.starts_agent))
        if ports:
            web, socks = ports
            # Everything goes through the proxies: nothing else answers, on the loopback neither.
            for name, value in tuple(found.items()):
                found[name] = value.replace(_HTTP, f"127.0.0.1:{web}").replace(_SOCKS, f"127.0.0.1:{socks}")
            for name in ("NO_PROXY", "no_proxy"):
                found.pop(name, None)
            java = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={web} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={web}"
            found.update(CLOUDSDK_PROXY_PORT=str(web), JAVA_TOOL_OPTIONS=java)
        return found

    def _open_network(self) -> tuple[list[socket.socket], Callable[[], Egress]]:
        """The proxies' sockets, for HTTP and SOCKS5, on the host's own loopback; and what makes the filter that answers there."""
        from .filtered import find_upstream, is_of_this_user, make_egress, network_rules, parse_connect_to

        session, sockets = self.session, []
        for _ in range(2):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.bind(("127.0.0.1", 0))
            sock.listen(128)
            sockets.append(sock)
        rules, elsewhere = network_rules(self.rules, session.find_line), parse_connect_to(session.arguments.connect_to)
        upstream = find_upstream(session.caller) if self.rules.setting_value("upstream") else None
        # After the command was started: more descriptors than it may have are for the launcher.
        return sockets, lambda: make_egress(self.places.own, self.rules.setting_value("shell"), rules, elsewhere, upstream, admit=is_of_this_user)

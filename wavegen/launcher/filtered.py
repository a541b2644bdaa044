"""A shell whose connections are checked one by one: the network is made before bwrap, and answered from this process, outside.

What answers is imported after the command was started: who connects before that waits in the sockets' queues.
"""

from __future__ import annotations

import _thread
import posix
import sys

from .egress.rules import Rule, Rules
from .errors import CANNOT_START, CannotStartError
from .netns import REFUSALS, list_wanted_listeners, offer_listeners, open_network, receive_sockets
from .supervise import InputFile, Report, print_note, socket_pair, start_with_keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .bwrap_start import BwrapStart
    from .egress.connect import Upstream
    from .egress.log import Log
    from .egress.rules import Pool
    from .egress.serve import Egress
    from .rules import Rules as ShellRules

_DESCRIPTORS = 4096
"""What the launcher may open: each connection has two. The command keeps the bound that it was given."""


def network_rules(rules: ShellRules, find_line: Callable[[str, str], str], pool: Pool | None = None) -> Rules:
    """What a shell may reach, as the filter decides it. `find_line`: where an entry of an origin stands."""
    lists = rules.lists
    allow, deny = ([Rule(entry, origin, flags, find_line) for entry, flags, origin in lists[name]] for name in ("allow", "deny"))
    loopback = [Rule(f"127.0.0.1:{port}", origin) for port, origin in lists["loopback"]]
    more = {} if pool is None else {"pool": pool}
    return Rules(anything=rules.setting_value("network") == "open", allow=allow, deny=deny, loopback=loopback, **more)


def parse_connect_to(entries: Sequence[str]) -> dict[tuple[str, int], tuple[str, int]]:
    """NAME:PORT:ADDRESS:PORT, as curl has it: what is connected to in place of an allowed name. Raises CannotStartError."""
    from .egress.names import BadNameError, parse_authority

    found = {}
    for text in entries:
        try:
            name, port, address, at = text.split(":", 3) if "[" not in text else _split_bracketed(text)
            target, number = parse_authority(f"{name}:{port}".encode())
            there, place = parse_authority(f"{address}:{at}".encode())
            if not there.address:
                raise BadNameError("a name")
            found[(str(target), number)] = (str(there), place)
        except (ValueError, BadNameError):
            raise CannotStartError(f"--connect-to {text} is not NAME:PORT:ADDRESS:PORT", "write it as example.org:443:127.0.0.1:8443") from None
    return found


def _split_bracketed(text: str) -> tuple[str, str, str, str]:
    head, _, tail = text.partition(":[")
    name, _, port = head.rpartition(":")
    address, _, at = tail.partition("]:")
    return name, port, f"[{address}]", at


def run_filtered(start: BwrapStart, argv: list[str], environment: dict[str, str], source: InputFile | None, status_out: int) -> int:
    """Start bwrap in a network of its own, answer, and wait; the command's status."""
    session = start.session
    rules = network_rules(start.rules, session.find_line)
    elsewhere = parse_connect_to(session.arguments.connect_to)
    upstream = find_upstream(session.caller) if start.rules.setting_value("upstream") else None
    wanted = list_wanted_listeners(rules)
    ours, theirs = socket_pair()

    def prepare_network() -> None:
        start._prepare_child(source)  # noqa: SLF001
        try:
            for port in open_network(theirs, rules, wanted):
                print_note(f"note: port {port} of the host's loopback is not let in: only this machine's root may listen on it")
        except OSError as failed:
            theirs.send(f"?{failed.errno}".encode())
            if failed.errno not in REFUSALS:
                print_note(f"error: the shell's network: {failed.strerror} (see the ports that `loopback` lists)")
            posix._exit(CANNOT_START)  # noqa: SLF001

    pid = start_with_keeper(prepare_network, argv, environment, session.signals, keep_interrupts=start.keeps_interrupts, life=start.life)
    theirs.close()
    sockets, failure = receive_sockets(ours, wanted)
    if failure in REFUSALS:
        posix.waitpid(pid, 0)
        return _run_by_proxy(start, argv, environment, source, status_out, rules)
    if failure:
        raise CannotStartError("the network of the shell cannot be made", "see its message above" if failure > 0 else "try again")
    start.descriptors.close_copies()
    return serve_until_exit(start, rules, sockets, pid, status_out, elsewhere, upstream)


def _run_by_proxy(start: BwrapStart, argv: list[str], environment: dict[str, str], source: InputFile | None, status_out: int, rules: Rules) -> int:
    """The same where only bwrap may make namespaces (AppArmor): the first process inside opens the proxies' sockets."""
    wanted = list_wanted_listeners(rules, everywhere=False)
    ours, theirs = socket_pair()
    at = argv.index("--args")
    python = start.shown_program("python3")
    if not python:
        raise CannotStartError("there is no python3 inside to open the proxies' sockets", "install python3, or show it to the shell")
    inside = [python, "-I", "-S", f"{start.session.own}/inside/listeners.py", f"@{start.descriptors.add_descriptor(theirs.fileno())}", "--"]
    words = [*argv[:at], "--unshare-net", *argv[at : at + 3], *inside, *argv[at + 3 :]]
    signals, keep = start.session.signals, start.keeps_interrupts
    pid = start_with_keeper(lambda: start._prepare_child(source), words, environment, signals, keep_interrupts=keep, life=start.life)  # noqa: SLF001
    theirs.detach()
    start.descriptors.close_copies()

    try:
        sockets, failure = offer_listeners(ours, wanted)
    except OSError:
        sockets, failure = [], -1  # bwrap has ended, and says why
    if not failure:
        print_note("note: this machine lets only bwrap create user namespaces: in the sandbox, only programs that use a proxy reach the network")
    return serve_until_exit(start, rules, sockets, pid, status_out, parse_connect_to(start.session.arguments.connect_to), None)


def serve_until_exit(
    start: BwrapStart,
    rules: Rules,
    sockets: Sequence[tuple[str, int]],
    pid: int,
    status_out: int,
    elsewhere: dict[tuple[str, int], tuple[str, int]],
    upstream: Upstream | None,
) -> int:
    """Answer until bwrap ends; the command's status."""
    report = Report(status_out)
    session = start.session
    egress = make_egress(session.places.own, start.rules.setting_value("shell"), rules, elsewhere, upstream)
    done = start_egress_thread(egress, pid, lambda: sockets)
    status = session.signals.wait_for_child(pid, report.command_process, start.life.close_launcher_end)
    egress.loop.stop_loop()
    done.acquire(timeout=2)
    egress.log.close()
    return start._finish_run(status, report)  # noqa: SLF001


def make_egress(
    state: str,
    shell: str,
    rules: Rules,
    elsewhere: dict[tuple[str, int], tuple[str, int]],
    upstream: Upstream | None,
    log: Log | None = None,
    admit: Callable[[tuple[str, int], tuple[str, int]], bool] | None = None,
) -> Egress:
    """What answers, with enough descriptors for it, and writes to the log of the shell. `admit`: see Egress."""
    import resource

    from .egress.log import Log
    from .egress.serve import Egress

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS), most))
    return Egress(rules, log or Log(f"{state}/network.jsonl", shell), shell=shell, connect_to=elsewhere, upstream=upstream, admit=admit)


def start_egress_thread(egress: Egress, pid: int, sockets: Callable[[], Sequence[tuple[str, int]]]) -> _thread.LockType:
    """Answer in a thread on the sockets inside, once they are there; what it gives can be acquired when that has ended."""
    import _socket as socket

    done = _thread.allocate_lock()
    done.acquire()

    def serve_egress_sockets() -> None:
        try:
            egress.serve_listeners([(purpose, socket.socket(fileno=handle)) for purpose, handle in sockets()])
        except BaseException as failed:  # noqa: BLE001
            # Without its way out the shell is closed, and its user must know.
            sys.stderr.write(f"wavegen: error: the network of the shell ended: {type(failed).__name__}: {failed} (please report it)\n")
            try:
                posix.kill(pid, 9)
            except OSError:
                pass
        finally:
            done.release()

    _thread.start_new_thread(serve_egress_sockets, ())
    return done


def is_of_this_user(listener: tuple[str, int], peer: tuple[str, int]) -> bool:
    """Whether a connection on the loopback comes from a process of this user, as the kernel lists it (proc(5), net/tcp)."""

    def format_proc_address(end: tuple[str, int]) -> str:
        address = int.from_bytes(bytes(map(int, end[0].split("."))), sys.byteorder)
        return f"{address:08X}:{end[1]:04X}"

    mapped = "0000000000000000" + f"{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
    for name, before in (("tcp", ""), ("tcp6", mapped)):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as stream:
                for line in stream:
                    fields = line.split()
                    if fields[1:3] == [before + format_proc_address(peer), before + format_proc_address(listener)]:
                        return int(fields[7]) == posix.geteuid()
        except OSError:
            continue
    return False


def find_upstream(caller: dict[str, str]) -> Upstream | None:
    """The host's own proxy, by HTTPS_PROXY and NO_PROXY; None where it has none. Raises CannotStartError."""
    from urllib.parse import unquote_to_bytes

    from .egress.connect import Upstream
    from .egress.names import BadNameError, parse_authority
    from .egress.ports import HTTP_PORT

    address, direct = (caller.get(name) or caller.get(name.lower(), "") for name in ("HTTPS_PROXY", "NO_PROXY"))
    if not address:
        return None
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "http", address
    login, _, host = rest.rstrip("/").rpartition("@")
    try:
        if scheme.lower() != "http":
            raise BadNameError(scheme)
        target, port = parse_authority(host.encode("utf-8", "surrogateescape"), port=HTTP_PORT)
    except (BadNameError, UnicodeError):
        raise CannotStartError("HTTPS_PROXY of the host is not http://HOST:PORT", "set it so, or remove upstream_proxy from the manifest") from None
    return Upstream(target, port, unquote_to_bytes(login.encode("utf-8", "surrogateescape")), direct.split(","))

"""From a command line to a running shell: the namespaces, the sockets in them, bwrap. What follows is launch_serve.py.

The child makes a user and a network namespace, opens there what is listened on, hands the sockets to this process, and
becomes bwrap. So the sockets exist before the command does, nothing listens on the host, and no process relays.

Standard library only; Python 3.10 and newer.

Longer than 400 lines: every filtered shell waits for it, and each further file is one more to be found and read.
"""

from __future__ import annotations

import _socket as socket
import ctypes
import errno
import fcntl
import os
import struct
import sys
import time

import stage
from egress_names import BadNameError, authority, shown
from egress_rules import ANY, LOCAL_POOL, POOL, UNPRIVILEGED, Rule, Rules
from stage import CANNOT, DNS_PORT, HTTP_PORT, SOCKS_PORT, cannot

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import NoReturn
else:
    import _signal as signal  # like _socket: their namesakes make enumerations, which takes longer than all the rest

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PDEATHSIG = 1
# ioctls of netdevice(7)
_GET_FLAGS, _SET_FLAGS, _SET_ADDRESS, _SET_MASK = 0x8913, 0x8914, 0x8916, 0x891C
_UP = 1
# A namespace is refused: by the kernel's settings, AppArmor or seccomp, or as there are too many (unshare(2)).
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.EINVAL, errno.ENOSYS)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""What a caller may send and the command is to get. The terminal's own reach it directly."""

Mask = set[int]
Listener = tuple[str, int, str, int]
"""What for, the family, the address and the port."""


class Options:
    """What the wrapper says."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.state = self.shell = self.project = self.marker = self.channel = ""
        self.stage = self.started = self.user = -1
        self.words = self.before = 0
        self.keep_interrupts = False
        self.groups: list[str] = []
        self.anything = False
        self.upstream = False
        self.allow: list[Rule] = []
        self.deny: list[Rule] = []
        self.loopback: list[Rule] = []
        self.connect_to: dict[tuple[str, int], tuple[str, int]] = {}
        rest = list(arguments)
        while rest and rest[0] != "--":
            self._take(rest)
        words = len(rest) - self.words
        self.scope, self.bwrap, self.command = rest[1 : self.before + 1], rest[self.before + 1 : words], rest[words:]

    def _take(self, rest: list[str]) -> None:  # noqa: C901, PLR0912  one case for each option
        option = rest.pop(0)
        match option:
            case "--python" | "--cache":
                rest.pop(0)
            case "--state":
                self.state = rest.pop(0)
            case "--shell":
                self.shell = rest.pop(0)
            case "--project":
                self.project = rest.pop(0)
            case "--marker":
                self.marker = rest.pop(0)
            case "--stage":
                self.stage = int(rest.pop(0))
            case "--channel":
                self.channel = rest.pop(0)
            case "--user":
                self.user = int(rest.pop(0))
            case "--started":
                self.started = int(rest.pop(0))
            case "--words":
                self.words = int(rest.pop(0))
            case "--before":
                self.before = int(rest.pop(0))
            case "--keep-interrupts":
                self.keep_interrupts = True
            case "--open":
                self.anything = True
            case "--upstream":
                self.upstream = True
            case "--allow" | "--deny":
                (self.allow if option == "--allow" else self.deny).append(Rule(*(rest.pop(0) for _ in range(3))))
            case "--loopback":
                port, line = rest.pop(0), rest.pop(0)
                self.loopback.append(Rule(f"127.0.0.1:{port}", line))
            case "--connect-to":
                self._elsewhere(rest.pop(0))
            case _ if option.startswith("--group="):
                self.groups.append(option.removeprefix("--group="))
            case _:
                cannot(f"launch.py does not know {option}", "run wavegen render")

    def _elsewhere(self, text: str) -> None:
        # NAME:PORT:ADDRESS:PORT, as curl has it
        try:
            name, port, address, at = text.split(":", 3) if "[" not in text else _bracketed(text)
            target, number = authority(f"{name}:{port}".encode())
            there, place = authority(f"{address}:{at}".encode())
            if not there.address:
                raise BadNameError("a name")
            self.connect_to[(str(target), number)] = (str(there), place)
        except (ValueError, BadNameError):
            cannot(f"--connect-to {text} is not NAME:PORT:ADDRESS:PORT", "write it as example.org:443:127.0.0.1:8443")

    def rules(self) -> Rules:
        """What may be reached."""
        pool = LOCAL_POOL if self.channel else POOL
        return Rules(anything=self.anything, allow=self.allow, deny=self.deny, loopback=self.loopback, pool=pool)


def _bracketed(text: str) -> tuple[str, str, str, str]:
    head, _, tail = text.partition(":[")
    name, _, port = head.rpartition(":")
    address, _, at = tail.partition("]:")
    return name, port, f"[{address}]", at


def join(groups: Sequence[str]) -> None:
    """Let this process, and what it starts, be counted in the control groups that the wrapper made. Raises OSError."""
    for group in groups:
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as stream:
            stream.write(str(os.getpid()))


def leave(groups: Sequence[str]) -> None:
    """Remove the control groups that the wrapper made for the command."""
    rest = list(groups)
    # bwrap ends a moment before the last of the processes that it leaves to the kernel.
    for _ in range(100):
        rest = [group for group in rest if not _removed(group)]
        if not rest:
            return
        time.sleep(0.01)


def _removed(group: str) -> bool:
    try:
        os.rmdir(group)
    except OSError as failed:
        return failed.errno != errno.EBUSY
    return True


# --- the namespace


def listeners(rules: Rules, *, everywhere: bool = True) -> tuple[Listener, ...]:
    """What is listened on inside. `everywhere`: not the proxies alone, which need no privilege."""
    four, six = int(socket.AF_INET), int(socket.AF_INET6)
    found: list[Listener] = [("proxy", four, "127.0.0.1", HTTP_PORT), ("proxy", four, "127.0.0.1", SOCKS_PORT)]
    if everywhere:
        found += [("dns-udp", four, "127.0.0.1", DNS_PORT), ("dns-tcp", four, "127.0.0.1", DNS_PORT)]
        for address, port in rules.places():
            if address != ANY or port not in (DNS_PORT, HTTP_PORT, SOCKS_PORT):
                found.append(("direct", four if len(address) == 4 else six, shown(address), port))
    taken = {port for _, _, address, port in found if address == "0.0.0.0"}
    for port in rules.loopback:
        if port not in taken:
            found.append(("direct", four, "127.0.0.1", port))
        found.append(("direct", six, "::1", port))
    if everywhere and any(len(address) > 4 for address in rules.addresses()):
        found += [("direct", six, "::", port) for port in rules.ports() if port < UNPRIVILEGED and port not in (DNS_PORT, *rules.loopback)]
    return tuple(found)


def _namespaces() -> None:
    """A user and a network namespace of this process's own, in which it is nobody else. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWUSER | _NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:
            stream.write(text)


def _addresses(listed: Sequence[bytes]) -> None:
    """Bring the loopback up, with the addresses that stand for names, and those that are listed as such."""
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = struct.pack("16sH14x", b"lo", 0)
    (flags,) = struct.unpack_from("H", fcntl.ioctl(control, _GET_FLAGS, request), 16)
    fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
    # On the loopback every address of a network is one's own, once it has one of them.
    nets = [(POOL.first, POOL.length), *((address, 32) for address in listed if len(address) == 4)]
    for number, (address, length) in enumerate(nets):
        name = f"lo:{number}".encode()
        mask = (0xFFFFFFFF << 32 - length & 0xFFFFFFFF).to_bytes(4, "big")
        fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, address))
        fcntl.ioctl(control, _SET_MASK, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, mask))
    control.close()
    for address in listed:
        if len(address) > 4:
            try:
                control = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
                fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16sIi", address, 128, socket.if_nametoindex("lo")))
                control.close()
            except OSError:
                return  # no IPv6 here: the proxies still take it


def hand_over(channel: socket.socket, wanted: Sequence[Listener]) -> None:
    """Open what is listened on and send it; say which ports of the host's loopback only root may listen on. Raises OSError."""
    for port in stage.hand_over(channel, [_opened_as(listener) for listener in wanted]):
        sys.stderr.write(f"wavegen: note: port {port} of the host's loopback is not let in: only this machine's root may listen on it\n")


def _opened_as(listener: Listener) -> stage.Wanted:
    purpose, _, address, port = listener
    return ("udp" if purpose == "dns-udp" else "tcp", address, port)


def tell(channel: socket.socket, wanted: Sequence[Listener]) -> None:
    """Say what is to be listened on to a first process that cannot know (stage.py). Raises OSError."""
    words = ["/".join(map(str, _opened_as(listener))) for listener in wanted]
    for start in range(0, len(words), stage.FDS_AT_ONCE):
        channel.send(" ".join(words[start : start + stage.FDS_AT_ONCE]).encode("ascii"))
    channel.send(b"!")


def taken_over(channel: socket.socket, wanted: Sequence[Listener]) -> tuple[list[tuple[str, int]], int]:
    """The sockets that somebody inside has opened, by descriptor, and the error for which he could not: -1 where he is gone,
    or has sent anything else than the sockets that were wanted. Raises OSError.
    """
    found: dict[int, int] = {}
    failure = 0
    while not failure:
        data, rights, _, _ = channel.recvmsg(2 * stage.FDS_AT_ONCE, socket.CMSG_SPACE(4 * stage.FDS_AT_ONCE), socket.MSG_CMSG_CLOEXEC)
        handles = [handle for _, _, raw in rights for (handle,) in struct.iter_unpack("i", raw[: len(raw) - len(raw) % 4])]
        if data == b"!" and not handles:
            return [(wanted[number][0], handle) for number, handle in found.items()], 0
        if data[:1] == b"?" and not handles:
            failure = int(data[1:]) if data[1:4].isdigit() and len(data) <= 4 else -1
            continue
        numbers = struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2])
        for place, handle in enumerate(handles):
            number = numbers[place] if place < len(numbers) else len(wanted)
            if number >= len(wanted) or number in found or not _fits(handle, wanted[number]):
                os.close(handle)
                failure = -1
            else:
                found[number] = handle
        if not handles or len(data) != 2 * len(handles):
            failure = -1
    for handle in found.values():
        os.close(handle)
    return [], failure


def _fits(handle: int, listener: Listener) -> bool:
    """Whether a descriptor is the socket that was wanted: what else would come might stop who serves it."""
    purpose, family, address, port = listener
    kind = socket.SOCK_DGRAM if purpose == "dns-udp" else socket.SOCK_STREAM
    try:
        sock = socket.socket(fileno=handle)
    except OSError:
        return False
    try:
        asked = [sock.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN)]
        right = [family, kind, socket.IPPROTO_UDP if purpose == "dns-udp" else socket.IPPROTO_TCP, int(purpose != "dns-udp")]
        return asked == right and sock.getsockname()[:2] == (address, port)
    except OSError:
        return False
    finally:
        sock.detach()


# --- bwrap


class Started:
    """A bwrap that runs: its process, where it reports, and the sockets inside. `failed`: why it does not run."""

    __slots__ = ("failed", "pid", "report", "sockets")

    def __init__(self, pid: int, report: int, sockets: list[tuple[str, int]], failed: int) -> None:
        self.pid, self.report, self.sockets, self.failed = pid, report, sockets, failed


def become(arguments: Sequence[str], parent: int, mask: Mask) -> None:
    """Become a program that ends when this launcher does, with signals as they were."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(CANNOT)
    # Python ignores these two, and what is ignored stays so in other programs.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.environ.pop("wg_upstream", None)
    os.execv(arguments[0], list(arguments))


def _start(options: Options, wanted: Sequence[Listener], mask: Mask, *, inside: bool) -> Started:
    """Start bwrap in a namespace of ours or (inside) let a first stage in bwrap's own open the sockets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    report, tell = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(options, wanted, theirs, tell, inside=inside)
            become(_arguments(options, theirs, tell, inside=inside), parent, mask)
        except OSError as failed:
            sys.stderr.write("" if failed.errno in _REFUSALS else f"wavegen: error: {options.bwrap[0]}: {failed.strerror} (shorten the command)\n")
            sys.stderr.flush()
            theirs.send(f"?{failed.errno}".encode())
        finally:
            os._exit(CANNOT)
    theirs.close()
    os.close(tell)
    sockets, failure = taken_over(ours, wanted)
    ours.close()
    return Started(pid, report, sockets, failure)


def _become(options: Options, wanted: Sequence[Listener], channel: socket.socket, tell: int, *, inside: bool) -> None:
    """All that the child does before it becomes bwrap."""
    os.set_inheritable(tell, True)
    join(options.groups)
    if options.keep_interrupts:
        # On a terminal Ctrl-C reaches bwrap, too, and would end the shell whatever the command makes of it. So bwrap ignores
        # it, as does what it starts, until the shim takes that back.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    if inside:
        os.set_inheritable(channel.fileno(), True)
    else:
        _namespaces()
        _addresses(options.rules().addresses())
        hand_over(channel, wanted)


def _arguments(options: Options, channel: socket.socket, tell: int, *, inside: bool) -> list[str]:
    first, *rest = options.bwrap
    head = [*options.scope, first, "--json-status-fd", str(tell)]
    if inside:
        stage = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "--stage", str(channel.fileno()), *_stage_options(options)]
        if rest[-3:-2] == ["--started"]:
            # That is for whoever becomes the command: here not the shim, which becomes the stage.
            stage += rest[-3:-1]
            del rest[-3:-1]
        return [*head, *rest, *stage, "--words", str(options.words), "--", *options.command]
    rest.remove("--unshare-net")
    return [*head, *rest, *options.command]


def _stage_options(options: Options) -> list[str]:
    return [word for rule in options.loopback for word in ("--loopback", rule.port, "-")]


def _stage(options: Options) -> NoReturn:
    """The first process inside, where the launcher may make no namespace: opens the proxies' sockets, becomes the command."""
    channel = socket.socket(fileno=options.stage)
    try:
        hand_over(channel, listeners(options.rules(), everywhere=False))
    except OSError as failed:
        channel.send(f"?{failed.errno}".encode())
        cannot(f"the proxy cannot listen: {failed.strerror}", "see the ports that `loopback` lists")
    channel.close()
    stage.by_proxy_alone()
    try:
        if options.started >= 0:
            os.write(options.started, b"started\n")
            os.close(options.started)
    except OSError as failed:
        cannot(f"the report cannot be written: {failed.strerror}", "open the descriptor for writing")
    stage.become(options.command)


def main(arguments: Sequence[str]) -> NoReturn:
    """Start the shell, serve it, end as the command ended."""
    options = Options(arguments)
    if options.stage >= 0:
        _stage(options)
    if not options.channel and options.bwrap.count("--unshare-net") != 1:
        cannot("the wrapper asks for no network of its own", "run wavegen render")
    mask: Mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *PASSED_ON}))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    rules = options.rules()
    proxy = None
    if options.upstream:
        # All that may be wrong is said before anything runs.
        import launch_serve

        proxy = launch_serve.upstream(options)
    try:
        if options.channel:
            import launch_container

            launch_container.run(options, rules, proxy, mask)  # does not come back
        started = _start(options, listeners(rules), mask, inside=False)
        if started.failed in _REFUSALS:
            os.waitpid(started.pid, 0)
            started = _start(options, listeners(rules, everywhere=False), mask, inside=True)
            if not started.failed:
                sys.stderr.write(
                    "wavegen: note: this machine lets no program but bwrap make namespaces: inside, only programs that know a proxy reach the network\n"
                )
                sys.stderr.flush()
        elif started.failed:
            cannot("the network of the shell cannot be made", "its message stands above" if started.failed > 0 else "try again")
        # While bwrap builds the fence; who connects already waits in the sockets' queues.
        import launch_serve

        launch_serve.serve(options, rules, started, proxy)  # does not come back
    except (OSError, RuntimeError) as failed:
        leave(options.groups)
        # bwrap ends with this process, and nothing of the command is left.
        cannot(f"the launcher has too little to work with: {failed}", "raise the limits of processes and open files: ulimit -u, ulimit -n")

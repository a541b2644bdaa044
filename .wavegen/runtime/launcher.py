"""From a command line to a running shell: the namespaces, the sockets in them, bwrap, signals, and how it ended.

The child makes a user and a network namespace, opens there what is listened on, hands the sockets to this process, and
becomes bwrap. So the sockets exist before the command does, nothing listens on the host, and no process relays.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import _thread
import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence

from egress import POOL, POOL_LENGTH, Egress, Upstream
from egress_log import Log
from egress_names import BadNameError, authority
from egress_rules import Rule, Rules

CANNOT = 125
HTTP_PORT, SOCKS_PORT = 3128, 1080
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PDEATHSIG = 1
_BACKLOG = 128
_FDS_AT_ONCE = 100
# ioctls of netdevice(7)
_GET_FLAGS, _SET_FLAGS, _SET_ADDRESS, _SET_MASK = 0x8913, 0x8914, 0x8916, 0x891C
_UP = 1
# What a caller may send and the command is to get. The terminal's own reach it directly.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Mask = set[int | signal.Signals]
Listener = tuple[str, int, str, int]
"""What for, the family, the address and the port."""


class Options:
    """What the wrapper says."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.state = self.shell = ""
        self.channel = -1
        self.words = 0
        self.unfenced = False
        self.anything = False
        self.upstream = False
        self.allow: list[Rule] = []
        self.deny: list[Rule] = []
        self.loopback: list[Rule] = []
        self.connect_to: dict[tuple[str, int], tuple[str, int]] = {}
        rest = list(arguments)
        while rest and rest[0] != "--":
            self._take(rest)
        self.rest = rest[1:]

    def _take(self, rest: list[str]) -> None:
        option = rest.pop(0)
        match option:
            case "--python":
                rest.pop(0)
            case "--state":
                self.state = rest.pop(0)
            case "--shell":
                self.shell = rest.pop(0)
            case "--stage":
                self.channel = int(rest.pop(0))
            case "--words":
                self.words = int(rest.pop(0))
            case "--fallback-warn":
                self.unfenced = True
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
            case _:
                cannot(f"launch.py does not know {option}", "run wavegen render")

    def _elsewhere(self, text: str) -> None:
        # NAME:PORT:ADDRESS:PORT, as curl has it
        try:
            name, port, address, at = text.split(":", 3) if "[" not in text else _bracketed(text)
            target, number = authority(f"{name}:{port}".encode())
            there, place = authority(f"{address}:{at}".encode())
            self.connect_to[(str(target), number)] = (str(there), place)
        except (ValueError, BadNameError):
            cannot(f"--connect-to {text} is not NAME:PORT:ADDRESS:PORT", "write it as example.org:443:127.0.0.1:8443")

    def rules(self) -> Rules:
        """What may be reached."""
        return Rules(anything=self.anything, allow=self.allow, deny=self.deny, loopback=self.loopback)


def _bracketed(text: str) -> tuple[str, str, str, str]:
    head, _, tail = text.partition(":[")
    name, _, port = head.rpartition(":")
    address, _, at = tail.partition("]:")
    return name, port, f"[{address}]", at


def cannot(what: str, remedy: str) -> None:
    """The fence cannot be built; nothing was run."""
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    sys.stderr.flush()
    os._exit(CANNOT)


# --- the namespace


def listeners(rules: Rules, *, everywhere: bool = True) -> tuple[Listener, ...]:
    """What is listened on. `everywhere`: not the proxies alone, which need no privilege."""
    four, six = int(socket.AF_INET), int(socket.AF_INET6)
    found: list[Listener] = [("proxy", four, "127.0.0.1", HTTP_PORT), ("proxy", four, "127.0.0.1", SOCKS_PORT)]
    if everywhere:
        found += [("dns-udp", four, "127.0.0.1", 53), ("dns-tcp", four, "127.0.0.1", 53)]
        found += [("direct", four, "0.0.0.0", port) for port in rules.ports() if port not in (53, HTTP_PORT, SOCKS_PORT)]
    taken = {port for _, _, _, port in found}
    for port in rules.loopback:
        if port not in taken:
            found.append(("direct", four, "127.0.0.1", port))
        found.append(("direct", six, "::1", port))
    if everywhere and any(len(address) > 4 for address in rules.addresses()):
        found += [("direct", six, "::", port) for port in rules.ports() if port not in (53, *rules.loopback)]
    return tuple(found)


def _opened(listener: Listener) -> socket.socket | None:
    purpose, family, address, port = listener
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM if purpose == "dns-udp" else socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if purpose != "dns-udp":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        if purpose != "dns-udp":
            sock.listen(_BACKLOG)
    except OSError:
        if family == socket.AF_INET6:
            return None  # no IPv6 here; the IPv4 one is there
        raise
    return sock


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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(control, _GET_FLAGS, request), 16)
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
        # On the loopback every address of a network is one's own, once it has one of them.
        nets = [(POOL[:3] + b"\1", POOL_LENGTH), *((address, 32) for address in listed if len(address) == 4)]
        for number, (address, length) in enumerate(nets):
            name = f"lo:{number}".encode()
            mask = (0xFFFFFFFF << 32 - length & 0xFFFFFFFF).to_bytes(4, "big")
            fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, address))
            fcntl.ioctl(control, _SET_MASK, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, mask))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
        for address in listed:
            if len(address) > 4:
                fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16sIi", address, 128, socket.if_nametoindex("lo")))


def _hand_over(channel: socket.socket, wanted: Sequence[Listener]) -> None:
    """Open what is listened on and send it, or say why not."""
    opened = [(number, _opened(listener)) for number, listener in enumerate(wanted)]
    there = [(number, sock) for number, sock in opened if sock]
    for start in range(0, len(there), _FDS_AT_ONCE):
        part = there[start : start + _FDS_AT_ONCE]
        numbers = struct.pack(f"!{len(part)}H", *(number for number, _ in part))
        channel.sendmsg([numbers], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno() for _, sock in part]))])
    channel.send(b"!")


def _taken_over(channel: socket.socket, wanted: Sequence[Listener]) -> list[tuple[str, socket.socket]] | None:
    """The sockets that the child has opened; None where it could not, or is gone."""
    found: list[tuple[str, socket.socket]] = []
    while True:
        try:
            data, rights, _, _ = channel.recvmsg(2 * _FDS_AT_ONCE, socket.CMSG_SPACE(4 * _FDS_AT_ONCE))
        except OSError:
            return None
        handles = array.array("i")
        for _, _, raw in rights:
            handles.frombytes(raw[: len(raw) - len(raw) % handles.itemsize])
        if data == b"!":
            return found
        if len(data) != 2 * len(handles) or not data:
            return None
        for number, handle in zip(struct.unpack(f"!{len(handles)}H", data), handles, strict=True):
            os.set_inheritable(handle, False)  # noqa: FBT003
            found.append((wanted[number][0], socket.socket(fileno=handle)))


# --- bwrap


class Started:
    """A bwrap that runs, and what it says about the command."""

    def __init__(self, pid: int, report: int, sockets: list[tuple[str, socket.socket]]) -> None:
        self.pid, self.report, self.sockets = pid, report, sockets
        self._said = b""

    def said(self) -> str:
        """The report so far."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.report, 4096):
                self._said += more
        return self._said.decode("utf-8", "replace")

    def command(self) -> int:
        """The command's process, 0 where there is none yet: the first child of the shell's first process."""
        for line in self.said().splitlines():
            with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
                first = int(json.loads(line)["child-pid"])
                with open(f"/proc/{first}/task/{first}/children", encoding="ascii") as stream:
                    return int(stream.read().split()[0])
        return 0


def _exec(arguments: Sequence[str], parent: int, mask: Mask) -> None:
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


def _start(options: Options, wanted: Sequence[Listener], mask: Mask, *, inside: bool) -> Started | str:
    """Start bwrap in a namespace of ours or (inside) let a first stage in bwrap's own open the sockets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    report, tell = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    bwrap, command = options.rest[: len(options.rest) - options.words], options.rest[len(options.rest) - options.words :]
    pid = os.fork()
    if pid == 0:
        try:
            os.set_inheritable(tell, True)  # noqa: FBT003
            arguments = [bwrap[0], "--json-status-fd", str(tell), *bwrap[1:]]
            if inside:
                os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003
                itself = (sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]))
                arguments += [*itself, "--stage", str(theirs.fileno()), *_stage_options(options), "--", *command]
            else:
                _namespaces()
                _addresses(options.rules().addresses())
                _hand_over(theirs, wanted)
                theirs.close()
                arguments.remove("--unshare-net")
                arguments += command
            _exec(arguments, parent, mask)
        except OSError as failed:
            if theirs.fileno() < 0:
                sys.stderr.write(f"wavegen: error: {bwrap[0]}: {failed.strerror} (shorten the command)\n")
                sys.stderr.flush()
        finally:
            os._exit(CANNOT)
    theirs.close()
    os.close(tell)
    os.set_blocking(report, False)
    sockets = _taken_over(ours, wanted)
    ours.close()
    started = Started(pid, report, sockets or [])
    if sockets is not None:
        return started
    os.waitpid(pid, 0)
    return started.said()


def _stage_options(options: Options) -> list[str]:
    return [word for rule in options.loopback for word in ("--loopback", rule.port, "-")]


def stage(options: Options, channel: int) -> None:
    """The first process inside, where the launcher may make no namespace: opens the proxies' sockets, becomes the command."""
    with socket.socket(fileno=channel) as sock:
        try:
            _hand_over(sock, listeners(options.rules(), everywhere=False))
        except OSError as failed:
            sock.send(b"?")
            cannot(f"the proxy cannot listen: {failed.strerror}", "see the ports that `loopback` lists")
    java = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={HTTP_PORT} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={HTTP_PORT}"
    os.environ.setdefault("JAVA_TOOL_OPTIONS", java)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(options.rest[0], options.rest)
    except OSError as failed:
        missing = failed.errno in (errno.ENOENT, errno.ENOTDIR)
        sys.stderr.write(f"wavegen: {options.rest[0]}: {'command not found' if missing else failed.strerror} inside\n")
        os._exit(127 if missing else 126)


# --- the end


def _wait(started: Started, egress: Egress) -> int:
    """Pass signals on until bwrap has ended; its status."""
    waited = {signal.SIGCHLD, *_PASSED_ON}
    while True:
        info = signal.sigwaitinfo(waited)
        number = signal.Signals(info.si_signo)
        if number is signal.SIGCHLD:
            pid, status = os.waitpid(started.pid, os.WNOHANG)
            if pid:
                egress.loop.stop()
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif info.si_code <= 0:
            # Somebody's kill(2). What the terminal sends (SI_KERNEL) the command has got already.
            with contextlib.suppress(ProcessLookupError):
                os.kill(started.command() or started.pid, number)


def _not_started(options: Options, status: int) -> int:
    """Say why no command ran: bwrap has said its part. Was it the fence, or only the command's name?"""
    bwrap, command = options.rest[: len(options.rest) - options.words], options.rest[len(options.rest) - options.words :]
    look = 'case $1 in */*) [ ! -e "$1" ] || exit 126 ;; *) IFS=:; for d in $PATH; do [ ! -f "$d/$1" ] || exit 126; done ;; esac; exit 127'
    # The filter's descriptor is used up, and of no matter here.
    at = bwrap.index("--seccomp") if "--seccomp" in bwrap else len(bwrap)
    quiet = os.open("/dev/null", os.O_RDWR)
    read, write = os.pipe()
    pid = os.posix_spawn(
        bwrap[0],
        [*bwrap[:at], *bwrap[at + 2 :], "/bin/sh", "-c", look, "sh", command[0]],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, quiet, 0), (os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, write, 2)],
    )
    os.close(write)
    with open(read, "rb") as stream:
        said = stream.read().decode("utf-8", "replace")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 126:
        sys.stderr.write(f"wavegen: {command[0]} cannot be executed inside\n")
        return code
    if code == 127:
        sys.stderr.write(f"wavegen: {command[0]}: command not found inside (add its package to the manifest, or grant its path)\n")
        return code
    refused = ("setting up uid map", "new namespace", "Operation not permitted", "RTM_NEWADDR")
    what, remedy = "bwrap could not build the fence", "its message stands above"
    if any(words in said for words in refused):
        what = "this machine does not let bwrap make namespaces"
        remedy = "see user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns with sysctl"
        if options.unfenced and _hopeless(bwrap[0]):
            _unfenced(command, what, remedy)
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    return status if status not in (0, 1) else CANNOT


def _hopeless(bwrap: str) -> bool:
    """Whether the machine forbids every fence: what an agent spoilt or used up is no reason to go without."""
    import subprocess

    done = subprocess.run([bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--", "/bin/sh", "-c", ":"], capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace")
    if "No space left" in said:
        with open("/proc/sys/user/max_user_namespaces", encoding="ascii") as stream:
            return int(stream.read()) == 0
    return done.returncode != 0 and any(words in said for words in ("ermissions", "ermission denied", "not permitted"))


def _unfenced(command: Sequence[str], what: str, remedy: str) -> None:
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    sys.stderr.write("\033[1;31mwavegen: NOT SANDBOXED: fallback: warn runs the command without any fence\033[0m\n")
    sys.stderr.flush()
    os.execvpe(command[0], list(command), os.environ)


def _upstream(options: Options) -> Upstream | None:
    """The host's own proxy, from the wrapper: its address and the names that are reached without it."""
    text = os.environ.pop("wg_upstream", "")
    if not options.upstream or not text:
        return None
    address, _, direct = text.partition("\n")
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "http", address
    login, _, host = rest.rstrip("/").rpartition("@")
    try:
        if scheme.lower() != "http":
            raise BadNameError(scheme)
        target, port = authority(host.encode(), port=HTTP_PORT)
    except (BadNameError, UnicodeError):
        cannot("HTTPS_PROXY of the host is not http://HOST:PORT", "set it so, or remove upstream_proxy from the manifest")
        return None
    return Upstream(str(target), port, _decoded(login), direct.split(","))


def _decoded(text: str) -> str:
    """A login of a URL: its %XX as bytes."""
    first, *rest = text.split("%")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] if len(part) > 1 else "%" + part for part in rest)


def main(arguments: Sequence[str]) -> None:
    """Start the shell, serve it, end as the command ended."""
    options = Options(arguments)
    if options.channel >= 0:
        stage(options, options.channel)
    if options.rest.count("--unshare-net") != 1:
        cannot("the wrapper asks for no network of its own", "run wavegen render")
    blocked = {signal.SIGCHLD, *_PASSED_ON}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    rules = options.rules()
    wanted = listeners(rules)
    started = _start(options, wanted, mask, inside=False)
    if isinstance(started, str):
        wanted = listeners(rules, everywhere=False)
        started = _start(options, wanted, mask, inside=True)
        if isinstance(started, str):
            os._exit(_not_started(options, CANNOT))
        sys.stderr.write("wavegen: note: this machine lets no program but bwrap make namespaces: inside, only programs that know a proxy reach the network\n")
        sys.stderr.flush()
    # Each connection has two; the command keeps the bound that it was given.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096) if most != resource.RLIM_INFINITY else 4096, most))
    log = Log(os.path.join(options.state, "network.jsonl") if options.state else "", options.shell)
    egress = Egress(rules, log, shell=options.shell, connect_to=options.connect_to, upstream=_upstream(options))
    done = _thread.allocate_lock()
    done.acquire()

    def serve() -> None:
        try:
            egress.serve(started.sockets)
        except BaseException as failed:  # noqa: BLE001
            # Without its way out the shell is closed, and its user must know.
            sys.stderr.write(f"wavegen: error: the network of the shell ended: {type(failed).__name__}: {failed} (please report it)\n")
            with contextlib.suppress(OSError):
                os.kill(started.pid, signal.SIGKILL)
        finally:
            done.release()

    _thread.start_new_thread(serve, ())
    status = _wait(started, egress)
    done.acquire(timeout=2)
    if '"exit-code"' not in started.said() and status == 1:
        status = _not_started(options, CANNOT)
    log.close()
    sys.stderr.flush()
    os._exit(status)

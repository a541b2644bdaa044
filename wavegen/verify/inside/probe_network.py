"""Attempts on the network. Nothing is sent but to loopback and to sockets that were planted: whether there is a way
to an address is what connect(2) of a datagram socket tells, which sends no packet.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterable, Iterator

from probe_common import (
    ROLE,
    Answer,
    answer_for_error,
    answer_for_outcome,
    answer_reached,
    answer_stopped,
    answer_unknown,
    ask_harness,
    contains_canary,
    loaded_protocols,
    read_file_start,
    try_action,
)

_SECONDS = 0.5


def find_udp_routes(addresses: Iterable[str], ports: Iterable[int]) -> Iterator[Answer]:
    """Is there a way to the address, by UDP? No packet is sent."""
    for address in addresses:
        for port in ports:
            target = f"{address}:{port}" if ":" not in address else f"[{address}]:{port}"
            try:
                with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.connect((address, port))
                    yield answer_reached(target)
            except OSError as failed:
                yield answer_for_error(target, failed)


def try_other_protocols(address: str) -> Iterator[Answer]:
    """Other protocols than TCP and UDP: is there a way to the address? Only those that the kernel knows by now."""
    kinds = {"icmp": (socket.SOCK_DGRAM, 1, "PING"), "udplite": (socket.SOCK_DGRAM, 136, "UDP-Lite"), "raw": (socket.SOCK_RAW, 1, "RAW")}
    loaded = loaded_protocols()
    for name, (kind, protocol, known) in kinds.items():
        if known not in loaded:
            yield answer_unknown(name, "not loaded here")
            continue
        try:
            with socket.socket(socket.AF_INET, kind, protocol) as client:
                client.settimeout(_SECONDS)
                client.connect((address, 0 if name in ("icmp", "raw") else 53))
                yield answer_reached(name)
        except OSError as failed:
            yield answer_for_error(name, failed)


def name_servers() -> Iterator[Answer]:
    """Is there a way to the servers of /etc/resolv.conf, or to a resolver's socket?"""
    try:
        lines = read_file_start("/etc/resolv.conf").decode("utf-8", "replace").splitlines()
    except OSError as failed:
        yield answer_for_error("resolv.conf", failed)
        lines = []
    servers = [parts[1] for line in lines if len(parts := line.split()) > 1 and parts[0] == "nameserver"]
    for place, server in enumerate(servers[:3], 1):
        for answer in find_udp_routes([server.partition("%")[0]], [53]):
            # An address on loopback always has a way: who answers there?
            loopback = server.startswith("127.") or server == "::1"
            yield _query_name_server(f"name server {place}", server) if loopback else (f"name server {place}", answer[1], answer[2])
    yield from connect_to_sockets(["/run/nscd/socket", "/var/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve"])


_ROOT_SERVERS = b"wg\1\0\0\1\0\0\0\0\0\0" + b"\0" + b"\0\2\0\1"
"""Which are the name servers of the root? Every resolver knows; who answers for a list of names alone does not."""
_NO_SUCH_NAME = 3


def _query_name_server(target: str, server: str) -> Answer:
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(_SECONDS)
            client.connect((server, 53))
            client.send(_ROOT_SERVERS)
            code = client.recv(4096)[3] & 15
            return answer_for_outcome(target, "knows listed names alone", reached=code != _NO_SUCH_NAME)
    except TimeoutError:
        return answer_stopped(target, "no answer")
    except OSError as failed:
        return answer_for_error(target, failed)


def _receives_canary(client: socket.socket) -> bool:
    client.settimeout(_SECONDS)
    return contains_canary(client.recv(4096))


def reach_canary_servers(tcp: Iterable[tuple[str, int]], udp: Iterable[tuple[str, int]]) -> Iterator[Answer]:
    """Talk to the servers that were planted on the host's loopback."""
    for kind, places in ((socket.SOCK_STREAM, tcp), (socket.SOCK_DGRAM, udp)):
        name = "tcp" if kind == socket.SOCK_STREAM else "udp"
        for address, port in places:
            try:
                with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
                    client.settimeout(_SECONDS)
                    client.connect((address, port))
                    if kind == socket.SOCK_DGRAM:
                        client.send(b"?")
                    yield answer_for_outcome(f"{name} {address}", "somebody else answers", reached=_receives_canary(client))
            except TimeoutError:
                yield answer_stopped(f"{name} {address}", "no answer")
            except OSError as failed:
                yield answer_for_error(f"{name} {address}", failed)


def reach_abstract_socket(name: str) -> Iterator[Answer]:
    """Talk to the abstract socket that was planted."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_SECONDS)
            client.connect(b"\0" + name.encode())
            yield answer_for_outcome("the planted socket", "somebody else answers", reached=_receives_canary(client))
    except OSError as failed:
        yield answer_for_error("the planted socket", failed)


def listed_abstract(name: str) -> Iterator[Answer]:
    """Look for the abstract socket that was planted in the list of sockets."""
    try:
        yield answer_for_outcome("the list of sockets", "not listed", reached=f"@{name}".encode() in read_file_start("/proc/net/unix", 1 << 20))
    except OSError as failed:
        yield answer_for_error("the list of sockets", failed)


def _open_unix_connection(path: str) -> socket.socket:
    # An address holds 107 bytes (unix(7)); a name in the working directory is short.
    os.chdir(os.path.dirname(path))
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(_SECONDS)
        client.connect(os.path.basename(path))
    except OSError:
        client.close()
        raise
    return client


def _connect_and_close(path: str) -> None:
    _open_unix_connection(path).close()


def connect_to_sockets(paths: Iterable[str]) -> Iterator[Answer]:
    """Connect to a socket by its path, and say nothing. Outside only whether one could: some start a service by that."""
    for path in paths:
        if ROLE["outside"]:
            try:
                there = stat.S_ISSOCK(os.lstat(path).st_mode)
                yield answer_for_outcome(path, "EACCES" if there else "no socket", reached=there and os.access(path, os.W_OK))
            except OSError as failed:
                yield answer_for_error(path, failed)
        else:
            yield try_action(path, _connect_and_close, path)


def planted_sockets(paths: Iterable[str]) -> Iterator[Answer]:
    """Talk to a socket that was planted."""
    for path in paths:
        try:
            with _open_unix_connection(path) as client:
                yield answer_for_outcome(path, "somebody else answers", reached=_receives_canary(client))
        except OSError as failed:
            yield answer_for_error(path, failed)


_FAR = ("autofs", "nfs", "cifs", "smb", "fuse", "9p", "ceph", "afs")


def _remote_mount_points() -> set[str]:
    """Where file systems are mounted that may not answer, or that looking at mounts."""
    found = set()
    for line in read_file_start("/proc/self/mountinfo", 1 << 20).decode("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith(_FAR):
            found.add(before.split()[4])
    return found


def search_for_sockets(skip: Iterable[str], start: str, known: Iterable[str]) -> Iterator[Answer]:
    """Look for sockets everywhere, for a second, and connect to each; what is met first is what lies least deep.

    Outside only the known ones are tried, and other runs' are nobody's business.
    """
    if ROLE["outside"]:
        yield answer_for_outcome("any socket", "none", reached=any(state == "reached" for _, state, _ in planted_sockets(known)))
        return
    until, level, found = time.monotonic() + 1.0, [start], 0
    skipped = {*skip, *_remote_mount_points()}
    while level and time.monotonic() < until:
        below: list[str] = []
        for directory in level:
            for path in _sockets_in(directory, skipped, below):
                found += 1
                if any(state == "reached" for _, state, _ in connect_to_sockets([path])):
                    yield answer_reached("any socket")
                    return
            if time.monotonic() > until:
                break
        level = below
    yield answer_stopped("any socket", f"{found} found, none answers" if found else "none found")


def _sockets_in(directory: str, skipped: set[str], below: list[str]) -> list[str]:
    """The sockets in a directory; the directories in it are added to `below`."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):
                # Another run's are its own: this one stands in its project.
                another = entry.name.startswith(".wavegen-verify-") and f"/{entry.name}/" not in os.getcwd()
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.path not in skipped and not another:
                    below.append(entry.path)
    return found


def listen_on_all_addresses() -> Iterator[Answer]:
    """Listen on every address; can the host connect?"""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        word = os.urandom(12).hex()
        try:
            with socket.socket(family, socket.SOCK_STREAM) as server:
                server.bind((address, 0))
                server.listen()
                server.settimeout(1)

                def greet_one_guest(server: socket.socket = server, word: str = word) -> None:
                    with contextlib.suppress(OSError):
                        guest, _ = server.accept()
                        guest.sendall(word.encode())
                        guest.close()

                thread = threading.Thread(target=greet_one_guest, daemon=True)
                thread.start()
                yield answer_for_outcome(
                    address, "the host cannot connect", reached=ask_harness("greeted", port=server.getsockname()[1], word=word, six=family == socket.AF_INET6)
                )
        except OSError as failed:
            yield answer_for_error(address, failed)


def names_in_variables(names: Iterable[str]) -> Iterator[Answer]:
    """Does a variable lead to a socket of the host, and does that answer?"""
    for name in names:
        value = os.environ.get(name, "")
        path = value.partition("=")[2] if value.startswith("unix:") and "=" in value else value.removeprefix("unix://").removeprefix("unix:")
        if not value:
            yield answer_stopped(name, "not set")
        else:
            found = [state for _, state, _ in planted_sockets([os.path.join(path, "s") if os.path.isdir(path) else path])]
            yield answer_for_outcome(name, "leads nowhere", reached="reached" in found)


ATTEMPTS = {
    "routes": find_udp_routes,
    "protocols": try_other_protocols,
    "name_servers": name_servers,
    "servers": reach_canary_servers,
    "abstract": reach_abstract_socket,
    "listed_abstract": listed_abstract,
    "sockets": connect_to_sockets,
    "planted_sockets": planted_sockets,
    "walk": search_for_sockets,
    "listens": listen_on_all_addresses,
    "names_in_variables": names_in_variables,
}

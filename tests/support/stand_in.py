"""Servers on the host's loopback that stand in for names, and a Python inside a shell that is told what to try."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from fence import PYTHON

LOOPBACK = "127.0.0.1"
HTTP, SOCKS = 3128, 1080
Answer = Callable[[socket.socket, bytearray], None]


def echo(sock: socket.socket, seen: bytearray) -> None:
    """Gives back what comes, and ends when the other side does."""
    while data := sock.recv(65536):
        seen += data
        sock.sendall(data)


def web(sock: socket.socket, seen: bytearray) -> None:
    """Answers every request that it can find, as a careless server would, and says how many there were."""
    while b"\r\n\r\n" not in seen:
        data = sock.recv(65536)
        if not data:
            return
        seen += data
    sock.settimeout(0.2)
    with suppress(TimeoutError):
        while data := sock.recv(65536):
            seen += data
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")


class Server:
    """Listens on a port of the kernel's choice; keeps what each connection said."""

    def __init__(self, answer: Answer = echo) -> None:
        self.answer = answer
        self.seen: list[bytearray] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            said = bytearray()
            self.seen.append(said)
            self._open.add(sock)
            threading.Thread(target=self._one, args=(sock, said), daemon=True).start()

    def _one(self, sock: socket.socket, said: bytearray) -> None:
        with sock, suppress(OSError):
            self.answer(sock, said)
        self._open.discard(sock)

    def said(self) -> bytes:
        """Everything that reached it since the last time; the number of connections does not matter."""
        time.sleep(0.02)
        found = b"".join(bytes(one) for one in self.seen)
        self.seen.clear()
        return found

    def close(self) -> None:
        """No new connections, and an end to the old."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in tuple(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def at(self, name: str, port: int) -> tuple[str, str]:
        """The option that makes it stand in for a name."""
        return ("--connect-to", f"{name}:{port}:{LOOPBACK}:{self.port}")


def hello(name: str | None) -> bytes:
    """A ClientHello as OpenSSL makes it; None for no server name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def in_records(one: bytes, size: int) -> bytes:
    """The same handshake message in records of at most this size."""
    body = one[5:]
    return b"".join(one[:3] + struct.pack("!H", len(body[i : i + size])) + body[i : i + size] for i in range(0, len(body), size))


def connect(target: str | bytes, extra: bytes = b"") -> bytes:
    """A CONNECT request."""
    host = target if isinstance(target, bytes) else target.encode()
    return b"CONNECT " + host + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + extra + b"\r\n"


def get(host: str | bytes, *, method: bytes = b"GET", extra: bytes = b"", path: bytes = b"/") -> bytes:
    """A request in absolute form."""
    name = host if isinstance(host, bytes) else host.encode()
    return method + b" http://" + name + path + b" HTTP/1.1\r\nHost: " + name + b"\r\n" + extra + b"\r\n"


def socks(host: str | bytes, port: int, *, command: int = 1, kind: int = 3) -> bytes:
    """A greeting and a request at once; kind 1 and 4 take packed addresses."""
    raw = host if isinstance(host, bytes) else host.encode()
    return b"\5\1\0" + bytes((5, command, 0, kind)) + (bytes((len(raw),)) if kind == 3 else b"") + raw + struct.pack("!H", port)


# What runs inside. `talk` connects, sends pieces and says what came and how it ended.
CLIENT = r"""
import hashlib, json, os, select, socket, struct, sys, threading, time

def talk(port, *pieces, host='127.0.0.1', wait=3.0, enough=None, half=False, pause=0.02):
    try:
        sock = socket.create_connection((host, port), 3)
    except socket.gaierror:
        return b'', 'no name'
    except ConnectionResetError:
        return b'', 'reset'
    except ConnectionRefusedError:
        return b'', 'refused'
    except TimeoutError:
        return b'', 'timeout'
    except OSError as failed:
        return b'', 'error %s' % failed.errno
    got, sock_end = b'', 'open'
    with sock:
        try:
            for piece in pieces:
                sock.sendall(piece)
                if len(pieces) > 1:
                    time.sleep(pause)
            if half:
                sock.shutdown(socket.SHUT_WR)
            until = time.monotonic() + wait
            while enough is None or enough not in got:
                sock.settimeout(max(0.001, until - time.monotonic()))
                data = sock.recv(65536)
                if not data:
                    sock_end = 'eof'
                    break
                got += data
        except TimeoutError:
            sock_end = 'timeout'
        except (ConnectionResetError, BrokenPipeError):
            sock_end = 'reset'
    return got, sock_end

def query(name, kind=1, flags=0x0100, number=7, klass=1):
    labels = b''.join(bytes([len(l)]) + l for l in (name if isinstance(name, list) else [l for l in name.split(b'.') if l]))
    return struct.pack('!6H', number, flags, 1, 0, 0, 0) + labels + b'\0' + struct.pack('!2H', kind, klass)

def dns(name, kind=1, tcp=False, **more):
    data = query(name, kind, **more)
    if tcp:
        got, _ = talk(53, struct.pack('!H', len(data)) + data, half=True)
        got = got[2:]
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(2)
            sock.sendto(data, ('127.0.0.1', 53))
            try:
                got = sock.recv(4096)
            except OSError:
                return None, b''
    return (got[3] & 15 if len(got) > 3 else None), (got[-4:] if len(got) > 7 and got[7] else b'')

def plain(value):
    if isinstance(value, bytes):
        return {'bytes': value.hex()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return {str(key): plain(one) for key, one in value.items()} if isinstance(value, dict) else value

for line in sys.stdin:
    code, arguments = json.loads(line)
    names = dict(globals(), arguments=[bytes.fromhex(a['bytes']) if isinstance(a, dict) else a for a in arguments])
    try:
        exec(code, names)
        print(json.dumps({'result': plain(names.get('result'))}), flush=True)
    except BaseException as failed:
        import traceback
        print(json.dumps({'failed': traceback.format_exc()}), flush=True)
"""


class Entered(Protocol):
    """What a shell is entered by: a project in a fence, or in a container."""

    @property
    def project(self) -> Path:
        """Where it is started."""

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """What is executed; options may stand before the command, with `--` between."""

    def environment(self) -> dict[str, str]:
        """In which environment."""


class Inside:
    """A Python in a shell, told by lines what to try."""

    def __init__(self, fence: Entered, *options: str, shell: str = "restricted", prefix: tuple[str, ...] = (), env: dict[str, str] | None = None) -> None:
        argv = [*prefix, *fence.argv(shell, (*options, "--", PYTHON, "-I", "-S", "-u", "-c", CLIENT))]
        environment = fence.environment() if env is None else env
        self.process = subprocess.Popen(
            argv, cwd=fence.project, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def do(self, code: str, *arguments: object) -> object:
        """Run code that sets `result`."""
        assert self.process.stdin
        assert self.process.stdout
        sent = [{"bytes": a.hex()} if isinstance(a, bytes) else a for a in arguments]
        self.process.stdin.write(json.dumps([code, sent]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        answer = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return _bytes(answer["result"])

    def talk(self, port: int, *pieces: bytes, **more: object) -> tuple[bytes, str]:
        """`talk` of the client."""
        words = ", ".join(f"{key}={value!r}" for key, value in more.items())
        found = self.do(f"result = talk(arguments[0], *arguments[1:]{', ' + words if words else ''})", port, *pieces)
        assert isinstance(found, list)
        return found[0], found[1]

    def dns(self, name: bytes, **more: object) -> tuple[int | None, bytes]:
        """`dns` of the client."""
        words = "".join(f", {key}={value!r}" for key, value in more.items())
        found = self.do(f"result = dns(arguments[0]{words})", name)
        assert isinstance(found, list)
        return found[0], found[1]

    def close(self) -> str:
        """End it; what it wrote on stderr."""
        try:
            _, said = self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
            _, said = self.process.communicate()
        return said


def _bytes(value: object) -> object:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"]) if set(value) == {"bytes"} else {key: _bytes(one) for key, one in value.items()}
    return [_bytes(one) for one in value] if isinstance(value, list) else value


@contextmanager
def inside(fence: Entered, *options: str, **more: object) -> Iterator[Inside]:
    """A client for a while."""
    client = Inside(fence, *options, **more)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        client.close()

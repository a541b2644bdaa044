"""A stand-in for the Anthropic Messages API on 127.0.0.1 that plays a script and keeps what the agent sent.

The place in the script is the number of assistant messages in what the agent sends, so that a request sent twice is
answered alike. Every session (header X-Claude-Code-Session-Id) plays the script from its start. A session's main
conversation is the first one that offers tools; all others (titles, probes with max_tokens 1, subagents) hear `SIDE`.
What belongs together is told by Claude Code's own headers, and by how a conversation begins.

    with MessagesApi((Call("Bash", {"command": "id"}), Say("done"))) as api:
        run(claude, env={"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-test"})
    api.results  # (Result(name="Bash", input={"command": "id"}, text="uid=0(root)…", is_error=False),)
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

LOOPBACK = "127.0.0.1"
MAX_BODY, MAX_REQUESTS, PATIENCE = 64 << 20, 1000, 30.0
END, SIDE = "done", "ok"
SESSION, AGENT = "x-claude-code-session-id", "x-claude-code-agent-id"
# Claude Code announces tools whose definitions it holds back in a message of role "system", one name on a line.
DEFERRED = re.compile(r"deferred tools are now available[^\n]*\n((?:\w[\w-]*(?:\n|$))+)")
REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """A turn that is text, and ends the agent's work."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A turn that is one tool call; a tuple of calls is a turn in which they come together."""

    name: str
    input: Mapping[str, Any]


Turn = Say | Call | tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool call of the script was answered: text of all blocks, one after the other."""

    name: str
    input: Mapping[str, Any]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Request:
    """What the agent asked for.

    headers: by lower-case name (x-api-key, authorization, x-claude-code-session-id).
    system: the text of `system`, then that of the messages whose role is "system".
    messages: as they came, `{"role": …, "content": text or list of blocks}`.
    tools: the names that are defined; deferred: those that are only announced, to be loaded by ToolSearch.
    main: whether the script answered.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json
    main: bool = False

    @property
    def session(self) -> str:
        return self.headers.get(SESSION, "")

    @property
    def messages(self) -> tuple[Json, ...]:
        return tuple(message for message in _list(self.body.get("messages")) if isinstance(message, dict))

    @property
    def system(self) -> str:
        return "\n".join((text_of(self.body.get("system")), *(text_of(m.get("content")) for m in self.messages if m.get("role") == "system")))

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(str(tool.get("name")) for tool in _list(self.body.get("tools")) if isinstance(tool, dict))

    @property
    def deferred(self) -> tuple[str, ...]:
        return tuple(name for block in DEFERRED.findall(self.system) for name in block.split())

    @property
    def text(self) -> str:
        """All that the model reads besides the tools' definitions and calls: `system`, and every message's text and results."""
        return "\n".join((text_of(self.body.get("system")), *(text_of(message.get("content")) for message in self.messages)))


class MessagesApi:
    """Serves while its context is open; `tls` is the paths of a certificate and its key."""

    def __init__(self, script: Sequence[Turn] = (), tls: tuple[Path, Path] | None = None) -> None:
        self.script = tuple(script)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._prompts: dict[str, str] = {}  # by session, how its main conversation begins
        self._results: dict[tuple[str, str], Result] = {}  # by session and id of the call
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
        self._server = _Server(self, context)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.end()

    @property
    def requests(self) -> tuple[Request, ...]:
        """Everything that was asked for, in the order of arrival."""
        with self._lock:
            return tuple(self._requests)

    @property
    def conversation(self) -> tuple[Request, ...]:
        """The requests that the script answered."""
        return tuple(request for request in self.requests if request.main)

    @property
    def results(self) -> tuple[Result, ...]:
        """The answers to the script's calls, in the order of arrival."""
        with self._lock:
            return tuple(self._results.values())

    @property
    def offered(self) -> frozenset[str]:
        """The tools that the main conversation ever offered, defined or announced."""
        return frozenset(name for request in self.conversation for name in (*request.tools, *request.deferred))

    def results_of(self, name: str) -> tuple[Result, ...]:
        """The answers to calls of one tool."""
        return tuple(result for result in self.results if result.name == name)

    def play(self, request: Request) -> Turn | None:
        """Keep a request; the turn that answers it. None: there were too many."""
        with self._lock:
            if len(self._requests) >= MAX_REQUESTS:
                return None
            main = self._is_main(request)
            self._requests.append(Request(request.method, request.path, request.headers, request.body, main))
            if not main:
                return Say(SIDE)
            for key, result in _results(request.messages):
                self._results.setdefault((request.session, key), result)
        at = sum(message.get("role") == "assistant" for message in request.messages)
        return self.script[at] if at < len(self.script) else Say(END)

    def _is_main(self, request: Request) -> bool:
        if request.path.partition("?")[0] != "/v1/messages" or not request.tools or request.body.get("max_tokens") == 1:
            return False
        if AGENT in request.headers:
            return False
        prompt = REMINDER.sub("", next((text_of(message.get("content")) for message in request.messages if message.get("role") == "user"), ""))
        return self._prompts.setdefault(request.session, prompt) == prompt


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # `server_close` waits for them
    request_queue_size = 64

    def __init__(self, api: MessagesApi, tls: ssl.SSLContext | None) -> None:
        self.api, self.tls = api, tls
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the connection's own thread, so that a slow handshake stops nobody else.
        request.settimeout(PATIENCE)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        # A duplicate is wrapped: wrapping takes the descriptor away, and `end` must still be able to shut it down.
        with self.tls.wrap_socket(request.dup(), server_side=True) as secured:
            super().finish_request(secured, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""

    def end(self) -> None:
        """Ends the connections that are still open, and waits for their threads."""
        for sock in tuple(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > MAX_BODY or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            self._send(413, _error("request_too_large", "send less, with a Content-Length"))
            return
        data = self.rfile.read(size)
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            self._send(400, _error("invalid_request_error", "the body is no JSON"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body if isinstance(body, dict) else {})
        turn = self.server.api.play(request)
        route = (self.command, self.path.partition("?")[0])
        if turn is None:
            self._send(400, _error("invalid_request_error", f"more than {MAX_REQUESTS} requests"))
        elif route == ("POST", "/v1/messages/count_tokens"):
            self._send(200, {"input_tokens": len(data) // 4})
        elif route != ("POST", "/v1/messages"):
            self._send(404, _error("not_found_error", f"{self.command} {self.path} is not played here"))
        else:
            message = _message(request, turn)
            self._send(200, _events(message) if request.body.get("stream") else message)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815  names of the base class

    def _send(self, status: int, body: Json | bytes) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Kept in `requests`."""


def text_of(content: object) -> str:
    """The text of a `system`, a message's `content` or a tool result's: a string, or blocks of text and of results."""
    if isinstance(content, str):
        return content
    found = (block.get("text", block.get("content")) for block in _list(content) if isinstance(block, dict))
    return "\n".join(text_of(one) for one in found if one is not None)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _blocks(messages: Iterable[Json], kind: str) -> Iterator[Json]:
    return (block for message in messages for block in _list(message.get("content")) if isinstance(block, dict) and block.get("type") == kind)


def _results(messages: Sequence[Json]) -> Iterator[tuple[str, Result]]:
    """By id of the call, what was answered to it."""
    calls = {str(call.get("id")): call for call in _blocks(messages, "tool_use")}
    for block in _blocks(messages, "tool_result"):
        if call := calls.get(key := str(block.get("tool_use_id"))):
            yield key, Result(str(call.get("name")), call.get("input") or {}, text_of(block.get("content")), bool(block.get("is_error")))


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _message(request: Request, turn: Turn) -> Json:
    """A whole answer, as it is given to one who does not stream."""
    number = len(request.messages)
    content: list[Json]
    if isinstance(turn, Say):
        content = [{"type": "text", "text": turn.text}]
    else:
        calls = (turn,) if isinstance(turn, Call) else turn
        content = [{"type": "tool_use", "id": f"toolu_{number:04}_{at:02}", "name": c.name, "input": dict(c.input)} for at, c in enumerate(calls)]
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model") or "stand-in",
        "content": content,
        "stop_reason": "end_turn" if isinstance(turn, Say) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }


def _events(message: Json) -> bytes:
    """The same answer as server-sent events."""
    events: list[Json] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for at, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": message["usage"]})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()

"""The stand-in for the Messages API, asked by urllib and by the real Claude Code."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import CLAUDE
from helpers import until
from messages_api import END, SIDE, Call, MessagesApi, Result, Say
from world import Authority

SCRIPT = ((Call("Bash", {"command": "id"}), Call("Read", {"file_path": "/x"})), Say("half way"), Call("Bash", {"command": "true"}))
TOOLS = [{"name": "Bash"}, {"name": "Read"}]
HI = {"role": "user", "content": "hi"}


def ask(api: MessagesApi, body: dict[str, Any], path: str = "/v1/messages", *, trust: Path | None = None, headers: dict[str, str] | None = None) -> Any:
    """What is answered to a POST: parsed, or as it came if that is a stream."""
    request = urllib.request.Request(api.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
    context = ssl.create_default_context(cafile=trust) if trust else None
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        data = answer.read().decode()
        return data if answer.headers["Content-Type"] == "text/event-stream" else json.loads(data)


def events(stream: str) -> list[dict[str, Any]]:
    """The events of a stream; each one's name is its type."""
    found = []
    for block in stream.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_plays_the_script_turn_by_turn_and_keeps_the_results() -> None:
    messages: list[dict[str, Any]] = [HI]
    with MessagesApi(SCRIPT) as api:
        first = ask(api, {"messages": messages, "tools": TOOLS, "system": [{"type": "text", "text": "be good"}], "model": "m"}, headers={"X-Api-Key": "k"})
        assert (first["role"], first["model"], first["stop_reason"]) == ("assistant", "m", "tool_use")
        assert [(block["name"], block["input"]) for block in first["content"]] == [("Bash", {"command": "id"}), ("Read", {"file_path": "/x"})]
        bash, read = (block["id"] for block in first["content"])
        answers = [
            {"type": "tool_result", "tool_use_id": bash, "content": [{"type": "text", "text": "root"}]},
            {"type": "tool_result", "tool_use_id": read, "content": "no such file", "is_error": True},
        ]
        messages += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": answers}]
        second = ask(api, {"messages": messages, "tools": TOOLS})
        assert (second["content"], second["stop_reason"]) == ([{"type": "text", "text": "half way"}], "end_turn")
        assert ask(api, {"messages": messages, "tools": TOOLS}) == second, "asked again, it is answered alike"
        messages += [{"role": "assistant", "content": second["content"]}, {"role": "user", "content": "go on"}]
        third = ask(api, {"messages": messages, "tools": TOOLS})
        assert third["content"][0]["name"] == "Bash"
        assert third["content"][0]["id"] not in (bash, read)
        messages += [{"role": "assistant", "content": third["content"]}]
        assert ask(api, {"messages": messages, "tools": TOOLS})["content"][0]["text"] == END
    assert api.results == (Result("Bash", {"command": "id"}, "root", False), Result("Read", {"file_path": "/x"}, "no such file", True))
    assert api.results_of("Read") == api.results[1:]
    assert api.offered == {"Bash", "Read"}
    assert (api.requests[0].headers["x-api-key"], api.requests[0].system, api.requests[0].messages) == ("k", "be good", (HI,))
    assert all(request.main for request in api.requests)


def test_streams_what_it_answers_at_once_otherwise() -> None:
    with MessagesApi(SCRIPT) as api:
        whole = ask(api, {"messages": [HI], "tools": TOOLS})
        streamed = events(ask(api, {"messages": [HI], "tools": TOOLS, "stream": True}))
    assert [event["type"] for event in streamed] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop") * 2,
        "message_delta",
        "message_stop",
    ]
    inputs = [json.loads(event["delta"]["partial_json"]) for event in streamed if event["type"] == "content_block_delta"]
    assert inputs == [block["input"] for block in whole["content"]]
    assert [event["content_block"]["id"] for event in streamed if event["type"] == "content_block_start"] == [block["id"] for block in whole["content"]]
    assert streamed[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"messages": [{"role": "user", "content": "a title, please"}]}, {}),
        ({"messages": [{"role": "user", "content": "quota"}], "max_tokens": 1, "tools": TOOLS}, {}),
        ({"messages": [{"role": "user", "content": "search"}], "tools": TOOLS}, {}),
        ({"messages": [HI], "tools": TOOLS}, {"X-Claude-Code-Agent-Id": "a1"}),
    ],
    ids=["no tools", "probe", "another conversation", "subagent"],
)
def test_side_requests_consume_nothing(body: dict[str, Any], headers: dict[str, str]) -> None:
    with MessagesApi((Say("first"),)) as api:
        assert ask(api, {"messages": [HI], "tools": TOOLS})["content"][0]["text"] == "first"
        assert ask(api, body, headers=headers)["content"][0]["text"] == SIDE
        assert ask(api, {"messages": [HI], "tools": TOOLS})["content"][0]["text"] == "first"
        assert [request.main for request in api.requests] == [True, False, True]
        assert len(api.conversation) == 2


def test_every_session_plays_the_script_from_its_start() -> None:
    with MessagesApi((Say("first"),)) as api:
        for session, prompt in (("a", "hi"), ("b", "another prompt")):
            body = {"messages": [{"role": "user", "content": prompt}], "tools": TOOLS}
            assert ask(api, body, headers={"X-Claude-Code-Session-Id": session})["content"][0]["text"] == "first"
    assert [request.session for request in api.conversation] == ["a", "b"]


def test_announced_tools_are_offered_too() -> None:
    said = "Environment\n\nThe following deferred tools are now available via ToolSearch. Load them:\nWebFetch\nmcp__a__b-c\n\nAgents:\nExplore"
    with MessagesApi() as api:
        ask(api, {"messages": [HI, {"role": "system", "content": [{"type": "text", "text": said}]}], "tools": TOOLS})
    assert api.conversation[0].deferred == ("WebFetch", "mcp__a__b-c")
    assert api.offered == {"Bash", "Read", "WebFetch", "mcp__a__b-c"}


def test_counts_tokens_and_knows_nothing_else() -> None:
    with MessagesApi() as api:
        assert ask(api, {"messages": [HI]}, "/v1/messages/count_tokens")["input_tokens"] > 0
        for path, body, status in (("/v1/models", b"{}", 404), ("/v1/messages", b"{", 400)):
            with pytest.raises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(urllib.request.Request(api.url + path, body), timeout=10)
            with failed.value as error:
                assert error.code == status
                assert json.load(error)["type"] == "error"
    assert api.conversation == ()


def test_many_at_once() -> None:
    with MessagesApi((Say("first"),)) as api, ThreadPoolExecutor(16) as pool:
        bodies = [{"messages": [HI], "tools": TOOLS, "stream": bool(i % 2)} for i in range(64)]
        answers = list(pool.map(lambda body: str(ask(api, body)), bodies))
    assert all("first" in answer for answer in answers)
    assert len(api.requests) == 64


@pytest.mark.needs("openssl")
def test_speaks_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with MessagesApi((Say("first"),), tls=authority.issue("localhost")) as api:
        api.url = f"https://localhost:{api.port}"
        assert ask(api, {"messages": [HI], "tools": TOOLS}, trust=authority.certificate)["content"][0]["text"] == "first"


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("secure", [False, True])
def test_ends_with_connections_open_and_leaves_no_thread(secure: bool, tmp_path: Path) -> None:
    before = threading.active_count()
    with MessagesApi(tls=Authority(tmp_path).issue("localhost") if secure else None) as api:
        idle = [socket.create_connection(("127.0.0.1", api.port), 5) for _ in range(3)]
        if not secure:
            idle[0].sendall(b"POST /v1/messages HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        assert until(lambda: threading.active_count() == before + 4)  # the server's and one for each connection
    assert threading.active_count() == before
    for sock in idle:
        with sock:
            sock.settimeout(5)
            assert sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", api.port), 5)


@pytest.mark.needs("claude")
def test_the_real_agent_does_what_the_script_says(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"defaultMode": "dontAsk", "allow": ["Edit(./out/*)"], "deny": ["Edit"]}}))
    project = tmp_path / "project"
    project.mkdir()
    script = (
        (Call("Write", {"file_path": str(project / "out/a"), "content": "A"}), Call("Write", {"file_path": str(project / "b"), "content": "B"})),
        Call("Edit", {"file_path": str(project / "out/a"), "old_string": "A", "new_string": "B"}),
        Say("that was all"),
    )
    with MessagesApi(script) as api:
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC"))},
            "ANTHROPIC_API_KEY": "sk-ant-test-1",
            "ANTHROPIC_BASE_URL": api.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }
        argv = [CLAUDE, "-p", "hi", "--setting-sources", "", "--settings", str(settings)]
        done = subprocess.run(argv, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "that was all\n"), done.stderr
    assert (project / "out/a").read_text() == "A"
    assert not (project / "b").exists()
    inside, outside, edit = sorted(api.results, key=lambda result: (result.name == "Edit", result.is_error))
    assert (inside.name, inside.is_error) == ("Write", False)
    assert outside.is_error
    assert "denied" in outside.text
    assert "No such tool available: Edit" in edit.text
    assert {"Write", "Read", "Bash", "WebFetch"} <= api.offered
    assert "Edit" not in api.offered
    assert api.conversation[0].headers["x-api-key"] == "sk-ant-test-1"
    assert str(project) in api.conversation[0].system

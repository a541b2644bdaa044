"""`wavegen log`: what the launchers wrote is shown, and what is suggested from it is never more than a valid entry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import Result, call, project, render_project, wavegen

from wavegen.core.errors import InvalidValueError, Location
from wavegen.explain.suggestions import canonical_host
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import NetworkMode
from wavegen.policy.domains import domain_rule
from wavegen.policy.host_rules import decide_host
from wavegen.policy.model import DomainRule, Network, Origin
from wavegen.project.network_log import format_byte_count
from wavegen.project.state_dir import state_directory

MANIFEST = """\
metadata: {name: demo}
runtime:
  sandbox:
    default_allowed_domains: ["*.github.com", "git.example.org:22"]
    shells:
      restricted: {network: filtered, loopback: [3000]}
      ci:
        network: filtered
        domains: [proxy.golang.org]
"""
LINE: dict[str, Any] = {
    "time": "2026-11-28T03:45:01.123Z",
    "shell": "restricted",
    "pid": 1234,
    "verdict": "allow",
    "via": "dns",
    "name": "api.github.com",
    "port": 443,
    "address": "140.82.1.1",
    "rule": "*.github.com",
    "line": "wave.yaml:4",
    "up": 0,
    "down": 0,
    "ms": 12,
    "reason": "",
}


def line(**changes: Any) -> str:
    return json.dumps({**LINE, **changes})


def refused(name: str, reason: str = "not-listed", port: int = 443, **changes: Any) -> str:
    return line(**{"verdict": "deny", "name": name, "reason": reason, "port": port, "address": None, "rule": None, "line": None, **changes})


def write(root: Path, lines: Iterable[str | bytes], *, shell: str = "restricted", file: str = "network.jsonl") -> Path:
    directory = Path(state_directory(os.path.realpath(root))) / shell
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join((text.encode() if isinstance(text, str) else text) + b"\n" for text in lines)
    (directory / file).write_bytes(data)
    return directory / file


def logged(tmp_path: Path, *lines: str | bytes, args: tuple[str, ...] = (), manifest: str = MANIFEST) -> Result:
    root = project(tmp_path, manifest)
    write(root, lines)
    done = call("log", *args, cwd=root)
    assert done.status == 0, done.output
    assert all(c == "\n" or c.isprintable() for c in done.output)
    return done


def suggested(tmp_path: Path, *lines: str | bytes, manifest: str = MANIFEST) -> list[str]:
    """The suggested lines without comments, each of them a document of YAML."""
    return uncommented(logged(tmp_path, *lines, args=("--suggest",), manifest=manifest).stdout)


def uncommented(text: str) -> list[str]:
    found = [entry.split("  # ")[0] for entry in text.splitlines() if entry and not entry.startswith("#")]
    assert all(yaml.safe_load(entry) for entry in found)
    return found


# --- where it is


def test_the_log_is_found_where_the_wrapper_keeps_what_it_keeps(tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = render_project(tmp_path, MANIFEST)
    key = os.path.realpath(root).replace("%", "%25").replace("/", "%2F")
    assert state_directory(os.path.realpath(root)) == f"{private_home}/.local/state/wavegen/{key}"
    for value in (None, "", "relative"):
        monkeypatch.delenv("XDG_STATE_HOME") if value is None else monkeypatch.setenv("XDG_STATE_HOME", value)
        assert state_directory("/a%b/c") == f"{private_home}/.local/state/wavegen/%2Fa%25b%2Fc"
        monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert state_directory("/a") == "/elsewhere/wavegen/%2Fa"


def test_no_log_yet_is_a_sentence_and_no_failure(tmp_path: Path) -> None:
    for args in ((), ("--denied",), ("--suggest",), ("--json",)):
        done = call("log", *args, cwd=project(tmp_path, MANIFEST))
        assert (done.status, done.stdout) == (0, "")
        assert done.stderr.startswith("wavegen: note: there is no log yet")
        assert done.stderr.count("\n") == 1


def test_an_unknown_shell_and_a_wrong_combination_are_usage_errors(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    for args in (("--shell", "restrcted"), ("--suggest", "--json"), ("--nonsense",), ("--manifest", "gone.yaml")):
        assert call("log", *args, cwd=root).status == 2
    assert "did you mean 'restricted'?" in call("log", "--shell", "restrcted", cwd=root).stderr


def test_the_older_file_is_read_too_and_comes_first(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    write(root, [line(name="new.github.com")])
    write(root, [line(name="old.github.com")], file="network.jsonl.1")
    assert [json.loads(text)["name"] for text in call("log", "--json", cwd=root).stdout.splitlines()] == ["old.github.com", "new.github.com"]


def test_a_file_that_was_rotated_meanwhile_is_read_once(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    file = write(root, [line()])
    os.link(file, f"{file}.1")
    assert call("log", "--json", cwd=root).stdout == line() + "\n"


def test_all_shells_are_shown_by_time_and_one_where_it_is_named(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    write(root, [line(time="2026-11-28T03:45:03Z"), line(time="2026-11-28T03:45:01.5Z")])
    write(root, [line(shell="ci", time="2026-11-28T03:45:02.25Z")], shell="ci")
    assert [row.split()[1:3] for row in call("log", cwd=root).stdout.splitlines()[1:]] == [
        ["03:45:01", "restricted"],
        ["03:45:02", "ci"],
        ["03:45:03", "restricted"],
    ]
    assert [row.split()[2] for row in call("log", "--shell", "ci", cwd=root).stdout.splitlines()[1:]] == ["ci"]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    file = write(root, [])
    file.unlink()
    os.mkfifo(file)
    done = wavegen("log", cwd=root, timeout=20)
    assert done.status == 3
    assert "is not a file" in done.stderr


# --- the table


def test_a_decision_is_a_line_with_its_rule_or_its_reason(tmp_path: Path) -> None:
    done = logged(
        tmp_path,
        line(up=512, down=12345, via="direct"),
        refused("evil.example", port=0),
        refused("git.example.org", "port", 2222, rule="git.example.org:22", line="wave.yaml:4"),
        line(verdict="error", name="down.github.com", reason="unreachable"),
        refused("::1", "loopback-port", 5432),
    )
    assert done.stderr == ""
    assert [" ".join(row.split()) for row in done.stdout.splitlines()] == [
        "time (UTC) shell verdict name:port up down ms why",
        "2026-11-28 03:45:01 restricted allow api.github.com:443 512 12.3k 12 *.github.com # wave.yaml:4",
        "2026-11-28 03:45:01 restricted deny evil.example 0 0 12 no entry allows it",
        "2026-11-28 03:45:01 restricted deny git.example.org:2222 0 0 12 its entry does not allow this port: git.example.org:22 # wave.yaml:4",
        "2026-11-28 03:45:01 restricted error down.github.com:443 0 0 12 no connection came about: *.github.com # wave.yaml:4",
        "2026-11-28 03:45:01 restricted deny [::1]:5432 0 0 12 a port of the host's loopback that is not let in",
    ]


def test_the_same_refusal_in_a_row_is_one_line_with_a_count(tmp_path: Path) -> None:
    a, b = refused("a.example"), refused("b.example")
    rows = logged(tmp_path, *[a] * 12, b, a, line(), line()).stdout.splitlines()[1:]
    assert [" ".join(row.split()[4:6]) for row in rows] == [
        "a.example:443 (x12)",
        "b.example:443 0",
        "a.example:443 0",
        "api.github.com:443 0",
        "api.github.com:443 0",
    ]


def test_denied_shows_what_was_refused_or_out_of_reach(tmp_path: Path) -> None:
    lines = (line(), refused("evil.example"), line(verdict="error", reason="timeout"))
    done = logged(tmp_path, *lines, args=("--denied",))
    assert [row.split()[3] for row in done.stdout.splitlines()[1:]] == ["deny", "error"]
    assert logged(tmp_path, *lines, args=("--denied", "--json")).stdout.splitlines() == list(lines[1:])
    done = logged(tmp_path, line(), args=("--denied",))
    assert (done.stdout, done.stderr) == ("", "wavegen: note: nothing was refused\n")


def test_json_is_the_lines_as_they_were_written(tmp_path: Path) -> None:
    odd = '{ "extra": [1, {}],  ' + line()[1:]
    assert logged(tmp_path, odd, b"garbage", line(), args=("--json",)).stdout == f"{odd}\n{line()}\n"


def test_bytes_are_short() -> None:
    assert [format_byte_count(count) for count in (0, 999, 1000, 12345, 999_949, 999_950, 5 * 10**9, 2**63)] == [
        "0",
        "999",
        "1.0k",
        "12.3k",
        "999.9k",
        "1.0M",
        "5.0G",
        "9223372.0T",
    ]


# --- lines that are none

BAD_LINES = (
    b"",
    b"garbage",
    b"\x00\x1b]0;x\x07\xff\xfe",
    line()[:60].encode(),
    (line()[:60] + line()).encode(),
    b"null",
    b"[]",
    b"12",
    b"{}",
    b"[" * 60000,
    b'{"a":' * 9000,
    b"1" * 5000,
    line(port="443").encode(),
    line(port=True).encode(),
    line(port=65536).encode(),
    line(port=-1).encode(),
    line(up=1.5).encode(),
    line(ms=None).encode(),
    line(down=10**30).encode(),
    line(name=None).encode(),
    line(name=["a"]).encode(),
    line(reason=None).encode(),
    line(rule=5).encode(),
    line(line={}).encode(),
    line(verdict="maybe").encode(),
    line(verdict=[]).encode(),
    line(time="yesterday").encode(),
    line(time="2026-13-28T03:45:01Z").encode(),
    line(time=5).encode(),
    line(shell="yolo").encode(),
    line(pid=float("nan")).encode(),
    b"x" * 200_000,
    *(json.dumps({k: v for k, v in LINE.items() if k != gone}).encode() for gone in ("time", "shell", "verdict", "via", "name", "port", "up", "ms", "reason")),
)


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: bad[:30].decode("ascii", "backslashreplace"))
def test_a_line_that_is_none_is_counted_and_the_others_are_shown(tmp_path: Path, bad: bytes) -> None:
    for args in ((), ("--json",), ("--suggest",)):
        done = logged(tmp_path, line(), bad, refused("a.example"), args=args)
        assert "of the log" in done.stderr.splitlines()[0]
        assert done.stdout.count("a.example") == 1


def test_unreadable_lines_are_counted(tmp_path: Path) -> None:
    assert logged(tmp_path, b"x").stderr.splitlines()[0] == "wavegen: warning: 1 line of the log is no decision and was left out"
    assert logged(tmp_path, b"x", line(), b"y").stderr == "wavegen: warning: 2 lines of the log are no decisions and were left out\n"


def test_what_may_be_null_may_be_missing(tmp_path: Path) -> None:
    short = {k: v for k, v in LINE.items() if k not in ("pid", "address", "rule", "line")}
    assert logged(tmp_path, json.dumps(short)).stderr == ""


HOSTILE = (
    "a\nb.example",
    "\x1b[31mred\x1b[0m.example",
    "\x9b31m",
    "del\x7f",
    "\u202eelpmaxe",
    "\ud800",
    "nul\0",
    "tab\tbed",
    "a  allow  b",
    "x" * 5000,
    "\u0430pple.com",
)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("key", ["name", "rule", "line", "reason", "via", "extra"])
def test_no_control_character_reaches_the_terminal(tmp_path: Path, key: str, text: str) -> None:
    raw = json.dumps({**json.loads(refused("a.example", "denied")), key: text}, ensure_ascii=text == "\ud800")
    rows = logged(tmp_path, raw).stdout.splitlines()
    assert len(rows) == 2
    assert rows[1].isascii() or len(text) > 253
    (again,) = logged(tmp_path, raw, args=("--json",)).stdout.splitlines()
    assert json.loads(again) == json.loads(raw)
    logged(tmp_path, raw, args=("--suggest",))


# --- suggestions


@pytest.mark.parametrize(
    ("name", "reason", "port", "want"),
    [
        ("a.example", "not-listed", 443, "- a.example"),
        ("a.example", "not-listed", 80, "- a.example"),
        ("a.example", "not-listed", 0, "- a.example"),
        ("A.Example.", "not-listed", 0, "- a.example"),
        ("a.example", "not-listed", 22, "- a.example:22"),
        ("git.example.org", "port", 443, "- git.example.org"),
        ("git.example.org", "port", 2222, "- git.example.org:2222"),
        ("null", "not-listed", 443, '- {host: "null", allow_private: true}'),
        ("printer.local", "local-name", 443, "- {host: printer.local, allow_private: true}"),
        ("null", "local-name", 631, '- {host: "null:631", allow_private: true}'),
        ("93.184.216.34", "literal", 443, '- "93.184.216.34"'),
        ("2001:db8::1", "literal", 22, '- {host: "[2001:db8::1]:22", allow_private: true}'),
        ("[2001:DB8::1]", "literal", 443, '- {host: "[2001:db8::1]", allow_private: true}'),
        ("db.corp.example", "not-public", 443, "- {host: db.corp.example, allow_private: true}"),
        ("db.corp.example", "not-public", 5432, '- {host: "db.corp.example:5432", allow_private: true}'),
        ("localhost", "loopback-port", 5432, "loopback: [3000, 5432]"),
        ("127.0.0.1", "loopback-port", 5432, "loopback: [3000, 5432]"),
        ("::1", "loopback-port", 5432, "loopback: [3000, 5432]"),
        ("[::1]", "loopback-port", 22, "loopback: [22, 3000]"),
    ],
)
def test_what_would_allow_a_refusal(tmp_path: Path, name: str, reason: str, port: int, want: str) -> None:
    assert suggested(tmp_path, refused(name, reason, port)) == [want]


@pytest.mark.parametrize("verdict", ["deny", "error"])
@pytest.mark.parametrize(
    "reason",
    [
        *("metadata", "bad-name", "own-address", "sni-mismatch", "method", "bad-request", "limit"),
        *("timeout", "unresolved", "unreachable", "ended", "", "unheard-of", "denied"),
    ],
)
def test_some_refusals_are_never_answered_by_an_entry(tmp_path: Path, reason: str, verdict: str) -> None:
    assert suggested(tmp_path, refused("a.example", reason, verdict=verdict)) == []


def test_what_was_allowed_is_not_suggested(tmp_path: Path) -> None:
    done = logged(tmp_path, line(name="a.example", reason="not-listed"), args=("--suggest",))
    assert (done.stdout, done.stderr) == ("", "wavegen: note: nothing was refused that an entry would allow\n")


@pytest.mark.parametrize("name", ["localhost", "x.localhost", "127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "169.254.169.254", "fe80::1"])
def test_the_inside_of_the_fence_and_link_local_addresses_are_no_entries(tmp_path: Path, name: str) -> None:
    for reason in ("not-listed", "literal", "local-name", "not-public"):
        assert suggested(tmp_path, refused(name, reason)) == []


def test_only_the_loopback_is_let_in_by_port(tmp_path: Path) -> None:
    lines = [refused("a.example", "loopback-port", 5432), refused("localhost", "loopback-port", 0), refused("localhost", "loopback-port", 3000)]
    assert suggested(tmp_path, *lines) == []


def test_a_deny_rule_is_named_and_nothing_suggested(tmp_path: Path) -> None:
    done = logged(tmp_path, refused("a.example", "denied", rule="*.example", line="wave.yaml:9"), args=("--suggest",))
    assert done.stdout.splitlines()[1] == "# a.example is refused by the deny rule at wave.yaml:9  # refused once, last 2026-11-28 03:45:01 UTC"
    assert uncommented(done.stdout) == []


def test_each_line_says_how_often_and_when_last_and_they_are_sorted(tmp_path: Path) -> None:
    times = ("2026-11-28T03:45:01Z", "2026-11-29T00:00:00Z", "2026-11-28T04:00:00Z")
    lines = [refused("b.example"), *(refused("a.example", port=port, time=time) for port, time in zip((443, 80, 0), times, strict=True)), refused("c.example")]
    assert logged(tmp_path, *lines, args=("--suggest",)).stdout.splitlines()[-3:] == [
        "- a.example  # refused 3 times, last 2026-11-29 00:00:00 UTC",
        "- b.example  # refused once, last 2026-11-28 03:45:01 UTC",
        "- c.example  # refused once, last 2026-11-28 03:45:01 UTC",
    ]


@pytest.mark.parametrize(("reason", "entry"), [("sni-missing", "{host: a.example, allow_no_sni: true}"), ("not-tls", '{host: "a.example:443", tls: false}')])
def test_what_would_end_the_look_at_tls_is_not_ready_to_paste(tmp_path: Path, reason: str, entry: str) -> None:
    done = logged(tmp_path, refused("a.example", reason), args=("--suggest",))
    assert uncommented(done.stdout) == []
    assert f"# - {entry}  # " in done.stdout
    assert "nobody would look whom it asks" in done.stdout


def test_two_needs_of_a_name_are_one_entry(tmp_path: Path) -> None:
    lines = [refused("a.example"), refused("a.example", "not-public"), refused("a.example", "sni-missing")]
    assert suggested(tmp_path, *lines) == []
    assert "# - {host: a.example, allow_private: true, allow_no_sni: true}  # " in logged(tmp_path, *lines, args=("--suggest",)).stdout


def test_an_entry_that_is_there_and_says_too_little_is_named(tmp_path: Path) -> None:
    done = logged(tmp_path, refused("git.example.org", "not-public", 22), args=("--suggest",))
    assert "allow_private: true}  # refused once" in done.stdout
    assert done.stdout.endswith("; in place of wave.yaml:4:47\n")


def test_they_are_grouped_by_shell_and_say_which_list_they_belong_into(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    write(root, [refused("a.example"), refused("localhost", "loopback-port", 5432)])
    write(root, [refused("b.example", shell="ci")], shell="ci")
    when = "refused once, last 2026-11-28 03:45:01 UTC"
    assert call("log", "--suggest", cwd=root).stdout.splitlines() == [
        "# shell restricted: runtime.sandbox.default_allowed_domains (wave.yaml:4:30)",
        "# every shell and persona that has no list of its own uses this one",
        f"- a.example  # {when}",
        "# shell restricted: runtime.sandbox.shells.restricted",
        f"loopback: [3000, 5432]  # 5432 {when}",
        "",
        "# shell ci: runtime.sandbox.shells.ci.domains (wave.yaml:9:18)",
        f"- b.example  # {when}",
    ]
    assert uncommented(call("log", "--suggest", "--shell", "ci", cwd=root).stdout) == ["- b.example"]


def test_the_list_of_an_overlay_is_found_in_the_overlay(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST, "runtime: {sandbox: {shells: {restricted: {domains: [x.example]}}}}\n")
    write(root, [refused("a.example"), refused("x.example")])
    done = call("log", "--suggest", cwd=root)
    assert done.stdout.startswith("# shell restricted: runtime.sandbox.shells.restricted.domains (wave.sandbox.yaml:1:")
    assert uncommented(done.stdout) == ["- a.example"]


def test_a_list_that_is_not_written_says_what_it_would_replace(tmp_path: Path) -> None:
    manifest = "metadata: {name: demo}\nadapters: {claude: {binary: claude}}\n"
    done = logged(tmp_path, refused("a.example"), args=("--suggest",), manifest=manifest)
    assert "# shell restricted: runtime.sandbox.default_allowed_domains, which is not written\n" in done.stdout
    assert "# once it is written it replaces, so copy what is needed: api.anthropic.com" in done.stdout


def test_a_shell_that_does_not_filter_any_more_has_no_list(tmp_path: Path) -> None:
    for mode, said in (("open", ""), ("host", ""), ("none", "# shell restricted: no list counts, as its network is none\n")):
        manifest = f"metadata: {{name: demo}}\nruntime: {{sandbox: {{shells: {{restricted: {{network: {mode}}}}}}}}}\n"
        done = logged(tmp_path, refused("a.example"), args=("--suggest",), manifest=manifest)
        assert done.stdout == said


def test_an_empty_list_can_be_added_to_and_an_open_shell_has_loopback_ports(tmp_path: Path) -> None:
    empty = "metadata: {name: demo}\nruntime: {sandbox: {default_allowed_domains: []}}\n"
    assert suggested(tmp_path, refused("a.example"), manifest=empty) == ["- a.example"]
    wide = "metadata: {name: demo}\nruntime: {sandbox: {shells: {restricted: {network: open}}}}\n"
    assert suggested(tmp_path, refused("localhost", "loopback-port", 5432), manifest=wide) == ["loopback: [5432]"]


def test_what_the_manifest_allows_by_now_is_not_suggested(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    write(root, [refused("a.example"), refused("new.github.com"), refused("git.example.org", port=22), refused("git.example.org", port=0)])
    assert uncommented(call("log", "--suggest", cwd=root).stdout) == ["- a.example"]
    (root / "wave.yaml").write_text(MANIFEST.replace("[", "[a.example, ", 1))
    assert call("log", "--suggest", cwd=root).stdout == ""


@pytest.mark.parametrize(
    ("entry", "name", "port", "want"),
    [
        ("a.example", "a.example", 443, True),
        ("a.example", "a.example", 80, True),
        ("a.example", "a.example", 0, True),
        ("a.example", "a.example", 22, False),
        ("a.example", "b.a.example", 443, False),
        ("a.example", "ba.example", 443, False),
        ("*.a.example", "b.a.example", 443, True),
        ("*.a.example", "c.b.a.example", 443, True),
        ("*.a.example", "a.example", 443, False),
        ("*.a.example", "ba.example", 443, False),
        ("a.example:22", "a.example", 22, True),
        ("a.example:22", "a.example", 443, False),
        ("a.example:22", "a.example", 0, True),
        ("a.example:*", "a.example", 6000, True),
    ],
)
def test_allowed(entry: str, name: str, port: int, *, want: bool) -> None:
    bare, _, number = entry.removeprefix("*.").partition(":")
    rule = DomainRule(host=bare, wildcard=entry.startswith("*"), port=number, origin=Origin("test"))
    network = Network(mode=NetworkMode.FILTERED, origin=Origin("test"), domains=(rule,))
    assert decide_host(network, name, port).allowed is want
    assert not decide_host(replace(network, domains=()), name, port).allowed


NO_NAMES = (
    "",
    "*",
    "*.com",
    "*.evil.example",
    "evil.example:22",
    "evil.example:*",
    "https://evil.example/",
    "user@evil.example",
    "a.example\n- evil.example",
    "a.example  # \n- evil",
    'a.example", tls: false}',
    "a.example}",
    "{host: evil.example}",
    "&a evil",
    "!!python/object",
    "fe80::1%eth0",
    "[fe80::1%\n- evil.example]",
    '[fe80::1%"\n- "evil.example]',
    "[fe80::1%a, b]",
    "evil..example",
    "-evil.example",
    "evil_.example-",
    "0x7f.1",
    "2130706433",
    "1.2.3",
    "\u0430pple.com",
    "\u212aelvin.example",
    "\uff45vil.example",
    "a" * 64 + ".example",
    "a." * 130 + "example",
    "a\x00b.example",
    "\x1b[2Kevil.example",
    "a b.example",
    "\ud800.example",
)


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
@pytest.mark.parametrize("reason", ["not-listed", "not-public", "sni-missing", "not-tls", "denied", "loopback-port"])
def test_what_is_no_valid_name_is_never_printed_and_counted(tmp_path: Path, name: str, reason: str) -> None:
    root = project(tmp_path, MANIFEST)
    write(root, [refused(name, reason), refused(name, reason)])
    done = call("log", "--suggest", cwd=root)
    assert (done.status, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == "wavegen: warning: 1 name is not valid and was left out"


def test_names_that_are_not_valid_are_counted_once_each(tmp_path: Path) -> None:
    done = logged(tmp_path, refused("*.com"), refused("*.com", port=22), refused("a b"), refused("a.example"), args=("--suggest",))
    assert "wavegen: warning: 2 names are not valid and were left out" in done.stderr.splitlines()
    assert uncommented(done.stdout) == ["- a.example"]


def test_hostile_rules_and_lines_stay_in_their_comment(tmp_path: Path) -> None:
    done = logged(tmp_path, refused("a.example", "denied", rule="x", line="wave.yaml:9\n- evil.example\x85- evil\u2028- evil"), args=("--suggest",))
    assert all(text.startswith("#") for text in done.stdout.splitlines())


def test_what_is_printed_is_what_domain_rule_takes(tmp_path: Path) -> None:
    names = [
        "a.example",
        "1e5.example",
        "_dmarc.a.example",
        "null",
        "yes",
        "1password.com",
        "xn--bcher-kva.example",
        "2001:db8::1",
        "8.8.8.8",
        "on.off",
        *NO_NAMES,
    ]
    entries = suggested(tmp_path, *(refused(name, reason, port) for name in names for reason in ("not-listed", "not-public") for port in (443, 22)))
    assert len(entries) == 2 * (len(names) - len(NO_NAMES))
    for entry in entries:
        ((value,),) = (yaml.safe_load(entry),)
        assert domain_rule(Text(value["host"] if isinstance(value, dict) else value, Location("")))


def test_a_name_is_what_domain_rule_takes_or_nothing() -> None:
    for name in NO_NAMES:
        assert canonical_host(name) == ""
    with pytest.raises(InvalidValueError):
        domain_rule(Text("a b", Location("")))


def test_the_warning_says_that_an_agent_asked_for_it(tmp_path: Path) -> None:
    assert (
        logged(tmp_path, refused("a.example"), args=("--suggest",)).stderr == "wavegen: warning: this is what an agent asked for: read it before you paste it\n"
    )


def test_nothing_is_written(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    file = write(root, [refused("a.example")])
    before = (file.stat().st_mtime_ns, sorted(root.iterdir()))
    call("log", "--suggest", cwd=root)
    assert (file.stat().st_mtime_ns, sorted(root.iterdir())) == before

"""Whatever a manifest, an overlay or the disk holds: a message that says where and what to do, and nothing half done."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from helpers import MINIMAL, WAVEGEN, Result, call, environment, project, render_project, snapshot, wavegen, without_privileges

from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.rules import escape_field, read_rules

SANDBOX = "metadata: {name: demo}\nruntime:\n  sandbox:\n"
MESSAGE = re.compile(r"(?P<file>[^:\s]+):(?P<at>\d+:\d+): (?P<severity>error|warning|note|gap): (?P<what>.+)")


def refused(root: Path, *args: str, status: int = 2) -> Result:
    """A render (or `args`) that ends with `status`, changes nothing on the disk and is no bug."""
    before = snapshot(root)
    done = call(*(args or ("render",)), cwd=root)
    clear(done, status)
    assert snapshot(root) == before
    return done


def clear(done: Result, status: int) -> None:
    assert done.status == status, done.output
    assert "Traceback" not in done.output
    assert "wavegen: bug" not in done.output
    assert done.stdout == ""
    assert "error: " in done.stderr


def errors(done: Result) -> list[tuple[str, str, str]]:
    """File, line:column and text of each error shown, in the order shown. Excerpts are indented."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("    ")]
    found = [match for line in lines if (match := MESSAGE.fullmatch(line))]
    assert len(found) == len(lines), lines
    return [(m["file"], m["at"], m["what"]) for m in found if m["severity"] == "error"]


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 30))


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(
            SANDBOX + "    deny_read_path: [a]\n", [("4:5", "unknown key 'runtime.sandbox.deny_read_path' (did you mean 'deny_read_paths'?)")], id="sandbox"
        ),
        pytest.param(
            SANDBOX + "    shells: {ci: {netwrok: none}}\n", [("4:19", "unknown key 'runtime.sandbox.shells.ci.netwrok' (did you mean 'network'?)")], id="shell"
        ),
        pytest.param(SANDBOX + "    paths: [{path: x, acess: read}]\n", [("4:13", "access is missing"), ("4:23", "(did you mean 'access'?)")], id="path"),
        pytest.param(SANDBOX + "    limits: {mem: 1g}\n", [("4:14", "unknown key 'runtime.sandbox.limits.mem'")], id="limits"),
        pytest.param(MINIMAL + "personas: {p: {permissions: {denied: [Bash]}}}\n", [("2:30", "unknown key 'personas.p.permissions.denied'")], id="permissions"),
        pytest.param(MINIMAL + "personas: {p: {sandbox: {allowed_domain: []}}}\n", [("2:26", "(did you mean 'allowed_domains'?)")], id="persona"),
        pytest.param(MINIMAL + "personas: {p: {hooks: {PreToolsUse: []}}}\n", [("2:24", "(did you mean 'PreToolUse'?)")], id="hooks"),
        pytest.param(MINIMAL + "adapters: {a: {default_permissions: {dney: []}}}\n", [("2:38", "(did you mean 'deny'?)")], id="adapter"),
    ],
)
def test_an_unknown_key_in_a_security_section_is_an_error_with_a_suggestion(tmp_path: Path, manifest: str, expected: list[tuple[str, str]]) -> None:
    shown = errors(refused(project(tmp_path, manifest)))
    assert [("wave.yaml", at) for at, _ in expected] == [(file, at) for file, at, _ in shown]
    assert all(text in what for (_, text), (_, _, what) in zip(expected, shown, strict=True)), shown


def test_an_unknown_key_elsewhere_is_a_note_and_renders(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL + "ontology: {telos: x}\nruntime: {progress: yes}\n")
    done = call("render", cwd=root)
    assert done.status == 0
    assert "wave.yaml:2:1: note: unknown key 'ontology' is ignored" in done.stderr
    assert "wave.yaml:3:11: note: unknown key 'runtime.progress' is ignored" in done.stderr


@pytest.mark.parametrize(
    ("manifest", "at", "text"),
    [
        pytest.param(
            SANDBOX + "    packages: [go]\n    packages: [gh]\n", "5:5", "duplicate key 'packages' (first given in line 4; keep one)", id="duplicate-key"
        ),
        pytest.param("metadata: {name: a}\nmetadata: {name: b}\n", "2:1", "duplicate key 'metadata'", id="duplicate-section"),
        pytest.param(MINIMAL + "personas: {p: {}, 'p': {}}\n", "2:19", "duplicate key 'p'", id="duplicate-quoted"),
        pytest.param(
            SANDBOX + "    packages: go\n", "4:15", "packages: expected a list, got 'go' (write it as [a, b] or one `- item` a line)", id="text-for-list"
        ),
        pytest.param(SANDBOX + "    enabled: maybe\n", "4:14", "enabled: expected true or false, got 'maybe'", id="text-for-bool"),
        pytest.param(SANDBOX + "    enabled: 'true'\n", "4:14", "(remove the quotes)", id="quoted-bool"),
        pytest.param(SANDBOX + "    limits: {pids: many}\n", "4:20", "limits.pids: expected a number, got 'many'", id="text-for-number"),
        pytest.param(SANDBOX + f"    limits: {{pids: {'9' * 5000}}}\n", "4:20", "limits.pids: expected a number", id="number-of-5000-digits"),
        pytest.param(SANDBOX + f"    limits: {{memory: {'9' * 5000}}}\n", "4:22", "is not a size", id="size-of-5000-digits"),
        pytest.param(SANDBOX + "    limits: {cpus: 1e999}\n", "4:20", "limits.cpus: expected a number", id="infinite-number"),
        pytest.param(SANDBOX + "    limits: {cpus: .nan}\n", "4:20", "limits.cpus: expected a number", id="not-a-number"),
        pytest.param(SANDBOX + "    limits: {pids: 0}\n", "4:20", "limits.pids must be from 16 to 1000000 (remove it for the default)", id="zero"),
        pytest.param(SANDBOX + "    limits: {memory: 31m}\n", "4:22", "limits.memory: '31m' is too little for a shell (write 32m or more)", id="too-little"),
        pytest.param(SANDBOX + "    limits: {tmp: 1.5g}\n", "4:19", "limits.tmp: '1.5g' is not a size (write 512m or 4g)", id="size"),
        pytest.param(SANDBOX + "    limits: {memory: 99999999t}\n", "4:22", "is not a size", id="size-above-64-bits"),
        pytest.param(SANDBOX + "    shells: []\n", "4:13", "shells: expected a mapping, got a list", id="list-for-mapping"),
        pytest.param("metadata: 3\n", "1:11", "metadata: expected a mapping, got '3'", id="number-for-mapping"),
        pytest.param("metadata: {name: [a]}\n", "1:18", "metadata.name: expected text, got a list", id="list-for-text"),
        pytest.param(SANDBOX + "    paths: [{path: , access: read}]\n", "4:13", "paths[0].path is empty (give it a value)", id="empty-required"),
        pytest.param("metadata: {name: }\n", "1:11", "metadata.name is missing (give the project a name)", id="empty-name"),
        pytest.param("metadata: {name: '  '}\n", "1:11", "metadata.name is missing", id="blank-name"),
        pytest.param(SANDBOX + "    backend: podman\n", "4:14", "'podman' is not one of bubblewrap, docker, landlock, none", id="backend"),
        pytest.param(SANDBOX + "    backend: Docker\n", "4:14", "(did you mean 'docker'?)", id="backend-in-capitals"),
        pytest.param(
            MINIMAL + "personas: {p: {sandbox: {shell: restrictd}}}\n", "2:33", "there is no shell 'restrictd' (did you mean 'restricted'?)", id="shell"
        ),
        pytest.param(
            MINIMAL + "personas: {p: {sandbox: {shell: xyz}}}\n", "2:33", "there is no shell 'xyz' (shells: default, restricted, yolo)", id="far-shell"
        ),
        pytest.param(SANDBOX + "    shells: {yolo: {sandbox: true}}\n", "4:30", "yolo is the shell without a fence", id="fenced-yolo"),
        pytest.param(SANDBOX + "    shells: {default: {sandbox: false}}\n", "4:33", "default is always fenced", id="open-default"),
        pytest.param(SANDBOX + "    shells: {a: {network: none, domains: [x.org]}}\n", "4:42", "domains have no effect with network: none", id="idle-domains"),
        pytest.param(SANDBOX + "    shells: {a: {loopback: [70000]}}\n", "4:28", "70000 is not a port", id="port"),
        pytest.param(SANDBOX + "    env_passthrough: [A=B]\n", "4:23", "'A=B' cannot name a variable", id="variable-with-value"),
        pytest.param(SANDBOX + "    package: ../x.nix\n", "4:14", "package: '../x.nix' goes up with ..", id="package-above"),
        pytest.param(SANDBOX + "    package: /etc/x.nix\n", "4:14", "is not a .nix file of this project", id="package-outside"),
        pytest.param(SANDBOX + "    deny_read_paths: [~/]\n", "4:23", "'~/' would hide everything", id="hide-all"),
        pytest.param("metadata:\n\tname: x\n", "2:1", "tab in the indentation (YAML is indented with spaces)", id="tab"),
        pytest.param(SANDBOX + "  \tenabled: true\n", "4:3", "tab in the indentation", id="tab-after-spaces"),
        pytest.param("metadata: {name: x\n", "2:1", "not YAML: ", id="unclosed"),
        pytest.param("metadata: {name: *x}\n", "1:18", "alias *x has no anchor before it (define &x first)", id="alias-of-nothing"),
        pytest.param("metadata: &a {name: x, b: *a}\n", "1:27", "alias *a stands inside its own anchor (a manifest cannot contain itself)", id="alias-cycle"),
        pytest.param(BOMB + MINIMAL, "6:25", "aliases expand to more than 200000 values (use fewer aliases)", id="alias-bomb"),
        pytest.param("metadata: {<<: 3, name: x}\n", "1:16", "<< takes a mapping, got '3'", id="merge-of-a-number"),
        pytest.param("metadata: !!python/object:os.system {name: x}\n", "1:11", "is not understood (remove the tag)", id="tag"),
        pytest.param(MINIMAL + "? [a]\n: b\n", "2:3", "a key must be text, not a list", id="list-as-key"),
        pytest.param("a: " + "[" * 100_000 + "]" * 100_000 + "\n", "1:1003", "nesting", id="deep-flow-lists"),
        pytest.param("a: " + "[" * 100_000, "1:1003", "nesting", id="deep-flow-unclosed"),
        pytest.param("a: " + "{a: " * 100_000 + "}" * 100_000, "1:257", "nested deeper than 64 (flatten it)", id="deep-flow-mappings"),
        pytest.param("- " * 100_000 + "x\n", "1:131", "nested deeper than 64 (flatten it)", id="deep-block-lists"),
        pytest.param("? " * 100_000 + "x\n", "1:131", "nested deeper than 64 (flatten it)", id="deep-block-keys"),
        pytest.param("".join(f"{' ' * i}a:\n" for i in range(1500)), "65:65", "nested deeper than 64 (flatten it)", id="deep-block-mappings"),
        pytest.param(MINIMAL + "a: \0\n", "2:4", "control character U+0000 (remove it)", id="nul"),
        pytest.param('metadata: {name: "a\\0b"}\n', "1:18", "the text holds a NUL character (remove it)", id="nul-by-escape"),
        pytest.param(MINIMAL + "a: \x1b[31m\n", "2:4", "control character U+001B", id="escape"),
        pytest.param('metadata: {name: "\\ud800"}\n', "1:21", "not YAML: found invalid Unicode character escape code", id="surrogate"),
        pytest.param("metadata: {name: é}\n".encode("latin-1"), "1:18", "byte 0xe9 is not UTF-8 (save the file as UTF-8)", id="latin-1"),
        pytest.param(MINIMAL.encode("utf-16"), "1:1", "is not UTF-8 (save the file as UTF-8)", id="utf-16-with-bom"),
        pytest.param(MINIMAL.encode("utf-16-be"), "1:1", "control character U+0000", id="utf-16-without-bom"),
        pytest.param("- metadata\n", "1:1", "expected a mapping at the top, got a list (start with `metadata:`)", id="list-at-the-top"),
        pytest.param("hello\n", "1:1", "expected a mapping at the top, got 'hello'", id="text-at-the-top"),
    ],
)
def test_one_mistake_gives_one_error_at_its_line_and_column(tmp_path: Path, manifest: str | bytes, at: str, text: str) -> None:
    [(file, where, what)] = errors(refused(project(tmp_path, manifest)))
    assert (file, where) == ("wave.yaml", at)
    assert text in what


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param("", "wave.yaml: error: metadata.name is missing (give the project a name)", id="empty"),
        pytest.param("# nothing\n\n# yet\n", "wave.yaml: error: metadata.name is missing (give the project a name)", id="only-comments"),
        pytest.param("---\n...\n", "wave.yaml", id="empty-document"),
        pytest.param(
            "# " + "x" * 5_000_000 + "\n" + MINIMAL,
            "wave.yaml: error: more than 2097152 bytes (a manifest lists rules; keep data elsewhere)",
            id="5-MB",
        ),
    ],
)
def test_a_mistake_of_the_whole_file_names_the_file(tmp_path: Path, manifest: str, message: str) -> None:
    done = refused(project(tmp_path, manifest))
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) <= 3


def test_every_merge_conflict_marker_is_named_and_nothing_else(tmp_path: Path) -> None:
    text = "metadata:\n<<<<<<< HEAD\n  name: x\n||||||| base\n  name: w\n=======\n  name: y\n>>>>>>> other\n"
    shown = errors(refused(project(tmp_path, text)))
    assert [at for _, at, _ in shown] == ["2:1", "4:1", "6:1", "8:1"]
    assert {what for _, _, what in shown} == {"merge conflict marker (resolve the conflict and remove the markers)"}


def test_all_mistakes_are_shown_at_once_sorted_by_place(tmp_path: Path) -> None:
    text = (
        SANDBOX + "    shells: {a: {network: lan}}\n    packages: ['a b', go]\n    pakages: []\n    backend: podman\n    limits: {pids: x, cpus: y}\n"
        "personas: {p: {permissions: {alowed_tools: []}}}\n"
    )
    shown = errors(refused(project(tmp_path, text)))
    assert [at for _, at, _ in shown] == ["4:27", "6:5", "7:14", "8:20", "8:29", "9:30"]


def test_mistakes_in_meaning_are_shown_at_once_sorted_by_place(tmp_path: Path) -> None:
    text = (
        SANDBOX + "    env_passthrough: [A B]\n    packages: [a b]\n    default_allowed_domains: ['https://x.org/y']\n    paths:\n"
        "      - {path: /, access: read}\n      - {path: ../x, access: read}\n    shells: {a/b: {}}\npersonas: {p: {sandbox: {shell: none}}}\n"
    )
    shown = errors(refused(project(tmp_path, text)))
    assert [at for _, at, _ in shown] == ["4:23", "5:16", "6:31", "8:16", "9:16", "10:14", "11:33"]


def test_a_mistake_is_shown_once_however_many_shells_inherit_it(tmp_path: Path) -> None:
    text = SANDBOX + "    shells: {a: {}, b: {}, c: {}}\n    packages: [a b]\n    paths: [{path: '*', access: read}]\n    limits: {tmp: 0}\n"
    assert [at for _, at, _ in errors(refused(project(tmp_path, text)))] == ["5:16", "6:20", "7:19"]


def test_the_caret_stands_under_the_mistake(tmp_path: Path) -> None:
    lines = refused(project(tmp_path, SANDBOX + "    backend: podman  # é\n")).stderr.splitlines()
    assert lines[1:] == ["        backend: podman  # é", "    " + " " * 13 + "^"]


def test_a_message_cannot_be_forged_by_a_manifest(tmp_path: Path) -> None:
    text = SANDBOX + '    packages: ["x\\nwave.yaml:1:1: error: forged\\e[2J\\u2028y"]\n'
    done = refused(project(tmp_path, text))
    assert [at for _, at, _ in errors(done)] == ["4:16"]
    assert "\x1b" not in done.stderr
    assert "\u2028" not in done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/", "'/' as a whole cannot be granted", id="root"),
        pytest.param("//", "'/' as a whole cannot be granted", id="root-twice"),
        pytest.param("/./", "'/' as a whole cannot be granted", id="root-folded"),
        pytest.param("~", "the home directory as a whole cannot be granted", id="home"),
        pytest.param("~/.", "the home directory as a whole cannot be granted", id="home-folded"),
        pytest.param("../x", "goes up with ..", id="up"),
        pytest.param("a/../../x", "goes up with ..", id="up-inside"),
        pytest.param("~/..", "goes up with ..", id="up-from-home"),
        pytest.param("/usr/..", "goes up with ..", id="up-to-root"),
        pytest.param("*.go", "is a pattern", id="star"),
        pytest.param("a/?", "is a pattern", id="question-mark"),
        pytest.param("~/[a]", "is a pattern", id="bracket"),
        pytest.param("~root/x", "names another user's home", id="another-home"),
        pytest.param("", "a path is empty", id="empty"),
        pytest.param("  ", "a path is empty", id="blank"),
        pytest.param("/proc", "is made anew for each shell", id="proc"),
        pytest.param("/proc/1/environ", "is made anew for each shell", id="below-proc"),
        pytest.param("/dev", "is made anew for each shell", id="dev"),
        pytest.param("/run/docker.sock", "shows the socket /run/docker.sock", id="docker"),
        pytest.param("/var/run/docker.sock", "shows the socket /var/run/docker.sock", id="docker-by-link"),
        pytest.param("/run", "shows the socket", id="above-sockets"),
        pytest.param("/run/user/1000/bus", "shows the socket /run/user", id="below-sockets"),
        pytest.param("/nix/var/nix/daemon-socket/socket", "shows the socket", id="nix-daemon"),
        pytest.param("/tmp/.X11-unix/X0", "shows the socket", id="x11"),
        pytest.param("~/.gnupg/S.gpg-agent", "shows the socket", id="gpg-agent"),
        pytest.param("~/.docker", "shows the socket", id="docker-desktop"),
        pytest.param("wave.yaml", "is part of the fence and stays read-only", id="manifest"),
        pytest.param("wave.sandbox.yaml", "is part of the fence and stays read-only", id="overlay"),
        pytest.param("./flake.nix", "is part of the fence and stays read-only", id="flake"),
        pytest.param(".wavegen/bin/default", "is part of the fence and stays read-only", id="wrapper"),
    ],
)
def test_a_path_that_must_not_be_granted_is_refused(tmp_path: Path, path: str, text: str) -> None:
    manifest = SANDBOX + f"    paths: [{{path: {json.dumps(path)}, access: write, optional: true}}]\n"
    [(_, at, what)] = errors(refused(project(tmp_path, manifest)))
    assert at == "4:20"
    assert text in what
    assert what.endswith(")")


def test_a_path_that_is_granted_and_hidden_is_refused(tmp_path: Path) -> None:
    text = SANDBOX + "    paths: [{path: ~/.ssh/config, access: read}]\n    deny_read_paths: [~/.ssh]\n"
    [(_, at, what)] = errors(refused(project(tmp_path, text)))
    assert at == "4:20"
    assert what == "'~/.ssh/config' is granted here and hidden by deny_read_paths (wave.yaml:5) (remove one of the two)"


def test_a_socket_that_is_asked_for_by_name_is_granted_and_shown_as_a_gap(tmp_path: Path) -> None:
    root = project(tmp_path, SANDBOX + "    paths: [{path: /run/docker.sock, access: read, socket: true}]\n")
    done = call("render", cwd=root)
    assert done.status == 0
    assert "wave.yaml:4:20: gap: default, restricted: the server behind the socket /run/docker.sock runs outside the sandbox" in done.stderr


# --- strings

HOSTILE = (
    "'; touch owned #", '"; touch owned #', "$(touch owned)", "`touch owned`", "${HOME}", "$${x}", "''${x}''", "a\nb", "a\r\nb", "\x1b(0", "\u2028x",
    "a\\", "\\", "-x", "}}", "{{ x }}", "{% x %}", "*/", "#", "é☃😀", " ", "&", "a;b|c", "a b", "!x", "%s%n",
)  # fmt: skip
FREE = {
    # What any text may stand in: it must arrive unharmed.
    "metadata.name": "metadata: {{name: {0}}}\n",
    "metadata.description": "metadata: {{name: demo, description: {0}}}\n",
    "unfree": SANDBOX.replace("{", "{{").replace("}", "}}") + "    unfree: [{0}]\n",
    "paths": SANDBOX.replace("{", "{{").replace("}", "}}") + "    paths: [{{path: {0}, access: read}}]\n",
    "home paths": SANDBOX.replace("{", "{{").replace("}", "}}") + "    paths: [{{path: {0}, access: write, optional: true}}]\n    home: tmpfs\n",
    "deny_read_paths": SANDBOX.replace("{", "{{").replace("}", "}}") + "    deny_read_paths: [{0}]\n",
    "persona": "metadata: {{name: demo}}\npersonas: {{p: {{description: {0}, model: {0}}}}}\n",
    "adapter": "metadata: {{name: demo}}\nadapters: {{{0}: {{}}}}\npersonas: {{p: {{adapter: {0}}}}}\n",
    "command": "metadata: {{name: demo}}\nadapters: {{a: {{binary: {0}, default_model: {0}}}}}\npersonas: {{p: {{hooks: {{PreToolUse: [{{command: {0}}}]}}}}}}\n",
    "unknown key": "metadata: {{name: demo}}\n{0}: {0}\n",
}
NAMES = {
    # What only names may stand in: anything else is an error at its place.
    "shell": (SANDBOX + "    shells: {%s: {}}\n", "4:14"),
    "package": (SANDBOX + "    packages: [%s]\n", "4:16"),
    "variable": (SANDBOX + "    env_passthrough: [%s]\n", "4:23"),
    "domain": (SANDBOX + "    default_allowed_domains: [%s]\n", "4:31"),
    "persona domain": (MINIMAL + "personas: {p: {sandbox: {allowed_domains: [%s]}}}\n", "2:44"),
    "persona shell": (MINIMAL + "personas: {p: {sandbox: {shell: %s}}}\n", "2:33"),
    "backend": (SANDBOX + "    backend: %s\n", "4:14"),
    "size": (SANDBOX + "    limits: {memory: %s}\n", "4:22"),
    "image": (SANDBOX + "    docker_image: %s\n", "4:19"),
    "image's base": (SANDBOX + "    docker_base: %s\n", "4:18"),
    "image's attribute": (SANDBOX + "    docker_packages: {%s: a}\n", "4:23"),
    "image's package": (SANDBOX + "    docker_packages: {jq: %s}\n", "4:27"),
    "image's packages": (SANDBOX + "    docker_packages: {jq: [%s]}\n", "4:28"),
    "package file": (SANDBOX + "    package: %s\n", "4:14"),
}


def quoted(text: str) -> str:
    """A double-quoted YAML string: JSON's escapes are YAML's, and U+2028 would be a line break."""
    return json.dumps(text, ensure_ascii=False).replace("\u2028", "\\u2028")


@pytest.mark.parametrize("field", FREE)
def test_a_hostile_string_adds_no_line_to_what_is_rendered(tmp_path: Path, field: str) -> None:
    """A string that broke out of its place would bring its own line, or a syntax that the quoting tests would meet."""
    rendered = render_files(tmp_path / "plain", FREE[field].format(quoted("plain")))
    plain, binary = {name: data.count(b"\n") for name, data in rendered.items()}, {name: data for name, data in rendered.items() if is_binary(name)}
    assert binary
    refused_ones = []
    for i, text in enumerate(HOSTILE):
        root = tmp_path / str(i)
        root.mkdir()
        (root / "wave.yaml").write_text(FREE[field].format(quoted(text)), "utf-8")
        done = call("render", cwd=root)
        if done.status != 0:
            clear(done, 2)
            assert all(file == "wave.yaml" for file, _, _ in errors(done))
            refused_ones.append(text)
            continue
        assert not (root / "owned").exists()
        written = files(root)
        assert {name: data.count(b"\n") for name, data in written.items()} == plain, text
        # What is no text holds any byte, and nothing of a string.
        assert {name: data for name, data in written.items() if is_binary(name)} == binary, text
        assert not any(b"\x1b" in data for name, data in written.items() if name != "flake.nix" and not is_binary(name))  # Nix has no escape for it
        json.loads((root / ".wavegen/plan.json").read_text("utf-8"))
    # A blank name, path or command is none, and no other text is refused.
    assert refused_ones == {
        "metadata.name": [" "],
        "paths": ["${HOME}", "*/", " "],
        "home paths": ["${HOME}", "*/", " "],
        "deny_read_paths": ["${HOME}", "*/", " "],
        "command": [" "],
    }.get(field, [])


@pytest.mark.parametrize("text", [*HOSTILE, "a\tb", "\x7f\x9b", "\\u00001b", "\\\\t", os.fsdecode(b"\xff"), "\u202e"])
def test_a_field_of_the_rules_arrives_and_moves_no_cursor(text: str) -> None:
    assert escape_field(text).isprintable()
    rules = read_rules(f"shell\tdefault\t-\nbanner\t{escape_field(text)}\n", lambda: "", "rules")
    assert rules.lists["banner"] == [(text,)]


@pytest.mark.parametrize("field", ["\\u", "\\u00zz00", "\\uffffff"])
def test_a_field_of_the_rules_that_no_one_wrote_is_refused(field: str) -> None:
    with pytest.raises(CannotStartError, match="rules:2: the launcher does not know this rule"):
        read_rules(f"shell\tdefault\t-\nbanner\t{field}\n", lambda: "", "rules")


def render_files(root: Path, manifest: str) -> dict[str, bytes]:
    root.mkdir()
    return files(render_project(root, manifest))


def is_binary(name: str) -> bool:
    return name.startswith(".wavegen/seccomp/") and name.endswith(".bpf")


def files(root: Path) -> dict[str, bytes]:
    return {name: content for name, (_, content) in snapshot(root).items() if isinstance(content, bytes) and content and name != "wave.yaml"}


@pytest.mark.parametrize("field", NAMES)
def test_a_hostile_name_is_refused_at_its_place(tmp_path: Path, field: str) -> None:
    manifest, place = NAMES[field]
    for text in ("../x", *(() if field in ("image", "image's base") else ("a/b",)), *HOSTILE):
        done = refused(project(tmp_path, manifest % quoted(text)))
        assert [at for _, at, _ in errors(done)] == [place], text


def test_a_hostile_project_directory_name_is_in_no_rendered_file(tmp_path: Path) -> None:
    hostile = tmp_path / "a b'$(touch owned)\n\"{{x}}"
    hostile.mkdir()
    assert files(render_project(hostile)) == files(render_project(tmp_path))


@pytest.mark.parametrize(
    "name", [pytest.param("a\nb.yaml", id="newline"), pytest.param("a\x1bb.yaml", id="escape"), pytest.param(os.fsdecode(b"\xff.yaml"), id="not-utf-8")]
)
def test_a_manifest_file_whose_name_would_break_the_header_is_refused_or_spelled_out(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, MINIMAL)
    (root / name).write_text(MINIMAL)
    done = call("render", "--manifest", name, cwd=root)
    assert "wavegen: bug" not in done.output
    if done.status == 0:
        assert (root / "flake.nix").read_text("utf-8").split("\n")[1] == "{"
        assert (root / ".wavegen/bin/default").read_text("utf-8").split("\n")[2] == "#"
    else:
        clear(done, 2)


# --- files that are no files, or may not be read


def process(root: Path, *args: str, status: int, needle: str) -> None:
    before = snapshot(root)
    done = wavegen(*(args or ("render",)), cwd=root, prefix=without_privileges(), timeout=20)
    clear(done, status)
    assert needle in done.stderr
    assert re.search(r"\(.+\)$", done.stderr.strip())
    assert snapshot(root) == before


def test_a_manifest_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").mkdir()
    assert "wave.yaml is a directory" in refused(tmp_path).stderr


def test_a_manifest_that_is_a_dangling_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").symlink_to("nowhere")
    assert "wave.yaml does not exist" in refused(tmp_path).stderr


def test_a_manifest_that_is_a_symlink_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").symlink_to("wave.yaml")
    assert "wave.yaml cannot be read" in refused(tmp_path, status=3).stderr


@pytest.mark.parametrize("name", ["wave.yaml", "wave.sandbox.yaml"])
def test_an_input_that_is_a_fifo_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, MINIMAL)
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    try:
        done = wavegen("render", cwd=root, timeout=5)
    except subprocess.TimeoutExpired:
        pytest.fail("waits for a writer")
    clear(done, 2)


def test_an_endless_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").symlink_to("/dev/zero")
    bounded = ("bash", "-c", 'ulimit -v 1000000; exec "$@"', "bash")
    done = wavegen("render", cwd=tmp_path, prefix=bounded, timeout=20)
    clear(done, 2)


@pytest.mark.needs("user")
def test_a_manifest_that_cannot_be_read_is_the_machines_fault(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    (root / "wave.yaml").chmod(0)
    process(root, status=3, needle="wave.yaml cannot be read: Permission denied (check its permissions)")


@pytest.mark.needs("user")
def test_an_output_that_cannot_be_read_is_the_machines_fault(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    (root / "flake.nix").chmod(0)
    process(root, status=3, needle="flake.nix cannot be read: Permission denied")


@pytest.mark.needs("user")
def test_a_project_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    root.chmod(0o555)
    try:
        process(root, status=3, needle=".wavegen cannot be written: Permission denied (check the permissions of the project directory)")
    finally:
        root.chmod(0o755)


@pytest.mark.needs("user")
def test_a_tree_that_cannot_be_written_keeps_every_file(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    (root / "wave.yaml").write_text("metadata: {name: other}\n")
    (root / ".wavegen").chmod(0o555)
    try:
        process(root, status=3, needle="cannot be written: Permission denied")
    finally:
        (root / ".wavegen").chmod(0o755)


@pytest.mark.parametrize(
    ("place", "target"),
    [
        pytest.param("flake.nix", "victim", id="file"),
        pytest.param("flake.nix", "nowhere", id="dangling-file"),
        pytest.param("flake.lock", "victim", id="lock"),
        pytest.param(".wavegen", "elsewhere", id="directory"),
        pytest.param(".wavegen", "nowhere", id="dangling-directory"),
        pytest.param(".wavegen/bin", "../elsewhere", id="directory-inside"),
        pytest.param(".wavegen/bin/default", "../../victim", id="deep-file"),
        pytest.param(".wavegen/lock.json", "../victim", id="digests"),
        pytest.param(".wavegen/.tmp", "../elsewhere", id="work-directory"),
    ],
)
def test_a_symlink_where_an_output_goes_is_refused_and_not_followed(tmp_path: Path, place: str, target: str) -> None:
    root = project(tmp_path, MINIMAL)
    (root / "victim").write_text("precious")
    (root / "elsewhere").mkdir()
    (root / "elsewhere/precious").write_text("precious")
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(target)
    done = refused(root)
    assert f"{place} is a symlink; writing through it could change any file (remove the link, then render again)" in done.stderr


@pytest.mark.parametrize(
    ("place", "text"),
    [
        pytest.param("flake.nix", "flake.nix is a directory where a file is to be written (move it away)", id="flake"),
        pytest.param(".wavegen/bin/default", ".wavegen/bin/default is a directory where a file is to be written", id="wrapper"),
        pytest.param(".wavegen/lock.json", ".wavegen/lock.json is a directory", id="digests"),
    ],
)
def test_a_directory_where_a_file_goes_is_refused(tmp_path: Path, place: str, text: str) -> None:
    root = project(tmp_path, MINIMAL)
    (root / place).mkdir(parents=True)
    assert text in refused(root).stderr


@pytest.mark.parametrize("place", [".wavegen", ".wavegen/bin"])
def test_a_file_where_a_directory_goes_is_refused(tmp_path: Path, place: str) -> None:
    root = project(tmp_path, MINIMAL)
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).write_text("x")
    assert "(move it away)" in refused(root).stderr


def test_a_fifo_where_a_file_goes_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    os.mkfifo(root / "flake.nix")
    assert "flake.nix is neither a file nor a directory (move it away)" in refused(root).stderr


@pytest.mark.parametrize(
    "lock",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '{"inputs": 1}',
        '{"inputs": {}, "outputs": []}',
        '{"inputs": {}, "outputs": {"../../victim": "x", "/etc/passwd": "y"}}',
        "\x00",
        "[" * 100_000,
    ],
)
def test_a_broken_lock_is_no_lock_and_removes_nothing(tmp_path: Path, lock: str) -> None:
    root = project(tmp_path, MINIMAL)
    (tmp_path / "victim").write_text("precious")
    (root / ".wavegen").mkdir()
    (root / ".wavegen/lock.json").write_text(lock)
    done = call("render", cwd=root)
    assert done.status == 0, done.output
    assert "wavegen: bug" not in done.output
    assert (tmp_path / "victim").read_text() == "precious"
    assert call("render", "--check", cwd=root).status == 0


# --- where and how it is called


def test_no_manifest_here_or_above_is_said(tmp_path: Path) -> None:
    assert "there is no wave.yaml here or above (run wavegen init to write one, or name it with --manifest)" in refused(tmp_path).stderr


def test_a_manifest_that_is_named_and_missing_is_said(tmp_path: Path) -> None:
    assert "x.yaml does not exist (run wavegen init to write one)" in refused(tmp_path, "render", "-m", "x.yaml").stderr


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    argv = ["sh", "-c", 'rmdir ../gone; exec "$@"', "sh", *WAVEGEN, "render"]
    done = subprocess.run(argv, cwd=gone, env=environment(), capture_output=True, text=True, timeout=20, check=False)
    clear(Result(done.returncode, done.stdout, done.stderr), 2)


@pytest.mark.parametrize("command", ["plan", "render"])
def test_an_output_that_cannot_be_written_to_is_no_bug(tmp_path: Path, command: str) -> None:
    root = project(tmp_path, MINIMAL)
    argv = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *WAVEGEN, command]
    done = subprocess.run(argv, cwd=root, env=environment(), capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode not in (0, 70)
    assert "wavegen: bug" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_shell_for_run_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    assert "there is no shell 'restrictd' (did you mean 'restricted'?)" in refused(root, "run", "--shell", "restrictd", "true", status=125).stderr
    assert "there is no shell 'x' (shells: default, restricted, yolo)" in refused(root, "run", "--shell", "x", "true", status=125).stderr


def test_an_unknown_back_end_for_run_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    assert "there is no back end 'doker' to start a command with (did you mean 'docker'?)" in refused(root, "run", "-b", "doker", "true", status=125).stderr
    assert "(back ends: bubblewrap, docker, landlock)" in refused(root, "run", "-b", "none", "true", status=125).stderr
    done = refused(root, "run", "-b", "bubblewrap", "--artifacts", "x", "true", status=125)
    assert "--artifacts is for containers (choose docker as the back end" in done.stderr


def test_a_broken_manifest_stops_every_command(tmp_path: Path) -> None:
    root = project(tmp_path, SANDBOX + "    pakages: []\n")
    commands = (("render",), ("render", "--check"), ("render", "--diff"), ("plan",), ("plan", "--json"))
    # The status of `run` is its command's own, so its own failures are all 125.
    shown = {refused(root, *args).stderr for args in commands} | {refused(root, "run", "true", status=125).stderr}
    assert len(shown) == 1
    assert "did you mean 'packages'?" in shown.pop()


# --- the overlay


def policy_of(root: Path) -> dict[str, object]:
    done = call("plan", "--json", cwd=root)
    assert done.status == 0, done.output
    plan = json.loads(done.stdout)
    assert isinstance(plan, dict)
    return plan


def test_an_overlay_merges_mappings_and_replaces_everything_else(tmp_path: Path) -> None:
    base = SANDBOX + "    packages: [go, gh]\n    home: tmpfs\n    shells: {ci: {network: none, packages: [jq]}}\n    limits: {pids: 50, cpus: 2}\n"
    over = "runtime:\n  sandbox:\n    packages: [git]\n    shells: {ci: {network: host}, extra: {}}\n    limits: {pids: 90}\n"
    plan = policy_of(project(tmp_path, base, over))
    shells = plan["shells"]
    assert isinstance(shells, dict)
    assert set(shells) == {"default", "restricted", "yolo", "ci", "extra"}
    ci = shells["ci"]
    assert [p["attribute"] for p in ci["packages"]] == [["git"], ["jq"]]  # the list is replaced, the shell's own stays
    assert ci["network"] == {"mode": "host", "origin": "wave.sandbox.yaml:4", "domains": [], "loopback": []}
    assert (ci["limits"]["pids"], ci["limits"]["cpus"]) == (90, 2.0)
    home = next(rule for rule in ci["paths"] if rule["path"] == "~")
    assert home["access"] == "scratch"
    assert home["origin"] == "wave.yaml:5"
    assert plan["overlay"] == "wave.sandbox.yaml"


def test_an_overlay_may_be_the_only_place_of_a_section(tmp_path: Path) -> None:
    shells = policy_of(project(tmp_path, MINIMAL, "runtime: {sandbox: {shells: {ci: {}}}}\n"))["shells"]
    assert isinstance(shells, dict)
    assert "ci" in shells


@pytest.mark.parametrize("overlay", ["", "# nothing\n"])
def test_an_empty_overlay_changes_nothing(tmp_path: Path, overlay: str) -> None:
    with_overlay = policy_of(project(tmp_path, SANDBOX + "    packages: [go]\n", overlay))
    (tmp_path / "project/wave.sandbox.yaml").unlink()
    without = json.loads(
        json.dumps(policy_of(tmp_path / "project")["shells"]).replace(
            '"./wave.sandbox.yaml", "access": "read", ', '"./wave.sandbox.yaml", "access": "read", "required": true, '
        )
    )
    assert with_overlay["shells"] == without


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        pytest.param("runtime: {sandbox: {pakages: []}}\n", [("wave.sandbox.yaml", "1:21")], id="unknown-key"),
        pytest.param("runtime:\n  sandbox:\n    backend: podman\n", [("wave.sandbox.yaml", "3:14")], id="wrong-value"),
        pytest.param("runtime:\n  sandbox:\n    packages: [a b]\n", [("wave.sandbox.yaml", "3:16")], id="meaning"),
        pytest.param("a: [\n", [("wave.sandbox.yaml", "2:1")], id="syntax"),
        pytest.param("- x\n", [("wave.sandbox.yaml", "1:1")], id="list-at-the-top"),
        pytest.param("runtime: {sandbox: {home: x}}\n", [("wave.sandbox.yaml", "1:27")], id="value-of-a-written-key"),
    ],
)
def test_a_mistake_in_the_overlay_names_the_overlay(tmp_path: Path, overlay: str, expected: list[tuple[str, str]]) -> None:
    shown = errors(refused(project(tmp_path, SANDBOX + "    home: tmpfs\n", overlay)))
    assert [(file, at) for file, at, _ in shown] == expected


def test_mistakes_of_both_files_are_shown_together(tmp_path: Path) -> None:
    root = project(tmp_path, SANDBOX + "    pakages: []\n    shells: {a: {x: 1}}\n", "runtime: {sandbox: {bakend: none, shells: {a: {y: 1}}}}\n")
    shown = errors(refused(root))
    assert [(file, at) for file, at, _ in shown] == [("wave.sandbox.yaml", "1:21"), ("wave.sandbox.yaml", "1:48"), ("wave.yaml", "4:5"), ("wave.yaml", "5:18")]


def test_an_overlay_that_is_new_since_the_last_render_is_refused_until_accepted(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    (root / "wave.sandbox.yaml").write_text("runtime: {sandbox: {shells: {default: {network: host}}}}\n")
    for args, status in ((("render",), 2), (("render", "--check"), 2), (("render", "--diff"), 2), (("run", "true"), 125)):
        done = refused(root, *args, status=status)
        assert "wave.sandbox.yaml is new since the last render: a shell may have written it (read it, then run wavegen render --accept-new)" in done.stderr
    assert call("render", "--accept-new", cwd=root).status == 0
    assert call("render", "--check", cwd=root).status == 0
    # Once known it may change: inside a shell it is read-only.
    (root / "wave.sandbox.yaml").write_text("runtime: {sandbox: {shells: {ci: {}}}}\n")
    assert call("render", cwd=root).status == 0
    assert (root / ".wavegen/bin/ci").exists()


def test_an_overlay_that_is_there_at_the_first_render_needs_no_acceptance(tmp_path: Path) -> None:
    root = render_project(tmp_path, overlay="runtime: {sandbox: {shells: {ci: {}}}}\n")
    assert (root / ".wavegen/bin/ci").exists()

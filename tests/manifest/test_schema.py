"""The JSON Schema that editors use and the decoder accept and refuse the same manifests."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import MINIMAL, ROOT, call, render_project
from jsonschema import Draft202012Validator

from wavegen.core.errors import Location, Severity
from wavegen.manifest import yaml_nodes
from wavegen.manifest.decoder import Decoder
from wavegen.manifest.json_schema import manifest_schema
from wavegen.manifest.model import Manifest
from wavegen.manifest.yaml_nodes import Map, Messages, Node, Scalar, Sequence, Source

AT = Location("f", 1, 1)
VALIDATOR = Draft202012Validator(manifest_schema())
# Patterns are about meaning, which the planner judges and not the decoder.
SHAPE = Draft202012Validator(json.loads(re.sub(r', "pattern": "[^"]*"', "", json.dumps(manifest_schema()))))

EVERYTHING = """
apiVersion: v1
kind: WaveManifest
metadata: {name: x, description: y, repo: z, forge: github}
project: {language: go, services: {a: {path: b}}, test_file_pattern: [a]}
adapters:
  claude: {binary: claude, mode: headless, default_permissions: {allowed_tools: [Read], deny: [Bash]}, tier_models: {a: b}, project_files: [a]}
personas:
  navigator:
    adapter: claude
    temperature: 0.5
    permissions: {allowed_tools: [Read], deny: [Write]}
    hooks: {PreToolUse: [{matcher: Bash, command: x}], PostToolUse: [{command: y}]}
    sandbox: {shell: restricted, allowed_domains: [x.org, {host: z.org}], deny_read_paths: [~/.ssh]}
    skills: [a]
  bare:
server: {bind: x}
hooks: [{name: a}]
runtime:
  workspace_root: .agents
  timeouts: {step_default_minutes: 5}
  sandbox:
    enabled: true
    backend: bubblewrap
    docker_image: 24.04
    docker_base: 'node:22@sha256:0000000000000000000000000000000000000000000000000000000000000000'
    docker_packages: {go: golang, gh: false, jq: [jq, 'npm:@a/b@1.2'], 'yes':, empty: []}
    default_allowed_domains: [x.org, 'y.org:22', {host: z.org, allow_private: true, allow_no_sni: true, tls: false}]
    denied_domains: [bad.x.org]
    upstream_proxy: true
    env_passthrough: [A]
    allow_unsandboxed_commands: false
    deny_read_paths: [~/.aws]
    fallback: error
    packages: [go]
    unfree: [claude-code]
    package: nix/package.nix
    paths: [{path: ~/.gitconfig, access: read, optional: true}, {path: /x, access: write, socket: true}]
    home: private
    limits: {pids: 512, memory: 4g, cpus: 1.5, tmp: 2g}
    seccomp: default
    shells:
      ci: {sandbox: true, network: filtered, domains: [z.org, {host: y.org}], denied_domains: [bad.org], loopback: [5432], packages: [jq],
           paths: [{path: a, access: read}], nested: false}
      empty:
"""
REPLACEMENTS = ["~", "text", "5", "0.5", "true", "'5'", "''", "[]", "[text]", "[5]", "[~]", "[[a]]", "[{a: b}]", "{}", "{zzz: 1}", "{name: x}", "read"]


def parse(text: str) -> Map:
    decoder = Decoder(Messages())
    root = yaml_nodes.parse_yaml(Source("f", text.encode()), decoder.messages)
    assert root is not None
    assert not decoder.messages.problems
    return root


def instance(node: Node) -> Any:
    """What an editor hands to the schema: a node with the types of YAML's core schema."""
    match node:
        case Map(entries=entries):
            return {name: instance(child) for name, (_, child) in entries.items()}
        case Sequence(items=items):
            return [instance(item) for item in items]
        case Scalar() if node.is_null:
            return None
        case Scalar(text=text, plain=True):
            if text in ("true", "false"):
                return text == "true"
            if re.fullmatch(r"[-+]?[0-9]+", text):
                return int(text)
            return float(text) if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text) else text
        case _:
            return node.text


def decoder_takes(root: Map) -> bool:
    decoder = Decoder(Messages())
    decoder.decode_dataclass(Manifest, root)
    return not any(p.severity is Severity.ERROR for p in decoder.messages.problems)


def schema_takes(root: Map, validator: Draft202012Validator = SHAPE) -> bool:
    return bool(validator.is_valid(instance(root)))


def places(node: Node, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every node below the root."""
    match node:
        case Map(entries=entries):
            children: list[tuple[str | int, Node]] = [(name, child) for name, (_, child) in entries.items()]
        case Sequence(items=items):
            children = list(enumerate(items))
        case _:
            children = []
    for step, child in children:
        yield (*path, step)
        yield from places(child, (*path, step))


@contextlib.contextmanager
def changed(root: Map, path: tuple[str | int, ...], new: Node | None) -> Iterator[None]:
    """Another node at a path, or (None) none, for a while: a copy each time would take seconds."""
    node = at(root, path[:-1])
    last: Any = path[-1]
    if isinstance(node, Sequence):
        before: Any = node.items
        node.items = [*before[:last], *([] if new is None else [new]), *before[last + 1 :]]
    else:
        before = node.entries
        node.entries = {name: entry for name, entry in before.items() if name != last} if new is None else {**before, last: (AT, new)}
    yield
    if isinstance(node, Sequence):
        node.items = before
    else:
        node.entries = before


def at(root: Map, path: tuple[str | int, ...]) -> Any:
    """The node at a path."""
    node: Any = root
    for step in path:
        node = node.items[step] if isinstance(node, Sequence) else node.entries[step][1]
    return node


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(manifest_schema())


def test_a_manifest_with_every_key_is_taken_by_both() -> None:
    root = parse(EVERYTHING)
    assert list(VALIDATOR.iter_errors(instance(root))) == []
    assert decoder_takes(root)


def test_decoder_and_schema_take_and_refuse_the_same_changed_manifests() -> None:
    """Every node in turn replaced by something of every kind, removed, or joined by an unknown key."""
    root = parse(EVERYTHING)
    found = {True: 0, False: 0}
    different = []
    replacements: dict[str, Node | None] = {text: parse(f"x: {text}").entries["x"][1] for text in REPLACEMENTS} | {"removed": None}
    for path in list(places(root)):
        for text, new in replacements.items():
            with changed(root, path, new):
                taken = decoder_takes(root)
                found[taken] += 1
                if schema_takes(root) is not taken:
                    different.append((".".join(map(str, path)), text, "decoder takes it" if taken else "schema takes it"))
    assert different == []
    assert found[True] > 400
    assert found[False] > 400


def test_decoder_and_schema_agree_where_a_key_is_unknown() -> None:
    root = parse(EVERYTHING)
    refused = 0
    for path in [(), *places(root)]:
        if isinstance(at(root, path), Map):
            with changed(root, (*path, "zzz"), Scalar(AT, "x", plain=True)):
                taken = decoder_takes(root)
                refused += not taken
                assert schema_takes(root) is taken, path
    assert refused >= 12


@pytest.mark.parametrize("manifest", sorted((ROOT.parent / "shared/manifests").glob("*.yaml")) or [None], ids=lambda path: path.stem if path else "none")
def test_decoder_and_schema_agree_about_real_manifests(manifest: Path | None) -> None:
    if manifest is None:
        pytest.skip("the corpus of real manifests is not beside the repository")
    decoder = Decoder(Messages())
    root = yaml_nodes.parse_yaml(Source("f", manifest.read_bytes()), decoder.messages)
    if root is not None:
        assert schema_takes(root) is decoder_takes(root), list(VALIDATOR.iter_errors(instance(root)))


@pytest.mark.parametrize("size", ["4g", "4G", "512", "512m", "1.5g", "4gb", "g", "", "-1", "4 g"])
def test_planner_and_schema_take_the_same_sizes(tmp_path: Path, size: str) -> None:
    text = f"metadata: {{name: x}}\nruntime: {{sandbox: {{limits: {{tmp: '{size}'}}}}}}\n"
    (tmp_path / "wave.yaml").write_text(text)
    assert schema_takes(parse(text), VALIDATOR) is (call("plan", cwd=tmp_path).status == 0)


def test_the_schema_is_only_stricter_about_words_that_yaml_1_2_no_longer_takes_for_booleans() -> None:
    root = parse("metadata: {name: x}\nruntime: {sandbox: {enabled: yes}}\n")
    assert decoder_takes(root)
    assert not schema_takes(root)


def test_every_key_is_described() -> None:
    definitions = manifest_schema()["$defs"]
    assert {"Manifest", "Sandbox", "Shell", "PathEntry", "Limits", "Permissions", "PersonaSandbox", "Hook"} <= set(definitions)
    undescribed = [f"{name}.{key}" for name, one in definitions.items() for key, field in one["properties"].items() if not field.get("description")]
    assert undescribed == []


def test_an_entry_of_a_list_of_domains_is_text_or_a_mapping() -> None:
    definitions = manifest_schema()["$defs"]
    text, mapping = definitions["Sandbox"]["properties"]["default_allowed_domains"]["items"]["anyOf"]
    assert "string" in text["type"]
    assert mapping["$ref"] == "#/$defs/DomainEntry"
    assert definitions["DomainEntry"]["required"] == ["host"]
    assert definitions["DomainEntry"]["additionalProperties"] is False


def test_the_command_prints_what_render_writes(tmp_path: Path) -> None:
    root = render_project(tmp_path, MINIMAL)
    printed = call("schema", cwd=root).stdout
    assert printed == (root / ".wavegen/wave.schema.json").read_text("utf-8")
    assert json.loads(printed) == manifest_schema()

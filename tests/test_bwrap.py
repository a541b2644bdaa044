"""The wrapper as text: order of mounts, one rule a line, and nothing that differs from run to run."""

from __future__ import annotations

import re

import pytest

from wavegen.backends import bwrap
from wavegen.nodes import Source
from wavegen.planner import plan
from wavegen.policy import Plan

OWN = (("wavegen", "wave.yaml"), ("-", "wave.sandbox.yaml"), ("wavegen", "flake.nix"), ("wavegen", "flake.lock"), ("wavegen", ".wavegen"))


def planned(sandbox: str = "") -> Plan:
    text = "metadata: {name: p}\n" + (f"runtime:\n  sandbox:\n{sandbox}" if sandbox else "")
    return plan(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


def text(shell: str, sandbox: str = "") -> str:
    made = planned(sandbox)
    policy = made.shell(shell)
    assert policy is not None
    return bwrap.wrapper(made, policy)


def lines(shell: str, sandbox: str = "") -> list[str]:
    return [line.split("  # ")[0].strip() for line in text(shell, sandbox).splitlines()]


@pytest.mark.parametrize("shell", ["default", "restricted"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--dev /dev", "--proc /proc"),
        ("--proc /proc", "--ro-bind /proc/sys /proc/sys"),
        ("--dev /dev", "--perms 1777 --size 2147483648 --tmpfs /dev/shm"),
        ("--perms 0755 --size 2147483648 --tmpfs /run", "--ro-bind-try /run/current-system /run/current-system"),
        ("--ro-bind /proc/sys /proc/sys", "--perms 1777 --size 2147483648 --tmpfs /tmp"),
    ],
)
def test_what_lies_deeper_is_mounted_later(shell: str, before: str, after: str) -> None:
    all_lines = lines(shell)
    assert all_lines.index(before) < all_lines.index(after)


def test_the_root_comes_before_everything() -> None:
    mounts = [line for line in lines("default") if line.startswith(("--ro-bind", "--tmpfs", "--dev", "--proc", "--bind"))]
    assert mounts[0] == "--ro-bind / /"


def test_a_deeper_rule_of_the_manifest_follows_the_mask_it_lies_in() -> None:
    all_lines = lines("default", "    paths: [{path: /var/lib/mine, access: read}, {path: /srv, access: read}]\n")
    assert all_lines.index("/var") < all_lines.index("named read wave.yaml:4 /var/lib/mine")
    assert "/srv" not in all_lines


def test_a_default_rule_inside_a_granted_directory_still_holds() -> None:
    all_lines = lines("default", "    paths: [{path: /etc, access: read}]\n")
    assert all_lines.index("named read wave.yaml:4 /etc") < all_lines.index("/etc/shadow")


def test_own_files_come_last_and_are_pinned() -> None:
    rules = [
        line
        for line in lines("default", "    deny_read_paths: [secret]\n    paths: [{path: src, access: write}]\n")
        if line.startswith("rule ") and "$wg_" in line
    ]
    pins = [f'rule pin {who} "$wg_project"/{name}' for who, name in OWN]
    assert rules[-5:] == pins
    assert rules.index('rule write wave.yaml:5 "$wg_project"/src') < rules.index('rule hide wave.yaml:4 "$wg_project"/secret')


def test_a_dotfile_keeps_its_dot() -> None:
    assert 'rule read+optional wave.yaml:4 "$wg_home"/.ssh/config' in lines("default", "    paths: [{path: ~/.ssh/config, access: read, optional: true}]\n")


@pytest.mark.parametrize(
    ("sandbox", "shell", "option", "there"),
    [
        ("", "default", "--unshare-net", False),
        ("", "restricted", "--unshare-net", True),
        ("    shells: {own: {network: none}}\n", "own", "--unshare-net", True),
        ("    shells: {own: {network: open}}\n", "own", "--unshare-net", True),
        ("    shells: {own: {network: host}}\n", "own", "--unshare-net", False),
        ("    shells: {own: {}}\n", "own", "--unshare-net", True),
        ("", "default", "--disable-userns", True),
        ("    shells: {own: {nested: true}}\n", "own", "--disable-userns", False),
        ("", "default", "--cap-drop ALL", True),
        ("", "default", "--unshare-user", True),
        ("", "default", "--die-with-parent", True),
    ],
)
def test_an_option_is_there_exactly_where_the_policy_asks_for_it(sandbox: str, shell: str, option: str, there: bool) -> None:
    assert (option in lines(shell, sandbox)) == there


def test_every_rule_names_where_it_comes_from() -> None:
    made = text("default", "    paths: [{path: ~/.gitconfig, access: read}]\n    env_passthrough: [TOKEN_A]\n")
    rules = re.findall(r"^ +(?:--|/|rule|named|neighbours|[A-Z_]+ )[^\n]*", made.split("banner()")[0], re.MULTILINE)
    assert len(rules) > 100
    assert [rule for rule in rules if "# default: " not in rule and "# wave.yaml:" not in rule] == []


def test_two_renders_are_the_same_bytes() -> None:
    assert text("default") == text("default")

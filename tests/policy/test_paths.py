"""A path of the manifest names one place, and none from which the fence could be undone."""

from __future__ import annotations

import random

import pytest

from wavegen.core.errors import InvalidValueError
from wavegen.policy.model import Anchor, HostPath
from wavegen.policy.paths import granted_path, holds_socket, host_path, is_device

ROOT, HOME, PROJECT = Anchor.ROOT, Anchor.HOME, Anchor.PROJECT


@pytest.mark.parametrize(
    ("text", "anchor", "tail"),
    [
        pytest.param("~/.gitconfig", HOME, ".gitconfig", id="home"),
        pytest.param("~/.ssh", HOME, ".ssh", id="a-dot-of-its-own"),  # once became ~/ssh
        pytest.param("~", HOME, "", id="home-itself"),
        pytest.param("~/", HOME, "", id="home-with-slash"),
        pytest.param("/", ROOT, "", id="root"),
        pytest.param("//etc///hosts/", ROOT, "etc/hosts", id="slashes"),
        pytest.param("/etc/./hosts", ROOT, "etc/hosts", id="dot"),
        pytest.param(".", PROJECT, "", id="project"),
        pytest.param("./a", PROJECT, "a", id="project-dot"),
        pytest.param("a/b", PROJECT, "a/b", id="relative"),
        pytest.param(".wavegen", PROJECT, ".wavegen", id="hidden"),
        pytest.param("..a/b..", PROJECT, "..a/b..", id="dots-in-names"),
        pytest.param("a/~/b", PROJECT, "a/~/b", id="tilde-inside"),
        pytest.param("./~", PROJECT, "~", id="file-named-tilde"),
        pytest.param("a b'\"$(x)\n", PROJECT, "a b'\"$(x)\n", id="hostile"),
    ],
)
def test_a_path_becomes_an_anchor_and_a_folded_tail(text: str, anchor: Anchor, tail: str) -> None:
    assert host_path(text) == HostPath(anchor, tail)


@pytest.mark.parametrize("text", ["/etc/hosts", "~/.ssh", "a/b", "..a", "/"])
def test_a_path_reads_as_it_is_shown(text: str) -> None:
    shown = str(host_path(text))
    assert host_path(shown.removeprefix("./")) == host_path(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param(" \t", "empty", id="blank"),
        pytest.param("..", "goes up", id="up"),
        pytest.param("a/../b", "goes up", id="up-inside"),
        pytest.param("~/..", "goes up", id="above-home"),
        pytest.param("/..", "goes up", id="above-root"),
        pytest.param("~root", "another user's home", id="user"),
        pytest.param("~.ssh", "another user's home", id="user-by-mistake"),
        pytest.param("*", "pattern", id="star"),
        pytest.param("a/b?", "pattern", id="question-mark"),
        pytest.param("/x[0-9]", "pattern", id="range"),
        pytest.param("~/**/x", "pattern", id="double-star"),
    ],
)
def test_a_path_that_would_mean_something_else_is_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidValueError, match=what) as caught:
        host_path(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["/", "//", "/.", "~", "~/", "~/.", "/proc", "/proc/", "/proc/self/root", "/dev", "/dev/"])
def test_the_whole_of_a_place_cannot_be_granted(text: str) -> None:
    with pytest.raises(InvalidValueError):
        granted_path(text)


@pytest.mark.parametrize("text", ["/dev/kvm", "/process", "/etc/hosts", "~/.gitconfig", "a", "/developer", "/device/x"])
def test_other_paths_can_be_granted(text: str) -> None:
    assert granted_path(text) == host_path(text)


@pytest.mark.parametrize(
    ("text", "socket"),
    [
        pytest.param("/run/docker.sock", "/run/docker.sock", id="itself"),
        pytest.param("/run", "/run/docker.sock", id="above"),
        pytest.param("/run/user/1000/bus", "/run/user", id="below"),
        pytest.param("/var", "/var/run/docker.sock", id="by-the-old-name"),
        pytest.param("/nix/var/nix/daemon-socket", "/nix/var/nix/daemon-socket", id="nix"),
        pytest.param("/nix", "/nix/var/nix/daemon-socket", id="above-nix"),
        pytest.param("/tmp", "/tmp/.X11-unix", id="tmp"),
        pytest.param("~/.gnupg", "~/.gnupg", id="gpg"),
        pytest.param("~/.ssh", "~/.ssh/agent", id="ssh"),
        pytest.param("~/.ssh/config", None, id="beside-the-agent"),
        pytest.param("/run/docker.socket", None, id="another-name"),
        pytest.param("run/docker.sock", None, id="in-the-project"),
        pytest.param("/nix/store", None, id="store"),
        pytest.param("~/.docker/config.json", None, id="docker-settings"),
    ],
)
def test_known_sockets_are_found_at_above_and_below_a_path(text: str, socket: str | None) -> None:
    found = holds_socket(host_path(text))
    assert (str(found) if found else None) == socket


@pytest.mark.parametrize(("text", "device"), [("/dev/kvm", True), ("/dev", True), ("/developer", False), ("dev/kvm", False), ("~/dev", False)])
def test_devices_are_known_by_their_place(text: str, device: bool) -> None:
    assert is_device(host_path(text)) is device


def test_a_path_holds_itself_and_what_is_below_it_and_nothing_beside_it() -> None:
    a = host_path("~/a")
    assert a.contains_path(a)
    assert a.contains_path(host_path("~/a/b"))
    assert host_path("~").contains_path(a)
    for other in ("~/ab", "~", "/a", "a"):
        assert not a.contains_path(host_path(other))


def test_no_path_that_is_taken_leads_out_of_its_anchor() -> None:
    """Of 20 000 random spellings, none that is taken has a tail that goes up, starts at the root or is not folded."""
    chance = random.Random(3)
    taken = 0
    for _ in range(20_000):
        text = "".join(chance.choices(["/", "~", ".", "..", "a", " ", "//", "*", "\n"], k=chance.randint(1, 7)))
        try:
            path = host_path(text)
        except InvalidValueError:
            continue
        taken += 1
        assert not set(path.tail_parts()) & {"", ".", ".."}, text
        assert not path.tail.startswith("/"), text
        assert (path.anchor is ROOT) == text.startswith("/"), text
    assert taken > 2_000

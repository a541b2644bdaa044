"""The image of a project's containers: what may be written for it, the Dockerfile that is made of it, and a build of that."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import call, project, render_project

from wavegen.backends.sandboxes import image
from wavegen.core.errors import InvalidValueError, ManifestError
from wavegen.manifest.images import check_image_reference, is_digest_pinned, is_package_name, local_image
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy import distro_packages
from wavegen.policy.distro_packages import ALPINE, DEBIAN, FEDORA, Found, distribution_of, packages_for_attribute
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest

if TYPE_CHECKING:
    from engine import Engine

HEX = "0123456789abcdef" * 4
SANDBOX = "metadata: {name: demo}\nruntime:\n  sandbox:\n"


def planned(text: str) -> Plan:
    return plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")


def sandbox(text: str, before: str = "") -> Plan:
    return planned(f"metadata: {{name: demo}}\n{before}runtime:\n  sandbox: {{{text}}}\n")


def said(found: Plan) -> list[str]:
    return sorted(f"{gap.origin.at.line if gap.origin.at else '-'}: {gap.effect.value}: {gap.what}" for gap in image.gaps(found))


# --- references


@pytest.mark.parametrize(
    "text",
    [
        "debian",
        "24.04",
        "debian:stable-slim",
        "a/b/c:1_2.3-4",
        "localhost/a:x",
        "localhost:5000/a",
        "registry.example.org:5000/team/image",
        "Registry.Example.org/team/image:V1",
        "ghcr.io/a/b__c.d-e---f@sha256:" + HEX,
        "debian:stable-slim@sha256:" + HEX,
    ],
)
def test_what_docker_takes_for_a_reference_is_one(text: str) -> None:
    assert check_image_reference(text) == text
    assert is_digest_pinned(text) is ("@" in text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-x", "--privileged", "debian ", " debian", "Debian", "team/Image", "Team/image", "a//b", "/a", "a/", "a:", ":x", "a:b:c", "a:-x",
        "a@sha256:" + HEX[:-1], "a@sha256:" + HEX.upper(), "a@md5:" + HEX, "a@", HEX, "a" * 256, "a:" + "x" * 129, "a b", "a\nb", "a\n", "$a", "${a}", "a$b",
        "`a`", "a;b", "a&b", "a|b", "a#b", "a'b", 'a"b', "a\\", "é", "a/é", "a..b", "a___b", ".a", "a.", "_a", "[::1]:5000/a", "a:5000000/b", "http://a/b",
        "a AS b", "--platform=x a", "a\tb", "a\x00",
    ],
)  # fmt: skip
def test_what_docker_refuses_or_takes_for_something_else_is_no_reference(text: str) -> None:
    with pytest.raises(InvalidValueError):
        check_image_reference(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker_image: Debian:12", "3:27: error: docker_image: 'Debian:12' is not the name of an image (names are in lower case: debian:12)"),
        ("docker_image: Team/x", "3:27: error: docker_image: 'Team/x' is not the name of an image (names are in lower case: team/x)"),
        ("docker_base: scratch", "3:26: error: docker_base: scratch is empty, and nothing can be installed in it"),
        ("docker_base: --x", "3:26: error: docker_base: '--x' is not the name of an image (write it as debian:stable-slim"),
        ("docker_packages: {jq: 'jq;x'}", "3:35: error: docker_packages: 'jq;x' cannot name a package"),
        ("docker_packages: {jq: [jq, -y]}", "3:40: error: docker_packages: '-y' cannot name a package"),
        ("docker_packages: {a b: x}", "3:31: error: docker_packages: 'a b' is not a nixpkgs attribute path"),
        ("docker_packages: {jq: {a: b}}", "3:35: error: runtime.sandbox.docker_packages.jq: expected text or a list, got a mapping"),
        ("docker_packages: [jq]", "3:30: error: runtime.sandbox.docker_packages: expected a mapping, got a list"),
    ],
)
def test_what_cannot_be_named_is_said_where_it_stands(text: str, expected: str) -> None:
    with pytest.raises(ManifestError) as failed:
        sandbox(text)
    lines = [line for problem in failed.value.message_lines() if ": warning: " not in (line := problem.split("\n")[0])]
    assert len(lines) == 1
    assert lines[0].startswith(f"wave.yaml:{expected}"), lines


def test_names_for_what_nobody_lists_are_noticed() -> None:
    notes = [problem.message_line() for problem in sandbox("packages: [jq], docker_packages: {jq: jq, gh: gh, git: false, claude-code: false}").notes]
    assert notes == ["wave.yaml:3:55: warning: docker_packages: gh is not in packages; the entry has no effect (list it there, or remove it here)"]


@pytest.mark.parametrize(
    "name", ["jq", "g++", "libstdc++6", "python3.11", "git=1:2.39.5-0+deb12u2", "jq=1.7.1-r0", "npm:x", "npm:@a/b", "npm:@a/b@1.2.3", "npm:x@latest"]
)
def test_a_package_is_named_as_its_manager_takes_it(name: str) -> None:
    assert is_package_name(name)
    # Whatever is let through is one word of a shell's that is no option.
    assert shlex.split(name.removeprefix("npm:"), comments=True) == [name.removeprefix("npm:")]


@pytest.mark.parametrize(
    "name",
    ["", "-y", "--force", "git-", "git=", "a b", "a;b", "a&&b", "$a", "a'b", "a\nb", "a\n", "#a", "./a.deb", "/a.deb", "a/b", "@group", "a*", "^a", "npm:", "npm:-g",
     "npm:a b", "npm:a@file:x", "npm:git+https://x/y", "npm:a/b", "npm:../x", "npm:@a", "npm:https://x", "npm:A", "npm:a@^1", "npm:npm:a"],
)  # fmt: skip
def test_what_a_manager_takes_for_something_else_names_no_package(name: str) -> None:
    assert not is_package_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("demo", "demo"), ("Ünï x", "uni-x"), ("a..b__c", "a-b-c"), ("--", "project"), ("日本", "project"), ("$(x)\n#", "x"), ("a" * 300, "a" * 100)],
)
def test_a_project_of_any_name_has_an_image(name: str, expected: str) -> None:
    assert check_image_reference(local_image(name)) == f"wavegen/{expected}:latest"


# --- distributions


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("debian:stable-slim", DEBIAN),
        ("ubuntu:24.04", DEBIAN),
        ("node:22-bookworm", DEBIAN),
        ("registry.example.org/alpinist/image", DEBIAN),
        ("alpine", ALPINE),
        ("node:22-alpine3.19", ALPINE),
        ("docker.io/library/golang:1.22-alpine@sha256:" + HEX, ALPINE),
        ("fedora:41", FEDORA),
        ("registry.access.redhat.com/ubi9/ubi:9.4", FEDORA),
        ("quay.io/centos/centos:stream9", FEDORA),
    ],
)
def test_a_distribution_is_told_by_the_name_of_its_image(base: str, expected: distro_packages.Distribution) -> None:
    assert distribution_of(base) is expected


@pytest.mark.parametrize(
    ("attribute", "debian", "alpine", "fedora"),
    [
        ("jq", "jq", "jq", "jq"),
        ("go", "golang-go", "go", "golang"),
        ("gcc", "gcc g++ libc6-dev", "gcc g++ musl-dev", "gcc gcc-c++ glibc-devel"),
        ("jdk21", "openjdk-21-jdk-headless", "openjdk21-jdk", "java-21-openjdk-devel"),
        ("python3Packages.Foo_bar", "python3-foo-bar", "py3-foo-bar", "python3-foo-bar"),
        ("terraform", None, None, None),
        ("uv", None, "uv", "uv"),
        ("llvmPackages.clang", None, None, None),
        ("a'b", None, None, None),
        ("Foo", None, None, None),
    ],
)
def test_an_attribute_has_the_names_of_a_distribution(attribute: str, debian: str | None, alpine: str | None, fedora: str | None) -> None:
    for where, expected in ((DEBIAN, debian), (ALPINE, alpine), (FEDORA, fedora)):
        assert packages_for_attribute(where, attribute) == (None if expected is None else Found(tuple(expected.split()))), where.name


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [("nodejs_22", "nodejs npm"), ("python312", "python3"), ("go_1_22", "golang-go"), ("postgresql_16", "postgresql"), ("gcc13", "gcc g++ libc6-dev")],
)
def test_a_version_is_the_distributions(attribute: str, expected: str) -> None:
    assert packages_for_attribute(DEBIAN, attribute) == Found(tuple(expected.split()), other_version=True)


def test_a_package_of_npm_keeps_its_name() -> None:
    assert packages_for_attribute(DEBIAN, "nodePackages.js_beautify") == Found((), ("js_beautify",))


def test_programs_of_agents_are_of_npm() -> None:
    for attribute in distro_packages.AGENTS.values():
        for where in (DEBIAN, ALPINE, FEDORA):
            found = packages_for_attribute(where, attribute)
            assert found
            assert (found.names, len(found.npm)) == ((), 1)


def test_whatever_stands_in_the_table_could_be_written() -> None:
    names = [
        name
        for where in (DEBIAN, ALPINE, FEDORA)
        for attribute in distro_packages._TABLE
        if (found := packages_for_attribute(where, attribute))
        for name in found.names
    ]
    assert len(names) > 150
    assert all(is_package_name(name) for name in names)


@pytest.mark.parametrize("prefix", ["", "python3Packages.", "python312Packages.", "nodePackages.", "nodePackages_latest.", "gcc", "jdk", "nodejs_"])
def test_no_attribute_becomes_an_option_of_what_installs_it(prefix: str) -> None:
    """nodePackages._g would be npm's -g, and apt-get takes python3-x- for a package to remove."""
    rests = ["".join(letters) for length in range(4) for letters in itertools.product("aA9-_'.", repeat=length)]
    found = [packages_for_attribute(where, prefix + rest) for where in (DEBIAN, ALPINE, FEDORA) for rest in rests]
    names = {name for one in found if one for name in (*one.names, *(f"npm:{name}" for name in one.npm))}
    assert names or prefix == ""
    assert {name for name in names if not is_package_name(name)} == set()


# --- the Dockerfile

BASE = """\
# Generated by wavegen from wave.yaml. Do not edit: change the manifest, then run: wavegen render
#
# The image of this project's containers. Build it in the project's root:
#   docker build -t wavegen/demo:latest .wavegen/docker
# (podman build takes the same words.) Nothing of the project is sent there, and no secret is asked for.
# Where Nix is, it builds the image of the flake's own packages instead: nix build .#image && docker load <result.
# Started where the PATH leads to Nix's store (nix develop .#yolo, direnv), containers see it read-only: then a base
# with what stands first below is enough. Each package stands below the line that asks for it.
# wave.yaml
FROM alpine:3@sha256:HEX
USER 0:0

# The names are those of Alpine.
RUN apk add --no-cache \\
# default: the shell itself
    bash \\
# default: the probes of wavegen verify
    coreutils \\
# default: work without it would be none
    git \\
# default: the fence's first stage, and the probes
    python3 \\
# default: the fence's first stage where there is no Python
    perl \\
# default: whom TLS trusts
    ca-certificates \\
# wave.yaml
    go \\
# wave.yaml
    jo \\
# default: npm, which installs claude-code
    nodejs \\
# default: npm, which installs claude-code
    npm \\
    && rm -rf /var/cache/apk/*

RUN npm install --global --no-audit --no-fund \\
# wave.yaml: adapter claude
    @anthropic-ai/claude-code@2.1.0 \\
    && rm -rf /root/.npm

# Whoever starts it by hand is nobody in it; our containers are told who they are.
USER 65534:65534
CMD ["bash"]
"""


def test_a_dockerfile_says_of_each_package_why_it_is_there() -> None:
    named = "docker_packages: {jq: jo, gh: false, claude-code: 'npm:@anthropic-ai/claude-code@2.1.0'}"
    found = sandbox(f"docker_base: 'alpine:3@sha256:{HEX}', packages: [go, jq, gh], {named}", "adapters: {claude: {}}\n")
    assert image.dockerfile_text(found) == BASE.replace("HEX", HEX)
    assert said(found) == []


def test_packages_of_every_shell_are_in_the_one_image() -> None:
    text = image.dockerfile_text(sandbox("packages: [jq], shells: {ci: {packages: [gnumake, jq]}, yolo: {packages: [ripgrep]}}"))
    assert [text.count(f"    {name} \\\n") for name in ("jq", "make", "ripgrep", "nodejs")] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("adapters", "expected"), [("claude: {}, c: {binary: claude}", "@anthropic-ai/claude-code"), ("x: {binary: opencode}", "opencode-ai"), ("mine: {}", "")]
)
def test_an_adapters_program_is_in_the_image(adapters: str, expected: str) -> None:
    text = image.dockerfile_text(planned(f"metadata: {{name: demo}}\nadapters: {{{adapters}}}\n"))
    assert [line.strip(" \\") for line in text.splitlines() if expected and line.startswith(f"    {expected}")] == [expected] * bool(expected)
    assert ("npm install" in text) is bool(expected)


def instructions(text: str) -> list[str]:
    """As a builder reads it: without comments, continued lines joined."""
    return re.sub(r"\\\n\s*", "", "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))).split("\n")


@pytest.mark.parametrize("base", ["debian:stable-slim", "alpine:3", "fedora:41"])
def test_a_dockerfile_has_none_of_the_usual_faults(base: str) -> None:
    """What hadolint and docker's own advice name, and what only BuildKit knows."""
    text = image.dockerfile_text(sandbox(f"docker_base: '{base}', packages: [go, gh], env_passthrough: [GH_TOKEN]", "adapters: {claude: {}}\n"))
    lines = [line for line in instructions(text) if line]
    words = [line.split(" ")[0] for line in lines]
    assert words == ["FROM", "USER", "RUN", "RUN", "USER", "CMD"]
    assert lines[4] == "USER 65534:65534"
    assert not re.search(r"--mount|<<|syntax=|curl|wget|ADD|COPY|ARG|ENV|VOLUME|HEALTHCHECK|sudo|chmod|TOKEN|\$", "\n".join(lines))
    installs = lines[2]
    expected = {
        "debian": ("--no-install-recommends", "rm -rf /var/lib/apt/lists/*"),
        "alpine": ("--no-cache", "rm -rf /var/cache/apk/*"),
        "fedora": ("install_weak_deps=False", "dnf clean all"),
    }
    assert all(word in installs for word in expected[base.partition(":")[0]])


def test_gaps_say_who_else_decides() -> None:
    assert said(sandbox("packages: [go_1_22, terraform]", "adapters: {codex: {}}\n")) == [
        "-: weaker: the tag of the base image debian:stable-slim can be moved to another image",
        "2: weaker: the container image gets the version of @openai/codex that npm's registry serves on the day of the build",
        "4: ignored: go_1_22 is golang-go in the image of containers, in the version that Debian has",
        "4: ignored: terraform is not in the container image: wavegen knows no package of Debian for it",
    ]
    assert said(sandbox("docker_image: 'x.org/a:1'")) == [
        "3: ignored: x.org/a:1 has its own packages, not those of the manifest",
        "3: weaker: the tag of x.org/a:1 can be moved to another image",
    ]
    assert said(sandbox(f"docker_image: 'a@sha256:{HEX}'")) == [f"3: ignored: a@sha256:{HEX} has its own packages, not those of the manifest"]
    assert len(said(sandbox("docker_image: 'localhost/mine:1'"))) == 1  # as its base is ours


def test_what_is_sent_to_a_builder_is_nothing(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    lines = (root / ".wavegen/docker/.dockerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*"]


def test_a_hostile_name_of_a_project_is_in_no_dockerfile(tmp_path: Path) -> None:
    root = project(tmp_path, 'metadata: {name: "x\\nRUN touch /owned # $(id) \' \\" \\\\"}\n')
    assert call("render", cwd=root).status == 0
    text = (root / ".wavegen/docker/Dockerfile").read_text()
    assert "wavegen/x-run-touch-owned-id:latest" in text
    assert [line.split(" ")[0] for line in instructions(text) if line] == ["FROM", "USER", "RUN", "USER", "CMD"]


@pytest.mark.needs("docker")
def test_the_classic_builder_takes_it(tmp_path: Path, engine: Engine) -> None:
    """Without a network: the package managers are stand-ins that write down what they were told."""
    context = tmp_path / "base"
    context.mkdir()
    for name in ("apt-get", "npm"):
        (context / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>/told\n')
        (context / name).chmod(0o755)
    (context / "Dockerfile").write_text(f"FROM {engine.image()}\nCOPY apt-get npm /usr/local/bin/\nUSER nobody\n")
    env = {"DOCKER_BUILDKIT": "0"}
    assert engine.run("build", "--network", "none", "-t", "wavegen-test:managers", context, env=env).returncode == 0
    text = "docker_base: 'wavegen-test:managers'\n    packages: [gh, jdk21, terraform]\n    docker_packages: {gh: 'gh=2.23.0+dfsg1-1~x'}\n"
    root = render_project(tmp_path, f"metadata: {{name: Demo}}\nadapters: {{claude: {{}}}}\nruntime:\n  sandbox:\n    {text}")
    (root / ".wavegen/docker/secret").write_text("sent")
    built = engine.run("build", "--network", "none", "-t", "wavegen/demo:latest", root / ".wavegen/docker", env=env)
    assert built.returncode == 0, built.stdout + built.stderr
    shown = engine.run("image", "inspect", "-f", "{{.Config.User}} {{.Config.Cmd}} {{.Config.Entrypoint}} {{.Config.Volumes}}", "wavegen/demo:latest")
    assert shown.stdout == "65534:65534 [bash] [] map[]\n"
    told = engine.run("run", "--rm", "--network", "none", "wavegen/demo:latest", "cat", "/told")
    needed = "bash coreutils git python3 perl-base ca-certificates"
    assert told.stdout.splitlines() == [
        "apt-get update",
        f"apt-get install --yes --no-install-recommends {needed} gh=2.23.0+dfsg1-1~x openjdk-21-jdk-headless nodejs npm",
        "npm install --global --no-audit --no-fund @anthropic-ai/claude-code",
    ], told.stderr

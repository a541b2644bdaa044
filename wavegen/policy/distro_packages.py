"""What nixpkgs attributes are called in the distributions that images are made from. Data and lookups.

Only what differs stands here: any other attribute is looked for by its own name, and an image that lacks it is not built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wavegen.manifest.images import NPM, is_package_name
from wavegen.policy.model import AgentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How packages are installed: before their names, and after them."""

    name: str
    column: int
    """Its place in the rows of the table."""
    before: str
    after: str


DEBIAN = Distribution(
    name="Debian",
    column=0,
    before="apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends",
    after="rm -rf /var/lib/apt/lists/*",
)
ALPINE = Distribution(name="Alpine", column=1, before="apk add --no-cache", after="rm -rf /var/cache/apk/*")
FEDORA = Distribution(
    name="Fedora",
    column=2,
    before="dnf install --assumeyes --setopt=install_weak_deps=False --setopt=tsflags=nodocs",
    after="dnf clean all",
)
_WORDS = (
    (ALPINE, ("alpine", "wolfi")),
    (FEDORA, ("fedora", "ubi", "ubi8", "ubi9", "ubi10", "centos", "rockylinux", "almalinux", "rhel", "oraclelinux", "amazonlinux")),
)


def distribution_of(base: str) -> Distribution:
    """What an image is made from, as far as its name tells; Debian, as most are, where it does not."""
    words = set(re.split("[^a-z]+", base.partition("@")[0])) | set(re.split("[^a-z0-9]+", base.partition("@")[0]))
    return next((found for found, names in _WORDS if words & set(names)), DEBIAN)


@dataclass(frozen=True, slots=True)
class Found:
    """The packages for an attribute."""

    names: tuple[str, ...]
    npm: tuple[str, ...] = ()
    other_version: bool = False
    """Whether the attribute asks for a version, and the distribution has its own."""


_NONE = ("", "", "")
_TABLE: Mapping[str, str | tuple[str, str, str]] = {
    # attribute: the same everywhere, or Debian, Alpine, Fedora; several names, or none
    "R": ("r-base-core", "R", "R-core"),
    "awscli2": ("awscli", "aws-cli", "awscli2"),
    "bashInteractive": "bash",
    "bun": f"{NPM}bun",
    "cabal-install": ("cabal-install", "cabal", "cabal-install"),
    "cacert": "ca-certificates",
    "claude-code": f"{NPM}@anthropic-ai/claude-code",
    "clippy": ("rust-clippy", "rust-clippy", "clippy"),
    "codex": f"{NPM}@openai/codex",
    "delta": ("git-delta", "delta", "git-delta"),
    "deno": _NONE,
    "docker": ("docker.io", "docker-cli", "moby-engine"),
    "docker-client": ("docker.io", "docker-cli", "moby-engine"),
    "dotnet-sdk": ("", "dotnet8-sdk", "dotnet-sdk-8.0"),
    "eslint": f"{NPM}eslint",
    "fd": ("fd-find", "fd", "fd-find"),
    "firefox": ("firefox-esr", "firefox", "firefox"),
    "flyctl": _NONE,
    "gcc": ("gcc g++ libc6-dev", "gcc g++ musl-dev", "gcc gcc-c++ glibc-devel"),
    "gemini-cli": f"{NPM}@google/gemini-cli",
    "ghc": ("ghc", "ghc", "ghc-compiler"),
    "glibcLocales": ("locales", "", "glibc-all-langpacks"),
    "gnugrep": "grep",
    "gnumake": "make",
    "gnupatch": "patch",
    "gnused": "sed",
    "gnutar": "tar",
    "go": ("golang-go", "go", "golang"),
    "golangci-lint": ("", "golangci-lint", ""),
    "google-cloud-sdk": _NONE,
    "gopls": ("gopls", "gopls", "golang-x-tools-gopls"),
    "hadolint": _NONE,
    "helm": ("", "helm", "helm"),
    "jdk": ("default-jdk-headless", "openjdk21-jdk", "java-latest-openjdk-devel"),
    "jujutsu": ("", "jujutsu", "jujutsu"),
    "k9s": ("", "k9s", ""),
    "kubectl": ("kubernetes-client", "kubectl", "kubernetes-client"),
    "kubernetes-helm": ("", "helm", "helm"),
    "libffi": ("libffi-dev", "libffi-dev", "libffi-devel"),
    "libxml2": ("libxml2-dev libxml2-utils", "libxml2-dev libxml2-utils", "libxml2-devel libxml2"),
    "lua": ("lua5.4", "lua5.4", "lua"),
    "man": ("man-db", "mandoc", "man-db"),
    "neovim": "neovim",
    "nil": _NONE,
    "ninja": ("ninja-build", "ninja-build", "ninja-build"),
    "nix": ("nix-bin", "nix", "nix"),
    "nixd": _NONE,
    "nixfmt": _NONE,
    "nixfmt-rfc-style": _NONE,
    "nixpkgs-fmt": _NONE,
    # That of nixpkgs has npm with it.
    "nodejs": ("nodejs npm", "nodejs npm", "nodejs nodejs-npm"),
    "opencode": f"{NPM}opencode-ai",
    "openssh": ("openssh-client", "openssh-client", "openssh-clients"),
    "openssl": ("openssl libssl-dev", "openssl openssl-dev", "openssl openssl-devel"),
    "opentofu": ("", "opentofu", "opentofu"),
    # The fence's first stage needs no more of it.
    "perl": ("perl-base", "perl", "perl-interpreter"),
    "php": ("php-cli", "php", "php-cli"),
    "pkg-config": ("pkgconf", "pkgconf", "pkgconf-pkg-config"),
    "pnpm": f"{NPM}pnpm",
    "podman-compose": "podman-compose",
    "poetry": ("python3-poetry", "poetry", "poetry"),
    "prettier": f"{NPM}prettier",
    "procps": ("procps", "procps", "procps-ng"),
    "protobuf": ("protobuf-compiler", "protobuf", "protobuf-compiler"),
    "pyright": f"{NPM}pyright",
    "python3": "python3",
    "redis": ("redis-server", "redis", "valkey"),
    "ruff": ("", "ruff", "ruff"),
    "rust-analyzer": ("", "rust-analyzer", "rust-analyzer"),
    "rustc": ("rustc", "rust", "rust"),
    "sbt": _NONE,
    "shellcheck": ("shellcheck", "shellcheck", "ShellCheck"),
    "sqlite": ("sqlite3", "sqlite", "sqlite"),
    "stack": ("haskell-stack", "", "stack"),
    "statix": _NONE,
    "terraform": _NONE,
    "typescript": f"{NPM}typescript",
    "typescript-language-server": f"{NPM}typescript-language-server",
    "uv": ("", "uv", "uv"),
    "vim": ("vim", "vim", "vim-enhanced"),
    "which": ("debianutils", "which", "which"),
    "yarn": ("yarnpkg", "yarn", "yarnpkg"),
    "yq": ("yq", "", ""),
    "yq-go": ("", "yq-go", "yq"),
    "zig": ("", "zig", "zig"),
    "zlib": ("zlib1g-dev", "zlib-dev", "zlib-devel"),
}

# With a number behind them they ask for a version, which images have as it is.
_VERSIONED = {"clang": "clang", "elixir": "elixir", "erlang": "erlang", "gcc": "gcc", "ghc": "ghc", "go": "go", "gradle": "gradle"} | {
    "lua": "lua", "nodejs": "nodejs", "openssl": "openssl", "php": "php", "postgresql": "postgresql", "python": "python3", "ruby": "ruby", "zig": "zig"
}  # fmt: skip
_VERSION = re.compile(r"([a-z]+)_?([0-9][0-9_]*)")
_JDK = re.compile(r"(?:jdk|openjdk|temurin-bin-)([0-9]+)(?:_headless)?")
_JDKS = ("openjdk-{0}-jdk-headless", "openjdk{0}-jdk", "java-{0}-openjdk-devel")
_SETS = (
    (re.compile(r"python3[0-9]*Packages\.([A-Za-z0-9_-]+)"), ("python3-{0}", "py3-{0}", "python3-{0}")),
    (re.compile(r"nodePackages(?:_latest)?\.([a-z0-9_-]+)"), (f"{NPM}{{0}}",) * 3),
)
_NAME = re.compile("[a-z0-9][a-z0-9+.-]*[a-z0-9+]")

AGENTS = {AgentKind.CLAUDE: "claude-code", AgentKind.CODEX: "codex", AgentKind.GEMINI: "gemini-cli", AgentKind.OPENCODE: "opencode"}
"""The attributes of agents' programs."""


def packages_for_attribute(distribution: Distribution, attribute: str) -> Found | None:
    """What to install for a nixpkgs attribute; None where nothing is known to be there."""
    row = _TABLE.get(attribute)
    if row is not None:
        return split_npm_packages((row if isinstance(row, str) else row[distribution.column]).split())
    if match := _JDK.fullmatch(attribute):
        return Found((_JDKS[distribution.column].format(match[1]),))
    for pattern, names in _SETS:
        if match := pattern.fullmatch(attribute):
            name = names[distribution.column].format(match[1])
            if not name.startswith(NPM):
                name = name.lower().replace("_", "-")
            # An attribute may begin or end as an option does, or as what apt-get removes.
            return split_npm_packages([name]) if is_package_name(name) else None
    if (match := _VERSION.fullmatch(attribute)) and match[1] in _VERSIONED:
        found = packages_for_attribute(distribution, _VERSIONED[match[1]])
        exact = attribute == _VERSIONED[match[1]]
        return found and Found(found.names, found.npm, other_version=not exact)
    return Found((attribute,)) if _NAME.fullmatch(attribute) else None


def split_npm_packages(names: list[str] | tuple[str, ...]) -> Found | None:
    """Names with those of npm told apart; None where there are none."""
    npm = tuple(name.removeprefix(NPM) for name in names if name.startswith(NPM))
    return Found(tuple(name for name in names if not name.startswith(NPM)), npm) if names else None


NEEDED = (
    ("bash", "the shell itself"),
    ("coreutils", "the probes of wavegen verify"),
    ("git", "work without it would be none"),
    ("python3", "the fence's first stage, and the probes"),
    ("perl", "the fence's first stage where there is no Python"),
    ("cacert", "whom TLS trusts"),
)
"""What every image has, and why."""

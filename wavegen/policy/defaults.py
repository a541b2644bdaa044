"""The rules that hold without being written, each with its reason. Data only."""

from __future__ import annotations

from wavegen.launcher.egress.ports import HTTP_PORT, SOCKS_PORT
from wavegen.launcher.followed import GIT_STORES, KEPT_IN_PLACE, ROWS
from wavegen.policy.model import Access, Anchor, EnvRule, HostPath, Origin, PathRule


def _root_path_rules(access: Access, reason: str, *paths: str, required: bool = False) -> tuple[PathRule, ...]:
    return tuple(PathRule(path=HostPath(Anchor.ROOT, path.removeprefix("/")), access=access, required=required, origin=Origin(reason)) for path in paths)


SCRATCH = (
    *_root_path_rules(Access.SCRATCH, "private, so that nothing in it is shared with the host", "/tmp", "/var/tmp"),
    *_root_path_rules(Access.SCRATCH, "the host's sockets live there, and a read-only mount does not stop connect(2)", "/run"),
    PathRule(path=HostPath(Anchor.ROOT, "var/run"), access=Access.SCRATCH, source=HostPath(Anchor.ROOT, "run"), origin=Origin("another name of /run")),
    *_root_path_rules(Access.SCRATCH, "private shared memory of a bounded size", "/dev/shm"),
)

HOST_ROOT = (
    *_root_path_rules(Access.READ, "the host's system, behind the masks below", "/", required=True),
    *_root_path_rules(Access.HIDE, "other disks", "/media", "/mnt", "/srv", "/lost+found"),
    *_root_path_rules(Access.HIDE, "other users", "/home", "/root"),
    PathRule(path=HostPath(Anchor.HOMES), access=Access.HIDE, origin=Origin("other users")),
    PathRule(path=HostPath(Anchor.AROUND), access=Access.HIDE, origin=Origin("the project's neighbours")),
    *_root_path_rules(Access.HIDE, "logs, mail, databases and other programs' data; real root may read them all", "/var"),
    *_root_path_rules(Access.HIDE, "kernel images and boot secrets", "/boot"),
    *_root_path_rules(Access.HIDE, "the kernel's own interfaces, writable to real root", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/pstore"),
    *_root_path_rules(Access.HIDE, "the kernel's own interfaces, writable to real root", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing"),
    *_root_path_rules(Access.HIDE, "the Nix daemon builds outside the sandbox", "/nix/var/nix/daemon-socket"),
    *_root_path_rules(Access.HIDE, "passwords; readable to real root", "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd"),
    *_root_path_rules(Access.HIDE, "rules of sudo and doas", "/etc/sudoers", "/etc/sudoers.d", "/etc/doas.conf"),
    *_root_path_rules(Access.HIDE, "the host's private keys", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab"),
    *_root_path_rules(Access.HIDE, "the host's private keys", *(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("dsa", "ecdsa", "ed25519", "rsa"))),
    *_root_path_rules(Access.HIDE, "passwords of networks", "/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/openvpn", "/etc/ppp"),
    *_root_path_rules(Access.HIDE, "credentials of clusters and registries", "/etc/docker", "/etc/kubernetes", "/etc/rancher", "/etc/containers/auth.json"),
    *_root_path_rules(Access.HIDE, "identifies this host", "/etc/machine-id"),
    *_root_path_rules(Access.HIDE, "ssh does not start where files in it belong to nobody, as root's do inside", "/etc/ssh/ssh_config.d"),
    *_root_path_rules(Access.READ, "what the package manager knows is installed", "/var/lib/dpkg", "/var/lib/rpm"),
    *_root_path_rules(Access.READ, "links in /etc lead there", "/var/lib/alternatives", "/var/lib/ca-certificates"),
    *_root_path_rules(Access.READ, "indexes of fonts and TeX", "/var/cache/fontconfig", "/var/lib/texmf"),
    *_root_path_rules(Access.READ, "the programs of NixOS", "/run/current-system", "/run/opengl-driver"),
)

PRIVATE_BELOW = "/etc"
"""Where what others than its owner and group cannot read is hidden: no list knows every program's secrets."""

RESOLVERS = (
    *_root_path_rules(
        Access.READ,
        "/etc/resolv.conf may lead there; the file alone, not the resolver's socket",
        "/run/systemd/resolve/stub-resolv.conf",
        "/run/systemd/resolve/resolv.conf",
        "/run/NetworkManager/resolv.conf",
        "/run/NetworkManager/no-stub-resolv.conf",
        "/run/resolvconf/resolv.conf",
        "/run/connman/resolv.conf",
        "/mnt/wsl/resolv.conf",
    ),
)

MINIMAL_ROOT = (
    *_root_path_rules(Access.HIDE, "an empty root, with only the host paths listed below", "/", required=True),
    PathRule(path=HostPath(Anchor.HOMES), access=Access.HIDE, origin=Origin("other users")),
    PathRule(path=HostPath(Anchor.AROUND), access=Access.HIDE, origin=Origin("the project's neighbours, where it lies below what is shown")),
    *_root_path_rules(Access.READ, "programs and libraries", "/usr", required=True),
    *_root_path_rules(Access.READ, "programs and libraries", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *_root_path_rules(
        Access.READ, "links to the programs of Nix profiles", "/nix/var/nix/profiles", "/etc/profiles/per-user", "/etc/static", "/run/current-system"
    ),
    *_root_path_rules(Access.READ, "names of users, groups and services", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols"),
    *_root_path_rules(Access.READ, "names of hosts", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf"),
    *_root_path_rules(Access.READ, "certificates of authorities", "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *_root_path_rules(Access.READ, "certificates of authorities", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/crypto-policies"),
    *_root_path_rules(Access.READ, "where libraries are", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *_root_path_rules(Access.READ, "links that choose between alternative programs", "/etc/alternatives"),
    *_root_path_rules(Access.READ, "time zone", "/etc/localtime", "/etc/timezone"),
    *_root_path_rules(Access.READ, "which system this is", "/etc/os-release", "/etc/lsb-release", "/etc/debian_version"),
    *_root_path_rules(Access.READ, "settings of shells and terminals", "/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/bashrc"),
    *_root_path_rules(Access.READ, "settings of shells and terminals", "/etc/inputrc", "/etc/terminfo", "/etc/zsh", "/etc/fish"),
    *_root_path_rules(
        Access.READ,
        "settings of programs",
        "/etc/gitconfig",
        "/etc/mime.types",
        "/etc/manpath.config",
        "/etc/fonts",
        "/etc/perl",
        "/etc/python3",
        "/etc/java-11-openjdk",
        "/etc/java-17-openjdk",
    ),
    *_root_path_rules(Access.READ, "settings of programs", "/etc/java-21-openjdk", "/etc/java-25-openjdk", "/etc/maven", "/etc/magic", "/etc/ssh/ssh_config"),
    *_root_path_rules(Access.READ, "how many processors there are", "/sys/devices/system/cpu", "/sys/devices/system/node"),
)

NETWORK_FILES = (
    PathRule(
        path=HostPath(Anchor.ROOT, "etc/resolv.conf"),
        access=Access.READ,
        required=True,
        source=HostPath(Anchor.RUNTIME, "resolv.conf"),
        origin=Origin("the launcher resolves names and applies the allowlist"),
    ),
    PathRule(
        path=HostPath(Anchor.ROOT, "etc/hosts"),
        access=Access.READ,
        required=True,
        source=HostPath(Anchor.RUNTIME, "hosts"),
        origin=Origin("the host's own would lead to addresses that cannot be reached"),
    ),
    PathRule(
        path=HostPath(Anchor.ROOT, "etc/nsswitch.conf"),
        access=Access.READ,
        required=True,
        source=HostPath(Anchor.RUNTIME, "nsswitch.conf"),
        origin=Origin("the host's file may name services that the sandbox lacks"),
    ),
)
"""What shells see that filter their network."""

GIT_FILES = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
"""What git on the host runs or follows of a repository, below its git directory (gitrepository-layout(5))."""

WORKTREE_FILES = ("gitdir", "commondir", "config.worktree")
"""The same of a linked worktree, below worktrees/NAME."""


def _guard_rules() -> tuple[PathRule, ...]:
    def project_guard(tail: str, reason: str, access: Access = Access.READ) -> PathRule:
        return PathRule(path=HostPath(Anchor.PROJECT, tail), access=access, guarded=True, origin=Origin(reason))

    kept = (project_guard(name, "a replaced repository would have other hooks", Access.WRITE) for name in (".git", *KEPT_IN_PLACE))
    git = (project_guard(f".git/{name}", "git on the host runs or follows it") for name in GIT_FILES)
    stores = (project_guard(f"{store}/{name}", "git on the host runs or follows it") for store in GIT_STORES for name in ("config", "hooks"))
    followed = (project_guard(pattern.removesuffix("/**"), runs) for _, _, protected, _, _, runs in ROWS for pattern in protected)
    return (*kept, *git, *stores, *followed)


GUARDS = _guard_rules()
"""What the host runs or follows of a project: read-only where it exists."""

_AUTHORITIES, _COMPILERS = "paths of certificates of authorities, no secrets", "compilers and search paths of a Nix shell"
_PASSED = (
    ("terminal", "TERM COLORTERM NO_COLOR FORCE_COLOR"),
    ("language and time", "LANG LANGUAGE TZ LOCALE_ARCHIVE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME"),
    ("who you are", "USER LOGNAME"),
    ("tools behave differently in CI", "CI"),
    (_AUTHORITIES, "SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE CURL_CA_BUNDLE GIT_SSL_CAINFO"),
    (_AUTHORITIES, "REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_CERT"),
    (_COMPILERS, "IN_NIX_SHELL CC CXX LD AR AS NM RANLIB STRIP OBJCOPY OBJDUMP READELF SIZE STRINGS CONFIG_SHELL"),
    (_COMPILERS, "NIX_CC NIX_CFLAGS_COMPILE NIX_LDFLAGS NIX_BINTOOLS NIX_HARDENING_ENABLE NIX_STORE"),
    (_COMPILERS, "NIX_CFLAGS_COMPILE_FOR_BUILD NIX_LDFLAGS_FOR_BUILD NIX_ENFORCE_NO_NATIVE"),
    (_COMPILERS, "PKG_CONFIG PKG_CONFIG_PATH CMAKE_INCLUDE_PATH CMAKE_LIBRARY_PATH NIXPKGS_CMAKE_PREFIX_PATH"),
    (_COMPILERS, "ACLOCAL_PATH XDG_DATA_DIRS GI_TYPELIB_PATH HOST_PATH SOURCE_DATE_EPOCH"),
)

PASSED = tuple(EnvRule(name=name, value=None, origin=Origin(reason)) for reason, names in _PASSED for name in names.split())

OF_THE_SYSTEM = frozenset(name for reason, names in _PASSED if reason in (_AUTHORITIES, _COMPILERS) for name in names.split())
"""Those of them that name files of a system, which another system does not have."""

FIXED = tuple(EnvRule(name=name, value="/tmp", origin=Origin("the host's temporary directory is not there")) for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"))

_PROXY = f"http://127.0.0.1:{HTTP_PORT}"
_PROXIES = (
    (_PROXY, "HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy GRPC_PROXY grpc_proxy"),
    (_PROXY, "npm_config_proxy npm_config_https_proxy YARN_HTTP_PROXY YARN_HTTPS_PROXY PIP_PROXY CARGO_HTTP_PROXY"),
    (_PROXY, "DOCKER_HTTP_PROXY DOCKER_HTTPS_PROXY"),
    # As an HTTP proxy for files it would be asked for ftp://, which no proxy of ours speaks.
    (f"socks5h://127.0.0.1:{SOCKS_PORT}", "FTP_PROXY ftp_proxy"),
    (f"127.0.0.1:{HTTP_PORT}", "RSYNC_PROXY"),
    ("http", "CLOUDSDK_PROXY_TYPE"),
    ("127.0.0.1", "CLOUDSDK_PROXY_ADDRESS"),
    (str(HTTP_PORT), "CLOUDSDK_PROXY_PORT"),
    # No more than the shell's own loopback: what goes past the proxy to other addresses goes nowhere.
    ("localhost,127.0.0.1,::1", "NO_PROXY no_proxy"),
    ("1", "NODE_USE_ENV_PROXY"),
)
PROXIES = tuple(
    EnvRule(name=name, value=value, origin=Origin("for programs that use a proxy; other programs need no settings"))
    for value, names in _PROXIES
    for name in names.split()
)
"""Variables of shells that filter their network."""

MADE_BY_THE_FENCE = ("HOME", "PATH", "PWD", "SHELL", "SANDBOX_ACTIVE", "WAVEGEN_SHELL", "TMPDIR", "TMP", "TEMP", "TEMPDIR")
"""Variables that a manifest need not, and cannot, pass through."""

_DANGEROUS = (
    ("loads code into every program", "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT GCONV_PATH DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH"),
    ("runs code in every shell", "BASH_ENV ENV PROMPT_COMMAND SHELLOPTS BASHOPTS PS4 ZDOTDIR"),
    ("runs code in every program of its language", "PYTHONPATH PYTHONSTARTUP PYTHONHOME PERL5OPT PERL5LIB RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH"),
    ("runs code in every program of its language", "JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS LUA_INIT"),
    ("makes git run commands", "GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_EDITOR GIT_PAGER GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_TEMPLATE_DIR"),
    ("leads git elsewhere", "GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY"),
    ("leads to an agent that signs for you", "GPG_AGENT_INFO SSH_AGENT_PID SSH_ASKPASS"),
    ("leads to a service outside the fence", "DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS XDG_RUNTIME_DIR DOCKER_HOST CONTAINER_HOST NIX_REMOTE"),
    ("leads to your screen and keyboard", "DISPLAY WAYLAND_DISPLAY XAUTHORITY"),
)
_DANGEROUS_NAMES = {name: reason for reason, names in _DANGEROUS for name in names.split()}
_DANGEROUS_SHAPES = (("GIT_CONFIG", "", "makes git run commands"), ("", "_AUTH_SOCK", "leads to an agent that signs for you"))


def variable_danger(name: str) -> str:
    """Why a variable is rarely meant to be passed; empty where nothing is known against it."""
    shapes = (reason for start, end, reason in _DANGEROUS_SHAPES if name.startswith(start) and name.endswith(end))
    return _DANGEROUS_NAMES.get(name) or next(shapes, "")


PIDS = 4096
"""More than builds need, and far fewer than a host has."""

FILES = 65536
"""Programs go through all descriptors that they may have: with a bound of a thousand million that takes minutes."""

MEMORY_SHARE = 75
"""Per cent of the machine's memory."""

SCRATCH_SIZE = 2 * 1024**3
"""Bytes of each scratch directory: the kernel's own default is half the memory, for each of them."""

_HOME_SECRETS = (
    ".ssh .gnupg .password-store .local/share/keyrings .local/share/kwalletd .config/op .config/sops .config/rclone .vault-token",
    ".aws .azure .oci .config/gcloud .config/doctl .kube .docker .config/containers .terraform.d .terraformrc",
    ".config/gh .config/glab-cli .config/hub .git-credentials .config/git/credentials .netrc .authinfo .authinfo.gpg",
    ".npmrc .yarnrc.yml .pypirc .config/pip .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml",
    ".gradle/gradle.properties .composer/auth.json .config/composer/auth.json .pgpass .my.cnf .mylogin.cnf",
    ".mozilla .thunderbird .config/google-chrome .config/chromium",
    ".claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json .local/share/opencode/auth.json",
    ".bash_history .zsh_history .python_history .psql_history .node_repl_history .local/share/fish/fish_history",
    # What wavegen keeps: the private homes of the shells, and what was approved.
    ".local/state/wavegen",
)
HOME_SECRETS = tuple(HostPath(Anchor.HOME, tail) for line in _HOME_SECRETS for tail in line.split())
"""What programs keep in a home that lets somebody else be you, and what you typed: hidden where the real home is there."""

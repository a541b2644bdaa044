"""What programs say where a fence, a shell or a build fails, why they say it, and what mends it: a table and its lookup. Pure.

Longer than 400 lines: it is one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LONGEST = 2000
"""Characters of a line that are looked at: no message is longer, and a search takes the square of it."""
_DOCTOR = ("wavegen doctor --fix-hints",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A message that people meet."""

    name: str
    program: str
    """Who says it; empty where many do."""
    says: str
    """The message, as it is seen."""
    pattern: str
    """A regular expression for one line of it, in whatever case."""
    cause: str
    remedy: str
    commands: tuple[str, ...] = ()
    """What mends it, to be read and run by a person."""

    def matches_line(self, line: str) -> bool:
        """Whether a line of output is this message."""
        return re.search(self.pattern, line, re.IGNORECASE) is not None


def recognise_troubles(text: str) -> tuple[Trouble, ...]:
    """The troubles that a text speaks of, in the order of its lines; of one line the first entry of the table holds."""
    found: dict[str, Trouble] = {}
    for line in text.splitlines():
        trouble = next((trouble for trouble in TROUBLES if trouble.matches_line(line[:_LONGEST])), None)
        if trouble:
            found.setdefault(trouble.name, trouble)
    return tuple(found.values())


def _bubblewrap_troubles() -> Iterator[Trouble]:
    """Longer than 60 lines: a part of the table."""
    yield Trouble(
        name="uid-map",
        program="bwrap",
        says="bwrap: setting up uid map: Permission denied",
        pattern=r"(setting up uid map|uid_map): (Permission denied|Operation not permitted)|write failed /proc/self/uid_map",
        cause="AppArmor takes all rights from user namespaces of programs without a profile (Ubuntu 23.10 and newer: kernel.apparmor_restrict_unprivileged_userns)",
        remedy="install a profile for the bwrap that is used; wavegen doctor --fix-hints prints one",
        commands=_DOCTOR,
    )
    yield Trouble(
        name="loopback",
        program="bwrap",
        says="bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
        pattern=r"loopback: .*RTM_NEWADDR|loopback: .*(RTM_NEWLINK|Operation not permitted)",
        cause="bwrap may make a network namespace but has no rights in it: AppArmor on Ubuntu 24.04, or a container without CAP_NET_ADMIN",
        remedy="install an AppArmor profile for bwrap; never share the network of the host in its place",
        commands=_DOCTOR,
    )
    yield Trouble(
        name="forbidden-namespaces",
        program="bwrap",
        says="bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.",
        pattern=r"No permissions to creat\w+ (a )?new namespace",
        cause="the kernel, or a container's system call filter, lets no user make user namespaces",
        remedy="wavegen doctor names the setting; where none can be changed: backend: landlock",
        commands=_DOCTOR,
    )
    yield Trouble(
        name="too-many-namespaces",
        program="bwrap",
        says="bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
        pattern=r"Creating new namespace failed: .*(ENOSPC|No space left)|unshare(\(.*\))?( failed)?: No space left on device",
        cause="user.max_user_namespaces is 0 or used up, or this is a sandbox that allows no namespaces",
        remedy="raise user.max_user_namespaces; in a sandboxed shell, start the second sandbox on the host, or write nested: true",
        commands=("sudo sysctl -w user.max_user_namespaces=15000",),
    )
    yield Trouble(
        name="wsl1",
        program="bwrap",
        says="bwrap: Creating new namespace failed: Invalid argument",
        pattern=r"Creating new namespace failed: (Invalid argument|Function not implemented)",
        cause="the kernel knows no such namespaces: WSL 1, gVisor, or a kernel built without them",
        remedy="move the distribution to WSL 2 (in PowerShell), or take a kernel that has them",
        commands=('wsl.exe --set-version "$WSL_DISTRO_NAME" 2',),
    )
    yield Trouble(
        name="new-namespace",
        program="bwrap",
        says="bwrap: Creating new namespace failed: Operation not permitted",
        pattern=r"Creating new namespace failed|unshare(\(.*\))?( failed)?: Operation not permitted",
        cause="a container's system call filter forbids unshare(2) and clone(2), or the kernel lets no user make namespaces",
        remedy="on the host see wavegen doctor; in docker a container needs --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "--security-opt systempaths=unconfined, which makes it weaker; or backend: landlock",
        commands=_DOCTOR,
    )
    yield Trouble(
        name="masked-proc",
        program="bwrap",
        says="bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
        pattern=r"Can't mount proc on",
        cause="this is a container whose /proc is masked in parts, and the kernel then lets nobody mount a new one",
        remedy="start the container with --security-opt systempaths=unconfined (docker) or --security-opt unmask=ALL (podman), or use backend: landlock",
    )
    yield Trouble(
        name="devpts",
        program="bwrap",
        says="bwrap: Can't mount devpts on /newroot/dev/pts: Invalid argument",
        pattern=r"Can't mount devpts on",
        cause="the user namespace has no number for the group tty: a container of a user's podman, mostly",
        remedy="start the container with --userns=keep-id, or use backend: landlock",
    )
    yield Trouble(
        name="setuid-unsupported",
        program="bwrap",
        says="bwrap: setuid use of bubblewrap is not supported in this build",
        pattern=r"setuid use of bubblewrap is not supported",
        cause="bwrap is setuid root, but was built without setuid support",
        remedy="remove the setuid bit, which bwrap does not need if user namespaces are allowed",
        commands=('sudo chmod u-s "$(command -v bwrap)"',),
    )
    yield Trouble(
        name="capabilities",
        program="bwrap",
        says="bwrap: Unexpected capabilities but not setuid, old file caps config?",
        pattern=r"Unexpected capabilities but not setuid",
        cause="bwrap was started by a user with capabilities (file capabilities, ambient ones of a service, --cap-add in a container)",
        remedy="take file capabilities from bwrap, or start it without ambient ones",
        commands=('sudo setcap -r "$(command -v bwrap)"',),
    )
    yield Trouble(
        name="old-bwrap",
        program="bwrap",
        says="bwrap: Unknown option --disable-userns",
        pattern=r"bwrap: Unknown option --",
        cause="bubblewrap is older than 0.8.0 and lacks an option that the sandbox needs",
        remedy="install bubblewrap 0.8.0 or newer, or use nix develop, which brings its own",
        commands=("nix develop",),
    )
    yield Trouble(
        name="setuid-options",
        program="bwrap",
        says="bwrap: --disable-userns requires --unshare-user",
        pattern=r"(--disable-userns|--unshare-user|--size|--perms|--overlay\S*).*(requires --unshare-user|not (permitted|supported) in setuid mode)|setuid mode",
        cause="a setuid bwrap refuses options that the sandbox needs",
        remedy="remove the setuid bit, which bwrap does not need if user namespaces are allowed",
        commands=('sudo chmod u-s "$(command -v bwrap)"',),
    )
    yield Trouble(
        name="no-seccomp",
        program="bwrap",
        says="bwrap: prctl(PR_SET_SECCOMP): Invalid argument",
        pattern=r"PR_SET_SECCOMP|seccomp: (Invalid argument|Function not implemented)",
        cause="the kernel takes no system call filter (CONFIG_SECCOMP_FILTER), or an emulation of one stands between",
        remedy="take a kernel that has it; seccomp: off goes without the filter, and without sharing the terminal",
    )
    yield Trouble(
        name="pivot-root",
        program="bwrap",
        says="bwrap: pivot_root: Invalid argument",
        pattern=r"bwrap: pivot_root|pivot_root\(.*\): Invalid argument",
        cause="the root is a ramfs, as in an initramfs, or a chroot: neither can be exchanged",
        remedy="start it where the root is a mount of its own, or use backend: landlock",
    )
    yield Trouble(
        name="missing-source",
        program="bwrap",
        says="bwrap: Can't find source path /lib: No such file or directory",
        pattern=r"Can't (find source path|get type of source)",
        cause="something that was to be mounted is gone: it was removed while the shell started (lock files of git), or the tree is another machine's",
        remedy="start the shell again; where it stays so: wavegen render",
        commands=("wavegen render",),
    )
    yield Trouble(
        name="mount-point",
        program="bwrap",
        says="bwrap: Can't mkdir parents for /home/me/project/.git/hooks: Not a directory",
        pattern=r"Can't (mkdir|create file at|create directory|make symlink|open) .*(Not a directory|Is a directory|Read-only file system|No such file|Permission denied)|"
        r"Can't mkdir parents|Can't create file at",
        cause="a mount point cannot be created: .git is a file (a linked worktree), a symlink leads outside the sandbox, or the parent directory is read-only",
        remedy="the launcher resolves such places: render again; grant where the link leads, not the link",
        commands=("wavegen render",),
    )
    yield Trouble(
        name="command-inside",
        program="bwrap",
        says="bwrap: execvp claude: No such file or directory",
        pattern=r"bwrap: execvp",
        cause="the command is not inside: it lies in your home, which no shell shows, or its interpreter does",
        remedy="grant its directory (paths), or let Nix bring it (packages)",
    )


def _sandbox_troubles() -> Iterator[Trouble]:
    yield Trouble(
        name="apply-seccomp",
        program="srt",
        says="apply-seccomp: write /proc/self/setgroups: Operation not permitted",
        pattern=r"apply-seccomp: .*(setgroups|uid_map|gid_map|unshare)",
        cause="srt makes a second user namespace inside the first one, which its machine or container does not allow",
        remedy="start agents by .wavegen/bin, whose filter needs no second namespace",
    )
    yield Trouble(
        name="unfenceable",
        program="wavegen",
        says="wavegen: error: this machine does not let bwrap create user namespaces",
        pattern=r"this machine does not let bwrap create user namespaces",
        cause="the kernel, AppArmor or a container forbids user namespaces",
        remedy="wavegen doctor names which, and --fix-hints prints the commands",
        commands=_DOCTOR,
    )
    yield Trouble(
        name="proxies-alone",
        program="wavegen",
        says="wavegen: note: this machine lets only bwrap create user namespaces: in the sandbox, only programs that use a proxy reach the network",
        pattern=r"lets only bwrap create user namespaces",
        cause="AppArmor has a profile for bwrap but none for the python3 that runs the launcher",
        remedy="allow that python3 user namespaces, or use proxies alone",
        commands=_DOCTOR,
    )


def _terminal_troubles() -> Iterator[Trouble]:
    yield Trouble(
        name="no-job-control",
        program="",
        says="bash: no job control in this shell",
        pattern=r"no job control in this shell|cannot set terminal process group|No TTY for interactive shell|tcgetpgrp failed",
        cause="the shell has no terminal of its own: bwrap --new-session, which is used where seccomp: off leaves the terminal unguarded",
        remedy="keep the system call filter (remove seccomp: off): then the terminal stays",
    )
    yield Trouble(
        name="plain-bash",
        program="bash",
        says="bash: complete: command not found",
        pattern=r"(complete|compopt|bind): command not found|shopt: progcomp: invalid shell option",
        cause="the bash of a Nix build environment is not interactive",
        remedy="list bashInteractive under packages",
    )
    yield Trouble(
        name="no-new-privileges",
        program="sudo",
        says='sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
        pattern=r"no new privileges.? flag is set|effective uid is not 0, is \S+ on a file system with the 'nosuid'",
        cause="sudo cannot make a process root in a sandbox",
        remedy="install what is missing outside, or list it under packages",
    )
    yield Trouble(
        name="no-processes",
        program="",
        says="fork: retry: Resource temporarily unavailable",
        pattern=r"fork: .*(Resource temporarily unavailable|Cannot allocate memory)|pthread_create failed|EAGAIN.*spawn|spawn .*EAGAIN",
        cause="the limit on the number of processes is reached",
        remedy="raise limits: {pids: …} in the manifest",
    )
    yield Trouble(
        name="no-temporary-directory",
        program="",
        says="mktemp: failed to create file via template '/tmp/nix-shell.x8sI3j/tmp.XXXXXXXXXX': No such file or directory",
        pattern=r"(TMPDIR|nix-shell\.\w+|/tmp/claude\S*).*(No such file or directory|ENOENT|Read-only file system|EROFS)|failed to create file via template",
        cause="TMPDIR names a directory that does not exist in the sandbox",
        remedy="unset it; shells of wavegen set it to /tmp",
        commands=("unset TMPDIR TMP TEMP TEMPDIR",),
    )
    yield Trouble(
        name="too-long",
        program="",
        says="Argument list too long",
        pattern=r"Argument list too long|E2BIG",
        cause="a pattern of paths became too many mounts, or the environment is too large",
        remedy="deny or grant a directory in place of its files; start with fewer variables",
    )


def _file_troubles() -> Iterator[Trouble]:
    """Longer than 60 lines: a part of the table."""
    yield Trouble(
        name="git-config",
        program="git",
        says="error: could not lock config file .git/config: Read-only file system",
        pattern=r"could not (lock|write) config file|\.git/(config|hooks|info/attributes)\S*:? .*(Read-only file system|EROFS|Device or resource busy)",
        cause="git's settings and hooks are read-only inside, as git on the host obeys them",
        remedy="run that command outside (git remote add, git push -u, git config)",
    )
    yield Trouble(
        name="worktree",
        program="git",
        says="fatal: Unable to create '/home/me/repo/.git/worktrees/x/index.lock': Read-only file system",
        pattern=r"index\.lock'?: (Read-only file system|Permission denied)|not a git repository: .*/worktrees/",
        cause="this is a linked worktree, and the repository that it belongs to is not shown for writing",
        remedy="let git repair the two pointers, then start the shell again: it is shown where each names the other",
        commands=("git worktree repair",),
    )
    yield Trouble(
        name="tracked-and-held",
        program="git",
        says="error: unable to unlink old '.envrc': Read-only file system",
        pattern=r"unable to (unlink old|create file|write file).*(Read-only file system|Device or resource busy)",
        cause="the checkout replaces a file that is read-only inside, because the host runs or follows it",
        remedy="check it out outside, or grant the path: paths: [{path: .vscode, access: write}]",
    )
    yield Trouble(
        name="ambiguous-head",
        program="git",
        says="fatal: ambiguous argument 'HEAD': both revision and filename",
        pattern=r"ambiguous argument 'HEAD'",
        cause="another sandbox has left empty files HEAD, config, objects and refs in the project",
        remedy="remove the empty ones; wavegen makes no such files",
        commands=("find . -maxdepth 1 -type f -empty \\( -name HEAD -o -name config -o -name objects -o -name refs \\) -print",),
    )
    yield Trouble(
        name="safe-directory",
        program="git",
        says="fatal: detected dubious ownership in repository at '/work'",
        pattern=r"detected dubious ownership|repository path '.*' is not owned by current user",
        cause="the project belongs to another user than the one that runs git or Nix",
        remedy="give it to that user, or start the command as its owner",
    )
    yield Trouble(
        name="renamed-over",
        program="",
        says="EBUSY: resource busy or locked, rename '/home/me/.claude.json.tmp' -> '/home/me/.claude.json'",
        pattern=r"EBUSY|Device or resource busy|EROFS: .*rename",
        cause="a file that is mounted by itself cannot be replaced by a rename",
        remedy="grant the directory that holds it in place of the file",
    )
    yield Trouble(
        name="cross-device",
        program="",
        says="Invalid cross-device link (os error 18)",
        pattern=r"Invalid cross-device link|EXDEV|cross-device link not permitted",
        cause="writable and protected directories are separate mounts; a file cannot be renamed from one mount to another",
        remedy="copy and remove (mv does), or move the grant one directory up",
    )
    yield Trouble(
        name="gh-token",
        program="gh",
        says="X Failed to log in to github.com account me (keyring): The token in keyring is invalid.",
        pattern=r"token in (default|keyring|\S+hosts\.yml) is (invalid|no longer valid)",
        cause="gh keeps its token in a keyring of the session, whose socket is not inside",
        remedy="hand it in: env_passthrough: [GH_TOKEN]; a shell asks gh for it at its start",
    )
    yield Trouble(
        name="no-user",
        program="ssh",
        says="No user exists for uid 1000",
        pattern=r"No user exists for uid|You don't exist, go away",
        cause="a user of LDAP or sssd, who is not in /etc/passwd, has no name in shells with a minimal root",
        remedy="use git over https, or network: host",
    )


def _nix_troubles() -> Iterator[Trouble]:
    """Longer than 60 lines: a part of the table."""
    yield Trouble(
        name="flakes-disabled",
        program="nix",
        says="error: experimental Nix feature 'flakes' is disabled; use '--extra-experimental-features flakes' to override",
        pattern=r"experimental (Nix )?feature '?(flakes|nix-command)'? is (disabled|not enabled)|error: '(flakes?|nix-command)' is an experimental",
        cause="flakes are not enabled in nix.conf",
        remedy="enable flakes for this user",
        commands=(
            'mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/nix"',
            "echo 'extra-experimental-features = nix-command flakes' >>\"${XDG_CONFIG_HOME:-$HOME/.config}/nix/nix.conf\"",
        ),
    )
    yield Trouble(
        name="untracked",
        program="nix",
        says="error: Path 'flake.nix' in the repository \"/home/me/project\" is not tracked by Git.",
        pattern=r"is not tracked by Git|getting status of '/nix/store/[^']*-source/[^']*': No such file|path '.*flake\.nix' does not (exist|contain a 'flake\.nix')|"
        r"'/nix/store/[^']*-source/[^']*' does not exist|does not provide attribute .*devShells",
        cause="flakes see only what git knows, and the rendered files are new",
        remedy="tell git of them; nothing is committed by that",
        commands=("wavegen render --git-add",),
    )
    yield Trouble(
        name="unfree",
        program="nix",
        says="error: Package ‘claude-code-2.0.0’ in … has an unfree license (‘unfree’), refusing to evaluate.",
        pattern=r"has an unfree license",
        cause="the package is not free software, and flakes ignore NIXPKGS_ALLOW_UNFREE",
        remedy="name it in the manifest: unfree: [claude-code], and render",
        commands=("wavegen render",),
    )
    yield Trouble(
        name="no-platform",
        program="nix",
        says="error: Package ‘bubblewrap-0.11.0’ is not available on the requested hostPlatform: aarch64-darwin",
        pattern=r"is not available on the requested hostPlatform",
        cause="a package of the manifest does not exist for this system",
        remedy="move it to a shell that is not used there",
    )
    yield Trouble(
        name="nix-daemon",
        program="nix",
        says="error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket': No such file or directory",
        pattern=r"cannot connect to (socket|daemon) at '?/nix/var/nix",
        cause="Nix's daemon does not run; inside a fenced shell it is out of reach, as it builds with the host's network and root's rights",
        remedy="on the host start it; inside, leave builds to the host",
        commands=("sudo systemctl start nix-daemon",),
    )
    yield Trouble(
        name="untrusted",
        program="nix",
        says="warning: ignoring untrusted flake configuration setting 'extra-substituters'.",
        pattern=r"ignoring (the )?(untrusted|client-specified)|you are not a trusted user|not a trusted user",
        cause="Nix's daemon takes such settings from its trusted users alone, who are as good as root",
        remedy="let an administrator write the setting into /etc/nix/nix.conf; a user who runs agents is better not trusted",
    )
    yield Trouble(
        name="no-nix-store",
        program="nix",
        says="error: creating directory '/nix/store': Permission denied",
        pattern=r"(creating directory|cannot (open|create)|opening lock file) '?/nix(/store|/var/nix/\S*)?'?: (Permission denied|Read-only)|big-lock': Permission denied",
        cause="Nix is installed for root alone, without a daemon",
        remedy="install it with a daemon, or use .wavegen/bin, which needs no Nix",
    )


def _engine_troubles() -> Iterator[Trouble]:
    yield Trouble(
        name="docker-permission",
        program="docker",
        says="permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        pattern=r"permission denied while trying to connect to the docker|dial unix .*docker.*permission denied",
        cause="this user may not use docker's daemon",
        remedy="WAVEGEN_CONTAINER=podman needs no daemon; or join the group docker, whose members are as good as root",
        commands=("export WAVEGEN_CONTAINER=podman",),
    )
    yield Trouble(
        name="docker-down",
        program="docker",
        says="Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        pattern=r"cannot connect to the docker daemon|is the docker daemon running|docker daemon is not running|dial unix .*docker.*(connection refused|no such file)",
        cause="docker's daemon does not run, or is elsewhere",
        remedy="start it; or WAVEGEN_CONTAINER=podman, which needs none",
        commands=("sudo systemctl start docker",),
    )
    yield Trouble(
        name="no-image",
        program="docker",
        says="Error: No such image: wavegen/project:latest",
        pattern=r"no such image|image not known|unable to find image .* locally",
        cause="the image of the shells is not on this machine",
        remedy="build or pull it as .wavegen/docker/run-SHELL says",
    )
    yield Trouble(
        name="no-subordinate-ids",
        program="podman",
        says='cannot set up namespace using "/usr/bin/newuidmap": should have setuid or have filecaps setuid: exit status 1',
        pattern=r"newuidmap|newgidmap|no subuid ranges found|potentially insufficient UIDs or GIDs|cannot find (UID/GID|mappings) for user",
        cause="a user's podman needs further ids: newuidmap, and lines for the user in /etc/subuid and /etc/subgid",
        remedy="install uidmap and give the user ids",
        commands=("sudo apt install uidmap", 'sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "$(id -un)"', "podman system migrate"),
    )
    yield Trouble(
        name="no-control-groups",
        program="docker",
        says="Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
        pattern=r"kernel does not support .*(limit|cgroup)|cgroup is not mounted|cgroup.*(no such file|controller.*not (available|delegated))",
        cause="the kernel hands no control groups to the engine",
        remedy="boot with systemd.unified_cgroup_hierarchy=1 cgroup_enable=memory; see the warnings of docker info",
        commands=("docker info",),
    )


def _network_troubles() -> Iterator[Trouble]:
    yield Trouble(
        name="refused-host",
        program="",
        says="curl: (56) CONNECT tunnel failed, response 403",
        pattern=r"CONNECT tunnel failed, response 403|tunneling socket could not be established, statusCode=403|Proxy (CONNECT aborted|error: .*403)|ProxyError.*403|"
        r"Received HTTP code 403 from proxy",
        cause="the network of the shell does not allow that host",
        remedy="wavegen log --denied shows the name and port, --suggest the line that would allow it: read it before you paste it",
        commands=("wavegen log --denied",),
    )
    yield Trouble(
        name="no-name",
        program="",
        says="curl: (6) Could not resolve host: example.com",
        pattern=r"could not resolve host|Temporary failure in name resolution|getaddrinfo (EAI_AGAIN|ENOTFOUND)|Name or service not known",
        cause="in the sandbox, only names on the allowlist resolve; if only bwrap may create user namespaces, no name resolves",
        remedy="see what was refused, and whether wavegen doctor reports that only proxies work",
        commands=("wavegen log --denied", "wavegen doctor"),
    )
    yield Trouble(
        name="node-proxy",
        program="node",
        says="TypeError: fetch failed",
        pattern=r"TypeError: fetch failed",
        cause="Node's fetch ignores proxy variables by default, and names may not resolve here",
        remedy="set NODE_USE_ENV_PROXY=1, and see what was refused",
        commands=("wavegen log --denied", "export NODE_USE_ENV_PROXY=1"),
    )


TROUBLES: tuple[Trouble, ...] = (
    *_sandbox_troubles(),
    *_bubblewrap_troubles(),
    *_terminal_troubles(),
    *_file_troubles(),
    *_nix_troubles(),
    *_engine_troubles(),
    *_network_troubles(),
)
"""The first that matches a line holds."""

"""The probes. Data: each line is a way to get out that somebody has used, or a thing that must work in spite of the fence.

Ids: R reading, W writing, L links, P processes and privileges, K kernel, N network, E environment, Q resources,
T terminal, I identity and launcher, U what must work. CRITICAL is what gives the host away.
"""

from __future__ import annotations

from wavegen.backends.bwrap import PROC_READ_ONLY
from wavegen.policy import Access, Anchor, Policy
from wavegen.probes import Case, Fact, Group, Probe, Severity, Want, Where
from wavegen.probes.expect import (
    Expect,
    absent_variables,
    any_filter,
    any_socket,
    capabilities,
    fails_closed,
    filtered,
    fixed_variables,
    git_works,
    granted,
    hidden_by_default,
    home,
    host,
    launcher,
    limit,
    namespace,
    namespaces,
    nested,
    network,
    open_by,
    passed_variables,
    people,
    pinned,
    private,
    private_home,
    project,
    project_directory,
    project_files,
    races,
    read_only_by_default,
    scratch,
    scratch_bounds,
    shared_terminal,
    shown_by_default,
    sources,
    stopped,
    terminal,
    unless_granted,
    unlisted_secrets,
    unseen,
    unwritable,
    works,
    works_in_project,
)

C, H, M, L = Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW

HOME_SECRETS = {
    "R01": (".ssh/id_ed25519", ".ssh/id_rsa", ".ssh/config"),
    "R02": (".aws/credentials", ".config/gcloud/credentials.db", ".azure/msal_token_cache.json", ".kube/config", ".docker/config.json"),
    "R03": (
        ".gnupg/private-keys-v1.d/key.key",
        ".password-store/login.gpg",
        ".local/share/keyrings/login.keyring",
        ".netrc",
        ".git-credentials",
        ".config/gh/hosts.yml",
    ),
    "R04": (".mozilla/firefox/profiles.ini", ".config/google-chrome/Local State", ".config/chromium/Local State"),
    "R05": (".bash_history", ".zsh_history", ".npmrc", ".pypirc", ".cargo/credentials.toml", ".config/op/config"),
}
"""What is planted in the throw-away home, by the probe that looks for it."""

STARTUP_FILES = (".bashrc", ".profile", ".zshrc", ".config/fish/config.fish", ".gitconfig", ".ssh/authorized_keys", ".config/autostart/x.desktop")
CACHES = (".cache/pip/x", "go/pkg/mod/x", ".cargo/registry/x", ".npm/x")

GIT_FILES = (".git/commondir", ".git/config.worktree", ".git/info/attributes", ".git/modules/m/hooks/post-checkout", ".git/worktrees/w/commondir")

DANGEROUS = (
    "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF",
    "PERL5LIB", "RUBYLIB", "PS4",
)  # fmt: skip
TO_SOCKETS = (
    "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "DOCKER_HOST", "CONTAINER_HOST", "XDG_RUNTIME_DIR", "TMUX",
    "VSCODE_IPC_HOOK_CLI", "GPG_AGENT_INFO",
)  # fmt: skip
SECRETS = ("AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "NPM_TOKEN", "SLACK_SESSION", "SENTRY_DSN", "OPENAI_API_KEY", "VAULT_PASSWORD")
SOCKETS = (
    "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/libvirt/libvirt-sock", "/run/dbus/system_bus_socket",
    "/run/systemd/private", "/run/snapd.socket", "/tmp/.X11-unix/X0", "/run/postgresql/.s.PGSQL.5432",
)  # fmt: skip
_SYSTEM_DIRECTORIES = ("/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/boot", "/opt", "/var", "/var/lib", "/nix/store", "/dev", "/media", "/mnt", "/srv")
_PROGRAMS = ("/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_KERNEL_MEMORY = tuple(host(path) for path in ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kmsg", "/proc/kcore"))
_KERNEL_SETTINGS = tuple(
    host(path)
    for path in (
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger"),
        *("/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled"),
    )
)
_OF_GROUPS = tuple(host(path) for path in ("/dev/kvm", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/net/tun", "/dev/fuse", *SOCKETS[:4]))
_REAL_ROOT = "real root could change the host's kernel there"
_CONNECT = "a read-only mount does not stop connect(2)"
_AROUND = "the project's neighbours"


def _probe(  # noqa: PLR0913, PLR0917  the columns of the table
    number: str, severity: Severity, question: str, group: Group, attempt: str, expect: Expect, *, where: Where = Where.INSIDE, required: bool = True
) -> Probe:
    return Probe(id=number, question=question, group=group, severity=severity, attempt=attempt, expect=expect, where=where, required=required)


# A probe is two lines: what it asks, and how it is tried with what a policy says about it.
# fmt: off
_READ = (
    *(
        _probe(number, severity, question, Group.READ, "canaries", unseen(*(home(path) for path in HOME_SECRETS[number]), inodes=False))
        for number, severity, question in (
            ("R01", C, "Can it read your ssh keys?"),
            ("R02", C, "Can it read your cloud credentials?"),
            ("R03", C, "Can it read your keyrings, passwords and logins?"),
            ("R04", C, "Can it read your browser's profiles?"),
            ("R05", H, "Can it read your shell history and registry tokens?"),
        )
    ),
    _probe("R06", H, "Can it see the project next door?", Group.READ,
           "canaries", stopped("mounts", _AROUND, paths=(Fact("neighbour"),))),
    _probe("R06b", M, "Is the project next door listed?", Group.READ,
           "listing", stopped("mounts", _AROUND, directory=Fact("around"), foreign="neighbour")),
    _probe("R07", H, "Can it read another user's home?", Group.READ,
           "canaries", stopped("mounts", "other users", paths=(Fact("other home"),))),
    _probe("R07b", H, "Can it see your real home, or the project where it really is?", Group.READ,
           "host_inodes", stopped("mounts", "other users and projects", paths=Fact("real places")), required=False),
    _probe("R08", H, "Can it see passwords, host keys and credentials in /etc?", Group.READ,
           "host_inodes", hidden_by_default("/etc/"), required=False),
    _probe("R08b", H, "Can it see more of the host than programs and libraries?", Group.READ,
           "host_inodes", unseen(*(host(path) for path in ("/etc/shadow", "/etc/ssh", "/etc/hostname",
             "/etc/fstab", "/etc/crontab", "/etc/cron.d", "/root", "/opt", "/var/log", "/var/lib", "/sys/kernel",
             "/sys/fs", "/sys/class", "/srv"))), required=False),
    _probe("R09", C, "Can it read the environment of the host's processes?", Group.READ,
           "environments", stopped("clean environment", "bwrap's own environment is readable inside", pids=(Fact("pid"),))),
    _probe("R10", H, "Do secrets stand in a command line that it can read?", Group.READ,
           "command_lines", stopped("pid namespace", "values are never arguments", pids=(Fact("pid"),), passed=Fact("passed values"))),
    _probe("R11", H, "Can it see the host's processes?", Group.READ,
           "listed", namespace("pid", pid=Fact("pid"))),
    _probe("R12", C, "Can it open the kernel's memory and log?", Group.READ,
           "opens", unless_granted("devices", "the few devices that everybody may use", *_KERNEL_MEMORY), required=False),
    _probe("R13", C, "Can it reach files through another process?", Group.READ,
           "roots", namespace("pid", pids=(Fact("pid"),), path=Fact("neighbour"))),
    _probe("R14", C, "Can it read disks, or make a device for one?", Group.READ,
           "devices", private(host("/dev"), "capabilities", "no disk is among the devices, and none can be made", path=Fact("scratch /tmp")), required=False),
    _probe("R15", M, "Can it see the kernel's own interfaces in /sys?", Group.READ,
           "host_inodes", hidden_by_default("/sys/"), required=False),
    _probe("R16", H, "Can it see runtime secrets and user services in /run?", Group.READ,
           "host_inodes", unseen(host("/run"), host("/run/secrets"), host("/run/credentials"), host("/run/user"), host("/run/lock"), host("/run/dbus"))),
    _probe("R17", L, "Are there names like secrets' in the Nix store?", Group.READ,
           "names", open_by("the whole store is shown: programs are in it", directory=host("/nix/store"), endings=(".key", ".pem", ".age")), required=False),
    _probe("R18", M, "Can it see logs, mail, other disks and other programs' data?", Group.READ,
           "host_inodes", hidden_by_default("/var", "/media", "/mnt", "/srv", "/lost+found", "/boot", "/home", "/root", "/nix"), required=False),
    _probe("R18b", M, "Is the host's root directory there?", Group.READ,
           "host_inodes", unseen(host("/")), required=False),
    _probe("R19", C, "Can it use a descriptor that the caller left open?", Group.READ,
           "descriptors", stopped("closed descriptors", "all of the host can be reached from an open directory")),
    _probe("R19b", H, "Can it write the file that is its input?", Group.READ,
           "reopened_input", launcher("a file as input could be opened again for writing"), where=Where.LAUNCHER),
    _probe("R20", C, "Can it open files by handle, whatever is mounted over them?", Group.READ,
           "handles", capabilities(paths=(project(), host("/usr"))), required=False),
    _probe("R21", H, "Can it read what the manifest denies?", Group.READ,
           "canaries", granted(Access.HIDE, Want.STOPPED, anchors=(Anchor.PROJECT, Anchor.HOME))),
    _probe("R21b", H, "Can it see what the manifest denies of the system?", Group.READ,
           "host_inodes", granted(Access.HIDE, Want.STOPPED, "inodes", anchors=(Anchor.ROOT,)), required=False),
    _probe("R22", M, "Can it read the host's temporary files?", Group.READ,
           "canaries", unless_granted("mounts", "private, so that nothing in it is shared with the host", host("/tmp"), host("/var/tmp"), fact="temporary")),
    _probe("R23", C, "Is something mounted that no rule asks for?", Group.READ,
           "strange_mounts", stopped("mounts", "what is mounted is what the rules say", expected=Fact("mount points"), host=Fact("mounts"),
             project=project(), home=home(""))),
    _probe("U06", M, "Are the programs and libraries of the host there?", Group.READ,
           "host_inodes", shown_by_default),
    _probe("U07", M, "Can it read what the manifest grants?", Group.READ,
           "canaries", granted(Access.READ, Want.WORKS, anchors=(Anchor.PROJECT, Anchor.HOME))),
    _probe("U07b", M, "Can it read what the manifest grants of the system?", Group.READ,
           "host_inodes", granted(Access.READ, Want.WORKS, "inodes", anchors=(Anchor.ROOT,)), required=False),
)

_WRITE = (
    _probe("W01", C, "Can it make files in the system?", Group.WRITE,
           "creates", unwritable(*(host(path) for path in _SYSTEM_DIRECTORIES)), required=False),
    _probe("W01b", C, "Is a directory of the system mounted writable?", Group.WRITE,
           "writable_mounts", unwritable(*(host(path) for path in _SYSTEM_DIRECTORIES)), required=False),
    _probe("W01c", M, "Can masks of the fence be written into?", Group.WRITE,
           "writable_mounts", hidden_by_default("/", inodes=False), required=False),
    _probe("W01d", C, "Is a part of the host that is shown mounted writable?", Group.WRITE,
           "writable_mounts", read_only_by_default, required=False),
    _probe("W02", C, "Can it undo the fence's mounts, or make its own?", Group.WRITE,
           "mounts", capabilities(directory=project()), required=False),
    _probe("W03", C, "Can it plant something in your startup files?", Group.WRITE,
           "reaches_host", private_home(*STARTUP_FILES)),
    _probe("W04", C, "Can it plant git hooks?", Group.WRITE,
           "creates_named", project_files(".git/hooks/wavegen-probe")),
    _probe("W05", C, "Can it change git's settings, which run commands?", Group.WRITE,
           "writes", project_files(".git/config")),
    _probe("W06", C, "Can it put another .git in place of the one there is?", Group.WRITE,
           "renames", project_files(".git")),
    _probe("W07", C, "Can it change where git looks for settings and hooks?", Group.WRITE,
           "creates_named", project_files(*GIT_FILES)),
    _probe("W08", C, "Can it turn a .git pointer file elsewhere?", Group.WRITE,
           "replaces", project_files("linked/.git")),
    _probe("W09", H, "Can it plant hooks in a repository below the project?", Group.WRITE,
           "creates_named", project_files("nested/.git/hooks/wavegen-probe")),
    _probe("W10", C, "Can it write what direnv and version managers run?", Group.WRITE,
           "creates_named", project_files(".envrc", ".mise.toml", ".tool-versions", ".nvmrc")),
    _probe("W11", C, "Can it write tasks that an editor runs?", Group.WRITE,
           "creates_named", project_files(".vscode/tasks.json", ".idea/workspace.xml", ".devcontainer/devcontainer.json")),
    _probe("W12", H, "Can it write its own settings and instructions?", Group.WRITE,
           "creates_named", project_files(".claude/settings.json", ".mcp.json", ".codex/config.toml", ".cursor/mcp.json", "AGENTS.md")),
    _probe("W13", M, "Can it change build scripts that you run later?", Group.WRITE,
           "creates_named", project_files("package.json", "Makefile", "setup.py", "conftest.py", "justfile")),
    _probe("W14", H, "Can it change what continuous integration runs?", Group.WRITE,
           "creates_named", project_files(".github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile")),
    _probe("W15", C, "Can it loosen its own fence?", Group.WRITE,
           "writes", pinned()),
    _probe("W15b", C, "Can it put something else in place of its own fence?", Group.WRITE,
           "replaces", pinned()),
    _probe("W16", H, "Can it plant a flake below the project?", Group.WRITE,
           "creates_named", project_files("nested/flake.nix", "nested/.envrc")),
    _probe("W17", H, "Can it change what verifies it?", Group.WRITE,
           "writes", unwritable(project(".wavegen/runtime/probe.py"), project(".wavegen/runtime"))),
    _probe("W18", M, "Can it leave a program that runs as its owner?", Group.WRITE,
           "setuid", project_directory()),
    _probe("W19", M, "Can it give a program capabilities?", Group.WRITE,
           "capable", capabilities(directory=project()), required=False),
    _probe("W20", H, "Can it plant a job that the host starts?", Group.WRITE,
           "creates", unwritable(host("/etc/cron.d"), host("/var/spool/cron"), host("/etc/systemd/system")), required=False),
    _probe("W20b", H, "Can it plant a service of yours?", Group.WRITE,
           "reaches_host", private_home(".config/systemd/user/wavegen-probe.service")),
    _probe("W21", M, "Does a temporary file reach the host?", Group.WRITE,
           "reaches_host", unless_granted("mounts", "private, so that nothing in it is shared with the host",
             host("/tmp"), host("/var/tmp"), host("/dev/shm"), fact="scratch")),
    _probe("W22", H, "Can it poison your package caches?", Group.WRITE,
           "reaches_host", private_home(*CACHES)),
    _probe("W23", C, "Can it plant a program on your PATH?", Group.WRITE,
           "reaches_host", private_home(".local/bin/wavegen-probe")),
    _probe("W23b", C, "Can it plant a program in the system's PATH?", Group.WRITE,
           "creates", unwritable(host("/usr/local/bin"), host("/usr/bin"), host("/usr/sbin")), required=False),
    _probe("W24", C, "Can it change settings of the kernel that run programs?", Group.WRITE,
           "writes_back", unless_granted("mounts", _REAL_ROOT, *_KERNEL_SETTINGS, writing=True), required=False),
    _probe("W24b", C, "Are the kernel's settings mounted writable?", Group.WRITE,
           "writable_mounts", unless_granted("mounts", _REAL_ROOT, *(host(path) for path in (*PROC_READ_ONLY, "/sys")), writing=True), required=False),
    _probe("W25", H, "Can it change what is granted for reading only?", Group.WRITE,
           "writes", granted(Access.READ, Want.STOPPED, anchors=(Anchor.PROJECT, Anchor.HOME))),
    _probe("W25b", H, "Can it change what is granted of the system for reading only?", Group.WRITE,
           "writes", granted(Access.READ, Want.STOPPED, anchors=(Anchor.ROOT,)), required=False),
    _probe("W26", H, "Can it change files through the masks of denied paths?", Group.WRITE,
           "writes", granted(Access.HIDE, Want.STOPPED, anchors=(Anchor.PROJECT, Anchor.HOME))),
    _probe("U01", H, "Can it work in the project?", Group.WRITE,
           "works", works_in_project("what the shell is for", directory=project())),
    _probe("U02", M, "Can it work in its home?", Group.WRITE,
           "works", works("private home", "programs keep their settings there", directory=home(""))),
    _probe("U03", M, "Can it use /tmp, /var/tmp and /dev/shm?", Group.WRITE,
           "creates_named", scratch(host("/tmp"), host("/var/tmp"), host("/dev/shm"))),
    _probe("U08", M, "Does what it writes where the manifest grants it reach the host?", Group.WRITE,
           "reaches_host", granted(Access.WRITE, Want.WORKS, anchors=(Anchor.PROJECT, Anchor.HOME))),
    _probe("U08b", M, "Can it write what the manifest grants of the system for writing?", Group.WRITE,
           "writes", granted(Access.WRITE, Want.WORKS, anchors=(Anchor.ROOT,)), required=False),
    _probe("U09", M, "Do git status, commit and branch work?", Group.WRITE,
           "git_commands", git_works(git=Fact("git"), directory=project()), required=False),
    _probe("U10", L, "Does a command start where the caller stands?", Group.WRITE,
           "working_directory", works("mounts", "in the project wherever the caller stands in it", directory=project())),
    _probe("U12", L, "Do locks work in /tmp?", Group.WRITE,
           "locks", scratch(host("/tmp"))),
)

_LINKS = (
    _probe("L01", C, "Does a symlink in the project lead out?", Group.LINKS,
           "symlinks", stopped("mounts", _AROUND, paths=(Fact("neighbour"), Fact("other home")), directory=project())),
    _probe("L02", H, "Can a read-only file be written by a second name?", Group.LINKS,
           "hardlinks", pinned(more={"directory": project()}), required=False),
    _probe("L03", H, "Does .. lead out?", Group.LINKS,
           "upwards", stopped("mounts", _AROUND, paths=(Fact("neighbour"),))),
    _probe("L04", C, "Can the directory above its own fence be exchanged?", Group.LINKS,
           "renames", stopped("mounts", "whoever renames a directory above a mount takes the mount away", paths=(project(), project(".wavegen")))),
    _probe("L05", C, "Does a link where the manifest grants something lead out at the next start?", Group.LINKS,
           "planted_links", sources, where=Where.LAUNCHER),
    _probe("L06", H, "Does a link that comes and goes while a shell starts lead out?", Group.LINKS,
           "planted_links", races, where=Where.LAUNCHER),
    _probe("L07", H, "Can a pinned file be exchanged for another?", Group.LINKS,
           "exchanges", pinned(more={"other": project()})),
    _probe("L08", M, "Can it leave a pipe or socket where the host reads a file?", Group.LINKS,
           "fifos", project_directory()),
    _probe("L09", C, "Does a shell start where the project is the home, or holds it?", Group.LINKS,
           "project_is_home", launcher("the home is what must stay outside"), where=Where.LAUNCHER),
)

_PROCESS = (
    _probe("P01", H, "Can it signal the host's processes?", Group.PROCESS,
           "signals", namespace("pid", pid=Fact("pid"))),
    _probe("P02", C, "Can it trace, read or rob the host's processes?", Group.PROCESS,
           "traces", namespace("pid", pid=Fact("pid"), address=Fact("address"), size=Fact("size"), descriptor=Fact("descriptor"))),
    _probe("P03", H, "May a program gain privileges?", Group.PROCESS,
           "new_privileges", stopped("no_new_privs", "bwrap always sets it"), required=False),
    _probe("P04", C, "Is a capability left?", Group.PROCESS,
           "capabilities", capabilities()),
    _probe("P05", C, "Do programs run as their owner (setuid)?", Group.PROCESS,
           "setuid_programs", stopped("no_new_privs", "bwrap always sets it", helper=Fact("setuid helper")), required=False),
    _probe("P06", H, "Is a namespace the host's?", Group.PROCESS,
           "same_namespaces", namespaces("host", ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"))),
    _probe("P07", H, "Can it make a user namespace?", Group.PROCESS,
           "new_user_namespace", nested(), required=False),
    _probe("P08", H, "Can it make other namespaces?", Group.PROCESS,
           "new_namespaces", nested(), required=False),
    _probe("P09", C, "Can it enter the host's mount namespace?", Group.PROCESS,
           "enters_namespaces", capabilities(pid=Fact("pid")), required=False),
    _probe("P10", H, "Can it reach the launcher's or another process's memory?", Group.PROCESS,
           "memory_file", namespace("pid", pid=Fact("pid"))),
    _probe("P11", H, "Can it become another user?", Group.PROCESS,
           "other_users", capabilities(), required=False),
    _probe("P12", H, "Can it use what your groups open: disks, kvm, docker?", Group.PROCESS,
           "groups", unless_granted("mounts", "what groups open is not there", *_OF_GROUPS), required=False),
    _probe("P13", H, "Can it use sudo and its like?", Group.PROCESS,
           "becomes_root", stopped("no_new_privs", "bwrap always sets it"), required=False),
    _probe("P14", M, "Can it find memory and queues that the host shares?", Group.PROCESS,
           "shared_memory", private(host("/dev/shm"), "ipc namespace", "an ipc namespace of its own",
             identifier=Fact("shared memory"), posix=Fact("posix memory"), queue=Fact("queue"))),
    _probe("P15", M, "Does a process outlive the command?", Group.PROCESS,
           "left_behind", namespace("pid"), where=Where.LAUNCHER),
    _probe("P15b", M, "Does a process outlive the wrapper when that is killed?", Group.PROCESS,
           "orphaned", stopped("launcher", "nothing outlives the wrapper"), where=Where.LAUNCHER),
    _probe("U04", M, "Do threads, subprocesses, servers and git work?", Group.PROCESS,
           "programs", works("all", "programs need them")),
)

_KERNEL = (
    _probe("K01", H, "Can it use the caller's keyrings?", Group.KERNEL,
           "calls", filtered("keyctl", "add_key", "request_key", key="names"), required=False),
    _probe("K02", H, "Can it load programs into the kernel (bpf)?", Group.KERNEL,
           "calls", filtered("bpf", key="names"), required=False),
    _probe("K03", H, "Can it use perf events?", Group.KERNEL,
           "calls", filtered("perf_event_open", key="names"), required=False),
    _probe("K04", H, "Can it use userfaultfd?", Group.KERNEL,
           "calls", filtered("userfaultfd", key="names"), required=False),
    _probe("K05", H, "Can it use io_uring?", Group.KERNEL,
           "calls", filtered("io_uring_setup", "io_uring_enter", "io_uring_register", key="names"), required=False),
    _probe("K06", H, "Can it load another kernel?", Group.KERNEL,
           "calls", capabilities(names=("kexec_load", "kexec_file_load")), required=False),
    _probe("K07", H, "Can it load kernel modules?", Group.KERNEL,
           "calls", capabilities(names=("init_module", "finit_module", "delete_module")), required=False),
    _probe("K08", H, "Can it reboot, swap, account, or read the kernel's log?", Group.KERNEL,
           "calls", capabilities(names=("reboot", "swapon", "acct", "syslog")), required=False),
    _probe("K09", M, "Can it take the randomness out of addresses?", Group.KERNEL,
           "personality", filtered("personality"), required=False),
    _probe("K10", H, "Does the kernel see TIOCSTI, which types into terminals?", Group.KERNEL,
           "own_terminal", filtered("TIOCSTI"), required=False),
    _probe("K11", H, "Can it make packet and raw sockets?", Group.KERNEL,
           "families", capabilities(names=("packet", "raw")), required=False),
    _probe("K11b", H, "Can it make sockets of families that few programs need?", Group.KERNEL,
           "families", filtered("vsock", "alg", "netfilter", "xfrm", "bluetooth", "xdp", "tipc", "rds", "can", "kcm", key="names"), required=False),
    _probe("K12", H, "Can it call the kernel as a 32-bit program?", Group.KERNEL,
           "foreign_calls", filtered("foreign"), required=False),
    _probe("K13", H, "Can it call the kernel by the numbers of x32?", Group.KERNEL,
           "x32_calls", filtered("foreign"), required=False),
    _probe("K14", H, "Can it reach calls about mounts, namespaces, handles and other processes?", Group.KERNEL,
           "calls", filtered("fsopen", "open_tree", "move_mount", "setns", "unshare", "open_by_handle_at",
             "name_to_handle_at", "fanotify_init", "lookup_dcookie", "move_pages", "pidfd_getfd", "process_madvise",
             "kcmp", "ptrace", "memfd_secret", "modify_ldt", key="names"), required=False),
    _probe("K15", M, "Is clone3, which a filter cannot look into, reachable?", Group.KERNEL,
           "threads_without_clone3", filtered("clone3"), required=False),
    _probe("K16", H, "Does it run without a system call filter?", Group.KERNEL,
           "unfiltered", any_filter(filters=Fact("filters")), required=False),
    _probe("K18", M, "Can it set the clock and the machine's names?", Group.KERNEL,
           "clock_and_names", capabilities(), required=False),
)

_NETWORK = (
    _probe("N01", C, "Is there a way to the internet (IPv4)?", Group.NETWORK,
           "routes", network(addresses=("192.0.2.1",), ports=(443, 80, 22)), required=False),
    _probe("N02", C, "Is there a way to the internet (IPv6)?", Group.NETWORK,
           "routes", network(addresses=("2001:db8::1", "::ffff:192.0.2.1"), ports=(443,)), required=False),
    _probe("N03", C, "Is there a way for UDP: QUIC, DNS, time?", Group.NETWORK,
           "routes", network(addresses=("198.51.100.1",), ports=(53, 123, 443)), required=False),
    _probe("N04", C, "Is there a way to the host's name servers?", Group.NETWORK,
           "name_servers", network(), required=False),
    _probe("N05", M, "Is there a way for other protocols?", Group.NETWORK,
           "protocols", network(address="192.0.2.1"), required=False),
    _probe("N06", C, "Is there a way to the cloud's metadata?", Group.NETWORK,
           "routes", network(addresses=("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"), ports=(80,)), required=False),
    _probe("N07", H, "Can it talk to services on the host's loopback?", Group.NETWORK,
           "servers", network(tcp=Fact("tcp"), udp=Fact("udp"))),
    _probe("N08", H, "Can it talk to the host's abstract sockets, or list them?", Group.NETWORK,
           "abstract", network(name=Fact("abstract"))),
    _probe("N09", C, "Can it talk to the host's sockets by their paths?", Group.NETWORK,
           "planted_sockets", stopped("mounts", _CONNECT, paths=Fact("sockets"))),
    _probe("N09c", C, "Can it talk to your agents: gpg, ssh?", Group.NETWORK,
           "planted_sockets", unless_granted("private home", _CONNECT, home(".gnupg/S.gpg-agent"))),
    _probe("N09d", C, "Can it talk to sockets in /tmp, /var/tmp and /run?", Group.NETWORK,
           "planted_sockets", unless_granted("mounts", _CONNECT, host("/tmp"), host("/var/tmp"), host("/run"), fact="socket")),
    _probe("N09b", C, "Can it talk to docker, D-Bus, X11 and other services of this machine?", Group.NETWORK,
           "sockets", unseen(*(host(path) for path in SOCKETS), inodes=False), required=False),
    _probe("N10", C, "Does any socket anywhere answer?", Group.NETWORK,
           "walk", any_socket(start="/", skip=_PROGRAMS, known=Fact("sockets")), required=False),
    _probe("N11", H, "Does a variable lead to a service of the host?", Group.NETWORK,
           "names_in_variables", absent_variables(TO_SOCKETS)),
    _probe("N13", C, "Can it build outside the fence by the Nix daemon?", Group.NETWORK,
           "sockets", unseen(host("/nix/var/nix/daemon-socket/socket"), inodes=False), required=False),
    _probe("N14", M, "Can the host connect to what it listens on?", Group.NETWORK,
           "listens", network()),
    _probe("N15", H, "Can it talk to the hypervisor (vsock)?", Group.NETWORK,
           "families", filtered("vsock", key="names"), required=False),
    _probe("N17", H, "Can it change interfaces and routes?", Group.NETWORK,
           "network_settings", capabilities(), required=False),
)

_ENVIRONMENT = (
    _probe("E01", C, "Do your secrets arrive in its environment?", Group.ENVIRONMENT,
           "foreign_variables", absent_variables(SECRETS)),
    _probe("E01b", C, "Does a variable arrive that nobody has heard of?", Group.ENVIRONMENT,
           "foreign_variables", stopped("clean environment", "every variable that is not listed stays outside", names=Fact("unheard of"))),
    _probe("E02", H, "Is there a variable with a name like a secret's that nobody listed?", Group.ENVIRONMENT,
           "suspicious_variables", unlisted_secrets),
    _probe("E03", H, "Do variables arrive that run code in programs?", Group.ENVIRONMENT,
           "foreign_variables", absent_variables(DANGEROUS)),
    _probe("E04", M, "Is a relative directory on its PATH?", Group.ENVIRONMENT,
           "search_path", stopped("clean environment", "a relative entry is the working directory")),
    _probe("E05", L, "Has a variable that the fence sets another value?", Group.ENVIRONMENT,
           "other_values", fixed_variables),
    _probe("U05", M, "Do the variables arrive that are let in?", Group.ENVIRONMENT,
           "variables", passed_variables),
)

_RESOURCES = (
    _probe("Q01", H, "Can it start processes without end?", Group.RESOURCES,
           "forks", limit("pids", "most"), required=False),
    _probe("Q02", H, "Can it use memory without end?", Group.RESOURCES,
           "allocates", limit("memory", "most"), required=False),
    _probe("Q03", M, "Can it fill memory through scratch directories?", Group.RESOURCES,
           "sizes", scratch_bounds, required=False),
    _probe("Q04", L, "Can it raise its own priority and bounds?", Group.RESOURCES,
           "real_time", capabilities(), required=False),
    _probe("Q05", L, "Are core dumps written, and files opened without end?", Group.RESOURCES,
           "bounds", open_by("bounds of single processes are the caller's in this version", descriptors=65536), required=False),
)

_TERMINAL = (
    _probe("T01", C, "Can it type into your terminal?", Group.TERMINAL,
           "types_into_terminal", terminal("TIOCSTI"), where=Where.TERMINAL, required=False),
    _probe("T01b", C, "Can it paste into your console?", Group.TERMINAL,
           "pastes_into_terminal", terminal("TIOCLINUX"), where=Where.TERMINAL, required=False),
    _probe("T02", H, "Can it signal the process group that started it?", Group.TERMINAL,
           "callers_group", shared_terminal("the terminal is shared, and with it the process group", host=Fact("namespace pid")), where=Where.TERMINAL),
    _probe("T02b", H, "Without a terminal, can it signal the process group that started it?", Group.TERMINAL,
           "callers_group", stopped("a session of its own", "nothing is shared without a terminal", host=Fact("namespace pid"))),
    _probe("T03", M, "Do escape sequences reach your terminal's clipboard?", Group.TERMINAL,
           "escapes", open_by("what is written to the terminal is not filtered"), where=Where.TERMINAL),
    _probe("T04", M, "Do Ctrl-C, job control and resizing work?", Group.TERMINAL,
           "interactive", people, where=Where.LAUNCHER),
)

_IDENTITY = (
    _probe("I01", L, "Does it know the host's name?", Group.IDENTITY,
           "host_name", stopped("uts namespace", "the host's name stays outside", host=Fact("host name")), required=False),
    _probe("I01b", L, "Does it know the machine's id?", Group.IDENTITY,
           "host_inodes", unseen(host("/etc/machine-id")), required=False),
    _probe("I03", H, "Does a forged variable keep the fence from coming up?", Group.IDENTITY,
           "forged", launcher("variables prove nothing"), where=Where.LAUNCHER),
    _probe("I06", C, "Is a command run where the fence cannot be built?", Group.IDENTITY,
           "unfenceable", fails_closed, where=Where.LAUNCHER),
)
# fmt: on

PROBES: tuple[Probe, ...] = (*_READ, *_WRITE, *_LINKS, *_PROCESS, *_KERNEL, *_NETWORK, *_ENVIRONMENT, *_RESOURCES, *_TERMINAL, *_IDENTITY)


def cases(policy: Policy) -> tuple[Case, ...]:
    """Every probe that has a meaning under a policy, in the catalogue's order."""
    return tuple(Case(probe=probe, expectation=expectation) for probe in PROBES for expectation in probe.expect(policy))

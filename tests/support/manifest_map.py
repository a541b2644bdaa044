"""What becomes of each key of the manifest: the table of docs/map.md, one row a key. tests/whole/test_map.py holds it complete and true.

A row has a sample, by which the test sees that it is so: the project is rendered with the key and without it, and what differs is what the row says.
"""

from __future__ import annotations

from dataclasses import dataclass

_RULES = "wavegen/backends/sandboxes/rules_file.py"
SETTINGS, RULE, NETWORK, TEXT = (f"{_RULES}::{name}" for name in ("_setting_lines", "_rule_line", "_network_lines", "rules_text"))
"""The functions that write most lines of `.wavegen/rules/SHELL`."""
SANDBOXES, AGENTS, PROJECT = (f"wavegen/backends/{name}" for name in ("sandboxes", "agents", "project"))
LAUNCHER, SYSTEM_CALLS = "wavegen/launcher", "wavegen/seccomp/filters.py"
START, MOUNTS, BWRAP, INSIDE = (f"{LAUNCHER}/{name}.py" for name in ("start", "mounts", "bwrap", "bwrap_start"))
EGRESS, FILTERED = f"{LAUNCHER}/egress", f"{LAUNCHER}/filtered.py"
RUN = "wavegen/project/wrappers.py"
"""What `wavegen run` decides before it starts the launcher."""
PLAN, PERSONA = ".wavegen/plan.json", ".wavegen/personas/NAME"
LIST = (f"{FILTERED}::network_rules", f"{EGRESS}/rules.py::decide_connection")
"""What reads the lists of hosts, and what decides by them."""
WITHOUT_WRITING_TOOLS = "`--ro-bind PROJECT` where no tool is left that writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A manifest with the key, and one without it, which the section's frame completes."""

    text: str
    without: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One key."""

    key: str
    policy: tuple[str, ...] = ()
    """Attributes of Plan, Policy or PersonaPolicy, dotted; `[]` stands for each entry of a tuple."""
    rendered: tuple[str, ...] = ()
    """FILE::FUNCTION of the back ends, or of what they are made of."""
    rules: tuple[str, ...] = ()
    """Keywords of the lines in the shell's rules, of `path` with the access behind it. None: the rules are the same with the key and without it."""
    flag: str = ""
    """What such a line has among its flags."""
    files: tuple[str, ...] = ()
    """Other files that are rendered. `PATH: WORD` shows which line, `PATH ~ WORD` is for the test; SHELL, NAME and FILTER stand for any."""
    read: tuple[str, ...] = ()
    """FILE::FUNCTION of the launcher or of `wavegen run`, or another file, that reads it."""
    program: str = ""
    """A program that is not ours and reads it."""
    printed: tuple[str, ...] = ()
    """Options of bwrap that `--print` shows because of it. None: it prints the same."""
    started: tuple[str, ...] = ()
    """Options that are not printed, and are given when the shell starts."""
    shown: str = ""
    """The same in words."""
    probes: tuple[str, ...] = ()
    """Those whose expectations the key changes, or is the origin of, as far as they are about it."""
    untried: str = ""
    """Why no probe is about it."""
    below: str = ""
    """The section that has its keys, where it is a mapping or a list of mappings and says nothing itself."""
    unread: str = ""
    """Why nothing reads it."""
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping of the manifest."""

    mapping: str
    """Its name in the schema."""
    place: str
    also: tuple[str, ...] = ()
    """Where else it stands."""
    frame: str
    """A manifest, with `%s` where its keys stand."""
    shell: str = "restricted"
    """The shell or persona whose rules are compared."""
    rows: tuple[Row, ...]


def make_samples(text: str, without: str = "") -> tuple[Sample, ...]:
    """One sample, as a row has it."""
    return (Sample(text=text, without=without),)


def unread_row(key: str, why: str = "kept for Wave", text: str = "x") -> Row:
    """A key that is taken, and that nothing reads."""
    return Row(key=key, unread=why, samples=make_samples(f"{key}: {text}"))


def section_row(key: str, section: str) -> Row:
    """A key that holds other mappings."""
    return Row(key=key, below=section)


_CLAUDE = "adapters: {claude: {binary: claude}, opencode: {binary: opencode, default_model: openai/gpt}}\n"
_PERSONA = "personas: {p: {adapter: claude}}\n"
_SHELLS = "runtime: {sandbox: {env_passthrough: [ONE, TWO], shells: {wide: {network: open, nested: true}}, default_allowed_domains: [api.anthropic.com, a.example]}}\n"
_ANYWHERE = "verify starts shells by bubblewrap, or by an engine with --via docker"
_SOFTWARE = "it is software, and no boundary"
_HOST_PROGRAM = "what it names is the host's"

_SANDBOX = Section(
    mapping="Sandbox",
    place="runtime.sandbox",
    frame=f"{_CLAUDE}{_PERSONA}runtime: {{sandbox: {{%s}}}}\n",
    rows=(
        Row(
            key="default_allowed_domains",
            policy=("Policy.network.domains",),
            rendered=(NETWORK,),
            rules=("allow",),
            read=LIST,
            shown="nothing; an empty list is `network: none`",
            probes=("N16", "N16c", "N16d", "N16g", "N19", "U13"),
            samples=(
                Sample(text="default_allowed_domains: [b.example, wavegen-verify.example]", without="default_allowed_domains: [a.example]"),
                Sample(text="default_allowed_domains: ['*.a.example']", without="default_allowed_domains: [a.example]"),
            ),
        ),
        Row(
            key="denied_domains",
            policy=("Policy.network.denied",),
            rendered=(NETWORK,),
            rules=("deny",),
            read=LIST,
            probes=("N16b",),
            samples=make_samples("denied_domains: [b.example]"),
        ),
        Row(
            key="upstream_proxy",
            policy=("Policy.network.upstream",),
            rendered=(SETTINGS,),
            rules=("upstream",),
            read=(f"{FILTERED}::run_filtered", f"{FILTERED}::find_upstream"),
            untried=f"{_HOST_PROGRAM} proxy; tests/launcher/test_launcher.py",
            samples=make_samples("upstream_proxy: true"),
        ),
        Row(
            key="env_passthrough",
            policy=("Policy.environment",),
            rendered=(RULE, TEXT),
            rules=("pass", "login"),
            read=(f"{LAUNCHER}/environment.py::command_environment", f"{START}::_look_for_logins"),
            shown="nothing; variables are bwrap's own environment, never its options",
            probes=("U05", "E01", "E01c", "E02", "E03", "N11"),
            samples=make_samples("env_passthrough: [GH_TOKEN, DATABASE_URL, PYTHONPATH, DISPLAY]"),
        ),
        section_row("paths", "PathEntry"),
        Row(
            key="deny_read_paths",
            policy=("Policy.paths",),
            rendered=(RULE,),
            rules=("path hide",),
            read=(f"{MOUNTS}::mask_denied_paths",),
            printed=("--tmpfs", "--ro-bind"),
            shown="`--tmpfs PATH` over a directory, `--ro-bind /dev/null PATH` over a file",
            probes=("R21", "R21b", "W26"),
            samples=make_samples("deny_read_paths: [x, file, /usr/bin/perl]"),
        ),
        Row(
            key="home",
            policy=("Policy.private_home", "Policy.paths"),
            rendered=(SETTINGS, RULE),
            rules=("home", "path write", "path tmpfs"),
            read=(f"{MOUNTS}::show_home_and_project", f"{START}::prepare_state"),
            printed=("--bind", "--tmpfs"),
            shown="`--bind STATE/home HOME`, or `--tmpfs HOME`",
            probes=("R01", "R02", "R03", "R04", "R05", "W03", "W20b", "W22", "W23", "Q03"),
            samples=make_samples("home: tmpfs"),
        ),
        section_row("limits", "Limits"),
        Row(
            key="seccomp",
            policy=("Policy.seccomp",),
            rendered=(SETTINGS, f"{_RULES}::filter_of_shell", f"{SYSTEM_CALLS}::filter_of", f"{SANDBOXES}/bwrap.py::bpf_filter_file"),
            rules=("seccomp",),
            files=(".wavegen/seccomp/FILTER.bpf",),
            read=(f"{INSIDE}::_session_words",),
            started=("--seccomp",),
            probes=("K01", "K02", "K03", "K04", "K05", "K09", "K10", "K11b", "K12", "K13", "K14", "K15", "K16", "N15", "T01b", "T04"),
            samples=make_samples("seccomp: off"),
        ),
        Row(
            key="seccomp_allow",
            policy=("Policy.seccomp_allow",),
            rendered=(SETTINGS, f"{_RULES}::filter_of_shell", f"{SYSTEM_CALLS}::filter_of", f"{SANDBOXES}/bwrap.py::bpf_filter_file"),
            rules=("seccomp",),
            files=(".wavegen/seccomp/FILTER.bpf",),
            read=(f"{INSIDE}::_session_words",),
            started=("--seccomp",),
            probes=("K02", "K03", "K14"),
            samples=make_samples("seccomp_allow: [ptrace, bpf, perf_event_open]"),
        ),
        section_row("shells", "Shell"),
        Row(
            key="fallback",
            policy=("Policy.fallback",),
            rendered=(SETTINGS,),
            rules=("fallback",),
            read=(f"{START}::refuse_or_fall_back",),
            probes=("I06",),
            samples=make_samples("fallback: warn"),
        ),
        Row(
            key="backend",
            policy=("Plan.backend",),
            rendered=(TEXT, f"{SANDBOXES}/landlock.py::render", f"{SANDBOXES}/docker.py::shells_with_script"),
            rules=("seccomp_landlock", "banner_landlock"),
            files=(".wavegen/bin/landlock-SHELL", ".wavegen/docker/run-persona-NAME"),
            read=(f"{START}::_start_shell", f"{LAUNCHER}/landlock.py::_filter_name", f"{LAUNCHER}/landlock.py::run_restricted_command", f"{RUN}::backend_of"),
            shown="nothing; other scripts start it, which print their own: `.wavegen/bin/landlock-SHELL`, `.wavegen/docker/run-SHELL`",
            untried=_ANYWHERE,
            samples=(Sample(text="backend: landlock"), Sample(text="backend: docker")),
        ),
        Row(
            key="enabled",
            policy=("Plan.enabled", "PersonaPolicy.fence.fenced"),
            rendered=(SETTINGS, f"{_RULES}::_why_unsandboxed"),
            files=(".wavegen/rules/persona-NAME: unsandboxed",),
            read=(f"{START}::_start_shell", f"{START}::run_unsandboxed", f"{RUN}::shell_of"),
            shown="nothing for shells; for a persona the command alone",
            untried="verify leaves out what has no sandbox",
            samples=make_samples("enabled: false"),
        ),
        Row(
            key="outputs",
            policy=("Plan.outputs", "Policy.paths"),
            rendered=("wavegen/backends/__init__.py::requested_backends", RULE),
            rules=("path read",),
            flag="required",
            files=(".wavegen/srt/SHELL.json", ".wavegen/docker/Dockerfile", "flake.nix"),
            program="docker, docker compose, srt, Nix",
            shown="nothing; without `flake` a missing flake.nix does not stop the start",
            untried="it is files that other programs read",
            samples=make_samples("outputs: [srt]"),
        ),
        Row(
            key="vendor",
            policy=("Plan.vendored", "Policy.paths"),
            rendered=(f"{PROJECT}/plan_files.py::render", f"{PROJECT}/flake.py::render", f"{SANDBOXES}/bwrap.py::render", RULE),
            rules=("path read",),
            flag="required",
            files=(".wavegen/launcher/start.py", ".wavegen/bin/SHELL"),
            read=("templates/stub.sh.j2",),
            untried="the same launcher starts the shell; tests/backends/test_vendor.py",
            samples=make_samples("vendor: false"),
        ),
        Row(
            key="docker_image",
            policy=("Plan.image.reference",),
            rendered=(SETTINGS, f"{PROJECT}/plan_files.py::nix_json"),
            rules=("image",),
            files=(f"{PLAN}: image",),
            read=(f"{LAUNCHER}/container.py::client_command_line",),
            shown="nothing; `.wavegen/docker/run-SHELL` prints it",
            untried="it is the root of a container: verify --via docker tries what is in it",
            samples=make_samples("docker_image: 'a.example/b:c'"),
        ),
        Row(
            key="docker_base",
            policy=("Plan.image.base",),
            rendered=(f"{SANDBOXES}/image.py::dockerfile_text",),
            files=(".wavegen/docker/Dockerfile: FROM",),
            program="docker build",
            untried=_SOFTWARE,
            samples=make_samples("docker_base: 'alpine:3'"),
        ),
        Row(
            key="docker_packages",
            policy=("Plan.image.named",),
            rendered=(f"{SANDBOXES}/image.py::_find_package",),
            files=(".wavegen/docker/Dockerfile ~ other-name",),
            program="docker build",
            untried=_SOFTWARE,
            samples=make_samples("packages: [go], docker_packages: {go: other-name}", "packages: [go]"),
        ),
        Row(
            key="packages",
            policy=("Policy.packages",),
            rendered=(f"{PROJECT}/plan_files.py::nix_json", f"{SANDBOXES}/image.py::wanted_packages"),
            files=(f"{PLAN}: packages", ".wavegen/docker/Dockerfile ~ golang-go"),
            read=("nix/shells.nix",),
            program="docker build",
            untried=_SOFTWARE,
            samples=make_samples("packages: [go]"),
        ),
        Row(
            key="unfree",
            policy=("Plan.unfree",),
            rendered=(f"{PROJECT}/plan_files.py::nix_json",),
            files=(f"{PLAN}: unfree",),
            read=("nix/shells.nix",),
            untried=_SOFTWARE,
            samples=make_samples("unfree: [claude-code]"),
        ),
        Row(
            key="package",
            policy=("Plan.package",),
            rendered=(f"{PROJECT}/plan_files.py::nix_json",),
            files=(f"{PLAN}: package",),
            read=("nix/shells.nix",),
            untried=_SOFTWARE,
            samples=make_samples("package: nix/package.nix"),
        ),
        Row(
            key="allow_unsandboxed_commands",
            policy=("PersonaPolicy.unsandboxed_commands",),
            rendered=(f"{AGENTS}/claude.py::_sandbox_settings",),
            files=(f"{PERSONA}/settings.json: allowUnsandboxedCommands",),
            program="Claude Code",
            untried="it is about Claude Code's own sandbox, in place of ours",
            samples=make_samples("allow_unsandboxed_commands: true"),
        ),
    ),
)

_SHELL = Section(
    mapping="Shell",
    place="runtime.sandbox.shells.NAME",
    frame="runtime: {sandbox: {shells: {own: {%s}}}}\n",
    shell="own",
    rows=(
        Row(
            key="sandbox",
            policy=("Policy.fenced",),
            rendered=(SETTINGS, f"{_RULES}::_why_unsandboxed"),
            rules=("unsandboxed",),
            files=(f"{PLAN}: fenced",),
            read=(f"{START}::_start_shell", f"{START}::run_unsandboxed"),
            printed=("--unshare-user", "--unshare-pid", "--ro-bind"),
            shown="no option of bwrap: the command alone",
            untried="verify leaves out a shell without a sandbox, and takes `yolo` as its control",
            samples=make_samples("sandbox: false"),
        ),
        Row(
            key="network",
            policy=("Policy.network.mode", "Policy.minimal_root"),
            rendered=(SETTINGS, TEXT),
            rules=("network", "use", "private"),
            read=(f"{BWRAP}::option_words", f"{FILTERED}::run_filtered", f"{MOUNTS}::show_system"),
            printed=("--unshare-net", "--ro-bind"),
            shown="`--unshare-net` unless `host`; with `host` also `--ro-bind` of all that the root shows",
            probes=("N01", "N02", "N03", "N04", "N05", "N06", "N07", "N08", "N08b", "N10", "N14", "N16", "N16e", "N16f", "P06", "R08", "U13"),
            samples=(
                Sample(text="network: host", without="domains: [a.example]"),
                Sample(text="network: open"),
                Sample(text="network: none", without="network: open"),
            ),
        ),
        Row(
            key="domains",
            policy=("Policy.network.domains",),
            rendered=(NETWORK,),
            rules=("allow",),
            read=LIST,
            shown="nothing; an empty list is `network: none`",
            probes=("N16", "N16c", "N16d", "N16g", "N19", "U13"),
            samples=(
                Sample(text="domains: [b.example, wavegen-verify.example]", without="domains: [a.example]"),
                Sample(text="domains: ['*.a.example']", without="domains: [a.example]"),
            ),
        ),
        Row(
            key="denied_domains",
            policy=("Policy.network.denied",),
            rendered=(NETWORK,),
            rules=("deny",),
            read=LIST,
            probes=("N16b",),
            samples=make_samples("network: open, denied_domains: [b.example]", "network: open"),
        ),
        Row(
            key="loopback",
            policy=("Policy.network.loopback",),
            rendered=(NETWORK,),
            rules=("loopback",),
            read=LIST,
            untried=f"{_HOST_PROGRAM} own service; tests/launcher/test_egress_live.py",
            samples=make_samples("network: open, loopback: [5432]", "network: open"),
        ),
        Row(
            key="packages",
            policy=("Policy.packages",),
            rendered=(f"{PROJECT}/plan_files.py::nix_json", f"{SANDBOXES}/image.py::wanted_packages"),
            files=(f"{PLAN}: packages", ".wavegen/docker/Dockerfile ~ golang-go"),
            read=("nix/shells.nix",),
            program="docker build",
            untried=_SOFTWARE,
            samples=make_samples("packages: [go]"),
        ),
        section_row("paths", "PathEntry"),
        Row(
            key="deny_read_paths",
            policy=("Policy.paths",),
            rendered=(RULE,),
            rules=("path hide",),
            read=(f"{MOUNTS}::mask_denied_paths",),
            printed=("--tmpfs", "--ro-bind"),
            shown="`--tmpfs PATH` over a directory, `--ro-bind /dev/null PATH` over a file",
            probes=("R21", "R21b", "W26"),
            samples=make_samples("deny_read_paths: [x, file, /usr/bin/perl]"),
        ),
        Row(
            key="env_passthrough",
            policy=("Policy.environment",),
            rendered=(RULE, TEXT),
            rules=("pass", "login"),
            read=(f"{LAUNCHER}/environment.py::command_environment", f"{START}::_look_for_logins"),
            shown="nothing; variables are bwrap's own environment, never its options",
            probes=("U05", "E01", "E01c", "E02", "E03", "N11"),
            samples=make_samples("env_passthrough: [GH_TOKEN, DATABASE_URL, PYTHONPATH, DISPLAY]"),
        ),
        Row(
            key="nested",
            policy=("Policy.nested",),
            rendered=(SETTINGS, f"{_RULES}::filter_of_shell", f"{SYSTEM_CALLS}::filter_of"),
            rules=("nested", "seccomp", "landlock"),
            files=(".wavegen/seccomp/FILTER.bpf",),
            read=(f"{BWRAP}::option_words", f"{INSIDE}::inside_words", f"{INSIDE}::_session_words"),
            printed=("--disable-userns",),
            shown="no `--disable-userns`",
            probes=("P07", "P08", "K14"),
            samples=make_samples("nested: true"),
        ),
    ),
)

_PATHS = Section(
    mapping="PathEntry",
    place="runtime.sandbox.paths[]",
    also=("runtime.sandbox.shells.NAME.paths[]",),
    frame="runtime: {sandbox: {paths: [{%s}]}}\n",
    rows=(
        Row(
            key="path",
            policy=("Policy.paths[].path",),
            rendered=(RULE, TEXT, f"{_RULES}::project_writable_paths"),
            rules=("path read", "path write", "writable"),
            read=(f"{MOUNTS}::_grant_path", f"{LAUNCHER}/places.py::__init__"),
            printed=("--ro-bind", "--bind"),
            shown="`--ro-bind`, `--bind`, or `--dev-bind` below /dev",
            probes=("U07", "U07b", "U08", "U08b", "W25", "W25b", "L05", "L06"),
            samples=(
                Sample(text="path: x, access: read", without="path: y, access: read"),
                Sample(text="path: x, access: write", without="path: y, access: write"),
                Sample(text="path: /opt, access: read", without="path: y, access: read"),
                Sample(text="path: /opt, access: write", without="path: y, access: write"),
            ),
        ),
        Row(
            key="access",
            policy=("Policy.paths[].access",),
            rendered=(RULE, TEXT, f"{_RULES}::project_writable_paths"),
            rules=("path read", "path write", "writable"),
            read=(f"{MOUNTS}::_grant_path", f"{LAUNCHER}/places.py::__init__"),
            printed=("--ro-bind", "--bind"),
            shown="`--ro-bind` for read, `--bind` for write",
            probes=("U07", "U07b", "U08", "U08b", "W25", "W25b"),
            samples=(
                Sample(text="path: x, access: write", without="path: x, access: read"),
                Sample(text="path: /opt, access: write", without="path: /opt, access: read"),
            ),
        ),
        Row(
            key="optional",
            policy=("Policy.paths[].required",),
            rendered=(RULE,),
            rules=("path read",),
            flag="required",
            read=(f"{MOUNTS}::_grant_path",),
            shown="nothing; a required path that is missing ends the start",
            untried="nothing starts without the path; tests/launcher/test_mounts.py",
            samples=make_samples("path: x, access: read, optional: true", "path: x, access: read"),
        ),
        Row(
            key="socket",
            policy=("Policy.paths[].socket",),
            rendered=(RULE,),
            rules=("path read",),
            flag="socket",
            read=(f"{MOUNTS}::_grant_path",),
            shown="nothing; a socket without it ends the start",
            probes=("N10",),
            samples=make_samples("path: x, access: read, socket: true", "path: x, access: read"),
        ),
    ),
)

_DOMAINS = Section(
    mapping="DomainEntry",
    place="runtime.sandbox.default_allowed_domains[]",
    also=("runtime.sandbox.shells.NAME.domains[]", "personas.NAME.sandbox.allowed_domains[]"),
    frame="runtime: {sandbox: {default_allowed_domains: [{%s}]}}\n",
    rows=(
        Row(
            key="host",
            policy=("Policy.network.domains[].host",),
            rendered=(NETWORK,),
            rules=("allow",),
            read=LIST,
            probes=("N16c", "N16d", "N16g", "U13"),
            samples=make_samples("host: b.example", "host: a.example"),
        ),
        Row(
            key="allow_private",
            policy=("Policy.network.domains[].allow_private",),
            rendered=(NETWORK,),
            rules=("allow",),
            flag="private",
            read=(LIST[0], f"{EGRESS}/rules.py::rule_refusal_reason"),
            untried="what is there is an intranet's; tests/launcher/test_egress_live.py",
            samples=make_samples("host: a.example, allow_private: true", "host: a.example"),
        ),
        Row(
            key="allow_no_sni",
            policy=("Policy.network.domains[].allow_no_sni",),
            rendered=(NETWORK,),
            rules=("allow",),
            flag="no-sni",
            read=(LIST[0], f"{EGRESS}/serve.py::_server_name_refusal"),
            untried="N16g asks for another server, which stays refused; tests/launcher/test_egress_live.py",
            samples=make_samples("host: a.example, allow_no_sni: true", "host: a.example"),
        ),
        Row(
            key="tls",
            policy=("Policy.network.domains[].tls",),
            rendered=(NETWORK,),
            rules=("allow",),
            flag="no-tls",
            read=(LIST[0], f"{EGRESS}/serve.py::_requires_tls_check"),
            probes=("N16g",),
            samples=make_samples("host: a.example, tls: false", "host: a.example"),
        ),
    ),
)

_LIMITS = Section(
    mapping="Limits",
    place="runtime.sandbox.limits",
    frame="runtime: {sandbox: {limits: {%s}}}\n",
    rows=(
        Row(
            key="pids",
            policy=("Policy.limits.pids", "Policy.limits.written"),
            rendered=(SETTINGS,),
            rules=("pids", "bounded"),
            read=(f"{INSIDE}::inside_words", f"{INSIDE}::run_sandboxed_command", f"{LAUNCHER}/cgroups.py::_write_bounds"),
            started=("--limit", "nproc="),
            probes=("Q01",),
            samples=make_samples("pids: 300"),
        ),
        Row(
            key="memory",
            policy=("Policy.limits.memory",),
            rendered=(SETTINGS,),
            rules=("memory", "bounded"),
            read=(f"{INSIDE}::granted_memory", f"{INSIDE}::inside_words", f"{INSIDE}::run_sandboxed_command", f"{LAUNCHER}/cgroups.py::_write_bounds"),
            started=("--limit", "data="),
            probes=("Q02",),
            samples=make_samples("memory: 1g"),
        ),
        Row(
            key="cpus",
            policy=("Policy.limits.cpus",),
            rendered=(SETTINGS,),
            rules=("cpus",),
            read=(f"{INSIDE}::_create_cgroups", f"{LAUNCHER}/cgroups.py::_write_bounds"),
            shown="nothing; it is a control group's `cpu.max`",
            untried="it would take processors from whatever else runs; tests/launcher/test_limits.py",
            samples=make_samples("pids: 300, cpus: 2", "pids: 300"),
        ),
        Row(
            key="files",
            policy=("Policy.limits.files",),
            rendered=(SETTINGS,),
            rules=("files",),
            read=(f"{INSIDE}::inside_words",),
            started=("--limit", "nofile="),
            probes=("Q05",),
            samples=make_samples("files: 300"),
        ),
        Row(
            key="tmp",
            policy=("Policy.limits.scratch",),
            rendered=(SETTINGS,),
            rules=("tmpfs_size",),
            read=(f"{INSIDE}::bwrap_options", f"{BWRAP}::mount_words"),
            printed=("--size",),
            shown="`--size BYTES --tmpfs PATH`",
            probes=("Q03",),
            samples=make_samples("tmp: 10m"),
        ),
    ),
)

_PERSONA_SANDBOX = Section(
    mapping="PersonaSandbox",
    place="personas.NAME.sandbox",
    frame=f"{_CLAUDE}personas: {{p: {{adapter: claude, sandbox: {{%s}}}}}}\n{_SHELLS}",
    shell="persona-p",
    rows=(
        Row(
            key="shell",
            policy=("PersonaPolicy.shell", "PersonaPolicy.fence.network"),
            rendered=(SETTINGS, RULE, NETWORK),
            rules=("network", "allow"),
            files=(f"{PLAN} ~ wide",),
            read=(f"{BWRAP}::option_words", *LIST),
            printed=("--disable-userns",),
            shown="what that shell shows, with a home of the persona's own",
            probes=("N16", "N16c", "N16d", "U13", "P07", "P08"),
            samples=make_samples("shell: wide"),
        ),
        Row(
            key="allowed_domains",
            policy=("PersonaPolicy.fence.network.domains",),
            rendered=(NETWORK,),
            rules=("allow",),
            read=LIST,
            probes=("N16c", "N16d", "U13"),
            samples=make_samples("allowed_domains: [b.example]"),
        ),
        Row(
            key="project",
            policy=("PersonaPolicy.project_writable", "PersonaPolicy.fence.paths"),
            rendered=(RULE, TEXT),
            rules=("path read", "path write", "use"),
            read=(f"{MOUNTS}::show_home_and_project",),
            printed=("--ro-bind", "--bind"),
            shown="`--ro-bind PROJECT`, or `--bind PROJECT`",
            probes=("U01", "U09", "W12b", "W13", "W14", "W16", "W18", "W27", "L08"),
            samples=make_samples("project: read"),
        ),
        Row(
            key="env_passthrough",
            policy=("PersonaPolicy.fence.environment",),
            rendered=(RULE,),
            rules=("pass",),
            read=(f"{LAUNCHER}/environment.py::command_environment",),
            shown="nothing; variables are bwrap's own environment, never its options",
            probes=("U05", "E01c", "E02"),
            samples=make_samples("env_passthrough: [ONE]"),
        ),
        Row(
            key="deny_read_paths",
            policy=("PersonaPolicy.fence.paths",),
            rendered=(RULE,),
            rules=("path hide",),
            read=(f"{MOUNTS}::mask_denied_paths",),
            printed=("--tmpfs", "--ro-bind"),
            shown="`--tmpfs PATH` over a directory, `--ro-bind /dev/null PATH` over a file",
            probes=("R21", "R21b", "W26"),
            samples=make_samples("deny_read_paths: [x, file, /usr/bin/perl]"),
        ),
    ),
)

_TOOLS = (f"{AGENTS}/claude_rules.py::rules_of", f"{AGENTS}/tool_lists.py::share_of_tool", RULE)
_PROJECT_PROBES = ("U01", "U09", "W12b", "W13", "W14", "W16", "W18", "W27", "L08")
_PERMISSIONS = Section(
    mapping="Permissions",
    place="personas.NAME.permissions",
    also=("adapters.NAME.default_permissions",),
    frame="adapters: {claude: {binary: claude}, opencode: {binary: opencode}}\n"
    "personas: {p: {adapter: claude, permissions: {%s}}, q: {adapter: opencode, permissions: {%s}}}\n",
    shell="persona-p",
    rows=(
        Row(
            key="allowed_tools",
            policy=("PersonaPolicy.allowed_tools", "PersonaPolicy.project_writable"),
            rendered=_TOOLS,
            rules=("path read",),
            files=(f"{PERSONA}/settings.fenced.json ~ Read", ".wavegen/personas/NAME/opencode.json ~ edit"),
            read=(f"{MOUNTS}::show_home_and_project",),
            program="the agent",
            printed=("--ro-bind", "--bind"),
            shown=WITHOUT_WRITING_TOOLS,
            probes=_PROJECT_PROBES,
            samples=make_samples("allowed_tools: [Read]"),
        ),
        Row(
            key="deny",
            policy=("PersonaPolicy.denied_tools", "PersonaPolicy.project_writable"),
            rendered=_TOOLS,
            rules=("path read",),
            files=(f"{PERSONA}/settings.fenced.json ~ Bash", ".wavegen/personas/NAME/opencode.json ~ bash"),
            read=(f"{MOUNTS}::show_home_and_project",),
            program="the agent",
            printed=("--ro-bind", "--bind"),
            shown=WITHOUT_WRITING_TOOLS,
            probes=_PROJECT_PROBES,
            samples=make_samples("deny: [Write, Edit, NotebookEdit, Bash]"),
        ),
    ),
)

_TOLD = "it is what an agent is told, or how it is started"
_PERSONAS = Section(
    mapping="Persona",
    place="personas.NAME",
    frame=f"{_CLAUDE}personas: {{p: {{%s}}}}\n",
    shell="persona-p",
    rows=(
        section_row("sandbox", "PersonaSandbox"),
        section_row("permissions", "Permissions"),
        section_row("hooks", "Hooks"),
        Row(
            key="preset",
            policy=("PersonaPolicy.allowed_tools", "PersonaPolicy.denied_tools", "PersonaPolicy.fence.network.domains", "PersonaPolicy.project_writable"),
            rendered=(RULE, NETWORK, SETTINGS, f"{AGENTS}/claude_rules.py::rules_of"),
            rules=("path read", "allow", "network"),
            files=(f"{PERSONA}/settings.fenced.json ~ git log",),
            read=(f"{MOUNTS}::show_home_and_project", f"{BWRAP}::option_words", *LIST),
            printed=("--ro-bind", "--bind"),
            shown="`--ro-bind PROJECT` for roles that only read",
            probes=(*_PROJECT_PROBES, "N16c", "N16d", "U13"),
            samples=(
                Sample(text="adapter: claude, preset: navigator", without="adapter: claude"),
                Sample(text="adapter: opencode, preset: navigator", without="adapter: opencode"),
            ),
        ),
        Row(
            key="adapter",
            policy=("PersonaPolicy.agents", "PersonaPolicy.fence.network.domains", "PersonaPolicy.fence.environment", "PersonaPolicy.fence.paths"),
            rendered=(TEXT, f"{AGENTS}/files.py::agent_command_line", NETWORK, RULE),
            rules=("agent", "allow", "env", "path tmpfs"),
            files=(f"{PERSONA}/opencode.json", f"{PERSONA}/AGENTS.md"),
            read=(f"{LAUNCHER}/arguments.py::agent_words", *LIST, f"{LAUNCHER}/environment.py::command_environment"),
            printed=("--tmpfs",),
            shown="`--tmpfs` over settings that the program would take from its home; after `--` the agent's words",
            probes=("U13", "E05", "N16c", "N16d", "Q03"),
            samples=make_samples("adapter: opencode", "adapter: claude"),
        ),
        Row(
            key="model",
            policy=("PersonaPolicy.agents[].model",),
            rendered=(f"{AGENTS}/claude.py::_build_settings", f"{AGENTS}/files.py::agent_command_line"),
            files=(f"{PERSONA}/settings.fenced.json: model",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("adapter: claude, model: opus", "adapter: claude"),
        ),
        Row(
            key="description",
            policy=("PersonaPolicy.description",),
            rendered=(f"{AGENTS}/instructions.py::instruction_lines",),
            files=(f"{PERSONA}/CLAUDE.md ~ Looks",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("adapter: claude, description: Looks around", "adapter: claude"),
        ),
        Row(
            key="system_prompt_file",
            policy=("PersonaPolicy.prompt",),
            rendered=(f"{AGENTS}/instructions.py::instruction_lines",),
            files=(f"{PERSONA}/CLAUDE.md ~ role.md",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("adapter: claude, system_prompt_file: role.md", "adapter: claude"),
        ),
        Row(
            key="system_prompt",
            policy=("PersonaPolicy.prompt_text",),
            rendered=(f"{AGENTS}/instructions.py::instruction_lines",),
            files=(f"{PERSONA}/CLAUDE.md ~ Look around",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("adapter: claude, system_prompt: Look around", "adapter: claude"),
        ),
        unread_row("temperature", "kept for Wave; a gap says that no agent takes it", "0.5"),
        unread_row("skills"),
        unread_row("token_scopes", "kept for Wave; a gap says that a token may do what it was issued for", "[x]"),
    ),
)

_ADAPTERS = Section(
    mapping="Adapter",
    place="adapters.NAME",
    frame="adapters: {a: {%s}}\npersonas: {p: {adapter: a, model: cheapest}}\n",
    shell="persona-p",
    rows=(
        Row(
            key="binary",
            policy=("PersonaPolicy.agents[].binary", "PersonaPolicy.agents[].kind", "PersonaPolicy.fence.network.domains"),
            rendered=(TEXT, f"{AGENTS}/files.py::agent_command_line", NETWORK, RULE),
            rules=("agent", "allow", "env", "path tmpfs"),
            files=(f"{PERSONA}/settings.fenced.json", ".wavegen/docker/Dockerfile"),
            read=(f"{LAUNCHER}/arguments.py::agent_words", *LIST, f"{LAUNCHER}/environment.py::command_environment"),
            printed=("--tmpfs",),
            shown="`--tmpfs` over settings that the program would take from its home; after `--` the agent's words",
            probes=("U13", "E05", "N16", "N16c", "N16d"),
            samples=make_samples("binary: claude"),
        ),
        Row(
            key="default_model",
            policy=("PersonaPolicy.agents[].model", "PersonaPolicy.agents[].hosts", "PersonaPolicy.fence.network.domains"),
            rendered=(NETWORK, f"{AGENTS}/opencode.py::opencode_settings"),
            rules=("allow",),
            files=(f"{PERSONA}/opencode.json: model",),
            read=LIST,
            probes=("U13", "N16c", "N16d"),
            samples=make_samples("binary: opencode, default_model: openai/gpt", "binary: opencode, default_model: anthropic/x"),
        ),
        Row(
            key="tier_models",
            policy=("PersonaPolicy.agents[].model",),
            rendered=(f"{AGENTS}/claude.py::_build_settings",),
            files=(f"{PERSONA}/settings.fenced.json: model",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("binary: claude, tier_models: {cheapest: other}", "binary: claude"),
        ),
        Row(
            key="mode",
            policy=("PersonaPolicy.agents[].headless",),
            rendered=(f"{AGENTS}/claude.py::_build_settings", f"{AGENTS}/files.py::agent_command_line"),
            files=(f"{PERSONA}/settings.fenced.json: defaultMode",),
            program="the agent",
            untried=_TOLD,
            samples=make_samples("binary: claude, mode: interactive", "binary: claude"),
        ),
        section_row("default_permissions", "Permissions"),
        unread_row("output_format"),
        unread_row("project_files"),
        unread_row("hooks_template", "kept for Wave; a gap says that it has no effect"),
    ),
)

_CLAUDE_ALONE = "Claude Code runs them, and no sandbox does"
_HOOKS = Section(
    mapping="Hooks",
    place="personas.NAME.hooks",
    frame=f"{_CLAUDE}personas: {{p: {{adapter: claude, hooks: {{%s}}}}}}\n",
    shell="persona-p",
    rows=tuple(
        Row(
            key=key,
            policy=("PersonaPolicy.hooks",),
            rendered=(f"{AGENTS}/claude_hooks.py::hooks_of",),
            files=(f"{PERSONA}/settings.fenced.json: {key}",),
            program="Claude Code",
            untried=_CLAUDE_ALONE,
            samples=make_samples(f"{key}: [{{command: look}}]"),
        )
        for key in ("PreToolUse", "PostToolUse")
    ),
)
_HOOK = Section(
    mapping="Hook",
    place="personas.NAME.hooks.PreToolUse[]",
    also=("personas.NAME.hooks.PostToolUse[]",),
    frame=f"{_CLAUDE}personas: {{p: {{adapter: claude, hooks: {{PreToolUse: [{{%s}}]}}}}}}\n",
    shell="persona-p",
    rows=(
        Row(
            key="matcher",
            policy=("PersonaPolicy.hooks[].matcher",),
            rendered=(f"{AGENTS}/claude_hooks.py::_matcher_and_condition",),
            files=(f"{PERSONA}/settings.fenced.json: matcher",),
            program="Claude Code",
            untried=_CLAUDE_ALONE,
            samples=make_samples("matcher: Bash, command: look", "command: look"),
        ),
        Row(
            key="command",
            policy=("PersonaPolicy.hooks[].command",),
            rendered=(f"{AGENTS}/claude_hooks.py::shell_command",),
            files=(f"{PERSONA}/settings.fenced.json: command",),
            program="Claude Code",
            untried=_CLAUDE_ALONE,
            samples=make_samples("command: look", "command: listen"),
        ),
    ),
)

_RUNTIME = Section(
    mapping="Runtime",
    place="runtime",
    frame=f"{_CLAUDE}{_PERSONA}runtime: {{%s}}\n",
    shell="persona-p",
    rows=(
        section_row("sandbox", "Sandbox"),
        Row(
            key="fallbacks",
            policy=("PersonaPolicy.agents", "PersonaPolicy.fence.network.domains"),
            rendered=(TEXT, NETWORK, RULE),
            rules=("agent", "allow", "path tmpfs"),
            files=(f"{PERSONA}/opencode.json",),
            read=(f"{LAUNCHER}/arguments.py::agent_words", *LIST),
            printed=("--tmpfs",),
            shown="`--tmpfs` over settings that the other program would take from its home",
            probes=("U13", "N16c", "N16d"),
            samples=make_samples("fallbacks: {claude: [opencode]}"),
        ),
        unread_row("workspace_root"),
        *map(
            unread_row,
            (
                *("max_concurrent_workers", "default_timeout_minutes", "pipeline_id_hash_length", "max_concurrency", "timeouts", "relay", "audit"),
                *("meta_pipeline", "routing", "artifacts", "circuit_breaker", "retros", "cost", "stall_timeout"),
            ),
        ),
    ),
)

_TOP = Section(
    mapping="Manifest",
    place="",
    frame=f"{_CLAUDE}%s\n",
    shell="persona-p",
    rows=(
        section_row("metadata", "Metadata"),
        section_row("project", "Project"),
        section_row("adapters", "Adapter"),
        section_row("personas", "Persona"),
        section_row("runtime", "Runtime"),
        unread_row("apiVersion", text="v1"),
        unread_row("kind", text="WaveManifest"),
        *map(unread_row, ("server", "skills", "hooks", "evolution")),
    ),
)

_METADATA = Section(
    mapping="Metadata",
    place="metadata",
    frame="%s",
    rows=(
        Row(
            key="name",
            policy=("Plan.name", "Plan.image.reference"),
            rendered=(f"{PROJECT}/plan_files.py::nix_json", SETTINGS),
            rules=("image",),
            files=(f"{PLAN}: name",),
            read=("nix/shells.nix", f"{LAUNCHER}/container.py::client_command_line"),
            shown="nothing; `.wavegen/docker/run-SHELL` prints the image, which has the project's name",
            untried="it is a name",
            samples=make_samples("metadata: {name: other}", "metadata: {name: demo}"),
        ),
        Row(
            key="description",
            policy=("Plan.description",),
            rendered=(f"{PROJECT}/flake.py::render",),
            files=("flake.nix: description",),
            read=("templates/flake.nix.j2",),
            untried="it is for people",
            samples=make_samples("metadata: {name: demo, description: Shows}", "metadata: {name: demo}"),
        ),
        *(
            Row(key=key, unread=why, samples=make_samples(f"metadata: {{name: demo, {key}: x}}", "metadata: {name: demo}"))
            for key, why in (("repo", "for people"), ("forge", "for people"))
        ),
    ),
)

_PROJECT = Section(
    mapping="Project",
    place="project",
    frame="project: {%s}\n",
    rows=(
        unread_row("language", "for people, and for Wave"),
        *map(
            unread_row,
            (
                *("flavour", "test_command", "contract_test_command", "lint_command", "build_command", "format_command", "source_glob"),
                *("test_file_pattern", "test_func_pattern", "skill", "services"),
            ),
        ),
    ),
)

SECTIONS = (
    *(_SANDBOX, _SHELL, _PATHS, _DOMAINS, _LIMITS, _PERSONA_SANDBOX, _PERMISSIONS, _PERSONAS, _ADAPTERS, _HOOKS, _HOOK),
    *(_RUNTIME, _TOP, _METADATA, _PROJECT),
)
"""The mappings of the manifest: first those that decide most about a sandbox."""

OTHER_KEYWORDS = {
    "shell": "the name of the shell, by `shells.NAME` or `personas.NAME`",
    "persona": "the name of the persona, by `personas.NAME`",
    "root": "`minimal` or `host`, by `network`, for whoever reads the file: the lines with `use` decide",
    "memory_share": "percent of the machine's memory, where `limits.memory` is not written",
    "banner": "what an interactive start says of all these keys",
}
"""Keywords of rules that no key has to itself."""

"""What a manifest means: defaults, inheritance and checks across keys, each rule with where it comes from."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from wavegen.backends.project.plan_files import plan_json
from wavegen.core.errors import ManifestError, Severity
from wavegen.explain.plan_table import render_plan_table
from wavegen.manifest.model import BackendName, Fallback, NetworkMode, Seccomp
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy import defaults
from wavegen.policy.model import Access, Anchor, HostPath, PathRule, PersonaPolicy, Plan, Policy
from wavegen.policy.planner import plan_manifest

NAME = "metadata: {name: demo}\n"


def planned(text: str = "", overlay: str | None = None) -> Plan:
    over = Source("wave.sandbox.yaml", overlay.encode()) if overlay is not None else None
    return plan_manifest(Source("wave.yaml", (NAME + text).encode()), over, "wave.sandbox.yaml")


def sandbox(text: str) -> Plan:
    """The plan of a manifest whose runtime.sandbox holds one flow mapping, in line 2."""
    return planned(f"runtime: {{sandbox: {{{text}}}}}\n")


def shell(name: str, text: str = "") -> Policy:
    found = sandbox(text).find_shell(name)
    assert found is not None
    return found


def persona(text: str, more: str = "") -> PersonaPolicy:
    """The policy of a persona `p`."""
    [found] = planned(f"personas: {{p: {{{text}}}}}\n{more}").personas
    return found


def patterns(found: PersonaPolicy) -> tuple[list[str], list[str]]:
    """The allowed and the denied tool patterns of a persona."""
    return [str(p) for p in found.allowed_tools], [str(p) for p in found.denied_tools]


def mistakes(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        sandbox(text)
    return [p.what for p in caught.value.problems if p.severity is Severity.ERROR]


def rules(policy: Policy) -> dict[str, PathRule]:
    """The rule that holds at each path: of two for the same one, the later."""
    return {str(rule.path): rule for rule in policy.paths}


def domains(policy: Policy) -> list[str]:
    return [str(rule) for rule in policy.network.domains]


# --- shells


def test_three_shells_exist_without_being_written() -> None:
    shells = planned().shells
    assert [(s.name, s.fenced, s.network.mode) for s in shells] == [
        ("default", True, NetworkMode.HOST),
        ("restricted", True, NetworkMode.NONE),  # filtered, by a list that is empty without adapters
        ("yolo", False, NetworkMode.HOST),
    ]
    assert {str(s.origin) for s in shells} == {"default: every manifest has it"}


def test_a_shell_of_the_users_is_fenced_and_filtered_and_stands_after_the_three() -> None:
    found = sandbox("default_allowed_domains: [x.org], shells: {zz: {}, aa: {}, restricted: {}}")
    assert [s.name for s in found.shells] == ["default", "restricted", "yolo", "zz", "aa"]
    own = found.find_shell("zz")
    assert own is not None
    assert (own.fenced, own.nested, own.network.mode, own.minimal_root) == (True, False, NetworkMode.FILTERED, True)
    assert str(own.origin) == "wave.yaml:2"


def test_a_written_built_in_shell_keeps_the_defaults_that_it_does_not_write() -> None:
    assert shell("default", "shells: {default: {packages: [go]}}").network.mode is NetworkMode.HOST
    assert shell("restricted", "default_allowed_domains: [x.org], shells: {restricted: {packages: [go]}}").network.mode is NetworkMode.FILTERED
    assert shell("yolo", "shells: {yolo: {packages: [go]}}").fenced is False


def test_only_a_shell_with_the_hosts_network_sees_the_hosts_root() -> None:
    for name, text, minimal in (("default", "", False), ("default", "shells: {default: {network: none}}", True), ("restricted", "", True)):
        policy = shell(name, text)
        assert policy.minimal_root is minimal
        assert rules(policy)["/"].access is (Access.HIDE if minimal else Access.READ)


def test_an_unfenced_shell_has_no_rules_and_keeps_its_packages() -> None:
    policy = shell("open", "packages: [go], shells: {open: {sandbox: false}}")
    assert (policy.fenced, policy.paths, policy.environment) == (False, (), ())
    assert [p.attribute for p in policy.packages] == [("go",)]


@pytest.mark.parametrize(
    ("text", "enabled", "backend", "origin"),
    [
        pytest.param("", True, BackendName.BUBBLEWRAP, "default: fenced", id="unset"),
        pytest.param("enabled: true", True, BackendName.BUBBLEWRAP, "default: fenced", id="enabled"),
        pytest.param("enabled: false", False, BackendName.BUBBLEWRAP, "wave.yaml:2", id="disabled"),
        pytest.param("backend: none", False, BackendName.NONE, "wave.yaml:2", id="none"),
        pytest.param("enabled: true, backend: none", False, BackendName.NONE, "wave.yaml:2", id="none-wins"),
        pytest.param("backend: docker", True, BackendName.DOCKER, "wave.yaml:2", id="docker"),
    ],
)
def test_the_fence_is_off_only_where_that_is_written(text: str, enabled: bool, backend: BackendName, origin: str) -> None:
    found = sandbox(text)
    assert (found.enabled, found.backend, str(found.enabled_origin)) == (enabled, backend, origin)
    assert [s.fenced for s in found.shells] == [True, True, False]  # whatever is written, the three shells keep theirs


def test_what_is_not_written_is_closed() -> None:
    policy = shell("default")
    assert (policy.fallback, policy.seccomp, policy.nested, policy.private_home) == (Fallback.ERROR, Seccomp.DEFAULT, False, True)
    assert not any(rule.socket for rule in policy.paths)


# --- network


ADAPTERS = "adapters: {claude: {binary: claude}, second: {binary: codex}, gemini: {}, other: {binary: x}}\n"


def test_no_list_means_the_api_hosts_of_the_adapters() -> None:
    found = planned(ADAPTERS).find_shell("restricted")
    assert found is not None
    assert found.network.mode is NetworkMode.FILTERED
    assert domains(found) == ["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"]
    assert str(found.network.domains[1].origin) == "wave.yaml:2: API host of adapter second"


def test_an_empty_list_means_no_network_also_with_adapters() -> None:
    found = planned(ADAPTERS + "runtime: {sandbox: {default_allowed_domains: []}}\n").find_shell("restricted")
    assert found is not None
    assert (found.network.mode, found.network.domains) == (NetworkMode.NONE, ())


def test_a_list_is_sorted_and_each_name_stands_once() -> None:
    policy = shell("restricted", "default_allowed_domains: [z.org, a.org, '*.a.org', 'a.org:22', A.ORG, a.org.]")
    assert domains(policy) == ["*.a.org", "a.org", "a.org:22", "z.org"]


def test_a_shells_own_list_replaces_the_default_list() -> None:
    text = "default_allowed_domains: [x.org], shells: {ci: {domains: [y.org]}, off: {domains: []}}"
    assert domains(shell("ci", text)) == ["y.org"]
    assert domains(shell("restricted", text)) == ["x.org"]
    assert shell("off", text).network.mode is NetworkMode.NONE


@pytest.mark.parametrize("mode", ["host", "open", "none"])
def test_a_list_that_would_have_no_effect_is_an_error(mode: str) -> None:
    assert mistakes(f"shells: {{a: {{network: {mode}, domains: [x.org]}}}}") == [f"domains have no effect with network: {mode}"]


def test_loopback_ports_are_numbers_each_once() -> None:
    assert shell("a", "default_allowed_domains: [x.org], shells: {a: {loopback: [6379, 5432, 5432]}}").network.loopback == (5432, 6379)
    assert mistakes("shells: {a: {loopback: [0]}}") == ["0 is not a port"]
    assert mistakes("shells: {a: {loopback: [65536]}}") == ["65536 is not a port"]


def test_ports_of_the_loopback_are_let_in_also_where_no_name_is() -> None:
    for text in ("network: filtered, domains: [], loopback: [5432]", "loopback: [5432]"):
        network = shell("a", f"shells: {{a: {{{text}}}}}").network
        assert (network.mode, network.domains, network.loopback) == (NetworkMode.FILTERED, (), (5432,))


def test_an_entry_may_be_a_mapping_that_says_more() -> None:
    text = "default_allowed_domains: [z.org, {host: 'DB.corp.example:5432', allow_private: true}, {host: a.org}]"
    found = shell("restricted", text).network.domains
    assert [(str(d), d.extra_flags(), str(d.origin)) for d in found] == [
        ("a.org", {}, "wave.yaml:2"),
        ("db.corp.example:5432", {"allow_private": True}, "wave.yaml:2"),
        ("z.org", {}, "wave.yaml:2"),
    ]
    assert mistakes("default_allowed_domains: [{host: 'https://x.org'}]") == ["'https://x.org' is an address of a page, not a host"]


def test_an_entry_that_stands_twice_with_different_flags_is_an_error() -> None:
    text = "runtime:\n  sandbox:\n    default_allowed_domains:\n      - x.org\n      - x.org.\n      - {host: X.org, tls: false}\n"
    with pytest.raises(ManifestError) as caught:
        planned(text)
    assert [(str(p.at), p.what) for p in caught.value.problems] == [("wave.yaml:7:16", "'x.org' stands here and at wave.yaml:5 with different flags")]
    both = "{host: x.org, tls: false}, {host: x.org, tls: false}"
    assert domains(shell("restricted", f"default_allowed_domains: [{both}]")) == ["x.org"]
    assert domains(shell("restricted", "default_allowed_domains: [{host: x.org, tls: false}, 'x.org:22']")) == ["x.org", "x.org:22"]


def test_denied_names_of_every_shell_and_of_one_add_up() -> None:
    text = "default_allowed_domains: [x.org], denied_domains: [b.org, '*.a.org:22'], shells: {a: {denied_domains: [c.org, B.org]}, o: {network: open}, n: {network: none}}"
    denied = {s.name: [str(d) for d in s.network.denied] for s in sandbox(text).shells}
    general = ["*.a.org:22", "b.org:*"]
    assert denied == {"default": [], "restricted": general, "yolo": [], "a": [*general, "c.org:*"], "o": general, "n": []}


@pytest.mark.parametrize("mode", ["host", "none"])
def test_denied_names_that_would_have_no_effect_are_an_error(mode: str) -> None:
    assert mistakes(f"shells: {{a: {{network: {mode}, denied_domains: [x.org]}}}}") == [f"denied_domains have no effect with network: {mode}"]


def test_a_denied_name_is_read_also_where_nothing_uses_it() -> None:
    assert mistakes("denied_domains: ['x.org/a']") == ["'x.org/a' is an address of a page, not a host"]
    assert mistakes("denied_domains: [{host: x.org}]") == ["runtime.sandbox.denied_domains[0]: expected text, got a mapping"]


def test_the_hosts_proxy_is_used_where_there_is_something_to_filter() -> None:
    text = "default_allowed_domains: [x.org], upstream_proxy: true, shells: {o: {network: open}, n: {network: none}}"
    assert {s.name: str(s.network.upstream) for s in sandbox(text).shells} == {
        "default": "None",
        "restricted": "wave.yaml:2",
        "yolo": "None",
        "o": "wave.yaml:2",
        "n": "None",
    }
    assert shell("restricted", "default_allowed_domains: [x.org], upstream_proxy: false").network.upstream is None


def test_the_plan_shows_of_a_network_only_what_is_written() -> None:
    def shown(text: str) -> Any:
        found: Any = plan_json(sandbox(text))
        return found["shells"]["restricted"]["network"]

    origin = "wave.yaml:2"
    plain = shown("default_allowed_domains: [x.org]")
    assert plain["domains"] == [{"domain": "x.org", "origin": origin}]
    assert list(plain) == ["mode", "origin", "domains", "loopback"]
    more = shown("default_allowed_domains: [{host: x.org, tls: false, allow_no_sni: true, allow_private: true}], denied_domains: [y.org], upstream_proxy: true")
    assert more["domains"] == [{"domain": "x.org", "allow_private": True, "allow_no_sni": True, "tls": False, "origin": origin}]
    assert more["denied"] == [{"domain": "y.org:*", "origin": origin}]
    assert more["upstream"] == origin


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param("default_allowed_domains: ['*.com']", "'*.com' allows a whole top-level domain", id="top-level"),
        pytest.param("default_allowed_domains: [localhost]", "'localhost' is the inside of the fence itself", id="localhost"),
        pytest.param("default_allowed_domains: ['127.0.0.1:5432']", "'127.0.0.1:5432' is the inside of the fence itself", id="loopback-address"),
        pytest.param("default_allowed_domains: [{host: 169.254.169.254}]", "'169.254.169.254' gives the machine's cloud credentials away", id="metadata"),
        pytest.param("default_allowed_domains: ['*.github.io']", "'*.github.io' allows pages and sites that anybody can publish", id="hosting"),
        pytest.param("shells: {a: {network: none, loopback: [1]}}", "loopback has no effect with network: none", id="idle-loopback"),
        pytest.param("env_passthrough: [LD_PRELOAD]", "LD_PRELOAD loads code into every program", id="preload"),
        pytest.param("env_passthrough: [SSH_AUTH_SOCK]", "SSH_AUTH_SOCK leads to an agent that signs for you", id="agent"),
        pytest.param("env_passthrough: [HOME]", "HOME is set by the fence; the entry has no effect", id="home"),
        pytest.param("paths: [{path: /dev/kvm, access: write}]", "'/dev/kvm' opens a driver of the kernel", id="device"),
    ],
)
def test_what_is_rarely_meant_is_said_once(text: str, note: str) -> None:
    notes = sandbox(text).notes
    assert [n.what for n in notes] == [note]
    assert all(n.hint and n.at and n.at.line == 2 for n in notes)


# --- paths


def test_every_rule_says_where_it_comes_from() -> None:
    for policy in sandbox("paths: [{path: ~/a, access: read}], deny_read_paths: [~/b], env_passthrough: [A]").shells:
        for rule in (*policy.paths, *policy.environment, *policy.network.domains):
            assert rule.origin.at or rule.origin.reason


def test_what_a_manifest_grants_is_required_unless_optional() -> None:
    policy = shell(
        "restricted", "paths: [{path: ~/a, access: read}, {path: /b, access: write, optional: true}], shells: {restricted: {paths: [{path: c, access: read}]}}"
    )
    found = {name: (rule.access, rule.required) for name, rule in rules(policy).items() if rule.origin.at}
    assert found == {"~/a": (Access.READ, True), "/b": (Access.WRITE, False), "./c": (Access.READ, True)}


def test_a_shells_paths_are_its_own() -> None:
    found = sandbox("shells: {a: {paths: [{path: ~/x, access: write}], deny_read_paths: [~/y], env_passthrough: [Z]}, b: {}}")
    a, b = found.find_shell("a"), found.find_shell("b")
    assert a is not None
    assert b is not None
    assert {"~/x", "~/y"} <= set(rules(a))
    assert not {"~/x", "~/y"} & set(rules(b))
    assert "Z" not in {v.name for v in b.environment}


def test_a_grant_replaces_the_default_for_the_same_path_and_nothing_else() -> None:
    plain, granted = rules(shell("default")), rules(shell("default", "paths: [{path: /srv, access: read}]"))
    assert plain["/srv"].access is Access.HIDE
    assert granted["/srv"].access is Access.READ
    assert granted["/srv"].origin.at is not None
    assert list(granted).index("/srv") > list(granted).index(".")  # where the manifest's other rules stand
    assert {name: rule for name, rule in granted.items() if name != "/srv"} == {name: rule for name, rule in plain.items() if name != "/srv"}


def test_the_files_of_the_fence_are_read_only_last_and_pinned() -> None:
    for policy in sandbox("paths: [{path: ., access: write}, {path: sub, access: write}]").shells[:2]:
        rules = [rule for rule in policy.paths if not rule.guarded][-5:]
        assert [str(rule.path) for rule in rules] == ["./wave.yaml", "./wave.sandbox.yaml", "./flake.nix", "./flake.lock", "./.wavegen"]
        assert all(rule.pinned and rule.access is Access.READ for rule in rules)


def test_what_the_host_runs_is_guarded_unless_the_manifest_says_otherwise() -> None:
    plain, granted, hidden = (
        {str(rule.path): rule for rule in sandbox(line).shells[0].paths}
        for line in ("", "paths: [{path: .vscode, access: write}]", "deny_read_paths: [.vscode]")
    )
    guards = [rule for rule in plain.values() if rule.guarded]
    assert {"./.git/hooks", "./.git/config", "./.git/commondir", "./.envrc", "./.vscode", "./.claude"} <= {str(rule.path) for rule in guards}
    assert [str(rule.path) for rule in guards if rule.access is not Access.READ] == ["./.git", "./.hg", "./.jj", "./.sl", "./_darcs", "./.pijul"]
    assert all(rule.path.anchor is Anchor.PROJECT and not rule.required and not rule.origin.at for rule in guards)
    assert (granted["./.vscode"].access, granted["./.vscode"].guarded) == (Access.WRITE, False)
    assert (hidden["./.vscode"].access, hidden["./.vscode"].guarded) == (Access.HIDE, False)
    assert granted["./.envrc"] == hidden["./.envrc"] == plain["./.envrc"]


@pytest.mark.parametrize("path", ["wave.yaml", ".wavegen", "flake.nix", "wave.sandbox.yaml"])
def test_hiding_a_file_of_the_fence_is_no_silence(path: str) -> None:
    """The fence shows them read-only, last of all: an entry that hides one would be ignored."""
    try:
        policy = shell("default", f"deny_read_paths: [{path}]")
    except ManifestError:
        return
    assert rules(policy)[f"./{path}"].access is Access.HIDE


def test_the_home_inside_is_private_or_empty_and_never_the_real_one() -> None:
    private, empty = rules(shell("default"))["~"], rules(shell("default", "home: tmpfs"))["~"]
    assert (private.access, private.source, private.required) == (Access.WRITE, HostPath(Anchor.STATE, "home"), True)
    assert (empty.access, empty.source) == (Access.SCRATCH, None)


@pytest.mark.parametrize(
    ("granted", "denied", "refused"),
    [
        pytest.param("~/.ssh/config", "~/.ssh", True, id="below"),
        pytest.param("~/.aws", "~/.aws", True, id="same"),
        pytest.param("~/.config", "~/.config/gh", False, id="above"),
        pytest.param("~/.ssh2", "~/.ssh", False, id="beside"),
        pytest.param("/x/.aws", "~/.aws", False, id="another-anchor"),
    ],
)
def test_what_is_granted_inside_what_is_hidden_is_an_error(granted: str, denied: str, refused: bool) -> None:
    text = f"paths: [{{path: {granted}, access: read}}], deny_read_paths: [{denied}]"
    if refused:
        assert mistakes(text) == [f"'{granted}' is granted here and hidden by deny_read_paths (wave.yaml:2)"]
    else:
        assert rules(shell("default", text))[denied].access is Access.HIDE


def held(policy: Policy, path: HostPath) -> Access | None:
    """What is inside at a path: the deepest rule above it holds, of two for the same path the later."""
    above = [(len(rule.path.tail_parts()), place, rule.access) for place, rule in enumerate(policy.paths) if rule.path.contains_path(path)]
    return max(above)[2] if above else None


def test_hiding_a_path_never_shows_another() -> None:
    chance = random.Random(5)
    words = ["a", "b", "c"]

    def some(count: int) -> list[str]:
        return [chance.choice(["/", "~/", "p/"]) + "/".join(chance.choices(words, k=chance.randint(1, 3))) for _ in range(count)]

    compared = hidden = 0
    for _ in range(150):
        granted = sorted(set(some(4)))
        paths = ", ".join(f"{{path: {path}, access: {chance.choice(['read', 'write'])}}}" for path in granted)
        denied = [path for path in some(3) if not any(g == path or g.startswith(path + "/") for g in granted)]
        before, after = shell("default", f"paths: [{paths}]"), shell("default", f"paths: [{paths}], deny_read_paths: [{', '.join(denied)}]")
        for text in [*some(30), *denied, *(f"{path}/deep" for path in denied)]:
            anchor = {"/": Anchor.ROOT, "~": Anchor.HOME, "p": Anchor.PROJECT}[text[0]]
            path = HostPath(anchor, text.lstrip("/~") if anchor is not Anchor.PROJECT else text)
            was, now = held(before, path), held(after, path)
            assert now in (was, Access.HIDE), text
            compared += 1
            hidden += now is not was
        for text in denied:
            anchor = {"/": Anchor.ROOT, "~": Anchor.HOME, "p": Anchor.PROJECT}[text[0]]
            assert held(after, HostPath(anchor, text.lstrip("/~") if anchor is not Anchor.PROJECT else text)) is Access.HIDE
    assert compared > 4000
    assert hidden > 100


def test_the_order_of_entries_decides_nothing() -> None:
    entries = ["{path: ~/a, access: read}", "{path: ~/a/b, access: write}", "{path: /c, access: read}", "{path: d, access: write, optional: true}"]
    wanted = None
    for seed in range(10):
        random.Random(seed).shuffle(entries)
        found = {name: rule.access for name, rule in rules(shell("default", f"paths: [{', '.join(entries)}]")).items()}
        wanted = wanted or found
        assert found == wanted


# --- environment, limits, packages


def test_variables_of_the_manifest_arrive_with_the_hosts_value_and_its_line() -> None:
    found = {rule.name: rule for rule in shell("default", "env_passthrough: [GH_TOKEN, TERM], shells: {default: {env_passthrough: [OWN]}}").environment}
    for name in ("GH_TOKEN", "OWN", "TERM"):
        assert (found[name].value, str(found[name].origin)) == (None, "wave.yaml:2")
    assert [found[name].value for name in ("TMPDIR", "WAVEGEN_SHELL", "SANDBOX_ACTIVE")] == ["/tmp", "default", "1"]


def test_no_secret_and_nothing_that_runs_code_passes_by_default() -> None:
    names = {rule.name for rule in shell("default").environment}
    assert not any(defaults.variable_danger(name) for name in names)
    assert not [name for name in names if any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL"))]


def test_each_variable_stands_once() -> None:
    names = [rule.name for rule in shell("default", "env_passthrough: [A, A, LANG], shells: {default: {env_passthrough: [A]}}").environment]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("4k", 4096), ("4K", 4096), ("3m", 3 * 1024**2), ("2g", 2 * 1024**3), ("1t", 1024**4), ("007m", 7 * 1024**2)]
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert shell("default", f"limits: {{tmp: {text}}}").limits.scratch == size


@pytest.mark.parametrize(("text", "size"), [("33554432", 32 * 1024**2), ("32768k", 32 * 1024**2), ("32M", 32 * 1024**2), ("2g", 2 * 1024**3), ("1t", 1024**4)])
def test_memory_that_is_enough_for_a_shell_is_taken(text: str, size: int) -> None:
    assert shell("default", f"limits: {{memory: {text}}}").limits.memory == size


@pytest.mark.parametrize("text", ["1", "512", "4k", "31m", "32767k", "33554431"])
def test_memory_that_is_too_little_for_a_shell_is_an_error(text: str) -> None:
    assert mistakes(f"limits: {{memory: {text}}}") == [f"limits.memory: '{text}' is too little for a shell"]


@pytest.mark.parametrize("text", ["0", "0g", "-1g", "1.5g", "4gb", "g", "4 g", "''", "4611686018427387904", "99999999t", "9" * 5000])
def test_nothing_else_is_a_size(text: str) -> None:
    for name in ("memory", "tmp"):
        said = mistakes(f"limits: {{{name}: {text}}}")
        assert [(m.split(":")[0], m.endswith("is not a size")) for m in said] == [(f"limits.{name}", True)]


@pytest.mark.parametrize("name", ["default", "restricted", "ci"])
def test_limits_that_are_not_written_have_defaults(name: str) -> None:
    limits = shell(name, "shells: {ci: {}}").limits
    # Memory is a share of the machine's, which is known when a shell starts, and all processors may be used.
    assert (limits.pids, limits.memory, limits.cpus, limits.files, limits.scratch) == (4096, None, None, 65536, 2 * 1024**3)
    assert not limits.written
    assert limits.origin.at is None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("pids: 16", True),
        ("memory: 32m", True),
        ("cpus: 0.01", True),
        ("pids: 4096", True),
        ("files: 64", False),
        ("tmp: 1m", False),
        ("files: 64, cpus: 1", True),
    ],
)
def test_bounds_of_all_processes_together_are_known_as_written(text: str, written: bool) -> None:
    limits = shell("default", f"limits: {{{text}}}").limits
    assert limits.written is written
    assert str(limits.origin) == "wave.yaml:2"


@pytest.mark.parametrize(("name", "least", "most"), [("pids", 16, 1_000_000), ("files", 64, 1_000_000), ("cpus", 0.01, 1_000_000)])
def test_a_limit_is_taken_up_to_its_ends(name: str, least: float, most: float) -> None:
    for value in (least, most):
        assert getattr(shell("default", f"limits: {{{name}: {value}}}").limits, name) == value


@pytest.mark.parametrize(
    ("text", "ends"),
    [(f"pids: {value}", "16 to 1000000") for value in (0, -5, 15, 1_000_001)]
    + [(f"files: {value}", "64 to 1000000") for value in (0, -1, 63, 1_000_001)]
    + [(f"cpus: {value}", "0.01 to 1000000") for value in (0, -0.5, 0.009, 1_000_001, "1e9")],
)
def test_a_limit_of_nothing_or_beyond_reason_is_an_error(text: str, ends: str) -> None:
    assert mistakes(f"limits: {{{text}}}") == [f"limits.{text.split(':', maxsplit=1)[0]} must be from {ends}"]


def test_packages_of_every_shell_come_first_and_each_stands_once() -> None:
    policy = shell("ci", "packages: [go, python3Packages.requests], shells: {ci: {packages: [jq, go]}}")
    assert [p.attribute for p in policy.packages] == [("go",), ("python3Packages", "requests"), ("jq",)]


@pytest.mark.parametrize("name", ["a b", "$(x)", "''${x}", "a..b", ".a", "a.", "a/b", '"a"', "-a", "5", "''", "a\\nb"])
def test_nothing_but_an_attribute_path_is_a_package(name: str) -> None:
    text = f'"{name}"' if '"' not in name else f"'{name}'"
    assert len(mistakes(f"packages: [{text}]")) == 1


# --- personas


@pytest.mark.parametrize(
    ("allowed", "denied", "writes"),
    [
        pytest.param(None, [], True, id="no-list"),
        pytest.param([], [], False, id="nothing-allowed"),
        pytest.param(["*"], [], True, id="everything"),
        pytest.param(["*"], ["*"], False, id="everything-denied"),
        pytest.param(["Read", "Glob", "Grep"], [], False, id="reading"),
        pytest.param(["Read", "Write"], [], True, id="write"),
        pytest.param(["Read", "Edit(*.go)"], [], True, id="edit-some"),
        pytest.param(["Bash(git log*)"], [], True, id="some-bash"),
        pytest.param(["Read", "Bash"], ["Bash"], False, id="bash-denied"),
        pytest.param(["Read", "Bash"], ["Bash(*)"], False, id="bash-denied-with-a-star"),
        pytest.param(["Read", "Bash"], ["Bash(rm *)"], True, id="some-bash-denied"),
        pytest.param(["*"], ["Write", "Edit", "MultiEdit", "NotebookEdit"], True, id="all-but-bash-denied"),
        pytest.param(["*"], ["Write", "Edit", "MultiEdit", "NotebookEdit", "Bash"], False, id="all-denied"),
        pytest.param(None, ["Write", "Edit", "NotebookEdit", "Bash"], False, id="all-of-today-denied"),
        pytest.param(["*"], ["Write*", "Edit*", "Notebook*", "B*"], False, id="denied-by-patterns"),
        pytest.param(["Read", "Edit*"], [], True, id="edit-by-a-pattern"),
        pytest.param(["Read", "MultiEdit"], [], True, id="edit-by-its-former-name"),
        pytest.param(["Read", "MultiEdit"], ["Edit"], False, id="denied-by-todays-name"),
        pytest.param(["Bash(git log*)"], ["Write", "Edit"], True, id="bash-left"),
        pytest.param(["WriteFile"], [], False, id="another-tool"),
    ],
)
def test_the_project_is_read_only_where_no_tool_is_left_that_writes(allowed: list[str] | None, denied: list[str], writes: bool) -> None:
    lists = f"deny: [{', '.join(map(repr, denied))}]" + ("" if allowed is None else f", allowed_tools: [{', '.join(map(repr, allowed))}]")
    assert persona(f"permissions: {{{lists}}}").project_writable is writes


def test_a_personas_tools_replace_its_adapters_and_deny_lists_add_up() -> None:
    adapters = "adapters: {c: {default_permissions: {allowed_tools: [Read], deny: [Bash, Write]}}}\n"
    own = persona("adapter: c, permissions: {allowed_tools: [Grep], deny: [Edit, Bash]}", adapters)
    assert patterns(own) == (["Grep"], ["Bash", "Write", "Edit"])
    inherited = persona("adapter: c", adapters)
    assert patterns(inherited) == (["Read"], ["Bash", "Write"])
    none = persona("adapter: c, permissions: {allowed_tools: []}", adapters)
    assert none.allowed_tools == ()


def test_an_empty_adapter_is_the_first_one() -> None:
    adapters = "adapters: {zeta: {default_permissions: {deny: [Bash]}}, alpha: {}}\n"
    for text in ("adapter: ''", "", "adapter: "):
        found = persona(text, adapters)
        assert ([agent.adapter for agent in found.agents], patterns(found)) == (["zeta"], (["*"], ["Bash"]))


@pytest.mark.parametrize(
    ("shell_keys", "listed", "mode", "names"),
    [
        pytest.param("network: filtered, domains: [x.org]", None, NetworkMode.FILTERED, ["x.org"], id="no-list-of-its-own"),
        pytest.param("network: filtered, domains: [x.org, y.org]", "[y.org]", NetworkMode.FILTERED, ["y.org"], id="fewer"),
        pytest.param("network: filtered, domains: [x.org]", "[]", NetworkMode.NONE, [], id="nothing"),
        pytest.param("network: host", "[x.org]", NetworkMode.FILTERED, ["x.org"], id="of-the-hosts"),
        pytest.param("network: open", "[x.org]", NetworkMode.FILTERED, ["x.org"], id="of-everything-public"),
        pytest.param("network: none", "[x.org]", NetworkMode.NONE, [], id="of-nothing"),
        pytest.param("network: host", "[]", NetworkMode.NONE, [], id="nothing-of-the-hosts"),
    ],
)
def test_a_persona_never_reaches_more_than_its_shells_mode(shell_keys: str, listed: str | None, mode: NetworkMode, names: list[str]) -> None:
    own = f", allowed_domains: {listed}" if listed else ""
    found = persona(f"sandbox: {{shell: s{own}}}", f"runtime: {{sandbox: {{shells: {{s: {{{shell_keys}}}}}}}}}\n")
    assert (found.fence.network.mode, [str(d) for d in found.fence.network.domains]) == (mode, names)


def test_a_persona_keeps_the_other_bounds_of_its_shells_network() -> None:
    for mode in ("filtered", "open", "host"):
        own = "" if mode == "host" else ", loopback: [5432], denied_domains: [z.org]"
        more = f"runtime: {{sandbox: {{denied_domains: [y.org], upstream_proxy: true, shells: {{s: {{network: {mode}{own}}}}}}}}}\n"
        network = persona("sandbox: {shell: s, allowed_domains: [x.org]}", more).fence.network
        assert (network.mode, [str(d) for d in network.denied], str(network.upstream), network.loopback) == (
            NetworkMode.FILTERED,
            ["y.org:*"] if mode == "host" else ["y.org:*", "z.org:*"],
            "wave.yaml:3",
            () if mode == "host" else (5432,),
        )
        nothing = persona("sandbox: {shell: s, allowed_domains: []}", more).fence.network
        assert (nothing.mode, nothing.denied, nothing.upstream, nothing.loopback) == (NetworkMode.NONE, (), None, ())


@pytest.mark.parametrize(
    ("shell_keys", "listed", "mistake"),
    [
        pytest.param(
            "domains: ['*.x.org']", "{host: a.x.org, tls: false}", "personas.p: a.x.org (tls: false) is not among the domains of its shell s", id="more"
        ),
        pytest.param("domains: [{host: x.org, tls: false}]", "{host: x.org, tls: false}", "", id="the-same"),
        pytest.param("domains: [{host: x.org, allow_private: true}]", "x.org", "", id="less"),
        pytest.param("domains: [x.org]", "y.org", "personas.p: y.org is not among the domains of its shell s", id="another"),
        pytest.param(
            "network: open",
            "{host: x.org, allow_private: true}",
            "personas.p: x.org (allow_private: true) is more than its shell s reaches",
            id="private-of-open",
        ),
        pytest.param("network: open", "{host: x.org, tls: false}", "", id="public-of-open"),
        pytest.param("network: host", "{host: x.org, allow_private: true}", "", id="private-of-the-hosts"),
    ],
)
def test_a_personas_entry_lets_through_no_more_than_its_shells(shell_keys: str, listed: str, mistake: str) -> None:
    def work() -> PersonaPolicy:
        return persona(f"sandbox: {{shell: s, allowed_domains: [{listed}]}}", f"runtime: {{sandbox: {{shells: {{s: {{{shell_keys}}}}}}}}}\n")

    if not mistake:
        assert len(work().fence.network.domains) == 1
        return
    with pytest.raises(ManifestError) as caught:
        work()
    assert [p.what for p in caught.value.problems if p.severity is Severity.ERROR] == [mistake]


def test_a_persona_without_a_shell_is_in_restricted() -> None:
    assert persona("").shell == "restricted"
    assert rules(persona("sandbox: {deny_read_paths: [~/x]}").fence)["~/x"].access is Access.HIDE


# --- the plan as a whole


def test_the_same_manifest_is_the_same_plan() -> None:
    text = ADAPTERS + "personas: {b: {}, a: {}}\nruntime: {sandbox: {packages: [go], unfree: [b, a, a], paths: [{path: ~/a, access: read}]}}\n"
    assert planned(text) == planned(text)
    assert planned(text).unfree == ("a", "b")
    assert [p.name for p in planned(text).personas] == ["b", "a"]


def test_an_overlay_that_says_nothing_changes_nothing_but_that_it_is_there() -> None:
    text = "runtime: {sandbox: {packages: [go]}}\n"
    with_it, without = planned(text, ""), planned(text)
    assert replace(with_it, shells=without.shells) == replace(without, overlaid=True)
    for one, other in zip(with_it.shells, without.shells, strict=True):
        # What is there must stay there; what is not need not be.
        changed = {str(a.path) for a, b in zip(one.paths, other.paths, strict=True) if a != b}
        assert changed == ({"./wave.sandbox.yaml"} if one.fenced else set())


@pytest.mark.parametrize(
    ("package", "taken"),
    [("nix/package.nix", True), ("./default.nix", True), ("/etc/x.nix", False), ("~/x.nix", False), ("../x.nix", False), ("x.txt", False), ("", False)],
)
def test_a_package_file_is_a_nix_file_of_the_project(package: str, taken: bool) -> None:
    text = f"package: '{package}'"
    if taken:
        assert sandbox(text).package == HostPath(Anchor.PROJECT, package.removeprefix("./"))
    else:
        assert len(mistakes(text)) == 1


@pytest.mark.parametrize("name", ["a/b", "../x", ".", "a b", "", "-a", "a.b", "é", "persona-x", "a" * 65, "$(x)"])
def test_a_shells_name_is_a_word_for_files_and_flakes(name: str) -> None:
    assert len(mistakes(f"shells: {{'{name}': {{}}}}")) == 1


@pytest.mark.parametrize("name", ["a", "A-b_9", "9a", "a" * 64, "persona"])
def test_other_names_are_taken(name: str) -> None:
    assert sandbox(f"shells: {{'{name}': {{}}}}").find_shell(name) is not None


def test_an_unknown_adapter_is_a_warning_as_wave_takes_such_manifests_too() -> None:
    notes = planned("adapters: {claude: {}}\npersonas: {p: {adapter: cluade}}\n").notes
    assert [(str(n.at), n.severity.value, n.hint) for n in notes] == [("wave.yaml:3:25", "warning", "did you mean 'claude'?")]


def test_the_table_shows_who_is_refused_what_is_allowed_in_spite_of_it_and_the_way_there() -> None:
    sandbox = 'upstream_proxy: true, denied_domains: [evil.x.org], default_allowed_domains: [{host: "a.x.org", tls: false}, "*.x.org"]'
    lines = [" ".join(line.partition("#")[0].split()) for line in render_plan_table(planned(f"runtime: {{sandbox: {{{sandbox}}}}}\n"))]
    assert {"deny evil.x.org:*", "allow *.x.org", "allow a.x.org, tls: false", "upstream HTTPS_PROXY of the host"} <= set(lines)


@pytest.mark.parametrize("port", [53, 1080, 3128])
def test_the_fences_own_ports_are_not_the_hosts(port: int) -> None:
    with pytest.raises(ManifestError) as raised:
        planned(f"runtime: {{sandbox: {{shells: {{restricted: {{loopback: [{port}]}}}}}}}}\n")
    assert ["the shell's own proxies" in problem.what for problem in raised.value.problems] == [True]


def test_the_table_shows_what_a_persona_runs_and_what_holds_it() -> None:
    text = (
        "adapters: {claude: {}, opencode: {default_model: openai/o3}}\n"
        "personas: {a: {model: opus}, b: {sandbox: {shell: open}}, c: {adapter: opencode, permissions: {allowed_tools: [Read]}}}\n"
        "runtime: {fallbacks: {claude: [opencode]}, sandbox: {shells: {open: {sandbox: false}}}}\n"
    )
    lines = [" ".join(line.partition("#")[0].split()) for line in render_plan_table(planned(text))]
    found = {name: lines[lines.index(f"persona {name}") + 1 :] for name in "abc"}
    assert found["a"][:5] == [
        "runs claude (opus), else opencode (openai/o3)",
        "shell restricted, narrower",
        "project write",
        "network filtered",
        "allow api.anthropic.com",
    ]
    assert found["a"][5] == "allow api.openai.com"
    assert found["b"][:2] == ["runs claude, else opencode (openai/o3)", "shell open: NOT SANDBOXED"]
    assert found["c"][:5] == ["runs opencode (openai/o3)", "shell restricted, narrower", "project read-only", "network filtered", "allow api.openai.com"]

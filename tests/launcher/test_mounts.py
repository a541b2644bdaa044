"""What is mounted where, decided for machines that do not exist: links, modes, grants, what is hidden, and what keeps its place."""

from __future__ import annotations

import pytest
from fake_host import SOCKET, Entry, FakeHost, directory, file, link

from wavegen.backends.sandboxes.rules_file import base_text, rules_text
from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.mounts import BIND, EMPTY, FILE, MASK, RO_BIND, SCRATCH, SYMLINK, Mount, resolve_mounts
from wavegen.launcher.places import Places
from wavegen.launcher.rules import read_rules
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.planner import plan_manifest

ME = 1000
HOME, PROJECT = "/home/me", "/home/me/src/p"
PRIVATE = f"{HOME}/.local/state/wavegen/%2Fhome%2Fme%2Fsrc%2Fp/default/home"
SYSTEM = {
    **{f"/{name}": directory() for name in ("usr", "etc", "opt", "sys", "var", "data", "srv", "boot")},
    **{f"/{name}": link(f"usr/{name}") for name in ("bin", "lib")},
    "/usr/bin/perl": file(0o755),
    "/proc/sys": directory(),
    "/etc/passwd": file(),
    "/etc/shadow": file(0o640),
    "/etc/localtime": link("/usr/share/zone"),
    "/usr/share/zone": file(),
    "/etc/hosts": link("/data/hosts"),
    "/data/hosts": file(),
    "/etc/app/secret": file(0o600),
    "/etc/app/public": file(),
    "/etc/keys": directory(0o700),
    "/locked": directory(0o700),
}
OWN = {
    HOME: directory(0o750, ME),
    f"{HOME}/src": directory(owner=ME),
    PROJECT: directory(owner=ME),
    PRIVATE: directory(0o700, ME),
    **{f"{PROJECT}/{name}": file(owner=ME) for name in ("wave.yaml", "flake.nix", "flake.lock")},
    f"{PROJECT}/.wavegen": directory(owner=ME),
}


def host(more: dict[str, Entry] | None = None, *, uid: int = ME) -> FakeHost:
    return FakeHost({**SYSTEM, **OWN, **(more or {})}, uid=uid, is_member=uid == 0)


def resolved(sandbox: str = "", more: dict[str, Entry] | None = None, *, shell: str = "default", uid: int = ME) -> dict[str, Mount]:
    """The mounts of a shell, by target, in their order."""
    text = "metadata: {name: p}\n" + (f"runtime: {{sandbox: {{{sandbox}}}}}\n" if sandbox else "")
    made = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
    policy = made.find_shell(shell)
    assert policy
    rules, machine = read_rules(rules_text(made, policy), base_text, "rules"), host(more, uid=uid)
    places = Places(machine, rules, {"HOME": HOME}, start=PROJECT, project=PROJECT, launcher="/launcher")
    return {mount.target: mount for mount in resolve_mounts(rules, places, machine)}


def refused(sandbox: str, more: dict[str, Entry] | None = None, **options: str) -> str:
    with pytest.raises(CannotStartError) as caught:
        resolved(sandbox, more, **options)  # type: ignore[arg-type]
    return str(caught.value)


# --- the root


def test_default_shows_each_directory_of_the_root_that_no_rule_hides_and_that_others_may_read() -> None:
    mounts = resolved()
    assert {path for path, mount in mounts.items() if path.count("/") == 1 and mount.kind == RO_BIND} == {"/usr", "/etc", "/opt", "/sys", "/data"}
    assert {path for path, mount in mounts.items() if mount.kind == SYMLINK and path.count("/") == 1} == {"/bin", "/lib"}
    assert not {"/srv", "/boot", "/var", "/home", "/locked"} & set(mounts)


def test_restricted_starts_from_nothing() -> None:
    mounts = resolved(shell="restricted")
    assert not {"/etc", "/opt", "/data", "/sys"} & set(mounts)
    assert (mounts["/usr"].kind, mounts["/bin"].kind, mounts["/etc/passwd"].kind) == (RO_BIND, SYMLINK, FILE)
    assert "/etc/shadow" not in mounts


def test_a_link_of_the_system_stays_one_where_what_it_leads_to_is_shown_and_is_copied_elsewhere() -> None:
    mounts = resolved("shells: {own: {network: none}}", shell="own")
    assert (mounts["/etc/localtime"].kind, mounts["/etc/localtime"].source) == (SYMLINK, "/usr/share/zone")
    assert (mounts["/etc/hosts"].kind, mounts["/etc/hosts"].source) == (FILE, "/data/hosts")


def test_what_others_cannot_read_is_hidden_from_root_and_left_to_permissions_otherwise() -> None:
    mounts = resolved(uid=0)
    assert (mounts["/etc/app/secret"].kind, mounts["/etc/keys"].kind, mounts["/etc/shadow"].kind) == (MASK, EMPTY, MASK)
    assert "/etc/app/public" not in mounts
    assert not {"/etc/app/secret", "/etc/keys", "/etc/shadow"} & set(resolved())


def test_shallow_comes_before_deep() -> None:
    depths = [path.count("/") if path != "/" else 0 for path in resolved("paths: [{path: ~/.cache, access: write}]", {f"{HOME}/.cache": directory(owner=ME)})]
    assert depths == sorted(depths)


def test_the_same_machine_gives_the_same_mounts() -> None:
    assert list(map(repr, resolved().values())) == list(map(repr, resolved().values()))


# --- the home and the project


def test_the_home_is_another_and_nothing_can_be_written_between_it_and_the_project() -> None:
    mounts = resolved()
    assert (mounts[HOME].kind, mounts[HOME].source) == (BIND, PRIVATE)
    assert mounts[f"{HOME}/src"].kind == EMPTY
    assert (mounts[PROJECT].kind, mounts[PROJECT].source) == (BIND, PROJECT)


def test_own_files_are_read_only_and_a_link_in_their_place_is_refused() -> None:
    assert {name: resolved()[f"{PROJECT}/{name}"].kind for name in ("wave.yaml", "flake.nix", "flake.lock", ".wavegen")} == dict.fromkeys(
        ("wave.yaml", "flake.nix", "flake.lock", ".wavegen"), RO_BIND
    )
    assert "is a symlink, which an agent could point to another file" in refused(
        "", {f"{PROJECT}/flake.nix": link("other.nix"), f"{PROJECT}/other.nix": file()}
    )


def test_what_is_not_there_cannot_be_made_read_only_so_its_lack_is_an_error() -> None:
    machine = dict(OWN)
    del machine[f"{PROJECT}/flake.lock"]
    text = "metadata: {name: p}\n"
    made = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
    rules = read_rules(rules_text(made, made.shells[0]), base_text, "rules")
    bare = FakeHost({**SYSTEM, **machine}, uid=ME)
    places = Places(bare, rules, {"HOME": HOME}, start=PROJECT, project=PROJECT, launcher="/launcher")
    with pytest.raises(CannotStartError, match=r"flake\.lock is missing"):
        resolve_mounts(rules, places, bare)


# --- grants


def test_a_grant_is_shown_at_its_own_name_and_keeps_its_place() -> None:
    mounts = resolved("paths: [{path: ~/.config/tool, access: read}]", {f"{HOME}/.config/tool": file(owner=ME)})
    assert (mounts[f"{HOME}/.config/tool"].kind, mounts[f"{HOME}/.config/tool"].source) == (RO_BIND, f"{HOME}/.config/tool")
    anchor = mounts[f"{HOME}/.config"]
    assert (anchor.kind, anchor.source, anchor.anchors) == (BIND, f"{PRIVATE}/.config", True)


def test_a_link_of_the_home_leads_within_the_home_or_into_a_store() -> None:
    grant = "paths: [{path: ~/.tool, access: read}]"
    mounts = resolved(grant, {f"{HOME}/.tool": link("dotfiles/tool"), f"{HOME}/dotfiles/tool": file(owner=ME)})
    assert mounts[f"{HOME}/.tool"].source == f"{HOME}/dotfiles/tool"
    assert resolved(grant, {f"{HOME}/.tool": link("/nix/store/x/tool"), "/nix/store/x/tool": file()})[f"{HOME}/.tool"].source == "/nix/store/x/tool"
    assert f"outside {HOME}" in refused(grant, {f"{HOME}/.tool": link("/etc/app/public")})


@pytest.mark.parametrize("where", ["link -> ..", "d/link -> /etc"])
def test_a_link_that_a_command_could_have_made_is_refused(where: str) -> None:
    name, _, target = where.partition(" -> ")
    more = {f"{PROJECT}/{name}": link(target)}
    assert "is a link that a command could have made" in refused(f"paths: [{{path: {name}/x, access: read}}]", more)


def test_a_link_in_what_another_shell_may_write_is_refused_too() -> None:
    more = {f"{HOME}/shared/l": link(f"{HOME}/.ssh"), f"{HOME}/.ssh/id": file(0o600, owner=ME)}
    told = "paths: [{path: ~/shared/l/id, access: read}], shells: {other: {paths: [{path: ~/shared, access: write}]}}"
    assert "is a link that a command could have made" in refused(told, more)


def test_what_is_missing_is_an_error_unless_it_may_be() -> None:
    assert f"{HOME}/none does not exist" in refused("paths: [{path: ~/none, access: read}]")
    assert f"{HOME}/none" not in resolved("paths: [{path: ~/none, access: read, optional: true}]")


def test_what_cannot_be_seen_is_not_taken_for_missing() -> None:
    more = {f"{HOME}/locked": directory(0, ME), f"{HOME}/locked/x": file(owner=ME)}
    told = refused("paths: [{path: ~/locked/x, access: read, optional: true}]", more)
    assert "cannot be looked at" in told
    assert "chmod u+rwx" in told


def test_sockets_want_a_word() -> None:
    assert "is a socket" in refused("paths: [{path: ~/a.sock, access: read}]", {f"{HOME}/a.sock": SOCKET})
    assert resolved("paths: [{path: ~/a.sock, access: read, socket: true}]", {f"{HOME}/a.sock": SOCKET})[f"{HOME}/a.sock"].kind == RO_BIND


def test_a_granted_place_of_the_system_is_there_in_an_empty_root() -> None:
    mounts = resolved("paths: [{path: /data/sets, access: read}]", {"/data/sets": directory()}, shell="restricted")
    assert (mounts["/data/sets"].kind, mounts["/data/sets"].source) == (RO_BIND, "/data/sets")


def test_what_holds_the_home_is_not_granted_by_a_link() -> None:
    assert "holds the real home" in refused("paths: [{path: /data/all, access: read}]", {"/data/all": link("/home")})


# --- what the manifest hides


def test_what_is_denied_is_masked_by_whatever_name_it_is_shown() -> None:
    more = {f"{HOME}/w/secret": file(owner=ME), f"{HOME}/w/d/x": file(owner=ME), f"{PROJECT}/.env": file(owner=ME)}
    mounts = resolved("paths: [{path: ~/w, access: write}], deny_read_paths: [~/w/secret, ~/w/d, .env, /etc/passwd]", more)
    assert (mounts[f"{HOME}/w/secret"].kind, mounts[f"{HOME}/w/d"].kind) == (MASK, EMPTY)
    assert (mounts[f"{PROJECT}/.env"].kind, mounts["/etc/passwd"].kind) == (MASK, MASK)


def test_nothing_is_mounted_below_what_is_denied_as_a_whole() -> None:
    more = {f"{PROJECT}/.vscode/tasks.json": file(owner=ME), f"{PROJECT}/c/k": file(owner=ME)}
    mounts = resolved("deny_read_paths: [.vscode, c/k, c]", more)
    assert [path for path in mounts if path.startswith((f"{PROJECT}/.vscode", f"{PROJECT}/c"))] == [f"{PROJECT}/.vscode", f"{PROJECT}/c"]


def test_a_grant_and_a_denial_of_one_place_are_a_contradiction() -> None:
    assert "both granted and hidden" in refused(f"paths: [{{path: ~/a, access: read}}], deny_read_paths: [{HOME}/a]", {f"{HOME}/a/b": file(owner=ME)})


def test_the_state_is_hidden_where_a_grant_would_show_it_and_its_parents_keep_their_places() -> None:
    mounts = resolved("paths: [{path: ~/.local, access: write}]")
    assert mounts[f"{HOME}/.local/state/wavegen"].kind == EMPTY
    assert mounts[f"{HOME}/.local/state"].anchors


# --- what the host follows


def test_what_the_host_follows_is_read_only_where_it_is() -> None:
    mounts = resolved("", {f"{PROJECT}/.vscode/tasks.json": file(owner=ME), f"{PROJECT}/.envrc": file(owner=ME)})
    assert (mounts[f"{PROJECT}/.vscode"].kind, mounts[f"{PROJECT}/.envrc"].kind) == (RO_BIND, RO_BIND)
    assert f"{PROJECT}/.idea" not in mounts


def test_what_the_manifest_grants_for_writing_is_writable() -> None:
    told = "paths: [{path: .vscode, access: write}]"
    assert resolved(told, {f"{PROJECT}/.vscode": directory(owner=ME)})[f"{PROJECT}/.vscode"].kind == BIND


def test_a_link_in_its_place_is_followed_within_the_project_alone() -> None:
    more = {f"{PROJECT}/.vscode": link("tools/code"), f"{PROJECT}/tools/code": directory(owner=ME)}
    mounts = resolved("", more)
    assert mounts[f"{PROJECT}/tools/code"].kind == RO_BIND
    assert mounts[f"{PROJECT}/tools"].anchors
    assert not [path for path in resolved("", {f"{PROJECT}/.vscode": link("/etc/app")}) if path.startswith(("/etc/app", f"{PROJECT}/.vscode"))]


def test_a_command_that_planted_a_link_where_something_is_mounted_stops_the_shell() -> None:
    more = {f"{HOME}/.tool": file(owner=ME), f"{PRIVATE}/.tool": link("/etc")}
    assert "is a symlink where the manifest mounts something" in refused("paths: [{path: ~/.tool, access: read}]", more)


def test_a_home_that_is_empty_at_each_start_is_a_tmpfs() -> None:
    mounts = resolved("home: tmpfs")
    assert (mounts[HOME].kind, mounts[f"{HOME}/src"].kind) == (SCRATCH, EMPTY)


def test_two_names_of_what_is_hidden_are_no_contradiction_of_a_grant_elsewhere() -> None:
    """All of them have the same origin, as rules name no line: what is meant is told by the rule itself."""
    more = {f"{HOME}/{name}": file(owner=ME) for name in ("a", "b")} | {"/data/b": file(), "/data/l": link("/data/b"), "/data/t": directory()}
    mounts = resolved("paths: [{path: ~/a, access: read}], deny_read_paths: [/data/b, /data/l, /data/b/]", more)
    assert (mounts["/data/b"].kind, mounts[f"{HOME}/a"].kind) == (MASK, RO_BIND)
    assert mounts["/data/b"].rule
    assert mounts["/data/b"].rule.path == "/data/b"


def test_a_contradiction_names_the_lines_of_both() -> None:
    more = {"/data/d/granted": file(), "/data/l": link("/data/d"), f"{PROJECT}/wave.yaml": file(owner=ME)}
    assert "/data/d/granted is both granted and hidden (wave.yaml and wave.yaml ask for it" in refused(
        "paths: [{path: /data/d/granted, access: read}], deny_read_paths: [/data/l]", more
    )

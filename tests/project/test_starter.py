"""The starter manifest: what it recognises, what it must not take over, and that it plans without a remark."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest
from helpers import LINEAR, ROOT, command_lines, growth, until

from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest
from wavegen.project import inspection, registries
from wavegen.project.inspection import host_of
from wavegen.project.starter import starter_manifest

API = "api.anthropic.com"
LONG = f"4{secrets.randbelow(10**9):09d}"
"""Seconds that a tool sleeps; by this number it is found."""
HASH = "0123456789abcdef"
SECRETS = ("s3cret", "t0ken")


@pytest.fixture(autouse=True)
def bare(private_home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without tools and settings; the PATH's only directory."""
    tools = tmp_path_factory.mktemp("tools")
    for name in tuple(os.environ):
        if name.startswith(("PIP_", "UV_", "GO", "CARGO_", "NPM_", "npm_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CONFIG_DIRS", "/nonexistent")
    monkeypatch.setattr(registries, "SYSTEM_PIP_CONFIG", "/nonexistent")
    return tools


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "demo"
    root.mkdir()
    return root


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def tool(directory: Path, name: str, script: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def planned(root: Path) -> Plan:
    """The plan of the starter: no error, warning or note."""
    text = starter_manifest(str(root))
    result = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
    assert result.notes == ()
    assert text == starter_manifest(str(root))
    assert not any(secret in text for secret in SECRETS)
    return result


def hosts(root: Path) -> set[str]:
    """The hosts of `restricted`, besides the API's."""
    restricted = next(shell for shell in planned(root).shells if shell.name == "restricted")
    found = {str(rule) for rule in restricted.network.domains}
    assert API in found
    return found - {API}


def packages(root: Path) -> list[str]:
    return [".".join(package.attribute) for package in planned(root).shells[0].packages]


NODE = {"package.json": "{}"}
PYTHON = {"pyproject.toml": ""}
RUST = {"Cargo.toml": ""}
GO = {"go.mod": "module example.org/x\n"}


# --- the text


def test_an_empty_directory_gets_git_and_the_adapters_api(project: Path) -> None:
    assert hosts(project) == set()
    assert packages(project) == ["git"]
    text = starter_manifest(str(project))
    assert text.startswith("# yaml-language-server: $schema=.wavegen/wave.schema.json\n")
    assert text.endswith("\n")
    assert "not found" not in text
    assert all(line == line.rstrip() and len(line) <= 120 for line in text.splitlines())


def test_the_manifest_reads_back_as_meant(project: Path) -> None:
    import yaml

    write(project, GO)
    manifest = yaml.safe_load(starter_manifest(str(project)))
    assert manifest["metadata"] == {"name": "demo"}
    assert manifest["project"] == {"language": "go"}
    assert manifest["adapters"] == {"claude": {"binary": "claude", "mode": "headless"}}
    assert manifest["runtime"]["workspace_root"] == ".wave/workspaces"
    sandbox = manifest["runtime"]["sandbox"]
    assert sandbox["backend"] == "bubblewrap"
    assert sandbox["env_passthrough"] == ["ANTHROPIC_API_KEY", "GH_TOKEN"]
    assert sandbox["paths"] == [{"path": "~/.gitconfig", "access": "read", "optional": True}]


def test_commented_examples_plan_too(project: Path) -> None:
    text = starter_manifest(str(project)).replace("    # shells:", "    shells:").replace("# personas:", "personas:")
    for key in ("default", "restricted", "ci"):
        text = text.replace(f"    #   {key}:", f"      {key}:")
    for key in ("network:", "loopback:", "packages: [jq]"):
        text = text.replace(f"    #     {key}", f"        {key}")
    start = text.index("personas:")
    end = text.index("\n\n", start)
    text = text[:start] + text[start:end].replace("\n# ", "\n  ") + text[end:]
    text = text.replace("      # - {", "      - {").replace("      # - .env", "      - .env").replace("  # description", "  description")
    result = plan_manifest(Source("wave.yaml", text.encode()), None, "")
    assert result.notes == ()
    assert [shell.name for shell in result.shells] == ["default", "restricted", "yolo", "ci"]
    assert [(persona.name, persona.project_writable) for persona in result.personas] == [("navigator", False), ("reviewer", False)]


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        pytest.param("demo", "demo", id="plain"),
        pytest.param("a'b\"$(x)\n", "a-b-x", id="quotes"),
        pytest.param("${x}: # {}", "x", id="yaml"),
        pytest.param("żółw 東京 😀", "żółw-東京", id="unicode"),
        pytest.param("...", "project", id="dots"),
        pytest.param("\u2028\u0085\x7f", "project", id="separators"),
        pytest.param("null", "null", id="null"),
        pytest.param("007", "007", id="number"),
        pytest.param("n" * 200, "n" * 64, id="long"),
        pytest.param(os.fsdecode(b"a\xffb"), "a-b", id="not utf-8"),
    ],
)
def test_any_directory_name_makes_a_name(tmp_path: Path, directory: str, name: str) -> None:
    root = tmp_path / directory
    root.mkdir()
    assert planned(root).name == name


def test_the_root_directory_has_a_name() -> None:
    assert 'name: "project"' in starter_manifest("/")


# --- npm


def test_npm_lock_and_settings(project: Path, private_home: Path) -> None:
    lock = (
        '{"lockfileVersion": 3, "packages": {"": {}, "node_modules/a": {"resolved": "https://u:s3cret@npm.mirror.example/a.tgz",'
        ' "funding": {"url": "https://funding.example/a"}}, "b": {"resolved": "packages/b", "link": true},'
        ' "c": {"resolved": "git+ssh://git@git.example/c.git#1"}, "d": {"resolved": "file:../d.tgz"}, "e": {"resolved": "http://localhost:4873/e.tgz"}}}'
    )
    settings = "registry=https://npm.own.example:8443/x/\n@team:registry = http://scope.example/\n//npm.own.example/:_authToken=s3cret\n"
    write(project, NODE | {"package-lock.json": lock, ".npmrc": "registry=https://${T0KEN}.example/\n# registry=https://off.example\n"})
    write(private_home, {".npmrc": settings})
    assert hosts(project) == {"npm.mirror.example", "git.example:22", "npm.own.example:8443", "scope.example"}
    text = starter_manifest(str(project))
    assert "- npm.mirror.example              # package-lock.json\n" in text
    assert '- "npm.own.example:8443"          # ~/.npmrc\n' in text
    assert packages(project) == ["git", "nodejs"]


def test_yarn_and_pnpm(project: Path) -> None:
    yarn = (
        '"a@^1":\n  version "1"\n  resolved "https://one.example/a/-/a-1.tgz#abc"\n'
        '"b@https://x":\n  resolution: "b@https://user:s3cret@two.example/b.tgz"\n"c@npm:1":\n  resolution: "c@npm:1.0.0"\n'
    )
    pnpm = "packages:\n  a@1:\n    resolution: {integrity: x, tarball: https://three.example:80/a.tgz}\n  b@1:\n    resolution: {tarball: 'https://four.example'}\n"
    berry = 'npmRegistryServer: "https://five.example"\nnpmScopes:\n  a:\n    npmRegistryServer: https://six.example/x\n    npmAuthToken: s3cret\n'
    write(project, NODE | {"yarn.lock": yarn, "pnpm-lock.yaml": pnpm, ".yarnrc.yml": berry, ".yarnrc": 'registry "https://seven.example"\n'})
    assert hosts(project) == {f"{name}.example" for name in ("one", "two", "three", "four", "five", "six", "seven")}
    assert packages(project) == ["git", "nodejs", "pnpm", "yarn"]


def test_npm_is_asked_outside_of_the_project(project: Path, bare: Path) -> None:
    tool(bare, "npm", '[ "$PWD" = / ] && [ "$*" = "config get registry" ] && ! read -r x && echo https://asked.example/')
    write(project, NODE | {"tsconfig.json": "{}"})
    assert hosts(project) == {"asked.example"}
    assert "language: typescript\n" in starter_manifest(str(project))


# --- Python


def test_python_locks_and_settings(project: Path) -> None:
    write(
        project,
        {
            "poetry.lock": '[package.source]\ntype = "legacy"\nurl = "https://poetry.mirror.example/simple"\n',
            "uv.lock": 'source = { registry = "https://uv.mirror.example/simple" }\nwheels = [\n  { url = "https://files.mirror.example/a.whl", hash = "x" },\n]\n'
            'source = { git = "https://git.example/a?rev=1#2" }\n',
            "Pipfile.lock": '{"_meta": {"sources": [{"name": "x", "url": "https://u:s3cret@pipenv.example/simple"}]}}',
            "requirements.txt": "--index-url https://t0ken:@req.example/simple\n# https://off.example\na==1  # https://off.example/a\n",
            "requirements-dev.txt": '--extra-index-url="https://dev.example:8080/simple"\nb @ git+https://code.example/b@v1.0\nc @ git+ssh://git@code.example/c\n',
            "pyproject.toml": '[[tool.uv.index]]\nurl = "https://a.example"\n[[tool.poetry.source]]\nname = "x"\nurl = "https://b.example"\n'
            '[[tool.pdm.source]]\nurl = "https://c.example"\n[tool.uv]\nextra-index-url = ["https://d.example"]\n[project.urls]\nhome = "https://off.example"\n',
        },
    )
    mirrors = {f"{name}.example" for name in ("poetry.mirror", "uv.mirror", "files.mirror", "git", "pipenv", "req", "code", "a", "b", "c", "d")}
    assert hosts(project) == mirrors | {"dev.example:8080", "code.example:22"}
    assert packages(project) == ["git", "python3", "uv", "poetry", "pipenv"]


def test_pip_settings_and_variables(project: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(private_home, {".config/pip/pip.conf": "[global]\nindex-url = https://u:s3cret%40@one.example/simple\nextra-index-url =\n  https://two.example\n"})
    write(private_home, {".pip/pip.conf": "[install]\nindex_url: https://three.example\ntrusted-host = off.example\n", ".config/uv/uv.toml": "[[[broken"})
    write(
        tmp_path,
        {"own.conf": "[global]\nindex-url=https://four.example\n", "system.conf": "no section\n", "xdg/pip/pip.conf": "[a]\nfind-links=http://five.example"},
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    monkeypatch.setattr(registries, "SYSTEM_PIP_CONFIG", str(tmp_path / "system.conf"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"/nonexistent:{tmp_path}/xdg")
    monkeypatch.setenv("PIP_INDEX_URL", "https://six.example")
    monkeypatch.setenv("UV_INDEX", "name=https://seven.example https://eight.example")
    write(project, PYTHON)
    assert hosts(project) == {f"{name}.example" for name in ("one", "two", "three", "four", "five", "six", "seven", "eight")}
    text = starter_manifest(str(project))
    for origin in ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "$PIP_CONFIG_FILE", "$PIP_INDEX_URL", "$UV_INDEX"):
        assert f"# {origin}\n" in text


def test_pips_own_default(project: Path, bare: Path) -> None:
    tool(bare, "pip3", 'echo "  -i <url>  Base URL of the index (default"; echo "    https://u:s3cret@index.example/simple). This should (default: x)"')
    write(project, PYTHON)
    assert hosts(project) == {"index.example"}


# --- Rust


def test_cargo(project: Path, private_home: Path) -> None:
    lock = (
        '[[package]]\nname = "a"\nsource = "registry+https://git.mirror.example/index"\n[[package]]\nsource = "sparse+https://sparse.example/index/"\n'
        '[[package]]\nsource = "git+https://code.example/c?rev=1#2"\n[[package]]\nsource = "git+ssh://git@code.example/c"\n'
    )
    write(project, RUST | {"Cargo.lock": lock, ".cargo/config.toml": '[registries.own]\nindex = "sparse+https://u:s3cret@own.example/"\ntoken = "s3cret"\n'})
    write(private_home, {".cargo/config.toml": '[source.a]\nreplace-with = "b"\n[source.b]\nregistry = "https://replaced.example/index"\n'})
    write(private_home, {f".cargo/registry/index/index.example-{HASH}/config.json": '{"dl": "https://dl.example/{crate}", "api": "https://off.example"}'})
    write(private_home, {f".cargo/registry/index/-{HASH}/x": "", ".cargo/registry/index/notes": ""})
    expected = {"git.mirror", "sparse", "code", "own", "replaced", "index", "dl"}
    assert hosts(project) == {f"{name}.example" for name in expected} | {"code.example:22"}
    assert "dl.example                      # dl in ~/.cargo/registry/index\n" in starter_manifest(str(project))
    assert packages(project) == ["git", "cargo", "rustc"]


def test_the_git_index_that_cargo_lock_names_may_not_be_what_is_fetched_from(project: Path) -> None:
    write(project, RUST | {"Cargo.lock": 'source = "registry+https://git.mirror.example/index"\n'})
    assert hosts(project) == {"git.mirror.example"}
    assert "# host of the Rust crate registry: not found" in starter_manifest(str(project))


# --- Go


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        pytest.param("https://u:s3cret@go.example,direct", {"go.example"}, id="list"),
        pytest.param("http://a.example:3000|https://b.example,off", {"a.example:3000", "b.example"}, id="two"),
        pytest.param("direct", set(), id="direct"),
        pytest.param("off", set(), id="off"),
        pytest.param("file:///srv/go", set(), id="file"),
        pytest.param("https://t0ken.x,s3cret@go.example", set(), id="comma in a password"),
    ],
)
def test_goproxy(project: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, expected: set[str]) -> None:
    monkeypatch.setenv("GOPROXY", proxy)
    monkeypatch.setenv("GOSUMDB", "off")
    write(project, GO)
    assert hosts(project) == expected
    assert packages(project) == ["git", "go", "gopls"]


def test_go_settings_file_and_tool(project: Path, private_home: Path, bare: Path) -> None:
    write(private_home, {".config/go/env": "GOSUMDB=name.example+1234 https://sum.example\nGOPRIVATE=*.corp.example,code.example/team,*,*.com,b?d.example\n"})
    tool(bare, "go", '[ "$PWD" = / ] && [ "$GOTOOLCHAIN" = local ] && printf "%s\\n" https://asked.example,direct other.example')
    write(project, GO)
    assert hosts(project) == {"sum.example", "*.corp.example", "code.example", "asked.example"}
    text = starter_manifest(str(project))
    assert '- "*.corp.example"                # ~/.config/go/env\n' in text
    assert "# go env GOPROXY\n" in text


def test_the_name_of_a_checksum_database_is_its_host(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSUMDB", "sum.example+key")
    write(project, GO)
    assert hosts(project) == {"sum.example"}


# --- git


def test_git_remotes(project: Path) -> None:
    config = (
        '[core]\n\turl = https://off.example\n[remote "origin"]\n\turl = https://u:s3cret@one.example/a.git\n\tpushurl = git@github.two.example:a/b.git\n'
        '[remote "x"]\n\turl = ssh://git@three.example:2222/a\n\turl = ../sibling\n\turl = work:a\n[branch "url"]\n\turl = https://off.example\n'
    )
    write(project, {".git/config": config, "Makefile": ""})
    assert hosts(project) == {"one.example", "github.two.example:22", "three.example:2222"}
    assert packages(project) == ["git", "gh", "gnumake"]


@pytest.mark.parametrize("common", [pytest.param("../..", id="worktree"), pytest.param("", id="submodule")])
def test_a_pointer_to_the_repository(project: Path, tmp_path: Path, common: str) -> None:
    places = {"main/.git/worktrees/x/commondir": f"{common}\n", "main/.git/config": '[remote "o"]\nurl = git@forge.example:a/b\n'}
    write(tmp_path, places if common else {"main/.git/worktrees/x/config": places["main/.git/config"]})
    write(project, {".git": "gitdir: ../main/.git/worktrees/x\n"})
    assert hosts(project) == {"forge.example:22"}


# --- together


def test_all_four_ecosystems(project: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, NODE | PYTHON | RUST | GO | {".npmrc": "registry=https://mirror.example/npm", ".git/config": '[remote "o"]\nurl = https://github.com/a/b\n'})
    write(project, {"uv.lock": 'source = { registry = "https://mirror.example/pip" }'})
    write(private_home, {f".cargo/registry/index/crates.example-{HASH}/config.json": "{}"})
    monkeypatch.setenv("GOPROXY", "https://mirror.example/go")
    assert hosts(project) == {"mirror.example", "crates.example", "github.com"}
    assert packages(project) == ["git", "go", "gopls", "nodejs", "python3", "uv", "cargo", "rustc", "gh"]
    text = starter_manifest(str(project))
    assert "# $GOPROXY, .npmrc, uv.lock\n" in text
    assert "language: go    # and javascript, python, rust\n" in text
    assert "not found" not in text


def test_what_is_not_found_is_said(project: Path) -> None:
    write(project, NODE | PYTHON | RUST | GO)
    assert hosts(project) == set()
    text = starter_manifest(str(project))
    for how in ("`npm config get registry`", "`pip config list`", "`cargo fetch`", "`go env GOPROXY`"):
        assert any("not found" in line and how in line for line in text.splitlines())


# --- what must not happen


def test_no_tool_of_the_project_is_run(project: Path, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    inside = project / "node_modules/.bin"
    for name in ("npm", "node", "pip", "pip3", "go"):
        tool(inside, name, f"echo {name} >> {ran}; echo https://decoy.example")
    links = tmp_path / "links"
    links.mkdir()
    (links / "npm").symlink_to(inside / "npm")
    (tmp_path / "alias").symlink_to(inside)
    # A harmless script whose interpreter would be found in the project.
    (bare / "npm").write_text("#!/usr/bin/env node\n")
    (bare / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(inside), "", ".", "node_modules/.bin", str(tmp_path / "alias"), str(links), str(bare))))
    monkeypatch.chdir(inside)
    write(project, NODE | PYTHON | GO)
    assert hosts(project) == set()
    assert not ran.exists()


def test_variables_that_lead_into_the_project_are_not_passed_to_tools(project: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/anywhere")
    monkeypatch.setenv("NODE_OPTIONS", "--require x")
    monkeypatch.setenv("NODE_PATH", f"/x:{project}/lib")
    monkeypatch.setenv("PIP_PROXY", "kept")
    tool(bare, "pip", '[ "$PYTHONPATH$NODE_OPTIONS$NODE_PATH$PIP_PROXY" = kept ] && echo "(default https://index.example/simple)"')
    write(project, PYTHON)
    assert hosts(project) == {"index.example"}


@pytest.mark.parametrize(
    "script", [f"exec /bin/sleep {LONG}", f"/bin/sleep {LONG} & /bin/sleep {LONG}", f"/bin/sleep {LONG} &"], ids=["slow", "child", "pipe held"]
)
def test_a_tool_that_hangs_is_stopped(project: Path, bare: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(inspection, "SECONDS", 0.2)
    tool(bare, "npm", script)
    write(project, NODE)
    starter_manifest(str(project))
    assert until(lambda: not [line for line in command_lines().values() if line.startswith("/bin/sleep\0" + LONG)])


@pytest.mark.parametrize(
    "script", ["echo https://half.example; exit 1", "printf '\\377\\000'", "echo undefined", ":"], ids=["fails", "binary", "undefined", "silent"]
)
def test_a_tool_that_answers_badly_is_ignored(project: Path, bare: Path, script: str) -> None:
    tool(bare, "npm", script)
    tool(bare, "go", script)
    write(project, NODE | GO)
    assert hosts(project) == set()


def test_a_tool_that_cannot_start_is_ignored(project: Path, bare: Path) -> None:
    (bare / "npm").write_bytes(b"\x7fELF")
    (bare / "npm").chmod(0o755)
    write(project, NODE)
    assert hosts(project) == set()


LOCKS = ("package-lock.json", "yarn.lock", "pnpm-lock.yaml", ".npmrc", "poetry.lock", "uv.lock", "Pipfile.lock", "requirements.txt", "Cargo.lock")
READ = (*LOCKS, ".cargo/config.toml", ".git/config", "uv.toml")
SMALL = 4096


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{]]", id="broken"),
        pytest.param(b'url = "https://a.example"\0', id="binary"),
        pytest.param(b'url = "https://a.example"\xff', id="not utf-8"),
        pytest.param(b'url = "https://a.example"\n' + b"#" * SMALL, id="huge"),
        pytest.param(b"[" * SMALL, id="deep"),
        pytest.param(b'url = "https://[broken/" \nurl = "https://a.example:99999/"\nregistry=https://a b/', id="no urls"),
        pytest.param(b"", id="empty"),
    ],
)
def test_files_that_cannot_be_used_are_ignored(project: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(inspection, "SIZE_LIMIT", SMALL)
    write(project, NODE | RUST | GO | dict.fromkeys(("pyproject.toml", *READ), content))
    own = (".npmrc", ".config/pip/pip.conf", ".config/uv/uv.toml", ".config/go/env", ".cargo/config.toml", f".cargo/registry/index/x-{HASH}/config.json")
    write(private_home, dict.fromkeys(own, content))
    assert hosts(project) == set()


def test_a_file_that_was_cut_off_does_no_harm(project: Path) -> None:
    names = (name for name in READ if name != "requirements.txt")  # where a URL may stand bare
    write(project, NODE | PYTHON | RUST | dict.fromkeys(names, '"resolved": "https://a.example/\nurl = "https://a.example\n[remote "x'))
    assert hosts(project) == set()


def test_what_is_no_file_of_the_project_is_not_read(project: Path, tmp_path: Path, private_home: Path) -> None:
    write(tmp_path, {"outside": 'url = "https://outside.example"\nregistry=https://outside.example\n"resolved": "https://outside.example"\n'})
    write(project, NODE | PYTHON)
    (project / "uv.lock").symlink_to(tmp_path / "outside")
    (project / "package-lock.json").symlink_to("../outside")
    (project / ".npmrc").symlink_to(".npmrc")
    (project / "poetry.lock").mkdir()
    os.mkfifo(project / "requirements.txt")
    (project / ".git").symlink_to(tmp_path)
    (private_home / ".npmrc").mkdir()
    assert hosts(project) == set()


def test_the_homes_own_files_may_be_links(project: Path, private_home: Path, tmp_path: Path) -> None:
    write(tmp_path, {"dotfiles/npmrc": "registry=https://npm.mirror.example/\n"})
    (private_home / ".npmrc").symlink_to(tmp_path / "dotfiles/npmrc")
    write(project, NODE)
    assert hosts(project) == {"npm.mirror.example"}


def test_hostile_file_names_stay_in_their_comment(project: Path) -> None:
    write(project, PYTHON | {"requirements\n      - evil.example\n#.txt": "--index-url https://a.example\n"})
    assert hosts(project) == {"a.example"}


def test_searching_takes_linear_time(project: Path) -> None:
    write(project, NODE | PYTHON | RUST)

    def searched(size: int) -> None:
        hard = ("\n" * size, "a" * size, " " * size, '"url"' * size, "@" * size, "https://a@" + "a." * size + " ", 'resolved "' + "@" * size, "registry" * size)
        for content in hard:
            write(project, dict.fromkeys((*LOCKS, ".git/config"), content))
            starter_manifest(str(project))

    assert growth(searched, 8_000) < LINEAR


@pytest.mark.parametrize(
    ("url", "host"),
    [
        pytest.param("https://A.Example/x", "a.example", id="case"),
        pytest.param("https://a.example:443", "a.example", id="443"),
        pytest.param("http://a.example:80/", "a.example", id="80"),
        pytest.param("https://a.example:8443/", "a.example:8443", id="port"),
        pytest.param("https://u:p@a.example", "a.example", id="credentials"),
        pytest.param("https://t0ken.x/s3cret@a.example/", "", id="slash in a password"),
        pytest.param("https://t0ken.x#s3cret@a.example/", "", id="hash in a password"),
        pytest.param("https://t0ken/s3cret@a.example/", "", id="slash in a password, no dot"),
        pytest.param("https://a.example/@scope/pkg/-/pkg-1.0.tgz", "a.example", id="scope"),
        pytest.param("git+https://a.example/b@v1.0", "a.example", id="revision"),
        pytest.param("git@a.example:b/c.git", "a.example:22", id="scp"),
        pytest.param("git+ssh://git@a.example/b", "a.example:22", id="git+ssh"),
        pytest.param("git://a.example/b", "a.example:9418", id="git"),
        pytest.param("https://192.0.2.7/", "192.0.2.7", id="address"),
        pytest.param("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443", id="address 6"),
        pytest.param("https://127.0.0.1:8080/", "", id="loopback"),
        pytest.param("https://[::1]/", "", id="loopback 6"),
        pytest.param("http://0.0.0.0/", "", id="any"),
        pytest.param("http://169.254.169.254/", "", id="link local"),
        pytest.param("http://a.localhost/", "", id="localhost"),
        pytest.param("http://localhost./", "", id="localhost."),
        pytest.param("http://0x7f.1/", "", id="number"),
        pytest.param("file:///a.example", "", id="file"),
        pytest.param("https://*.com/", "", id="top level"),
        pytest.param("https://a.example\\@b.example/", "", id="backslash"),
        pytest.param("https://ä.example/", "", id="not ascii"),
        pytest.param("https://a.example/" + "x" * 5000, "", id="long"),
        pytest.param("C:\\a.b", "", id="drive"),
        pytest.param("direct", "", id="word"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_host_of(url: str, host: str) -> None:
    assert host_of(url) == host


def test_hash_seeds_do_not_matter(project: Path, private_home: Path) -> None:
    import subprocess

    write(project, NODE | PYTHON | {"uv.lock": "".join(f'url = "https://h{n}.example"\n' for n in range(20)), ".npmrc": "registry=https://h3.example"})
    code = "import sys; from wavegen.project.starter import starter_manifest; sys.stdout.write(starter_manifest(sys.argv[1]))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code, str(project)],
            env={"HOME": str(private_home), "PATH": "", "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(texts) == 1

"""The text of a starter wave.yaml: commented, and right for the project as far as its files tell."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator

from wavegen.core.quote import escape_comment
from wavegen.policy.known_agents import hosts_of, kind_of
from wavegen.project.ecosystems import Recognised, detect_ecosystems
from wavegen.project.inspection import Surroundings

_BINARY = "claude"
_GITHUB = "github.com"
_NAME_LIMIT = 64
_ORIGINS_SHOWN = 3
# What YAML takes for a string without quotes, in each of its versions: with a dot, and no number.
_PLAIN = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")

_HEAD = """\
# yaml-language-server: $schema=.wavegen/wave.schema.json
#
# Who may touch what in this project. wavegen renders this file into a Nix flake and bubblewrap wrappers:
#   wavegen render              after each change of this file
#   wavegen plan                what each shell may touch, and by which line
#   nix develop                 the shell `default`; without Nix: .wavegen/bin/default
#   nix develop .#restricted    a shell that reaches none but the hosts listed below
"""

_ADAPTERS = f"""
adapters:                     # the agent programs
  {_BINARY}:
    binary: {_BINARY}            # its command
    mode: headless

# personas:                   # roles of the agent: what its tools may do, and the shell that fences it
#   navigator:
#     preset: navigator       # built in: navigator, implementer, reviewer, craftsman, philosopher, auditor
#   reviewer:
#     adapter: {_BINARY}
#     description: Reads and reports. As it may neither Write, Edit nor run Bash, the project is read-only to it.
#     permissions:
#       allowed_tools: [Read, Grep, Glob]
#     sandbox:
#       shell: restricted     # the default

runtime:
  workspace_root: .wave/workspaces
  sandbox:
    backend: bubblewrap       # what fences personas and `wavegen run`: bubblewrap, docker, landlock or none
"""

_PACKAGES = """
    # Programs of every shell: names of packages in nixpkgs (https://search.nixos.org/packages).
    # An agent may come from there too; what is not free software also needs its name under `unfree`:
    #   unfree: [claude-code]
    packages:
"""

_DOMAINS = """
    # The hosts that `restricted` may reach, on the web's ports unless one is named. Each may take in what an agent
    # sends it, so list few. `*.example.org` stands for every name below example.org, `example.org:22` for one port.
    # A registry may keep its files on another host than its index. `default` is not bound by the list.
    # What was refused: wavegen log --denied. The lines that would allow it: wavegen log --suggest.
    default_allowed_domains:
"""

_TAIL = """
    # Variables of yours that arrive inside; all others stay outside. Their values are never written to a file.
    env_passthrough:
      - ANTHROPIC_API_KEY     # for the agent
      - GH_TOKEN              # for gh, and git over https

    # Hidden inside, whatever else would show it. Your home directory is not there anyway, except for `paths`.
    deny_read_paths:
      - ~/.ssh
      - ~/.aws
      - ~/.gnupg
      # - .env                # secrets of this project

    # What every shell sees besides the system and this project. `optional`: skipped where it does not exist.
    paths:
      - {path: ~/.gitconfig, access: read, optional: true}     # your name and address for commits
      # - {path: ~/.claude, access: write, optional: true}     # to use the agent's login instead of a key
      # - {path: ~/.local/bin, access: read}                   # an agent that is installed in your home, and
      # - {path: ~/.local/share/claude, access: read}          # where its link leads

    # Three shells are always there, written or not; write them down to change them, and add your own.
    #   default       fenced; reaches every host that you reach, also in your local network
    #   restricted    fenced; reaches none but the domains above
    #   yolo          no fence at all
    # shells:
    #   default:
    #     network: none       # host, open (public names), filtered (a list of domains) or none
    #   ci:                   # one of your own: nix develop .#ci
    #     network: none
    #     packages: [jq]      # besides the packages above
"""


def starter_manifest(root: str) -> str:
    """A wave.yaml for the project in `root`: an absolute path without symlinks.

    The same files, settings and tools give the same text.
    """
    found = detect_ecosystems(Surroundings(root, os.path.expanduser("~"), os.environ))
    return "".join(
        (_HEAD, *_metadata_lines(root), *_project_lines(found), _ADAPTERS, _PACKAGES, *_package_lines(found), _DOMAINS, *_domain_lines(found), _TAIL)
    )


def _metadata_lines(root: str) -> Iterator[str]:
    yield "\napiVersion: v1\nkind: WaveManifest\nmetadata:\n"
    yield f"  name: {json.dumps(_project_name(root), ensure_ascii=False)}\n"
    yield "  # description: one line about the project\n"


def _project_name(root: str) -> str:
    """The directory's name, with what is neither letter nor digit in any script as a hyphen."""
    name = unicodedata.normalize("NFC", os.path.basename(root))
    safe = re.sub(r"[^\w.-]+", "-", name)[:_NAME_LIMIT]
    return safe.strip("-.") or "project"


def _project_lines(found: Recognised) -> Iterator[str]:
    if not found.languages:
        yield "\n# project:\n#   language: its main language\n"
        return
    first, *others = found.languages
    also = f"    # and {', '.join(others)}" if others else ""
    yield f"\nproject:\n  language: {first}{also}\n"


def _package_lines(found: Recognised) -> Iterator[str]:
    for name, reason in found.packages.items():
        yield _list_entry(name, reason)


def _domain_lines(found: Recognised) -> Iterator[str]:
    apis = hosts_of(kind_of(_BINARY), "")
    for host in apis:
        yield _list_entry(host, f"API of {_BINARY}")
    for host, origins in found.hosts.items():
        more = ", …" if len(origins) > _ORIGINS_SHOWN else ""
        if host not in apis:
            yield _list_entry(host, ", ".join(origins[:_ORIGINS_SHOWN]) + more)
    if found.forge == _GITHUB:
        yield f"      # - api.{_GITHUB}: gh talks to it; not allowed unless you list it\n"
    for what in found.missing:
        yield f"      # {what}\n"


def _list_entry(value: str, reason: str) -> str:
    text = value if _PLAIN.fullmatch(value) or value.isidentifier() else json.dumps(value)
    return f"      - {text:<30}  # {escape_comment(reason)}\n"

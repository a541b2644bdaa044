"""The Nix flake: data as JSON, code static. Nothing of the manifest is pasted into Nix but the description."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File, generated_header
from wavegen.backends.templates import fill_template
from wavegen.core import resources
from wavegen.policy.model import Effect, Gap, Origin, Plan

FLAKE = "flake.nix"
ADOPT = "devShells = (import ./.wavegen/shells.nix { inherit nixpkgs; }).devShells;"
"""The line that adds the shells to a flake written by hand."""
HAND_OVER = "devShells = (import ./.wavegen/shells.nix { inherit nixpkgs wavegen; }).devShells;"
"""The same where the launcher is not rendered: `wavegen` is an input with wavegen's sources."""

# nixos-unstable of June 2026. The lock is written once; after that `nix flake update` is the user's.
_LOCKED = {
    "lastModified": 1781577229,
    "narHash": "sha256-lrp67w8AulE9Ks53n27I45ADSzbOCn4H+CNW1Ck8B+8=",
    "owner": "NixOS",
    "repo": "nixpkgs",
    "rev": "567a49d1913ce81ac6e9582e3553dd90a955875f",
    "type": "github",
}
_ORIGINAL = {"owner": "NixOS", "ref": "nixos-unstable", "repo": "nixpkgs", "type": "github"}


def render(plan: Plan) -> Iterator[File]:
    """flake.nix, flake.lock where there is none, and the static shells.nix."""
    yield File(path=".wavegen/shells.nix", text=f"# {generated_header(plan)}\n" + resources.read_resource("nix/shells.nix"))
    if not plan.vendored:
        return  # where the launcher comes from is for whoever writes the flake to say
    description = plan.description or f"The fenced development shells of {plan.name}"
    yield File(path=FLAKE, text=fill_template("flake.nix.j2", header=generated_header(plan), description=description))
    yield File(path="flake.lock", text=_lock_file_text(), only_if_missing=True, header=False)


def _lock_file_text() -> str:
    # As Nix itself writes it (two spaces, sorted keys), so that `nix flake lock` changes nothing.
    import json

    nodes = {"nixpkgs": {"locked": _LOCKED, "original": _ORIGINAL}, "root": {"inputs": {"nixpkgs": "nixpkgs"}}}
    return json.dumps({"nodes": nodes, "root": "root", "version": 7}, indent=2, sort_keys=True) + "\n"


def gaps(plan: Plan) -> Iterator[Gap]:
    """The ways into a dev shell in which no hook of the shell is run."""
    del plan
    ways = (
        "`nix develop` runs no hook, and starts no sandbox, where it reads commands from a pipe, where its stderr is no terminal (without --command), "
        "in posix mode (POSIXLY_CORRECT), in a directory whose path holds an apostrophe, and for what is no shell (.#image); nor do `nix-shell` and direnv"
    )
    yield Gap(
        backend="flake",
        shell="",
        effect=Effect.IGNORED,
        what=ways,
        remedy="use nix develop --command, nix run .#SHELL -- or .wavegen/bin/SHELL",
        origin=Origin("how Nix and direnv start a shell"),
    )

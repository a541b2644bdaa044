"""What a wheel has beside the package: the pages for man and the scripts for shells, written from the command line that it holds."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPLETIONS = {
    "bash": "share/bash-completion/completions/wavegen",
    "zsh": "share/zsh/site-functions/_wavegen",
    "fish": "share/fish/vendor_completions.d/wavegen.fish",
}


class CustomBuildHook(BuildHookInterface):
    """Writes them to a directory of its own, from where hatchling takes them."""

    _directory: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is put together; `version` is `editable` where nothing is."""
        if version == "editable":
            return  # they would be those of the day on which it was installed
        sys.path.insert(0, self.root)
        try:
            from wavegen.cli.completion import completion_script
            from wavegen.cli.main import cli
            from wavegen.cli.manual_pages import render_manual_pages
        finally:
            sys.path.remove(self.root)
        self._directory = Path(tempfile.mkdtemp())
        files = {f"share/man/man1/{name}": text for name, text in render_manual_pages(cli).items()}
        files |= {place: completion_script(cli, shell) for shell, place in _COMPLETIONS.items()}
        for number, (place, text) in enumerate(sorted(files.items())):
            file = self._directory / str(number)
            file.write_text(text, "utf-8")
            file.chmod(0o644)
            build_data["shared_data"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  hatchling's
        """Called when the wheel is there."""
        if self._directory:
            shutil.rmtree(self._directory)

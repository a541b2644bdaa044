"""Every real Wave manifest that could be found: it renders, or the message says exactly where it cannot."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from helpers import ROOT, call, rendered, snapshot, times, wavegen

CORPUS = ROOT.parent / "shared/manifests"
PRECISE = re.compile(r"wave\.yaml:[1-9]\d*:[1-9]\d*: error: \S.*")

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real manifests is not beside the repository")

# Manifests that wavegen refuses: where, and why. All others render.
REFUSED = {
    "gotests-024-validate_test": ["5:3 not YAML: did not find expected key"],
    "gotests-026-validate_test": ["4:3 metadata.name is missing"],
    "gotests-039-parser_test": ["4:3 not YAML: did not find expected key"],
    "history-2026-02-26-b2cd3d7e": ["238:1 merge conflict marker"],
}
RENDERED = 97


@cache
def manifests() -> tuple[Path, ...]:
    return tuple(sorted(CORPUS.glob("*.yaml")))


def outcome(root: Path, manifest: Path) -> list[str]:
    """Render a manifest in a directory of its own; the errors shown. What must hold either way is checked here."""
    root.mkdir()
    (root / "wave.yaml").write_bytes(manifest.read_bytes())
    done = call("render", cwd=root)
    if done.status:
        assert done.status == 2, (manifest.name, done.output)
        assert sorted(snapshot(root)) == ["wave.yaml"], manifest.name
        lines = [line for line in done.stderr.splitlines() if ": error: " in line and not line.startswith("    ")]
        assert lines, done.stderr
        assert all(PRECISE.fullmatch(line) for line in lines), lines
        return lines
    # A second look finds nothing to do, whichever verb looks.
    before = times(root)
    again = call("render", *(() if manifest.stem.startswith("history") else ("--check",)), cwd=root)
    assert (again.status, again.stderr, again.stdout in ("", "up to date\n")) == (0, "", True), manifest.name
    assert times(root) == before, manifest.name
    return []


def test_every_manifest_renders_cleanly_or_fails_with_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {manifest.stem: outcome(tmp_path / manifest.stem, manifest) for manifest in manifests()}
    refused = {name: lines for name, lines in shown.items() if lines}
    with capsys.disabled():
        print(f"\ncorpus: {len(shown)} manifests, {len(shown) - len(refused)} rendered, {len(refused)} refused")
        for name, lines in refused.items():
            print(f"  {name}: {lines[0]}" + (f" (and {len(lines) - 1} more)" if lines[1:] else ""))
    assert list(refused) == list(REFUSED)
    for name, expected in REFUSED.items():
        assert [re.match(r"wave\.yaml:(\S+): error: ", line).group(1) for line in refused[name]] == [text.split()[0] for text in expected]  # type: ignore[union-attr]
        assert all(text.split(" ", 1)[1] in line for text, line in zip(expected, refused[name], strict=True))
    assert len(shown) - len(refused) == RENDERED


def test_todays_manifest_has_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    trees = []
    for seed in ("1", "2"):
        root = tmp_path / seed
        root.mkdir()
        (root / "wave.yaml").write_bytes((CORPUS / "current.yaml").read_bytes())
        done = wavegen("render", cwd=root, env={"PYTHONHASHSEED": seed})
        assert done.status == 0, done.output
        trees.append(rendered(root))
    assert trees[0] == trees[1]
    assert len(trees[0]) >= 9

"""`make site` builds each page of docs/ into a website that can be searched, and that asks no other host for anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import TOOLS
from helpers import ROOT

SITE = ROOT / "site"
PAGES = tuple(sorted((ROOT / "docs").glob("*.md")))
GROUPS = ["Tutorial", "How-to", "Reference", "Explanation"]
LOADING = {"src", "srcset", "data", "poster"}
"""Attributes whose address a browser loads with the page, whatever the element. Of `href` it depends on the element."""
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


@dataclass
class Page(HTMLParser):
    """What a built page loads, links to and says."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in LOADING or (name.endswith("href") and tag != "a"):
                self.loads.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name == "style":
                self.styles.append(value or "")

    def handle_data(self, data: str) -> None:
        (self.styles if self.lasttag == "style" else self.text).append(data)


def read_page(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


def loaded_from_elsewhere(page: Page) -> list[str]:
    """Addresses of other hosts that a browser asks when it shows the page."""
    return [address for address in page.loads if ELSEWHERE.match(address.strip())] + [host for style in page.styles for host in hosts_of_style(style)]


def hosts_of_style(text: str) -> list[str]:
    addresses = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)
    return [address for address in addresses if ELSEWHERE.match(address)]


@pytest.fixture(scope="module")
def built() -> dict[str, Page]:
    """Each page of the site, by its name without the suffix."""
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(["make", "--silent", "site"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {file.stem: read_page(file.read_text("utf-8")) for file in SITE.glob("*.html")}


@pytest.mark.needs("mkdocs")
def test_every_page_of_docs_is_built(built: dict[str, Page]) -> None:
    assert set(built) == {page.stem for page in PAGES} | {"404"}
    for page in PAGES:
        title = page.read_text("utf-8").splitlines()[0].removeprefix("# ").replace("`", "")
        assert title in "".join(built[page.stem].text), page.name


@pytest.mark.needs("mkdocs")
def test_every_page_has_a_place_in_one_of_four_groups(built: dict[str, Page]) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    assert re.findall(r"^  - ([\w-]+):$", navigation, re.MULTILINE) == GROUPS
    named = re.findall(r"^      - .+: (\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == [page.name for page in PAGES]
    for name, page in built.items():
        places = {link.partition("#")[0].strip("./") for link in page.links}
        assert places >= {f"{other.stem}.html" for other in PAGES if other.stem != name}, name


@pytest.mark.needs("mkdocs")
def test_the_search_knows_words_of_all_pages(built: dict[str, Page]) -> None:
    entries = json.loads((SITE / "search/search_index.json").read_text("utf-8"))["docs"]
    assert {entry["location"].partition("#")[0] for entry in entries} == {f"{page.stem}.html" for page in PAGES}
    for word, name in (("seccomp", "kernel"), ("default_allowed_domains", "manifest"), ("AppArmor", "troubleshooting"), ("podman", "containers")):
        found = {entry["location"].partition("#")[0] for entry in entries if word in entry["title"] + entry["text"]}
        assert f"{name}.html" in found, word


@pytest.mark.needs("mkdocs")
def test_no_built_page_loads_anything_from_another_host(built: dict[str, Page]) -> None:
    for name, page in built.items():
        assert len(page.loads) >= 3, name
        assert loaded_from_elsewhere(page) == [], name
        # Where a page has a diagram, the theme's script loads the library that draws it from another host.
        assert 'class="mermaid"' not in (SITE / f"{name}.html").read_text("utf-8"), name
    styles = sorted(SITE.rglob("*.css"))
    assert len(styles) >= 3
    assert [host for style in styles for host in hosts_of_style(style.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="stylesheet" href="//example.org/x.css">',
        '<img alt="x" src="http://example.org/x.png">',
        '<svg><image xlink:href="https://example.org/x.png"/></svg>',
        "<style>@import 'https://example.org/x.css';</style>",
        '<p style="background: url(https://example.org/x.png)">x</p>',
    ],
)
def test_what_loads_from_another_host_is_seen(text: str) -> None:
    assert loaded_from_elsewhere(read_page(text)) != []
    assert loaded_from_elsewhere(read_page(re.sub(r"(https?:)?//example.org/", "assets/", text))) == []


@pytest.mark.needs("mkdocs")
def test_links_out_of_docs_are_names_of_files(built: dict[str, Page]) -> None:
    outside = {page.stem: re.findall(r"\]\(\.\./([^)#\s]+)", page.read_text("utf-8")) for page in PAGES}
    assert sum(map(len, outside.values())) >= 3
    for name, files in outside.items():
        for file in files:
            assert file in "".join(built[name].text), (name, file)
        assert not any(link.startswith("..") for link in built[name].links), name


@pytest.mark.needs("mkdocs")
def test_a_dead_link_and_a_page_without_a_place_end_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Here\n\n[no page](none.md), [no anchor](more.md#none), [anchor](more.md#more)\n")
    (tmp_path / "docs/more.md").write_text("# More\n")
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT}/mkdocs.yml\nhooks: []\nnav: [index.md]\n")
    done = subprocess.run([TOOLS["mkdocs"][0], "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for said in ("'none.md'", "'more.md#none'", 'not included in the "nav" configuration:\n  - more.md', "Aborted with 3 warnings"):
        assert said in done.stderr + done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_written_as_the_site_reads_them(page: Path) -> None:
    """MkDocs wants an empty line before a list, and four spaces before what belongs to an item. Other programs read that the same way."""
    before, inside = "", False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not inside:
            assert not re.match(r" {1,3}(```|[-*] |\d+\. )", line), (number, "indent it by four spaces")
            if re.match(r"[-*] |\d+\. ", line):
                assert not before or re.match(r"[-*] |\d+\. | ", before), (number, "put an empty line before the list")
        if line.strip().startswith("```"):
            inside = not inside
        before = line

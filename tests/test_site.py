"""The site is built without a dead link, has every page in the navigation, and loads only its own files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import channels
import gateway
import gateway.testing
from scripts.site import OUTSIDE

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent
DOCS = [page.name for page in (ROOT / "docs").glob("*.md")]
WRITTEN = [page for page in OUTSIDE if page.endswith(".md")]
REFERENCE = "reference.md"
"""The page made mostly from docstrings."""
LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(?P<src>[^\"\s>]+)|<link\b[^>]*\bhref=\"?(?P<href>[^\"\s>]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return directory


@pytest.mark.ledger("PYG-48")
def test_every_page_is_there_and_reached_from_the_front_page(site: Path) -> None:
    pages = [*DOCS, *OUTSIDE.values()]
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in pages:
        built = Path(page).with_suffix(".html")
        assert (site / built).is_file()
        assert f'href="{built}"' in front, f"{page} is not in the nav of mkdocs.yml"


def test_links_of_the_repository_lead_to_pages_of_the_site(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="examples/approval.html"' in front
    assert 'href="deploy.html#a-first-server-step-by-step"' in front
    answers = (site / "faq.html").read_text(encoding="utf-8")
    assert 'href="index.html#what-it-promises"' in answers
    assert 'href="examples/approval.html"' in answers


def test_an_example_is_shown_as_it_is(site: Path) -> None:
    shown = (site / "examples" / "approval.html").read_text(encoding="utf-8")
    assert "Approvers(people=MANAGERS)" in re.sub(r"<[^>]+>", "", shown)


def test_site_loads_no_resource_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text(encoding="utf-8")):
            address = found["src"] or found["href"]
            assert not re.match(r"(?:https?:)?//", address), f"{page.name} loads {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


@pytest.mark.parametrize("page", [*WRITTEN, *sorted({*DOCS} - {REFERENCE})])
def test_page_has_the_lists_tables_and_code_of_commonmark(site: Path, page: str) -> None:
    """The site's Markdown needs a blank line before a list and four spaces inside. Others need less."""
    source = ROOT / page if page in OUTSIDE else ROOT / "docs" / page
    seen = MarkdownIt("commonmark").enable("table").parse(source.read_text(encoding="utf-8"))
    html = (site / OUTSIDE.get(page, page)).with_suffix(".html").read_text(encoding="utf-8")
    article = html.partition("<article")[2].partition("</article>")[0]
    for kinds, tag in ((("list_item_open",), "<li>"), (("tr_open",), "<tr>"), (("fence",), "<pre")):
        assert article.count(tag) == sum(token.type in kinds for token in seen), tag


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / REFERENCE).with_suffix(".html").read_text(encoding="utf-8")
    anchors = set(re.findall(r'id="([\w.]+)"', page)) | {"gateway.tool"}  # under the name of its module
    assert "gateway.tools.tool.tool" in anchors
    for package in (channels, gateway, gateway.testing):
        own = [
            name
            for name in package.__all__
            if package is channels or getattr(package, name) is not getattr(channels, name, None)
        ]
        assert {f"{package.__name__}.{name}" for name in own} <= anchors


def test_site_has_a_search_index(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "deploy.html#a-first-server-step-by-step" in index

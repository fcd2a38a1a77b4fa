"""MkDocs hook: adds the pages outside docs/ to the site: README.md as the front page, the changelog, the examples.

MkDocs calls the functions with names beginning with ``on_`` (https://www.mkdocs.org/dev-guide/plugins/#events). A link
in the repository, like ``[approval](../examples/approval.py)``, becomes a link in the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent
OUTSIDE: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in sorted((ROOT / "examples").glob("*.py"))},
}
"""Path in the repository -> page of the site."""
_ORIGINS: Final = {page: path for path, page in OUTSIDE.items()}

_CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<fragment>#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of OUTSIDE."""
    for path, page in OUTSIDE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".py"):
            text = f"# {Path(path).name}\n\n```python\n{text}```\n"
        elif not path.endswith(".md"):
            text = f"# {path.capitalize()}\n\n```\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the page's links between files of the repository to links between pages of the site."""
    here = page.file.src_uri
    origin = _ORIGINS.get(here, f"docs/{here}")
    pieces = _CODE.split(markdown)  # every second piece is code
    pieces[::2] = [_LINK.sub(lambda link: _moved(link, origin, here), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _moved(link: re.Match[str], origin: str, here: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["path"]))
    page = OUTSIDE.get(path, path.removeprefix("docs/"))
    return posixpath.relpath(page, posixpath.dirname(here) or ".") + (link["fragment"] or "")

"""The tool `file_search`: a full-text search in the text files of a directory."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gateway.tools import Tool, ToolFailed

_LARGEST_FILE: Final = 1_000_000
_MOST_FILES: Final = 2000
_PASSAGE: Final = 1200
"""The characters of one passage."""
_FOUND: Final = 5


def file_search(directory: str | Path, *, suffixes: Sequence[str] = (".md", ".txt", ".rst")) -> Tool:
    """Return a tool that searches the text files of a directory, and of its directories, as they are now.

    Hidden files, links that lead outside, files of more than 1 MB and all files after the 2,000th are left out. They
    are read at each search. Raises ValueError if there is no directory of this name.
    """
    root = Path(directory).resolve()
    if not root.is_dir():
        raise ValueError(f"there is no directory {str(directory)!r} to search in")

    def file_search(query: str) -> str:
        """Search the files of the bot for words, and read the passages that fit best.

        Args:
            query: Words to search for.
        """
        words = re.findall(r"\w+", query)[:20]
        if not words:
            raise ToolFailed("give words to search for")
        return _search(list(_passages(root, frozenset(suffixes))), words)

    return Tool(file_search, read_only=True)


def _search(passages: Sequence[tuple[str, str]], words: Sequence[str]) -> str:
    index = sqlite3.connect(":memory:")
    try:
        index.execute("CREATE VIRTUAL TABLE passages USING fts5(name, text)")
        index.executemany("INSERT INTO passages VALUES (?, ?)", passages)
        wanted = " OR ".join(f'"{word}"' for word in words)
        found = index.execute(
            "SELECT name, text FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?", (wanted, _FOUND)
        ).fetchall()
    finally:
        index.close()
    if not found:
        return "no file has these words"
    return "\n\n".join(f"[{name}]\n{text}" for name, text in found)


def _passages(root: Path, suffixes: frozenset[str]) -> Iterator[tuple[str, str]]:
    for path in _files(root, suffixes):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        name = path.relative_to(root).as_posix()
        passage = ""
        for paragraph in re.split(r"\n\s*\n", text):
            if passage and len(passage) + len(paragraph) > _PASSAGE:
                yield name, passage
                passage = ""
            passage = f"{passage}\n\n{paragraph}".strip()
            while len(passage) > 2 * _PASSAGE:
                yield name, passage[:_PASSAGE]
                passage = passage[_PASSAGE:]
        if passage:
            yield name, passage


def _files(root: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    number = 0
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if hidden or path.suffix not in suffixes or not path.is_file():
            continue
        if not path.resolve().is_relative_to(root) or path.stat().st_size > _LARGEST_FILE:
            continue
        number += 1
        if number > _MOST_FILES:
            return
        yield path

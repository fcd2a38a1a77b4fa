"""The tool `file_search`: a full-text search in the text files of a directory."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gateway.tools import Tool, ToolFailed

_LARGEST_FILE: Final = 1_000_000
_MOST_FILES: Final = 2000
_MOST_BYTES: Final = 64_000_000
"""The most bytes of all files together. The index takes about twice as much memory."""
_PASSAGE: Final = 1200
"""The most characters of a passage."""
_FOUND: Final = 5


def file_search(directory: str | Path, *, suffixes: Sequence[str] = (".md", ".txt", ".rst")) -> Tool:
    """Return a tool for searching the text files of a directory and the directories below, in the current state.

    Hidden files, links leading outside, files of more than 1 MB, and all files after the 2,000th or after 64 MB are
    left out. The first search reads the files, and each later search reads the changed files. Raises ValueError if
    there is no directory of this name.
    """
    root = Path(directory).resolve()
    if not root.is_dir():
        raise ValueError(f"there is no directory {str(directory)!r} to search in")
    index = _Index(root, frozenset(suffixes))

    def file_search(query: str) -> str:
        """Search the files of the bot for words, and read the passages that fit best.

        Args:
            query: Words to search for.
        """
        words = re.findall(r"\w+", query[:_PASSAGE])[:20]
        if not words:
            raise ToolFailed("give words to search for")
        found = index.search(words)
        return "\n\n".join(f"[{name}]\n{text}" for name, text in found) or "no file has these words"

    return Tool(file_search, read_only=True)


class _Indexed(NamedTuple):
    """A file in the index: the state at the reading, and the ids of the passages."""

    state: tuple[int, ...]
    ids: range


class _Index:
    """The passages of the files below a directory."""

    def __init__(self, root: Path, suffixes: frozenset[str]) -> None:
        self._root, self._suffixes = root, suffixes
        self._in_use = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._known: dict[Path, _Indexed] = {}
        self._next_id = 1

    def search(self, words: Sequence[str]) -> list[tuple[str, str]]:
        """Return the names and texts of the best fitting passages."""
        with self._in_use:
            database = self._database
            if database is None:
                database = self._database = sqlite3.connect(":memory:", check_same_thread=False)
                database.execute("CREATE VIRTUAL TABLE passages USING fts5(name, text)")
            self._refresh(database)
            wanted = " OR ".join(f'"{word}"' for word in words)
            return database.execute(
                "SELECT name, text FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?", (wanted, _FOUND)
            ).fetchall()

    def _refresh(self, database: sqlite3.Connection) -> None:
        """Take out the passages of missing or changed files, and read new or changed files."""
        files = dict(self._files())
        for path in [path for path, known in self._known.items() if files.get(path) != known.state]:
            ids = self._known.pop(path).ids
            database.execute("DELETE FROM passages WHERE rowid BETWEEN ? AND ?", (ids.start, ids.stop - 1))
        for path in [path for path in files if path not in self._known]:
            first, name = self._next_id, path.relative_to(self._root).as_posix()
            for passage in _passages(path):
                row = (self._next_id, name, passage)
                database.execute("INSERT INTO passages(rowid, name, text) VALUES (?, ?, ?)", row)
                self._next_id += 1
            self._known[path] = _Indexed(files[path], range(first, self._next_id))
        database.commit()

    def _files(self) -> Iterator[tuple[Path, tuple[int, ...]]]:
        """Yield the files to search in, each with a state that differs after any change."""
        number = size = 0
        for path in sorted(self._root.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(self._root).parts)
            odd = not str(path).isprintable()  # such as a name that is no UTF-8
            if odd or hidden or path.suffix not in self._suffixes or not path.is_file():
                continue
            try:
                found = path.stat()
            except FileNotFoundError:  # deleted meanwhile
                continue
            if not path.resolve().is_relative_to(self._root) or found.st_size > _LARGEST_FILE:
                continue
            number, size = number + 1, size + found.st_size
            if number > _MOST_FILES or size > _MOST_BYTES:
                return
            yield path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _passages(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    passage = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if passage and len(passage) + len(paragraph) > _PASSAGE:
            yield passage
            passage = ""
        passage = f"{passage}\n\n{paragraph}".strip()
        cut = max(0, (len(passage) - _PASSAGE - 1) // _PASSAGE) * _PASSAGE
        yield from (passage[at : at + _PASSAGE] for at in range(0, cut, _PASSAGE))
        passage = passage[cut:]
    if passage:
        yield passage

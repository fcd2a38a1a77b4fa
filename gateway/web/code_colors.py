"""The colours of code in a bot's Markdown, as classes of the page's stylesheet."""

from __future__ import annotations

import time
from html import escape
from itertools import groupby
from typing import Any, Final

LANGUAGES: Final = frozenset({
    "bash", "c", "cpp", "csharp", "css", "diff", "docker", "go", "graphql", "html", "http", "java", "javascript",
    "json", "kotlin", "lua", "php", "powershell", "python", "r", "ruby", "rust", "sql", "swift", "terraform",
    "toml", "typescript", "xml", "yaml",
})  # fmt: skip
"""Languages whose lexers read no text of a piece's size slowly, as measured with `tests.nasty`."""
_ALSO: Final = {
    "c#": "csharp", "c++": "cpp", "cs": "csharp", "dockerfile": "docker", "golang": "go", "hcl": "terraform",
    "ini": "toml", "js": "javascript", "jsx": "javascript", "kt": "kotlin", "ps1": "powershell", "py": "python",
    "rb": "ruby", "rs": "rust", "sh": "bash", "shell": "bash", "tf": "terraform", "ts": "typescript", "yml": "yaml",
    "zsh": "bash",
}  # fmt: skip
"""Other names of these languages."""

_LONGEST: Final = 6_000
"""Characters of a piece of code. Longer code has no colours."""
_MOST_SECONDS: Final = 0.03
"""The time for all code of a text. Further code has no colours."""

_CLASSES: Final = (
    ("Comment", "c"),
    ("Keyword", "k"),
    ("Literal.Number", "m"),
    ("Literal.String", "s"),
    ("Name.Attribute", "a"),
    ("Name.Builtin", "b"),
    ("Name.Class", "f"),
    ("Name.Decorator", "f"),
    ("Name.Function", "f"),
    ("Name.Tag", "k"),
    ("Operator.Word", "k"),
    ("Generic.Deleted", "d"),
    ("Generic.Inserted", "i"),
)
"""Kinds of tokens, and their classes in the stylesheet."""


class Colors:
    """The colours of all code of one text."""

    def __init__(self) -> None:
        self._left = _MOST_SECONDS

    def html(self, code: str, language: str) -> str:
        """Return code as HTML, with classes if there is a lexer of the language, and time left."""
        name = _ALSO.get(language.lower(), language.lower())
        if name not in LANGUAGES or len(code) > _LONGEST or self._left <= 0:
            return escape(code)
        from pygments.lexers import get_lexer_by_name  # the table of lexers is read for the first code

        lexer: Any = get_lexer_by_name(name)
        began, place, pieces = time.thread_time(), 0, list[tuple[str, str]]()
        for place, kind, value in lexer.get_tokens_unprocessed(code):
            pieces.append((_class_of(kind), value))
            place += len(value)
            if time.thread_time() - began > self._left:
                break
        self._left -= time.thread_time() - began
        pieces.append(("", code[place:]))
        joined = [(name, "".join(value for _, value in group)) for name, group in groupby(pieces, lambda each: each[0])]
        return "".join(f'<span class="{name}">{escape(text)}</span>' if name else escape(text) for name, text in joined)


def _class_of(kind: Any) -> str:
    """Return the class of a token, or an empty text."""
    path = ".".join(kind)
    return next((name for prefix, name in _CLASSES if path == prefix or path.startswith(f"{prefix}.")), "")

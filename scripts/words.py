"""Evaluates the parser of replies with the corpus, and writes the files derived from the word files.

``python -m scripts.words`` writes compiled/, index.json and version.py of gateway/pending/words, and the table of
docs/confirmation-rules.md.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from babel import Locale

from gateway.pending import ReplyParser
from gateway.pending.folding import fold
from gateway.pending.words import INTENTS, Words, common, compiling, heads, languages, words_of
from gateway.pending.words.parsing import parsed

__all__ = [
    "COMPILED",
    "CORPUS",
    "INDEX",
    "PAGE",
    "VERSION",
    "Case",
    "Judgement",
    "cases",
    "compiled_names",
    "index_line",
    "judged",
    "made_index",
    "row",
    "version",
    "words_in",
    "written",
]

ROOT: Final = Path(__file__).parent.parent
CORPUS: Final = ROOT / "tests" / "pending" / "corpus"
WORDS: Final = ROOT / "gateway" / "pending" / "words"
INDEX: Final = WORDS / "index.json"
COMPILED: Final = WORDS / "compiled"
VERSION: Final = WORDS / "version.py"
PAGE: Final = ROOT / "docs" / "confirmation-rules.md"
HELD: Final = "held"
"""Folder of held-out replies, unseen by the authors of the word files."""
_BEGIN: Final = "<!-- words: written by `make words` -->\n"
_END: Final = "<!-- /words -->"
_OTHER: Final = {"pay": "send"}
"""Verb for testing a phrase of another verb. "pay" for every unlisted verb."""

Means = Literal["confirm", "cancel", "unclear", "no confirm"]


class Case(NamedTuple):
    """A reply to a question with a verb, and the expected reading."""

    text: str
    verb: str
    means: Means
    """"no confirm": a phrase with a verb, in reply to a question with another verb."""
    name: str | None = None
    """The name of the person in the signature of the reply."""


class Judgement(NamedTuple):
    """Results of the parser for a language."""

    replies: int
    plain: int
    """Number of confirmations and cancellations."""
    read: int
    """Number of correctly read confirmations and cancellations."""
    false: Sequence[tuple[Case, str]]
    """Wrong readings: replies read as a confirmation or a cancellation, but with another meaning."""

    @property
    def recall(self) -> float:
        """Return the fraction of correctly read confirmations and cancellations."""
        return self.read / self.plain


def cases(lang: str, folder: str = "") -> Iterator[Case]:
    """Yield the replies of a language's file, with each verb of the test."""
    source: dict[str, Any] = tomllib.loads((CORPUS / folder / f"{lang}.toml").read_text(encoding="utf-8"))
    plain: dict[str, Means] = {"yes": "confirm", "no": "cancel", "unclear": "unclear"}
    for key, means in plain.items():
        for text, name in map(_written, source[key]):
            yield from (Case(text, verb, means, name) for verb in ("delete", "pay"))
    for verb, said in source["verbs"].items():
        yield from (Case(text, verb, "unclear") for text in said.get("repeated", ()))
        for key in ("yes", "no"):
            for text, name in map(_written, said[key]):
                yield Case(text, verb, plain[key], name)
                yield Case(text, _OTHER.get(verb, "pay"), "no confirm", name)


def _written(row: str | dict[str, str]) -> tuple[str, str | None]:
    """Return the text of a line of the corpus, and the name of the line's writer."""
    return (row, None) if isinstance(row, str) else (row["text"], row["name"])


@cache
def judged(lang: str, folder: str = "") -> Judgement:
    """Return the parser's results for a language's file."""
    parser, replies, plain, read = ReplyParser(), set[str](), 0, 0
    false: list[tuple[Case, str]] = []
    for case in cases(lang, folder):
        replies.add(case.text)
        got = parser.classify(case.text, lang, verb=case.verb, name=case.name)
        plain += case.means in ("confirm", "cancel")
        read += got == case.means and got != "unclear"
        allowed = {"cancel", "unclear"} if case.means == "no confirm" else {case.means, "unclear"}
        if got not in allowed:
            false.append((case, got))
    return Judgement(len(replies), plain, read, false)


def row(lang: str) -> str:
    """Return the line of a language in the table of the documentation."""
    return _row(f"{Locale.parse(lang).english_name} (`{lang}`)", [judged(lang)], [judged(lang, HELD)])


def table() -> str:
    """Return the table for the documentation."""
    lines = [
        "| language | replies | false confirmations | false cancellations | recognised | of those held out |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *map(row, languages()),
        _row("**all**", *([judged(lang, folder) for lang in languages()] for folder in ("", HELD))),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, seen: list[Judgement], held: list[Judgement]) -> str:
    both = [*seen, *held]
    false = [got for each in both for _, got in each.false]
    recall, apart = (sum(each.read for each in some) / sum(each.plain for each in some) for some in (both, held))
    replies = sum(each.replies for each in both)
    return f"| {name} | {replies:,} | {false.count('confirm')} | {false.count('cancel')} | {recall:.3f} | {apart:.3f} |"


def written(page: str) -> str:
    """Return the page with the current table. Raises ValueError when the page has no place for the table."""
    before, found, rest = page.partition(_BEGIN)
    _, ended, after = rest.partition(_END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} has no {_BEGIN.strip()} ... {_END}")
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def version() -> str:
    """Return the required contents of version.py: the version of all word files."""
    names = sorted([*languages(), "common"])
    digest = hashlib.sha256(b"".join((WORDS / f"{name}.toml").read_bytes() for name in names)).hexdigest()[:8]
    said = "The version of all word files, which is stored with each action: written by `make words`."
    return f'"""{said}"""\n\nVERSION = "{digest}"\n'


def words_in(name: str) -> Words:
    """Return the words required in a file of compiled/, from the language's word file."""
    lang = name.removeprefix("-")
    source = tomllib.loads((WORDS / f"{lang if lang == name else 'en'}.toml").read_text(encoding="utf-8"))
    return parsed(source if lang == name else {"typed": source["typed"]}, lang, common())


def compiled_names() -> list[str]:
    """Return the names of the files of compiled/: the languages, "-" for languages without a word file, and "-lv" for a
    language without a word file, but with an exception."""
    excepted = common().exceptions.keys() - {*languages(), *common().same}
    return sorted([*languages(), "-", *(f"-{lang}" for lang in excepted)])


def index_line(lang: str) -> str:
    """Return the line of a language in index.json: the words to type, the plain yes and the plain no."""
    words = words_of(lang)
    typed = set(map(fold, words.typed))
    entry: dict[str, list[str]] = {"typed": list(words.typed), **{intent: [] for intent in INTENTS}}
    for text, pieces in sorted(words.pieces.items()):
        plain = {piece.intent for piece in pieces if piece.role in ("head", "comma head")}
        plain |= {piece.intent for piece in pieces if text in typed and piece.verb is None}
        if len(plain) == 1 and len(text) > 1 and not words.says_nothing(text):
            entry[plain.pop()].append(text)
    return f"{json.dumps(lang)}: {json.dumps(entry, ensure_ascii=False)}"


def made_index() -> str:
    """Return the required contents of index.json: a line for each language."""
    lines = ",\n".join(map(index_line, languages()))
    return f"{{\n{lines}\n}}\n"


if __name__ == "__main__":
    VERSION.write_text(version(), encoding="utf-8")
    for file in COMPILED.glob("*.json"):
        file.unlink()
    for name in compiled_names():
        (COMPILED / f"{name}.json").write_bytes(compiling.written(words_in(name)))
    INDEX.write_text(made_index(), encoding="utf-8")
    heads.cache_clear()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Evaluates the parser of replies with the corpus, and writes the files that are derived from the word files.

``python -m scripts.words`` writes gateway/pending/words/index.json and the table of docs/confirmation.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from babel import Locale

from gateway.pending import ReplyParser
from gateway.pending.words import heads, languages, made_index

__all__ = ["CORPUS", "INDEX", "PAGE", "Case", "Judgement", "cases", "judged", "table", "written"]

ROOT: Final = Path(__file__).parent.parent
CORPUS: Final = ROOT / "tests" / "pending" / "corpus"
INDEX: Final = ROOT / "gateway" / "pending" / "words" / "index.json"
PAGE: Final = ROOT / "docs" / "confirmation.md"
HELD: Final = "held"
"""Folder of held-out replies, which the authors of the word files have not seen."""
_BEGIN: Final = "<!-- words: written by `make words` -->\n"
_END: Final = "<!-- /words -->"
_OTHER: Final = {"pay": "send"}
"""Verb with which a phrase of another verb is tested. "pay" for every verb that is not listed."""

Means = Literal["confirm", "cancel", "unclear", "no confirm"]


class Case(NamedTuple):
    """A reply to a question with a verb, and its expected reading."""

    text: str
    verb: str
    means: Means
    """"no confirm": a phrase with a verb, in reply to a question with another verb."""


class Judgement(NamedTuple):
    """Results of the parser for one language."""

    replies: int
    plain: int
    """Number of confirmations and cancellations."""
    read: int
    """Number of them that were read correctly."""
    false: Sequence[tuple[Case, str]]
    """Wrong readings: replies that were read as a confirmation or a cancellation and mean another answer."""

    @property
    def recall(self) -> float:
        """Return the fraction of the confirmations and cancellations that was read correctly."""
        return self.read / self.plain


def cases(lang: str, folder: str = "") -> Iterator[Case]:
    """Yield the replies of one language's file, with each verb that they are tested with."""
    source: dict[str, Any] = tomllib.loads((CORPUS / folder / f"{lang}.toml").read_text(encoding="utf-8"))
    plain: dict[str, Means] = {"yes": "confirm", "no": "cancel", "unclear": "unclear"}
    for key, means in plain.items():
        yield from (Case(text, verb, means) for text in source[key] for verb in ("delete", "pay"))
    for verb, said in source["verbs"].items():
        for key in ("yes", "no"):
            for text in said[key]:
                yield Case(text, verb, plain[key])
                yield Case(text, _OTHER.get(verb, "pay"), "no confirm")


def judged(lang: str, folder: str = "") -> Judgement:
    """Return the parser's results for one language's file."""
    parser, replies, plain, read = ReplyParser(), set[str](), 0, 0
    false: list[tuple[Case, str]] = []
    for case in cases(lang, folder):
        replies.add(case.text)
        got = parser.classify(case.text, lang, verb=case.verb)
        plain += case.means in ("confirm", "cancel")
        read += got == case.means and got != "unclear"
        allowed = {"cancel", "unclear"} if case.means == "no confirm" else {case.means, "unclear"}
        if got not in allowed:
            false.append((case, got))
    return Judgement(len(replies), plain, read, false)


def table() -> str:
    """Return the table for the documentation."""
    lines = [
        "| language | replies | false confirmations | false cancellations | recognised | of those held out |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    total: list[tuple[Judgement, Judgement]] = []
    for lang in languages():
        seen, held = judged(lang), judged(lang, HELD)
        total.append((seen, held))
        lines.append(_row(f"{Locale.parse(lang).english_name} (`{lang}`)", [seen], [held]))
    lines.append(_row("**all**", *map(list, zip(*total, strict=True))))
    return "\n".join(lines) + "\n"


def _row(name: str, seen: list[Judgement], held: list[Judgement]) -> str:
    both = [*seen, *held]
    false = [got for each in both for _, got in each.false]
    recall, apart = (sum(each.read for each in some) / sum(each.plain for each in some) for some in (both, held))
    replies = sum(each.replies for each in both)
    return f"| {name} | {replies:,} | {false.count('confirm')} | {false.count('cancel')} | {recall:.3f} | {apart:.3f} |"


def written(page: str) -> str:
    """Return the page with the current table. Raises ValueError when the page has no place for one."""
    before, found, rest = page.partition(_BEGIN)
    _, ended, after = rest.partition(_END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} has no {_BEGIN.strip()} ... {_END}")
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


if __name__ == "__main__":
    INDEX.write_text(made_index(), encoding="utf-8")
    heads.cache_clear()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""An author's own sentences, checked against the sentences in whose place they stand.

The words to be answered, the code and the question itself are values in placeholders. A sentence has all placeholders
of the original, visible, and no other.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any, Final

from gateway.wording.sentences import FALLBACK, LANGUAGES, Sentence, Tone, Wording, headings, read

_QUESTION: Final = "the prompt"
"""The heading of the sentences in and around a question."""
_ALERT: Final = "what answers a press, or a yes or no that comes late"
"""The heading of sentences shown by a platform in a small window too, without Markdown."""
_LONGEST_ALERT: Final = 200
"""Characters: https://core.telegram.org/bots/api#answercallbackquery."""
_LONGEST_LABEL: Final = 40
"""Characters of a button. A longer label is cut, together with the code at the end."""
CONFIRMING: Final = ("button_confirm", "button_do", "button_confirm_code", "button_do_code", "button_confirm_all")
"""The buttons for yes."""
CANCELLING: Final = (
    "button_cancel",
    "button_do_not",
    "button_cancel_code",
    "button_do_not_code",
    "button_cancel_all",
)
"""The buttons for no."""
_MEANINGS: Final = (CONFIRMING, CANCELLING, ("button_change",), ("button_again",))
"""The buttons by their meaning. A person must tell two meanings apart."""
_ANSWERS: Final = ("yes_word", "no_word")
_BLANK: Final = frozenset("\u115f\u1160\u2028\u2029\u2800\u3164\uffa0")
_PARTS: Final = ("deciders", "you", "standing_same", "standing_most", "standing_free", "standing_shown")
"""Sentences within other sentences."""
_JOINERS: Final = "\u200c\u200d"

PLACE: Final = re.compile(r"\{(\w+)\}")
"""A placeholder, with the name as its group."""
"""A placeholder, with the name as its group."""
_UNPAIRED: Final = re.compile(r"\*\*|~~|`|(?<!\w)[*_](?=\w)|(?<=\w)\*(?!\w)")
"""Marks without a partner, left over in the shown text."""
_ESCAPED: Final = re.compile(r"\\([*_`~])")
_TYPED: Final = re.compile(r"""\b([A-Z]{2,})\b|[*_`"'“”„«»‘’‹›]([A-Za-z]+)[*_`"'“”„«»‘’‹›]""")
"""A word for people to write: in capitals, or alone in emphasis, code or quotation marks."""


def worded(tone: Tone | None, given: Mapping[str, Any] | str | Path | None) -> tuple[Wording, Mapping[str, str]]:
    """Return the wording of a bot, and the issue of each wrong sentence by name, like ``wording.de.greeting``.

    `given`: language -> name -> sentence, or a TOML file with a table for each language. With issues, the wording has
    no sentence of the author.
    """
    if isinstance(given, (str, Path)):
        try:
            given = tomllib.loads(Path(given).read_text(encoding="utf-8"))
        except OSError as error:
            return Wording(tone), {"wording": f"cannot be read from {str(given)!r}: {error.strerror}"}
        except ValueError as error:  # neither TOML nor UTF-8
            return Wording(tone), {"wording": f"{str(given)!r} is no TOML file: {error}"}
    issues: dict[str, list[str]] = {}
    for language, own in (given or {}).items():
        for where, issue in _issues_of(str(language), own):
            issues.setdefault(where, []).append(issue)
    if issues or given is None:
        return Wording(tone), {where: ", and ".join(each) for where, each in issues.items()}
    wording = Wording(tone, {language: _copied(own) for language, own in given.items()})
    alike = dict(_alike(wording))
    return (Wording(tone), alike) if alike else (wording, {})


def _copied(own: Mapping[str, Sentence]) -> dict[str, Sentence]:
    return {name: each if isinstance(each, str) else dict(each) for name, each in own.items()}


def _alike(wording: Wording) -> Iterator[tuple[str, str]]:
    """Yield an issue for each button with the label of a button of another meaning."""
    for language, own in wording.own.items():
        said = wording.spoken(language).sentences
        meanings = {name: number for number, names in enumerate(_MEANINGS) for name in names}
        for name, other in product(meanings, repeat=2):
            if name not in own or meanings[name] == meanings[other] or (other in own and other < name):
                continue
            if _folded(said[name]) == _folded(said[other]):
                yield f"wording.{language}.{name}", f"is the label of {other} too"


def _folded(label: str) -> str:
    """Return a label without the differences that a person does not see."""
    shown = unicodedata.normalize("NFKC", label).casefold()
    return "".join(char for char in shown if unicodedata.category(char)[0] not in "CZ")


def typed_words(wording: Wording) -> Iterator[tuple[str, str]]:
    """Yield the words for people to write in the author's own sentences around a question, with the sentence's name.

    Placeholders and labels of buttons are left out.
    """
    for language, own in wording.own.items():
        for name, sentence in own.items():
            if headings()[name] == _QUESTION and not name.startswith("button_"):
                text = sentence if isinstance(sentence, str) else "\n".join(sentence.values())
                words = [bare or marked for bare, marked in _TYPED.findall(PLACE.sub("", text))]
                yield from ((f"wording.{language}.{name}", word) for word in dict.fromkeys(words))


# ── the checks of a sentence ──


def _issues_of(language: str, own: object) -> Iterator[tuple[str, str]]:
    """Yield the issues of a language, each with a name."""
    where = f"wording.{language}"
    if language not in LANGUAGES:
        primary = re.split("[-_]", language)[0].lower()
        near = primary if primary in LANGUAGES else _near(language, LANGUAGES)
        yield where, f"is no language: {f'did you mean {near}?' if near else f'there are {_listed(LANGUAGES)}'}"
    elif not isinstance(own, Mapping):
        yield where, f"should be a table of sentences, not {_kind(own)}"
    else:
        for name, sentence in own.items():
            for form, issue in _issues(language, str(name), sentence):
                yield f"{where}.{name}{form}", issue


def _issues(language: str, name: str, sentence: object) -> Iterator[tuple[str, str]]:
    """Yield the issues of a sentence, each with the form: ``.one``, or nothing for a sentence without forms."""
    original = read(FALLBACK)
    if name not in original.sentences:
        near = _near(name, original.sentences)
        yield "", f"is no sentence: {f'did you mean {near}?' if near else 'docs/wording.md lists them'}"
    elif isinstance(sentence, str):
        yield from (("", issue) for issue in _issues_of_text(name, sentence))
    elif not isinstance(sentence, Mapping) or name not in original.forms:
        yield "", f"should be a text, not {_kind(sentence)}"
    else:
        known = read(language).forms[name]
        if "other" not in sentence:
            yield "", "needs the form other"
        for form, text in sentence.items():
            if form not in known:
                yield f".{form}", f"is no form of a number in this language: there are {_listed(known)}"
            elif not isinstance(text, str):
                yield f".{form}", f"should be a text, not {_kind(text)}"
            else:
                yield from ((f".{form}", issue) for issue in _issues_of_text(name, text))


def _issues_of_text(name: str, text: str) -> Iterator[str]:
    wanted = dict.fromkeys(PLACE.findall(read(FALLBACK).sentences[name]))
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError:
        yield "has a { or } without a partner: write {{ or }} to show a brace"
        return
    found = dict.fromkeys(str(field[1]) for field in fields)
    unknown, lacking = [each for each in found if each not in wanted], [each for each in wanted if each not in found]
    for each in unknown:
        near = _near(each, wanted)
        mend = f"did you mean {_places([near])}?" if near else f"the sentence has {_places(wanted) or 'none'}"
        yield f"has the unknown placeholder {_places([each])}: {mend}"
    if lacking:
        yield f"lacks {_places(lacking)}"
    if [each for each in found if each in _ANSWERS] != [each for each in wanted if each in _ANSWERS] and not lacking:
        yield "has {yes_word} and {no_word} in another order than the original, where the first one confirms"
    if any(spec or conversion for _, _, spec, conversion in fields):
        yield "has a placeholder with ! or :, and a placeholder is a name alone"
    if not unknown and not lacking:
        yield from _issues_of_form(name, text)


def _issues_of_form(name: str, text: str) -> Iterator[str]:
    """Yield the issues of the letters, lines and Markdown of a sentence with the right placeholders."""
    if not text.strip():
        yield "is empty"
    hidden = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in f"\n{_JOINERS}"}
    hidden |= _BLANK.intersection(text)
    if hidden:
        yield f"has the invisible {_listed(f'U+{ord(char):04X}' for char in sorted(hidden))}"
    plain = headings()[name] == _ALERT or name.startswith(("button_", "cmd_", "page_"))
    is_question = headings()[name] == _QUESTION
    if "\n" in text and (plain or name in _PARTS or is_question):
        yield "should be a single line"
    if is_question and "~~" in text:
        yield "strikes words through, which a person reads as taken back"
    longest = _LONGEST_LABEL if name.startswith("button_") else _LONGEST_ALERT if plain else len(text)
    if len(text) > longest:
        yield f"should have at most {longest} characters, not {len(text)}"
    yield from _issues_of_markdown(text, plain=plain)


def _issues_of_markdown(text: str, *, plain: bool) -> Iterator[str]:
    from channels.formatting import Styled, read_markdown  # loaded only for sentences of an author

    # A placeholder is read as a word, because a mark of emphasis beside a brace counts for other styles.
    words = PLACE.sub(lambda place: _stand_in(place[1]), text).replace("{{", "{").replace("}}", "}")
    styled = read_markdown(words)
    if plain:
        if styled != Styled(words):
            yield "is shown without Markdown: leave the marks out"
        return
    if left := _UNPAIRED.search(read_markdown(_ESCAPED.sub("", words)).text):
        yield f"has the mark {left[0]} without a partner"
    coded = "".join(styled.text[span.start : span.end] for span in styled.spans if span.kind in ("code", "pre", "link"))
    for place in dict.fromkeys(PLACE.findall(text)):
        word = _stand_in(place)
        if word in coded or word not in styled.text:
            yield f"has {_places([place])} in code or in a link, where a value is not shown as given"


def _stand_in(place: str) -> str:
    return f"Q{place.replace('_', '')}Q"


# ── words of the errors ──


def _places(names: Collection[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def _near(name: str, known: Collection[str]) -> str | None:
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _kind(value: object) -> str:
    return "a table" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"

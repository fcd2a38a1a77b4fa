"""The grammar of an answer: all pieces of a message have the same meaning, or the message is no answer.

    answer = polite* piece (join piece)* polite*

A piece is a text of the language's words (`words.Piece`), a join is a space, a comma or a full stop. The whole message
must be used up. So a question, a condition, another object or an unknown word needs no rule of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.pending.words import UNKNOWN_VERB, Form, Intent, Piece, Words

_MOST_WORDS = 12
"""The most words of an answer with its politeness. In a language without spaces three characters count as a word."""
_PER_WORD = 3
_APART = (",", ".")
_HEADS = {"confirm": 2, "cancel": 4}
"""The most yeses or noes of an answer: "yes yes" is a yes; more of them are impatience or a joke."""
_ENDS = frozenset({"cancel", "close", "drop", "leave", "reject", "skip", "stop"})
"""Verbs of prompts for ending a thing."""
_BLANK = "_"
_TOKEN = re.compile(r"\s*([^\s,.!—–]+)((?:\s*[,.!—–]|\s-(?=\s))*)\s*")
_DASHES = ("—", "–", "-")
_MARKS = re.compile(r"\s*[,.!—–]+\s*|\s-\s")
_LONGEST_POLITE = 6
"""The most words of politeness; in a language without spaces, the most characters."""
_LONG = re.compile(r"([^\s\d.,!—–-])\1{2,}")
_LONG_END = re.compile(r"([^\W\d_])\1+(?=\W|$)")
_DOUBLE = re.compile(r"([^\W\d_])\1+")
_LONG_SIGNS = re.compile(r"([\u0900-\u0dff\uac00-\ud7af])\1+(?=\W|$)|(?<=[\u3040-\u30ff\u4e00-\u9fff])[ー〜~]+")
"""The lengthening signs of a word in a script with vowel signs, or of a Japanese word."""
_REPEATED = re.compile(r"(?<!\S)(\S{2,}?)(?:,? \1){1,3}(?![^\s,.!])")
"""A word written two to four times."""


class Reading(NamedTuple):
    """A possible reading of a whole message."""

    intent: Intent
    verb: str | None
    """The verb of the message, required to be the prompt's verb; None: no verb."""
    headed: bool
    """True if the message holds a plain yes or no beside its verb."""
    no_verbs: frozenset[str]
    """The prompt verbs not answered by the message; with `UNKNOWN_VERB`, also no prompt with an unknown verb."""


class _State(NamedTuple):
    at: int
    last: Piece | None
    join: str
    """The join between the last piece and the next: empty, a space, a comma, a full stop."""
    heads: int
    verb: str | None
    no_verbs: frozenset[str]
    polite: bool
    """True if politeness stands right before the first piece, without a comma."""
    said: bool
    """True if a piece is more than a repeat of the verb."""
    first: int
    """The index of the first word of the first piece; `end`: the index behind the last word of the last piece."""
    end: int


def readings(text: str, words: Words) -> frozenset[Reading]:
    """Return every reading of a folded text in a language, as spelt, else without lengthened letters."""
    for spelling in _spellings(text, words):
        found = frozenset(_readings(spelling, words))
        if any(reading.intent == "confirm" for reading in found) and (
            _is_hollow(text, words) or _is_hollow(spelling, words)
        ):
            return frozenset(reading for reading in found if reading.intent == "cancel")
        if found or _says_neither(spelling, words):
            return found
    return frozenset()


def _spellings(text: str, words: Words) -> Iterator[str]:
    """Yield a text as spelt, then with fewer repeated letters, signs and words."""
    yield text
    tried = {text}
    once = _REPEATED.sub(lambda found: found[1] if _is_head(found[1], words) else found[0], text)
    for base in (text, once):
        for spelling in (
            base,
            _LONG.sub(r"\1\1", base),
            _LONG.sub(r"\1", base),
            _LONG_END.sub(r"\1", _LONG.sub(r"\1", base)),
            _DOUBLE.sub(r"\1", base),
            _LONG_SIGNS.sub("", base),
        ):
            if spelling not in tried:
                tried.add(spelling)
                yield spelling


def _is_head(word: str, words: Words) -> bool:
    """Return True for a plain yes or no: only these may be repeated, "not" may not."""
    return any("head" in piece.role for piece in words.pieces.get(word, ()))


def _is_unclear(text: str, words: Words) -> bool:
    """Return True for a text that is no answer, although made of pieces of answers."""
    space = " " if words.spaced else ""
    tokens = [word for word, _ in _TOKEN.findall(text)]
    return space.join(tokens) in words.unclear or space.join(text.split()) in words.unclear_joined


def _readings(text: str, words: Words) -> Iterator[Reading]:
    message = _cut(text, words)
    if message is None or _says_neither(text, words):
        return
    doubtful = words.hesitates(text)
    todo = [_State(0, None, "", 0, None, frozenset(), polite=False, said=False, first=0, end=0)]
    seen, ends = set(todo), list[_State]()
    while todo:
        state = todo.pop()
        if state.at == len(message.tokens):
            if state.last is not None and (state.said or state.last.intent == "confirm"):
                ends.append(state)
            continue
        for after in _steps(state, message, words):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    whole = message.text.strip(" ,") in words.pieces
    for state in ends:
        confirms = state.last is not None and state.last.intent == "confirm"
        if confirms and (doubtful or not state.said or (not whole and _is_politer(state, ends))):
            continue
        if state.last is not None and not _says_nothing(message, state, words):
            no_verbs = state.no_verbs | _doubtful(message, state, words)
            yield Reading(state.last.intent, state.verb, state.heads > 0, no_verbs)


def _doubtful(message: _CutMessage, state: _State, words: Words) -> frozenset[str]:
    """Return the prompt verbs for which a text may mean the opposite: "continue", and "I don't want it"."""
    if state.last is None or state.last.intent == "cancel":
        return _ENDS if state.verb is None and words.says_to_want(message.text) else frozenset()
    text = message.text
    for start, end, form in message.verbs:  # Japanese "leave it" has a word of "as before"
        if form.verb == state.verb:
            text = text[:start] + _BLANK * (end - start) + text[end:]
    return _ENDS | {UNKNOWN_VERB} if words.says_to_go_on(text) else frozenset()


def _is_politer(state: _State, ends: Sequence[_State]) -> bool:
    """Return True if the yes of a text may be a part of the politeness: Malay "delete it, thanks ya"."""
    return any(
        not other.said and (other.first, other.end) != (state.first, state.end)
        for other in ends
        if state.first <= other.first and other.end <= state.end
    )


def _says_neither(text: str, words: Words) -> bool:
    """Return True for a text that is no answer, also behind yeses or noes: "no, no problem", "yes, yeah right"."""
    if text in words.pieces or _is_unclear(text, words):
        return _is_unclear(text, words)
    for match in _TOKEN.finditer(text):
        if not _is_head(match[1], words):
            return False
        tail = text[match.start() :].strip()
        if match.start() and tail != match[1] and _is_unclear(tail, words):
            return True
    return False


def _is_hollow(text: str, words: Words) -> bool:
    """Return True for a text without a yes beside acknowledgements, politeness and idioms: "yeah right, ok"."""
    space = " " if words.spaced else ""
    if (text if words.spaced else text.replace(" ", "")) in words.pieces:
        return False
    if words.near.make(space.join(_MARKS.sub(space, text).split())):
        return True
    parts = [part for part in map(str.strip, _MARKS.split(text)) if part]
    kept, at = list[str](), 0
    while at < len(parts):
        idioms = (end for end in range(len(parts), at, -1) if _is_idiom(parts[at:end], words))
        end = next(idioms, at)
        if end == at:
            kept.append(parts[at])
        at = max(end, at + 1)
    rest = f",{space}".join(kept)
    return len(kept) < len(parts) and not any(reading.intent == "confirm" for reading in _readings(rest, words))


def _is_idiom(parts: Sequence[str], words: Words) -> bool:
    """Return True for words that are no answer together, although a part may be an answer: "ja ja, thanks"."""
    return any(
        (said in words.unclear or (len(parts) == 1 and said in words.unclear_joined))
        and said not in words.pieces
        and not words.near.make(said)
        for said in _cores(("" if not words.spaced else " ").join(parts), words)
    )


def _cores(text: str, words: Words) -> Iterator[str]:
    """Yield a text unchanged, and without the politeness at the beginning and the end."""
    space = " " if words.spaced else ""
    todo, seen = [text.split() if words.spaced else list(text.replace(" ", ""))], set[str]()
    while todo:
        units = todo.pop()
        if (core := space.join(units)) in seen:
            continue
        seen.add(core)
        yield core
        for count in range(1, min(_LONGEST_POLITE, len(units) - 1) + 1):
            if space.join(units[:count]) in words.polite:
                todo.append(units[count:])
            if space.join(units[-count:]) in words.polite:
                todo.append(units[:-count])


def _says_nothing(message: _CutMessage, state: _State, words: Words) -> bool:
    """Return True for a text that is no answer without the politeness: "exactly, thanks"."""
    tokens = message.tokens[state.first : state.end]
    return len(tokens) < len(message.tokens) and _is_unclear(message.text[tokens[0].start : tokens[-1].end], words)


class _Token(NamedTuple):
    start: int
    end: int
    join: str
    """The following join: a space, a comma, a full stop; empty between characters of a language without spaces."""


class _CutMessage(NamedTuple):
    text: str
    """The text with a space, or a comma and a space, between the words."""
    tokens: list[_Token]
    verbs: list[tuple[int, int, Form]]
    """The begin and the end of each verb form in the text."""


def _cut(text: str, words: Words) -> _CutMessage | None:
    """Return a text cut into words; None if too long for an answer, or with marks that join no words."""
    tokens, parts, at, length = list[_Token](), list[str](), 0, 0
    for match in _TOKEN.finditer(text):
        if match.start() != at or len(tokens) > _MOST_WORDS * _PER_WORD:
            return None
        at = match.end()
        word, marks = match[1], "".join(match[2].split())
        if ".." in marks or (at == len(text) and marks):
            return None
        join = " " if not marks else "," if set(marks) <= {",", *_DASHES} else "."
        if words.spaced:
            tokens.append(_Token(length, length + len(word), join))
            parts.append(word + (", " if join == "," else " "))
        else:
            tokens += [_Token(length + place, length + place + 1, "") for place in range(len(word))]
            tokens[-1] = tokens[-1]._replace(join="" if join == " " else join)
            parts.append(word + ("," if join == "," else ""))
        length += len(parts[-1])
    if at != len(text) or len(tokens) > _MOST_WORDS * (1 if words.spaced else _PER_WORD):
        return None
    joined = "".join(parts)
    if words.spaced and tokens and not _begins(joined[: tokens[0].end], words):  # true for most messages
        return None
    return _CutMessage(joined, tokens, list(_verbs_in(joined, tokens, words)))


def _begins(word: str, words: Words) -> bool:
    """Return True for a word at which an answer may begin."""
    if word in words.first or words.prefixed:
        return True
    return any(word[:end] in words.first_of_forms for end in range(1, len(word) + 1))


def _verbs_in(text: str, tokens: list[_Token], words: Words) -> Iterator[tuple[int, int, Form]]:
    starts = range(len(text)) if words.prefixed else (token.start for token in tokens)
    for start in starts:
        for end in range(start + 1, min(start + words.longest_form, len(text)) + 1):
            for form in words.forms.get(text[start:end], ()):
                yield start, end, form


def _steps(state: _State, message: _CutMessage, words: Words) -> Iterator[_State]:
    first = message.tokens[state.at].start
    for end in range(state.at + 1, len(message.tokens) + 1):
        _, last, join = message.tokens[end - 1]
        text = message.text[first:last]
        confirms = state.last is not None and state.last.intent == "confirm"
        if text in words.polite and not (confirms and text in words.polite_no):
            before = state.polite if state.last else join not in _APART
            yield state._replace(at=end, join=_wider(state.join, join) if state.last else "", polite=before)
        for piece in (*words.pieces.get(text, ()), *_with_verb(message, first, last, words)):
            if _fits(state, piece):
                yield _State(
                    at=end,
                    last=piece,
                    join=join,
                    heads=state.heads + (piece.role in ("head", "comma head")),
                    verb=state.verb or piece.verb,
                    no_verbs=state.no_verbs | piece.no_verbs,
                    polite=state.polite,
                    said=state.said or _says_more(piece, state.last),
                    first=state.at if state.last is None else state.first,
                    end=end,
                )
        if join == ".":
            return


def _says_more(piece: Piece, last: Piece | None) -> bool:
    """Return True unless a piece only acknowledges or only repeats the verb. Both together are an answer."""
    if piece.acknowledges or piece.role == "after":
        return False
    return not piece.repeats or (last is not None and last.acknowledges)


def _with_verb(message: _CutMessage, first: int, last: int, words: Words) -> Iterator[Piece]:
    """Yield the pieces of a part of the message, with a verb replaced by the name of its form."""
    for start, end, form in message.verbs:
        if first <= start and end <= last:
            text = f"{message.text[first:start]}{{{form.name}}}{message.text[end:last]}"
            for intent in words.slots.get(text, ()):
                yield Piece("then", intent, form.verb, repeats=intent == "confirm" and text in words.repeats)


def _wider(one: str, other: str) -> str:
    return max(one, other, key=["", " ", ",", "."].index)


def _fits(state: _State, piece: Piece) -> bool:
    """Return True for a piece that may follow at this state of the message."""
    last = state.last
    if last is None:  # "please confirm" asks the bot to confirm
        return piece.role != "after" and (piece.intent == "cancel" or not state.polite or "head" in piece.role)
    if piece.intent != last.intent or (state.verb and piece.verb and piece.verb != state.verb):
        return False
    if state.join == "." and piece.intent == "confirm":
        return False
    # "No don't" + "stop" is no refusal: without a comma, a no that is not plain may negate the words after it.
    if piece.intent == "cancel" and last.role not in ("head", "after") and state.join not in _APART:
        return False
    if "head" in piece.role:
        return state.heads < _HEADS[piece.intent]
    apart = state.join in _APART
    if piece.role in ("after", "ack"):
        return state.heads > 0 and (apart or last.role != "comma head")
    return apart or (piece.role == "then" and last.role in ("head", "ack", "after"))

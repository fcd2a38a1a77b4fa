"""A server's words about a refused request, without the words of the request.

Servers quote the request in a refusal, and vLLM quotes the whole body. The quotes contain a person's words.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from unicodedata import normalize

from gateway.providers.base import Request

_QUOTED: Final = re.compile(r"(?P<quote>[\"'`])(?P<text>(?:(?!(?P=quote)).)*)(?P=quote)", re.DOTALL)
_OF_THE_REQUEST: Final = re.compile(r"['\"](input|messages|content|body)['\"]\s*:.*", re.DOTALL)
_READ: Final = ("error", "message", "msg", "detail", "details", "errors", "metadata", "raw", "type", "code", "reason")
_SAYS: Final = ("message", "msg", "detail", "raw", "reason", "error")
_MOST_CHARACTERS: Final = 20_000
_MOST_SAID: Final = 240
_MOST_READ: Final = 600
_MOST_TEXTS: Final = 20
_MOST_WORDS: Final = 5_000
"""Bounds of the work, since a server decides on the size of the answer."""
_KEY: Final = re.compile(r"\b(sk|pk|key|gsk)[-_][\w*.-]{6,}|\bBearer \S+|\b(?=[\w-]*\d)[\w-]{20,}\b")
_WORD: Final = re.compile(r"\w+")
_ESCAPED: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")
_OF_AN_API: Final = frozenset(
    re.findall(
        r"\w+",
        """
    a about after allow allowed an and api are argument arguments array as assistant at auto available be before
    between boolean bytes call called can cannot choice code content context could different do does either empty
    end ends enum error exactly exceed exceeds expected extra failed field fields first following for format forbidden
    found from function given got has have id ids in input inputs instead integer invalid is it items json key last
    least length less like list longer match maximum max message messages minimum min missing model models more most
    must name no non none not null number object of on one only or order other out output parallel parameter
    parameters parse permitted please property provided reason reasoning refused request required response result
    results role roles schema server should size stream strict string such support supported supports system
    temperature than that the then this to token tokens too tool tools type types unexpected unknown unrecognized
    unsupported use used user valid value values was when which with without you your
    max_completion_tokens max_tokens parallel_tool_calls response_format stream_options tool_call tool_call_id
    tool_calls tool_choice
    """,
    )
)
"""The words of refusals, free of a person's text."""


def words_of(body: object, request: Request | None) -> str:
    """Return the words of a refusal for operators: at most 240 characters, without the words of the request.

    A word of the conversation becomes ``…``, unless common in refusals. So do keys. `body` is the server's answer.
    """
    if isinstance(body, str) and "<" in body:
        return ""  # a page
    texts = (text.strip(" ./")[:_MOST_READ] for text in islice(texts_in(body, _SAYS), _MOST_TEXTS))
    said = " / ".join(dict.fromkeys(text for text in texts if " " in text))[:_MOST_READ]
    said = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), normalize("NFC", said)).replace('"', "'")
    said = _KEY.sub("…", "".join(char if char.isprintable() else " " for char in said))
    if request is not None:
        heard = _Heard(request)
        said = _WORD.sub(lambda found: "…" if heard.has(found[0].casefold()) else found[0], said)
    said = re.sub(r"…(?:\W*…)+", "…", " ".join(said.split()))
    return said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"


class _Heard:
    """The words of a request, apart from the tools."""

    def __init__(self, request: Request) -> None:
        said = [request.system]
        for message in request.messages:
            calls = [json.dumps(dict(call.args), ensure_ascii=False) for call in message.tool_calls]
            echo = json.dumps(dict(message.echo), ensure_ascii=False) if message.echo else ""
            said += [message.content, message.speaker or "", echo, *calls, *(file.filename for file in message.files)]
        self._text = normalize("NFC", "\n".join(said)).casefold()
        self._digits = re.sub(r"\D+", "", self._text)
        words = dict.fromkeys(word for word in re.findall(r"\w{4,}", self._text) if word not in _OF_AN_API)
        self._words = [*words][-_MOST_WORDS:]

    def has(self, word: str) -> bool:
        """Return True for a word of the conversation, also in another spelling or joined with others."""
        if word in _OF_AN_API or (len(word) == 1 and word.isascii() and word.isalpha()):
            return False
        digits = re.sub(r"\D+", "", word)
        if word in self._text or (digits and digits in self._digits):
            return True
        if not word.isascii():  # some scripts have no blanks between words
            return any(word[at : at + 2] in self._text for at in range(len(word) - 1))
        return len(word) > 7 and any(each in word for each in self._words)


def texts_in(value: object, keys: Sequence[str] = _READ) -> Iterator[str]:
    """Yield the words of an error, without quotes of the request."""
    for part in _parts(value):
        for key in keys:
            if isinstance(text := part.get(key), str) and _decoded(text) is None:
                yield _without_quotes(text)
    if isinstance(value, str) and _decoded(value) is None:
        yield _without_quotes(value)


def fields_in(value: object) -> Iterator[str]:
    """Yield the places of the fields in an error, for example ``body.temperature``."""
    for part in _parts(value):
        if isinstance(param := part.get("param"), str) and param:
            yield param
        if isinstance(loc := part.get("loc"), list | tuple) and loc:
            yield ".".join(map(str, loc))


def _parts(value: object) -> Iterator[Mapping[Any, Any]]:
    """Yield the objects of an error, also objects written into texts."""
    if isinstance(value, str):
        value = _decoded(value)
    if isinstance(value, Mapping):
        yield value
        for key in _READ:
            yield from _parts(value.get(key))
    elif isinstance(value, list | tuple):
        for item in value[:100]:
            yield from _parts(item)


def _decoded(text: str) -> object:
    """Return the object written in a text as JSON or, as vLLM does, as Python; None for other texts."""
    if not text.strip().startswith(("{", "[")) or len(text) > _MOST_CHARACTERS:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found: object = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found
    return None


def _without_quotes(text: str) -> str:
    cut = _OF_THE_REQUEST.sub("", text[:_MOST_CHARACTERS])
    return _QUOTED.sub(lambda found: found["text"] if re.fullmatch(r"[\w.\[\]]{1,60}", found["text"]) else " ", cut)

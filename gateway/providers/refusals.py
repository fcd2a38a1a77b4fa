"""A server's words about a request that it refused, without those of the request.

Servers quote the request in a refusal, and vLLM quotes the whole body. A person's words are in it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.providers.base import Request

_QUOTED: Final = re.compile(r"(?P<quote>[\"'`])(?P<text>(?:(?!(?P=quote)).)*)(?P=quote)", re.DOTALL)
_OF_THE_REQUEST: Final = re.compile(r"['\"](input|messages|content|body)['\"]\s*:.*", re.DOTALL)
_READ: Final = ("error", "message", "msg", "detail", "details", "errors", "metadata", "raw", "type", "code", "reason")
_SAYS: Final = ("message", "msg", "detail", "raw", "reason", "error")
_MOST_CHARACTERS: Final = 20_000
_MOST_SAID: Final = 240
_KEY: Final = re.compile(r"\b(sk|pk|key|gsk)[-_][\w*.-]{6,}|\bBearer \S+|\b(?=[\w-]*\d)[\w-]{20,}\b")
_WORD: Final = re.compile(r"\w{2,}")
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
"""The words of refusals. They tell no text of a person, even where one used them."""


def words_of(body: object, request: Request | None) -> str:
    """Return the words of a refusal for operators: at most 240 characters, without the words of the request.

    A word that stands in the conversation becomes ``…``, unless it is one that refusals are made of. So do keys.
    `body` is the server's answer.
    """
    if isinstance(body, str) and "<" in body:
        return ""  # a page
    said = " / ".join(dict.fromkeys(text.strip(" ./") for text in texts_in(body, _SAYS) if " " in text.strip()))
    said = _KEY.sub("…", " ".join(said.split()))
    if request is not None:
        heard = _heard(request)
        said = _WORD.sub(lambda found: "…" if _is_heard(found[0].casefold(), heard) else found[0], said)
    said = re.sub(r"…(?:\W*…)+", "…", "".join(char if char.isprintable() else " " for char in said))
    return said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"


def _is_heard(word: str, heard: str) -> bool:
    """Return True for a word of the conversation. Some scripts have no blanks between words."""
    if word in _OF_AN_API:
        return False
    return word in heard or (not word.isascii() and any(word[at : at + 2] in heard for at in range(len(word) - 1)))


def _heard(request: Request) -> str:
    """Return all that a request says, apart from the tools."""
    said = [request.system]
    for message in request.messages:
        said += [
            message.content,
            message.speaker or "",
            *(json.dumps(dict(call.args), ensure_ascii=False) for call in message.tool_calls),
        ]
    return "\n".join(said).casefold()


def texts_in(value: object, keys: Sequence[str] = _READ) -> Iterator[str]:
    """Yield the words of an error, without quotes of the request."""
    for part in _parts(value):
        for key in keys:
            if isinstance(text := part.get(key), str) and _decoded(text) is None:
                yield _without_quotes(text)
    if isinstance(value, str) and _decoded(value) is None:
        yield _without_quotes(value)


def fields_in(value: object) -> Iterator[str]:
    """Yield the names of the fields that an error is about."""
    for part in _parts(value):
        if isinstance(param := part.get("param"), str):
            yield from re.findall(r"\w+", param)
        loc = part.get("loc")
        yield from map(str, loc if isinstance(loc, list | tuple) else ())


def _parts(value: object) -> Iterator[Mapping[Any, Any]]:
    """Yield the objects of an error, also those that are written into its texts."""
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
    """Return the object that is written in a text as JSON or, as vLLM does, as Python; None for other texts."""
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

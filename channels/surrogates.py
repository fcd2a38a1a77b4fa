"""JSON with half a character in it: an emoji is two units of UTF-16, and who cuts a text there leaves one of them."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

__all__ = ["validated"]

T = TypeVar("T")


def validated(shape: TypeAdapter[T], body: bytes) -> T:
    """What a body says, read strictly; for half a character it has "?". Raises ValidationError."""
    try:
        return shape.validate_json(body, strict=True)
    except ValidationError:
        return shape.validate_json(_without_halves(body), strict=True)


def _without_halves(body: bytes) -> bytes:
    """The same JSON with "?" for half a character, which UTF-8 cannot hold; what is no JSON stays as it is.

    A reader that refuses such bodies would refuse the whole message, wherever in it the half is.
    """
    if b"\\u" not in body:
        return body
    try:
        return json.dumps(json.loads(body.decode()), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return body

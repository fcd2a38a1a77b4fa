"""JSON bodies with lone surrogates.

An emoji is two units of UTF-16. A platform that cuts a text between them sends one of the two, which UTF-8 cannot hold.
"""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def validated(shape: TypeAdapter[T], body: bytes) -> T:
    """Validate a JSON body strictly. A lone surrogate becomes "?". Raises ValidationError."""
    try:
        return shape.validate_json(body, strict=True)
    except ValidationError:
        return shape.validate_json(_without_surrogates(body), strict=True)


def _without_surrogates(body: bytes) -> bytes:
    """Return the same JSON with "?" for each lone surrogate. A body that is not JSON is returned unchanged.

    Otherwise one lone surrogate, wherever it is, would make the whole message unreadable.
    """
    if b"\\u" not in body:
        return body
    try:
        return json.dumps(json.loads(body.decode()), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return body

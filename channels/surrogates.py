"""JSON bodies with lone surrogates.

An emoji is two units of UTF-16. A platform that cuts a text between the two sends a single unit, invalid in UTF-8.
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

    Otherwise a lone surrogate at any place would make the whole message unreadable.
    """
    if b"\\u" not in body:
        return body
    try:
        return json.dumps(json.loads(body.decode()), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return body

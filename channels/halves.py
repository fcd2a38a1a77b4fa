"""JSON with half a character in it: an emoji is two units of UTF-16, and who cuts a text there leaves one of them."""

from __future__ import annotations

import json

__all__ = ["without_halves"]


def without_halves(body: bytes) -> bytes:
    """The same JSON with "?" for half a character, which UTF-8 cannot hold; what is no JSON stays as it is.

    A reader that refuses such bodies would refuse the whole message, wherever in it the half is.
    """
    if b"\\u" not in body:
        return body
    try:
        return json.dumps(json.loads(body.decode()), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return body

"""Links to kept files: whoever has one may read that file until it ends; nobody can make, change or read one.

A link is of a conversation, whose links all end at once when it begins another series of them, or of a session of the
chat page, whose browser alone may follow it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from channels import AskfirstError, Json, Media

__all__ = ["BadLink", "Holder", "Links", "OfConversation", "OfSession"]

_TAG_BYTES: Final = 16
_ENDED = "not a link of ours, or it has ended"


class BadLink(AskfirstError):
    """The link was not made by us, was changed, or has ended. Which of them is not said."""


@dataclass(frozen=True, slots=True)
class OfConversation:
    """Whoever has the link may follow it, for as long as the conversation is in this series of its links."""

    conversation: str
    series: str = ""


@dataclass(frozen=True, slots=True)
class OfSession:
    """The browser that has this session of the chat page may follow it."""

    session: str


Holder: TypeAlias = OfConversation | OfSession


class Links:
    """Seals what a link stands for, and reads it back.

    A token is base64url of a tag and a hidden text: the JSON list (hash, type, file name, size, end in unix seconds,
    holder). The tag is an HMAC-SHA256 of the text, cut to 16 bytes; the text is hidden by a stream that HMAC-SHA256
    makes of the tag with another key (the construction SIV: https://web.cs.ucdavis.edu/~rogaway/papers/keywrap.html).
    A link stands in request logs and in chats: neither the file's name nor who it was made for may be read there. The
    first key seals; all of them open.
    """

    def __init__(self, secret: Sequence[bytes], *, now: Callable[[], datetime]) -> None:
        if not secret or not all(secret):
            raise ValueError("links need at least one key, and no empty one")
        # Keys of their own for each use of the secret: what was made elsewhere with it says nothing here.
        self._keys = [
            tuple(hmac.digest(key, use, hashlib.sha256) for use in (b"askfirst link tag", b"askfirst link stream"))
            for key in secret
        ]
        self._now = now

    def sign(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """A token for this file, under this name and type, for so long from now."""
        ends = int(self._now().timestamp() + lives_seconds)
        sha256 = _encode(bytes.fromhex(media.sha256))
        fields = [sha256, media.mime_type, media.filename, media.size, ends, *_holder_fields(holder)]
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        tagging, hiding = self._keys[0]
        tag = hmac.digest(tagging, text, hashlib.sha256)[:_TAG_BYTES]
        return _encode(tag + _hidden(text, hiding, tag))

    def read(self, token: str) -> tuple[Media, Holder]:
        """What the token stands for, and whose it is. Raises BadLink, whatever the text."""
        try:
            sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            # A second spelling of the same base64 is another token, and none of ours.
            if _encode(sealed) != token:
                raise BadLink(_ENDED)
        except ValueError as error:
            raise BadLink(_ENDED) from error
        tag, hidden = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
        for tagging, hiding in self._keys:
            text = _hidden(hidden, hiding, tag)
            if hmac.compare_digest(hmac.digest(tagging, text, hashlib.sha256)[:_TAG_BYTES], tag):
                return self._opened(text)
        raise BadLink(_ENDED)

    def _opened(self, text: bytes) -> tuple[Media, Holder]:
        sha256, mime_type, filename, size, ends, *holder = json.loads(text)
        if ends <= self._now().timestamp():
            raise BadLink(_ENDED)
        digest = base64.urlsafe_b64decode(f"{sha256}=").hex()
        media = Media(sha256=digest, mime_type=mime_type, filename=filename, size=size)
        return media, OfSession(*holder) if len(holder) == 1 else OfConversation(*holder)


def _holder_fields(holder: Holder) -> list[Json]:
    """One for a session, two for a conversation."""
    return [holder.session] if isinstance(holder, OfSession) else [holder.conversation, holder.series]


def _hidden(text: bytes, key: bytes, tag: bytes) -> bytes:
    """Hide a text, or show a hidden one: the same step does both."""
    blocks = range(-(-len(text) // 32))
    stream = b"".join(hmac.digest(key, tag + number.to_bytes(4), hashlib.sha256) for number in blocks)[: len(text)]
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

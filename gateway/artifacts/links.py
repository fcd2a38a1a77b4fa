"""Signed links to stored files: the holder of a link may read the file until the link expires.

Only this module can make, change or decode a link. A link belongs to a conversation or to a session of the chat page. A
conversation ends all its links when a new series begins. Only the browser of a session may follow the session's link.

A link for a chat has to be short. Its token is cut after the tag, and the store keeps the rest. The rest means nothing
without the tag, and no other rest fits the tag.
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

_TAG_BYTES: Final = 18
"""A multiple of three, so that the base64 of a token can be cut after the tag."""
SHORT_LENGTH: Final = _TAG_BYTES * 4 // 3
"""The characters of a token cut after its tag. A whole token is longer."""
_ENDED = "not a link of ours, or it has ended"


class BadLink(AskfirstError):
    """The link was not made by this gateway, was changed, or has expired. The error does not tell which."""


@dataclass(frozen=True, slots=True)
class OfConversation:
    """The holder of a link for a conversation: everybody with the link may follow it during this series."""

    conversation: str
    series: str = ""


@dataclass(frozen=True, slots=True)
class OfSession:
    """The holder of a link on the chat page: only this browser, or this logged-in person, may follow the link."""

    session: str
    """A session's id, or a logged-in person as ``site:<user_id>``."""


Holder: TypeAlias = OfConversation | OfSession


class Links:
    """A codec for link tokens: seals the content of a link and reads the content back.

    A token is base64url of a tag and a hidden text: the JSON list (hash, type, file name, size, end in unix seconds,
    holder). The tag is an HMAC-SHA256 of the text, cut to 18 bytes. The text is hidden by a stream, an HMAC-SHA256 of
    the tag with another key (the construction SIV: https://web.cs.ucdavis.edu/~rogaway/papers/keywrap.html). A link
    appears in request logs and in chats, and must therefore reveal neither the file's name nor the recipient. The first
    key seals; all keys open.
    """

    def __init__(self, secret: Sequence[bytes], *, now: Callable[[], datetime]) -> None:
        if not secret or not all(secret):
            raise ValueError("links need at least one key, and no empty one")
        # A separate key for each use of the secret: a MAC made for another use is not valid here.
        self._keys = [
            tuple(hmac.digest(key, use, hashlib.sha256) for use in (b"askfirst link tag", b"askfirst link stream"))
            for key in secret
        ]
        self._now = now

    def sign(self, media: Media, holder: Holder, *, lives_seconds: float) -> str:
        """Return a token for this file, under this name and type, valid for `lives_seconds`."""
        ends = int(self._now().timestamp() + lives_seconds)
        sha256 = _encode(bytes.fromhex(media.sha256))
        fields = [sha256, media.mime_type, media.filename, media.size, ends, *_holder_fields(holder)]
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        tagging, hiding = self._keys[0]
        tag = hmac.digest(tagging, text, hashlib.sha256)[:_TAG_BYTES]
        return _encode(tag + _hidden(text, hiding, tag))

    def read(self, token: str) -> tuple[Media, Holder]:
        """Return the file and the holder of a token. Raises BadLink for any invalid text."""
        try:
            sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            # Another spelling of the same base64 is a different token, which was not made here.
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


def cut(token: str) -> tuple[str, str]:
    """Return a token as a short token and the rest, which together are the token."""
    return token[:SHORT_LENGTH], token[SHORT_LENGTH:]


def _holder_fields(holder: Holder) -> list[Json]:
    """Return the holder as fields: a single field for a session, two for a conversation."""
    return [holder.session] if isinstance(holder, OfSession) else [holder.conversation, holder.series]


def _hidden(text: bytes, key: bytes, tag: bytes) -> bytes:
    """Hide a text, or reveal a hidden text: the same operation does both."""
    blocks = range(-(-len(text) // 32))
    stream = b"".join(hmac.digest(key, tag + number.to_bytes(4), hashlib.sha256) for number in blocks)[: len(text)]
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

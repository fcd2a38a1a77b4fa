"""Links to kept files: whoever has one may read that file until it ends; nobody can make or change one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from datetime import datetime

from channels import AskfirstError, Media

__all__ = ["BadLink", "Links"]


class BadLink(AskfirstError):
    """The link was not signed by us, was changed, or has ended. Which of them is not said."""


class Links:
    """Signs what a link stands for, and reads it back.

    A token is the base64url of a JSON list (key id, hash, type, file name, size, end in unix seconds), a dot, and the
    base64url of an HMAC-SHA256 over that text. The first key signs; all of them verify.
    """

    def __init__(self, secret: Sequence[bytes], *, now: Callable[[], datetime]) -> None:
        if not secret or not all(secret):
            raise ValueError("links need at least one key, and no empty one")
        # A key of its own for each use of the secret: a signature made elsewhere with it says nothing here.
        keys = [hmac.digest(key, b"askfirst artifact link", "sha256") for key in secret]
        self._keys = {hashlib.sha256(key).hexdigest()[:8]: key for key in keys}
        self._signing = next(iter(self._keys))
        self._now = now

    def sign(self, media: Media, *, lives_seconds: float) -> str:
        """A token for this file, under this name and type, for so long from now."""
        ends = int(self._now().timestamp() + lives_seconds)
        fields = [self._signing, media.sha256, media.mime_type, media.filename, media.size, ends]
        payload = _encode(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode())
        return f"{payload}.{self._mac(self._signing, payload)}"

    def read(self, token: str) -> Media:
        """What the token stands for. Raises BadLink, whatever the text."""
        payload, _, mac = token.rpartition(".")
        try:
            fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            key_id, sha256, mime_type, filename, size, ends = fields
            # The signature is compared as text, over text: a second spelling of the same base64 is another token.
            genuine = hmac.compare_digest(self._mac(key_id, payload).encode(), mac.encode())
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadLink("not a link of ours, or it has ended") from error
        if not genuine or ends <= self._now().timestamp():
            raise BadLink("not a link of ours, or it has ended")
        return Media(sha256=sha256, mime_type=mime_type, filename=filename, size=size)

    def _mac(self, key_id: str, payload: str) -> str:
        return _encode(hmac.digest(self._keys[key_id], payload.encode(), "sha256"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

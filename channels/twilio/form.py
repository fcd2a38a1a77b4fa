"""What Twilio posts: one form, read whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from multidict import MultiDict

from channels.channel import Malformed, WebhookRequest

__all__ = ["ADDRESS_PREFIX", "is_for", "read_form"]

ADDRESS_PREFIX: Mapping[str, str] = {"sms": "", "whatsapp": "whatsapp:"}
"""Channel -> what stands before its numbers in To and From."""

_LONGEST = 64 * 1024
"""Bytes. A text has at most 1,600 characters and a message ten files."""
_MOST_FIELDS = 500


def read_form(request: WebhookRequest) -> MultiDict[str]:
    """The fields, blank and repeated ones too: the signature covers them all.

    Raises Malformed for what is not a form in UTF-8, and for one larger than any of Twilio's.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded" or len(request.body) > _LONGEST:
        raise Malformed("twilio: not a form of Twilio's size")
    try:
        text = request.body.decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Malformed("twilio: the form is not in UTF-8") from None
    return MultiDict(fields)


def is_for(channel: str, request: WebhookRequest) -> bool:
    """Whether a request speaks of this channel, by its To and From. Total over any bytes, and proves nothing."""
    try:
        form = read_form(request)
    except Malformed:
        return channel == "sms"  # where it is refused
    whatsapp = any(form.get(name, "").startswith(ADDRESS_PREFIX["whatsapp"]) for name in ("To", "From"))
    return whatsapp == (channel == "whatsapp")

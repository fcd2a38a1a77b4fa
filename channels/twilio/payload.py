"""Reading of Twilio's forms, completely or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl

from multidict import MultiDict, MultiDictProxy
from yarl import URL

from channels.channel import Malformed, WebhookRequest

ADDRESS_PREFIX: Mapping[str, str] = {"sms": "", "whatsapp": "whatsapp:"}
"""Channel -> the prefix of the channel's numbers in To and From."""

_LONGEST = 64 * 1024
"""In bytes. A text has at most 1,600 characters, and a message ten files."""
_MOST_FIELDS = 500
_BEYOND_ASCII = re.compile("%[89A-Fa-f]")


def read_form(request: WebhookRequest) -> MultiDictProxy[str]:
    """Return the fields of a form, with blank and repeated fields, because the signature covers all.

    Raises Malformed for a body larger than 64 KiB, more than Twilio sends, or other than a form in UTF-8.
    """
    if _media_type(request) != "application/x-www-form-urlencoded" or len(request.body) > _LONGEST:
        raise Malformed("twilio: not a form of Twilio's size")
    return _fields(request.body)


@lru_cache(maxsize=16)  # one form is read three times: to find its channel, to verify it, and to parse it
def _fields(body: bytes) -> MultiDictProxy[str]:
    try:
        text = body.decode("ascii")
        if _BEYOND_ASCII.search(text) is None and text.count("&") < _MOST_FIELDS:
            return URL.build(query_string=text, encoded=True).query  # a third of the time, but checks no encoding
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Malformed("twilio: the form is not in UTF-8") from None
    return MultiDictProxy(MultiDict(fields))


def is_json(request: WebhookRequest) -> bool:
    """Return True if the request declares JSON, signed by Twilio in another way than forms."""
    return _media_type(request) == "application/json"


def is_for(channel: str, request: WebhookRequest) -> bool:
    """Return True if a request is for this channel, by To and From. Raises no error and proves no origin."""
    try:
        form = read_form(request)
    except Malformed:
        return True  # each channel refuses it later
    prefix = ADDRESS_PREFIX["whatsapp"]
    whatsapp = form.get("To", "").startswith(prefix) or form.get("From", "").startswith(prefix)
    return whatsapp == (channel == "whatsapp")


def _media_type(request: WebhookRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()

"""Rendering: a reply to messages of Twilio. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from channels.channel import Capabilities, Pace
from channels.events import Address
from channels.formatting import (
    Span,
    Styled,
    fold_quotes,
    fold_to_gsm,
    label,
    read_markdown,
    split,
    to_plain,
    to_whatsapp,
)
from channels.replies import Media, Part, Reply

_LONGEST = 1600
"""UTF-16 units of a body. Twilio refuses a longer body with 21617.
https://www.twilio.com/docs/messaging/api/message-resource"""
_NUMBER = len("(999/999) ")
_URL = re.compile(r"https?://\S+")

_MB = 1_000_000

SMS = Capabilities(
    max_text=_LONGEST,
    media={"image": 5 * _MB},  # https://www.twilio.com/docs/messaging/guides/accepted-mime-types, MMS
    pace=Pace(place_per_second=1),  # more than 30 answers in 30 s to one number are refused with 14107
    keep_seconds=30 * 86400.0,
    opt_out=True,
    accents=False,
)
"""There are no buttons: the text of a prompt explains how to answer, with its code."""
_MMS_TYPES = frozenset({"image/jpeg", "image/png", "image/gif"})
"""The types shown by each phone with MMS. For other types a link is more reliable."""
_NOT_US_OR_CANADA = (
    "242|246|264|268|284|340|345|441|473|649|658|664|670|671|684|721|758|767|784|787|809|829|849|868|869|876|939"
)
"""Area codes of +1 without MMS by Twilio: https://nationalnanpa.com, "Area codes by location"."""
_MMS_NUMBER = re.compile(rf"\+1(?!{_NOT_US_OR_CANADA})[2-9]\d{{9}}")

# https://www.twilio.com/docs/whatsapp/guidance-whatsapp-media-messages
WHATSAPP = replace(
    SMS,
    media={"image": 5 * _MB, "audio": 16 * _MB, "video": 16 * _MB, "document": 16 * _MB},
    pace=Pace(account_per_second=80, place_per_second=1),
    accents=True,
    bare_yes="reported",
    typing=True,
)
_WHATSAPP_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("image/jpeg", "image/png"), "image"),
    **dict.fromkeys(("audio/mpeg", "audio/ogg", "audio/amr", "audio/aac", "audio/mp4", "audio/3gpp"), "audio"),
    "video/mp4": "video",
    **dict.fromkeys(
        (
            "application/pdf",
            "application/msword",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "text/vcard",
        ),
        "document",
    ),
}


def render_sms(address: Address, reply: Reply) -> Sequence[Part]:
    """Return plain text in cheap characters, pictures by MMS where possible, other files as links."""
    fold = fold_quotes if reply.exact else fold_to_gsm
    plain = fold(to_plain(read_markdown(reply.text)))
    addresses = tuple(Span("link", found.start(), found.end()) for found in _URL.finditer(plain))
    texts = _texts(Styled(plain, addresses), lambda piece: piece.text)
    mms = all(map(_MMS_NUMBER.fullmatch, (address.account, address.place)))
    return _ordered(reply, texts, [_picture(media, mms=mms) for media in reply.media])


def render_whatsapp(reply: Reply) -> Sequence[Part]:
    """Return text with WhatsApp's marks, and each file in its own message, or as a link if WhatsApp refuses it."""
    texts = _texts(read_markdown(reply.text), partial(to_whatsapp, exact=reply.exact))
    return _ordered(reply, texts, [_file(media) for media in reply.media])


def _ordered(reply: Reply, texts: Sequence[str], files: Sequence[Part]) -> Sequence[Part]:
    """Return text, then files. A prompt comes last, because the answer must directly follow the prompt."""
    parts = [Part(call="message", arguments={"body": text}) for text in texts]
    if not (reply.buttons and parts):
        return (*parts, *files)
    return (*files, *parts[:-1], replace(parts[-1], buttons=reply.buttons))


def _picture(media: Media, *, mms: bool) -> Part:
    shown = mms and media.mime_type in _MMS_TYPES and media.size <= SMS.media["image"]
    return _part(media, fold_to_gsm(label(media.filename)), shown=shown)


def _file(media: Media) -> Part:
    kind = _WHATSAPP_TYPES.get(media.mime_type)
    name = to_whatsapp(Styled(label(media.filename)), exact=True)
    return _part(media, name, shown=kind is not None and media.size <= WHATSAPP.media[kind])


def _part(media: Media, name: str, *, shown: bool) -> Part:
    """Return the part of a file, or of a link to the file after its `name`."""
    return Part(call="media" if shown else "link", arguments={"body": name}, media=media)


def _texts(styled: Styled, write: Callable[[Styled], str]) -> list[str]:
    """Return texts within the limit. Several texts are numbered, because they may arrive in any order."""
    texts = [text for text in (write(piece).strip() for piece in split(styled, _LONGEST, _units)) if text]
    if len(texts) < 2 and all(_units(text) <= _LONGEST for text in texts):
        return texts
    texts = _fitting(styled, write, _LONGEST - _NUMBER)
    return [f"({number}/{len(texts)}) {text}" for number, text in enumerate(texts, start=1)]


def _fitting(styled: Styled, write: Callable[[Styled], str], limit: int) -> list[str]:
    """Return pieces within the limit even after marks and addresses are written out.

    `limit` is the first size tried, and is halved for a piece beyond the limit.
    """
    texts: list[str] = []
    for piece in split(styled, limit, _units):
        text = write(piece).strip()
        if _units(text) <= _LONGEST - _NUMBER:
            texts += [text] if text else []
        elif limit > 2 * _NUMBER:
            texts += _fitting(piece, write, limit // 2)
        else:  # an address that fills messages by itself
            texts += [cut.text for cut in split(Styled(text), _LONGEST - _NUMBER, _units)]
    return texts


def _units(text: str) -> int:
    """Return the length in UTF-16 units, as Twilio counts a text message outside of GSM's alphabet."""
    return len(text.encode("utf-16-le", "replace")) // 2

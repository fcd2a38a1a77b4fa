"""A reply as messages of Twilio's. Pure."""

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

__all__ = ["SMS", "WHATSAPP", "render_sms", "render_whatsapp"]

_LONGEST = 1600
"""https://www.twilio.com/docs/messaging/api/message-resource, Body: more of it is refused with 21617."""
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
"""No buttons: a prompt says in words, and with its code, how to answer."""
_MMS_TYPES = frozenset({"image/jpeg", "image/png", "image/gif"})
"""What every phone with MMS shows. Of all else a link is surer to be opened."""
_NOT_US_OR_CANADA = (
    "242|246|264|268|284|340|345|441|473|649|658|664|670|671|684|721|758|767|784|787|809|829|849|868|869|876|939"
)
"""Area codes of +1 where Twilio sends no MMS: https://nationalnanpa.com, "Area codes by location"."""
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
    """Plain text in characters that are cheap to send; a picture by MMS where there is one, other files as links."""
    fold = fold_quotes if reply.exact else fold_to_gsm
    plain = fold(to_plain(read_markdown(reply.text)))
    addresses = tuple(Span("link", found.start(), found.end()) for found in _URL.finditer(plain))
    texts = _texts(Styled(plain, addresses), lambda piece: piece.text)
    mms = all(map(_MMS_NUMBER.fullmatch, (address.account, address.place)))
    return _ordered(reply, texts, [_picture(media, mms=mms) for media in reply.media])


def render_whatsapp(reply: Reply) -> Sequence[Part]:
    """Text with WhatsApp's marks; each file in a message of its own, as a link when WhatsApp does not take it."""
    texts = _texts(read_markdown(reply.text), partial(to_whatsapp, exact=reply.exact))
    return _ordered(reply, texts, [_file(media) for media in reply.media])


def _ordered(reply: Reply, texts: Sequence[str], files: Sequence[Part]) -> Sequence[Part]:
    """Text, then files; a prompt comes last, because its answer must come right after it."""
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
    """A file by itself, or a link to it; `name` stands before the link."""
    return Part(call="media" if shown else "link", arguments={"body": name}, media=media)


def _texts(styled: Styled, tell: Callable[[Styled], str]) -> list[str]:
    """Texts within the limit; of several each says its number, because they may arrive in any order."""
    told = [text for text in (tell(piece).strip() for piece in split(styled, _LONGEST, _units)) if text]
    if len(told) < 2 and all(_units(text) <= _LONGEST for text in told):
        return told
    told = _fitting(styled, tell, _LONGEST - _NUMBER)
    return [f"({number}/{len(told)}) {text}" for number, text in enumerate(told, start=1)]


def _fitting(styled: Styled, tell: Callable[[Styled], str], limit: int) -> list[str]:
    """Pieces that still measure at most `limit` once their marks and addresses are written out."""
    texts: list[str] = []
    for piece in split(styled, limit, _units):
        text = tell(piece).strip()
        if _units(text) <= _LONGEST - _NUMBER:
            texts += [text] if text else []
        elif limit > 2 * _NUMBER:
            texts += _fitting(piece, tell, limit // 2)
        else:  # an address that fills messages by itself
            texts += [cut.text for cut in split(Styled(text), _LONGEST - _NUMBER, _units)]
    return texts


def _units(text: str) -> int:
    """As a text message counts once it is not in GSM's alphabet: UTF-16 units."""
    return len(text.encode("utf-16-le", "replace")) // 2

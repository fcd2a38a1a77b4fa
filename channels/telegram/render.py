"""Rendering: a reply to calls of the Bot API. Pure.

https://core.telegram.org/bots/api#formatting-options: entities nest fully or do not touch; `pre` and `code` neither
hold nor lie in other entities. Text with entities needs no parse mode, so no character can be misread as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from channels.channel import Capabilities, Pace
from channels.events import Address
from channels.formatting import Span, SpanKind, Styled, label, read_markdown, split, with_times
from channels.replies import Button, Json, Media, Part, Reply

_TOKEN_BYTES = 64
"""The longest token. https://core.telegram.org/bots/api#inlinekeyboardbutton, callback_data."""

CAPABILITIES = Capabilities(
    # telegram.constants: MessageLimit, InlineKeyboardMarkupLimit, FileSizeLimit, FloodLimit.
    max_text=4096,
    max_caption=1024,
    buttons=100,
    button_label=40,  # Telegram documents no limit: half a row of a phone shows this many
    media={"image": 10_000_000, "audio": 50_000_000, "video": 50_000_000, "document": 50_000_000},
    pace=Pace(account_per_second=30, place_per_second=1, group_per_minute=20),
    redelivers=True,  # https://core.telegram.org/bots/api#setwebhook: unsuccessful requests are repeated
    bare_yes="ordered",  # message_id and date: https://core.telegram.org/bots/api#message
    edit=True,
    stream=True,
    typing=True,
    local_times=True,  # https://core.telegram.org/bots/api#date-time-entity-formatting
)

_MOST_IN_A_ROW, _SHORT_LABEL = 3, 12
"""A phone shows three labels of 12 characters beside each other."""
FILE_FIELD = {"sendPhoto": "photo", "sendAudio": "audio", "sendVideo": "video", "sendDocument": "document"}
"""Call that sends a file -> the name of the file's argument."""

# Types that Telegram shows as a photo or plays. All others are documents. https://core.telegram.org/bots/api#sendaudio
_CALLS = {
    "image/jpeg": ("sendPhoto", "image"),
    "image/png": ("sendPhoto", "image"),
    "image/webp": ("sendPhoto", "image"),
    "audio/mpeg": ("sendAudio", "audio"),
    "audio/mp4": ("sendAudio", "audio"),
    "audio/x-m4a": ("sendAudio", "audio"),
    "video/mp4": ("sendVideo", "video"),
}


def render(address: Address, reply: Reply) -> Sequence[Part]:
    """Return the calls for a reply, in order: text, then media. With buttons the media goes first.

    Raises ValueError for a button token longer than 64 bytes.
    """
    to = _recipient(address)
    files = [_file(to, media) for media in reply.media]
    if reply.edits is not None and not reply.text.strip():
        return (*files, _new_keyboard(to, reply.edits, reply.buttons))
    pieces = _pieces(reply)
    if len(files) == len(pieces) == 1 and reply.edits is None and not reply.buttons:
        captioned = _captioned(files[0], pieces[0])
        if captioned:
            return (captioned,)
    texts = [_text(to, piece) for piece in pieces]
    if texts and reply.edits is not None:
        texts[0] = _edit(texts[0], reply.edits)
    if not reply.buttons:
        return (*texts, *files)
    return (*files, *texts[:-1], _with_keyboard(texts[-1], reply.buttons))


def rerouted(part: Part, address: Address, *, buttons: bool) -> Part:
    """Return a part for another address, with or without the buttons."""
    left = {"chat_id", "message_thread_id", *(() if buttons else ("reply_markup",))}
    shown = {name: value for name, value in part.arguments.items() if name not in left}
    return replace(part, arguments={**_recipient(address), **shown}, buttons=part.buttons if buttons else ())


def _pieces(reply: Reply) -> list[Styled]:
    """Return texts within the limit, stripped. Telegram strips white space at the ends and refuses an empty text."""
    styled = read_markdown(reply.text)
    if reply.exact:
        styled = with_times(styled)
    pieces = [_stripped(piece) for piece in split(styled, CAPABILITIES.max_text, utf16_length)]
    pieces = [piece for piece in pieces if piece.text]
    if not pieces and reply.buttons:
        return [Styled("…")]
    return pieces


def _stripped(piece: Styled) -> Styled:
    start = len(piece.text) - len(piece.text.lstrip())
    return piece.cut(start, max(start, len(piece.text.rstrip())))


def _recipient(address: Address) -> dict[str, Json]:
    place = address.place
    to: dict[str, Json] = {"chat_id": int(place) if place.lstrip("-").isdecimal() else place}
    if address.thread is not None:
        to["message_thread_id"] = int(address.thread)
    return to


def _text(to: dict[str, Json], piece: Styled) -> Part:
    # A preview would fetch any address that a text names.
    shown: dict[str, Json] = {"text": piece.text, "link_preview_options": {"is_disabled": True}}
    if entities := to_entities(piece):
        shown["entities"] = entities
    return Part(call="sendMessage", arguments=to | shown)


def _edit(text: Part, message_id: str) -> Part:
    """Return the edit of a message to this text. The message loses its buttons unless the edit has buttons."""
    arguments = {name: value for name, value in text.arguments.items() if name != "message_thread_id"}
    return Part(call="editMessageText", arguments={**arguments, "message_id": int(message_id)})


def _new_keyboard(to: dict[str, Json], message_id: str, buttons: tuple[Button, ...]) -> Part:
    arguments: dict[str, Json] = {"chat_id": to["chat_id"], "message_id": int(message_id)}
    return _with_keyboard(Part(call="editMessageReplyMarkup", arguments=arguments), buttons)


def _with_keyboard(part: Part, buttons: tuple[Button, ...]) -> Part:
    markup: dict[str, Json] = {"inline_keyboard": _rows(buttons)}
    return Part(call=part.call, arguments={**part.arguments, "reply_markup": markup}, buttons=buttons)


def _captioned(file: Part, text: Styled) -> Part | None:
    """Return one message with a file and its text, or None if the text is too long or the file is a link."""
    if file.call not in FILE_FIELD or utf16_length(text.text) > CAPABILITIES.max_caption:
        return None
    caption: dict[str, Json] = {"caption": text.text, "caption_entities": to_entities(text)}
    return Part(call=file.call, arguments={**file.arguments, **caption}, media=file.media)


def _file(to: dict[str, Json], media: Media) -> Part:
    """Return the part of a file. A file that is too large becomes a text, linked at sending."""
    call, kind = _CALLS.get(media.mime_type, ("sendDocument", "document"))
    if media.size > CAPABILITIES.media[kind]:
        call = "sendDocument"
    if media.size > CAPABILITIES.media["document"]:
        text = _text(to, Styled(label(media.filename)))
        return Part(call=text.call, arguments=text.arguments, media=media)
    return Part(call=call, arguments=dict(to), media=media)


def _rows(buttons: Sequence[Button]) -> list[Json]:
    """Return the rows of the keyboard. Side by side stand a confirm and its cancel, and a few other short labels."""
    rows: list[list[Json]] = []
    before: Button | None = None
    for button in buttons:
        if (size := len(button.token.encode())) > _TOKEN_BYTES:
            raise ValueError(f"a Telegram button carries at most {_TOKEN_BYTES} bytes, not {size}")
        words = button.label
        if len(words) > CAPABILITIES.button_label:
            words = words[: CAPABILITIES.button_label - 1] + "…"
        shown: Json = {"text": words, "callback_data": button.token}
        if before is not None and _stand_together(before, button) and len(rows[-1]) < _MOST_IN_A_ROW:
            rows[-1].append(shown)
        else:
            rows.append([shown])
        before = button
    return [*rows]


def _stand_together(before: Button, button: Button) -> bool:
    if (before.style, button.style) == ("confirm", "cancel"):
        return True
    return before.style == button.style == "plain" and max(len(before.label), len(button.label)) <= _SHORT_LABEL


_MOST_ENTITIES = 100
"""Telegram ignores further entities (telegram.constants.MessageLimit.MESSAGE_ENTITIES)."""
_LINKS = ("http://", "https://", "mailto:", "tg://user?id=")
_TYPES = {
    "bold": "bold",
    "italic": "italic",
    "strike": "strikethrough",
    "code": "code",
    "pre": "pre",
    "quote": "blockquote",
    "link": "text_link",
    "time": "date_time",
    "day": "date_time",
}
_TIME_FORMATS: dict[SpanKind, str] = {"time": "t", "day": "wdt"}
"""Weekday, day and time of day, in the language and the time zone of the person's app."""


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def to_entities(styled: Styled) -> list[Json]:
    """Return at most 100 MessageEntity objects, in the order of the text."""
    return [_entity(styled.text, span) for span in islice(_allowed(styled), _MOST_ENTITIES)]


def _allowed(styled: Styled) -> Iterator[Span]:
    """Yield the allowed spans. Precedence in overlaps: code blocks, then links and quotes, then inline code."""
    spans = [s for s in styled.spans if s.kind != "link" or s.value.lower().startswith(_LINKS)]
    blocks = [s for s in spans if s.kind == "pre"]
    holders = [s for s in spans if s.kind in ("link", "quote")]
    codes = [s for s in spans if s.kind == "code" and not any(h.start < s.end and s.start < h.end for h in holders)]
    for span in spans:
        match span.kind:
            case "pre" | "link":
                yield span
            case "code":
                if span in codes:
                    yield span
            case "quote":
                yield from _around(styled.text, span, blocks)
            case _:
                yield from _around(styled.text, span, [*blocks, *codes])


def _around(text: str, span: Span, holes: list[Span]) -> Iterator[Span]:
    """Yield the pieces of a span outside of the holes, without white space at the ends of a piece."""
    start = span.start
    for hole in sorted(holes, key=lambda hole: hole.start):
        if hole.end <= span.start or span.end <= hole.start:
            continue
        yield from _trimmed(text, replace(span, start=start, end=hole.start))
        start = hole.end
    yield from _trimmed(text, replace(span, start=start))


def _trimmed(text: str, span: Span) -> Iterator[Span]:
    covered = text[span.start : span.end]
    start = span.start + len(covered) - len(covered.lstrip())
    end = span.start + len(covered.rstrip())
    if start < end:
        yield replace(span, start=start, end=end)


def _entity(text: str, span: Span) -> Json:
    entity: dict[str, Json] = {
        "type": _TYPES[span.kind],
        "offset": utf16_length(text[: span.start]),
        "length": utf16_length(text[span.start : span.end]),
    }
    if span.kind in _TIME_FORMATS:
        return {**entity, "unix_time": int(span.value), "date_time_format": _TIME_FORMATS[span.kind]}
    if span.value:
        entity["url" if span.kind == "link" else "language"] = span.value
    return entity

"""Rendering: a reply to calls of the Web API, in Block Kit. Pure.

Styled text becomes Slack's rich text, the format of Slack's own composer
(https://docs.slack.dev/reference/block-kit/blocks/rich-text-block). Slack shows the text of an element unchanged: no
character is markup, and a broadcast is a separate element, never built here. So no text of a model or a person can
notify people, and a question reads as written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from channels.channel import Capabilities, Pace
from channels.events import Address
from channels.formatting import Span, SpanKind, Styled, label, read_markdown, split, with_times
from channels.replies import Button, Json, Media, Part, Reply

POST = "chat.postMessage"
WHISPER = "chat.postEphemeral"
"""The call of a message for a single person. Slack names no message to edit later."""
_UPDATE = "chat.update"
_UPLOAD = "files.completeUploadExternal"
"""The call that shows a file. The earlier upload calls have no visible effect."""

# https://docs.slack.dev/reference/block-kit/blocks and .../composition-objects: blocks, characters.
_PIECE = 3_000
"""Characters of text in a block. The limit of a section; for rich text no limit is documented."""
_MOST_BLOCKS = 50
_TOKEN = 2_000
_MESSAGE = 12_000
"""Characters of all blocks of a message, with the blocks' JSON. From some 13,000 characters of text, or fewer in many
pieces, Slack answers msg_blocks_too_long. Slack does not document the counting:
https://github.com/slackapi/bolt-js/issues/2509 and https://github.com/slackapi/bolt-js/issues/2867."""
_TEXT = 4_000
"""Characters of the text beside the blocks: https://docs.slack.dev/reference/methods/chat.update#errors."""

_FILE = 1_000_000_000
"""The largest file in bytes. https://slack.com/help/articles/201330736"""

CAPABILITIES = Capabilities(
    max_text=_MESSAGE,
    buttons=25,
    button_label=75,
    media=dict.fromkeys(("image", "audio", "video", "document"), _FILE),
    pace=Pace(place_per_second=1),  # https://docs.slack.dev/apis/web-api/rate-limits
    redelivers=True,
    bare_yes="ordered",  # ts, unique and ascending in a channel: https://docs.slack.dev/messaging/retrieving-messages
    edit=True,
    stream=True,
    typing=True,
    local_times=True,
)

_STYLES = {"confirm": "primary", "cancel": None, "plain": None}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""https://docs.slack.dev/messaging/formatting-message-text#escaping"""
_HALF_ESCAPE = re.compile(r"&[a-z]{0,3}$")
_CALL = re.compile(r"@(?=(?:here|channel|everyone|group)\b)", re.IGNORECASE)


def render(address: Address, reply: Reply) -> Sequence[Part]:
    """Return the calls for a reply, in order: text, then media. With buttons the media goes first.

    Raises ValueError for a button token longer than 2,000 characters, and for more than 25 buttons.
    """
    to: dict[str, Json] = {"channel": address.place}
    if address.thread is not None:
        to["thread_ts"] = address.thread
    files = [_file(to, media) for media in reply.media]
    body, small = _without_small(reply)
    styled = read_markdown(body)
    if reply.exact:
        styled = with_times(styled)
    # An edit notifies no one, so it can mention people. A longer text goes on in new messages, which would notify.
    account = address.account if reply.edits is not None and len(styled.text) <= _PIECE else None
    split_up = _messages(_pieces(styled, account), kept_free=len(small))
    messages = [_arguments(message, small if message is split_up[-1] else "") for message in split_up]
    if not messages and reply.buttons:
        messages = [shown("…")]
    parts = [Part(call=POST, arguments={**to, **message}) for message in messages]
    if parts and reply.edits is not None:
        parts[0] = Part(call=_UPDATE, arguments={"channel": address.place, "ts": reply.edits, **messages[0]})
    if not reply.buttons:
        return (*parts, *files)
    return (*files, *parts[:-1], _with_buttons(parts[-1], reply.buttons, small))


def _without_small(reply: Reply) -> tuple[str, str]:
    """Return the text above the buttons as Markdown, and the small text below the buttons as plain text."""
    if not reply.small or not reply.buttons:
        return reply.text, ""
    return reply.text[: -reply.small].rstrip(), read_markdown(reply.text[-reply.small :]).text.strip()


def rerouted(part: Part, address: Address, *, only_to: str, buttons: bool) -> Part | None:
    """Return a part for another address, with or without the buttons. `only_to`: the id of the only person to see it.

    None for an edit, and for a file to a single person. Such a message is shown outside of threads: in a thread Slack
    shows it only to people with the thread open (https://docs.slack.dev/reference/methods/chat.postEphemeral).
    """
    if part.call not in (POST, _UPLOAD) or (only_to and (part.call != POST or part.media is not None)):
        return None
    to: dict[str, Json] = {"channel" if "channel" in part.arguments else "channel_id": address.place}
    if only_to:
        to["user"] = only_to
    elif address.thread is not None:
        to["thread_ts"] = address.thread
    arguments = {name: value for name, value in part.arguments.items() if name not in ("thread_ts", *to)}
    if not buttons and isinstance(blocks := arguments.get("blocks"), list):
        arguments["blocks"] = [each for each in blocks if not (isinstance(each, dict) and each["type"] == "actions")]
    return Part(
        call=WHISPER if only_to else part.call,
        arguments={**to, **arguments},
        media=part.media,
        buttons=part.buttons if buttons else (),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of text and its block. `size` is the length of the block's JSON."""

    text: str
    block: Json
    size: int


def shown(text: str) -> Mapping[str, Json]:
    """Return the arguments of a message with plain text, not read as Markdown."""
    return _arguments(list(_pieces(Styled(text))))


def linked(filename: str, address: str) -> Mapping[str, Json]:
    """Return the arguments of a message with only a link to a file."""
    name = label(filename)
    return _arguments(list(_pieces(Styled(name, (Span("link", 0, len(name), address),)))))


def _arguments(pieces: Sequence[_Piece], small: str = "") -> Mapping[str, Json]:
    """Return the arguments of a message: the blocks, and the same text for notifications and screen readers.

    The `small` text has no block yet, since its block stands below the buttons.
    """
    return {
        "text": _beside("\n\n".join(filter(None, ["".join(piece.text for piece in pieces), small]))),
        "blocks": [piece.block for piece in pieces],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _pieces(styled: Styled, account: str | None = None, limit: int = _PIECE) -> Iterator[_Piece]:
    """Yield the visible pieces. A piece with too large JSON, from many changes of style, is split again, finer."""
    for cut in split(styled, limit):
        block = rich_text(cut, account=account)
        if block is None:
            continue
        size = len(json.dumps(block, ensure_ascii=False))
        if size > _MESSAGE:
            yield from _pieces(cut, account, limit // 2)
        else:
            yield _Piece(cut.text, block, size)


def _messages(pieces: Iterator[_Piece], *, kept_free: int = 0) -> list[list[_Piece]]:
    """Group pieces into messages. Each leaves two blocks free for buttons and small text of `kept_free` characters."""
    messages: list[list[_Piece]] = []
    room = 0
    for piece in pieces:
        if not messages or len(messages[-1]) + 3 > _MOST_BLOCKS or piece.size > room:
            messages.append([])
            room = _MESSAGE - kept_free
        messages[-1].append(piece)
        room -= piece.size
    return messages


def _beside(text: str) -> str:
    """Return the text beside the blocks, escaped: Slack reads ``<...>`` there as a link, a mention or a broadcast."""
    written = _CALL.sub("@\u2060", text.strip().translate(_ESCAPES))
    return written if len(written) <= _TEXT else f"{_HALF_ESCAPE.sub('', written[: _TEXT - 1])}…"


def _with_buttons(part: Part, buttons: tuple[Button, ...], small: str) -> Part:
    if len(buttons) > CAPABILITIES.buttons:
        raise ValueError(f"Slack shows at most {CAPABILITIES.buttons} buttons, not {len(buttons)}")
    row: Json = {"type": "actions", "elements": [_button(number, button) for number, button in enumerate(buttons)]}
    below: list[Json] = [row]
    if small:
        below.append({"type": "context", "elements": [{"type": "plain_text", "text": small, "emoji": False}]})
    blocks = part.arguments["blocks"]
    arguments: dict[str, Json] = {**part.arguments, "blocks": [*(blocks if isinstance(blocks, list) else []), *below]}
    return Part(call=part.call, arguments=arguments, buttons=buttons)


def _button(number: int, button: Button) -> Json:
    if len(button.token) > _TOKEN:
        raise ValueError(f"a Slack button carries at most {_TOKEN} characters, not {len(button.token)}")
    words = button.label
    if len(words) > CAPABILITIES.button_label:
        words = words[: CAPABILITIES.button_label - 1] + "…"
    element: dict[str, Json] = {
        "type": "button",
        "action_id": f"askfirst_{number}",
        "text": {"type": "plain_text", "text": words, "emoji": False},
        "value": button.token,
    }
    if style := _STYLES[button.style]:
        element["style"] = style
    return element


def _file(to: dict[str, Json], media: Media) -> Part:
    """Return the part of a file. A file that is too large becomes a message, linked at sending."""
    if media.size > _FILE:
        return Part(call=POST, arguments={**to, **shown(label(media.filename))}, media=media)
    arguments: dict[str, Json] = {"channel_id": to["channel"]}
    if "thread_ts" in to:
        arguments["thread_ts"] = to["thread_ts"]
    return Part(call=_UPLOAD, arguments=arguments, media=media)


_SECTION = "rich_text_section"
_HOLDERS: dict[SpanKind, str] = {"pre": "rich_text_preformatted", "quote": "rich_text_quote"}
_STYLE_NAMES: dict[SpanKind, str] = {
    "bold": "bold",
    "italic": "italic",
    "strike": "strike",
    "code": "code",
    "pre": "code",
}
_TIME_FORMATS: dict[SpanKind, str] = {"time": "{time}", "day": "{date_short_pretty} {time}"}
"""https://docs.slack.dev/reference/block-kit/block-elements/date-element, shown in the time zone of the reader."""
_LONGEST_ADDRESS = 1_000
"""In characters. A longer link is left out, and the label stays."""
_ADDRESS = r"https?://[^\s<>|`\"]*[^\s<>|`\".,:;!?'()\[\]*_~]"
_LINK = re.compile(_ADDRESS)


def rich_text(styled: Styled, *, account: str | None = None) -> Json:
    """Return the text as one block. None for a text without a visible character.

    With `account` a piece of code becomes a mention if the code is the written form of a person of this account
    (``slack:T1:U7``). Slack shows a mention as the person's name. A mention in a new message notifies the person. The
    same letters outside of code stay text, because any person may have written this text.
    """
    writer = _Writer(styled, account)
    elements: list[Json] = []
    done = 0
    for span in styled.spans:
        if span.kind in _HOLDERS and span.start >= done:
            elements += writer.held(_SECTION, done, span.start)
            elements += writer.held(_HOLDERS[span.kind], span.start, span.end)
            done = span.end
    elements += writer.held(_SECTION, done, len(styled.text))
    return {"type": "rich_text", "elements": elements} if elements else None


class _Writer:
    """Writer of elements for ranges of one text."""

    def __init__(self, styled: Styled, account: str | None) -> None:
        self._text, self._spans = styled.text, styled.spans
        self._person = re.compile(rf"slack:{re.escape(account)}:([A-Z0-9]+)") if account is not None else None

    def held(self, kind: str, start: int, end: int) -> Iterator[Json]:
        """Yield the text from `start` to before `end` as one element on separate lines."""
        covered = self._text[start:end]
        if not covered.strip():
            return
        start, end = end - len(covered.lstrip("\n")), start + len(covered.rstrip("\n"))
        if kind == _HOLDERS["pre"]:
            yield {"type": kind, "elements": [_element("text", self._text[start:end], {})]}
        else:
            yield {"type": kind, "elements": [*self._inline(start, end)]}

    def _inline(self, start: int, end: int) -> Iterator[Json]:
        """Yield an element for each range with the same styles."""
        spans = [span for span in self._spans if span.start < end and span.end > start]
        edges = {start, end, *(edge for span in spans for edge in (span.start, span.end) if start < edge < end)}
        over: list[Span] = []
        for left, right in pairwise(sorted(edges)):
            over = [span for span in over if span.end > left]
            while spans and spans[0].start <= left:
                over.append(spans.pop(0))
            yield from self._stretch(self._text[left:right], over)

    def _stretch(self, text: str, over: list[Span]) -> Iterator[Json]:
        kinds = {span.kind for span in over}
        address = next((span.value for span in over if span.kind == "link" and _is_address(span.value)), None)
        style: dict[str, Json] = {_STYLE_NAMES[kind]: True for kind in _STYLE_NAMES if kind in kinds}
        if address is not None:
            style.pop("code", None)
            yield _element("link", text.replace("\n", " "), style, url=re.sub(r"\s", _percent, address))
        elif (moment := next((span for span in over if span.kind in _TIME_FORMATS), None)) is not None:
            at, shown_as = int(moment.value), _TIME_FORMATS[moment.kind]
            yield {"type": "date", "timestamp": at, "format": shown_as, "fallback": text}
        elif "code" in style:
            person = self._person.fullmatch(text) if self._person is not None else None
            yield {"type": "user", "user_id": person[1]} if person else _element("text", text, style)
        else:
            yield from self._plain(text, style)

    def _plain(self, text: str, style: dict[str, Json]) -> Iterator[Json]:
        """Yield text, with web addresses as links."""
        done = 0
        for found in _LINK.finditer(text):
            if not _is_address(found[0]):
                continue
            if found.start() > done:
                yield _element("text", text[done : found.start()], style)
            yield _element("link", found[0], style, url=found[0])
            done = found.end()
        if done < len(text):
            yield _element("text", text[done:], style)


def _element(kind: str, text: str, style: dict[str, Json], **more: Json) -> Json:
    return {"type": kind, **more, "text": text, **({"style": style} if style else {})}


def _is_address(value: str) -> bool:
    """Return True if Slack accepts this as a link. Slack would refuse a whole message for an invalid link."""
    if len(value) > _LONGEST_ADDRESS:
        return False
    try:
        url = urlsplit(value)
        return bool(url.hostname) if url.scheme in ("http", "https") else url.scheme == "mailto" and bool(url.path)
    except ValueError:
        return False


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())

"""A reply as calls of the Web API, in Block Kit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from channels.channel import Capabilities, Pace
from channels.events import Address
from channels.formatting import Span, Styled, read_markdown, split
from channels.formatting.mrkdwn import to_mrkdwn
from channels.replies import Button, Json, Media, Part, Reply

__all__ = ["CAPABILITIES", "POST", "escaped", "linked", "render"]

POST = "chat.postMessage"
_UPDATE = "chat.update"
_UPLOAD = "files.completeUploadExternal"
"""The call that shows a file; those before it, which bring its bytes, leave no trace."""

# https://docs.slack.dev/reference/block-kit/blocks and .../composition-objects: blocks, characters.
_SECTION = 3_000
_MOST_BLOCKS = 50
_TOKEN = 2_000
_MESSAGE = 11_000
"""Over all blocks of a message. At some 13,000 Slack answers msg_blocks_too_long, though each block is within its limit
(https://github.com/slackapi/bolt-js/issues/2509)."""

_FILE = 1_000_000_000
"""Bytes. https://slack.com/help/articles/201330736"""

CAPABILITIES = Capabilities(
    max_text=_MESSAGE,
    buttons=25,
    button_label=75,
    media=dict.fromkeys(("image", "audio", "video", "document"), _FILE),
    pace=Pace(place_per_second=1),  # https://docs.slack.dev/apis/web-api/rate-limits
    redelivers=True,
    edit=True,
)

_STYLES = {"confirm": "primary", "cancel": None, "plain": None}


def render(address: Address, reply: Reply) -> Sequence[Part]:
    """The calls that say this reply, in order: text, then media; buttons come last, so then the media goes first.

    Raises ValueError for a button whose token is longer than 2,000 characters, and for more than 25 buttons.
    """
    to: dict[str, Json] = {"channel": address.place}
    if address.thread is not None:
        to["thread_ts"] = address.thread
    files = [_file(to, media) for media in reply.media]
    messages = _messages(_sections(read_markdown(reply.text)))
    if not messages and reply.buttons:
        messages = [["…"]]
    parts = [Part(call=POST, arguments=to | _shown(sections)) for sections in messages]
    if parts and reply.edits is not None:
        edited: dict[str, Json] = {"channel": address.place, "ts": reply.edits}
        parts[0] = Part(call=_UPDATE, arguments=edited | _shown(messages[0]))
    if not reply.buttons:
        return (*parts, *files)
    return (*files, *parts[:-1], _with_buttons(parts[-1], reply.buttons))


def _shown(sections: Sequence[str]) -> dict[str, Json]:
    """The arguments of a message: its blocks, and the same as text for notifications and screen readers."""
    blocks: list[Json] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": section, "verbatim": True}} for section in sections
    ]
    return {"text": "\n".join(sections), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def linked(label: str, address: str) -> dict[str, Json]:
    """The arguments of a message that is one link."""
    return _shown([to_mrkdwn(Styled(label, (Span("link", 0, len(label), address),)))])


def escaped(text: str) -> str:
    """Words that are no Markdown."""
    return to_mrkdwn(Styled(text))


def _sections(styled: Styled, limit: int = _SECTION) -> Iterator[str]:
    """Pieces in Slack's dialect. Marks and escapes count, so what grew too long is split again, finer."""
    for piece in split(styled, limit):
        written = to_mrkdwn(piece)
        if len(written) > _SECTION:
            yield from _sections(piece, limit // 2)
        elif written.strip():
            yield written.strip("\n")


def _messages(sections: Iterator[str]) -> list[list[str]]:
    """Sections by message; each leaves a block free for buttons."""
    messages: list[list[str]] = []
    for section in sections:
        last = messages[-1] if messages else []
        if not last or len(last) + 2 > _MOST_BLOCKS or sum(map(len, last)) + len(section) > _MESSAGE:
            messages.append([section])
        else:
            last.append(section)
    return messages


def _with_buttons(part: Part, buttons: tuple[Button, ...]) -> Part:
    if len(buttons) > CAPABILITIES.buttons:
        raise ValueError(f"Slack shows at most {CAPABILITIES.buttons} buttons, not {len(buttons)}")
    row: Json = {"type": "actions", "elements": [_button(number, button) for number, button in enumerate(buttons)]}
    blocks = part.arguments["blocks"]
    arguments: dict[str, Json] = {**part.arguments, "blocks": [*(blocks if isinstance(blocks, list) else []), row]}
    return Part(call=part.call, arguments=arguments, buttons=buttons)


def _button(number: int, button: Button) -> Json:
    if len(button.token) > _TOKEN:
        raise ValueError(f"a Slack button carries at most {_TOKEN} characters, not {len(button.token)}")
    label = button.label
    if len(label) > CAPABILITIES.button_label:
        label = label[: CAPABILITIES.button_label - 1] + "…"
    element: dict[str, Json] = {
        "type": "button",
        "action_id": f"askfirst_{number}",
        "text": {"type": "plain_text", "text": label, "emoji": False},
        "value": button.token,
    }
    if style := _STYLES[button.style]:
        element["style"] = style
    return element


def _file(to: dict[str, Json], media: Media) -> Part:
    """The file itself, or for one too large the message that becomes its link when it is sent."""
    if media.size > _FILE:
        return Part(call=POST, arguments=to | _shown([escaped(media.filename)]), media=media)
    arguments: dict[str, Json] = {"channel_id": to["channel"]}
    if "thread_ts" in to:
        arguments["thread_ts"] = to["thread_ts"]
    return Part(call=_UPLOAD, arguments=arguments, media=media)

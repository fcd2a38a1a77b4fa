"""Channels for ``askfirst replay``: they parse recorded requests and send no message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from channels import (
    Address,
    AskfirstError,
    CanAnswer,
    CanOrder,
    CanType,
    Channel,
    Json,
    Message,
    Pace,
    Part,
    Receipt,
    Reply,
)
from channels.catalogue import load, names
from channels.direct import DirectChannel
from channels.webchat import WebChatChannel
from gateway.cli.replay_records import RecordedRequest
from gateway.cli.replay_transcript import Transcript
from gateway.cli.terminal import visible
from gateway.settings import Settings

_STAND_INS = {
    "TELEGRAM_BOT_TOKEN": "0:replay",
    "TELEGRAM_WEBHOOK_SECRET": "replay-needs-no-secret",
    "SLACK_BOT_TOKEN": "xoxb-replay",
    "SLACK_SIGNING_SECRET": "replay-needs-no-secret",
    "TWILIO_ACCOUNT_SID": f"AC{'0' * 32}",
    "TWILIO_AUTH_TOKEN": "replay-needs-no-token",
    "TWILIO_SMS_FROM": "+10000000000",
    "TWILIO_WHATSAPP_FROM": "+10000000000",
    "ASKFIRST_PUBLIC_URL": "https://replay.invalid",
}
"""Placeholders for the settings that a channel requires. A replay sends no messages and verifies no signatures."""


def named(record: RecordedRequest) -> Sequence[str]:
    """Return the names of the channels that the record may be for. Raises AskfirstError for an unknown channel."""
    if record.channel == WebChatChannel.name:
        raise AskfirstError(
            f"{record.source}: the web chat has no webhook: write what was said into a .txt file, a message a line"
        )
    if record.channel in names():
        return [record.channel]
    sharing = [name for name in names() if record.channel in getattr(load(name), "webhooks", ())]
    if not sharing:
        raise AskfirstError(f"{record.source}: there is no channel {record.channel!r}, only {', '.join(names())}")
    return sharing


def offline(name: str, settings: Settings, transcript: Transcript) -> Channel:
    """Return a channel that parses like its platform's and sends no messages. Raises MissingSetting.

    Replies keep their Markdown text. The platform's own formatting runs as well, and its result is only checked for
    emptiness.
    """
    kind: Any = DirectChannel if name == DirectChannel.name else load(name)

    def render(self: Channel, address: Address, reply: Reply) -> Sequence[Part]:
        if not kind.render(self, address, reply):
            return []
        said: dict[str, Json] = {"text": reply.text, "edits": reply.edits}
        files = [Part(call="show", arguments={"text": "", "edits": None}, media=media) for media in reply.media]
        words = [Part(call="show", arguments=said, buttons=reply.buttons)] if reply.text or reply.buttons else []
        return [*files, *words] if reply.buttons else [*words, *files]

    async def send(self: Channel, address: Address, part: Part, *, key: str) -> Receipt:
        return transcript.show(address, part)

    async def answer(self: Channel, handle: str, text: str, *, private: bool) -> None:
        if text:
            transcript.note(f"to the presser{' alone' if private else ''}: {visible(text)}")

    async def typing(self: Channel, address: Address) -> None:
        """Ignore the typing notice."""

    def follows(self: Channel, message: Message, receipt: Receipt) -> bool:
        return receipt.message_id in list(transcript.shown)[: transcript.seen]

    methods: dict[str, Any] = {"render": render, "send": send}
    for power, method in ((CanAnswer, answer), (CanType, typing), (CanOrder, follows)):
        if issubclass(kind, power):
            methods[method.__name__] = method
    needed = _STAND_INS | dict(settings.channel_settings(name)) if name in names() else {}
    made: Any = type(f"Offline{kind.__name__}", (kind,), methods)
    channel: Channel = made.from_settings(needed, way="webhook")
    channel.capabilities = replace(channel.capabilities, pace=Pace())
    return channel

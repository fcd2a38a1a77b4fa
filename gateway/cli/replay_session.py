"""Session of ``askfirst replay``: passes recorded requests through their channel to the bot, one at a time."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol, runtime_checkable

from channels import (
    AskfirstError,
    ButtonPress,
    Channel,
    DeliveryReport,
    Event,
    Malformed,
    Message,
    Parsed,
    Person,
    WebhookRequest,
    WebhookResponse,
)
from channels.direct import DirectChannel, own_place
from gateway.cli.replay_records import Line, RecordedRequest, button_label, described
from gateway.cli.replay_transcript import Transcript
from gateway.engine.engine import Engine
from gateway.engine.messages import replies_by_thread
from gateway.pending.reading import read_code, read_refused_code
from gateway.web import Webhooks

_LOOK_SECONDS = 0.002
_TOLD_SECONDS = 60.0


@runtime_checkable
class _HasName(Protocol):
    username: str | None


class Replay:
    """A running bot and the records that are replayed to it in order. The store's clock follows the recorded times."""

    def __init__(self, engine: Engine, channels: Mapping[str, Channel], transcript: Transcript) -> None:
        self._engine, self._channels, self._transcript = engine, channels, transcript
        self._webhooks = Webhooks(channels)
        self._at: datetime | None = None
        self._theirs: set[str] = set()
        """Ids of people's messages."""
        self._line = itertools.count(1)

    async def take(self, one: RecordedRequest | Line) -> None:
        """Replay one record and wait until the bot is idle. Raises AskfirstError for a wrong record."""
        if isinstance(one, Line):
            await self._says(one)
        else:
            await self._receive(one)

    async def aclose(self) -> None:
        """Advance the clock past the collect time, so that the bot answers its last messages."""
        await self._move(self._engine.context.bot.collect_seconds)

    async def _says(self, line: Line) -> None:
        person = Person(channel=DirectChannel.name, account="-", user_id="you")
        number, address = f"line {next(self._line)}", own_place(person)
        command, _, rest = line.text[1:].partition(" ") if line.text.startswith("/") else ("", "", line.text)
        message = Message(
            event_ids=(number,), address=address, person=person, message_id=number, text=rest, command=command or None
        )
        self._transcript.begins(line.source, "you:", line.text, address)
        await self._hear(self._channels[DirectChannel.name], [message])
        await self._move(self._engine.context.bot.collect_seconds)

    async def _receive(self, record: RecordedRequest) -> None:
        request, transcript = record.request(), self._transcript
        channel = self._webhooks.addressed(record.channel, request)
        if channel is None:
            raise AskfirstError(
                f"{record.source}: no channel takes this request for {record.channel!r}: name another one"
            )
        if record.bot_name is not None:
            if not isinstance(channel, _HasName):
                raise AskfirstError(f"{record.source}: {channel.name} knows its bot without bot_name: leave it out")
            channel.username = record.bot_name.removeprefix("@")
        try:
            parsed = channel.parse(request)
        except Malformed as error:
            transcript.begins(record.source, channel.name, "a request")
            transcript.note(f"answered with 400, since it cannot be read: {error}")
            return
        if not parsed.events:
            transcript.begins(record.source, channel.name, "a request")
            transcript.note(
                "of a kind that is not understood: no answer" if parsed.not_understood else "of nobody: no answer"
            )
            return
        sent_at = [event.sent_at for event in parsed.events if event.sent_at is not None]
        await self._follow(record.at or (sent_at[0] if sent_at else None))
        events = []
        for event in parsed.events:
            transcript.begins(record.source, channel.name, described(event, request), event.address)
            events.append(await self._as_here(event, request))
        await self._hear(channel, events)

    async def _hear(self, channel: Channel, events: Sequence[Event]) -> None:
        self._theirs |= {event.message_id for event in events if isinstance(event, Message) and event.message_id}
        await self._engine.inbox.accept(channel, Parsed(tuple(events), WebhookResponse()))
        await self._settled()
        expected = any(isinstance(event, Message | ButtonPress) for event in events)
        if expected and not self._transcript.said and not self._engine.context.bot.collect_seconds:
            self._transcript.note("no answer")

    async def _follow(self, at: datetime | None) -> None:
        """Advance the clock to the time of the record."""
        if at is None:
            return
        seconds = (at - self._at).total_seconds() if self._at is not None else 0.0
        self._at = at if self._at is None else max(self._at, at)
        if seconds >= _TOLD_SECONDS:
            self._transcript.note(f"{seconds / 60:.0f} min later")
        await self._move(max(seconds, 0.0))

    async def _move(self, seconds: float) -> None:
        if seconds:
            self._engine.context.store.offset_seconds += seconds
            await self._engine.due()
            await self._settled()

    async def _settled(self) -> None:
        while True:
            if await self._engine.idle():
                return
            await asyncio.sleep(_LOOK_SECONDS)

    # ── Buttons, codes and message ids of the recording are replaced by the ones of this replay. ──

    async def _as_here(self, event: Event, request: WebhookRequest) -> Event:
        transcript = self._transcript
        if isinstance(event, ButtonPress):
            label = button_label(request, event.token)
            shown = transcript.newest(event.address, label) if label is not None else None
            if shown is None:
                transcript.note("this replay has shown no such button")
                return event
            token = next(button.token for button in shown.buttons if button.label == label)
            return replace(event, token=token, message_id=shown.message_id)
        if isinstance(event, DeliveryReport) and event.message_id is not None:
            shown = transcript.newest(event.address)
            return event if shown is None else replace(event, message_id=shown.message_id, key=None)
        if not isinstance(event, Message):
            return event
        if event.reply_to is not None and event.reply_to not in self._theirs:
            shown = transcript.newest(
                replace(event.address, thread=None) if replies_by_thread(event) else event.address
            )
            if shown is not None:
                thread = shown.message_id if replies_by_thread(event) else event.address.thread
                event = replace(event, reply_to=shown.message_id, address=replace(event.address, thread=thread))
        return replace(event, text=await self._with_code(event))

    async def _with_code(self, message: Message) -> str:
        """Return the text with a recorded code replaced by the code of the newest open question."""
        shared = self._engine.context
        language = shared.language(message.person)
        found = read_code(message.text, language) or read_refused_code(message.text, language)
        waiting = (await shared.actions(shared.conversation(message.address))).open if found is not None else []
        if found is None or not waiting or found.code in {action.code for action in waiting}:
            return message.text
        now = waiting[-1].code
        self._transcript.note(f"{found.code} is {now} here")
        self._transcript.said = False
        return re.sub(r"[\W_]?".join(found.code), now, message.text, flags=re.IGNORECASE)

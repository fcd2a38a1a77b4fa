"""Command ``askfirst replay``: show the bot's answers to recorded requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qsl

import click
from pydantic import AwareDatetime, BaseModel, ConfigDict, PrivateAttr, ValidationError

from channels import (
    Address,
    AskfirstError,
    Button,
    ButtonPress,
    CanAnswer,
    CanOrder,
    CanType,
    Channel,
    DeliveryReport,
    Event,
    Json,
    Malformed,
    Message,
    MessageEdited,
    Pace,
    Parsed,
    Part,
    Person,
    Receipt,
    Reply,
    WebhookRequest,
    WebhookResponse,
)
from channels.catalogue import load, names
from channels.direct import DirectChannel, own_place
from channels.webchat import WebChatChannel
from gateway.assembly import in_memory
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.process import log_to_stderr
from gateway.cli.terminal import from_markdown, lines, visible
from gateway.config.settings import Settings
from gateway.engine.engine import Engine
from gateway.engine.messages import replies_by_thread
from gateway.pending.reading import name_of, read_code, read_refused_code
from gateway.tools.pending_action import PendingAction
from gateway.web import Webhooks

_NOTICE = (
    "Nothing is sent, what is confirmed is not run, and no signature is checked: this replay is offline. "
    "The model is called, and tools that do not ask do run."
)


@click.command()
@bot_argument
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def replay(bot: BotRef, files: Sequence[Path]) -> None:
    """Show the replies and prompts of BOT to the recorded requests in each FILE.

    A FILE has webhook requests, one JSON object in all or one a line: {"channel": "telegram", "body": {...}}, and where
    they matter "headers", "at" (when it came) and "bot_name" (in Telegram groups). "body" is the JSON that the platform
    sent, or its text. In a .txt file each line is a message of one person.

    The store is in memory, and no messages are sent. A confirmed action is not run, but named. The bot's model is
    called, and its tools that run without asking do run.
    """
    settings = load_settings(bot.directory)
    log_to_stderr(settings, settings.log_level if "log_level" in settings.model_fields_set else "ERROR")
    recorded = [one for file in files for one in _read(file)]
    if not recorded:
        raise AskfirstError(f"nothing is recorded in {', '.join(map(str, files))}: write a request or a message a line")
    agent = bot.load()
    click.echo(_NOTICE, err=True)
    asyncio.run(_replayed(agent, settings, recorded))


async def _replayed(bot: ChannelAgent, settings: Settings, recorded: Sequence[RecordedRequest | Line]) -> None:
    transcript = Transcript(click.echo)
    channels: dict[str, Channel] = {DirectChannel.name: offline(DirectChannel.name, settings, transcript)}
    for one in recorded:
        if isinstance(one, RecordedRequest):
            for name in named(one):
                channels.setdefault(name, offline(name, settings, transcript))
    async with in_memory(bot, channels) as engine:
        engine.rehearse(transcript.would_run)
        engine.start()
        replaying = Replay(engine, channels, transcript)
        async with aclosing(replaying):
            for one in recorded:
                await replaying.take(one)


def _read(file: Path) -> Iterator[RecordedRequest | Line]:
    """Yield the records of a file. Raises AskfirstError, naming the faulty line."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AskfirstError(f"{file} is not in UTF-8 ({error.reason} at byte {error.start}): save it so") from None
    except OSError as error:
        raise AskfirstError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix == ".txt":
        lines = enumerate(text.splitlines(), 1)
        yield from (Line(source=f"{file}:{number}", text=line.strip()) for number, line in lines if line.strip())
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _record(line, f"{file}:{number}")
    else:
        yield _record(text, str(file))


def _record(text: str, source: str) -> RecordedRequest:
    try:
        record = RecordedRequest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise AskfirstError(
            f"{source} is no recorded request ({f'{where}: ' if where else ''}{first['msg']}): "
            'write {"channel": "telegram", "body": {...}}, the whole file or one a line'
        ) from None
    record.source = source
    return record


_LOOK_SECONDS = 0.002
_TOLD_SECONDS = 60.0


@runtime_checkable
class _HasName(Protocol):
    username: str | None


class Replay:
    """A running bot and the records to replay in order. The store's clock follows the recorded times."""

    def __init__(self, engine: Engine, channels: Mapping[str, Channel], transcript: Transcript) -> None:
        self._engine, self._channels, self._transcript = engine, channels, transcript
        self._webhooks = Webhooks(channels)
        self._at: datetime | None = None
        self._theirs: set[str] = set()
        """Ids of people's messages."""
        self._line = itertools.count(1)

    async def take(self, one: RecordedRequest | Line) -> None:
        """Replay a record and wait until the bot is idle. Raises AskfirstError for a wrong record."""
        if isinstance(one, Line):
            await self._says(one)
        else:
            await self._receive(one)

    async def aclose(self) -> None:
        """Advance the clock past the collect time, so the bot answers the last messages."""
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
        name = name_of(message.person)
        found = read_code(message.text, language, name=name) or read_refused_code(message.text, language, name)
        waiting = (await shared.actions(shared.conversation(message.address))).open if found is not None else []
        if found is None or not waiting or found.code in {action.code for action in waiting}:
            return message.text
        now = waiting[-1].code
        self._transcript.note(f"{found.code} is {now} here")
        self._transcript.said = False
        return re.sub(r"[\W_]?".join(found.code), now, message.text, flags=re.IGNORECASE)


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
"""Placeholders for the required settings of a channel. A replay sends no messages and verifies no signatures."""


def named(record: RecordedRequest) -> Sequence[str]:
    """Return the names of the possible channels of the record. Raises AskfirstError for an unknown channel."""
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
    """Return a channel with the platform's parser, without sending. Raises MissingSetting.

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


class RecordedRequest(BaseModel):
    """A recorded webhook request."""

    model_config = ConfigDict(extra="forbid")

    channel: str
    """The channel's name, or the shared webhook name in the URL after ``/webhooks/``, like ``twilio``."""
    body: dict[str, Any] | str
    """The posted JSON, or the text of the body (a form or JSON)."""
    headers: dict[str, str] = {}
    at: AwareDatetime | None = None
    """Time of receipt. None: the sending time given by the platform."""
    bot_name: str | None = None
    """The bot's Telegram name without the @. In a group the name decides whether the bot is addressed."""
    _source: str = PrivateAttr("")

    @property
    def source(self) -> str:
        """File and line of the record."""
        return self._source

    @source.setter
    def source(self, source: str) -> None:
        self._source = source

    def request(self) -> WebhookRequest:
        """Return the request in the platform's form."""
        is_json = isinstance(self.body, dict) or self.body.lstrip().startswith("{")
        body = json.dumps(self.body) if isinstance(self.body, dict) else self.body.strip()
        headers = {"content-type": "application/json" if is_json else "application/x-www-form-urlencoded"}
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return WebhookRequest("POST", f"https://replay.invalid/webhooks/{self.channel}", headers, body.encode())


@dataclass(frozen=True, slots=True)
class Line:
    """A person's message without a particular platform."""

    source: str
    text: str


def described(event: Event, request: WebhookRequest) -> str:
    person = event.person
    name = (person.name or person.user_id) if person is not None else "nobody"
    match event:
        case Message():
            command = f"/{event.command}" if event.command else ""
            words = " ".join(filter(None, [command, event.text, *(f"[{each.kind}]" for each in event.attachments)]))
            return f"{name}: {words}"
        case ButtonPress():
            return f"{name} presses [ {button_label(request, event.token) or 'a button without a label'} ]"
        case MessageEdited():
            return f"{name} changes a message: {event.text}"
        case _:
            return f"{name}: {type(event).__name__}"


def button_label(request: WebhookRequest, token: str) -> str | None:
    """Return the label of the button with this token, as found in the request, or None."""
    try:
        body = json.loads(request.body)
    except ValueError:
        form = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
        try:
            body = json.loads(form["payload"]) if "payload" in form else form
        except ValueError:
            return None
    labels = (
        each.get("text") or each.get("ButtonText")
        for each in _objects(body)
        if token in (value for value in each.values() if isinstance(value, str))
    )
    texts = (label.get("text") if isinstance(label, dict) else label for label in labels)
    return next((label for label in texts if isinstance(label, str)), None)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value, including nested ones."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


_FIRST_ID = 10**12
"""First id of the bot's messages. Ids of platforms are smaller, and every channel can parse this id."""
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message sent by the bot in this replay."""

    message_id: str
    address: Address
    buttons: Sequence[Button]


class Transcript:
    """Printer of a replay's messages, in order of time."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._begun = self._shows = False
        """Whether any line has been printed, and whether the last line was a message of the bot."""
        self._numbers = itertools.count(_FIRST_ID)
        self.shown: dict[str, ShownMessage] = {}
        self.here: Address | None = None
        """Address of the current record."""
        self.seen = 0
        """Count of the bot's messages when the record began."""
        self.said = False
        """Whether any line was printed for the record."""

    def begins(self, source: str, channel: str, what: str, address: Address | None = None) -> None:
        """Print the next record."""
        self.here, self.seen, self.said = address, len(self.shown), False
        self._part()
        self._echo(f"{source}  {channel}  {lines(what)}")

    def note(self, text: str) -> None:
        """Print a result of the record."""
        self.said = True
        self._echo(textwrap.indent(text, _INDENT).rstrip())

    def would_run(self, action: PendingAction) -> None:
        """Print a confirmed action. The action is not run."""
        self.note(f"would run: {action.kind} {visible(json.dumps(dict(action.args), ensure_ascii=False))}")

    def show(self, address: Address, part: Part) -> Receipt:
        """Print a message of the bot."""
        text, edits = from_markdown(str(part.arguments["text"])), part.arguments["edits"]
        labels = "  ".join(f"[ {visible(button.label)} ]" for button in part.buttons)
        file = f"[file: {visible(part.media.filename)}]" if part.media is not None else ""
        body = "\n\n".join(filter(None, [file, text, labels]))
        elsewhere = f"to {address}:\n" if self.here is not None and address != self.here else ""
        changed = "a message above now says:\n" if edits is not None else ""
        self._part(after_words=True)
        self.note(f"{elsewhere}{changed}{body}")
        self._shows = True
        message_id = str(next(self._numbers)) if edits is None else str(edits)
        self.shown[message_id] = ShownMessage(message_id, address, part.buttons)
        return Receipt(message_id=message_id)

    def _part(self, *, after_words: bool = False) -> None:
        """Print an empty line. With `after_words`, only after a message of the bot."""
        if self._begun and (self._shows or not after_words):
            self._echo("")
        self._begun, self._shows = True, False

    def newest(self, address: Address, label: str | None = None) -> ShownMessage | None:
        """Return the newest message of the bot in this chat, or None. Messages of the same thread are preferred.

        With a `label`, only messages with this button count. Otherwise a message with buttons is preferred.
        """
        here = [each for each in self.shown.values() if replace(each.address, thread=address.thread) == address]
        here.sort(key=lambda each: (each.address == address, bool(each.buttons), int(each.message_id)))
        for each in reversed(here):
            if label is None or any(button.label == label for button in each.buttons):
                return each
        return None

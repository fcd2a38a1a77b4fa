"""Channels with one defect each, and the contract test that must fail for each defect.

Pytest does not collect this file directly: test_contract_fails runs the file and reads the failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from channels import (
    Address,
    Ambiguous,
    Attachment,
    Capabilities,
    Channel,
    Event,
    Forged,
    Malformed,
    Message,
    Parsed,
    Part,
    RateLimited,
    Receipt,
    Reply,
    SendError,
    Stale,
    Unavailable,
    Undeliverable,
    Unreachable,
    Way,
    WebhookRequest,
    WebhookResponse,
)
from channels.formatting import fold_to_gsm, read_markdown, split
from channels.message_stream import MessageStream
from channels.slack import SlackChannel
from channels.telegram import TelegramChannel
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.webchat import WebChatChannel
from gateway.testing import ChannelCase, ChannelContract
from gateway.testing.channel_contract.helpers import Contract
from tests.channels import defective_words  # noqa: F401 - its defects are noted when it is read
from tests.channels.defects import DEFECTS, every_event, seen_by
from tests.channels.slack.case import slack_case
from tests.channels.telegram.case import telegram_case
from tests.channels.twilio.case import twilio_case
from tests.webchat.case import webchat_case

# ── proofs ──


@seen_by(ChannelContract.test_request_with_the_platforms_proof_is_accepted, Forged)
class NoRetries(SlackChannel):
    """Slack's retries are dropped, although the first attempt may never have arrived."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        super().verify(request, now)
        if "x-slack-retry-num" in request.headers:
            raise Forged("again")


@seen_by(ChannelContract.test_without_the_whole_proof_it_is_forged)
class AnyCase(TelegramChannel):
    """The secret counts in any case."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        given = request.headers.get("x-telegram-bot-api-secret-token", "")
        if given.casefold() != self._secrets[0].casefold():
            raise Forged("no")


@seen_by(ChannelContract.test_without_the_whole_proof_it_is_forged)
class OldApps(SlackChannel):
    """A request without a signature passes, as if sent before Slack signed requests."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        if "x-slack-signature" in request.headers:
            super().verify(request, now)


@seen_by(ChannelContract.test_without_the_whole_proof_it_is_forged)
class AnyOfSeveral(TelegramChannel):
    """A header with several values passes if the first value is right."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        header = "x-telegram-bot-api-secret-token"
        first = request.headers.get(header, "").partition(",")[0]
        super().verify(replace(request, headers={**request.headers, header: first}), now)


@seen_by(ChannelContract.test_refusal_shows_no_secret)
class Quoting(TelegramChannel):
    """The error of a refusal quotes the given token, which is nearly the secret."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        try:
            super().verify(request, now)
        except Forged:
            raise Forged(f"wrong: {request.headers.get('x-telegram-bot-api-secret-token')}") from None


@seen_by(ChannelContract.test_the_proof_is_of_one_body_or_the_case_says_not)
class RemembersProofs(SlackChannel):
    """A signature accepted before is accepted for any body."""

    good: str | None = None

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        if request.headers.get("x-slack-signature") != self.good:
            super().verify(request, now)
            self.good = request.headers["x-slack-signature"]


@seen_by(ChannelContract.test_a_proof_ends_and_does_not_begin_in_the_future)
class FromTheFuture(SlackChannel):
    """Only old timestamps are stale."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        try:
            super().verify(request, now)
        except Stale:
            if int(request.headers["x-slack-request-timestamp"]) < now.timestamp():
                raise


@seen_by(ChannelContract.test_random_bytes_are_refused_as_forged_or_stale, TypeError)
class ComparesText(TelegramChannel):
    """hmac compares only ASCII text."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        if not hmac.compare_digest(request.headers.get("x-telegram-bot-api-secret-token", ""), self._secrets[0]):
            raise Forged("no")


@seen_by(ChannelContract.test_odd_bytes_in_any_header_are_no_fault_of_ours)
class EncodesStrictly(TelegramChannel):
    """Odd bytes of a header arrive as text without an encoding."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        for value in request.headers.values():
            value.encode()
        super().verify(request, now)


@seen_by(ChannelContract.test_a_delivery_comes_in_over_http_and_is_answered)
class AnswersInWords(SmsChannel):
    """An answer without TwiML is sent to the person."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return replace(super().parse(request), response=WebhookResponse(body=b"OK"))


# ── reading events ──


@seen_by(ChannelContract.test_each_delivery_is_parsed_as_documented)
class Nobody(TelegramChannel):
    """The author is lost."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return every_event(super().parse(request), person=None)


@seen_by(ChannelContract.test_every_event_names_storable_people_and_places)
class NoZone(TelegramChannel):
    """The time has no zone."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return every_event(super().parse(request), sent_at=datetime(2026, 1, 1))  # noqa: DTZ001 - the defect


@seen_by(ChannelContract.test_parsing_is_pure)
class ReadsAFile(TelegramChannel):
    """A file is read while the platform waits."""

    def parse(self, request: WebhookRequest) -> Parsed:
        with Path(os.devnull).open("rb"):
            return super().parse(request)


@seen_by(ChannelContract.test_repeated_delivery_is_parsed_to_a_twin)
class NewEachTime(SmsChannel):
    """The event's id is the id of the attempt."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return every_event(super().parse(request), event_ids=(request.headers["i-twilio-idempotency-token"],))


@seen_by(ChannelContract.test_two_messages_are_no_twins)
class SameWordsSameId(TelegramChannel):
    """Two equal messages are one event."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        return every_event(parsed, event_ids=tuple(getattr(event, "text", "-") for event in parsed.events))


@seen_by(ChannelContract.test_words_come_as_they_were_written)
class AsciiOnly(TelegramChannel):
    """Other scripts become question marks."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        [event] = parsed.events
        assert isinstance(event, Message)
        return every_event(parsed, text=event.text.encode("ascii", "replace").decode())


@seen_by(ChannelContract.test_unstorable_characters_are_never_returned, UnicodeEncodeError)
class HalfCharacters(TelegramChannel):
    """json.loads lets half of a surrogate pair through. No store or platform takes that text."""

    def parse(self, request: WebhookRequest) -> Parsed:
        said = json.loads(request.body)["message"]["text"]
        return every_event(super().parse(replace(request, body=request.body.replace(b"\\ud", b"?"))), text=said)


@seen_by(ChannelContract.test_a_press_brings_its_token)
class ShortTokens(TelegramChannel):
    """The token is cut."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        return every_event(parsed, token=getattr(parsed.events[0], "token", "")[:20])


@seen_by(ChannelContract.test_a_body_built_to_break_a_parser_is_refused_at_once, RecursionError)
class Deep(TelegramChannel):
    """Deeply nested brackets break the parser."""

    def parse(self, request: WebhookRequest) -> Parsed:
        try:
            json.loads(request.body)
        except ValueError:
            raise Malformed("no JSON") from None
        return super().parse(request)


@seen_by(ChannelContract.test_any_body_is_malformed_or_parsed, KeyError)
class TrustsTheShape(SlackChannel):
    """An authentic body is assumed to be complete."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        if request.headers["content-type"] == "application/json":
            json.loads(request.body)["type"]
        return parsed


# ── rendering replies ──


@seen_by(ChannelContract.test_rendering_is_pure_and_whole)
class NewKeys(TelegramChannel):
    """Each rendering differs from the last."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return [
            replace(part, arguments={**part.arguments, "nonce": uuid.uuid4().hex})
            for part in super().render(address, reply)
        ]


@seen_by(ChannelContract.test_rendering_is_pure_and_whole)
class OneFile(TelegramChannel):
    """Only the last of several files is sent."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return super().render(address, replace(reply, media=reply.media[-1:]))


@seen_by(ChannelContract.test_rendering_is_pure_and_whole, UnicodeEncodeError)
class HalfWords(WebChatChannel):
    """Half of a surrogate pair reaches the part."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        arguments: dict[str, Any] = {"text": reply.text}
        return [replace(part, arguments={**part.arguments, **arguments}) for part in super().render(address, reply)]


@seen_by(ChannelContract.test_empty_reply_renders_to_no_part)
class SaysNothing(TelegramChannel):
    """An empty message is sent."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return super().render(address, reply) or [Part(call="sendMessage", arguments={"text": ""})]


@seen_by(ChannelContract.test_every_word_arrives_in_order)
class OneMessage(TelegramChannel):
    """Only the last part of a long text is sent."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return super().render(address, reply)[-1:]


@seen_by(ChannelContract.test_every_word_arrives_in_order)
class NoButtons(TelegramChannel):
    """The buttons are on the part, and not in the call."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        parts = super().render(address, replace(reply, buttons=()))
        return [*parts[:-1], replace(parts[-1], buttons=reply.buttons)] if reply.buttons else parts


@seen_by(ChannelContract.test_platform_accepts_any_markup, Undeliverable)
class Blank(TelegramChannel):
    """The text left of some Markdown is blank."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        text = read_markdown(reply.text).text[:4000]
        return [Part(call="sendMessage", arguments={"chat_id": address.place, "text": text})]


@seen_by(ChannelContract.test_exact_text_arrives_unchanged)
class Folds(TelegramChannel):
    """Exact text is folded to the cheap alphabet too."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return super().render(address, replace(reply, text=fold_to_gsm(reply.text)))


@seen_by(ChannelContract.test_long_text_is_split_without_loss, Undeliverable)
class CountsCharacters(TelegramChannel):
    """Telegram counts in UTF-16: an emoji is two."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        pieces = split(read_markdown(reply.text), self.capabilities.max_text)
        return [
            Part(call="sendMessage", arguments={"chat_id": address.place, "text": piece.text.strip()})
            for piece in pieces
        ]


@seen_by(ChannelContract.test_the_most_buttons_arrive_with_their_labels_cut)
class LongLabels(TelegramChannel):
    """The labels are longer than declared."""

    capabilities: Capabilities = replace(TelegramChannel.capabilities, button_label=20)


@seen_by(ChannelContract.test_question_arrives_after_its_text_and_files)
class AsksFirst(TelegramChannel):
    """The question comes before its file."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return [*super().render(address, reply)][::-1]


@seen_by(ChannelContract.test_an_edit_shows_in_place_and_takes_the_buttons_away)
class NeverEdits(TelegramChannel):
    """An edit is a new message."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        return super().render(address, replace(reply, edits=None))


# ── sending: receipts and errors ──


@seen_by(ChannelContract.test_a_receipt_names_the_message)
class NoReceipt(TelegramChannel):
    """The platform's id is lost."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        await super().send(address, part, key=key)
        return Receipt(message_id=key)


@seen_by(ChannelContract.test_a_receipt_names_the_message)
class NoZoneSent(TelegramChannel):
    """The time has no zone."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return replace(await super().send(address, part, key=key), sent_at=datetime(2026, 1, 1))  # noqa: DTZ001


class Mistaking(TelegramChannel):
    """All errors become one error."""

    taken_for: Callable[[SendError], BaseException]

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        try:
            return await super().send(address, part, key=key)
        except SendError as error:
            raise type(self).taken_for(error) from None


def mistakes(
    test: Callable[..., object],
    taken_for: type[SendError | TimeoutError],
    name: str,
    *,
    error: type[BaseException] | None = None,
) -> None:
    """Note a channel that turns each error into `taken_for`."""
    more = {"retry_after_seconds": 1.0} if taken_for is RateLimited else {}
    other = staticmethod(lambda told: taken_for(told.code, **more))
    seen_by(test, error)(type(name, (Mistaking,), {"taken_for": other}))


mistakes(ChannelContract.test_too_many_requests_say_how_long_to_wait, RateLimited, "Hasty")
mistakes(ChannelContract.test_a_refusal_for_good_is_undeliverable, Unavailable, "NeverGivesUp")
mistakes(ChannelContract.test_refused_token_is_unavailable_and_names_its_setting, Undeliverable, "BlamesThePart")
mistakes(ChannelContract.test_refused_token_is_unavailable_and_names_its_setting, Unavailable, "NamesNoMend")
mistakes(ChannelContract.test_a_page_of_something_between_is_no_word_of_the_platforms, Unreachable, "BelievesAnybody")
mistakes(ChannelContract.test_a_server_error_is_to_be_tried_again, Undeliverable, "GivesUp")
mistakes(ChannelContract.test_a_connection_that_ends_without_an_answer_is_in_doubt, Unavailable, "SureOfIt")
mistakes(ChannelContract.test_an_answer_that_never_comes_is_in_doubt, TimeoutError, "TimesOut", error=TimeoutError)
mistakes(ChannelContract.test_unreachable_platform_raises_unavailable, Ambiguous, "Doubtful")


@seen_by(ChannelContract.test_a_connection_that_ends_without_an_answer_is_in_doubt)
class TriesAgain(TelegramChannel):
    """A part that may have arrived is sent again without a warning."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        try:
            return await super().send(address, part, key=key)
        except Ambiguous:
            return await super().send(address, part, key=key)


@seen_by(ChannelContract.test_errors_and_logs_tell_no_secret_and_no_words)
class Talkative(TelegramChannel):
    """The log has each part."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        logging.getLogger("talkative").debug("sending %s", part)
        return await super().send(address, part, key=key)


@seen_by(ChannelContract.test_a_file_arrives_with_its_name_and_type)
class Nameless(TelegramChannel):
    """Every file has the same name."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        media = replace(part.media, filename="file.bin") if part.media else None
        return await super().send(address, replace(part, media=media), key=key)


@seen_by(ChannelContract.test_a_file_too_large_for_the_platform_goes_as_a_link)
class NoLinks(TelegramChannel):
    """Files of any size are uploaded."""

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        to = {"chat_id": address.place}
        return [Part(call="sendDocument", arguments=to, media=media) for media in reply.media]


@seen_by(ChannelContract.test_a_part_sent_again_under_its_key)
class ForgetsKeys(WebChatChannel):
    """A part sent again is another line of the log."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return Receipt(message_id=uuid.uuid4().hex)


# ── names, capabilities and powers ──


@seen_by(ChannelContract.test_its_name_is_the_catalogues)
class Shouting(WebChatChannel):
    """The name cannot be written in a URL or before a colon."""

    name = "Web:Chat"


@seen_by(ChannelContract.test_capabilities_match_the_powers)
class Modest(TelegramChannel):
    """The channel shows typing and does not declare the capability."""

    capabilities: Capabilities = replace(TelegramChannel.capabilities, typing=False)


@seen_by(ChannelContract.test_capabilities_match_the_powers)
class Boastful(SmsChannel):
    """The channel declares ordered messages and cannot order them."""

    capabilities: Capabilities = replace(SmsChannel.capabilities, bare_yes="ordered")


@seen_by(ChannelContract.test_a_setting_that_is_missing_is_named)
class Careless(TelegramChannel):
    """A missing secret is replaced by a default."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        return super().from_settings({"TELEGRAM_WEBHOOK_SECRET": "x" * 32, **settings}, way=way)


@seen_by(ChannelContract.test_a_platform_that_is_away_at_the_start_is_said)
class Sleepy(TelegramChannel):
    """The start does not ask the platform."""

    async def start(self, http: aiohttp.ClientSession) -> None:
        pass


@seen_by(ChannelContract.test_send_before_start_or_after_close_is_unavailable, AttributeError)
class Impatient(TelegramChannel):
    """A part sent before the start is lost: the client is missing."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        started: Any = self._started
        await started.call(part.call, **part.arguments)
        return Receipt(message_id=None)


@seen_by(ChannelContract.test_typing_raises_only_errors_of_sending)
class NeverTypes(TelegramChannel):
    async def typing(self, address: Address) -> None:
        pass


@seen_by(ChannelContract.test_an_edit_by_itself_shows_a_part_in_place)
class EditsAnew(TelegramChannel):
    """An edit is a new message."""

    async def edit(self, address: Address, message_id: str, part: Part) -> None:
        await self.send(address, part, key="edit")


class InMessages(TelegramChannel):
    """The channel shows a growing text in messages, also in a private chat."""

    handle: type[MessageStream] = MessageStream

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> MessageStream:
        return self.handle(self, address, interval_seconds=1.0, message_ids=message_ids)


class _AnswersBelow(MessageStream):
    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        return [await self._channel.send(self._address, part, key="k") for part in parts]


@seen_by(ChannelContract.test_a_growing_text_ends_as_the_answer)
class AnswersBelow(InMessages):
    """The answer comes below the grown text."""

    handle = _AnswersBelow


class _Stays(MessageStream):
    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        return await super().finish(parts) if parts else []


@seen_by(ChannelContract.test_a_growing_text_is_taken_away)
class StaysThere(InMessages):
    """A grown text without an answer stays."""

    handle = _Stays


class _Silent(MessageStream):
    async def update(self, text: str) -> None:
        with contextlib.suppress(SendError):
            await super().update(text)


@seen_by(ChannelContract.test_stream_update_raises_an_error_of_sending)
class SilentStream(InMessages):
    """A failed update of the text raises no error."""

    handle = _Silent


@seen_by(ChannelContract.test_fetch_returns_a_persons_file_and_no_other)
class EmptyFiles(TelegramChannel):
    """An attachment that is no file becomes an empty file."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        try:
            async for piece in super().fetch(attachment):
                yield piece
        except Undeliverable:
            yield b""


@seen_by(ChannelContract.test_a_press_is_answered_and_never_raises, Undeliverable)
class AnswersLoudly(TelegramChannel):
    """An answer that came too late is an error."""

    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        await self._api.call("answerCallbackQuery", callback_query_id=handle, text=text[:200], show_alert=private)


@seen_by(ChannelContract.test_polled_event_counts_as_stored_at_the_next_poll)
class NeverConfirms(TelegramChannel):
    """The poll is always begun anew, so the platform never hears of a stored event."""

    async def poll(self) -> AsyncIterator[tuple[Event, ...]]:  # type: ignore[override]
        while True:
            async with aclosing(super().poll()) as polling:
                yield await anext(polling)


@seen_by(ChannelContract.test_look_up_finds_a_sent_message_and_no_other)
class FindsTheLast(SlackChannel):
    """The look-up finds the latest message, whether the searched part or another."""

    last = Receipt(message_id=None)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        self.last = await super().send(address, part, key=key)
        return self.last

    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        return self.last


@seen_by(ChannelContract.test_polling_ends_when_it_is_cancelled)
class Stubborn(TelegramChannel):
    """The poll treats cancellation as a network error."""

    async def poll(self) -> AsyncIterator[tuple[Event, ...]]:  # type: ignore[override]
        try:
            async for events in super().poll():
                yield events
        except asyncio.CancelledError:
            await asyncio.Event().wait()


@seen_by(ChannelContract.test_the_webhook_is_registered_and_taken_away)
class StaysRegistered(TelegramChannel):
    async def unregister(self) -> None:
        pass


@seen_by(ChannelContract.test_the_menu_of_commands_is_shown)
class NoMenu(TelegramChannel):
    async def set_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        pass


@seen_by(ChannelContract.test_ask_again_answers_200_with_escaped_text)
class Unescaped(SmsChannel):
    """The text is markup for Twilio."""

    def ask_again(self, text: str) -> WebhookResponse:
        return WebhookResponse(body=f"<Response><Message>{text}</Message></Response>".encode())


@seen_by(ChannelContract.test_of_a_shared_url_it_takes_its_own, KeyError)
class TakesByHeader(SmsChannel):
    """The channel needs a header that only a true request has."""

    def takes(self, request: WebhookRequest) -> bool:
        return request.headers["content-type"] != "" and super().takes(request)


# ── each defect is a test class with the one test that must fail ──


async def _case(channel: type[Channel], patch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
    if issubclass(channel, WebChatChannel):
        yield replace(webchat_case(Path()), channel=channel)
    elif issubclass(channel, SlackChannel):
        async with slack_case(patch) as case:
            yield replace(case, channel=channel)
    elif issubclass(channel, TelegramChannel):
        async with telegram_case(patch) as case:
            yield replace(case, channel=channel)
    else:
        async with twilio_case("whatsapp" if issubclass(channel, WhatsAppChannel) else "sms", patch) as case:
            yield replace(case, channel=channel)


def _trial(channel: type[Channel], test: str) -> type[Contract]:
    @pytest.fixture
    async def case(self: object, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        async for each in _case(channel, monkeypatch):
            yield each

    return type(f"Test{channel.__name__}", (Contract,), {"case": case, test: getattr(ChannelContract, test)})


for _channel, (_test, _) in DEFECTS.items():
    globals()[f"Test{_channel.__name__}"] = _trial(_channel, _test)

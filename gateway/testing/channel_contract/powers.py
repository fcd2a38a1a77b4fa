"""Tests of the powers: a channel has every declared capability."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Attachment,
    CanAnswer,
    CanAskAgain,
    CanEdit,
    CanFetch,
    CanLookUp,
    CanOrder,
    CanPoll,
    CanRegister,
    CanShowCommands,
    CanStream,
    CanType,
    Channel,
    Event,
    Message,
    MissingSetting,
    Reply,
    SendError,
    SharesWebhook,
    Unavailable,
    Undeliverable,
    Way,
    WebhookRequest,
)
from channels.catalogue import load, names
from gateway.testing.channel_contract.case import ChannelCase
from gateway.testing.channel_contract.helpers import (
    Chat,
    Contract,
    any_input,
    check_event,
    make_channel,
    settings_of,
    with_proof,
    without_io,
)

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_NO_FILES = (
    "",
    "nothing",
    "geo:1,2",
    "file:///etc/passwd",
    "http://169.254.169.254/latest",
    "https://evil.example/x",
    "http://[",
)
_NO_HANDLES = ("", "nothing", "http://[", "https://evil.example/x", "9" * 5_000, "\udcff", "../x")
_POLL_SECONDS = 10.0
_TEXT = st.text(st.characters(categories=None), max_size=30)


class PowersContract(Contract):
    async def test_its_name_is_the_catalogues(self, case: ChannelCase) -> None:
        name = case.channel.name
        assert _NAME.fullmatch(name), "it is written before a colon, and in URLs"
        assert case.address.channel == name
        assert name not in names() or issubclass(case.channel, load(name))

    async def test_capabilities_match_the_powers(self, case: ChannelCase, channel: Channel) -> None:
        says = channel.capabilities
        assert says.max_text > 0
        assert (says.button_label > 0) == (says.buttons > 0)
        assert isinstance(channel, CanType) == says.typing
        assert isinstance(channel, CanStream) == says.stream
        assert says.edit or not isinstance(channel, CanEdit)
        assert isinstance(channel, CanOrder) == (says.bare_yes == "ordered")
        assert says.visible == (case.platform is None), "what no platform shows is read from the visible log"
        assert isinstance(channel, CanFetch) == (case.keeps is not None), "give the case `keeps`"
        assert isinstance(channel, CanAnswer) == (case.handle is not None), "give the case `handle`"
        assert isinstance(channel, CanPoll) == (case.writes is not None), "give the case `writes`"

    async def test_a_setting_that_is_missing_is_named(self, case: ChannelCase, channel: Channel) -> None:
        ways: list[Way] = ["webhook"] if case.webhook else []
        ways += ["polling"] if isinstance(channel, CanPoll) else []
        for way in ways:
            case.channel.from_settings(case.settings, way=way)
            for setting in settings_of(case.channel):
                given_ = {name: value for name, value in case.settings.items() if name != setting.name}
                if way not in setting.needed_for:
                    case.channel.from_settings(given_, way=way)
                    continue
                for absent in (given_, {**given_, setting.name: ""}):
                    with pytest.raises(MissingSetting) as caught:
                        case.channel.from_settings(absent, way=way)
                    assert caught.value.setting == setting.name
                    assert caught.value.mend
                    assert not any(value in str(caught.value) for value in given_.values() if len(value) >= 8)

    async def test_a_platform_that_is_away_at_the_start_is_said(self, case: ChannelCase, chat: Chat) -> None:
        if case.platform is None:
            return
        await case.platform.fail("away")
        async with aiohttp.ClientSession() as http:
            with pytest.raises(SendError):
                await make_channel(case).start(http)

    async def test_send_before_start_or_after_close_is_unavailable(self, case: ChannelCase, channel: Channel) -> None:
        """Before the start and after the close, `send` raises Unavailable: no message is lost. A start can be repeated,
        as in a retry after a failure."""
        if case.platform is None:
            return
        [part] = channel.render(case.address, Reply(text="hello"))
        early = make_channel(case)
        with pytest.raises(Unavailable):
            await early.send(case.address, part, key="k" * 32)
        async with aiohttp.ClientSession() as http:
            for _ in range(2):
                await early.start(http)
            assert (await early.send(case.address, part, key="k" * 32)).message_id
            await early.close()
        with pytest.raises(Unavailable):
            await early.send(case.address, part, key="k" * 32)

    async def test_typing_raises_only_errors_of_sending(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanType):
            return
        if case.platform is None:
            with without_io("typing without a platform"):
                await channel.typing(case.address)
            return
        calls = case.platform.calls
        await channel.typing(case.address)
        assert case.platform.calls > calls
        await case.platform.fail("away")
        with contextlib.suppress(SendError):
            await channel.typing(case.address)

    async def test_an_edit_by_itself_shows_a_part_in_place(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanEdit):
            return
        [receipt] = await chat.say("one")
        before = len(chat.arrived())
        [part] = chat.render(Reply(text="two"))
        assert receipt.message_id is not None
        await channel.edit(case.address, receipt.message_id, part)
        await channel.edit(case.address, receipt.message_id, part)
        shown = chat.arrived()
        assert (len(shown), shown[-1].text, shown[-1].message_id) == (before, "two", receipt.message_id)

    async def test_a_growing_text_ends_as_the_answer(self, case: ChannelCase, channel: Channel, chat: Chat) -> None:
        if not isinstance(channel, CanStream):
            return
        before = len(chat.arrived())
        handle = await channel.stream(case.address)
        for text in ("One", "One **two", "One **two** three"):
            await handle.update(text)
            assert not any("**" in each.text for each in chat.arrived()[before:]), "open markup shows no raw signs"
        message_ids = tuple(handle.message_ids)
        assert [each.message_id for each in chat.arrived()[before:]] == [*message_ids]
        assert handle.interval_seconds > 0
        for message_id in message_ids:
            for _ in range(2):  # the second time is that of a process that does not know of the first
                again = await channel.stream(case.address, message_ids=[message_id])
                [receipt] = await again.finish([*chat.render(Reply(text="Done."))])
                assert receipt.message_id == message_id
        assert [each.text for each in chat.arrived()[before:]] == ["Done."] * len(message_ids)

    async def test_a_growing_text_is_taken_away(self, case: ChannelCase, channel: Channel, chat: Chat) -> None:
        if not isinstance(channel, CanStream):
            return
        before = len(chat.arrived())
        handle = await channel.stream(case.address)
        await handle.update("Let me look.")
        again = await channel.stream(case.address, message_ids=handle.message_ids)
        for _ in range(2):
            assert not await again.finish([])
        assert len(chat.arrived()) == before
        if handle.message_ids:
            with pytest.raises(Undeliverable):
                await again.finish([*chat.render(Reply(text="Done."))])

    async def test_stream_update_raises_an_error_of_sending(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanStream) or case.platform is None:
            return
        handle = await channel.stream(case.address)
        await case.platform.fail("away")
        with pytest.raises(SendError):
            await handle.update("One")
        assert not handle.message_ids

    async def test_fetch_returns_a_persons_file_and_no_other(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanFetch) or case.keeps is None:
            return
        content = bytes(range(256)) * 1_000
        attachment = await asyncio.to_thread(case.keeps, content)  # it may write a file
        assert await fetch_all(channel, attachment) == content
        for ref in _NO_FILES:
            with pytest.raises(Undeliverable):
                await fetch_all(channel, Attachment(kind="document", ref=ref))
        if case.platform is not None:
            await case.platform.fail("away")
            with pytest.raises(SendError):
                await fetch_all(channel, attachment)

    async def test_a_press_is_answered_and_never_raises(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanAnswer) or case.handle is None or case.platform is None:
            return
        handle, calls = case.handle(), case.platform.calls
        await channel.answer(handle, "This is not yours to answer. " * 50, private=True)
        assert case.platform.calls > calls
        for odd in _NO_HANDLES:
            await channel.answer(odd, "x", private=True)
        await case.platform.fail("away")
        await channel.answer(handle, "x", private=True)

    async def test_polled_event_counts_as_stored_at_the_next_poll(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanPoll) or case.writes is None:
            return
        await case.writes("one")
        async with asyncio.timeout(_POLL_SECONDS):
            first = await first_polled(channel.poll())
            polling = channel.poll()
            assert await anext(polling) == first, "whoever died before it was stored gets it again"
            await case.writes("two")
            await anext(polling)
            await close_polling(polling)
            last = await first_polled(channel.poll())
        assert [text_of(event) for event in (*first, *last)] == ["one", "two"]
        for event in (*first, *last):
            check_event(channel, event)

    async def test_look_up_finds_a_sent_message_and_no_other(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanLookUp):
            return
        since = datetime.now(UTC) - timedelta(minutes=1)
        parts = {each * 32: chat.render(Reply(text=f"hello {each}"))[0] for each in "abc"}
        *sent, lost = parts
        receipts = {key: await chat.send(parts[key], key=key) for key in sent}
        for key, receipt in receipts.items():
            assert await channel.look_up(case.address, parts[key], key=key, since=since) == receipt
        assert await channel.look_up(case.address, parts[lost], key=lost, since=since) is None

    async def test_polling_ends_when_it_is_cancelled(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanPoll) or case.platform is None:
            return
        calls = case.platform.calls
        waiting = asyncio.ensure_future(anext(channel.poll()))
        async with asyncio.timeout(_POLL_SECONDS):
            while case.platform.calls == calls:
                await asyncio.sleep(0.005)
        assert not waiting.done(), "nothing was written"
        waiting.cancel()
        done, _ = await asyncio.wait([waiting], timeout=2)
        assert done
        assert waiting.cancelled()

    async def test_the_webhook_is_registered_and_taken_away(self, channel: Channel) -> None:
        if not isinstance(channel, CanRegister):
            return
        url = f"https://bot.example/webhooks/{channel.name}"
        await channel.register(url)
        assert await channel.registered() == url
        await channel.unregister()
        assert await channel.registered() is None

    async def test_ask_again_answers_200_with_escaped_text(self, channel: Channel) -> None:
        if not isinstance(channel, CanAskAgain):
            return
        with without_io("ask_again"):
            answers = [channel.ask_again(text) for text in ("Send it again.", "ñ <b> & 🧾 ]]>", "")]
        assert [answer.status for answer in answers] == [200, 200, 200], "an error would say the same to nobody"
        assert b"Send it again." in answers[0].body
        assert b"<b>" not in answers[1].body

    async def test_the_menu_of_commands_is_shown(self, case: ChannelCase, channel: Channel) -> None:
        if not isinstance(channel, CanShowCommands) or case.platform is None:
            return
        calls = case.platform.calls
        await channel.set_commands({"": {"help": "What I can do"}, "es": {"help": "Qué puedo hacer"}})
        assert case.platform.calls > calls

    @any_input
    @given(of=st.integers(0, 999), headers=st.dictionaries(_TEXT, _TEXT, max_size=3), url=_TEXT, body=st.binary())
    async def test_of_a_shared_url_it_takes_its_own(
        self, case: ChannelCase, channel: Channel, of: int, headers: dict[str, str], url: str, body: bytes
    ) -> None:
        """`takes` is called before any proof is checked. Any bytes must be accepted without an error."""
        if not isinstance(channel, SharesWebhook) or case.webhook is None:
            return
        own = with_proof(case.webhook, case.webhook.deliveries[of % len(case.webhook.deliveries)].request)
        assert channel.takes(own)
        assert any(own.url.partition("?")[0].endswith(f"/webhooks/{name}") for name in channel.webhooks)
        for odd in ({**own.headers, **headers}, headers):
            assert channel.takes(WebhookRequest("POST", url, odd, body)) in (True, False)


async def fetch_all(channel: CanFetch, attachment: Attachment) -> bytes:
    return b"".join([piece async for piece in channel.fetch(attachment)])


async def first_polled(polling: AsyncIterator[tuple[Event, ...]]) -> tuple[Event, ...]:
    """Return the first events, and end the polling."""
    events = await anext(polling)
    await close_polling(polling)
    return events


async def close_polling(polling: Any) -> None:
    """Close a generator; drop any other iterator."""
    if hasattr(polling, "aclose"):
        await polling.aclose()


def text_of(event: Event) -> str:
    assert isinstance(event, Message)
    return event.text

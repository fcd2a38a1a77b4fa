"""The inbox requires a person in each event, and warns of unknown fields in the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from channels import ButtonPress, Event, Message, MessageEdited, Parsed, WebhookResponse
from gateway.engine.intake.inbox import Inbox
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig

pytestmark = pytest.mark.both_stores

HELLO = message("ana", "hello")


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(Invoices().bot(), tmp_path) as chat:
        yield chat


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_an_unknown_field_is_warned_of_once(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await chat.says("ana", "hello")
    await chat.says("ana", "hello", unknown_fields=("hologram",))
    await chat.says("bob", "hello", unknown_fields=("hologram", "blocks.wobbling"))
    told = "that this release does not know: words beside it are not taken for a yes; upgrade Askfirst"
    assert warned(caplog) == [
        f"test: messages carry a field 'hologram' {told}",
        f"test: messages carry a field 'blocks.wobbling' {told}",
    ]


async def test_the_warnings_of_unknown_fields_are_bounded(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        await chat.says("ana", "hello", unknown_fields=tuple(f"{number}/{each}" + "x" * 10_000 for each in range(100)))
    assert len(warned(caplog)) == 100
    assert max(map(len, warned(caplog))) < 300


@pytest.mark.parametrize(
    "event",
    [
        HELLO,
        ButtonPress(event_ids=("1",), address=here("#news"), person=None, token="00" + "A" * 22),
        MessageEdited(event_ids=("1",), address=here("#news"), person=None, message_id="1", text="yes"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_event_without_a_person_is_not_accepted(chat: Rig, event: Event) -> None:
    """A post in a channel, say: nobody on the allow-list wrote it."""
    inbox = Inbox(chat.worker.context, chat.worker.decisions)
    nobodys = replace(event, person=None, address=here("#news"))
    await inbox.accept(chat.platform, Parsed(events=(nobodys,), response=WebhookResponse()))
    await chat.worker.context.tasks.ended()
    assert chat.wire.calls["accept"] == 0
    somebodys = replace(nobodys, person=HELLO.person)
    if isinstance(somebodys, Message):
        somebodys = replace(somebodys, mentions_bot=True)
    if isinstance(somebodys, MessageEdited):  # an edit of a message that was for the bot
        await chat.says("ana", "hello", place="#news", message_id="1")
        chat.wire.calls.clear()
    await inbox.accept(chat.platform, Parsed(events=(somebodys,), response=WebhookResponse()))
    assert chat.wire.calls["accept"] == 1

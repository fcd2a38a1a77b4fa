"""The engine looks for a reply in doubt; else the reply is sent again with a note, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Ambiguous, Part, Receipt, Reply, Unavailable, Unreachable
from channels.channel import Pace
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, here, message, rig

NOTE = say("may_be_duplicate", "en")
LOST = Ambiguous("timeout")


class Library(Platform):
    """A platform with a look-up of messages by text."""

    silent = 0
    """The number of the next look-ups to fail."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self.looked = 0

    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        self.looked += 1
        if self.silent:
            self.silent -= 1
            raise Unavailable("503")
        shown = [number for number, (_, each) in enumerate(self.sent, 1) if each.arguments == part.arguments]
        return Receipt(message_id=str(shown[-1])) if shown else None


def taken() -> asyncio.Event:
    """Let the platform show the message."""
    event = asyncio.Event()
    event.set()
    return event


async def deliver(chat: Rig, times: int = 6) -> None:
    """Send until no work is left, through every postponement."""
    for _ in range(times):
        await chat.turns()
        await chat.advance(20)


# ── without a look-up ──


def down() -> Unavailable:
    return Unavailable("502")


@pytest.mark.parametrize(
    ("texts", "will", "shown", "dead"),
    [
        pytest.param("one two", [LOST], [NOTE, "one", "two"], [], id="sent once more with a note"),
        pytest.param("one two three", [taken(), LOST], ["one", NOTE, "two", "three"], [], id="a later part of a lease"),
        pytest.param("one two", [LOST, taken(), LOST], [NOTE, "two"], ["it may have been sent"], id="twice in doubt"),
        pytest.param("one", [LOST, down(), taken(), down(), down()], [NOTE, "one"], [], id="a note despite outages"),
        pytest.param("one", [LOST, LOST], ["one"], [], id="a note that may have been sent"),
        pytest.param("one", [LOST, Unreachable("blocked")], [], ["not deliverable: blocked"], id="to a blocked chat"),
    ],
)
async def test_reply_in_doubt_is_sent_once_more_or_put_aside(
    chat: Rig, texts: str, will: list[Any], shown: list[str], dead: list[str]
) -> None:
    await chat.notify(*texts.split())
    chat.platform.will = [*will]
    await deliver(chat, 8)
    assert (chat.platform.texts(), await chat.dead()) == (shown, dead)


async def test_duplicate_note_is_in_the_persons_language(chat: Rig) -> None:
    hello = message("ana", "hola")
    assert hello.person is not None
    await chat.take(replace(hello, person=replace(hello.person, language="es")))
    chat.platform.will = [LOST]
    await deliver(chat)
    assert chat.platform.texts() == [say("may_be_duplicate", "es"), "You said: hola"]


async def test_duplicate_note_keeps_the_pace(tmp_path: Path) -> None:
    async with rig(Invoices().bot(), tmp_path, pace=Pace(group_per_minute=1.0)) as chat:
        await chat.worker.engine.runtime.notify(here("#team"), Reply(text="one"))
        chat.platform.will = [LOST]
        await chat.retries(12, every=61)
        assert chat.platform.texts("#team") == [NOTE, "one"]


async def test_replayed_reply_is_sent_without_a_note(chat: Rig) -> None:
    await chat.notify("one")
    chat.platform.will = [LOST, taken(), LOST]
    await deliver(chat)
    (letter,) = await chat.store.dead_letters()
    assert await chat.store.replay(letter.dead_id)
    chat.platform.will = [Unavailable("502")]
    await deliver(chat)
    assert chat.platform.texts() == [NOTE, "one"]


@pytest.mark.parametrize("dies", [False, True])
async def test_reply_in_doubt_is_dropped_if_the_bot_says_drop(tmp_path: Path, dies: bool) -> None:
    async with rig(Invoices().bot(in_doubt="drop"), tmp_path) as chat:
        await chat.notify("one", "two")
        if dies:
            await chat.worker.lease("out", lease_seconds=0.0)
        else:
            chat.platform.will = [LOST]
        await deliver(chat)
        assert (chat.platform.texts(), await chat.dead()) == (["two"], ["it may have been sent"])


async def test_question_and_edit_in_doubt_are_sent_even_with_drop(tmp_path: Path) -> None:
    async with rig(Invoices().bot(in_doubt="drop"), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        chat.platform.will = [LOST, LOST]
        await deliver(chat)
        assert [part.call for _, part in chat.platform.sent] == ["show"]
        await chat.says("ana", "/stop")
        chat.platform.will = [taken(), LOST, LOST]
        await deliver(chat)
        assert [part.call for _, part in chat.platform.sent] == ["show", "show", "edit"]
        assert await chat.dead() == []


# ── with a look-up ──


@pytest.fixture(params=["repeat", "drop"])
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(Invoices().bot(in_doubt=request.param), tmp_path, Library()) as chat:
        yield chat


async def test_reply_missing_on_look_up_is_sent_again_without_a_note(library: Rig) -> None:
    await library.notify("one", "two")
    library.platform.will = [LOST, LOST, LOST]
    await deliver(library)
    assert library.platform.texts() == ["one", "two"]
    assert await library.dead() == []


async def test_reply_found_on_look_up_is_not_sent_again(library: Rig) -> None:
    await library.notify("one", "two")
    show = Part(call="show", arguments={"text": "one"})
    library.platform.sent.append(("ana", show))
    library.platform.will = [LOST]
    await deliver(library)
    assert library.platform.texts() == ["one", "two"]


async def test_failed_look_up_is_repeated_later(library: Rig) -> None:
    platform: Any = library.platform
    await library.notify("one")
    platform.silent = 1
    platform.will = [LOST]
    await deliver(library)
    assert (platform.texts(), platform.looked) == (["one"], 2)


async def test_reply_that_cannot_be_looked_up_is_resent_with_a_note(tmp_path: Path) -> None:
    library = Library()
    async with rig(Invoices().bot(), tmp_path, library) as chat:
        await chat.notify("one")
        library.silent = 9
        library.will = [LOST]
        await deliver(chat)
        assert library.texts() == [NOTE, "one"]


async def test_look_up_does_not_match_an_earlier_equal_reply(tmp_path: Path) -> None:
    """The platform keeps no key, and an equal reply was sent before."""
    library = Library(reports=True)
    async with rig(Invoices().bot(), tmp_path, library) as chat:
        await chat.notify("the same", "the same")
        library.will = [taken(), LOST]
        await deliver(chat)
        assert library.texts() == ["the same", "the same"]

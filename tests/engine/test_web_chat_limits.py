"""The web chat is one place: visitors take no turn and no room from the people of platforms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from channels import Address, Media, Message, Parsed, Person, WebhookResponse
from channels.webchat import SESSION_SECONDS, Session, SessionCookies, WebChatChannel
from gateway.access.reached import TOLD_SECONDS, ReachedLimits, reached_limits
from gateway.access.sessions import ChatSessions, end_all_sessions
from gateway.artifacts import Artifact, NotKept
from gateway.config.limits import Limits, Share
from gateway.engine.turns.shares import TurnShares
from gateway.operations.operator import Operator
from gateway.store.base import Store
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, Worker, rig, until
from tests.engine.test_limits import report

pytestmark = pytest.mark.both_stores

MIB = 1024**2
PAGE = WebChatChannel(keys=[b"k" * 32], hosts=["localhost"])


def visitor(number: int, text: str) -> Message:
    """Return a message of a separate session."""
    place = f"{number:022}"
    return Message(
        event_ids=(f"{place}:{text}",),
        address=Address(channel="webchat", account="local", place=place),
        person=Person(channel="webchat", account="local", user_id=place),
        message_id=f"m{number}",
        text=text,
    )


def beside(chat: Rig, limits: Limits, *, alone: bool = False) -> Worker:
    """Return a process serving the page, beside the platform or alone."""
    channels = {PAGE.name: PAGE} if alone else {PAGE.name: PAGE, Platform.name: chat.platform}
    return Worker(chat.bot, chat.wire, channels, chat.files, limits=limits)


async def write(worker: Worker, *messages: Message) -> None:
    for each in messages:
        await worker.engine.inbox.accept(PAGE, Parsed(events=(each,), response=WebhookResponse()))


# ── turns ──


async def test_person_of_a_platform_is_answered_while_sessions_hold(chat: Rig, invoices: Invoices) -> None:
    """200 sessions hold a model without an answer."""
    worker = beside(chat, Limits(turns=Share(8, 32, 64)))
    await write(worker, *[visitor(number, "wait") for number in range(200)])
    worker.engine.start()
    await until(lambda: len(invoices.model.requests) == 32)
    await chat.says("ana", "hello")
    await until(lambda: chat.platform.texts("ana") == ["You said: hello"])
    assert len(invoices.model.requests) == 32 + 1
    async with asyncio.timeout(60):
        while "turns of the web chat" not in (reached := await reached_limits(chat.store)):
            await asyncio.sleep(0.01)
    assert reached["turns of the web chat"]["limit"] == "turns=8/32/64"
    invoices.model.let_go.set()
    await worker.engine.stop()
    for _ in range(200):
        if len(invoices.model.requests) == 200 + 1:
            break
        await chat.advance(3)
        async with asyncio.timeout(60):
            while (lease := await chat.store.lease("w", ["turn"])) is not None:
                await worker.turn_of(lease)
    assert len(invoices.model.requests) == 200 + 1, "the others have waited, and nothing is lost"


async def test_web_chat_alone_may_take_all_turns(chat: Rig, invoices: Invoices) -> None:
    worker = beside(chat, Limits(turns=Share(8, 4, 10)), alone=True)
    await write(worker, *[visitor(number, "wait") for number in range(12)])
    worker.engine.start()
    await until(lambda: len(invoices.model.requests) == 10)
    invoices.model.let_go.set()
    await until(lambda: len(invoices.model.requests) == 12)
    await worker.engine.stop()


@pytest.mark.parametrize(("share", "most"), [("8/32/64", 32), ("8/60/64", 32), ("8/-/64", 32), ("8/4/64", 4)])
async def test_web_chat_has_at_most_half_of_the_turns(share: str, most: int) -> None:
    shares, begun = TurnShares(Limits.parse(f"turns={share}").turns, ["telegram", "webchat"]), 0
    with ExitStack() as running:
        while not running.enter_context(shares.of_place(f"agent/webchat:local:{begun}")):
            begun += 1
        assert begun == most
        assert not running.enter_context(shares.of_place("agent/telegram:1:2"))
    with shares.of_place("agent/webchat:local:x") as wait:
        assert not wait


async def test_the_more_wait_the_later_each_is_looked_at_again() -> None:
    """Thousands of waiting conversations are no load: 64 conversations are leased again in a second."""
    shares = TurnShares(Share(None, 1, 64), ["telegram", "webchat"])
    with shares.of_place("agent/webchat:local:0"):
        waits = []
        for _ in range(640):
            with shares.of_place("agent/webchat:local:1") as wait:
                waits.append(wait)
    assert 1.9 < waits[0] <= 2.0
    assert 11.5 < waits[-1] < 12.5


# ── files ──


@pytest.fixture
async def bounded(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    async with rig(invoices.bot(), tmp_path, limits=Limits(files=Share(1, 2, 3))) as chat:
        yield chat


def upload(number: int) -> Artifact:
    return report(number, MIB)


async def test_uploads_take_no_room_of_files_of_tools(bounded: Rig) -> None:
    files = bounded.worker.context.files
    for number in range(2):
        await files.charge_upload(f"webchat:local:{number}", MIB)
    for number in range(2, 8):
        with pytest.raises(NotKept):
            await files.charge_upload(f"webchat:local:{number}", MIB)
    await files.keep(report(9, MIB), "webchat:local:9")
    await files.keep_sent(report(10, MIB), "test:bot:ana")
    await bounded.worker.context.tasks.ended()
    assert [*await reached_limits(bounded.store)] == ["uploads that no message names"]
    await bounded.advance(3601)
    await files.charge_upload("webchat:local:8", MIB)


async def test_upload_counts_once_a_message_names_it(bounded: Rig) -> None:
    context = bounded.worker.context
    kept: list[Media] = [await context.artifacts.keep_unnamed(upload(number)) for number in range(3)]
    for _ in range(2):
        for number in range(2):
            await context.files.keep_upload(kept[number], f"webchat:local:{number}")
    with pytest.raises(NotKept):
        await context.files.keep_upload(kept[2], "webchat:local:2")
    await context.files.keep_sent(upload(0), "webchat:local:0")  # by the turn: it counts already
    with pytest.raises(NotKept):
        await context.files.keep_sent(upload(2), "webchat:local:2")
    await context.files.keep_sent(upload(3), "test:bot:ana")  # the rest is for the people of platforms
    await context.artifacts.sweep(datetime.now(UTC) + timedelta(hours=1))
    assert await context.artifacts.names() == {upload(number).sha256 for number in (0, 1, 3)}
    await context.tasks.ended()
    assert [*await reached_limits(bounded.store)] == ["files of people"]


async def test_upload_counts_once_however_many_keep_it_at_once(bounded: Rig) -> None:
    """The keepers: the request of the message, the page's second try, and the turn."""
    context, person = bounded.worker.context, "webchat:local:0"
    media = await context.artifacts.keep_unnamed(upload(0))
    await asyncio.gather(
        context.files.keep_upload(media, person),
        context.files.keep_upload(media, person),
        context.files.keep_sent(upload(0), person),
    )
    await context.files.keep_sent(upload(1), "webchat:local:1")


async def test_person_at_their_own_limit_is_no_limit_of_all(bounded: Rig) -> None:
    files = bounded.worker.context.files
    await files.keep(report(1, MIB), "test:bot:ana")
    for _ in range(3):
        with pytest.raises(NotKept):
            await files.keep(report(2, MIB), "test:bot:ana")
    await files.keep(report(3, MIB), "test:bot:bob")
    await files.keep(report(4, MIB), "test:bot:eve")
    await bounded.worker.context.tasks.ended()
    assert not await reached_limits(bounded.store)
    with pytest.raises(NotKept):
        await files.keep(report(5, MIB), "test:bot:vera")
    await bounded.worker.context.tasks.ended()
    context = bounded.worker.context
    operator = Operator(bounded.store, context.channels, context.keyring, bot="agent")
    told = (await operator.waiting())["limits_reached"]
    assert isinstance(told, dict) and [*told] == ["files of tools"]
    await bounded.advance(TOLD_SECONDS + 1)
    assert not (await operator.waiting())["limits_reached"]


# ── sessions ──


def sessions(store: Store) -> ChatSessions:
    """Sessions without a limit."""

    def start(work: object, name: str) -> None:
        raise AssertionError(name)

    return ChatSessions(store, Share(), ReachedLimits(store, start))


def begun(at: datetime, number: int = 0) -> Session:
    return SessionCookies([b"k" * 32]).begin(at, lambda size: bytes([number]) * size)


async def test_new_sessions_a_minute_are_bounded(chat: Rig) -> None:
    context = chat.worker.context
    found = ChatSessions(chat.store, Share(None, None, 3), context.reached)
    assert [await found.begin() for _ in range(3)] == [0, 0, 0]
    assert 0 < await found.begin() <= 20
    await context.tasks.ended()
    assert (await reached_limits(chat.store))["new sessions of the web chat"]["limit"] == "sessions=-/-/3"
    await chat.advance(21)
    assert await found.begin() == 0
    assert not [wait for _ in range(100) if (wait := await sessions(chat.store).begin())]


async def test_session_is_ended_as_long_as_it_could_last(chat: Rig) -> None:
    now, found = await chat.store.now(), sessions(chat.store)
    mine, yours = begun(now), begun(now, 1)
    await found.end(mine.session_id)
    assert [await found.has_ended(each) for each in (mine, yours)] == [True, False]
    await chat.advance(SESSION_SECONDS - 60)
    assert await found.has_ended(mine)


async def test_operator_ends_one_session_or_all(chat: Rig) -> None:
    context, now, found = chat.worker.context, await chat.store.now(), sessions(chat.store)
    operator = Operator(chat.store, context.channels, context.keyring, bot="agent")
    mine, yours = begun(now), begun(now, 1)
    await operator.end_sessions(f"webchat:local:{mine.session_id}")
    assert [await found.has_ended(each) for each in (mine, yours)] == [True, False]
    await end_all_sessions(chat.store)
    assert await found.has_ended(yours)
    assert not await found.has_ended(begun(await chat.store.now() + timedelta(seconds=2), 2))

"""Forgetting a person: no byte of theirs is left in the store, and no byte of another's is missing.

The words of the person have the canary QUOKKA in them, and the words of another person KOALA, whose id begins in the
same way.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from channels import ButtonPress, Json, MessageEdited
from gateway import (
    Agent,
    AgentConfig,
    Approvers,
    Confirm,
    EntityMemory,
    KnowledgeMemory,
    Standing,
    StoreCache,
    ToolContext,
    assembly,
    emit_artifact,
    tool,
)
from gateway.channel_agent import ChannelAgent
from gateway.conversations import Conversations
from gateway.engine.event_bodies import event_body
from gateway.forgetting import NotForgotten
from gateway.operations.operator import Operator
from gateway.providers.base import ModelMessage, Request, Response, Usage
from gateway.providers.base import ToolCall as Call
from gateway.store.base import Store
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Incoming, QueuedPart
from gateway.stored import keys
from gateway.testing import ChatDriver
from gateway.testing.driver import _person, _place
from gateway.testing.faulty_store import FaultyStore, LostCall

WHO, OTHER, BOSS = "qk42", "qk421", "boss"
PERSON, OTHER_PERSON, BOSS_PERSON = (f"test:bot:{each}" for each in (WHO, OTHER, BOSS))
HOME, OTHER_HOME, GROUP = f"agent/{PERSON}", f"agent/{OTHER_PERSON}", "agent/test:bot:#team"
CANARY = re.compile(rb"qk42(?!1)|quokka", re.IGNORECASE)


class Model:
    """Calls the tool that a message names with JSON behind it, and repeats everything else."""

    name = "test"

    async def complete(self, request: Request) -> Response:
        usage = Usage(prompt_tokens=10, completion_tokens=5)
        last = request.messages[-1]
        text = next((each.content for each in reversed(request.messages) if each.role == "user"), "")
        if last.role == "tool" or not text.startswith("call "):
            return Response(content=f"Heard: {_newest(request.messages)}", usage=usage)
        _, name, args = text.split(" ", 2)
        call = Call(call_id=f"c{len(request.messages)}", name=name, args=json.loads(args))
        return Response(tool_calls=(call,), finish="tools", usage=usage)

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Nothing is held."""


class Reader(Model):
    """Finds one entity, named by the first long word."""

    async def complete(self, request: Request) -> Response:
        name = "Koala" if "koala" in str(request.messages).casefold() else "Quokka"
        return Response(content=json.dumps({"entities": [{"name": name, "type": "animal"}]}))


def _newest(messages: Any) -> str:
    found: ModelMessage = messages[-1]
    return found.content


def bot() -> ChannelAgent:
    @tool(confirm="Delete {what} for good?")
    async def delete(what: str) -> str:
        """Delete something."""
        return f"{what} is deleted"

    @tool(confirm=Confirm("Pay {what}?", standing=Standing(max_seconds=3600, max_uses=3, same=["what"])))
    async def pay(what: str) -> str:
        """Pay something."""
        return f"{what} is paid"

    @tool(confirm=Confirm("Fire {what}?", approvers=Approvers(people=[BOSS_PERSON])))
    async def fire(what: str) -> str:
        """Fire somebody."""
        return f"{what} is fired"

    @tool(confirm=Confirm("Hire {what}?", approvers=Approvers(people=[PERSON])))
    async def hire(what: str) -> str:
        """Hire somebody."""
        return f"{what} is hired"

    @tool(read_only=True)
    async def report(what: str) -> str:
        """Make a file."""
        emit_artifact(content=f"file of {what}".encode(), mime_type="text/plain", filename=f"{what}.txt")
        return f"made {what}"

    @tool(read_only=True)
    async def later(what: str, ctx: ToolContext) -> str:
        """Plan a further turn."""
        ctx.follow_up(what, after_seconds=36_000)
        return f"planned {what}"

    memory = EntityMemory(provider=Reader())
    config = AgentConfig(entity_memory=memory, knowledge_memory=KnowledgeMemory(), cache=StoreCache())
    agent = Agent([delete, pay, fire, hire, report, later], provider=Model(), config=config)
    return ChannelAgent(agent, group_context=5)


@pytest.fixture
def file(tmp_path: Path, kept_on: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the store, if it is one."""
    file = tmp_path / "askfirst.db"
    if kept_on == "sqlite":
        monkeypatch.setattr(assembly, "SqliteStore", lambda path: SqliteStore(str(file)))
    return file


@pytest.fixture
async def chat(file: Path) -> AsyncIterator[ChatDriver]:
    """Both people leave something of every kind in the store; then the engine stops."""
    async with ChatDriver(bot()) as chat:
        await everything(chat, WHO, "quokka")
        await everything(chat, OTHER, "koala")
        await chat.says(OTHER, 'call hire {"what": "koala-hired"}')
        await chat.presses(WHO, "Cancel")
        await chat.engine.stop()
        await plant(chat, WHO, "quokka")
        await plant(chat, OTHER, "koala")
        yield chat


@pytest.fixture
async def alone(file: Path) -> AsyncIterator[ChatDriver]:
    """Only the person is there."""
    async with ChatDriver(bot()) as chat:
        await everything(chat, WHO, "quokka")
        await chat.engine.stop()
        await plant(chat, WHO, "quokka")
        yield chat


def called(name: str, what: str) -> str:
    return f'call {name} {{"what": "{what}"}}'


async def everything(chat: ChatDriver, who: str, word: str) -> None:
    """One talks alone and in a group, asks, decides, plans, and makes files."""
    await chat.says(who, f"my {word}-secret")
    await chat.says(who, f'call remember {{"content": "likes the {word}", "persistent": true}}')
    await chat.says(who, called("report", f"{word}-report"))
    await chat.says(who, called("later", f"{word}-later"))
    await chat.says(who, called("delete", f"{word}-done"))
    await chat.presses(who, "Confirm")
    await chat.says(who, called("fire", f"{word}-approved"))
    await chat.presses(BOSS, "Confirm")
    await chat.says(who, called("fire", f"{word}-refused"))
    await chat.presses(BOSS, "Cancel")
    await chat.says(who, f"{word} overheard", group="team", mentions_bot=False)
    await chat.says(who, f"{word} in the team", group="team")
    await chat.says(who, f"{word} overheard again", group="team", mentions_bot=False)
    await chat.says(who, called("later", f"{word}-team-later"), group="team")
    await chat.says(who, called("delete", f"{word}-team-done"), group="team")
    await chat.presses(who, "Confirm")
    await chat.says(who, called("pay", f"{word}-team-paid"), group="team")
    await chat.presses(who, next(label for label in chat.last.tokens if label not in ("Confirm", "Cancel")))
    await chat.says(who, called("delete", f"{word}-team-open"), group="team")
    await chat.says(who, called("fire", f"{word}-open"))
    await chat.says(who, called("delete", f"{word}-open"))
    await chat.says(who, f"{word} overheard at last", group="team", mentions_bot=False)


async def plant(chat: ChatDriver, who: str, word: str) -> None:
    """What waits when the process is away: messages, edits, parts and dead letters, and what the platform refused."""
    context, home = chat.engine.context, f"agent/test:bot:{who}"
    store, now = context.store, await context.store.now()
    for place in (who, "#team"):
        conversation = f"agent/test:bot:{place}"
        edit = MessageEdited(
            event_ids=(f"edit {who} {place}",), address=_place(place), person=_person(who), message_id="1", text=word
        )
        press = ButtonPress(event_ids=("p",), address=_place(place), person=_person(who), token=word)
        bodies = [event_body(context.keyring, conversation, each, now) for each in (edit, press)]
        waiting = Incoming(conversation=conversation, event_ids=(f"test:bot:{who}/wait/{place}",), body=bodies[0])
        await store.accept([waiting])
        letter = Dead(
            dead_id=f"dead {word} {place}",
            conversation=conversation,
            reason="broken",
            incoming=Incoming(conversation=conversation, event_ids=("dead",), body=bodies[1]),
        )
        names = {
            keys.raw_results(conversation, "report"): Put([f"raw {word}"], 86_400),
            keys.budget_told(conversation, f"test:bot:{who}"): Put(1, 86_400),
        }
        if place == "#team":
            names = {name: put for name, put in names.items() if word == "quokka" or "raw" not in name}
        await store.commit(Transaction(partition=store.partition(conversation), puts=names, dead=[letter]))
    part = QueuedPart(part_id=f"part {word}", conversation=home, body={"text": f"{word} unsent"}, pool="test")
    platform = Dead(dead_id=f"raw {word}", conversation="-", reason="old", payload=f'{{"id": "{who}", "t": "{word}"}}')
    line: Json = {"what": "stranger", "person": f"test:bot:{who}", "at": now.isoformat(), "conversation": home}
    await store.commit(
        Transaction(partition=store.partition(home), parts=[part], appends=[(keys.SECURITY, line)], cancel=[])
    )
    await store.commit(Transaction(partition=store.partition("-"), dead=[platform]))
    known = [
        {"person": each, "name": each, "address": each, "language": "en", "at": ""} for each in (PERSON, OTHER_PERSON)
    ]
    sealed = context.keyring.seal(keys.NEWCOMERS, json.dumps(known))
    place = store.partition(keys.NEWCOMERS)
    await store.commit(Transaction(partition=place, puts={keys.NEWCOMERS: Put(sealed, 86_400)}))


async def stored(file: Path, url: str, prefix: str) -> bytes:
    """All bytes of the store."""
    if await asyncio.to_thread(file.exists):
        files = [each for each in (file, Path(f"{file}-wal")) if await asyncio.to_thread(each.exists)]
        return b"".join([await asyncio.to_thread(each.read_bytes) for each in files])
    found: list[bytes] = []
    async with Redis.from_url(url, driver_info=None) as redis:
        async for key in redis.scan_iter(f"{prefix}:*", count=1000):
            found += [key, *await values(redis, key)]
    return b"\n".join(found)


async def values(redis: Any, key: bytes) -> list[bytes]:
    """All values at a key."""
    match await redis.type(key):
        case b"string":
            return [await redis.get(key) or b""]
        case b"hash":
            return [each for pair in (await redis.hgetall(key)).items() for each in pair]
        case b"list":
            return cast("list[bytes]", await redis.lrange(key, 0, -1))
        case b"set":
            return [*await redis.smembers(key)]
        case b"zset":
            return cast("list[bytes]", await redis.zrange(key, 0, -1))
    return []


def conversations(chat: ChatDriver, store: Store | None = None) -> Conversations:
    context = chat.engine.context
    return Conversations(store or context.store, context.keyring, "agent", context.artifacts)


def canaries(found: bytes) -> list[bytes]:
    """What is left, with what is around it."""
    return [found[max(0, each.start() - 80) : each.end() + 60] for each in CANARY.finditer(found)]


async def files_of(chat: ChatDriver) -> set[str]:
    artifacts = chat.engine.context.artifacts
    names = await artifacts.names()
    return {await asyncio.to_thread((artifacts.directory / name).read_text) for name in names}


async def others_view(chat: ChatDriver) -> dict[str, Any]:
    """All that is kept of the other person and of the approver, but for what the person had a part in."""
    found = conversations(chat)
    exported: Any = await found.export(OTHER_PERSON)
    exported["conversations"][OTHER_HOME]["waiting"].pop(0)  # the news of the decision, which names who decided
    for place in (exported, *exported["conversations"].values()):
        place["actions"] = [each for each in place["actions"] if each["kind"] != "hire"]
    store = chat.engine.context.store
    log = keys.key(store, GROUP, keys.transcript)
    team = [shown for each in await store.read(log) if "koala" in (shown := without_person(each.value)).casefold()]
    waiting = [each.body for each in await store.mailbox(GROUP) if "koala" in str(each.body)]
    return {"export": exported, "team": team, "waiting": waiting, "timers": await other_timers(store)}


def without_person(line: Json) -> str:
    """The line of a note has a line of text for each message that went before."""
    return re.sub(r"\\nQk42: [^\\]*", "", json.dumps(line))


async def other_timers(store: Store) -> list[str]:
    return sorted(str(each) for each in await store.timers() if "koala" in str(each))


@pytest.mark.ledger("MEM-11")
async def test_no_byte_of_a_forgotten_person_is_left(chat: ChatDriver, file: Path, redis_url: str, prefix: str) -> None:
    assert canaries(await stored(file, redis_url, prefix))
    before, kept = await others_view(chat), await files_of(chat)
    assert {"file of quokka-report", "file of koala-report"} <= kept
    gone = await conversations(chat).forget(PERSON)
    assert {"records", "lines", "events", "parts", "timers", "dead letters", "counts", "files"} <= gone.keys()
    assert canaries(await stored(file, redis_url, prefix)) == []
    assert await files_of(chat) == kept - {"file of quokka-report"}
    assert await others_view(chat) == before
    exported: Any = await conversations(chat).export(OTHER_PERSON)
    news = exported["conversations"][OTHER_HOME]["waiting"][0]
    assert (news["tool"], news["reason"], news["by"]) == ("hire", "refused", None)
    assert await conversations(chat).forget(PERSON) == {}
    context = chat.engine.context
    operator = Operator(context.store, context.channels, context.keyring, bot="agent")
    assert (await operator.verify_audit())["faults"] == {}


PLANTED = (
    "quokka-secret",
    "likes the quokka",
    "Quokka",  # the entity
    "quokka-later",
    "quokka-done",
    "quokka-approved",
    "quokka-refused",
    "quokka overheard again",
    "quokka overheard at last",
    "quokka in the team",
    "quokka-team-later",
    "quokka-team-done",
    "quokka-team-paid",
    "quokka-team-open",
    "quokka-open",
    "raw quokka",
    "quokka unsent",
    "usage/month/2",
    f"person/{PERSON}",
    f"pseudonym/{PERSON}",
    f"budget_told/{PERSON}/{GROUP}",
    f"{PERSON}/wait/#team",
)


async def test_every_path_has_its_canary(chat: ChatDriver, file: Path, redis_url: str, prefix: str) -> None:
    found = await stored(file, redis_url, prefix)
    assert [each for each in PLANTED if each.encode() not in found] == []
    index = (await chat.engine.context.store.scan(keys.index(GROUP)))[0][1].value
    assert isinstance(index, dict)
    assert all(f'"{name}"' in str(index["body"]) for name in ("acted", "permissions"))
    kinds = {key.name.partition("/")[0] for key, _ in await chat.engine.context.store.scan("")}
    assert {"trace", "cached", "memory", "knowledge", "token", "people", "action", "open", "beside", "file"} <= kinds


async def test_a_killed_forgetting_is_completed(
    alone: ChatDriver, file: Path, redis_url: str, prefix: str, kept_on: str, tmp_path: Path
) -> None:
    """It is killed at each of its calls in turn: on SQLite each time from the beginning."""
    store, calls = alone.engine.context.store, 0
    if kept_on == "sqlite":
        await store.scrub()  # type: ignore[attr-defined]
    while True:
        calls += 1
        place, here = file, store
        if kept_on == "sqlite":
            place = tmp_path / f"copy {calls}.db"
            await asyncio.to_thread(place.write_bytes, await asyncio.to_thread(file.read_bytes))
            here = SqliteStore(place)
            await here.open()
        faulty = FaultyStore(here)
        faulty.calls_left, faulty.last_answer_lost = calls, calls % 2 == 0
        is_whole = True
        try:
            await conversations(alone, cast("Store", faulty)).forget(PERSON)
        except LostCall:
            is_whole = False
        if kept_on == "sqlite" or is_whole:
            await conversations(alone, here).forget(PERSON)
            assert canaries(await stored(place, redis_url, prefix)) == []
        if here is not store:
            await here.close()
            await asyncio.to_thread(place.unlink)
        if is_whole:
            break
    assert calls > 20


async def test_what_runs_is_not_forgotten(chat: ChatDriver) -> None:
    context = chat.engine.context
    lease = await context.store.lease("w", ["turn"], only=HOME)
    assert lease is not None
    with pytest.raises(NotForgotten, match=f"a turn of {HOME} runs"):
        await conversations(chat).forget(PERSON)
    await context.store.commit(Transaction(partition=lease.partition, lease=lease, finish="failed"))
    lane = await context.store.lease("w", ["turn"], only=GROUP)
    assert lane is not None
    with pytest.raises(NotForgotten, match="a turn of agent/test:bot:#team runs"):
        await conversations(chat).forget(PERSON)
    await context.store.commit(Transaction(partition=lane.partition, lease=lane, finish="failed"))
    with pytest.raises(NotForgotten, match="has failed and is tried again"):
        await conversations(chat).forget(PERSON)


async def test_running_actions_are_named(file: Path) -> None:
    async with ChatDriver(bot()) as chat:
        await chat.says(OTHER, called("hire", "koala"))
        with pytest.raises(NotForgotten, match=f"of another person needs {PERSON}"):
            await conversations(chat).forget(PERSON)
        assert (await conversations(chat).forget(OTHER_PERSON))["records"]
        assert "events" not in await conversations(chat).forget(PERSON)


async def test_an_opt_out_is_all_that_stays(chat: ChatDriver, file: Path, redis_url: str, prefix: str) -> None:
    store = chat.engine.context.store
    name = keys.opted_out(HOME)
    await store.commit(Transaction(partition=store.partition(HOME), puts={name: Put({"at": "then"})}))
    await conversations(chat).forget(PERSON)
    assert [key.name for key, _ in await store.scan("") if WHO in key.name.split(":")] == [name]
    left = (await stored(file, redis_url, prefix)).replace(name.encode(), b"")
    assert canaries(left) == []


async def test_a_conversation_is_forgotten_alone(chat: ChatDriver, file: Path, redis_url: str, prefix: str) -> None:
    assert (await conversations(chat).forget(GROUP))["lines"]
    found = await stored(file, redis_url, prefix)
    assert b"quokka-team" not in found and b"quokka in the team" not in found
    assert b"quokka-secret" in found
    assert await conversations(chat).list() == [f"agent/{BOSS_PERSON}", HOME, OTHER_HOME][1:]
    await conversations(chat).forget(HOME)
    assert b"quokka-secret" not in await stored(file, redis_url, prefix)
    assert await conversations(chat).forget(GROUP) == {}


@pytest.mark.parametrize("name", ["", "agent", "test:bot"])
async def test_other_words_are_refused(file: Path, name: str) -> None:
    async with ChatDriver(bot()) as chat:
        with pytest.raises(ValueError, match="not a person"):
            await conversations(chat).forget(name)


async def test_the_group_goes_on_after_it(file: Path) -> None:
    async with ChatDriver(bot()) as chat:
        await chat.says(WHO, "quokka in the team", group="team")
        await chat.says(OTHER, "koala in the team", group="team")
        await conversations(chat).forget(PERSON)
        model = cast("Any", chat.bot.agent.provider)
        read: list[Request] = []
        complete = model.complete

        async def recorded(request: Request) -> Response:
            read.append(request)
            return cast("Response", await complete(request))

        model.complete = recorded
        await chat.says(OTHER, "koala again", group="team")
        assert chat.last.text == "Heard: koala again"
        words = [each.content for each in read[-1].messages]
        assert words[-3:] == ["koala in the team", "Heard: koala in the team", "koala again"]
        assert {*words[:-3]} == {"(removed)"}

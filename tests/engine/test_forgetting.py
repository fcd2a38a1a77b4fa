"""Forgetting a person removes every byte of that person from the store, and no byte of another person.

The words of the person contain the canary QUOKKA, and the words of another person KOALA. The two ids begin alike.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis as SyncRedis
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
from gateway.engine.event_bodies import event_body
from gateway.observe.runs import run_id_of
from gateway.operations.operator import Operator
from gateway.pending.audit import Pseudonyms, is_pseudonym, people_by_pseudonym
from gateway.pending.seal import compute_digest
from gateway.privacy.conversations import Conversations
from gateway.privacy.scope import NotForgotten
from gateway.providers.base import ModelMessage, Request, Response, Usage
from gateway.providers.base import ToolCall as Call
from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Incoming, Key, QueuedPart
from gateway.stored import keys
from gateway.testing import ChatDriver
from gateway.testing.doubles import FaultyStore, LostCall
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices, Whole
from tests.engine.rig import here, person_of
from tests.stored import action_of

WHO, OTHER, BOSS = "qk42", "qk421", "boss"
PERSON, OTHER_PERSON, BOSS_PERSON = (f"test:bot:{each}" for each in (WHO, OTHER, BOSS))
HOME, OTHER_HOME, GROUP = f"agent/{PERSON}", f"agent/{OTHER_PERSON}", "agent/test:bot:#team"
CANARY = re.compile(rb"qk42(?!1)|quokka", re.IGNORECASE)


class Model(Whole):
    """Calls the tool named in a message with the JSON behind the name, and repeats every other message."""

    async def complete(self, request: Request) -> Response:
        usage = Usage(prompt_tokens=10, completion_tokens=5)
        last = request.messages[-1]
        text = next((each.content for each in reversed(request.messages) if each.role == "user"), "")
        if last.role == "tool" or not text.startswith("call "):
            return Response(content=f"Heard: {_newest(request.messages)}", usage=usage)
        _, name, args = text.split(" ", 2)
        call = Call(call_id=f"c{len(request.messages)}", name=name, args=json.loads(args))
        return Response(tool_calls=(call,), finish="tools", usage=usage)


class Reader(Model):
    """Finds one entity: Koala where the messages mention a koala, else Quokka."""

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
        """Fire a person."""
        return f"{what} is fired"

    @tool(confirm=Confirm("Hire {what}?", approvers=Approvers(people=[PERSON])))
    async def hire(what: str) -> str:
        """Hire a person."""
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
    """Return the path of the store's file; only SQLite writes a file."""
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
    """Talk alone and in a group, ask, decide, plan, and make files."""
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
    """Plant waiting messages, edits, parts and dead letters, as in an absence of the process, and platform refusals."""
    context, home = chat.engine.context, f"agent/test:bot:{who}"
    store, now = context.store, await context.store.now()
    for place in (who, "#team"):
        conversation = f"agent/test:bot:{place}"
        edit = MessageEdited(
            event_ids=(f"edit {who} {place}",), address=here(place), person=person_of(who), message_id="1", text=word
        )
        press = ButtonPress(event_ids=("p",), address=here(place), person=person_of(who), token=word)
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
    line: Json = {"what": "stranger", "person": f"test:bot:{who}", "at": now.isoformat(), "conversation": home}
    await store.commit(
        Transaction(partition=store.partition(home), parts=[part], appends=[(keys.SECURITY, line)], cancel=[])
    )
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
    """Return each canary left, with the surrounding bytes."""
    return [found[max(0, each.start() - 80) : each.end() + 60] for each in CANARY.finditer(found)]


async def files_of(chat: ChatDriver) -> set[str]:
    artifacts = chat.engine.context.artifacts
    names = await artifacts.names()
    return {await asyncio.to_thread((artifacts.directory / name).read_text) for name in names}


async def others_view(chat: ChatDriver) -> dict[str, Any]:
    """Return all data of the other person and of the approver, except data with a part of the person."""
    found = conversations(chat)
    exported: Any = await found.export(OTHER_PERSON)
    exported["conversations"][OTHER_HOME]["waiting"].pop(0)  # the news of the decision names the decider
    for place in (exported, *exported["conversations"].values()):
        place["actions"] = [each for each in place["actions"] if each["kind"] != "hire"]
    store = chat.engine.context.store
    log = keys.key(store, GROUP, keys.transcript)
    team = [shown for each in await store.read(log) if "koala" in (shown := without_person(each.value)).casefold()]
    waiting = [each.body for each in await store.mailbox(GROUP) if "koala" in str(each.body)]
    return {"export": exported, "team": team, "waiting": waiting, "timers": await other_timers(store)}


def without_person(line: Json) -> str:
    """Drop the person's line from a note, and the seal. A note has a line of text for each earlier message."""
    bare = {name: value for name, value in line.items() if name != "mac"} if isinstance(line, dict) else line
    return re.sub(r"\\nQk42: [^\\]*", "", json.dumps(bare))


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


async def test_every_stored_kind_holds_the_canary(chat: ChatDriver, file: Path, redis_url: str, prefix: str) -> None:
    found = await stored(file, redis_url, prefix)
    assert [each for each in PLANTED if each.encode() not in found] == []
    index = (await chat.engine.context.store.scan(keys.index(GROUP)))[0][1].value
    assert isinstance(index, dict)
    assert all(f'"{name}"' in str(index["body"]) for name in ("acted", "permissions"))
    kinds = {key.name.partition("/")[0] for key, _ in await chat.engine.context.store.scan("")}
    assert {"trace", "cached", "memory", "knowledge", "token", "people", "action", "open", "beside", "file"} <= kinds


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_killed_forgetting_is_completed(
    alone: ChatDriver, file: Path, redis_url: str, prefix: str, kept_on: str, tmp_path: Path, every: int
) -> None:
    """Forgetting is killed at every n-th call in turn: on SQLite each time from the beginning."""
    store, calls = alone.engine.context.store, 0
    if kept_on == "sqlite":
        await store.scrub()  # type: ignore[attr-defined]
    while True:
        calls += every
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


async def test_running_turn_prevents_forgetting(chat: ChatDriver) -> None:
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
async def test_forget_refuses_names_that_are_no_person(file: Path, name: str) -> None:
    async with ChatDriver(bot()) as chat:
        with pytest.raises(ValueError, match="not a person"):
            await conversations(chat).forget(name)


async def test_group_goes_on_after_forgetting(file: Path) -> None:
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


CLERK, MANAGER, STRANGER = "15550100001", "15550100002", "15550100003"
PEOPLE = [f"test:bot:{number}" for number in (CLERK, MANAGER, STRANGER)]
BEN = PEOPLE[1]


@pytest.fixture
async def approving(file: Path, invoices: Invoices) -> AsyncIterator[ChatDriver]:
    """A manager approves every question."""
    rule = Confirm("Delete invoice {invoice_id}?", approvers=Approvers(people=[BEN]))
    async with ChatDriver(invoices.bot(confirm=rule)) as chat:
        yield chat


def store_of(approving: ChatDriver) -> Store:
    return approving.engine.context.store


def operator(approving: ChatDriver) -> Operator:
    context = approving.engine.context
    return Operator(context.store, context.channels, context.keyring, bot=context.bot.name)


async def approved(approving: ChatDriver, invoice: str = "INV-1") -> None:
    """A clerk asks, a stranger tries to answer, and the manager says yes in the manager's own chat."""
    await approving.says(CLERK, f"delete {invoice}")
    await approving.presses(STRANGER, "Cancel")
    await approving.presses(MANAGER, "Confirm")


async def actions_of(store: Store) -> list[PendingAction]:
    return [action_of(record.value) for _, record in await store.scan("action/")]


async def lines_of(store: Store) -> list[dict[str, Any]]:
    found = [entry.value for partition in store.partitions for entry in await store.read(Key(partition, "audit"))]
    return [line for line in found if isinstance(line, dict)]


def stored_lines(file: Path, url: str, prefix: str) -> bytes:
    """Return the bytes of all lines of the audit, as kept in the store."""
    if file.exists():
        with closing(sqlite3.connect(file)) as db:
            rows = db.execute("SELECT CAST(value AS BLOB) FROM log WHERE log = 'audit'").fetchall()
            return b"\n".join(value for (value,) in rows)
    with SyncRedis.from_url(url) as redis:
        names = list(redis.scan_iter(f"{prefix}:*:log:audit", count=1000))
        return b"\n".join(line for name in names for line in redis.lrange(name, 0, -1))


def guesses(actions: Iterable[PendingAction], person: str, events: Sequence[str]) -> Iterator[str]:
    """Yield all texts comparable with a line, after a right guess of the person and all other data of the actions."""
    for action in actions:
        yield compute_digest(replace(action, salt=""))
        for joined in (person, f"{action.pending_action_id}/{person}", f"{person}/{action.pending_action_id}"):
            yield hashlib.sha256(joined.encode()).hexdigest()[:32]
        yield from (run_id_of(action.conversation, event) for event in events)
        yield action.run_id


async def test_after_forgetting_no_byte_tells_of_a_person(
    approving: ChatDriver, invoices: Invoices, file: Path, redis_url: str, prefix: str
) -> None:
    await approved(approving)
    store, keyring = store_of(approving), approving.engine.context.keyring
    assert invoices.deleted == ["INV-1"]
    assert set((await people_by_pseudonym(store)).values()) == set(PEOPLE)
    actions = await actions_of(store)
    assert {action.ballot_of is None for action in actions} == {True, False}
    assert all(action.run_id for action in actions)
    for person in PEOPLE:
        assert await conversations(approving).forget(person)
    assert await people_by_pseudonym(store) == {}
    verified, told = await operator(approving).verify_audit(), await operator(approving).audit()
    assert (verified["actions"], verified["faults"]) == (len(actions), {})
    assert len({line["person"] for line in told if line.get("forgotten")}) >= len(PEOPLE)
    await approving.__aexit__(None, None, None)

    kept = stored_lines(file, redis_url, prefix)
    assert kept.count(b'"head"') == verified["lines"]
    for number, person in zip((CLERK, MANAGER, STRANGER), PEOPLE, strict=True):
        assert number.encode() not in kept
        assert keyring.pseudonym(person).encode() not in kept
        for guess in guesses(actions, person, [f"message {number}" for number in range(9)]):
            assert guess.encode() not in kept


async def test_audit_line_holds_no_other_fields(approving: ChatDriver) -> None:
    """Each field is about no person, or made with random bits outside the line."""
    await approved(approving)
    lines, actions = await lines_of(store_of(approving)), await actions_of(store_of(approving))
    assert {tuple(line) for line in lines} == {("action", "what", "person", "at", "digest", "before", "head")}
    assert {line["digest"] for line in lines} == {action.digest for action in actions}
    assert {bool(action.salt) for action in actions if action.ballot_of is None} == {True}
    assert all(line["person"] is None or is_pseudonym(line["person"]) for line in lines)


async def test_forgetting_one_person_leaves_the_others(approving: ChatDriver) -> None:
    await approved(approving)
    store, ask = store_of(approving), operator(approving)
    whole = await ask.audit()
    assert [key.partition for key, _ in await store.scan(keys.pseudonym(BEN))] == sorted(
        {store.partition(f"agent/test:bot:{at}") for at in (CLERK, MANAGER)}
    )
    assert await conversations(approving).forget(BEN)
    assert await conversations(approving).forget(BEN) == {}
    told = await ask.audit()
    gone = [line for line in told if line.get("forgotten")]
    assert [line["head"] for line in gone] == [line["head"] for line in whole if line["person"] == BEN]
    assert {line["person"] for line in gone} == {line["pseudonym"] for line in gone}
    assert await ask.audit(person=BEN) == []
    pseudonym = str(gone[0]["pseudonym"])
    assert await ask.audit(person=pseudonym) == [line for line in gone if line["pseudonym"] == pseudonym]
    assert [line["what"] for line in await ask.audit(person=PEOPLE[2])] == ["not_allowed"]
    assert (await ask.verify_audit())["faults"] == {}


async def test_person_returning_after_forgetting_has_another_pseudonym(approving: ChatDriver) -> None:
    await approved(approving)
    ask = operator(approving)
    before = {line["pseudonym"] for line in await ask.audit(person=PEOPLE[0])}
    await conversations(approving).forget(PEOPLE[0])
    await approved(approving, "INV-2")
    after = {line["pseudonym"] for line in await ask.audit(person=PEOPLE[0])}
    assert after and not before & after


async def test_a_longer_name_is_another_person(approving: ChatDriver) -> None:
    store, longer = store_of(approving), f"{BEN}7"
    transaction = Transaction(partition=store.partition(""))
    named = await Pseudonyms(store).name([BEN, longer], transaction)
    await store.commit(transaction)
    assert await conversations(approving).forget(BEN) == {"records": 1}
    assert await people_by_pseudonym(store) == {named[longer]: longer}


async def test_two_first_uses_make_one_record(approving: ChatDriver) -> None:
    store = store_of(approving)
    one, other, later = (Transaction(partition=store.partition("")) for _ in range(3))
    [named] = (await Pseudonyms(store).name([BEN], one)).values()
    [unused] = (await Pseudonyms(store).name([BEN], other)).values()
    assert named != unused
    await store.commit(one)
    with pytest.raises(Conflict):
        await store.commit(other)
    assert await Pseudonyms(store).name([BEN], later) == {BEN: named}
    assert later.puts == {}
    assert await people_by_pseudonym(store) == {named: BEN}


async def test_no_line_is_written_with_a_key_just_deleted(approving: ChatDriver) -> None:
    store = store_of(approving)
    first, second = (Transaction(partition=store.partition("")) for _ in range(2))
    await Pseudonyms(store).name([BEN], first)
    await store.commit(first)
    await Pseudonyms(store).name([BEN], second)
    await conversations(approving).forget(BEN)
    with pytest.raises(Conflict):
        await store.commit(second)


@pytest.mark.parametrize(
    "broken",
    [None, 7, {}, {"person": BEN}, {"person": BEN, "key": "xyz"}, {"person": PEOPLE[0], "key": "0" * 64}],
    ids=str,
)
async def test_changed_pseudonym_record_names_no_person(approving: ChatDriver, broken: Json) -> None:
    await approved(approving)
    store, ask = store_of(approving), operator(approving)
    [line] = [line for line in await ask.audit(person=BEN) if line["what"] == "decided"]
    for key, _ in await store.scan(f"pseudonym/{BEN}"):
        await store.commit(Transaction(partition=key.partition, puts={key.name: Put(broken)}))
    assert next(each for each in await ask.audit() if each["head"] == line["head"])["forgotten"] is True
    await approved(approving, "INV-2")
    assert [each["what"] for each in await ask.audit(person=BEN) if each["what"] == "decided"] == ["decided"]

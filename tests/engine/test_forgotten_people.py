"""The people in the audit: named by pseudonyms, told by their records, and forgotten without them."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from redis import Redis

from channels import Json
from gateway import Approvers, Confirm, assembly
from gateway.observe.runs import run_id_of
from gateway.operations.operator import Operator
from gateway.pending import changes
from gateway.pending.audit import AuditLine, Noted
from gateway.pending.pseudonyms import Pseudonyms, forget_person, is_pseudonym, people_by_pseudonym
from gateway.pending.seal import compute_digest
from gateway.store.base import Store
from gateway.store.errors import Conflict
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.testing import ChatDriver
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices
from tests.stored import action_of

WHO, MANAGER, STRANGER = "15550100001", "15550100002", "15550100003"
PEOPLE = [f"test:bot:{number}" for number in (WHO, MANAGER, STRANGER)]
BEN = PEOPLE[1]


@pytest.fixture
def file(tmp_path: Path, kept_on: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the store, if it is one."""
    file = tmp_path / "askfirst.db"
    if kept_on == "sqlite":
        monkeypatch.setattr(assembly, "SqliteStore", lambda path: SqliteStore(str(file)))
    return file


@pytest.fixture
async def chat(file: Path, invoices: Invoices) -> AsyncIterator[ChatDriver]:
    """A manager approves what anybody asks."""
    rule = Confirm("Delete invoice {invoice_id}?", approvers=Approvers(people=[BEN]))
    async with ChatDriver(invoices.bot(confirm=rule)) as chat:
        yield chat


def store_of(chat: ChatDriver) -> Store:
    return chat.engine.context.store


def operator(chat: ChatDriver) -> Operator:
    context = chat.engine.context
    return Operator(context.store, context.channels, context.keyring, bot=context.bot.name)


async def approved(chat: ChatDriver, invoice: str = "INV-1") -> None:
    """One asks, another who may not tries to answer, and the manager says yes in their own chat."""
    await chat.says(WHO, f"delete {invoice}")
    await chat.presses(STRANGER, "Cancel")
    await chat.presses(MANAGER, "Confirm")


async def actions_of(store: Store) -> list[PendingAction]:
    return [action_of(record.value) for _, record in await store.scan("action/")]


async def lines_of(store: Store) -> list[dict[str, Any]]:
    found = [entry.value for partition in store.partitions for entry in await store.read(Key(partition, "audit"))]
    return [line for line in found if isinstance(line, dict)]


def stored_lines(file: Path, url: str, prefix: str) -> bytes:
    """The bytes of all lines of the audit, as the store keeps them."""
    if file.exists():
        with closing(sqlite3.connect(file)) as db:
            rows = db.execute("SELECT CAST(value AS BLOB) FROM log WHERE log = 'audit'").fetchall()
            return b"\n".join(value for (value,) in rows)
    with Redis.from_url(url) as redis:
        names = list(redis.scan_iter(f"{prefix}:*:log:audit", count=1000))
        return b"\n".join(line for name in names for line in redis.lrange(name, 0, -1))


def guesses(actions: Iterable[PendingAction], person: str, events: Sequence[str]) -> Iterator[str]:
    """All that a line could be compared with, by one who has guessed the person and everything else of the actions."""
    for action in actions:
        yield compute_digest(replace(action, salt=""))
        for joined in (person, f"{action.pending_action_id}/{person}", f"{person}/{action.pending_action_id}"):
            yield hashlib.sha256(joined.encode()).hexdigest()[:32]
        yield from (run_id_of(action.conversation, event) for event in events)
        yield action.run_id


async def test_after_forgetting_no_byte_tells_of_a_person(
    chat: ChatDriver, invoices: Invoices, file: Path, redis_url: str, prefix: str
) -> None:
    await approved(chat)
    store, keyring = store_of(chat), chat.engine.context.keyring
    assert invoices.deleted == ["INV-1"]
    assert set((await people_by_pseudonym(store)).values()) == set(PEOPLE)
    actions = await actions_of(store)
    assert {action.ballot_of is None for action in actions} == {True, False}
    assert all(action.run_id for action in actions)
    for person in PEOPLE:
        assert await forget_person(store, person)
    assert await people_by_pseudonym(store) == {}
    verified, told = await operator(chat).verify_audit(), await operator(chat).audit()
    assert (verified["actions"], verified["faults"]) == (len(actions), {})
    assert len({line["person"] for line in told if line.get("forgotten")}) >= len(PEOPLE)
    await chat.__aexit__(None, None, None)

    kept = stored_lines(file, redis_url, prefix)
    assert kept.count(b'"head"') == verified["lines"]
    for number, person in zip((WHO, MANAGER, STRANGER), PEOPLE, strict=True):
        assert number.encode() not in kept
        assert keyring.pseudonym(person).encode() not in kept
        for guess in guesses(actions, person, [f"message {number}" for number in range(9)]):
            assert guess.encode() not in kept


async def test_a_line_holds_these_fields_alone(chat: ChatDriver) -> None:
    """Each is about no person, or made with random bits that the line does not hold."""
    await approved(chat)
    lines, actions = await lines_of(store_of(chat)), await actions_of(store_of(chat))
    assert {tuple(line) for line in lines} == {("action", "what", "person", "at", "digest", "before", "head")}
    assert {line["digest"] for line in lines} == {action.digest for action in actions}
    assert {bool(action.salt) for action in actions if action.ballot_of is None} == {True}
    assert all(line["person"] is None or is_pseudonym(line["person"]) for line in lines)


async def test_forgetting_one_person_leaves_the_others(chat: ChatDriver) -> None:
    await approved(chat)
    store, ask = store_of(chat), operator(chat)
    whole = await ask.audit()
    assert await forget_person(store, BEN) == len({store.partition(f"agent/test:bot:{at}") for at in (WHO, MANAGER)})
    assert await forget_person(store, BEN) == 0
    told = await ask.audit()
    gone = [line for line in told if line.get("forgotten")]
    assert [line["head"] for line in gone] == [line["head"] for line in whole if line["person"] == BEN]
    assert {line["person"] for line in gone} == {line["pseudonym"] for line in gone}
    assert await ask.audit(person=BEN) == []
    pseudonym = str(gone[0]["pseudonym"])
    assert await ask.audit(person=pseudonym) == [line for line in gone if line["pseudonym"] == pseudonym]
    assert [line["what"] for line in await ask.audit(person=PEOPLE[2])] == ["not_allowed"]
    assert (await ask.verify_audit())["faults"] == {}


async def test_who_comes_back_has_another_pseudonym(chat: ChatDriver) -> None:
    await approved(chat)
    store, ask = store_of(chat), operator(chat)
    before = {line["pseudonym"] for line in await ask.audit(person=PEOPLE[0])}
    await forget_person(store, PEOPLE[0])
    await approved(chat, "INV-2")
    after = {line["pseudonym"] for line in await ask.audit(person=PEOPLE[0])}
    assert after and not before & after


async def test_a_longer_name_is_another_person(chat: ChatDriver) -> None:
    store, longer = store_of(chat), f"{BEN}7"
    transaction = Transaction(partition=store.partition(""))
    named = await Pseudonyms(store).name([BEN, longer], transaction)
    await store.commit(transaction)
    assert await forget_person(store, BEN) == 1
    assert await people_by_pseudonym(store) == {named[longer]: longer}


async def test_two_first_uses_make_one_record(chat: ChatDriver) -> None:
    store = store_of(chat)
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


async def test_no_line_is_written_with_a_key_just_deleted(chat: ChatDriver) -> None:
    store = store_of(chat)
    first, second = (Transaction(partition=store.partition("")) for _ in range(2))
    await Pseudonyms(store).name([BEN], first)
    await store.commit(first)
    await Pseudonyms(store).name([BEN], second)
    await forget_person(store, BEN)
    with pytest.raises(Conflict):
        await store.commit(second)


@pytest.mark.parametrize(
    "broken",
    [None, 7, {}, {"person": BEN}, {"person": BEN, "key": "xyz"}, {"person": PEOPLE[0], "key": "0" * 64}],
    ids=str,
)
async def test_a_record_changed_from_outside_names_nobody(chat: ChatDriver, broken: Json) -> None:
    await approved(chat)
    store, ask = store_of(chat), operator(chat)
    [line] = [line for line in await ask.audit(person=BEN) if line["what"] == "decided"]
    for key, _ in await store.scan(f"pseudonym/{BEN}"):
        await store.commit(Transaction(partition=key.partition, puts={key.name: Put(broken)}))
    assert next(each for each in await ask.audit() if each["head"] == line["head"])["forgotten"] is True
    await approved(chat, "INV-2")
    assert [each["what"] for each in await ask.audit(person=BEN) if each["what"] == "decided"] == ["decided"]


def older(action: PendingAction, noted: Noted, pseudonyms: Mapping[str, str]) -> AuditLine:
    """The line as a process of an older release writes it."""
    line: dict[str, Json] = {
        "action": action.pending_action_id,
        "what": noted.what,
        "person": noted.by,
        "at": noted.at.isoformat(),
        "digest": action.digest,
        "before": action.audit,
        "run": action.run_id,
    }
    return AuditLine({**line, "head": hashlib.sha256(rfc8785.dumps(line)).hexdigest()}, noted.by)


async def test_older_lines_are_read_beside_newer_ones(chat: ChatDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes of two releases take turns on one action."""
    with monkeypatch.context() as patched:
        patched.setattr(changes, "chained", older)
        await chat.says(WHO, "delete INV-1", group="team")
    await chat.presses(STRANGER, "Cancel")
    with monkeypatch.context() as patched:
        patched.setattr(changes, "chained", older)
        await chat.presses(STRANGER, "Cancel")
    ask = operator(chat)
    forms = [is_pseudonym(line["person"]) for line in await lines_of(store_of(chat)) if line["what"] == "not_allowed"]
    assert forms == [True, False]
    found = await ask.audit(person=PEOPLE[2])
    assert [line["what"] for line in found] == ["not_allowed"] * 2
    assert {line["person"] for line in found} == {PEOPLE[2]}
    assert {bool(line["run"]) for line in await ask.audit()} == {True}
    assert (await ask.verify_audit())["faults"] == {}

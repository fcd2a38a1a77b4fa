"""Two releases run side by side: this one leaves records of the newer one to the newer one's workers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Json
from gateway import ChannelAgent
from gateway.store.form import FORM, NewerForm
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Incoming, Key, Kind, QueuedPart
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, rig
from tests.stored import action_of

NEWER: dict[str, Json] = {"form": FORM + 1, "kind": "Unheard", "more": {"of": "it"}}
CHAT = "agent/test:bot:ana"


async def taken_once(chat: Rig, kind: Kind, form: int = FORM + 1) -> Any:
    """This release looks at what is ready, once, and has nothing more to do; a worker of the newer one takes it."""
    worker = chat.worker
    if kind == "turn":
        await worker.turn()
    elif kind == "out":
        await worker.deliver()
    else:
        await worker.engine._actions.run(await worker.lease("action"))
    stats = await chat.store.stats()
    assert (stats.ready, stats.leased, stats.parked, stats.dead) == (0, 0, 1, 0)
    assert await chat.store.lease("older", [kind], pool=Platform.name, knows=form - 1) is None
    newer = await chat.store.lease("newer", [kind], pool=Platform.name, knows=form)
    assert newer is not None
    assert (newer.tries, newer.died) == (0, False)
    return newer


def invoices() -> tuple[Invoices, ChannelAgent]:
    made = Invoices()
    return made, made.bot()


async def test_an_event_is_left_with_all_that_waits_behind_it(tmp_path: Path) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        await chat.store.accept([Incoming(conversation=CHAT, event_ids=("n",), body=NEWER)])
        await chat.says("ana", "hello")
        newer = await taken_once(chat, "turn")
        assert [waiting.body.get("text") for waiting in newer.events] == [None, "hello"]
        assert newer.events[0].body == NEWER
    assert made.model.requests == []


async def test_what_came_before_it_is_answered_first(tmp_path: Path) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "hello")
        await chat.store.accept([Incoming(conversation=CHAT, event_ids=("n",), body=NEWER)])
        await chat.worker.turn()
        assert made.model.requests[-1].messages[-1].content == "hello"
        await chat.worker.deliver()
        assert [waiting.body for waiting in (await taken_once(chat, "turn")).events] == [NEWER]


async def test_an_event_that_is_broken_is_still_a_dead_letter(tmp_path: Path) -> None:
    _, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        for body in ({"kind": "Unheard"}, {"kind": "Unheard", "form": FORM}, {"kind": "Unheard", "form": "new"}):
            sealed = chat.worker.context.keyring.stamped("event", CHAT, cast("dict[str, Json]", body))
            await chat.store.accept([Incoming(conversation=CHAT, event_ids=(), body=sealed)])
            await chat.worker.turn()
        assert await chat.dead() == ["an event that this release cannot read"] * 3


async def test_the_checkpoint_of_a_newer_worker_is_not_gone_on_from(tmp_path: Path) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "hello")
        lease = await chat.worker.lease("turn")
        steps: list[Json] = [{"events": [lease.events[0].seq]}, {"form": FORM + 1}]
        await chat.store.commit(Transaction(partition=lease.partition, lease=lease, steps=steps))
        await chat.store.commit(Transaction(partition=lease.partition, lease=lease, finish="left"))
        assert (await taken_once(chat, "turn")).steps == tuple(steps)
    assert made.model.requests == []


@pytest.mark.parametrize("name", ["transcript", "open"])
async def test_a_conversation_with_a_newer_record_is_left(tmp_path: Path, name: str) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        key = Key(chat.store.partition(CHAT), f"{name}/{CHAT}")
        newer = Transaction(partition=key.partition)
        if name == "transcript":
            newer.appends.append((key.name, NEWER))
        else:
            newer.puts[key.name] = Put(chat.worker.context.keyring.seal(key.name, "{}", form=FORM + 1))
        await chat.store.commit(newer)
        await chat.says("ana", "yes")
        await taken_once(chat, "turn")
    assert made.model.requests == []


async def test_a_part_is_left_and_those_behind_it_wait(tmp_path: Path) -> None:
    _, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "hello")
        await chat.worker.turn()
        [written] = await chat.store.outbox(CHAT)
        parts = [
            QueuedPart(part_id=f"p{number}", conversation=CHAT, body=body, pool=Platform.name)
            for number, body in enumerate([NEWER, written.body])
        ]
        await chat.store.commit(Transaction(partition=chat.store.partition(CHAT), parts=parts))
        newer = await taken_once(chat, "out")
        assert [part.part_id for part in newer.parts] == ["p0", "p1"]
        assert chat.platform.texts() == ["You said: hello"]


async def asked(chat: Rig) -> tuple[Key, str]:
    """The record of what was asked, and is shown; and its code."""
    await chat.hears("ana", "delete INV-1")
    [(key, record)] = await chat.store.scan("action/")
    return key, action_of(record.value).code


async def becomes_newer(chat: Rig, key: Key, form: int = FORM + 1, text: str = '{"more": 1}') -> Json:
    changed: Json = chat.worker.context.keyring.seal(key.name, text, form=form)
    await chat.store.commit(Transaction(partition=key.partition, puts={key.name: Put(changed)}))
    return changed


@pytest.mark.parametrize("text", ['{"more": 1}', f'{{"conversation": "{CHAT}"}}', "unheard of"])
async def test_approved_action_of_a_newer_schema_is_left_and_kept(tmp_path: Path, text: str) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        key, code = await asked(chat)
        await chat.says("ana", f"ok {code}")
        await becomes_newer(chat, key, FORM + 3, text)
        while (sent := await chat.store.lease("w", ["out"], pool=Platform.name)) is not None:
            parts = [part.part_id for part in sent.parts]
            await chat.store.commit(Transaction(partition=sent.partition, lease=sent, sent=parts, finish="done"))
        assert (await taken_once(chat, "action", FORM + 3)).lane == key.name.removeprefix("action/")
    assert made.deleted == []


@pytest.mark.parametrize("form", [FORM + 1, FORM + 3])
async def test_decision_on_a_newer_action_is_left_unread(tmp_path: Path, form: int) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        key, code = await asked(chat)
        newer_record = await becomes_newer(chat, key, form)
        await chat.says("ana", f"ok {code}")
        await chat.advance(1000)  # and it expires
        stats = await chat.store.stats()
        assert (stats.waiting, stats.pointed, stats.ready, stats.dead) == (2, 0, 0, 0)
        chat.wire.calls.clear()
        await chat.worker.engine.due()
        assert set(chat.wire.calls) <= {"run_timers", "pending_decisions"}
        assert await chat.store.pending_decisions(knows=form - 1) == []
        left = await chat.store.pending_decisions(knows=form)
        assert [waiting.body["kind"] for waiting in left] == ["Message", "expiry"]
        await chat.says("ana", "and now?")
        newer = await taken_once(chat, "turn", form)
        assert [waiting.body.get("text") for waiting in newer.events] == [f"ok {code}", None, "and now?"]
        assert (await chat.store.get([key]))[key].value == newer_record
    assert made.deleted == []


async def test_bare_yes_that_may_mean_a_newer_action_is_left(tmp_path: Path) -> None:
    made, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        key, _ = await asked(chat)
        await becomes_newer(chat, key, FORM + 3)
        await chat.says("ana", "yes")
        assert (await taken_once(chat, "turn", FORM + 3)).events[0].body["text"] == "yes"
    assert made.deleted == []


async def test_a_timer_and_a_dead_letter_of_a_newer_release_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written as that release would: what it holds says which form it has."""
    from gateway.store import codec

    _, bot = invoices()
    async with rig(bot, tmp_path) as chat:
        event = Incoming(conversation=CHAT, event_ids=("late",), body={"kind": "Unheard"})
        due = await chat.store.now() + timedelta(seconds=10)
        timers = [Timer(timer_id=name, due=due, incoming=event) for name in ("newer", "ours")]
        letters = [Dead(dead_id=name, conversation=CHAT, reason="r", incoming=event) for name in ("newer", "ours")]
        partition = chat.store.partition(CHAT)
        with monkeypatch.context() as newer:
            newer.setattr(codec, "encode", lambda value, real=codec.encode: real({**value, "form": FORM + 1, "x": 1}))
            await chat.store.commit(Transaction(partition=partition, timers=timers[:1], dead=letters[:1]))
        await chat.store.commit(Transaction(partition=partition, timers=timers[1:], dead=letters[1:]))
        chat.store.offset_seconds += 20
        assert await chat.store.run_timers() is None
        stats = await chat.store.stats()
        assert (stats.waiting, stats.timers) == (1, 1)
        told = {letter.dead_id: letter for letter in await chat.store.dead_letters()}
        assert told["ours"].incoming is not None
        assert (told["newer"].incoming, "newer release" in told["newer"].reason) == (None, True)
        with pytest.raises(NewerForm):
            await chat.store.replay("newer")
        assert (await chat.store.stats()).dead == 2

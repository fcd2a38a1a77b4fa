"""A model's memory is sealed: text from a writer of the store without the key is left out and told.

After a change of the key, records sealed with the old key are sealed anew: when read, or by a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channels import Json, Person, Reply
from gateway import Agent, AgentConfig, ChannelAgent, EntityMemory, KnowledgeMemory, StoreCache, tool
from gateway.engine.alarms import Forgeries
from gateway.engine.strangers import Newcomers
from gateway.observe.events import DoubtRaised
from gateway.observe.teller import Teller
from gateway.operations.operator import Operator
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys
from gateway.stored.memory_events import conversation_lane, person_lane
from gateway.testing import ScriptedProvider, ToolCall
from tests.engine import rig as rigs
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, code_of, here, rig
from tests.told import Told

pytestmark = pytest.mark.both_stores

ANA, BEN = "agent/test:bot:ana", "agent/test:bot:ben"
EVE = Person(channel="test", account="bot", user_id="eve")
DAY = 86_400.0
FORGED = "INJECTED"
OLD, NEW = rigs.KEYS[0], b"a new key of more than 16 bytes"


def read_by(invoices: Invoices) -> list[str]:
    """Return the texts last read by the model."""
    return [message.content for message in invoices.model.requests[-1].messages]


async def lines_of(chat: Rig, conversation: str = ANA) -> list[Any]:
    return [entry.value for entry in await chat.store.read(keys.key(chat.store, conversation, keys.transcript))]


async def write(chat: Rig, conversation: str = ANA, **more: Any) -> None:
    await chat.store.commit(Transaction(partition=chat.store.partition(conversation), **more))


async def put_in(chat: Rig, *lines: Json) -> None:
    await write(chat, appends=[(keys.transcript(ANA), line) for line in lines])


def forgeries(chat: Rig, caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """Return the numbers of log lines and of events about forged records."""
    lines = [each for each in caplog.records if "seal check failed" in each.getMessage()]
    assert not any(FORGED in each.getMessage() for each in lines)
    doubts = chat.worker.told.of_kind(DoubtRaised)
    return len(lines), sum(doubt.why == "forged" for doubt in doubts)


async def test_lines_without_the_key_are_left_out(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.hears("ben", "of ben")
    await chat.hears("ana", "one", "two")
    one = (await lines_of(chat))[0]
    injected: Json = {"role": "assistant", "content": FORGED}
    await put_in(chat, injected, {**one, "content": FORGED}, one, (await lines_of(chat, BEN))[0])
    await chat.hears("ana", "three")
    assert read_by(invoices) == ["one", "You said: one", "two", "You said: two", "three"]
    assert forgeries(chat, caplog) == (1, 1)
    await chat.hears("ana", "four")
    assert read_by(invoices)[-3:] == ["three", "You said: three", "four"]
    assert forgeries(chat, caplog) == (1, 1), "it is told once an hour"
    assert FORGED not in str(await Operator(chat.store, {}, chat.worker.context.keyring, bot="agent").export(ANA))


async def test_a_changed_call_takes_its_result_with_it(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "a result"

    script = ScriptedProvider([ToolCall("look", {}), "Seen.", "Yes."])
    async with rig(ChannelAgent(Agent([look], provider=script)), tmp_path) as chat:
        await chat.hears("ana", "look")
        log = keys.key(chat.store, ANA, keys.transcript)
        entry = next(each for each in await chat.store.read(log) if "tool_calls" in str(each.value))
        await write(chat, rewrite=[(log.name, entry.seq, {"role": "assistant", "content": FORGED})])
        await chat.hears("ana", "and?")
        assert [(each.role, each.content) for each in script.requests[-1].messages] == [
            ("user", "look"),
            ("assistant", "Seen."),
            ("user", "and?"),
        ]


async def test_reset_of_a_writer_ends_no_history(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "one")
    await put_in(chat, {"role": "reset"})
    await chat.hears("ana", "two")
    assert read_by(invoices) == ["one", "You said: one", "two"]
    await chat.hears("ana", "/new", "three")
    assert read_by(invoices) == ["three"]


async def test_a_reset_holds_though_the_clock_was_ahead(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "one")
    chat.store.offset_seconds -= 3600
    await chat.hears("ana", "/new", "two", "three")
    assert read_by(invoices) == ["two", "You said: two", "three"]


async def test_notes_without_the_key_are_left_out(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture
) -> None:
    await write(chat, puts={keys.folded_notes(ANA): Put({"lines": [FORGED]})})
    await chat.hears("ana", "hello")
    assert read_by(invoices) == ["hello"]
    assert forgeries(chat, caplog) == (1, 1)


@pytest.mark.parametrize("moved", [False, True], ids=["made", "moved"])
async def test_memories_without_the_key_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, moved: bool
) -> None:
    people = '{"entities":[{"name":"INJECTED","type":"person"}]}'
    config = AgentConfig(
        entity_memory=EntityMemory(provider=ScriptedProvider([people] * 3)), knowledge_memory=KnowledgeMemory()
    )
    noted: dict[str, Json] = {"content": FORGED, "category": "x", "persistent": True}
    script = ScriptedProvider([ToolCall("remember", noted), "Noted.", "Hello."])
    async with rig(ChannelAgent(Agent(provider=script, config=config)), tmp_path) as chat:
        await chat.handles("ben", "hello")
        bens, anas = ((conversation_lane(at), person_lane("agent", at.partition("/")[2])) for at in (BEN, ANA))
        for ben, ana in zip(bens, anas, strict=True):
            found = [*await chat.store.scan("memory/"), *await chat.store.scan("knowledge/")]
            [(key, record)] = [each for each in found if each[0].name.endswith(ben)]
            value: Any = record.value
            assert FORGED in str(value)
            name = f"{key.name.removesuffix(ben)}{ana}"
            await write(chat, ana, puts={name: Put(value if moved else value["body"])})
        await chat.hears("ana", "hello")
        assert FORGED not in str(script.requests[-1].system)
        assert forgeries(chat, caplog) == (2, 2)


async def test_cached_replies_without_the_key_are_asked_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = ScriptedProvider(["Good.", "Good again.", "Good at last."])
    agent = Agent(provider=script, config=AgentConfig(cache=StoreCache()))
    async with rig(ChannelAgent(agent), tmp_path) as chat:
        await chat.hears("ana", "hello", "/new", "hello")
        assert len(script.requests) == 1
        [(key, record)] = await chat.store.scan("cached/")
        value: Any = record.value
        changed = {**value, "body": value["body"].replace("Good.", FORGED)}
        await chat.store.commit(Transaction(partition=key.partition, puts={key.name: Put(changed)}))
        await chat.hears("ana", "/new", "hello")
        assert (len(script.requests), forgeries(chat, caplog)) == (2, (1, 1))
        assert FORGED not in str(chat.platform.sent)


async def test_a_forgery_is_told_once_an_hour() -> None:
    told, now = Told(), [0.0]
    forgeries = Forgeries(Teller(readers=[told], observers=()), now=lambda: now[0])
    for at, name in ((0, "a"), (10, "a"), (10, "b"), (3599, "a"), (3600, "a"), (3601, "b")):
        now[0] = at
        forgeries.tell(name, "c")
    assert len(told.of_kind(DoubtRaised)) == 3


# ── another key ──


def restart(chat: Rig, monkeypatch: pytest.MonkeyPatch, *secrets: bytes) -> None:
    monkeypatch.setattr(rigs, "KEYS", list(secrets))
    chat.worker = chat.another()


def operator(chat: Rig) -> Operator:
    return Operator(chat.store, {"test": chat.platform}, chat.worker.context.keyring, bot="agent")


async def admit(chat: Rig) -> Newcomers:
    newcomers = Newcomers(chat.store, chat.worker.context.keyring)
    code = await newcomers.note(EVE, here("eve"), "en", pairing=True)
    assert code is not None and await newcomers.admit(code, "operator")
    return newcomers


async def test_records_are_sealed_anew_when_read(
    chat: Rig, invoices: Invoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.handles("ana", "delete INV-1", "two")
    await admit(chat)
    restart(chat, monkeypatch, NEW, OLD)
    await chat.worker.context.actions(ANA)
    assert "actions" not in await operator(chat).old_seals()
    await chat.handles("ana", "three")
    assert await Newcomers(chat.store, chat.worker.context.keyring).is_admitted(EVE)
    restart(chat, monkeypatch, NEW)
    await chat.handles("ana", f"ok {code_of(chat.platform.texts()[0])}", "four")
    assert invoices.deleted == ["INV-1"]
    assert [text for text in read_by(invoices) if text in ("two", "three", "four")] == ["two", "three", "four"]
    assert await Newcomers(chat.store, chat.worker.context.keyring).is_admitted(EVE)


async def test_the_rest_is_sealed_anew_by_a_command(
    chat: Rig, invoices: Invoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.handles("ana", "delete INV-1", "two")
    await chat.handles("ben", "delete INV-2")
    await chat.handles("ben", f"ok {code_of(chat.platform.texts('ben')[0])}")
    await admit(chat)
    await chat.worker.engine.runtime.notify(here("ana"), Reply(text="Time to pay."), after_seconds=40 * DAY)
    restart(chat, monkeypatch, NEW)
    assert await operator(chat).old_seals() == {}, "what no key opens is no old seal"
    restart(chat, monkeypatch, NEW, OLD)
    counted = await operator(chat).old_seals()
    assert set(counted) == {"people", "actions", "lines", "events"} and await operator(chat).old_seals() == counted
    assert await operator(chat).reseal() == counted
    assert await operator(chat).old_seals() == await operator(chat).reseal() == {}
    restart(chat, monkeypatch, NEW)
    assert (await operator(chat).verify_audit())["faults"] == {}
    await chat.handles("ana", f"ok {code_of(chat.platform.texts()[0])}", "four")
    assert invoices.deleted == ["INV-2", "INV-1"]
    assert "two" in read_by(invoices)
    assert await Newcomers(chat.store, chat.worker.context.keyring).is_admitted(EVE)
    await chat.advance(41 * DAY)
    await chat.work()
    assert chat.platform.texts()[-1] == "Time to pay."


async def test_changed_record_is_not_sealed_anew(
    chat: Rig, invoices: Invoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.handles("ana", "delete INV-1", "two")
    [(key, record)] = await chat.store.scan("action/")
    await chat.handles("ana", f"no {code_of(chat.platform.texts()[0])}")
    await write(chat, puts={key.name: Put(record.value)})
    await put_in(chat, {"role": "assistant", "content": FORGED}, (await lines_of(chat))[0])
    restart(chat, monkeypatch, NEW, OLD)
    await operator(chat).reseal()
    restart(chat, monkeypatch, NEW)
    await chat.handles("ana", f"ok {code_of(chat.platform.texts()[0])}", "three")
    assert invoices.deleted == [] and FORGED not in read_by(invoices)
    assert sum(text == "two" for text in read_by(invoices)) == 1


async def test_a_replayed_letter_holds_after_the_change(
    chat: Rig, invoices: Invoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.says("ana", "hello")
    await operator(chat).put_aside(ANA)
    [letter] = await operator(chat).dead()
    restart(chat, monkeypatch, NEW, OLD)
    assert await operator(chat).reseal() == {"dead letters": 1}
    restart(chat, monkeypatch, NEW)
    await operator(chat).replay(str(letter["id"]))
    await chat.work()
    assert chat.platform.texts() == ["You said: hello"]

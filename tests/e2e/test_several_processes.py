"""Several real ``askfirst serve`` share the work of one Redis, and survive each other and the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.store.redis import RedisStore
from tests.cli.processes import Process
from tests.e2e.house import SIGNED
from tests.fakes.openai import Call, Say
from tests.fakes.telegram import Message, Press, User
from tests.kill.stage import Stage, on_stage
from tests.store.redis_server import RedisServer

NOWHERE = "http://127.0.0.1:9"
PRESSES = 20


@pytest.fixture
async def stage(tmp_path: Path, server: RedisServer) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, server.url) as stage:
        yield stage


@contextlib.asynccontextmanager
async def open_at(stage: Stage) -> AsyncIterator[RedisStore]:
    store = RedisStore(stage.env["ASKFIRST_STORE"])
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def prompt(stage: Stage, invoice: str, tool: str = "pay_invoice", *, by: User) -> Message:
    """A person asks for an action on an invoice. Returns the prompt once the prompt's arrival is known."""
    stage.model.script([Call(tool, {"invoice_id": invoice})])
    await stage.telegram.person_says(by, by, f"{tool} {invoice}")
    shown = await stage.until(lambda: [m for m in stage.telegram.sent if m.chat.id == by.id and invoice in m.text])
    await idle(stage)
    return shown[0]


async def idle(stage: Stage) -> None:
    async with open_at(stage) as store:
        while (stats := await store.stats()).parts or stats.leased:
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def nowhere(stage: Stage) -> Iterator[None]:
    """Keep Telegram's updates undelivered meanwhile."""
    url = stage.telegram.webhook.pop("url")
    yield
    stage.telegram.webhook["url"] = url


async def pressed(stage: Stage, message: Message, by: User) -> tuple[Press, dict[str, Any]]:
    with nowhere(stage):
        press = await stage.telegram.press(message, "Confirm", by, wait=False)
    _, update = stage.telegram._pending.popitem()[1]
    return press, update


async def written(stage: Stage, text: str, by: User) -> dict[str, Any]:
    with nowhere(stage):
        await stage.telegram.person_says(by, by, text, wait=False)
    _, update = stage.telegram._pending.popitem()[1]
    return update


async def post(process: Process, update: dict[str, Any]) -> tuple[int, float]:
    """Deliver an update. Returns the status and the seconds."""
    url = f"{await process.url()}/webhooks/telegram"
    async with aiohttp.ClientSession() as http:
        began = time.monotonic()
        async with http.post(url, json=update, headers=SIGNED) as answer:
            return answer.status, time.monotonic() - began


async def taken(process: Process, update: dict[str, Any]) -> int:
    """Deliver like Telegram, again after 503."""
    status = 503
    while status == 503:
        status, _ = await post(process, update)
    return status


async def ready(process: Process) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{await process.url()}/readyz") as answer:
        return answer.status


def loud(process: Process) -> list[str]:
    lines = [json.loads(line) for line in process.said.splitlines() if line.startswith("{")]
    return [f"{line['logger']}: {line['message']}" for line in lines if line["level"] in ("WARNING", "ERROR")]


# ───────────── together ─────────────


async def test_an_ask_on_one_and_many_presses_over_both_are_one_effect(stage: Stage) -> None:
    one, two = await stage.start(), await stage.start()
    ana = stage.telegram.person("Ana")
    await stage.webhook_to(one)
    message = await prompt(stage, "INV-1", by=ana)
    presses = [await pressed(stage, message, ana) for _ in range(PRESSES)]
    answers = await asyncio.gather(*(taken(process, update) for _, update in presses for process in (one, two)))
    assert answers == [200] * 2 * PRESSES
    await stage.until(lambda: all(press.answered for press, _ in presses))
    await stage.until(lambda: not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 1
    assert stage.texts(ana).count("pay INV-1 ok") == 1
    assert len(stage.telegram.called("answerCallbackQuery")) == PRESSES, "each is answered once"
    await stage.webhook_to(two)
    late = await stage.telegram.press(message, "Confirm", ana)
    await stage.until(lambda: late.answered)
    assert late.text == "This is already done."
    assert len(stage.business.done) == 1


@pytest.mark.ledger("PEND-28")
async def test_web_role_accepts_and_decides_and_workers_execute(stage: Stage) -> None:
    """The web process reaches neither model nor business: an effect run there would fail."""
    web = await stage.start("web", OPENAI_BASE_URL=NOWHERE, BUSINESS_URL=NOWHERE)
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    worker = await stage.start("worker")
    message = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    assert message is not None
    await idle(stage)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    press = await stage.telegram.press(message, "Confirm", ana)
    await stage.until(lambda: press.answered)
    assert press.text == "Confirmed."
    async with open_at(stage) as store:
        stats = await store.stats()
    assert (stats.pointed, stats.leased, stats.ready) == (0, 0, 1)  # the action that was approved
    assert (stage.business.done, message.buttons) == ([], ["Confirm", "Cancel", "Change"])
    await asyncio.gather(stage.start("worker"), stage.start("worker"))
    await stage.until(lambda: not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 1
    assert loud(web) == []


# ───────────── one of them is gone ─────────────


async def test_a_process_that_was_frozen_wakes_and_is_refused(stage: Stage) -> None:
    """The process does not know of the take-over: its answer is not sent, and the effect happens once."""
    one, ana, ben = await stage.start(), stage.telegram.person("Ana"), stage.telegram.person("Ben")
    message = await prompt(stage, "INV-1", "delete_invoice", by=ben)
    stage.business.hold_after = True
    await stage.telegram.press(message, "Confirm", ben)
    await stage.business.reached.wait()
    too_late, in_time = asyncio.Event(), asyncio.Event()
    stage.model.script([Say("Too late.", hold=too_late), Say("Hello!", hold=in_time)])
    await stage.telegram.person_says(ana, ana, "hi")
    await stage.model.wait_for(2)
    one.signal(signal.SIGSTOP)
    stage.business.hold_after = False
    two = await stage.start()
    await stage.until(lambda: "delete INV-1 ok" in stage.texts(ben))
    await stage.model.wait_for(3)
    too_late.set()
    stage.business.release.set()
    one.signal(signal.SIGCONT)
    await one.says("turn of .*: the lease is no longer ours: somebody else has taken over")
    await one.says("action .*: somebody else has taken over")
    in_time.set()
    await stage.until(lambda: stage.texts(ana) == ["Hello!"])
    assert stage.texts(ben).count("delete INV-1 ok") == 1
    assert stage.business.happened("delete") == ["INV-1"]
    assert loud(two) == []


async def test_finding_12_a_frozen_worker_knows_better_than_a_probe(stage: Stage) -> None:
    one, ben = await stage.start(), stage.telegram.person("Ben")
    message = await prompt(stage, "INV-1", "mail_invoice", by=ben)
    stage.business.hold_before = True
    await stage.telegram.press(message, "Confirm", ben)
    await stage.business.reached.wait()
    one.signal(signal.SIGSTOP)
    await stage.start()
    await stage.until(lambda: any("It did not work" in text for text in stage.texts(ben)))
    assert stage.business.done == []
    stage.business.release.set()
    one.signal(signal.SIGCONT)
    await stage.until(lambda: "mail INV-1 ok" in stage.texts(ben))
    assert stage.business.happened("mail") == ["INV-1"]


# ───────────── the server is gone ─────────────


@pytest.mark.parametrize("end", ["kill", "shut_down"])
async def test_redis_restart_loses_no_acknowledged_event(stage: Stage, server: RedisServer, end: str) -> None:
    processes = [await stage.start(), await stage.start()]
    ana, *others = (stage.telegram.person(name) for name in ("Ana", "Ben", "Cleo", "Dan"))
    message = await prompt(stage, "INV-1", by=ana)
    stage.model.script([Say("ok") for _ in range(200)])
    wanted = [f"message {number}" for number in range(12)]
    for number, text in enumerate(wanted):
        await stage.webhook_to(processes[number % 2])
        for person in others:
            await stage.telegram.person_says(person, person, text, wait=False)
        if number % 4 == 1:
            await getattr(server, end)()
        elif number % 4 == 3:
            await server.start()
    press = await stage.telegram.press(message, "Confirm", ana, wait=False)
    await getattr(server, end)()
    await server.start()
    await stage.until(lambda: not stage.telegram._pending)
    await stage.until(lambda: press.answered and not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 1

    def heard() -> bool:
        """Return True if the model was shown all messages of each person, each once and in order."""
        histories = [[m["content"] for m in r["messages"] if m["role"] == "user"] for r in stage.model.requests]
        return histories.count(wanted) >= len(others)

    await stage.until(heard)


@pytest.mark.parametrize("frozen", [False, True])
async def test_redis_outage_acknowledges_no_event(stage: Stage, server: RedisServer, frozen: bool) -> None:
    stage.constants["gateway.web.webhooks.ACCEPT_SECONDS"] = 0.25
    one, two = await stage.start(), await stage.start()
    ana = stage.telegram.person("Ana")
    message = await prompt(stage, "INV-1", by=ana)
    updates = [await written(stage, f"message {number}", ana) for number in range(50)]
    press, update = await pressed(stage, message, ana)
    if frozen:
        server.freeze()
    else:
        await server.kill()
    for process in (one, two):
        assert await ready(process) == 503
        answers = await asyncio.gather(*(post(process, each) for each in (*updates, update)))
        assert {status for status, _ in answers} == {503}
        assert max(took for _, took in answers) < 5, "0.25 s, and what a busy machine takes for 51 at once"
    if frozen:
        server.thaw()
    else:
        await server.start()
    stage.model.script([Say("Hello!") for _ in updates])  # a frozen server may still take an abandoned request
    began = time.monotonic()
    assert await taken(one, update) == 200
    await stage.until(lambda: press.answered and "pay INV-1 ok" in stage.texts(ana))
    assert time.monotonic() - began < 30
    assert len(stage.business.done) == 1
    for process in (one, two):
        said = [line for line in loud(process) if "a request was not stored" not in line]
        assert len(said) == len(set(said)), "each loop says once that it waits, and once that it goes on"


async def test_effects_ended_during_a_redis_outage_are_recorded_later(stage: Stage, server: RedisServer) -> None:
    """An effect ends and a prompt arrives during the outage: neither is in doubt afterwards."""
    await stage.start()
    ana, ben = stage.telegram.person("Ana"), stage.telegram.person("Ben")
    message = await prompt(stage, "INV-1", by=ben)
    stage.business.hold_after = True
    await stage.telegram.press(message, "Confirm", ben)
    await stage.business.reached.wait()
    hold = stage.telegram.hold("sendMessage", "after")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-2"})])
    await stage.telegram.person_says(ana, ana, "pay INV-2")
    await hold.reached()
    await server.kill()
    stage.business.release.set()
    hold.release()
    await server.start()
    await stage.until(lambda: "pay INV-1 ok" in stage.texts(ben) and not message.buttons)
    [asked] = [message for message in stage.telegram.sent if message.chat.id == ana.id]
    await stage.telegram.press(asked, "Confirm", ana)
    await stage.until(lambda: "pay INV-2 ok" in stage.texts(ana) and not asked.buttons)
    assert len(stage.texts(ana)) == 2
    assert sorted(stage.business.happened("pay")) == ["INV-1", "INV-2"]
    assert len(stage.business.done) == 2


async def test_full_redis_takes_presses_but_refuses_messages(stage: Stage, server: RedisServer) -> None:
    one, _ = await stage.start(), await stage.start()
    ana = stage.telegram.person("Ana")
    message = await prompt(stage, "INV-1", by=ana)
    update = await written(stage, "hello", ana)
    await server.command("CONFIG", "SET", "maxmemory", 1)
    assert (await post(one, update))[0] == 503
    assert await ready(one) == 200
    press = await stage.telegram.press(message, "Confirm", ana)
    await stage.until(lambda: press.answered)
    await stage.start()  # one more can be started on it
    assert stage.business.done == []
    await server.command("CONFIG", "SET", "maxmemory", 0)
    await stage.until(lambda: not message.buttons and "pay INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 1
    stage.model.script([Say("Hello!")])
    assert await taken(one, update) == 200
    await stage.until(lambda: "Hello!" in stage.texts(ana))


async def test_emptied_redis_is_noticed_and_its_buttons_are_unknown(stage: Stage, server: RedisServer) -> None:
    processes = [await stage.start("web"), await stage.start("worker")]
    ana = stage.telegram.person("Ana")
    message = await prompt(stage, "INV-1", by=ana)
    await server.command("FLUSHALL")
    press = await stage.telegram.press(message, "Confirm", ana)
    await stage.until(lambda: press.answered)
    assert press.text == "I no longer know this button. Ask again if you still want it."
    for process in processes:
        await process.says("Redis has lost what it had stored")
    again = await prompt(stage, "INV-2", by=ana)
    await stage.telegram.press(again, "Confirm", ana)
    await stage.until(lambda: "pay INV-2 ok" in stage.texts(ana))
    assert stage.business.happened("pay") == ["INV-2"]

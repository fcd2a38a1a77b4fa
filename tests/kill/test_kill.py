"""SIGKILL at every step of the way of a message: nothing is lost, nothing happens twice, and `unknown` is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage, a_store, on_stage

pytestmark = pytest.mark.timeout(180)
"""Up to five processes start one after another: seconds each on a machine that has much to do."""


@pytest.fixture(params=["sqlite", "redis"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with a_store(request.param, tmp_path) as store, on_stage(tmp_path, store) as stage:
        await stage.start()
        yield stage


async def test_undisturbed_process_pays_once(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    press = await stage.telegram.press(prompt, "Confirm", ana)
    await stage.until(lambda: "pay INV-1 ok" in stage.texts(ana))
    await stage.until(lambda: press.answered and not prompt.buttons)
    assert stage.business.happened("pay") == ["INV-1"]


@pytest.mark.ledger("PYG-32")
async def test_kill_in_the_model_call_answers_after_the_restart(stage: Stage) -> None:
    ana, hold = stage.telegram.person("Ana"), asyncio.Event()
    stage.model.script([Say("never seen", hold=hold), Say("Hello!")])
    await stage.telegram.person_says(ana, ana, "hi")
    await stage.model.wait_for(1)
    await stage.kill()
    hold.set()
    await stage.start()
    await stage.until(lambda: stage.texts(ana) == ["Hello!"])


async def test_message_that_kills_four_processes_is_put_aside(tmp_path: Path) -> None:
    """From its third try on it is taken by itself, so that no other message dies with it."""
    hold = asyncio.Event()
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        ana = stage.telegram.person("Ana")
        stage.model.script([*(Say("never seen", hold=hold) for _ in range(4)), Say("Hello!")])
        await stage.start()
        await stage.telegram.person_says(ana, ana, "deadly")
        await stage.model.wait_for(1)
        await stage.telegram.person_says(ana, ana, "hello")
        for tries in range(2, 6):
            await stage.kill()
            await stage.start()
            await stage.model.wait_for(tries)
        hold.set()
        told, answer = await stage.until(lambda: texts if len(texts := stage.texts(ana)) == 2 else None)
        assert told.startswith("Something went wrong on my side. Reference: ") and answer == "Hello!"
    asked = [
        [each["content"] for each in request["messages"] if each["role"] == "user"] for request in stage.model.requests
    ]
    assert asked == [["deadly"], ["deadly", "hello"], ["deadly"], ["deadly"], ["hello"]]


async def killed_after_the_note(stage: Stage) -> None:
    """Ana has milk noted, and the process dies in the second call to the model. Another one answers her."""
    ana, hold = stage.telegram.person("Ana"), asyncio.Event()
    stage.model.script([Call("note", {"text": "milk"}), Say("never seen", hold=hold), Say("Noted.")])
    await stage.telegram.person_says(ana, ana, "note milk")
    await stage.model.wait_for(2)
    await stage.kill()
    hold.set()
    await stage.start()
    await stage.until(lambda: stage.texts(ana) == ["Noted."])


async def test_killed_after_a_tool_with_effects_it_is_not_run_again(stage: Stage) -> None:
    await killed_after_the_note(stage)
    assert len(stage.business.done) == 1
    told = stage.model.requests[-1]["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", "note milk ok")


async def test_reply_of_a_killed_process_is_in_the_usage_once(stage: Stage) -> None:
    """The first reply is booked with its checkpoint. The call that was running when the process died has no reply."""
    await killed_after_the_note(stage)
    told = await asyncio.to_thread(CliRunner().invoke, main, ["usage", "--by", "person", "--json"], env=stage.env)
    assert [each["calls"] for each in json.loads(told.stdout)] == [2]


async def test_killed_turn_leaves_one_trace_with_the_steps_of_both(stage: Stage) -> None:
    """The steps of the process that died are marked, and have no duration that nobody measured."""
    await killed_after_the_note(stage)
    (trace,) = await stage.traces()
    assert [(step.type, step.from_checkpoint) for step in trace if step.type in ("llm_call", "tool_execution")] == [
        ("llm_call", True),
        ("tool_execution", True),
        ("llm_call", False),
    ]
    assert all(not step.duration_ms for step in trace if step.from_checkpoint)
    assert trace.stop_reason == "answered"


async def test_kill_in_a_tool_with_effects_tells_the_model_unknown(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_after = True
    stage.model.script([Call("note", {"text": "milk"}), Say("I do not know whether it is noted.")])
    await stage.telegram.person_says(ana, ana, "note milk")
    await stage.business.reached.wait()
    await stage.kill()
    await stage.start()
    await stage.until(lambda: stage.texts(ana) == ["I do not know whether it is noted."])
    assert len(stage.business.done) == 1
    assert "unknown" in stage.model.requests[-1]["messages"][-1]["content"]


async def test_kill_while_sending_a_prompt_resends_it_and_both_work(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    hold = stage.telegram.hold("sendMessage", "after")
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    await hold.reached()
    await stage.kill()
    hold.release()
    await stage.start()
    await stage.until(lambda: len(stage.texts(ana)) == 2)
    first, second = stage.telegram.sent
    await stage.telegram.press(first, "Confirm", ana)
    await stage.until(lambda: "pay INV-1 ok" in stage.texts(ana))
    again = await stage.telegram.press(second, "Confirm", ana)
    await stage.until(lambda: again.answered)
    assert again.text == "This is already done."
    assert stage.business.happened("pay") == ["INV-1"]


async def test_a_press_after_a_restart_works(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.kill()
    await stage.start()
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.until(lambda: "pay INV-1 ok" in stage.texts(ana))
    assert stage.business.happened("pay") == ["INV-1"]


async def test_a_press_while_it_is_down_is_delivered_again(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.kill()
    await stage.telegram.press(prompt, "Confirm", ana, wait=False)
    await stage.start()
    await stage.until(lambda: "pay INV-1 ok" in stage.texts(ana))
    assert stage.business.happened("pay") == ["INV-1"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_kill_in_an_unrepeatable_effect_is_told_as_unknown(stage: Stage, when: str) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_before, stage.business.hold_after = when == "before", when == "after"
    stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "pay INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.business.reached.wait()
    await stage.kill()
    stage.business.hold_before = stage.business.hold_after = False
    await stage.start()
    await stage.until(lambda: any("may or may not have happened" in text for text in stage.texts(ana)))
    assert len(stage.business.done) == (1 if when == "after" else 0)
    press = await stage.telegram.press(prompt, "Confirm", ana)
    await stage.until(lambda: press.answered)
    assert "may or may not" in press.text
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_kill_in_an_idempotent_effect_reruns_it_with_its_key(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_after = True
    stage.model.script([Call("delete_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "delete INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.business.reached.wait()
    await stage.kill()
    stage.business.hold_after = False
    await stage.start()
    await stage.until(lambda: "delete INV-1 ok" in stage.texts(ana))
    assert len(stage.business.done) == 2
    assert stage.business.happened("delete") == ["INV-1"]


@pytest.mark.parametrize(("when", "said"), [("after", "Done"), ("before", "it failed")])
async def test_killed_in_an_effect_with_a_probe_it_is_asked(stage: Stage, when: str, said: str) -> None:
    ana = stage.telegram.person("Ana")
    stage.business.hold_before, stage.business.hold_after = when == "before", when == "after"
    stage.model.script([Call("send_invoice", {"invoice_id": "INV-1"})])
    await stage.telegram.person_says(ana, ana, "send INV-1")
    prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
    await stage.telegram.press(prompt, "Confirm", ana)
    await stage.business.reached.wait()
    await stage.kill()
    await stage.start()
    await stage.until(lambda: any(said in text for text in stage.texts(ana)))
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_killed_at_random_no_message_is_lost_and_no_order_broken(stage: Stage) -> None:
    people = [stage.telegram.person(f"P{number}") for number in range(4)]
    stage.model.script([Say("ok") for _ in range(400)])
    wanted = {person.id: [f"message {number}" for number in range(8)] for person in people}
    for number in range(8):
        for person in people:
            await stage.telegram.person_says(person, person, f"message {number}", wait=False)
        if number % 2:
            await stage.kill()
            await stage.start()
    await stage.until(lambda: not stage.telegram._pending)
    await stage.until(lambda: all(stage.texts(person) for person in people))

    def said() -> bool:
        """The last request about each person holds all their messages, each once and in order."""
        for texts in wanted.values():
            histories = [
                [m["content"] for m in request["messages"] if m["role"] == "user"] for request in stage.model.requests
            ]
            if texts not in histories:
                return False
        return True

    await stage.until(said)

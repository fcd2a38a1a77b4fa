"""SIGKILL at every step of a message's way: no work is lost or repeated, and `unknown` is reported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.artifacts.test_pictures import png
from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage, a_store, on_stage

pytestmark = pytest.mark.timeout(180)
"""Up to five processes start one after another: seconds each on a busy machine."""


async def is_paid_once(stage: Stage) -> None:
    await stage.until(lambda: "pay INV-1 ok" in stage.texts())
    assert stage.business.happened("pay") == ["INV-1"]


async def test_undisturbed_process_pays_once(stage: Stage) -> None:
    prompt = await stage.asks("pay_invoice")
    press = await stage.press(prompt)
    await stage.until(lambda: press.answered and not prompt.buttons)
    await is_paid_once(stage)


@pytest.mark.ledger("PYG-32")
async def test_kill_in_the_model_call_answers_after_the_restart(stage: Stage) -> None:
    hold = asyncio.Event()
    await stage.says("hi", Say("never seen", hold=hold), Say("Hello!"))
    await stage.model.wait_for(1)
    for text in ("one more", "and another"):
        await stage.says(text)
    await stage.restart()
    hold.set()
    await stage.until(lambda: stage.texts() == ["Hello!"])
    asked = [each["content"] for each in stage.model.requests[-1]["messages"] if each["role"] == "user"]
    assert asked == ["hi", "one more", "and another"]


async def test_message_that_kills_four_processes_is_put_aside(tmp_path: Path) -> None:
    """From the third try on, the message is taken alone, so no other message dies with it."""
    hold = asyncio.Event()
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        await stage.start()
        await stage.says("deadly", *(Say("never seen", hold=hold) for _ in range(4)), Say("Hello!"))
        await stage.model.wait_for(1)
        await stage.says("hello")
        for tries in range(2, 6):
            await stage.restart()
            await stage.model.wait_for(tries)
        hold.set()
        told, answer = await stage.until(lambda: texts if len(texts := stage.texts()) == 2 else None)
        assert told.startswith("Something went wrong on my side. Reference: ") and answer == "Hello!"
    asked = [
        [each["content"] for each in request["messages"] if each["role"] == "user"] for request in stage.model.requests
    ]
    assert asked == [["deadly"], ["deadly", "hello"], ["deadly"], ["deadly"], ["hello"]]


@pytest.fixture
async def noted(stage: Stage) -> Stage:
    """Ana has milk noted. The process dies in the second call to the model, and another answers Ana."""
    hold = asyncio.Event()
    await stage.says("note milk", Call("note", {"text": "milk"}), Say("never seen", hold=hold), Say("Noted."))
    await stage.model.wait_for(2)
    await stage.restart()
    hold.set()
    await stage.until(lambda: stage.texts() == ["Noted."])
    return stage


async def test_killed_after_a_tool_with_effects_it_is_not_run_again(noted: Stage) -> None:
    assert len(noted.business.done) == 1
    told = noted.model.requests[-1]["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", "note milk ok")


async def test_reply_of_a_killed_process_is_in_the_usage_once(noted: Stage) -> None:
    """The first reply is booked with the checkpoint. The call interrupted by the death has no reply."""
    told = await asyncio.to_thread(CliRunner().invoke, main, ["usage", "--by", "person", "--json"], env=noted.env)
    assert [each["calls"] for each in json.loads(told.stdout)] == [2]


async def test_killed_turn_leaves_one_trace_with_the_steps_of_both(noted: Stage) -> None:
    """The steps of the dead process are marked, and have no unmeasured duration."""
    (trace,) = await noted.traces()
    assert [(step.type, step.from_checkpoint) for step in trace if step.type in ("llm_call", "tool_execution")] == [
        ("llm_call", True),
        ("tool_execution", True),
        ("llm_call", False),
    ]
    assert all(not step.duration_ms for step in trace if step.from_checkpoint)
    assert trace.stop_reason == "answered"


@pytest.mark.ledger("PYG-32")
async def test_kill_in_a_tool_with_effects_tells_the_model_unknown(stage: Stage) -> None:
    await stage.says("note milk", Call("note", {"text": "milk"}), Say("I do not know whether it is noted."))
    await stage.dies_in_effect("after")
    await stage.until(lambda: stage.texts() == ["I do not know whether it is noted."])
    assert len(stage.business.done) == 1
    assert "unknown" in stage.model.requests[-1]["messages"][-1]["content"]


async def test_kill_while_sending_a_prompt_resends_it_and_both_work(stage: Stage) -> None:
    hold = stage.telegram.hold("sendMessage", "after")
    await stage.says("pay INV-1", Call("pay_invoice", {"invoice_id": "INV-1"}))
    await hold.reached()
    await stage.kill()
    hold.release()
    await stage.start()
    await stage.until(lambda: len(stage.texts()) == 2)
    first, second = stage.telegram.sent
    await stage.press(first)
    await stage.until(lambda: "pay INV-1 ok" in stage.texts())
    again = await stage.press(second)
    await stage.until(lambda: again.answered)
    assert again.text == "This is already done."
    await is_paid_once(stage)


@pytest.mark.parametrize("away", [False, True])
async def test_press_after_a_restart_or_before_it_pays_once(stage: Stage, away: bool) -> None:
    prompt = await stage.asks("pay_invoice")
    await stage.kill()
    if away:  # Telegram delivers it again
        await stage.press(prompt, wait=False)
    await stage.start()
    if not away:
        await stage.press(prompt)
    await is_paid_once(stage)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_kill_in_an_unrepeatable_effect_is_told_as_unknown(stage: Stage, when: str) -> None:
    prompt = await stage.asks("pay_invoice")
    await stage.dies_in_effect(when, prompt)
    await stage.until(lambda: any("may or may not have happened" in text for text in stage.texts()))
    assert len(stage.business.done) == (1 if when == "after" else 0)
    press = await stage.press(prompt)
    await stage.until(lambda: press.answered)
    assert "may or may not" in press.text
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_kill_in_an_idempotent_effect_reruns_it_with_its_key(stage: Stage) -> None:
    await stage.dies_in_effect("after", await stage.asks("delete_invoice"))
    await stage.until(lambda: "delete INV-1 ok" in stage.texts())
    assert len(stage.business.done) == 2
    assert stage.business.happened("delete") == ["INV-1"]


@pytest.mark.parametrize(("when", "said"), [("after", "Done"), ("before", "It did not work")])
async def test_kill_in_an_effect_with_a_probe_asks_the_probe(stage: Stage, when: str, said: str) -> None:
    await stage.dies_in_effect(when, await stage.asks("send_invoice"))
    await stage.until(lambda: any(said in text for text in stage.texts()))
    assert len(stage.business.done) == (1 if when == "after" else 0)


async def test_killed_at_random_no_message_is_lost_and_no_order_broken(stage: Stage) -> None:
    people = [stage.telegram.person(f"P{number}") for number in range(4)]
    stage.model.script([Say("ok") for _ in range(400)])
    texts = [f"message {number}" for number in range(8)]
    for number, text in enumerate(texts):
        for person in people:
            await stage.telegram.person_says(person, person, text, wait=False)
        if number % 2:
            await stage.restart()
    await stage.until(lambda: not stage.telegram._pending)
    await stage.until(lambda: all(stage.texts(person) for person in people))

    def said() -> bool:
        """Return True if the last request about each person holds all messages, each once and in order."""
        histories = [
            [m["content"] for m in request["messages"] if m["role"] == "user"] for request in stage.model.requests
        ]
        return histories.count(texts) >= len(people)

    await stage.until(said)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_it_fetches_a_photo_is_kept_once(stage: Stage, when: str) -> None:
    """Killed before and after the naming of the photo's place: the next process fetches the bytes."""
    content = png(640, 480) + b"pixels"
    photo = stage.telegram.upload("photo", content, "", "image/png")
    held = stage.telegram.hold("getFile", "before" if when == "before" else "after")
    stage.model.script([Say("A cat.")])
    await stage.telegram.person_says(stage.ana, stage.ana, "what is this?", file=photo)
    await held.reached()
    await stage.kill()
    held.release()
    await stage.start()
    await stage.until(lambda: stage.texts() == ["A cat."])
    (request,) = stage.model.requests
    assert "iVBORw0KGgo" in str(request["messages"][-1]["content"])
    artifacts = Path(stage.env.get("ASKFIRST_ARTIFACTS", stage.directory / "artifacts"))
    kept = [path for path in artifacts.iterdir() if path.is_file() and not path.name.startswith(".")]
    assert [path.read_bytes() for path in kept] == [content]


@pytest.mark.ledger("PYG-10")
async def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    async with a_store("redis", tmp_path) as store, on_stage(tmp_path, store) as stage:
        ben, cat = (stage.telegram.person(name) for name in ("Ben", "Cat"))
        # It has one turn at a time: that of Ana. All others are run by the other process.
        holder = await stage.start(ASKFIRST_LIMITS="turns=1/1/1")
        stage.business.hold_after = True
        await stage.says("reserve A-17", Call("reserve", {"item": "A-17"}))
        await stage.business.reached.wait()

        await stage.start()
        stage.business.hold_after = False
        stage.model.script([Call("reserve", {"item": "A-17"}), Call("note", {"text": "later"}), Say("Noted.")])
        await stage.telegram.person_says(ben, ben, "reserve A-17 for me")
        await stage.model.wait_for(2)
        await stage.telegram.person_says(cat, cat, "note this")
        await stage.until(lambda: stage.texts(cat) == ["Noted."])
        assert len(stage.business.happened("reserve")) == 1  # Ben's call waits for the lock of Ana's
        stage.model.script([Say("Done."), Say("Done.")])
        await holder.end()
        for person in (ben, stage.ana):
            await stage.until(lambda chat=person: stage.texts(chat) == ["Done."])  # type: ignore[misc]
            assert len(stage.business.happened("reserve")) == 2

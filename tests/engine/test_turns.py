"""A turn ends, fails, is stopped, takes too long or is taken over, and no message is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, Confirm, Reply, ToolContext, providers, tool
from gateway.agent import AgentConfig
from gateway.bot.turn import Outcome
from gateway.engine.turns.runner import TurnRunner
from gateway.providers.base import ProviderError, Request, Response
from gateway.store.errors import StoreUnavailable
from gateway.store.types import Lease
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.bots import Invoices, Whole
from tests.engine.rig import Rig, Worker, here, killed, message, rig, until, user_lines

RESUMED = Confirm("Delete {invoice_id}?", after="resume")
DOWN = ProviderError("openai", "503", retryable=False)


def bot(script: ScriptedProvider, tools: Any = (), **options: Any) -> ChannelAgent:
    return ChannelAgent(Agent(tools, provider=script), **options)


def told(script: ScriptedProvider, role: str) -> list[str]:
    return [each.content for each in script.requests[-1].messages if each.role == role]


# ── the model is down ──


@pytest.mark.both_stores
async def test_model_down_is_told_once_and_retried_with_backoff(tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, DOWN, DOWN, DOWN, "Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.hears("ana", "hello")
        for tries, seconds in enumerate((5, 30, 120, 600), start=1):
            await chat.advance(seconds - 2)
            assert await chat.ready() == 0, f"too early after try {tries}"
            assert len(script.requests) == tries
            await chat.later(3)
        assert chat.platform.texts() == [say("model_down", "en"), "Here I am."]
        assert (await chat.store.stats()).dead == 0
        script.assert_used_up()


@pytest.mark.ledger("RTY-05")
async def test_wait_for_a_retry_ends_with_the_turns_deadline(tmp_path: Path) -> None:
    script = ScriptedProvider([ProviderError("openai", "503", retryable=True), "Here I am."])
    patient = ChannelAgent(Agent(provider=script, config=AgentConfig(retry_backoff_seconds=3600.0)))
    async with rig(patient, tmp_path) as chat:
        await chat.says("ana", "hello")
        outcome = await chat.worker.turn(deadline_seconds=1.0)  # time enough to have asked
        assert outcome is not None and (outcome.stop_reason, len(script.requests)) == ("timeout", 1)


@pytest.mark.both_stores
async def test_message_given_up_after_retries_can_be_replayed(tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN] * 5 + ["Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.hears("ana", "hello")
        for seconds in (6, 31, 121, 601):
            await chat.later(seconds)
        assert chat.platform.texts() == [say("model_down", "en"), say("gave_up", "en")]
        letter = (await chat.store.dead_letters())[0]
        assert letter.reason == "the model could not be reached"
        assert await chat.store.replay(letter.dead_id)
        await chat.turns()
        assert chat.platform.texts()[-1] == "Here I am."
        assert user_lines(script) == ["hello"]


@pytest.mark.both_stores
async def test_message_while_the_model_is_down_joins_the_next_try(tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, "Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.hears("ana", "hello")
        await chat.says("ana", "are you there?")
        assert await chat.ready() == 0
        await chat.later(6)
        assert user_lines(script) == ["hello", "are you there?"]
        assert len(script.requests) == 2


async def test_next_outage_is_told_again_in_the_bots_language(tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, "One.", DOWN])
    async with rig(bot(script, language="pt"), tmp_path) as chat:
        await chat.hears("ana", "hello")
        await chat.later(6)
        await chat.hears("ana", "hello again")
        assert chat.platform.texts() == [say("model_down", "pt"), "One.", say("model_down", "pt")]


async def test_a_model_that_fails_after_a_tool_goes_on_behind_it(tmp_path: Path) -> None:
    noted: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Write a note."""
        noted.append(text)
        return "noted"

    script = ScriptedProvider([ToolCall("note", {"text": "milk"}), DOWN, "I noted it."])
    async with rig(bot(script, [note]), tmp_path) as chat:
        await chat.hears("ana", "note milk")
        await chat.later(6)
        assert (noted, chat.platform.texts()[-1]) == (["milk"], "I noted it.")


# ── a turn that fails ──


class Fragile(Whole):
    """A model failing on a new message with a text of `poison`."""

    def __init__(self, *poison: str) -> None:
        self.poison = set(poison)
        self.asked: list[list[str]] = []

    async def complete(self, request: Request) -> Response:
        roles = [each.role for each in request.messages]
        answered = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
        new = [each.content for each in request.messages[answered:] if each.role == "user"]
        self.asked.append(new)
        if self.poison & set(new):
            raise RuntimeError("secret of the bot")
        return Response(content=f"read {' '.join(new)}")


@pytest.mark.ledger("LOOP-12", "PYG-25")
async def test_failed_batch_is_split_and_only_the_bad_is_put_aside(tmp_path: Path) -> None:
    model = Fragile("bad")
    async with rig(ChannelAgent(Agent(provider=model)), tmp_path) as chat:
        for text in ("good", "bad", "better"):
            await chat.says("ana", text)
        await chat.retries(8, every=6)
        await chat.turns()
        texts = chat.platform.texts()
        assert [text for text in texts if text.startswith("read")] == ["read good", "read better"]
        assert sum(text.startswith("Something went wrong") for text in texts) == 1
        assert not any("secret" in text for text in texts)
        assert model.asked[0] == ["good", "bad", "better"]
        (letter,) = await chat.store.dead_letters()
        assert letter.incoming is not None and letter.incoming.body["text"] == "bad"
        incident = texts[-2].rsplit(" ", 1)[-1]
        assert letter.dead_id.startswith(incident)


@pytest.mark.both_stores
async def test_failed_batch_stays_split_until_all_of_it_is_done(tmp_path: Path) -> None:
    """Otherwise a message fatal to the worker would kill twice more for each earlier message."""
    model = Fragile("bad")
    async with rig(ChannelAgent(Agent(provider=model)), tmp_path) as chat:
        for text in ("good", "better", "best", "bad"):
            await chat.says("ana", text)
        await chat.retries(8, every=6)
        for text in ("and", "so on"):
            await chat.says("ana", text)
        await chat.turns()
        together, alone = ["good", "better", "best", "bad"], [["bad"]] * 3
        assert model.asked == [together, together, ["good"], ["better"], ["best"], *alone, ["and", "so on"]]


async def test_another_person_is_not_blamed_for_a_turn_that_fails(tmp_path: Path) -> None:
    model = Fragile("bad")
    async with rig(ChannelAgent(Agent(provider=model)), tmp_path) as chat:
        await chat.says("ana", "bad", place="#team")
        await chat.says("bob", "good", place="#team")
        await chat.retries(4, every=6)
        assert chat.platform.texts("#team")[-1] == "read good"
        assert len(await chat.store.dead_letters()) == 1


@pytest.mark.both_stores
async def test_message_that_kills_its_worker_is_put_aside_alone(tmp_path: Path) -> None:
    script = ScriptedProvider(["Hello."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.says("ana", "deadly", place="#team")
        await chat.says("bob", "hello", place="#team")
        for _ in range(4):
            await chat.worker.lease("turn", lease_seconds=0.0)
        await chat.turns()
        assert chat.platform.texts("#team")[0].startswith("Something went wrong")
        assert chat.platform.texts("#team")[1:] == ["Hello."]
        (letter,) = await chat.store.dead_letters()
        assert letter.incoming is not None and letter.incoming.body["text"] == "deadly"


@pytest.mark.both_stores
async def test_turn_that_died_twice_runs_alone_on_its_worker(tmp_path: Path) -> None:
    held = asyncio.Event()
    script = ScriptedProvider([held, "Hello.", "Hello, too."])
    async with rig(bot(script), tmp_path) as chat:
        for person in ("ana", "bob"):
            await chat.says(person, "hello")
            lane = chat.worker.context.conversation(here(person))
            for _ in range(2):
                await chat.worker.lease("turn", only=lane, lease_seconds=0.0)
        turns = TurnRunner(chat.worker.context, chat.worker.decisions)
        first, second = [await chat.worker.lease("turn") for _ in range(2)]
        running = asyncio.create_task(turns.run(first))
        await until(lambda: script.requests)
        await turns.run(second)
        assert len(script.requests) == 1
        held.set()
        await running
        await chat.advance(1)
        await turns.run(await chat.worker.lease("turn"))
        await chat.turns()
        assert (chat.platform.texts("ana"), chat.platform.texts("bob")) == (["Hello."], ["Hello, too."])


@pytest.mark.both_stores
async def test_worker_deaths_after_outages_put_no_message_aside(tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, DOWN, DOWN, "Here I am."])
    async with rig(bot(script), tmp_path) as chat:
        await chat.says("ana", "hello")
        for seconds in (0, 6, 31, 121):
            await chat.advance(seconds)
            if seconds == 121:
                await chat.worker.lease("turn", lease_seconds=0.0)
            await chat.turns()
        assert chat.platform.texts()[-1] == "Here I am."


async def test_outcomes_survive_the_message_that_is_put_aside(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.presses("ana", "Cancel")
    fragile = Fragile("bad")
    invoices_model, asked.bot.agent = asked.bot.agent, asked.bot.agent.using(fragile)
    await asked.says("ana", "bad")
    for _ in range(3):
        await asked.clock.advance(6)
    asked.bot.agent = invoices_model
    await asked.says("ana", "hello")
    assert any("refused by the person" in each.content for each in invoices.model.requests[-1].messages)


async def test_outcomes_are_not_lost_with_a_late_yes(asked: ChatDriver, invoices: Invoices) -> None:
    await asked.presses("ana", "Confirm")
    await asked.says("ana", "yes")
    assert "already done" in asked.last.text
    await asked.says("ana", "hello")
    assert any("and done" in each.content for each in invoices.model.requests[-1].messages if each.role == "event")


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.both_stores
async def test_commit_without_an_answer_asks_the_model_once(tmp_path: Path, arrives: bool) -> None:
    async with rig(bot(ScriptedProvider(["One."])), tmp_path) as chat:
        await chat.says("ana", "hello")
        if arrives:
            chat.wire.lost_answers["commit"] = 1
        else:
            chat.wire.errors["commit"] = [StoreUnavailable("no answer")]
        await chat.turns()
        await chat.later(2)
        assert chat.platform.texts() == ["One."]


# ── deadlines, stops, excuses ──


@pytest.mark.ledger("PYG-13")
async def test_turn_timeout_is_told_and_its_tool_calls_are_kept(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool
    async def note(text: str) -> str:
        """Write a note."""
        return f"noted {text}"

    @tool
    async def brew(ctx: ToolContext) -> str:
        """Take for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    script = ScriptedProvider([ToolCall("note", {"text": "milk"}), ToolCall("brew", {}), "Yes?"])
    async with rig(bot(script, [note, brew]), tmp_path) as chat:
        await chat.says("ana", "note milk and brew")
        outcome = await chat.worker.turn(deadline_seconds=2.0)  # time enough to have begun
        assert started.is_set() and outcome is not None and outcome.stop_reason == "timeout"
        await chat.turns()
        assert chat.platform.texts() == [say("turn_timeout", "en")]
        await chat.hears("ana", "still there?")
        results = told(script, "tool")
        assert results[0] == "noted milk"
        assert "may or may not have happened" in results[1]


@pytest.mark.parametrize(
    ("config", "steps", "key"),
    [
        (AgentConfig(max_iterations=1), [ToolCall("look", {})], "max_iterations"),
        (AgentConfig(), [ToolCall("look", {})] * 3, "max_iterations"),
        (AgentConfig(retry_backoff_seconds=0), ["", " "], "empty_answer"),
    ],
    ids=["max_iterations", "loop_detected", "nothing"],
)
async def test_a_turn_without_an_answer_says_why(tmp_path: Path, config: AgentConfig, steps: Any, key: str) -> None:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "the same"

    agent = Agent([look], provider=ScriptedProvider(steps), config=config)
    async with rig(ChannelAgent(agent), tmp_path) as chat:
        await chat.hears("ana", "look")
        assert chat.platform.texts() == [say(key, "en")]


async def test_stop_ends_only_the_senders_turn_and_drops_no_message(driver: ChatDriver, invoices: Invoices) -> None:
    saying = asyncio.create_task(driver.says("ana", "wait", group="team"))
    await invoices.model.waiting.wait()
    others = []
    for number, (person, text) in enumerate(WAITING, start=2):
        others.append(asyncio.create_task(driver.says(person, text, group="team")))
        while (await driver.engine.context.store.stats()).waiting < number:
            await asyncio.sleep(0.001)
    stopping = asyncio.create_task(driver.says("bob", "/stop", group="team"))
    await until(lambda: any("stop" in each.text for each in driver.messages))
    assert not saying.done() and len(invoices.model.requests) == 1
    ended = asyncio.create_task(driver.says("ana", "/stop", group="team"))
    await asyncio.gather(saying, stopping, ended, *others)
    texts = [each.text for each in driver.messages]
    assert "You said: wait" not in texts
    assert [text for text in texts if text.startswith("You said")] == ["You said: hello", "You said: more"]


WAITING = (("bob", "hello"), ("ana", "more"))


@pytest.mark.both_stores
async def test_stop_reaches_a_turn_in_another_process(chat: Rig, invoices: Invoices) -> None:
    other = chat.another()
    await chat.says("ana", "wait")
    running = asyncio.create_task(other.turn())
    await invoices.model.waiting.wait()
    await chat.says("ana", "/stop")
    await chat.worker.deliver()
    assert chat.platform.texts() == [say("stopped", "en")]
    assert ("turn", chat.worker.context.conversation(message("ana", "").address)) not in chat.worker.context.held
    other.context.nudge("turn", next(lane for kind, lane in other.context.held if kind == "turn"))
    outcome = await running
    assert outcome is not None and outcome.stop_reason == "cancelled"


async def test_the_threads_of_one_place_leave_turns_for_others(chat: Rig, invoices: Invoices) -> None:
    threads = [replace(here("#team"), thread=str(number)) for number in range(96)]
    await chat.take(*(replace(message("eve", "wait", answers_bot=True), address=thread) for thread in threads))
    chat.worker.engine.start()
    await until(lambda: len(invoices.model.requests) >= 32)
    await chat.says("ana", "hello")
    await until(lambda: chat.platform.texts("ana"))
    assert len(invoices.model.requests) == 33
    invoices.model.let_go.set()
    while len(chat.platform.sent) <= len(threads):
        chat.store.offset_seconds += 1.0
        await asyncio.sleep(0.01)


@pytest.mark.both_stores
async def test_stopped_turn_asks_no_question(tmp_path: Path) -> None:
    started, hold = asyncio.Event(), asyncio.Event()

    async def preview(invoice_id: str) -> str:
        started.set()
        await hold.wait()
        return f"Delete {invoice_id}?"

    @tool(confirm=preview)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        raise AssertionError("never")

    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Fine."])
    async with rig(bot(script, [delete_invoice]), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        running = asyncio.create_task(chat.worker.turn())
        await started.wait()
        await chat.says("ana", "/stop")
        lane = next(lane for kind, lane in chat.worker.context.held if kind == "turn")
        chat.worker.context.nudge("turn", lane)
        await until(lambda: chat.wire.calls["renew"] != 0)
        hold.set()
        await running
        await chat.turns()
        assert not any(part.buttons for _, part in chat.platform.sent)
        await chat.hears("ana", "hello")
        assert any("withdrawn" in text for text in told(script, "event"))


# ── checkpoints ──


@pytest.mark.both_stores
async def test_a_take_over_goes_on_from_the_last_finished_step(tmp_path: Path) -> None:
    done: list[str] = []

    @tool
    async def pay(invoice_id: str) -> str:
        """Pay."""
        done.append(invoice_id)
        return f"{invoice_id} is paid"

    hold = asyncio.Event()
    script = ScriptedProvider([ToolCall("pay", {"invoice_id": "INV-1"}), hold, "Never said.", "It is paid."])
    async with rig(bot(script, [pay]), tmp_path) as chat:
        await chat.says("ana", "pay INV-1")
        lease = await chat.worker.lease("turn", lease_seconds=0.0)
        dying = asyncio.create_task(run(chat.worker, lease))
        await until(lambda: len(script.requests) >= 2)
        await chat.says("ana", "and thanks")
        other = chat.another()
        taken = await other.lease("turn")
        assert taken.died and len(taken.steps) > 1
        hold.set()
        assert await dying is None, "a zombie's commit is refused"
        assert chat.platform.texts() == []
        assert await run(other, taken) is not None
        assert done == ["INV-1"]
        assert user_lines(script) == ["pay INV-1"], "what came later is the next turn's"
        assert told(script, "tool") == ["INV-1 is paid"]


async def run(worker: Worker, lease: Lease) -> Outcome | None:
    return await TurnRunner(worker.context, worker.decisions).run(lease)


@pytest.mark.both_stores
async def test_a_tool_that_was_started_is_not_run_again(tmp_path: Path) -> None:
    runs: list[str] = []
    started = asyncio.Event()

    @tool
    async def pay(invoice_id: str) -> str:
        """Pay."""
        runs.append(invoice_id)
        started.set()
        await asyncio.Event().wait()
        return "never"

    script = ScriptedProvider([ToolCall("pay", {"invoice_id": "INV-1"}), "I do not know."])
    async with rig(bot(script, [pay]), tmp_path) as chat:
        await chat.says("ana", "pay INV-1")
        running = asyncio.create_task(chat.worker.turn())
        await started.wait()
        await killed(running)
        await chat.another().turn()
        assert runs == ["INV-1"]
        assert "unknown" in told(script, "tool")[0]


@pytest.mark.both_stores
async def test_plain_message_costs_five_store_calls(tmp_path: Path) -> None:
    """The calls: accept; lease, commit; lease, commit."""
    async with rig(bot(ScriptedProvider(["Hello."])), tmp_path) as chat:
        await chat.says("ana", "hello")
        assert chat.wire.calls == {"accept": 1}
        await chat.worker.turn()
        calls = dict(chat.wire.calls)
        assert calls == {"accept": 1, "lease": 1, "commit": 1}
        await chat.worker.deliver()
        assert chat.platform.texts() == ["Hello."]
        assert chat.wire.calls - Counter(calls) == {"lease": 1, "commit": 1}
        assert await chat.ready() == 0


# ── commands ──


@pytest.mark.ledger("LOOP-05")
async def test_new_begins_an_empty_transcript_and_asks_stay_open(invoices: Invoices) -> None:
    script = ScriptedProvider(["Nice.", ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Hello."])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "my cat is Felix")
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "/new")
        assert chat.last.text == say("new_done", "en")
        await chat.says("ana", "hello")
        assert user_lines(script) == ["hello"]
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]


async def test_start_help_and_pending_answer_without_the_model(invoices: Invoices) -> None:
    bot = invoices.bot(greeting="Welcome to **INV**.")

    @bot.command("refund", description="Get money back")
    async def refund(ctx: ToolContext, text: str) -> None:
        """Unused."""

    async with ChatDriver(bot) as chat:
        await chat.says("ana", "/start")
        assert chat.last.text == "Welcome to **INV**."
        await chat.says("ana", "/help")
        assert all(f"/{name}" in chat.last.text for name in ("start", "help", "new", "stop", "pending", "refund"))
        assert "Get money back" in chat.last.text
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "/pending")
        assert "INV\\-1" in chat.last.text
        assert invoices.deleted == [] and len(invoices.model.requests) == 1


async def test_an_unknown_command_goes_to_the_model() -> None:
    script = ScriptedProvider(["I know no such thing."])
    async with ChatDriver(bot(script)) as chat:
        await chat.says("ana", "/weather in Porto")
        assert chat.last.text == "I know no such thing."
        assert user_lines(script) == ["/weather in Porto"]


async def test_own_commands_are_answered() -> None:
    own = bot(ScriptedProvider([]))

    @own.command("text")
    async def text(ctx: ToolContext, words: str) -> str:
        """Say a text."""
        return f"{ctx.person} said {words}"

    @own.command("reply")
    async def reply(ctx: ToolContext, words: str) -> Reply:
        """Say a reply."""
        return Reply(text="**a reply**")

    @own.command("nothing")
    async def nothing(ctx: ToolContext, words: str) -> None:
        """Say nothing."""

    @own.command("broken")
    async def broken(ctx: ToolContext, words: str) -> None:
        """Fail."""
        raise RuntimeError("password=hunter2")

    async with ChatDriver(own) as chat:
        await chat.says("ana", "/text one two")
        await chat.says("ana", "/reply")
        await chat.says("ana", "/nothing")
        assert [each.text for each in chat.messages] == ["test:bot:ana said one two", "**a reply**"]
        await chat.says("ana", "/broken")
        for _ in range(3):
            await chat.clock.advance(6)
        assert chat.last.text.startswith("Something went wrong")
        assert "hunter2" not in chat.last.text
        await chat.says("ana", "/reply")
        assert chat.last.text == "**a reply**"


# ── after an outcome ──


async def test_resume_goes_on_after_the_outcome(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Next I would mail Bob."])
    async with ChatDriver(invoices.bot(confirm=RESUMED), provider=script) as chat:
        await chat.says("ana", "delete INV-1, then mail Bob")
        await chat.presses("ana", "Confirm")
        assert invoices.deleted == ["INV-1"]
        assert [each.text for each in chat.messages[1:]] == ["Invoice INV-1 is deleted.", "Next I would mail Bob."]
        assert "and done" in told(script, "event")[-1]
        script.assert_used_up()


@pytest.mark.ledger("MISC-17")
async def test_on_unrelated_drop_withdraws_the_ask_at_other_words(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(on_unrelated="drop")) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.says("ana", "what is the weather?")
        assert say("dropped", "en") in [each.text for each in chat.messages]
        assert chat.messages[0].buttons == []
        await chat.says("ana", "yes")
        assert invoices.deleted == []


async def test_resumed_turn_drops_no_open_question(invoices: Invoices) -> None:
    calls = [ToolCall("delete_invoice", {"invoice_id": f"INV-{number}"}) for number in (1, 2)]
    script = ScriptedProvider([calls, "One is gone."])
    async with ChatDriver(invoices.bot(confirm=RESUMED, on_unrelated="drop"), provider=script) as chat:
        await chat.says("ana", "delete both")
        await chat.presses("ana", "Confirm 1")
        texts = [each.text for each in chat.messages]
        assert "One is gone." in texts and say("dropped", "en") not in texts
        await chat.says("ana", "/pending")
        assert "INV" in chat.last.text


async def test_outcomes_are_told_to_the_bots_own_code(invoices: Invoices) -> None:
    own, heard = invoices.bot(), []

    @own.on_outcome
    async def remember(action: Any) -> None:
        heard.append((action.args["invoice_id"], action.state))
        raise RuntimeError("an author's mistake")

    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
        assert heard == [("INV-1", "done")]
        assert chat.last.text == "Invoice INV-1 is deleted."


async def test_checkpoint_of_a_turn_is_kept_while_its_channel_is_off(tmp_path: Path) -> None:
    brewed, waiting, on = [], asyncio.Event(), asyncio.Event()

    @tool
    async def brew() -> str:
        """Brew."""
        brewed.append("tea")
        return "tea"

    class Model(ScriptedProvider):
        async def complete(self, request: Request) -> Response:
            if request.messages[-1].role != "tool":
                return Response(tool_calls=(providers.ToolCall(call_id="1", name="brew", args={}),), finish="tools")
            waiting.set()
            await on.wait()
            return Response(content="It is ready.")

    script = Model([])
    async with rig(ChannelAgent(Agent([brew], provider=script)), tmp_path) as chat:
        await chat.says("ana", "tea, please")
        running = asyncio.create_task(chat.worker.turn())
        await waiting.wait()
        await killed(running)
        await Worker(chat.bot, chat.wire, {}, chat.files).turn()
        on.set()
        await chat.later(61)
        assert (brewed, chat.platform.texts()) == (["tea"], ["It is ready."])

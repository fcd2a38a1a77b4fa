"""An answer is shown while the model writes: in any event, the outbox ends with one whole message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Address, Ambiguous, AnswerStopped, RateLimited, Unavailable, Undeliverable
from gateway import Agent, AgentConfig, ChannelAgent, InMemoryCache, ToolContext, emit_artifact, tool
from gateway.engine import signs_of_life
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.leases import prefetch
from gateway.engine.turns import live
from gateway.guards import LengthGuardrail
from gateway.providers import ProviderError
from gateway.providers.base import ToolCall as Call
from gateway.store.types import Lease
from gateway.testing import ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.rig import Platform, Rig, Worker, here, killed, person_of, rig, until
from tests.engine.streaming import Board, Typist

LOOK = (Call(call_id="1", name="look"),)
PAY = (Call(call_id="1", name="pay"),)
BROKE = ProviderError("typist", "broke", retryable=True)


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "42"


@tool(confirm="Pay?")
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(live, "PROGRESS_SECONDS", 0.0)


@pytest.fixture
def typist() -> Typist:
    return Typist()


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
async def chat(tmp_path: Path, typist: Typist, board: Board) -> AsyncIterator[Rig]:
    agent = Agent([look, pay], provider=typist, config=AgentConfig(retry_backoff_seconds=0.0))
    async with rig(ChannelAgent(agent), tmp_path, board) as chat:
        yield chat


async def begun(chat: Rig, shown: str = "", *, said: str = "hi") -> asyncio.Task[object]:
    """Begin the turn of Ana's message; the first words of the answer are shown."""
    await chat.says("ana", said)
    turn: asyncio.Task[object] = asyncio.create_task(chat.worker.turn())
    if shown:
        cast("Typist", chat.bot.agent.provider).writes(shown)
        await cast("Board", chat.platform).until([shown])
    return turn


async def ends(chat: Rig, turn: asyncio.Task[object], *rest: Any) -> None:
    """Write the rest of an answer, and send all waiting parts."""
    cast("Typist", chat.bot.agent.provider).writes(*rest, ())
    await turn
    await chat.turns()


@pytest.mark.ledger("CFG-17")
async def test_an_answer_grows_in_one_message(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "Hello")
    typist.writes(" Ana")
    await board.until(["Hello Ana"])
    await ends(chat, turn, ", how are you?")
    assert board.shown == {"1": "Hello Ana, how are you?"}
    assert len(board.sent) == 1
    assert await chat.store.scan("streamed/") == []


async def test_the_next_reply_takes_the_place_of_the_one_before(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "Let me look.")
    typist.writes(LOOK, "It is 42.")
    await board.until(["It is 42."])
    await ends(chat, turn)
    assert board.shown == {"1": "It is 42."}


async def test_a_question_leaves_no_half_sentence_above_it(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "I shall pay th")
    typist.writes("is.", PAY)
    await turn
    await chat.turns()
    (question,) = board.shown.values()
    assert "Pay?" in question
    assert "1" not in board.shown, "the question is a new message, after all that was written before it"


async def test_a_reply_that_breaks_is_asked_for_again(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "Hello wor")
    await ends(chat, turn, BROKE, "Good morning")
    assert board.shown == {"1": "Good morning"}
    assert len(typist.requests) == 2


async def test_the_next_attempt_goes_on_in_the_same_message(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "Hello wor")
    await killed(turn)  # the process ends
    again = asyncio.create_task(chat.another().turn())
    typist.writes("Good")
    await board.until(["Good"])
    typist.writes(" morning", ())
    await again
    await chat.turns()
    assert board.shown == {"1": "Good morning"}


async def test_a_model_that_is_down_takes_the_place_of_the_text(chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat, "Hello wor")
    typist.writes(BROKE, BROKE, BROKE)
    await turn
    await chat.worker.deliver()
    assert board.shown == {"1": say("model_down", "en")}
    assert await chat.store.scan("streamed/") == []
    await chat.advance(5)
    again = asyncio.create_task(chat.worker.turn())
    typist.writes("Hello", ())
    await again
    await chat.turns()
    assert [*board.shown.values()] == [say("model_down", "en"), "Hello"]


@pytest.mark.parametrize(
    ("fails", "message_id"),
    [
        pytest.param([None, RateLimited("429", retry_after_seconds=3600)], "1", id="a limit pauses the text alone"),
        pytest.param([None, Ambiguous("no_answer")], "2", id="a call that may arrive late changes no answer"),
        pytest.param([Undeliverable("not_allowed")], "1", id="the answer comes whole"),
    ],
)
async def test_call_for_a_growing_text_that_fails_harms_no_answer(
    chat: Rig, typist: Typist, board: Board, fails: list[Exception | None], message_id: str
) -> None:
    board.fails = [*fails]
    turn = await begun(chat)
    typist.writes("One")
    if len(fails) > 1:
        await board.until(["One"])
    typist.writes(" two")
    await until(lambda: not board.fails)
    await ends(chat, turn, " three")
    assert board.shown == {message_id: "One two three"}


async def test_an_answer_waits_for_the_call_and_not_for_the_interval(chat: Rig, typist: Typist, board: Board) -> None:
    board.interval_seconds, slow = 60.0, asyncio.Event()
    board.will = [slow]
    turn = await begun(chat)
    typist.writes("One")
    await board.sending.wait()
    typist.writes(" two", ())
    began = asyncio.get_running_loop().time()
    slow.set()
    await turn
    assert asyncio.get_running_loop().time() - began < live._END_SECONDS
    await chat.turns()
    assert board.shown == {"1": "One two"}


async def test_a_platform_that_hangs_holds_up_no_answer(
    chat: Rig, typist: Typist, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_END_SECONDS", 0.01)
    turn = await begun(chat, "One")
    hang = board.hangs = asyncio.Event()
    typist.writes(" two")
    await board.hanging.wait()
    typist.writes(" three", ())
    await turn
    board.hangs = None
    await chat.turns()
    assert [*board.shown.values()] == ["One two three"]
    hang.set()
    await asyncio.sleep(0)
    assert [*board.shown.values()] == ["One two three"]


async def test_a_process_that_stood_still_writes_over_no_answer(chat: Rig, typist: Typist, board: Board) -> None:
    """The lease has lapsed, and another process has answered in the same message."""
    chat.worker.context.lease_seconds, typist.apart = 0.4, True
    await chat.says("ana", "hi")
    turn = asyncio.create_task(chat.worker.turn_of(await chat.worker.lease("turn", lease_seconds=0.4)))
    typist.writes("Half of")
    await board.until(["Half of"])
    (held,) = chat.worker.context.held.values()
    cast("Any", held)._beating.end()  # it stands still: its lease is not renewed
    cast("Any", held)._sure_until = 0.0
    another = chat.another()
    lease, renewals = await taken_over(chat, another), chat.wire.calls["renew"]
    again = asyncio.create_task(another.turn_of(lease))
    typist.writes("The answer.", (), to=1)
    await again
    await chat.turns()
    assert [*board.shown.values()] == ["The answer."]
    typist.writes(" an answer", to=0)  # the one that stood still goes on
    await until(lambda: not (chat.wire.calls["renew"] == renewals and board.shown["1"] == "The answer."))
    typist.writes((), to=0)
    await asyncio.gather(turn, return_exceptions=True)
    await chat.turns()
    assert [*board.shown.values()] == ["The answer."]


async def taken_over(chat: Rig, worker: Worker) -> Lease:
    """Return the turn's lease, after the old lease has lapsed."""
    while True:
        lease = await chat.store.lease(
            worker.context.worker, ["turn"], pool="test", prefetch=prefetch(worker.context, "turn")
        )
        if lease is not None:
            return lease
        await asyncio.sleep(0.05)


async def test_a_message_that_is_gone_is_sent_anew(chat: Rig, board: Board) -> None:
    turn = await begun(chat, "One")
    board.shown.clear()  # Ana removed it
    await ends(chat, turn, " two")
    assert [*board.shown.values()] == ["One two"]


async def test_an_end_without_an_answer_is_repeated(chat: Rig, typist: Typist, board: Board) -> None:
    """The repetition changes the same message, without a warning and without a second message."""
    turn = await begun(chat, "One")
    typist.writes(" two", ())
    board.fails = [Ambiguous("no_answer")]
    await turn
    await chat.worker.deliver()
    await chat.later(60)
    assert board.shown == {"1": "One two"}


async def test_a_stopped_turn_takes_its_text_away(chat: Rig, board: Board) -> None:
    turn = await begun(chat, "One")
    await chat.says("ana", "/stop")
    while not turn.done():  # until its lease is renewed, and brings the signal
        chat.worker.context.nudge("turn", f"{chat.bot.name}/test:bot:ana")
        await asyncio.sleep(0.001)
    await chat.turns()
    assert "One" not in board.shown.values()


async def test_a_stop_button_keeps_the_half_answer(chat: Rig, typist: Typist, board: Board) -> None:
    """The open question stays, also beside the stop of another person."""
    typist.writes(PAY)
    await (await begun(chat, said="pay"))
    await chat.turns()
    turn = await begun(chat, said="And what is the weather?")
    typist.writes("One **two")
    await until(lambda: any(text.startswith("One") for text in board.shown.values()))
    for name in ("bob", "ana"):
        await chat.take(AnswerStopped(event_ids=(f"stop {name}",), address=here("ana"), person=person_of(name)))
        renewals = chat.wire.calls["renew"]
        while not turn.done() and (name == "ana" or chat.wire.calls["renew"] < renewals + 2):
            chat.worker.context.nudge("turn", f"{chat.bot.name}/test:bot:ana")
            await asyncio.sleep(0.001)
        assert turn.done() == (name == "ana")
    await turn
    await chat.turns()
    assert [text for text in board.shown.values() if "Pay" not in text] == ["One **two**…"]
    assert len((await chat.worker.context.actions(f"{chat.bot.name}/test:bot:ana")).open) == 1
    typist.writes("Sunny.", ())
    await (await begun(chat, said="go on"))
    said = [(message.role, message.content) for message in typist.requests[-1].messages]
    assert ("assistant", "One **two**") in said
    assert any(role == "event" and "stopped the answer here" in text for role, text in said)


async def stopped(chat: Rig, turn: asyncio.Task[object]) -> None:
    """Press the stop button, and send all that follows."""
    await chat.take(AnswerStopped(event_ids=("stop",), address=here("ana"), person=person_of("ana")))
    while not turn.done():
        chat.worker.context.nudge("turn", f"{chat.bot.name}/test:bot:ana")
        await asyncio.sleep(0.001)
    await chat.turns()


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("Use:\n```python\nprint(1)", "Use:\n```python\nprint(1)\n```\n\n…"),
        ("Use:\n```\nx\n```", "Use:\n```\nx\n```\n\n…"),
        ("a [link](https://a", "a link…"),
        ("", "Stopped."),
    ],
)
async def test_half_answer_is_whole_markdown(words: str, left: str, chat: Rig, typist: Typist, board: Board) -> None:
    turn = await begun(chat)
    if words:
        typist.writes(words)
        await until(lambda: board.shown)
    await stopped(chat, turn)
    assert [*board.shown.values()] == [left]


async def test_a_stop_button_keeps_files_and_words_before_a_tool(tmp_path: Path, typist: Typist, board: Board) -> None:
    @tool(read_only=True)
    async def report() -> str:
        """Make a report."""
        emit_artifact(content=b"hello", filename="r.txt", mime_type="text/plain")
        return "made"

    async with rig(ChannelAgent(Agent([report], provider=typist)), tmp_path, board) as chat:
        turn = await begun(chat, "I make it.")
        typist.writes((Call(call_id="1", name="report"),))
        await until(lambda: len(typist.requests) == 2)
        await stopped(chat, turn)
        assert [*board.shown.values()] == ["I make it.", "r.txt"]
        typist.writes("Yes.", ())
        await (await begun(chat, said="go on"))
        said = [message.content for message in typist.requests[-1].messages if message.role == "assistant"]
        assert said.count("I make it.") == 1


async def test_yes_to_a_growing_text_is_no_yes(chat: Rig, typist: Typist, board: Board) -> None:
    """The growing text is a message of the bot, after the open question."""
    typist.writes(PAY)
    await (await begun(chat, said="pay"))
    await chat.turns()
    (question,) = board.shown
    turn = await begun(chat, said="And what is the weather?")
    typist.writes("Shall I look?")
    await until(lambda: len(board.shown) != 1)
    await chat.says("ana", "yes", after=question)
    await ends(chat, turn)
    actions = await chat.worker.context.actions(f"{chat.bot.name}/test:bot:ana")
    assert [action.open for action in actions.by_id.values()] == [True]
    assert len(typist.requests) == 2


@pytest.mark.ledger("TOOL-45")
async def test_progress_is_shown_under_the_text(tmp_path: Path, typist: Typist, board: Board) -> None:
    go = asyncio.Event()

    @tool(read_only=True)
    async def count(ctx: ToolContext) -> str:
        """Count."""
        await ctx.progress("3 of *10*")
        await go.wait()
        return "10"

    @tool(read_only=True, streaming=True)
    async def lines() -> AsyncIterator[str]:
        """Lines."""
        yield "one "
        yield "two"
        await go.wait()

    async with rig(ChannelAgent(Agent([count, lines], provider=typist)), tmp_path, board) as chat:
        turn = await begun(chat)
        typist.writes("Counting.", (Call(call_id="1", name="count"),))
        await board.until(["Counting.\n\n3 of \\*10\\*"])
        go.set()
        go = asyncio.Event()
        typist.writes((Call(call_id="2", name="lines"),))
        await board.until(["Counting.\n\none two"])
        go.set()
        await ends(chat, turn, "Done.")
        assert board.shown == {"1": "Done."}


async def test_a_guarded_tool_shows_no_pieces(tmp_path: Path, typist: Typist, board: Board) -> None:
    """No guard has seen the pieces."""

    @tool(read_only=True, streaming=True)
    async def lines() -> AsyncIterator[str]:
        """Lines."""
        yield "secret"

    config = AgentConfig(guardrails=(LengthGuardrail(max_chars=100, stages=("output",)),))
    async with rig(ChannelAgent(Agent([lines], provider=typist, config=config)), tmp_path, board) as chat:
        turn = await begun(chat)
        typist.writes((Call(call_id="2", name="lines"),), "Done.\n")
        await board.until(["Done."])
        typist.writes(())
        await turn


@pytest.mark.ledger("CFG-17")
@pytest.mark.parametrize(
    "config",
    [AgentConfig(stream=False), AgentConfig(stream=frozenset({"telegram"})), AgentConfig(cache=InMemoryCache())],
)
async def test_an_agent_may_answer_whole(tmp_path: Path, board: Board, config: AgentConfig) -> None:
    script, streamed = ScriptedProvider(["Hello Ana"]), list[object]()
    script.stream = streamed.append  # type: ignore[method-assign, assignment]
    async with rig(ChannelAgent(Agent([], provider=script, config=config)), tmp_path, board) as chat:
        await chat.hears("ana", "hi")
        assert ([*board.shown.values()], streamed) == (["Hello Ana"], [])


class Shows(Platform):
    """A platform showing typing, under a message if told to."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(typing=True, **capabilities)
        self.typed: list[str | None] = []
        self.seen = asyncio.Event()

    async def typing(self, address: Address) -> None:
        self.typed.append(None)
        self.seen.set()
        raise Unavailable("503")


class ShowsUnder(Shows):
    async def typing_under(self, address: Address, message_id: str, *, ends: bool = False) -> None:
        self.typed.append(f"{message_id} {'ends' if ends else 'typing'}")
        self.seen.set()


@pytest.fixture(autouse=True)
def typing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "_TYPING_AFTER_SECONDS", 0.0)


async def slow_turn(chat: Rig, hold: asyncio.Event, platform: Shows) -> None:
    await chat.says("ana", "hi", message_id="m1")
    turn = asyncio.create_task(chat.worker.turn())
    await platform.seen.wait()
    hold.set()
    await turn
    await chat.worker.context.tasks.ended()


async def test_a_turn_is_seen_though_the_notice_fails(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), Shows()
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider([hold, "Hello"]))), tmp_path, platform) as chat:
        await slow_turn(chat, hold, platform)
        await chat.turns()
        assert platform.typed == [None]
        assert platform.texts() == ["Hello"]


async def test_a_turn_is_seen_under_its_message_until_it_ends(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), ShowsUnder()
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider([hold, "Hello"]))), tmp_path, platform) as chat:
        await slow_turn(chat, hold, platform)
    assert platform.typed == ["m1 typing", "m1 ends"]


async def test_an_effect_is_seen_under_its_question(tmp_path: Path) -> None:
    hold, platform = asyncio.Event(), ShowsUnder()

    @tool(confirm="Pay?")
    async def pay() -> str:
        """Pay."""
        await hold.wait()
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {})])
    async with rig(ChannelAgent(Agent([pay], provider=script)), tmp_path, platform) as chat:
        await chat.hears("ana", "pay")
        await chat.worker.context.tasks.ended()
        platform.typed.clear()
        platform.seen.clear()
        code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
        await chat.says("ana", f"ok {code}")
        lease = await chat.worker.lease("action")
        effect = asyncio.create_task(ActionExecutor(chat.worker.context).run(lease))
        await platform.seen.wait()
        hold.set()
        await effect
        await chat.worker.context.tasks.ended()
        assert platform.typed == ["1 typing", "1 ends"]


@pytest.mark.ledger("PYG-12")
async def test_a_long_turn_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "STILL_WORKING_SECONDS", 0.0)
    hold, told = asyncio.Event(), say("still_working", "en")
    script = ScriptedProvider([hold, "never said", "Hello"])
    async with rig(ChannelAgent(Agent(provider=script)), tmp_path) as chat:
        await chat.says("ana", "hi")
        turn = asyncio.create_task(chat.worker.turn())
        while not await chat.store.outbox(f"{chat.bot.name}/test:bot:ana"):
            await asyncio.sleep(0.001)
        await killed(turn)  # the process ends, and another one takes the turn over
        hold.set()
        await chat.turns()
        assert chat.platform.texts() == [told, "never said"]
        assert "/stop" in told


async def test_a_text_that_is_shown_is_a_sign_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(signs_of_life, "STILL_WORKING_SECONDS", 0.01)
    typist, board = Typist(), Board()
    async with rig(ChannelAgent(Agent(provider=typist)), tmp_path, board) as chat:
        await chat.says("ana", "hi")
        turn = asyncio.create_task(chat.worker.turn())
        typist.writes("Once upon")
        await board.until(["Once upon"])
        loop = asyncio.get_running_loop()
        passed = asyncio.Event()
        loop.call_later(0.02, passed.set)
        await passed.wait()
        await ends(chat, turn, " a time")
        assert board.shown == {"1": "Once upon a time"}

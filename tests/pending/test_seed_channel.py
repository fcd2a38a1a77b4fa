"""ask_channel as in selectools' documents: a call asks, and the next call answers without the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Message, Person
from gateway import (
    Agent,
    AgentConfig,
    AgentResult,
    ChannelAgent,
    Gateway,
    PendingAction,
    PendingConfirmation,
    Settings,
    ToolContext,
    ToolFailed,
    stash_pending,
    tool,
)
from gateway.agent import Ask, Asked, LoopPorts
from gateway.config.options import WrongOption
from gateway.pending import InMemoryPendingStore, RegexConfirmParser, SqlitePendingStore
from gateway.pending.seed.state import state_of
from gateway.providers import ModelMessage
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall, run_tool
from gateway.tools import ToolExecutionError
from gateway.wording import say
from tests.pending.conftest import SECRET, Place
from tests.stored import edited

CALL = ToolCall("delete_invoice", {"invoice_id": "INV-42"})
SHOWN = "Delete invoice INV\\-42"


class Invoices:
    """A stashing tool, the deleted invoices, and bots with the tool, each as in a separate process."""

    def __init__(self, *, gives_args: bool = True, closure: bool = True, ttl_seconds: float | None = None) -> None:
        self.deleted: list[str] = []
        self.error: Exception | None = None
        self.model = ScriptedProvider([])

        @tool
        def delete_invoice(invoice_id: str) -> PendingConfirmation:
            """Delete an invoice."""
            action = stash_pending(
                kind="delete_invoice",
                preview=f"Delete invoice {invoice_id}",
                executor=partial(self.delete, invoice_id) if closure else None,
                args={"invoice_id": invoice_id} if gives_args else None,
                ttl_seconds=ttl_seconds,
            )
            return PendingConfirmation(action.kind, action.preview, "Reply yes or no.")

        self.tool = delete_invoice

    def delete(self, invoice_id: str) -> str:
        self.deleted.append(invoice_id)
        if self.error is not None:
            raise self.error
        return f"{invoice_id} is deleted."

    def factory(self, record: PendingAction) -> Callable[[], str]:
        return partial(self.delete, str(record.args["invoice_id"]))

    def bot(self, *script: Any, **options: Any) -> ChannelAgent:
        self.model = ScriptedProvider(script)
        return ChannelAgent(Agent([self.tool], provider=self.model), **{"language": "en", **options})


@pytest.fixture
def invoices() -> Invoices:
    return Invoices()


def store_of(bot: ChannelAgent) -> Store:
    store: Store = bot._running().context.store  # type: ignore[attr-defined]
    return store


async def waiting(bot: ChannelAgent) -> list[PendingAction]:
    actions = await bot._running().context.actions("agent/app:-:user:ana")  # type: ignore[attr-defined]
    return list(actions.open)


async def asked(bot: ChannelAgent) -> PendingAction:
    (action,) = (await bot.ask_channel("ana", "delete INV-42")).pending
    return action


def without_the_model(result: AgentResult, invoices: Invoices) -> str:
    """Return the text of a call without a request to the model; `asked` made the only request."""
    assert (result.iterations, result.stop_reason, len(invoices.model.requests)) == (0, "decided", 1)
    return result.content


# ── which answer goes where ──


@pytest.mark.ledger("PEND-06", "PEND-18", "PEND-41")
@pytest.mark.parametrize(
    ("language", "word"), [("pt", "sim"), ("pt", "Sim!"), ("es", "sí"), ("en", "yes"), ("pt", "yes"), ("es", "yes")]
)
async def test_yes_is_answered_with_the_executors_text(invoices: Invoices, language: str, word: str) -> None:
    async with invoices.bot(CALL, language=language) as bot:
        question = await bot.ask_channel("ana", "delete INV-42")
        assert SHOWN in question.content and len(question.pending) == 1
        assert invoices.deleted == []
        said = without_the_model(await bot.ask_channel("ana", word), invoices)
        assert (said, invoices.deleted) == ("INV-42 is deleted.", ["INV-42"])
        without_the_model(await bot.ask_channel("ana", word), invoices)
        assert invoices.deleted == ["INV-42"]


@pytest.mark.ledger("PEND-40", "PEND-41")
@pytest.mark.parametrize(
    ("language", "word"),
    [("pt", "não"), ("pt", "Nao"), ("pt", "no"), ("pt", "cancel"), ("es", "no"), ("es", "cancel"), ("en", "cancel")],
)
async def test_no_is_answered_with_the_cancelled_preview(invoices: Invoices, language: str, word: str) -> None:
    async with invoices.bot(CALL, language=language) as bot:
        await asked(bot)
        said = without_the_model(await bot.ask_channel("ana", word), invoices)
        assert said == say("cancelled", language, preview=SHOWN)
        assert (await waiting(bot), invoices.deleted) == ([], [])
        assert "INV-42 is deleted." not in (await bot.ask_channel("ana", "yes")).content
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-40")
@pytest.mark.parametrize(
    ("said", "word", "deleted"),
    [
        ("Apague a fatura INV-42 do mês passado, por favor", "sim", ["INV-42"]),
        ("Apague a fatura INV-42 do mês passado, por favor", "não", []),
        ("Borra la factura INV-42 del mes pasado, por favor", "sí", ["INV-42"]),
    ],
)
async def test_a_bot_without_a_language_reads_the_one_that_was_written(
    invoices: Invoices, said: str, word: str, deleted: list[str]
) -> None:
    async with invoices.bot(CALL, language=None) as bot:
        await bot.ask_channel("ana", said)
        without_the_model(await bot.ask_channel("ana", word), invoices)
        assert (invoices.deleted, await waiting(bot)) == (deleted, [])


@pytest.mark.ledger("PEND-38")
@pytest.mark.parametrize("text", ["no, yes", "yes, cancel it", "cancel, yes"])
async def test_text_with_a_no_confirms_no_action(invoices: Invoices, text: str) -> None:
    async with invoices.bot(CALL, "Which one?") as bot:
        await asked(bot)
        await bot.ask_channel("ana", text)
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-38")
async def test_other_words_reach_the_model_and_extend_no_deadline(invoices: Invoices) -> None:
    async with invoices.bot(CALL, "The one of March.") as bot:
        action = await asked(bot)
        store_of(bot).offset_seconds = 30
        result = await bot.ask_channel("ana", "what is in it?")
        assert result.content.startswith("The one of March.") and result.iterations == 1
        (kept,) = await waiting(bot)
        assert (kept.pending_action_id, kept.expires_at) == (action.pending_action_id, action.expires_at)
        await bot.ask_channel("ana", "yes")
        assert invoices.deleted == [], "a bare word is no answer any more: something else was said since"
        assert (await bot.ask_channel("ana", f"OK {action.code}")).content == "INV-42 is deleted."


@pytest.mark.ledger("PEND-38")
async def test_unrelated_words_drop_the_ask_if_the_bot_says_so(invoices: Invoices) -> None:
    async with invoices.bot(CALL, "Sunny.", "Yes what?", on_unrelated="drop") as bot:
        action = await asked(bot)
        result = await bot.ask_channel("ana", "how is the weather?")
        assert "Sunny." in result.content and say("dropped", "en") in result.content
        assert await waiting(bot) == []
        for answer in (f"OK {action.code}", "yes"):
            await bot.ask_channel("ana", answer)
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-36")
async def test_a_bot_reads_with_its_own_words_beside_a_parser(invoices: Invoices, place: Place) -> None:
    """A parser of a pending store on the same store is for that store alone, and no option of a bot."""

    class Codeword(RegexConfirmParser):
        def is_confirm(self, message: str) -> bool:
            return message == "abracadabra"

    pending, done = await place.open(parser=Codeword()), list[str]()
    await pending.stash("ana", kind="k", preview="Do it", args={}, executor=lambda: done.append("k"))
    async with invoices.bot(CALL, "Which one?", store=await pending.open()) as bot:
        await asked(bot)
        assert (await bot.ask_channel("ana", "abracadabra")).iterations == 1
        assert (invoices.deleted, await pending.pop_if_confirmed("ana", "yes")) == ([], None)
        (action,) = await waiting(bot)
        assert (await bot.ask_channel("ana", f"yes {action.code}")).content == "INV-42 is deleted."
        outcome = await pending.pop_if_confirmed("ana", "abracadabra")
        assert outcome is not None and outcome.executed
        assert (invoices.deleted, done) == (["INV-42"], ["k"])
    place.forget()


@pytest.mark.ledger("PEND-36")
async def test_a_bot_takes_no_pending_store_and_no_parser() -> None:
    """selectools' ChannelAgent takes both; ours keeps separate records, and would use neither."""
    with pytest.raises(WrongOption, match=r"store should be .*, not InMemoryPendingStore: leave it out"):
        ChannelAgent(Agent(), store=InMemoryPendingStore())
    with pytest.raises(WrongOption, match="parser is no option"):
        ChannelAgent(Agent(), parser=RegexConfirmParser())  # type: ignore[call-arg]


# ── answers without an effect ──


@pytest.mark.ledger("PEND-42")
async def test_late_yes_is_answered_with_the_expired_preview(invoices: Invoices) -> None:
    async with invoices.bot(CALL) as bot:
        await asked(bot)
        store_of(bot).offset_seconds = 61
        said = without_the_model(await bot.ask_channel("ana", "yes"), invoices)
        assert SHOWN in said and "expired" in said and "Ask again" in said
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-42")
async def test_an_executor_that_broke_is_told_once_and_not_tried_again(invoices: Invoices) -> None:
    invoices.error = RuntimeError("db down")
    async with invoices.bot(CALL) as bot:
        await asked(bot)
        said = without_the_model(await bot.ask_channel("ana", "yes"), invoices)
        assert said == say("failed", "en", preview=SHOWN)
        without_the_model(await bot.ask_channel("ana", "yes"), invoices)
        assert invoices.deleted == ["INV-42"]


@pytest.mark.ledger("PEND-42")
async def test_action_changed_in_the_store_is_not_run(invoices: Invoices) -> None:
    async with invoices.bot(CALL) as bot:
        bot.register_executor_factory("delete_invoice", invoices.factory)
        await asked(bot)
        store = store_of(bot)
        ((key, stored),) = [(key, record.value) for key, record in await store.scan("action/")]
        changed = Put(edited(stored, args={"invoice_id": "INV-43"}))
        await store.commit(Transaction(partition=key.partition, puts={key.name: changed}))
        said = without_the_model(await bot.ask_channel("ana", "yes"), invoices)
        assert "changed from outside the chat" in said and "Ask again" in said
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-31", "PEND-42")
async def test_process_without_an_executor_runs_no_action(invoices: Invoices, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'bot.db'}"
    async with invoices.bot(CALL, store=store) as bot:
        await asked(bot)
    async with invoices.bot(store=store) as bot:
        result = await bot.ask_channel("ana", "yes")
        assert (result.iterations, invoices.model.requests) == (0, [])
        assert SHOWN in result.content and "nothing was done" in result.content and "Ask again" in result.content
        assert (await waiting(bot), invoices.deleted) == ([], [])


@pytest.mark.ledger("PEND-42")
async def test_twin_of_a_yes_runs_no_effect_and_sends_no_reply(invoices: Invoices) -> None:
    async with ChatDriver(invoices.bot(CALL)) as chat:
        await chat.says("ana", "delete INV-42")
        twin = Message(
            event_ids=("the same",),
            address=Address(channel="test", account="bot", place="ana"),
            person=Person(channel="test", account="bot", user_id="ana"),
            message_id="own twin",
            text="yes",
            after=str(chat.last.number),
        )
        await asyncio.gather(chat._take(twin), chat._take(twin))
        await chat._take(twin)
        assert [each.text for each in chat.messages[1:]] == ["INV-42 is deleted."]
        assert (invoices.deleted, len(invoices.model.requests)) == (["INV-42"], 1)


async def test_many_calls_with_a_yes_run_it_once_without_the_model(invoices: Invoices) -> None:
    async with invoices.bot(CALL) as bot:
        await asked(bot)
        results = await asyncio.gather(*(bot.ask_channel("ana", "yes") for _ in range(8)))
        said = [without_the_model(result, invoices) for result in results]
        assert (said.count("INV-42 is deleted."), invoices.deleted) == (1, ["INV-42"])


# ── the model's knowledge of the outcome ──


@pytest.mark.ledger("PEND-44")
@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ("yes", None, "confirmed by the person and done. Result: INV-42 is deleted."),
        ("no", None, "refused by the person: it was NOT done."),
        ("yes", RuntimeError("db down"), "confirmed by the person, but it failed. Result: error: RuntimeError"),
        ("yes", ConnectionResetError(), "confirmed by the person; it may or may not have happened."),
        (None, None, "not answered in time: it was NOT done."),
    ],
    ids=["done", "refused", "failed", "unknown", "expired"],
)
async def test_the_next_call_of_the_model_knows_the_outcome(
    invoices: Invoices, kept: Place, answer: str | None, error: Exception | None, told: str
) -> None:
    """The outcome stands once, between the question and the person's next message."""
    stores: dict[str, Any] = {"memory": None, "file": f"sqlite:///{kept.path}"}
    store = stores[kept.kind] if kept.kind in stores else RedisStore(kept.url, prefix=kept.prefix, ack_seconds=5)
    invoices.error = error
    async with invoices.bot(CALL, "Noted.", "Still noted.", store=store) as bot:
        await asked(bot)
        if answer is None:
            store_of(bot).offset_seconds = 61
        else:
            without_the_model(await bot.ask_channel("ana", answer), invoices)
        for text in ("what now?", "and now?"):
            await bot.ask_channel("ana", text)
            *before, last = invoices.model.requests[-1].messages
            assert (last.role, last.content) == ("user", text)
            outcomes = [at for at, each in enumerate(before) if each.role == "event" and told in each.content]
            tools = [at for at, each in enumerate(before) if each.role == "tool"]
            assert len(outcomes) == len(tools) == 1 and outcomes > tools
            assert "Delete invoice INV-42" in before[outcomes[0]].content
            assert "db down" not in str(before)


# ── other processes ──


@pytest.mark.ledger("PEND-30")
async def test_factory_makes_the_executor_in_the_next_process(invoices: Invoices, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'bot.db'}"
    async with invoices.bot(CALL, store=store) as bot:
        await asked(bot)
    after = Invoices()
    bot = after.bot(store=store)
    bot.register_executor_factory("delete_invoice", after.factory)
    async with bot:
        assert (await bot.ask_channel("ana", "yes")).content == "INV-42 is deleted."
    assert (after.deleted, invoices.deleted) == (["INV-42"], [])


@pytest.mark.ledger("PEND-03")
@pytest.mark.parametrize("gives_args", [True, False])
async def test_where_processes_share_the_store_a_tool_has_to_give_args(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, gives_args: bool
) -> None:
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    invoices = Invoices(gives_args=gives_args)
    async with invoices.bot(
        CALL, "I cannot.", "Yes what?", store=RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    ) as bot:
        result = await bot.ask_channel("ana", "delete INV-42")
        assert len(result.pending) == len(await waiting(bot)) == int(gives_args)
        if not gives_args:
            told = invoices.model.requests[-1].messages[-1].content
            assert told.startswith("Error executing tool 'delete_invoice': ValueError (stash.py:")
            await bot.ask_channel("ana", "yes")
        else:
            assert (await bot.ask_channel("ana", "yes")).content == "INV-42 is deleted."
        assert invoices.deleted == ["INV-42"] * gives_args


@pytest.mark.ledger("PEND-03")
async def test_a_tool_run_alone_as_on_redis_says_why_args_are_required() -> None:
    @tool
    async def asks() -> str:
        """Ask, and say nothing of what."""
        stash_pending(kind="delete_all", preview="Delete all invoices")
        return ""

    with pytest.raises(ToolExecutionError) as raised:
        await run_tool(asks, {}, shared=True)
    assert isinstance(raised.value.error, ValueError)
    assert "args must be given where processes share the store" in str(raised.value.error)
    assert "'delete_all' has to see from them what is asked" in str(raised.value.error)
    assert len((await run_tool(asks, {})).asked) == 1


@pytest.mark.ledger("PEND-03")
async def test_in_one_process_a_tool_need_not_give_args() -> None:
    invoices = Invoices(gives_args=False)
    async with invoices.bot(CALL) as bot:
        assert (await asked(bot)).args == {}
        assert (await bot.ask_channel("ana", "yes")).content == "INV-42 is deleted."


@pytest.mark.ledger("PEND-03")
def test_stash_pending_takes_keywords_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        stash_pending("delete_invoice", "Delete invoice INV-42")  # type: ignore[call-arg]


# ── the turn ──


async def test_action_expires_after_the_stashed_time() -> None:
    invoices = Invoices(ttl_seconds=90)
    async with ChatDriver(invoices.bot(CALL)) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.clock.advance(91)
        assert "expired" in chat.last.text
        assert invoices.deleted == []


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("way", ["generator", "async generator", "async"])
async def test_end_of_an_executor_of_any_kind_is_told(way: str, *, made: bool) -> None:
    invoices = Invoices(closure=not made)

    def pieces(invoice_id: str) -> Iterator[str]:
        invoices.deleted.append(invoice_id)
        yield f"{invoice_id} is "
        yield "deleted."

    async def pieces_later(invoice_id: str) -> AsyncIterator[str]:
        for piece in pieces(invoice_id):
            yield piece

    async def whole(invoice_id: str) -> str:
        return "".join(pieces(invoice_id))

    executors: dict[str, Any] = {"generator": pieces, "async generator": pieces_later, "async": whole}
    invoices.delete = executors[way]  # type: ignore[method-assign]
    async with ChatDriver(invoices.bot(CALL)) as chat:
        if made:
            chat.bot.register_executor_factory("delete_invoice", lambda record: partial(executors[way], "INV-42"))
        await chat.says("ana", "delete INV-42")
        assert invoices.deleted == []
        await chat.says("ana", "yes")
        assert (chat.last.text, invoices.deleted) == ("INV-42 is deleted.", ["INV-42"])


async def test_a_bot_refuses_a_factory_that_cannot_make_one() -> None:
    bot = Invoices().bot()

    async def later(record: PendingAction) -> Any:
        raise AssertionError

    for wrong in (later, "delete"):
        with pytest.raises(ValueError, match="factory of 'delete_invoice' must"):
            bot.register_executor_factory("delete_invoice", wrong)  # type: ignore[arg-type]


async def test_agent_alone_runs_a_stash_only_if_confirm_action_agrees() -> None:
    invoices = Invoices()
    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL]))
    result = await agent.run("delete INV-42")
    assert (result.stop_reason, [action.kind for action in result.pending]) == (
        "needs_confirmation",
        ["delete_invoice"],
    )
    assert invoices.deleted == []

    config = AgentConfig(confirm_action=lambda name, args, reason: True)
    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL, "It is done."]), config=config)
    result = await agent.run("delete INV-42")
    assert (result.content, invoices.deleted) == ("It is done.", ["INV-42"])


async def test_a_turn_that_is_taken_over_still_asks() -> None:
    """The closure ended with the earlier process; the question to the person did not."""
    steps: list[Any] = []

    class Kept:
        def __init__(self) -> None:
            self.steps = list(steps)

        async def record(self, step: Any) -> None:
            steps.append(step)

    invoices = Invoices()
    asked = PendingAction(
        pending_action_id="5e" * 16,
        kind="delete_invoice",
        tool_version="adapter",
        preview="Delete invoice INV-42",
        requester="app:-:ana",
        conversation="c",
        requested_at=datetime(2026, 3, 1, tzinfo=UTC),
    )

    async def ask(asks: Sequence[Ask]) -> Sequence[Asked]:
        return [Asked(confirmation=PendingConfirmation(asks[0].tool.name, "p", "u"), action=asked)]

    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL]))
    context = ToolContext(person="app:-:ana", conversation="c", idempotency_key="t")
    message = [ModelMessage(role="user", content="delete INV-42")]
    first = await agent.answer(message, context=context, on_confirm=ask, ports=LoopPorts(journal=Kept()))
    other = agent.using(ScriptedProvider([]))
    again = await other.answer(message, context=context, on_confirm=ask, ports=LoopPorts(journal=Kept()))
    for outcome in (first, again):
        assert (outcome.stop_reason, [each.action for each in outcome.asked]) == ("asked", [asked])
    assert first.messages == again.messages


async def test_engine_settles_the_action_of_a_process_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    store = SqliteStore(tmp_path / "askfirst.db")
    pending, begun = SqlitePendingStore(store), asyncio.Event()

    async def hangs() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    await pending.stash("ana", kind="delete_invoice", preview="Delete invoice INV-42", executor=hangs)
    popping = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await begun.wait()
    running, doubts, told = state_of(store).running, list[PendingAction](), asyncio.Event()
    assert list(running)
    running.clear()  # as in the process after it
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])), store=store)

    def doubt(action: PendingAction) -> None:
        doubts.append(action)
        told.set()

    bot.on_doubt(doubt)
    settings = Settings(store=f"sqlite:///{tmp_path / 'other.db'}", secret=SECRET, allow="*")
    async with Gateway(bot, settings):
        async with asyncio.timeout(20):
            await told.wait()
        assert [(each.state, each.kind) for each in doubts] == [("unknown", "delete_invoice")]
        popping.cancel()
        await asyncio.wait([popping])


async def test_tool_failing_after_a_stash_asks_no_question() -> None:
    @tool
    async def half() -> str:
        """Stash, and fail."""
        stash_pending(kind="k", preview="Half")
        raise ToolFailed("no")

    async with ChatDriver(
        ChannelAgent(Agent([half])), provider=ScriptedProvider([ToolCall("half", {}), "It failed."])
    ) as chat:
        await chat.says("ana", "go")
        assert [message.text for message in chat.messages] == ["It failed."]

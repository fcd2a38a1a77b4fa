"""`ask_channel`, `decide` and `notify`: the engine within a call."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import Attachment, Reply, Unavailable
from gateway import Agent, ChannelAgent, Confirm, Gateway, Settings, Standing, ToolContext, emit_artifact, tool
from gateway.assembly import open_store
from gateway.channel_agent import NotAllowed, NotRunning
from gateway.providers.base import ProviderError
from gateway.stored import keys
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices, Model
from tests.engine.rig import killed, user_lines

DOWN = ProviderError("openai", "503", retryable=False)


@contextlib.asynccontextmanager
async def alone(bot: ChannelAgent, files: Path) -> AsyncIterator[ChannelAgent]:
    async with bot:
        yield bot


@contextlib.asynccontextmanager
async def served(bot: ChannelAgent, files: Path) -> AsyncIterator[ChannelAgent]:
    bot.store = open_store("sqlite:///:memory:")
    settings = Settings(store=f"sqlite:///{files / 'askfirst.db'}", allow=["*"])
    async with await asyncio.to_thread(Gateway, bot, settings):
        yield bot


both = pytest.mark.parametrize("entered", [alone, served], ids=["on its own", "beside a Gateway"])


@both
async def test_calls_on_one_conversation_run_in_turn_with_own_answers(
    entered: Any, invoices: Invoices, tmp_path: Path
) -> None:
    async with entered(invoices.bot(), tmp_path) as bot:
        texts = [f"question {number}" for number in range(8)]
        results = await asyncio.gather(*(bot.ask_channel("ana", text) for text in texts))
    assert [result.content for result in results] == [f"You said: {text}" for text in texts]
    assert len(invoices.model.requests) == 8


@pytest.mark.ledger("PEND-37")
async def test_calls_on_other_conversations_do_not_wait(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        slow = asyncio.create_task(bot.ask_channel("ana", "wait"))
        await invoices.model.waiting.wait()
        assert (await bot.ask_channel("bob", "hello")).content == "You said: hello"
        assert (await bot.ask_channel("ana", "hello", conversation_id="other")).content == "You said: hello"
        invoices.model.let_go.set()
        assert (await slow).content == "You said: wait"


@pytest.mark.ledger("PEND-37")
@both
async def test_ask_channel_asks_and_decide_confirms(entered: Any, invoices: Invoices, tmp_path: Path) -> None:
    async with entered(invoices.bot(), tmp_path) as bot:
        asked = await bot.ask_channel("ana", "delete INV-1", channel_id="crm", conversation_id="case 5")
        (action,) = asked.pending
        assert (asked.stop_reason, action.requester, action.conversation) == (
            "asked",
            "app:crm:ana",
            "agent/app:crm:case 5",
        )
        assert action.shown_at is not None and action.code in asked.content
        done = await bot.decide("app:crm:ana", "confirm", code=action.code.lower())
        assert (done.content, done.stop_reason) == ("Invoice INV-1 is deleted.", "decided")
        again = await bot.decide("app:crm:ana", "confirm", action_id=action.pending_action_id)
        assert again.content == "This is already done."
        assert invoices.deleted == ["INV-1"]


async def test_decide_with_a_token_cancels(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        await bot.ask_channel("ana", "delete INV-1")
        token = await button(bot, "Cancel")
        await bot.decide("app:-:ana", "cancel", token=token)
        assert invoices.deleted == []
        assert (await bot.ask_channel("ana", "/pending")).content == "Nothing is waiting for your answer."


@pytest.mark.parametrize("label", ["Confirm", "Cancel", "Change", "Yes, and for 1 hour", "Ask again"])
async def test_token_allows_only_the_intent_of_its_button(label: str) -> None:
    """Defect 15: "confirm" with the token of Cancel or of Change confirmed."""
    paid = []

    @tool(confirm=Confirm("Delete {invoice_id}?", standing=Standing(max_seconds=3600, max_uses=1)))
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        paid.append(invoice_id)
        return "Deleted."

    async with ChannelAgent(Agent([delete_invoice], provider=Model())) as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        if label == "Ask again":
            bot._running().context.store.offset_seconds = 1000  # type: ignore[attr-defined]
            await bot.ask_channel("ana", "hello")
        token = await button(bot, label)
        for intent in ("confirm", "cancel"):
            if (label, intent) not in (("Confirm", "confirm"), ("Cancel", "cancel")):
                with pytest.raises(NotAllowed, match="this is the token of a button for"):
                    await bot.decide("app:-:ana", intent, token=token)
        assert paid == []
        if label in ("Confirm", "Cancel"):
            await bot.decide("app:-:ana", label.lower(), token=token)  # type: ignore[arg-type]
        elif label != "Ask again":
            await bot.decide("app:-:ana", "confirm", code=action.code)
        assert paid == ([] if label in ("Cancel", "Ask again") else ["INV-1"])


async def test_token_of_all_items_decides_no_single_one(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        await bot.ask_channel("ana", "delete INV-1 INV-2")
        for label in ("Confirm all", "Cancel all"):
            token = await button(bot, label)
            for intent in ("confirm", "cancel"):
                with pytest.raises(NotAllowed, match="this is the token of a button for"):
                    await bot.decide("app:-:ana", intent, token=token)
        assert invoices.deleted == []


async def button(bot: ChannelAgent, label: str) -> str:
    """Return the token of the newest button with this label."""
    context = bot._running().context  # type: ignore[attr-defined]
    lines = await context.store.read(keys.key(context.store, "agent/app:-:user:ana", keys.visible_log))
    shown = [each for line in lines for each in line.value.get("buttons") or [] if each["label"] == label]
    return str(shown[-1]["token"])


@pytest.mark.parametrize(
    "which",
    [{"action_id": "nothing"}, {"action_id": ""}, {"code": "X0X0"}, {"token": "00" + "A" * 22}, {"token": ""}],
    ids=str,
)
async def test_decide_by_a_person_without_the_right_changes_no_action(
    invoices: Invoices, which: dict[str, str]
) -> None:
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        with pytest.raises(NotAllowed):
            await bot.decide("app:-:ana", "confirm", **which)
        for intent in ("confirm", "cancel"):
            with pytest.raises(NotAllowed):
                await bot.decide("app:-:bob", intent, action_id=action.pending_action_id)
        await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert invoices.deleted == ["INV-1"]


async def test_decide_names_one_action(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        for which in ({}, {"action_id": "a", "code": "b"}):
            with pytest.raises(ValueError, match="exactly one"):
                await bot.decide("app:-:ana", "confirm", **which)
        with pytest.raises(ValueError, match="intent"):
            await bot.decide("app:-:ana", "maybe", code="A2B3")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="user_id"):
            await bot.ask_channel("", "hello")


@pytest.mark.ledger("PEND-37")
async def test_a_yes_in_reply_to_an_action_is_for_that_action(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        (first,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        await bot.ask_channel("ana", "delete INV-2")
        done = await bot.ask_channel("ana", "yes", reply_to=first.pending_action_id)
        assert (done.content, invoices.deleted) == ("Invoice INV-1 is deleted.", ["INV-1"])
        with pytest.raises(NotAllowed):
            await bot.ask_channel("bob", "yes", reply_to=first.pending_action_id, conversation_id="user:ana")


@pytest.mark.ledger("PEND-37")
async def test_attachments_are_told_to_the_model() -> None:
    script = ScriptedProvider(["Thanks."])
    async with ChannelAgent(Agent(provider=script)) as bot:
        file = Attachment(kind="document", ref="r1", filename="bill.pdf")
        await bot.ask_channel("ana", "here", attachments=[file])
        assert user_lines(script) == ["here\n[document: bill.pdf]"]


async def test_files_are_in_the_result() -> None:
    @tool(read_only=True)
    async def send_pdf() -> str:
        """Send a PDF."""
        emit_artifact(content=b"%PDF-1.4 x", mime_type="application/pdf", filename="INV-7.pdf")
        return "sent"

    script = ScriptedProvider([ToolCall("send_pdf", {}), "Here it is."])
    async with ChannelAgent(Agent([send_pdf], provider=script)) as bot:
        result = await bot.ask_channel("ana", "send it")
        (artifact,) = result.artifacts
        assert (result.content, artifact.filename, artifact.size) == ("Here it is.", "INV-7.pdf", 10)
        assert artifact.sha256 is not None


# ── failures ──


@both
async def test_message_while_the_model_is_down_goes_with_the_next_call(entered: Any, tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, "Both read."])
    async with entered(ChannelAgent(Agent(provider=script)), tmp_path) as bot:
        with pytest.raises(ProviderError):
            await bot.ask_channel("ana", "one")
        result = await bot.ask_channel("ana", "two")
        assert (result.content, user_lines(script)) == ("Both read.", ["one", "two"])


@both
async def test_an_authors_mistake_is_raised_and_does_not_come_back(entered: Any, tmp_path: Path) -> None:
    def instructions(ctx: ToolContext) -> str:
        if not mended:
            raise ZeroDivisionError
        return ""

    mended: list[bool] = []
    script = ScriptedProvider(["Two."])
    async with entered(ChannelAgent(Agent(provider=script, instructions=instructions)), tmp_path) as bot:
        with pytest.raises(ZeroDivisionError):
            await bot.ask_channel("ana", "one")
        mended.append(True)
        assert (await bot.ask_channel("ana", "two")).content == "Two."
        assert user_lines(script) == ["two"]


async def test_a_tool_that_lets_out_a_generator_exit_fails_at_once(invoices: Invoices) -> None:
    invoices.error = GeneratorExit()
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        failed = await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert failed.content.startswith("It did not work")
        context = bot._running().context  # type: ignore[attr-defined]
        assert (await context.store.stats()).leased == 0


async def test_cancelled_call_loses_no_message(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        call = asyncio.create_task(bot.ask_channel("ana", "wait"))
        await invoices.model.waiting.wait()
        await killed(call)
        assert call.cancelled()
        invoices.model.let_go.set()
        result = await bot.ask_channel("ana", "hello")
        assert result.content.endswith("You said: hello")
        lines = [each.content for each in invoices.model.requests[-1].messages if each.role == "user"]
        assert lines == ["wait", "hello"]


@pytest.mark.ledger("PYG-09")
async def test_five_decisions_run_a_call_once_while_its_lock_is_held() -> None:
    paid, reading, read = list[str](), asyncio.Event(), asyncio.Event()

    @tool(lock="invoice:{invoice_id}")
    async def look(invoice_id: str) -> None:
        """Look."""
        reading.set()
        await read.wait()

    @tool(confirm="Pay {invoice_id}?", lock="invoice:{invoice_id}")
    async def pay(invoice_id: str) -> str:
        """Pay."""
        paid.append(invoice_id)
        return "It is paid."

    model = ScriptedProvider([ToolCall("pay", {"invoice_id": "INV-1"})])
    async with ChannelAgent(Agent([pay], provider=model)) as bot:
        (action,) = (await bot.ask_channel("ana", "pay INV-1")).pending
        key, context = action.pending_action_id, bot._running().context  # type: ignore[attr-defined]
        looking = asyncio.create_task(look.run({"invoice_id": "INV-1"}, ToolContext(person="-", hold=context.hold)))
        await reading.wait()
        going = [asyncio.create_task(bot.decide("app:-:ana", "confirm", action_id=key)) for _ in range(5)]
        while (await context.actions(action.conversation, key)).get(key).state != "running":
            await asyncio.sleep(0.001)
        assert paid == []
        read.set()
        await looking
        said = [(await each).content for each in going]
    assert (sorted(said), paid) == (["It is paid.", *["This is already done."] * 4], ["INV-1"])


async def test_a_bot_that_was_not_entered_says_so(invoices: Invoices) -> None:
    with pytest.raises(NotRunning, match="async with bot"):
        await invoices.bot().ask_channel("ana", "hello")
    with pytest.raises(NotRunning):
        await invoices.bot().notify("app:-:user:ana", "hello")


# ── between calls, and between lives ──


async def test_no_task_runs_between_calls_and_the_next_does_due_work(invoices: Invoices, kept_on: str) -> None:
    async with invoices.bot() as bot:
        await bot.ask_channel("ana", "delete INV-1")
        before = len(asyncio.all_tasks())
        bot._running().context.store.offset_seconds = 901  # type: ignore[attr-defined]
        assert len(asyncio.all_tasks()) == before
        assert before == {"sqlite": 1, "redis": 2}[kept_on], "on Redis the connection that listens for news lives on"
        result = await bot.ask_channel("ana", "hello")
        assert result.content.startswith("This has expired") and result.content.endswith("You said: hello")


async def test_a_file_keeps_the_conversation(invoices: Invoices, tmp_path: Path) -> None:
    bot = invoices.bot(store=f"sqlite:///{tmp_path / 'bot.db'}")
    async with bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
    async with bot:
        await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert invoices.deleted == ["INV-1"]
        await bot.ask_channel("ana", "hello")
        lines = [each.content for each in invoices.model.requests[-1].messages if each.role == "user"]
        assert lines == ["delete INV-1", "hello"]


async def test_a_store_in_memory_forgets(invoices: Invoices) -> None:
    bot = invoices.bot()
    async with bot:
        await bot.ask_channel("ana", "hello")
    async with bot:
        await bot.ask_channel("ana", "again")
        lines = [each.content for each in invoices.model.requests[-1].messages if each.role == "user"]
        assert lines == ["again"]


async def test_a_resumed_plan_is_part_of_the_result(invoices: Invoices) -> None:
    bot = invoices.bot(confirm=Confirm("Delete {invoice_id}?", after="resume"))
    bot.agent = bot.agent.using(ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Next."]))
    async with bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1, then go on")).pending
        result = await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert result.content == "Invoice INV-1 is deleted.\n\nNext."


@both
async def test_notify_refuses_unknown_addresses(entered: Any, invoices: Invoices, tmp_path: Path) -> None:
    async with entered(invoices.bot(), tmp_path) as bot:
        await bot.notify("app:-:user:ana", Reply(text="Your invoice is due."))
        with pytest.raises(ValueError, match="telegram"):
            await bot.notify("telegram:1:2", "hello")
        with pytest.raises(ValueError, match="not an address"):
            await bot.notify("nowhere", "hello")


async def test_decide_does_not_wait_for_a_platform_that_is_down(asked: ChatDriver, invoices: Invoices) -> None:
    context = asked.engine.context
    (action,) = (await context.actions("agent/test:bot:ana")).open
    channel: Any = context.channels["test"]

    async def down(*_: Any, **__: Any) -> None:
        raise Unavailable("502")

    channel.send = down
    async with asyncio.timeout(60):
        await asked.bot.decide("test:bot:ana", "confirm", action_id=action.pending_action_id)
    assert invoices.deleted == ["INV-1"]


CALLERS: list[dict[str, Any]] = [
    {"user_id": "c", "channel_id": "a:b"},
    {"user_id": "b:c", "channel_id": "a"},
    {"user_id": "c", "channel_id": "a%3Ab"},
    {"user_id": "bob"},
    {"user_id": "bob/7"},
    {"user_id": "bob%2F7"},
    *({"user_id": "eve", "conversation_id": conversation_id} for conversation_id in (
        "user:bob", "%user:bob", "%%user:bob", "user:bob/7", "bob/7", "bob%2F7", "bob/", "bob%2F", "/bob", "user%3Abob",
    )),
    {"user_id": "eve", "channel_id": "-:user", "conversation_id": "bob"},
    {"user_id": "eve", "channel_id": "a", "conversation_id": "b:user:c"},
]  # fmt: skip


def showing() -> ChannelAgent:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))

    @bot.command("where")
    async def where(ctx: ToolContext, text: str) -> str:
        """Say where this is."""
        return f"{ctx.conversation} {ctx.person}"

    return bot


async def test_no_two_callers_share_a_conversation_they_did_not_name() -> None:
    async with showing() as bot:
        said = [(await bot.ask_channel(message="/where", **caller)).content.split() for caller in CALLERS]
    for (one, (place, _)), (other, (other_place, _)) in itertools.combinations(zip(CALLERS, said, strict=True), 2):
        assert place != other_place, f"{one} and {other}"


async def test_no_two_users_of_two_channels_are_one_person() -> None:
    async with showing() as bot:
        users = [caller for caller in CALLERS if caller["user_id"] != "eve"]
        people = [(await bot.ask_channel(message="/where", **caller)).content.split()[1] for caller in users]
    assert len(set(people)) == len(users)


@pytest.mark.parametrize(
    ("caller", "conversation", "person"),
    [
        ({"user_id": "ana"}, "app:-:user:ana", "app:-:ana"),
        ({"user_id": "auth0|5", "channel_id": "crm"}, "app:crm:user:auth0|5", "app:crm:auth0|5"),
        ({"user_id": "google/5"}, "app:-:user:google/5", "app:-:google/5"),
        ({"user_id": "ana", "conversation_id": "tickets/17"}, "app:-:tickets/17", "app:-:ana"),
        ({"user_id": "ana", "conversation_id": "case:5"}, "app:-:case:5", "app:-:ana"),
        ({"user_id": "ana", "channel_id": "eu/crm", "conversation_id": "100%"}, "app:eu/crm:100%", "app:eu/crm:ana"),
    ],
    ids=str,
)
async def test_stored_conversations_keep_their_keys(caller: dict[str, Any], conversation: str, person: str) -> None:
    async with showing() as bot:
        result = await bot.ask_channel(message="/where", **caller)
    assert result.content == f"agent/{conversation} {person}"


@pytest.mark.parametrize("empty", ["user_id", "channel_id", "conversation_id"])
async def test_empty_id_is_refused(empty: str) -> None:
    caller: dict[str, Any] = {"user_id": "ana", empty: ""}
    async with showing() as bot:
        with pytest.raises(ValueError, match=empty):
            await bot.ask_channel(message="/where", **caller)


async def test_another_persons_own_conversation_is_not_named() -> None:
    script = ScriptedProvider(["Noted.", "I know of none."])
    async with ChannelAgent(Agent(provider=script)) as bot:
        await bot.ask_channel("bob", "my PIN is 4711")
        await bot.ask_channel("eve", "what is the PIN?", conversation_id="user:bob")
    assert user_lines(script) == ["what is the PIN?"]


@pytest.mark.parametrize("conversation_id", ["tickets/17", "tickets/", "user:ana", "a:b/c"])
async def test_a_yes_counts_wherever_it_was_asked(conversation_id: str, invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        await bot.ask_channel("ana", "delete INV-1", conversation_id=conversation_id)
        done = await bot.ask_channel("ana", "yes", conversation_id=conversation_id)
    assert (done.content, invoices.deleted) == ("Invoice INV-1 is deleted.", ["INV-1"])


@pytest.mark.parametrize("answer", ["a yes", "a code", "an id"])
async def test_person_of_another_channel_confirms_no_action(answer: str, invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("c", "delete INV-1", channel_id="a:b")).pending
        if answer == "a yes":
            await bot.ask_channel("b:c", "yes", channel_id="a")
        else:
            which = {"code": action.code} if answer == "a code" else {"action_id": action.pending_action_id}
            with pytest.raises(NotAllowed):
                await bot.decide("app:a:b:c", "confirm", **which)
        assert invoices.deleted == []
        await bot.decide("app:a%3ab:c", "confirm", action_id=action.pending_action_id)
        assert invoices.deleted == ["INV-1"]


async def test_allow_list_keeps_no_words_of_a_vouched_person_away(tmp_path: Path) -> None:
    """The caller vouches for the person: the allow-list is for the people of the channels."""
    bot = ChannelAgent(Agent([], provider=ScriptedProvider(["What code?"])))
    settings = Settings(
        store=f"sqlite:///{tmp_path / 'bot.db'}", allow=("telegram:1:2",), secret="uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
    )
    async with Gateway(bot, settings, chat=True):
        assert (await bot.ask_channel("ana", "OK AB12")).content == "What code?"

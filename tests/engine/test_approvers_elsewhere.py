"""Approvers in chats of their own: asked, heard and told the end there. The action is decided in the asking chat."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from channels import ButtonPress, OptOut, Parsed, Person, WebhookResponse
from gateway import Approvers, Confirm
from gateway.pending.seal import Keyring
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming
from gateway.stored import keys
from gateway.stored.events import BallotNews, body_of
from gateway.testing import ChatDriver, FakeClock
from gateway.tools import confirm
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, message, rig, until

ANA, BEN, CAT, DAN = (f"test:bot:{name}" for name in ("ana", "ben", "cat", "dan"))
ASK = "Delete invoice {invoice_id} for good?"
REFUSED = "Not approved by the people who decide"


def asking(invoices: Invoices, *people: str, **rule: object) -> ChatDriver:
    approvers = Approvers(people=people, **rule)  # type: ignore[arg-type]
    return ChatDriver(invoices.bot(confirm=Confirm(ASK, approvers=approvers)))


@pytest.fixture
async def chat(invoices: Invoices) -> AsyncIterator[ChatDriver]:
    """Ana asks, and two of Ben, Cat and Dan have to approve."""
    async with asking(invoices, BEN, CAT, DAN, need=2) as chat:
        await chat.says("ana", "delete 42")
        yield chat


@pytest.fixture
async def chats(tmp_path: Path, invoices: Invoices) -> AsyncIterator[Rig]:
    """Ben has to approve. The engine works only when the test says so."""
    async with rig(invoices.bot(confirm=Confirm(ASK, approvers=Approvers(people=[BEN]))), tmp_path) as chats:
        yield chats


async def settle(chats: Rig) -> None:
    """Work every lane until no work is left."""
    engine = chats.worker.engine
    engine.start()
    await engine.due()
    await until(engine.idle)
    await engine.stop(1)


def code_in(chats: Rig, place: str) -> str:
    found = [match for text in chats.platform.texts(place) if (match := re.search(r"\bOK (\w{4})\b", text))]
    return found[-1][1]


async def actions_of(chats: Rig) -> list[PendingAction]:
    return list((await chats.worker.context.actions("agent/test:bot:ana")).by_id.values())


async def opts_out(chat: ChatDriver, name: str) -> None:
    person = Person(channel="test", account="bot", user_id=name)
    event = OptOut(event_ids=(f"stop {name}",), address=here(name), person=person, opted_in=False)
    parsed = Parsed(events=(event,), response=WebhookResponse())
    await chat.engine.inbox.accept(chat.engine.context.channels["test"], parsed)
    await until(chat.engine.idle)


def said(chat: ChatDriver, place: str) -> list[str]:
    return [message.text for message in chat.messages if message.place == place]


def newest(chat: ChatDriver, place: str) -> str:
    return said(chat, place)[-1]


def code(chat: ChatDriver, place: str) -> str:
    """The code of the newest question in this chat."""
    found = [match for text in said(chat, place) if (match := re.search(r"\b(?:OK|NO) (\w{4})\b", text))]
    return found[-1][1]


async def press(chat: ChatDriver, place: str, label: str) -> None:
    """Press a button in this person's own chat."""
    message = next(each for each in reversed(chat.messages) if each.place == place and label in each.tokens)
    own = {each.number: each.tokens for each in chat.messages if each.place != place}
    for each in chat.messages:
        if each.place != place:
            each.tokens = {}
    await chat.presses(place, label)
    for each in chat.messages:
        if each.number in own and not each.edited:
            each.tokens = own[each.number]
    assert message.place == place


async def test_each_approver_is_asked_in_their_own_chat(chat: ChatDriver, invoices: Invoices) -> None:
    for person in ("ben", "cat", "dan"):
        (question,) = [message for message in chat.messages if message.place == person]
        assert question.text.startswith("Ana (test ana) asks for your approval.\n\n**Delete invoice “42” for good?**")
        assert question.buttons == ["Confirm", "Cancel"]
        assert "2 confirmations are needed" in question.text
    (own,) = [message for message in chat.messages if message.place == "ana"]
    assert own.buttons == ["Cancel", "Change"]
    assert f"Reply **NO {code(chat, 'ana')}** if it should not be done." in own.text
    assert invoices.deleted == []


async def test_two_yes_in_two_chats_have_one_effect_told_in_all(chat: ChatDriver, invoices: Invoices) -> None:
    await press(chat, "ben", "Confirm")
    assert chat.alerts[-1] == "Your answer is passed on."
    assert newest(chat, "ben") == "Your yes is counted: 1 of 2.\n\n**Delete invoice “42” for good**"
    assert invoices.deleted == []
    await chat.says("cat", f"OK {code(chat, 'cat')}")
    assert invoices.deleted == ["42"]
    assert newest(chat, "ana") == "Invoice 42 is deleted."
    for person in ("ben", "cat", "dan"):
        assert newest(chat, person).startswith("**Delete invoice “42” for good**\n✅ Confirmed by Cat, done ")
        assert sum("✅" in text for text in said(chat, person)) == 2, "the question is edited, and one message tells it"
    assert not any(message.tokens for message in chat.messages)


async def test_bare_yes_counts_in_the_chat_of_the_approver_alone(invoices: Invoices) -> None:
    async with asking(invoices, BEN) as chat:
        await chat.says("ana", "delete 42")
        await chat.says("ana", "yes")
        assert newest(chat, "ana").startswith(
            "Not done yet. The approval is up to the people who decide: Delete invoice"
        )
        assert invoices.deleted == []
        await chat.says("ben", "yes")
        assert invoices.deleted == ["42"]


async def test_bare_yes_while_two_questions_wait_is_asked_back(invoices: Invoices) -> None:
    async with asking(invoices, BEN) as chat:
        await chat.says("ana", "delete 1")
        await chat.says("cat", "delete 2")
        await chat.says("ben", "yes")
        assert "Which one shall I do?" in newest(chat, "ben")
        assert invoices.deleted == []
        await chat.says("ben", f"OK {code(chat, 'ben')}")
        assert invoices.deleted in (["1"], ["2"])


async def test_no_of_one_approver_ends_it_with_the_reason(chat: ChatDriver, invoices: Invoices) -> None:
    late = code(chat, "cat")
    await chat.says("ben", f"NO {code(chat, 'ben')} it is not paid")
    assert (
        newest(chat, "ana") == "Not approved by the people who decide (“it is not paid”): Delete invoice “42” for good"
    )
    for person in ("cat", "dan"):
        assert newest(chat, person) == "**Delete invoice “42” for good**\n🚫 Not done. Ben said “it is not paid”."
    await chat.says("cat", f"OK {late}")
    assert newest(chat, "cat").startswith("This is already cancelled")
    assert invoices.deleted == []


async def test_one_person_counts_once(chat: ChatDriver, invoices: Invoices) -> None:
    await chat.says("ben", f"OK {code(chat, 'ben')}")
    await chat.says("ben", f"OK {code(chat, 'ben')}")
    assert newest(chat, "ben").startswith("Your answer is passed on")
    await press(chat, "ben", "Confirm")
    assert invoices.deleted == []


async def test_a_yes_may_become_a_no_until_the_launch(chat: ChatDriver, invoices: Invoices) -> None:
    await press(chat, "ben", "Confirm")
    late = code(chat, "cat")
    await press(chat, "ben", "Cancel")
    assert newest(chat, "ana") == f"{REFUSED}: Delete invoice “42” for good"
    await chat.says("cat", f"OK {late}")
    assert invoices.deleted == []


async def test_requester_withdraws_and_all_are_told(chat: ChatDriver, invoices: Invoices) -> None:
    await chat.says("ana", f"OK {code(chat, 'ana')}")
    assert newest(chat, "ana").startswith("Not done yet. The approval is up to")
    await chat.says("ana", "/stop")
    for person in ("ben", "cat", "dan"):
        assert newest(chat, person) == "**Delete invoice “42” for good**\nWithdrawn. Nothing was done."


async def test_requester_counts_only_where_the_author_says_so(invoices: Invoices) -> None:
    async with asking(invoices, BEN, need=2, requester=True) as chat:
        await chat.says("ana", "delete 42")
        assert [message.place for message in chat.messages] == ["ana", "ben"]
        await chat.says("ana", "yes")
        await chat.says("ben", "yes")
        assert invoices.deleted == ["42"]


async def test_forwarded_question_is_refused(chat: ChatDriver, invoices: Invoices) -> None:
    theirs = next(message for message in chat.messages if message.place == "ben")
    mine = next(message for message in chat.messages if message.place == "ana")
    mine.tokens = {"Confirm": theirs.tokens["Confirm"]}
    await press(chat, "ana", "Confirm")
    assert chat.alerts[-1] == "This button belongs to another chat."
    await chat.says("ana", f"OK {code(chat, 'ben')}")
    assert invoices.deleted == []


async def test_silent_approvers_are_reminded_then_the_standin_is_asked(invoices: Invoices) -> None:
    clock = FakeClock()
    approvers = Approvers(people=[BEN], remind_seconds=3600, standin=[CAT])
    bot = invoices.bot(confirm=Confirm(ASK, approvers=approvers))
    async with ChatDriver(bot, clock=clock) as chat:
        await chat.says("ana", "delete 42")
        assert said(chat, "cat") == []
        await clock.advance(3601)
        asks = (
            "Nothing has been done yet.\n\nAna (test ana) asks for your approval.\n\n**Delete invoice “42” for good?**"
        )
        assert len(said(chat, "ben")) == 2 and newest(chat, "ben").startswith(asks)
        await clock.advance(3600)
        assert newest(chat, "cat").startswith("Ana (test ana) asks for your approval.")
        assert "You have 22 hours to answer." in newest(chat, "cat")
        await clock.advance(3600)
        assert len(said(chat, "ben")) == 2, "an approver is reminded once"
        await chat.says("cat", f"OK {code(chat, 'cat')}")
        assert invoices.deleted == ["42"]
        assert "✅ Confirmed by Cat" in newest(chat, "ben")


async def test_standin_cannot_approve_before_being_asked(invoices: Invoices) -> None:
    async with asking(invoices, BEN, standin=[CAT]) as chat:
        await chat.says("ana", "delete 42")
        with pytest.raises(Exception, match="no such action"):
            await chat.bot.decide(CAT, "confirm", code=code(chat, "ben"))
        assert invoices.deleted == []


async def test_time_ends_in_all_chats(invoices: Invoices) -> None:
    clock = FakeClock()
    approvers = Approvers(people=[BEN, CAT], need=2)
    async with ChatDriver(
        invoices.bot(confirm=Confirm(ASK, approvers=approvers, ttl_seconds=600)), clock=clock
    ) as chat:
        await chat.says("ana", "delete 42")
        await chat.says("ben", f"OK {code(chat, 'ben')}")
        await clock.advance(601)
        await clock.advance(10)
        for person in ("ben", "cat"):
            assert newest(chat, person) == "**Delete invoice “42” for good**\nExpired. Nothing was done."
        await press(chat, "ana", "Ask again")
        assert newest(chat, "ben").startswith("Ana (test ana) asks for your approval.")
        await chat.says("ben", f"OK {code(chat, 'ben')}")
        await chat.says("cat", f"OK {code(chat, 'cat')}")
        assert invoices.deleted == ["42"]


async def test_function_names_the_approvers_once_a_question(invoices: Invoices) -> None:
    rota = [[BEN, CAT], [DAN], [CAT]]

    async def on_call() -> list[str]:
        return rota.pop(0)

    approvers = Approvers(people=on_call, standin=[CAT])
    async with ChatDriver(invoices.bot(confirm=Confirm(ASK, approvers=approvers))) as chat:
        await chat.says("ana", "delete 42")
        await chat.says("ana", "delete 43")
        assert [len(said(chat, person)) for person in ("ben", "cat", "dan")] == [1, 1, 1]
        await chat.says("ben", f"OK {code(chat, 'ben')}")
        assert invoices.deleted == ["42"], "the list of the question counts, not a later one"
        await press(chat, "dan", "Cancel")
        await press(chat, "ana", "Ask the people who decide again")
        await chat.says("cat", f"OK {code(chat, 'cat')}")
        assert (invoices.deleted, rota) == (["42", "43"], [])


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ([], "too few people"),
        ([BEN], "too few people"),
        (["nobody"], "cannot be found now"),
        (BEN, "cannot be found now"),
        (RuntimeError("the rota's password is 1234"), "cannot be found now"),
        (asyncio.CancelledError(), "cannot be found now"),
    ],
    ids=str,
)
async def test_question_without_enough_named_people_is_not_asked(
    named: Any, told: str, invoices: Invoices, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_call() -> list[str]:
        if isinstance(named, BaseException):
            raise named
        return cast("list[str]", named)

    approvers = Approvers(people=on_call, need=2)
    async with ChatDriver(invoices.bot(confirm=Confirm(ASK, approvers=approvers))) as chat:
        await chat.says("ana", "delete 42")
        assert [message.place for message in chat.messages] == ["ana"] and told in newest(chat, "ana")
        assert "Approvers(people=...)" in caplog.text and "1234" not in caplog.text


async def test_question_of_a_hanging_function_is_not_asked(invoices: Invoices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "_NAMED_WITHIN_SECONDS", 0.01)

    async def on_call() -> list[str]:
        return [str(await asyncio.Event().wait())]

    async with ChatDriver(invoices.bot(confirm=Confirm(ASK, approvers=Approvers(people=on_call)))) as chat:
        await chat.says("ana", "delete 42")
        assert "cannot be found now" in newest(chat, "ana")


async def test_pending_lists_the_questions_for_the_approver(chat: ChatDriver) -> None:
    await chat.says("ben", "/pending")
    assert newest(chat, "ben") == (
        f"This is waiting for your answer:\n\n- Ana (test ana): Delete invoice “42” for good? ({code(chat, 'ben')})"
    )
    await chat.says("ana", "/pending")
    assert "- Delete invoice “42” for good?" in newest(chat, "ana"), "the requester is not told who they are"


async def test_every_showing_to_an_approver_names_the_asker(chat: ChatDriver) -> None:
    """Buttons and code decide in the approver's chat, long after the first showing."""
    asker = "Ana (test ana)"
    await chat.says("ben", "ok")
    assert newest(chat, "ben").startswith(f"Almost: add the code, **OK {code(chat, 'ben')}**.\n\n{asker} asks for your")
    for _ in range(2):
        await chat.clock.advance(100)
        await chat.says("ben", "hello")
    line = f"Still open: {asker}: Delete invoice “42” for good (OK {code(chat, 'ben')})"
    assert newest(chat, "ben") == line
    shown = [message.text for message in chat.messages if message.place == "ben" and "In words" in message.text]
    older = [message.text for message in chat.messages if message.place == "ben" and "Reply **OK" in message.text]
    shown += older
    assert (len(shown), len(older)) == (3, 2) and all(f"{asker} asks for your approval." in text for text in shown)


async def test_list_of_several_names_the_asker_of_each(chat: ChatDriver) -> None:
    await chat.says("eva", "delete 43")
    await chat.says("ben", "yes")
    lines = newest(chat, "ben").splitlines()[2:]
    assert [line.partition(":")[0] for line in lines] == ["1. Ana (test ana)", "2. Eva (test eva)"]


async def test_removed_approver_no_longer_decides(invoices: Invoices) -> None:
    async with asking(invoices, BEN, CAT) as chat:
        await chat.says("ana", "delete 42")
        removed = chat.bot.tool("delete_invoice")
        assert removed is not None and removed.confirm is not None
        removed.confirm.approvers = Approvers(people=[CAT])
        await press(chat, "ben", "Confirm")
        assert invoices.deleted == []
        assert newest(chat, "ben") == "**Delete invoice “42” for good**\nNo longer as it was shown. Nothing was done."
        assert newest(chat, "ana").startswith("This is no longer as it was shown, so nothing was done.")


async def test_unreachable_approvers_are_told_at_once(invoices: Invoices, caplog: pytest.LogCaptureFixture) -> None:
    async def away() -> list[str]:
        return ["line:L1:U2"]

    async with ChatDriver(invoices.bot(confirm=Confirm(ASK, approvers=Approvers(people=away)))) as chat:
        await chat.says("ana", "delete 42")
        assert newest(chat, "ana") == "The bot cannot reach the people who decide."
        assert "approver line:L1:U2 cannot be reached: line is not on here" in caplog.text
    assert invoices.deleted == []


async def test_group_answers_in_the_group_and_others_in_their_chats(invoices: Invoices) -> None:
    async with asking(invoices, BEN, "app:bot:eva", need=2) as chat:
        await chat.says("ana", "delete 42", group="office")
        assert [message.place for message in chat.messages] == ["#office"]
        assert chat.messages[0].buttons == ["Confirm", "Cancel", "Change"]
        assert "Asked by Ana (test ana). 2 confirmations are needed." in chat.messages[0].text
        for person, line in {"ben": "- Ana (test ana): Delete invoice", "ana": "- Delete invoice"}.items():
            await chat.says(person, "/pending")
            assert line in newest(chat, person)
        await chat.presses("ben", "Confirm")
        assert chat.alerts[-1] == "Your yes is counted: 1 of 2."
        await chat.bot.decide("app:bot:eva", "confirm", code=code(chat, "#office"))
        assert invoices.deleted == ["42"]


async def test_opted_out_approver_is_told_of_at_once(invoices: Invoices) -> None:
    async with asking(invoices, BEN, CAT) as chat:
        await chat.says("ana", "delete 42")
        await opts_out(chat, "ben")
        assert newest(chat, "ana") == "The bot cannot reach the people who decide."
        await opts_out(chat, "cat")
        assert "The bot cannot reach the people who decide." in newest(chat, "ana")
        await chat.says("ana", "delete 43")
        assert newest(chat, "ana") == "The bot cannot reach the people who decide."
        assert invoices.deleted == []


async def test_standin_is_asked_when_the_approver_is_lost(invoices: Invoices) -> None:
    async with asking(invoices, BEN, standin=[CAT]) as chat:
        await chat.says("ana", "delete 42")
        assert said(chat, "cat") == []
        await opts_out(chat, "ben")
        await chat.says("cat", f"OK {code(chat, 'cat')}")
        assert invoices.deleted == ["42"]


async def test_question_that_comes_after_the_end_says_so(chats: Rig, invoices: Invoices) -> None:
    """The relay of the end overtakes the relay of the question."""
    await chats.says("ana", "delete 42")
    await chats.worker.turn()
    await chats.says("ana", "/stop")
    await settle(chats)
    assert "Withdrawn. Nothing was done." in chats.platform.texts("ben")[-1]


async def test_ballot_edited_in_the_store_is_no_vote(chats: Rig, invoices: Invoices) -> None:
    await chats.says("ana", "delete 42")
    await settle(chats)
    (key, record), *_ = [
        (key, record)
        for key, record in await chats.store.scan(keys.action(""))
        if "ballot_of" in str(record.value) and "test:bot:ben" in str(record.value)
    ]
    forged = json.loads(json.dumps(record.value).replace("42", "43"))
    await chats.store.commit(Transaction(partition=key.partition, puts={key.name: Put(forged)}))
    await chats.says("ben", f"OK {code_in(chats, 'ben')}")
    await settle(chats)
    assert "was changed from outside the chat" in chats.platform.texts("ben")[-1]
    assert invoices.deleted == []


@pytest.mark.parametrize("deleted", [False, True])
async def test_action_edited_in_the_store_ends_its_ballots(chats: Rig, invoices: Invoices, deleted: bool) -> None:
    await chats.says("ana", "delete 42")
    await settle(chats)
    (key, record) = next(
        (key, record) for key, record in await chats.store.scan(keys.action("")) if "ballot_of" not in str(record.value)
    )
    forged = json.loads(json.dumps(record.value).replace("42", "43"))
    change = {"deletes": [key.name]} if deleted else {"puts": {key.name: Put(forged)}}
    await chats.store.commit(Transaction(partition=key.partition, **change))
    await chats.says("ben", f"OK {code_in(chats, 'ben')}")
    await settle(chats)
    assert "Its record was changed from outside the chat." in chats.platform.texts("ben")[-1]
    assert [action.open for action in (await chats.worker.context.actions("agent/test:bot:ben")).by_id.values()] == []
    assert invoices.deleted == []


async def test_replayed_or_forged_vote_decides_no_action(chats: Rig, invoices: Invoices) -> None:
    await chats.says("ana", "delete 42")
    await settle(chats)
    (asked,) = [action for action in await actions_of(chats) if action.ballots]
    for keyring, more in (
        (Keyring([b"another key of 16 bytes"]), {}),
        (chats.worker.context.keyring, {"replayed": True}),
    ):
        news = BallotNews(
            event_id=f"forged {more}",
            action_id=asked.pending_action_id,
            person=BEN,
            what="confirm",
            digest=asked.digest,
        )
        body = keyring.stamped("event", asked.conversation, {**body_of(news), **more})
        event = Incoming(conversation=asked.conversation, event_ids=(news.event_id,), body=body, decides=True)
        await chats.store.accept([event])
        await chats.worker.engine.due()
    await settle(chats)
    assert len(await chats.store.dead_letters()) == 2
    assert invoices.deleted == []


async def test_vote_counts_by_its_own_stamp_across_the_deadline(chats: Rig, invoices: Invoices) -> None:
    """The process dies between taking and handing over the vote; the deadline passes meanwhile."""
    await chats.says("ana", "delete 42")
    await settle(chats)
    deadline = 86400 - 1
    chats.store.offset_seconds += deadline
    chats.worker.context.decide = None
    vote = message("ben", f"OK {code_in(chats, 'ben')}")
    await chats.worker.engine.inbox.accept(chats.platform, Parsed(events=(vote,), response=WebhookResponse()))
    await chats.worker.context.tasks.ended()
    chats.store.offset_seconds += 5
    await chats.worker.engine.due()
    await settle(chats)
    assert invoices.deleted == ["42"]


# ── after a no ──

AGAIN = "Ask our finance team again"


async def refused(chat: ChatDriver) -> None:
    """Ana asks, and Ben says no."""
    await chat.says("ana", "delete 42")
    await chat.says("ben", "no")
    assert re.match(
        "Not approved by (our finance team|the people who decide): Delete invoice “42”", newest(chat, "ana")
    )


async def test_after_a_no_only_a_press_asks_the_approver_again(invoices: Invoices) -> None:
    async with asking(invoices, BEN, name="our finance team") as chat:
        await refused(chat)
        asked = len(said(chat, "ben"))
        for words in ("delete 42", "delete 43"):
            await chat.says("ana", words)
            told = [message.content for message in invoices.model.requests[-1].messages if message.role == "tool"]
            assert "an approver has refused a call of this tool within the last hour" in told[-1]
        assert len(said(chat, "ben")) == asked, "twelve noes were twelve new prompts"
        await chat.presses("ana", AGAIN)
        assert newest(chat, "ben").startswith("Ana (test ana) asks for your approval.")
        await chat.says("ben", f"OK {code(chat, 'ben')}")
        assert invoices.deleted == ["42"]


async def test_three_presses_an_hour_ask_again_and_no_more(invoices: Invoices) -> None:
    async with asking(invoices, BEN, name="our finance team") as chat:
        await refused(chat)
        for _ in range(3):
            await chat.presses("ana", AGAIN)
            await chat.says("ben", f"NO {code(chat, 'ben')}")
        asked = len(said(chat, "ben"))
        await chat.presses("ana", AGAIN)
        assert (len(said(chat, "ben")), chat.alerts[-1]) == (
            asked,
            "This was asked again often enough for now. Please try later.",
        )
        await chat.clock.advance(3601)
        await chat.says("ana", "delete 44")
        assert len(said(chat, "ben")) > asked, "an hour after the last no the model may ask again"


async def test_other_person_cannot_ask_again_but_can_ask_anew(invoices: Invoices) -> None:
    async with asking(invoices, BEN, name="our finance team") as chat:
        await refused(chat)
        await chat.presses("cat", AGAIN)
        assert chat.alerts[-1] == "This is not yours to answer."
        asked = len(said(chat, "ben"))
        await chat.says("cat", "delete 42")
        assert len(said(chat, "ben")) == asked + 1


def times_asked(chats: Rig) -> int:
    return sum(text.startswith("Ana (test ana) asks for your approval.") for text in chats.platform.texts("ben"))


async def test_a_no_holds_from_every_chat_of_the_requester(chats: Rig, invoices: Invoices) -> None:
    await chats.says("ana", "delete 42")
    await settle(chats)
    await chats.says("ben", f"NO {code_in(chats, 'ben')}")
    await settle(chats)
    other = "thread of ana"
    await chats.says("ana", "delete 43", place=other)
    await settle(chats)
    assert any(text.startswith(f"{REFUSED}: Delete invoice “43”") for text in chats.platform.texts(other))
    assert times_asked(chats) == 1
    for pressed in (1, 2, 3, 4):
        buttons = [button for place, part in chats.platform.sent if place == other for button in part.buttons]
        ana = Person.parse(ANA)
        ids = (f"press number {pressed}",)
        await chats.take(ButtonPress(event_ids=ids, address=here(other), person=ana, token=buttons[-1].token))
        await settle(chats)
        assert times_asked(chats) == 1 + min(pressed, 3)
        if pressed <= 3:
            await chats.says("ben", f"NO {code_in(chats, 'ben')}")
            await settle(chats)
    assert invoices.deleted == []


async def test_requester_reads_the_authors_name_for_the_approvers(invoices: Invoices) -> None:
    async with asking(invoices, BEN, name="our finance team") as chat:
        await chat.says("ana", "delete 42")
        assert "I have asked our finance team. You will hear from me here within 1 day." in newest(chat, "ana")
        await chat.says("ana", "yes")
        assert newest(chat, "ana").startswith("Not done yet. The approval is up to our finance team: ")
        assert "test:bot" not in "".join(said(chat, "ana"))


async def test_driver_plays_people_of_other_platforms(invoices: Invoices) -> None:
    eva, channel = "slack:T1:U7", "slack:T1:C2"
    async with asking(invoices, eva, f"place:{channel}", need=2) as chat:
        await chat.says("ana", "delete 42")
        assert [message.place for message in chat.messages] == ["ana", eva, channel]
        await chat.says(eva, "yes")
        assert newest(chat, eva).startswith("Your yes is counted: 1 of 2.")
        await chat.says("slack:T1:U8", f"OK {code(chat, channel)}", group=channel)
        assert invoices.deleted == ["42"]
        await chat.says("telegram:1:2", "/whoami")
        assert "telegram:1:2" in newest(chat, "telegram:1:2")
        with pytest.raises(ValueError, match="nobody of line is played"):
            await chat.says("line:L1:U2", "hello")

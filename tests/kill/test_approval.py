"""SIGKILL at every step of a decision across chats: one effect, one report to each approver, each prompt settled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from gateway.assembly import open_store
from gateway.store.redis.keys import partition_of
from gateway.wording import say
from tests.cli.processes import Process
from tests.fakes.openai import Call
from tests.fakes.telegram import FakeTelegram, Message, User
from tests.kill.stage import Stage, a_store, on_stage
from tests.metrics import scraped
from tests.stored import action_of

pytestmark = pytest.mark.timeout(180)

DUPLICATE = say("may_be_duplicate", "en")
BOT = Path(__file__).with_name("approval_bot.py")
HANDED = ("ballot", "shown", "confirm", "answer", "ended")
"""The hand-overs in order: the question, the note of the showing, a vote, the answer, the end."""
STEPS = [*(f"committed {event}" for event in HANDED), "sent", "launched", "effect"]
UNSURE = ("sent", "committed shown", "accepted shown")
"""At these steps the process dies before the question's arrival is known: the question is sent again."""
LEFT = ("askfirst_decisions_waiting", "askfirst_outbox_parts", "askfirst_timers", "askfirst_dead_letters")


@dataclass
class Approval:
    """Ana asks. Ben and Cat must approve, each in a chat of a separate partition."""

    stage: Stage
    ana: User
    approvers: list[User]
    living: list[Process]

    async def goes_on(self, **env: str) -> None:
        """After the death of the process with the webhook, another takes over: a new process, or the second one."""
        while True:
            await self.living[0].gone()
            self.living.pop(0)
            if not self.living:
                self.living.append(await self.stage.start("all", BOT, **env))
            await self.stage.webhook_to(self.living[0])

    async def quiet(self) -> None:
        """Wait until no work, part or timer is left."""
        while True:
            found = await scraped(await self.living[0].url())
            lanes = [found.value("askfirst_lanes", state=state) for state in ("ready", "leased")]
            if not any((*lanes, *map(found.value, LEFT))):
                return
            await asyncio.sleep(0.1)

    def prompts(self, person: User) -> list[Message]:
        return [message for message in self.stage.telegram.sent if message.chat.id == person.id and message.once_shown]

    async def prompt(self, person: User) -> Message:
        return await self.stage.until(lambda: self.stage.telegram.last(person, button="Confirm"))

    def told(self, person: User, words: str) -> list[str]:
        """Return the non-prompt messages of this chat with these words, without announced duplicates.

        A process may die during the sending of a message of another lane.
        """
        plain = [m.text for m in self.stage.telegram.sent if m.chat.id == person.id and not m.once_shown]
        found = [(before, text) for before, text in itertools.pairwise(["", *plain]) if words in text]
        return [text for number, (before, text) in enumerate(found) if number == 0 or before != DUPLICATE]


def elsewhere(telegram: FakeTelegram, names: str) -> list[User]:
    """Return people with chats in separate partitions."""
    found: dict[str, User] = {}
    for name in names.split():
        person = telegram.person(name)
        while (partition := partition_of(f"agent/telegram:{telegram.bot.id}:{person.id}")) in found:
            person = telegram.person(name)
        found[partition] = person
    return list(found.values())


@contextlib.asynccontextmanager
async def asked(tmp_path: Path, kind: str, step: str) -> AsyncIterator[Approval]:
    """Start one process on SQLite, restarted after death; on Redis two, of which the first at the step dies."""
    async with a_store(kind, tmp_path) as store, on_stage(tmp_path, store) as stage:
        ana, *approvers = elsewhere(stage.telegram, "Ana Ben Cat")
        people = ",".join(f"telegram:{stage.telegram.bot.id}:{person.id}" for person in approvers)
        env = {"DIES_AT": step, "APPROVERS": people}
        living = [await stage.start("all", BOT, **env) for _ in range(2 if kind == "redis" else 1)]
        await stage.webhook_to(living[0])
        for person in approvers:  # the bot cannot write to them first
            await stage.telegram.person_says(person, person, "/start")
            await stage.until(partial(stage.texts, person))
        approval = Approval(stage, ana, approvers, living)
        going = asyncio.create_task(approval.goes_on(**env))
        try:
            yield approval
        finally:
            going.cancel()
            await asyncio.wait([going])


@pytest.mark.ledger("POL-19")
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *(("sqlite", step) for step in STEPS),
        *(("redis", step) for step in [*(f"accepted {event}" for event in HANDED), "sent", "launched", "effect"]),
        *(pytest.param("redis", f"committed {event}", marks=pytest.mark.nightly) for event in HANDED),
    ],
)
async def test_kill_at_a_step_of_an_approval_runs_the_action_once(tmp_path: Path, kind: str, step: str) -> None:
    async with asked(tmp_path, kind, step) as approval:
        stage, ana, (ben, cat) = approval.stage, approval.ana, approval.approvers
        stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
        await stage.telegram.person_says(ana, ana, "pay INV-1")
        for person in (ben, cat):
            await approval.prompt(person)
        await stage.telegram.press(await approval.prompt(ben), "Confirm", ben)
        await stage.until(lambda: approval.told(ben, "Your yes is counted: 1 of 2."))
        await stage.telegram.press(await approval.prompt(cat), "Confirm", cat)
        await stage.until(lambda: "pay INV-1 ok" in stage.texts(ana))
        for person in (ben, cat):
            await stage.until(partial(approval.told, person, "✅ Confirmed by Cat"))
        await approval.quiet()

        assert (tmp_path / "died").exists(), "no process came to that step"
        assert stage.business.happened("pay") == ["INV-1"]
        assert len(stage.business.done) == (2 if step == "effect" else 1), "again only with its key"
        assert len(approval.told(ana, "pay INV-1 ok")) == 1
        assert len(approval.told(ben, "Your yes is counted")) == 1
        assert [len(approval.told(person, "✅ Confirmed by Cat")) for person in (ben, cat)] == [1, 1]
        shown = [message for person in (ana, ben, cat) for message in approval.prompts(person)]
        copies = len(shown) - 3
        assert copies <= (2 if step in UNSURE else 0)
        assert len([message for message in shown if message.buttons]) == copies, "only a copy keeps its buttons"
        await ends_as_done(approval)


async def ends_as_done(approval: Approval) -> None:
    """Check in the store that the action and both ballots are done."""
    approval.living.clear()
    await approval.stage.kill()
    store = open_store(approval.stage.env["ASKFIRST_STORE"])
    await store.open()
    try:
        actions = [action_of(record.value) for _, record in await store.scan("action/")]
        assert [action.state for action in actions] == ["done"] * 3
        assert [len(action.votes) for action in actions if action.ballots] == [2]
    finally:
        await store.close()

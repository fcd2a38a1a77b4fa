"""An approver reads the whole call in the language of their own chat."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest

from gateway import Agent, Approvers, ChannelAgent, Confirm, Money, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.testing import driver as drivers

TEMPLATES = {
    "en": "Pay the supplier?",
    "de": "{amount} an {payee} zahlen?",
    "fr": "Payer {amount} au fournisseur ?",
}


HEADLINES = {
    "en": "Pay the supplier?",
    "de": "99,50 € an “Mallory” zahlen?",
    "fr": "Payer 99,50 € au fournisseur ?",
}


@tool(confirm="Notiz {n} weg?")
async def drop_note(n: str) -> str:
    """Drop a note."""
    return "gone"


@pytest.mark.parametrize("reads", ["en", "de", "fr", "ja"])
@pytest.mark.parametrize("asks", ["en", "de", "fr", "ja"])
async def test_approver_reads_each_argument(asks: str, reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, languages = drivers._person, {"ana": asks, "ben": reads}
    monkeypatch.setattr(drivers, "_person", lambda name: replace(made(name), language=languages[name]))

    @tool(confirm=Confirm(TEMPLATES, approvers=Approvers(people=["test:bot:ben"])))
    async def pay(amount: Annotated[Decimal, Money("EUR")], payee: str) -> str:
        """Pay."""
        return "paid"

    script = [ToolCall("drop_note", {"n": "1"}), ToolCall("pay", {"amount": "99.5", "payee": "Mallory"})]
    async with ChatDriver(ChannelAgent(Agent([pay, drop_note], provider=ScriptedProvider(script)))) as chat:
        await chat.says("ben", "note 1")
        await chat.says("ana", "pay")
        [text] = [m.text.replace("\\", "") for m in chat.messages if m.place == "ben" and "Mallory" in m.text]
        assert re.search("99[.,]50", text)
        title = re.search(r"\*\*([^*]+)\*\*", text)
        assert title is not None
        assert title[1] == HEADLINES.get(reads, HEADLINES["en"])


@pytest.mark.parametrize(
    ("language", "asked", "told"), [("en", "our team", "Paid €5.00."), ("de", "unser Team", "5,00 € gezahlt.")]
)
async def test_names_and_outcomes_are_in_the_language(
    language: str, asked: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = drivers._person
    monkeypatch.setattr(drivers, "_person", lambda name: replace(made(name), language=language))
    rule = Approvers(people=["test:bot:ben"], name={"en": "our team", "de": "unser Team"})

    @tool(confirm=Confirm(TEMPLATES, approvers=rule, done={"en": "Paid {amount}.", "de": "{amount} gezahlt."}))
    async def pay(amount: Annotated[Decimal, Money("EUR")], payee: str) -> None:
        """Pay."""

    script = ScriptedProvider([ToolCall("pay", {"amount": "5", "payee": "Bob"})])
    async with ChatDriver(ChannelAgent(Agent([pay], provider=script))) as chat:
        await chat.says("ana", "pay")
        assert asked in chat.last.text
        label = next(m.buttons for m in chat.messages if m.place == "ben")[0]
        await chat.presses("ben", label)
        assert told in [m.text.replace("\\", "") for m in chat.messages if m.place == "ana"]


@pytest.mark.parametrize("name", ["", " ", "x" * 81, 7, {}, {"xx": "a"}, {"en": ""}], ids=str)
def test_wrong_name_of_approvers_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="Approvers"):
        Approvers(people=["test:bot:ben"], name=name)

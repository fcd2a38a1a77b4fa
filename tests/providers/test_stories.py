"""Whole conversations, through the real bot: with questions open and settled, each vendor takes the requests."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ChannelAgent, tool
from gateway.providers import Provider, ProviderError
from gateway.testing import ChatDriver
from tests.fakes.model_server import Call, Fail, ModelServer, Say
from tests.providers.vendors import Vendor

LIST = Call("list_invoices", {})


def delete(invoice: str) -> Call:
    return Call("delete_invoice", {"invoice_id": invoice})


def books(provider: Provider) -> ChannelAgent:
    @tool(read_only=True)
    async def list_invoices() -> str:
        """List the invoices."""
        return "INV-7, INV-42"

    @tool(confirm="Delete invoice {invoice_id} for good?")
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        return f"Invoice {invoice_id} is deleted."

    return ChannelAgent(Agent([list_invoices, delete_invoice], provider=provider, config=AgentConfig(max_retries=0)))


def told(vendor: Vendor, body: dict[str, Any]) -> list[str]:
    """Return the events in a request, in the vendor's form."""
    texts: list[str] = []
    for message in body[vendor.history]:
        if "role" not in message:
            continue
        blocks = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
        texts += [block["text"] for block in blocks if message["role"] == "user" and "text" in block]
    return [line for text in texts if "<gateway_event>" in text for line in text.splitlines() if "INV-" in line]


async def test_a_conversation_with_settled_actions(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    async with ChatDriver(books(provider)) as chat:
        model.script([Say("Let me look.", [LIST], thinks="Which ones?")])
        model.script([Say("Both, then.", [delete("INV-7"), delete("INV-42")], thinks="Two calls.")])
        await chat.says("ana", "delete all invoices")
        model.script([Say("Two are waiting for you.", thinks="They are open.")])
        await chat.says("ana", "what is going on?")
        assert told(vendor, model.requests[-1]) == [
            "- q1, delete_invoice: Delete invoice “INV-7” for good?",
            "- q2, delete_invoice: Delete invoice “INV-42” for good?",
        ]
        await chat.presses("ana", "Confirm 1")
        await chat.presses("ana", "Cancel all")
        model.script([Say("You are welcome.", [LIST], thinks="Polite."), "INV-42 is left.", "Yes."])
        await chat.says("ana", "thanks")
        await chat.says("ana", "is that all?")
        done, refused = told(vendor, model.requests[-1])
        assert "INV-7" in done
        assert "done" in done
        assert "INV-42" in refused
        assert "NOT done" in refused
    assert model.refused == []


@pytest.mark.ledger("RSN-04")
async def test_thoughts_on_the_way_stay_off_the_chat(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    async with ChatDriver(books(provider)) as chat:
        model.script([Say("I had better look first.", [LIST], thinks="Secretly."), Say("There are two.", thinks="So.")])
        await chat.says("ana", "which invoices are there?")
        model.script([Say("Away with it.", [delete("INV-7")], thinks="If she says yes.")])
        await chat.says("ana", "delete INV-7")
        assert [message.text for message in chat.messages[:-1]] == ["There are two."]
        assert chat.last.buttons
        shown = " ".join(message.text for message in chat.messages)
        assert not any(words in shown for words in ("had better", "Secretly", "So.", "Away with", "says yes"))


@pytest.mark.ledger("CALL-12")
async def test_a_request_begins_with_the_one_before_it(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    """Instructions, tools and earlier messages stay unchanged: the vendors cache the beginning."""
    async with ChatDriver(books(provider)) as chat:
        model.script([Say(calls=[LIST], thinks="Hm."), "Two.", Say("Yes.", thinks="Sure."), "Bye."])
        for words in ("which invoices are there?", "sure?", "bye"):
            await chat.says("ana", words)
    for earlier, later in itertools.pairwise(model.requests):
        assert later[vendor.history][: len(earlier[vendor.history])] == earlier[vendor.history]
        for name in ("tools", "system", "instructions"):
            assert later.get(name) == earlier.get(name)


async def test_a_turn_that_broke_off_is_gone_on_from(vendor: Vendor, model: ModelServer, provider: Provider) -> None:
    """The transcript has the calls before the model's failure, with the thoughts."""
    async with books(provider) as bot:
        model.script([Say(calls=[LIST], thinks="Which ones?"), Fail(500)])
        with pytest.raises(ProviderError):
            await bot.ask_channel("ana", "which invoices are there?")
        model.script(["INV-7 and INV-42."])
        assert (await bot.ask_channel("ana", "well?")).content == "INV-7 and INV-42."
    assert "INV-7, INV-42" in str(model.requests[-1])
    assert model.refused == []

"""An agent handing tasks over to another agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

import gateway.structured.json_schema  # noqa: F401 - its library reads files when it is loaded, which no event loop waits for
from gateway import Agent, AgentConfig, ChannelAgent, Tool, ToolContext, ToolParameter, ToolPolicy, emit_artifact, tool
from gateway.agent import LoopPorts
from gateway.observe.runs import run_id_of
from gateway.observe.teller import Teller, begin_run
from gateway.testing import ChatDriver, RecordingObserver, ScriptedProvider, ToolCall
from gateway.tools import ToolSource, ToolValidationError
from tests.agent.scripted import Notebook, Person, Script, call, calls

RAN: list[str] = []


@tool(idempotent=True)
async def look_up(name: str, ctx: ToolContext) -> str:
    """Look up."""
    RAN.append(f"{name} {ctx.idempotency_key}")
    emit_artifact(content=b"x", filename=f"{name}.txt")
    return f"{name} is 7"


@tool(confirm="Refund {name}?")
async def refund(name: str) -> str:
    """Refund."""
    RAN.append(f"refund {name}")
    return f"{name} is refunded"


def two_agents(outer: Script, inner: Script, **config: Any) -> Agent:
    accountant = Agent([look_up, refund], provider=inner, instructions="You are the accountant.")
    return Agent(
        [accountant.as_tool("ask_accountant", "Ask the accountant.")], provider=outer, config=AgentConfig(**config)
    )


@pytest.mark.ledger("PYG-28")
async def test_a_task_is_handed_over_and_its_answer_comes_back() -> None:
    RAN.clear()
    inner = Script([call("look_up", name="a"), "a is seven."])
    outer = Script([call("ask_accountant", task="what is a?"), "It is seven."])
    seen = RecordingObserver()
    agent = two_agents(outer, inner, observers=(seen,))
    result = await agent.run("a?", context=ToolContext(person="app:-:ana", idempotency_key="turn"))
    assert result.content == "It is seven."
    assert RAN == ["a turn/1.1/1.1"], "the key of an inner call is below that of the outer one"
    assert [artifact.filename for artifact in result.artifacts] == ["a.txt"]
    assert inner.requests[0].system == "You are the accountant."
    assert [message.content for message in inner.requests[0].messages] == ["what is a?"]
    assert outer.requests[1].messages[-1].content == "a is seven."
    assert result.usage.prompt_tokens == 40, "the inner calls count"
    outside, inside = (fields["run_id"] for name, fields in seen.events if name == "run_start")
    assert inside == run_id_of(outside, "1.1")


@pytest.mark.ledger("TRC-19")
async def test_run_of_an_inner_agent_names_the_outer_one() -> None:
    outer, inner = Script([call("ask_accountant", task="what is a?"), "It is seven."]), Script(["a is seven."])
    seen = RecordingObserver()
    result = await two_agents(outer, inner, observers=(seen,)).run("a?")
    within, whole = (fields["result"].trace for name, fields in seen.events if name == "run_end")
    assert (within.parent_run_id, whole.parent_run_id) == (result.trace.run_id, None)
    assert whole.run_id == result.trace.run_id != within.run_id


async def test_inner_tool_asks_the_person_of_the_outer_turn() -> None:
    inner = Script([calls(call("refund", name="a"), call("refund", name="b"), content="Two refunds.")])
    outer = Script([call("ask_accountant", task="refund a and b")])
    person, seen = Person(), RecordingObserver()
    agent, book = two_agents(outer, inner), Notebook()
    events = begin_run(Teller(observers=[seen]), "outer", clock=lambda: datetime.now(UTC))
    outcome = await agent.answer(
        [], context=ToolContext(person="app:-:ana"), on_confirm=person, ports=LoopPorts(journal=book, events=events)
    )
    assert outcome.stop_reason == "asked"
    assert [fields["run_id"] for name, fields in seen.events if name == "pending_stashed"] == ["outer"] * 2, "told once"
    assert [each.action.args for each in outcome.asked] == [{"name": "a"}, {"name": "b"}]
    assert [len(asks) for asks in person.asked] == [2], "both in one question"
    again = await agent.answer(
        [], context=ToolContext(person="app:-:ana"), on_confirm=person, ports=LoopPorts(journal=Notebook(book.steps))
    )
    assert [each.action for each in again.asked] == [each.action for each in outcome.asked]
    assert (len(person.asked), len(outer.requests), len(inner.requests)) == (1, 1, 1), "a take-over asks nobody again"


@pytest.mark.parametrize("kept", range(8))
async def test_a_take_over_repeats_no_inner_step(kept: int) -> None:
    """For any recorded steps of a dead process, no step is done again, and the result is the same."""
    steps: list[Any] = [call("look_up", name="a"), call("look_up", name="b"), "a is 7, b is 7."]
    outer_steps: list[Any] = [call("ask_accountant", task="a and b?"), "Both are seven."]
    inner, outer = Script([*steps]), Script([*outer_steps])
    book, context = Notebook(), ToolContext(person="app:-:ana", idempotency_key="turn")
    await two_agents(outer, inner).answer([], context=context, on_confirm=Person(), ports=LoopPorts(journal=book))
    recorded: list[Any] = [*book.steps][:kept]
    assert len(book.steps) == 6

    RAN.clear()
    inner_steps = [step["step"] for step in recorded if "step" in step]
    replies = sum("reply" in step for step in inner_steps)
    finished = sum("finished" in step for step in inner_steps)
    done = any("finished" in step for step in recorded)
    again = Script(steps[replies:])
    outside = Script(outer_steps[any("reply" in step for step in recorded) :])
    outcome = await two_agents(outside, again).answer(
        [], context=context, on_confirm=Person(), ports=LoopPorts(journal=Notebook(recorded))
    )
    assert outcome.content == "Both are seven."
    assert outside.requests[-1].messages[-1].content == "a is 7, b is 7."
    assert len(RAN) == (0 if done else 2 - finished)


async def test_an_inner_run_without_an_answer_says_so() -> None:
    inner = Script([call("look_up", name=str(n)) for n in range(6)])
    outer = Script([call("ask_accountant", task="loop"), "I could not find out."])
    result = await two_agents(outer, inner).run("a?")
    assert result.content == "I could not find out."
    told = outer.requests[1].messages[-1].content
    assert told == "Tool 'ask_accountant': the other agent ended without an answer (max_iterations)."


async def test_the_policy_of_the_inner_agent_decides_on_its_tools() -> None:
    strict = Agent([look_up, refund], provider=Script([]), policy=ToolPolicy(deny=["refund"]))
    outer = Agent([strict.as_tool("strict", "Ask."), look_up], provider=Script([]))
    assert outer.reach["refund"].policy is strict.policy
    assert outer.reach["look_up"].policy is None
    assert set(outer.reach) == {"strict", "look_up", "refund"}


def test_two_tools_of_one_name_are_refused() -> None:
    @tool(read_only=True, name="look_up")
    async def another() -> str:
        """Another."""
        return ""

    inner = Agent([look_up], provider=Script([]))
    with pytest.raises(ToolValidationError, match="'ask' has another tool of this name"):
        Agent([inner.as_tool("ask", "Ask."), another], provider=Script([]))


# ── sources of tools ──


def wipe(*, source: str = "shelf", description: str = "Wipe a disk.", **options: Any) -> Tool:
    async def function(disk: str) -> str:
        return f"{source} wiped {disk}"

    return Tool.from_schema("wipe", description, [ToolParameter("disk", str, "Which")], function, **options)


class Shelf:
    def __init__(self, *tools: Tool, label: str = "shelf") -> None:
        self.label, self.next, self.closed = label, tools, 0
        self._listed: tuple[Tool, ...] = ()

    def listed(self) -> Sequence[Tool]:
        return self._listed

    async def refresh(self) -> None:
        if self.next is not self._listed:
            self._listed = self.next

    async def close(self) -> None:
        self.closed += 1


async def test_list_is_taken_between_turns() -> None:
    shelf = Shelf()
    assert isinstance(shelf, ToolSource)
    agent = Agent(
        [shelf], provider=(script := Script([call("wipe", disk="a"), "No tool", call("wipe", disk="a"), "Ok"]))
    )
    assert agent.tools == {}
    first = await agent.run("wipe a")
    shelf.next = (wipe(),)
    assert agent.tools == {}  # only a turn takes a new list
    second = await agent.run("wipe a")
    assert list(agent.tools) == list(agent.reach) == ["wipe"]
    assert [each.content for each in (first, second)] == ["No tool", "Ok"]
    assert [[spec.name for spec in request.tools] for request in script.requests] == [[], [], ["wipe"], ["wipe"]]
    assert [request.messages[-1].content for request in script.requests[1::2]] == [
        "Unknown tool 'wipe'. Available tools: none",
        "shelf wiped a",
    ]
    await agent.drain()
    assert shelf.closed == 1


@tool(name="wipe")
async def own(disk: str) -> str:
    """Wipe a disk."""
    return f"own wiped {disk}"


async def test_own_tool_wins_over_a_listed_one_and_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    late = Shelf(wipe(source="late"), label="late")
    agent = Agent([own, Shelf(wipe(), label="first"), late], provider=Script([call("wipe", disk="a"), "Ok"] * 2))
    await agent.run("wipe a")
    await agent.run("wipe a")
    assert agent.tools["wipe"] is own
    assert [record.getMessage() for record in caplog.records] == [
        f"the tool 'wipe' of {label} is left out: another tool has this name, and it stays. Give the source a prefix="
        for label in ("first", "late")
    ]


async def test_tool_behind_another_agent_wins_over_a_listed_one(caplog: pytest.LogCaptureFixture) -> None:
    inner = Agent([own], provider=Script([]))
    agent = Agent([inner.as_tool("cleaner", "Clean"), Shelf(wipe())], provider=Script(["Ok"]))
    await agent.run("hi")
    assert list(agent.tools) == ["cleaner"] and agent.reach["wipe"].tool is own
    assert "'wipe' of shelf is left out" in caplog.text


async def test_source_of_an_inner_agent_is_reached_and_closed() -> None:
    shelf = Shelf(wipe())
    inner = Agent([shelf], provider=Script([]), policy=(policy := ToolPolicy(allow=["wipe"])))
    agent = Agent([inner.as_tool("cleaner", "Clean")], provider=Script(["Ok"]))
    await agent.run("hi")
    assert agent.reach["wipe"] == (shelf.next[0], policy) and agent.sources == (shelf,)
    await agent.drain()
    assert shelf.closed == 1


async def test_changed_tool_drifts_its_open_action() -> None:
    shelf = Shelf(wipe(confirm=True, version="1"))
    agent = Agent([shelf])
    script = ScriptedProvider([ToolCall("wipe", {"disk": "a"}), "All well."])
    async with ChatDriver(ChannelAgent(agent), provider=script) as chat:
        await chat.says("ana", "wipe a")
        shelf.next = (wipe(confirm=True, version="2"),)
        await chat.says("ben", "hello")
        await chat.presses("ana", "Confirm")
        assert "nothing was done" in chat.last.text
    assert shelf.closed == 1


async def test_confirmed_action_of_a_source_runs() -> None:
    script = ScriptedProvider([ToolCall("wipe", {"disk": "a"})])
    async with ChatDriver(Agent([Shelf(wipe(confirm="Wipe {disk}?"))]), provider=script) as chat:
        await chat.says("ana", "wipe a")
        await chat.presses("ana", "Confirm")
        assert chat.last.text == "shelf wiped a"

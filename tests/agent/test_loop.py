"""The loop: answers, calls, mistakes of the model, mistakes of a tool, and the reasons to stop."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from unittest.mock import ANY

import pytest

from channels import Button, Reply
from gateway import ToolConfig
from gateway.agent import Agent, AgentConfig, LoopOutcome
from gateway.agent.calls import CALLS_IN_ONE_REPLY
from gateway.observe.events import (
    IterationEnd,
    IterationStart,
    LlmEnd,
    LlmStart,
    RunEnd,
    RunEvent,
    RunStart,
    RunUsage,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
)
from gateway.providers import ProviderError, Request, Response, ToolCall
from gateway.testing import ChatDriver
from gateway.tools import NothingDone, OutcomeUnknown, Tool, ToolContext, ToolFailed, ToolValidationError, tool
from tests.agent.scripted import Script, Turn, call, calls, told


def searching() -> tuple[Tool, list[str]]:
    queries: list[str] = []

    @tool(read_only=True)
    async def search(query: str) -> str:
        """Search the web."""
        queries.append(query)
        return f"found {query}"

    return search, queries


@tool(read_only=True)
def calculator(expression: str) -> str:
    """Compute."""
    return expression


@pytest.mark.ledger("LOOP-09", "LOOP-10", "STOP-01")
async def test_text_without_a_call_is_the_answer() -> None:
    turn = Turn(Script(["Hello there"]), [])
    outcome = await turn.run("Hello")
    assert (outcome.content, outcome.stop_reason, outcome.iterations) == ("Hello there", "answered", 1)
    assert turn.journal.lines == []  # its first reply is its last


@pytest.mark.ledger("LOOP-08", "LOOP-17", "CALL-10")
async def test_a_call_runs_and_the_model_hears_its_result() -> None:
    search, queries = searching()
    turn = Turn(Script([call("search", query="Python tutorials"), "Done"]), [search])
    outcome = await turn.run()
    assert queries == ["Python tutorials"]
    assert (outcome.content, outcome.iterations) == ("Done", 2)
    assert [m.role for m in outcome.messages] == ["assistant", "tool", "assistant"]
    asked, result, _ = outcome.messages
    assert (result.call_id, result.tool_name, result.content) == (
        asked.tool_calls[0].call_id,
        "search",
        "found Python tutorials",
    )
    assert [m.role for m in turn.provider.requests[1].messages] == ["user", "assistant", "tool"]
    assert turn.provider.requests[0].tools[0].parameters["required"] == ["query"]
    assert outcome.usage.prompt_tokens == 20


@pytest.mark.ledger("LOOP-13", "CALL-11", "PYG-06")
async def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    outcome = await Turn(Script([call("nosuch"), "Sorry"]), [searching()[0], calculator]).run()
    assert told(outcome) == ["Unknown tool 'nosuch'. Available tools: search, calculator"]
    assert outcome.content == "Sorry"


@pytest.mark.ledger("LOOP-14", "CALL-08", "CALL-09")
async def test_arguments_that_do_not_fit_never_reach_the_tool() -> None:
    search, queries = searching()
    broken = ToolCall(call_id="2", name="search", parse_error="Expecting value at 7")
    outcome = await Turn(Script([calls(call("search", qeury="x"), broken), "ok"]), [search]).run()
    first, second = told(outcome)
    assert "Did you mean 'query'?" in first
    assert "malformed arguments (Expecting value at 7)" in second
    assert queries == []


@pytest.mark.ledger("LOOP-16")
async def test_model_that_reads_its_mistake_may_call_again() -> None:
    search, queries = searching()
    turn = Turn(Script([call("search", qeury="x"), call("search", query="x"), "Found."]), [search])
    outcome = await turn.run()
    assert "qeury" in turn.provider.requests[1].messages[-1].content
    assert (outcome.content, queries, told(outcome)[1]) == ("Found.", ["x"], "found x")


async def test_a_number_that_json_cannot_hold_never_reaches_the_tool() -> None:
    search, queries = searching()
    outcome = await Turn(Script([call("search", query=float("nan")), "ok"]), [search]).run()
    assert "a value that JSON cannot hold" in told(outcome)[0]
    assert (queries, outcome.content) == ([], "ok")


@pytest.mark.ledger("LOOP-15", "TOOL-55")
async def test_tool_error_reaches_the_model_as_its_type_and_place() -> None:
    @tool
    def divide(a: int, b: int) -> float:
        """Divide."""
        if b == 0:
            raise ValueError("postgres://u:secret@db is lost") from KeyError("secret too")
        return a / b

    turn = Turn(Script([call("divide", a=1, b=0), "can't"]), [divide])
    outcome = await turn.run()
    (text,) = told(outcome)
    pattern = r"Error executing tool 'divide': ValueError \(test_loop\.py:\d+ divide\) from KeyError"
    assert re.fullmatch(pattern, text)
    assert outcome.content == "can't"
    (failed,) = turn.told.of_kind(ToolErrorRaised)
    assert str(failed.error).startswith("postgres")  # the console of the author shows it
    assert re.fullmatch(pattern, f"Error executing tool 'divide': {failed.what}")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutcomeUnknown("the line went dead"), "may or may not have happened"),
        (NothingDone("closed"), "nothing was done"),
        (ToolFailed("the printer is out of paper"), "Error executing tool 'pay': the printer"),
    ],
)
async def test_tool_may_report_the_outcome_of_its_effect(error: Exception, words: str) -> None:
    @tool
    async def pay() -> None:
        """Pay."""
        raise error

    (text,) = told(await Turn(Script([call("pay"), "hm"]), [pay]).run())
    assert words in text
    assert str(error) in text


@pytest.mark.ledger("LOOP-11", "STOP-02", "CFG-04")
async def test_endless_calls_end_at_the_limit() -> None:
    search, queries = searching()
    turn = Turn(Script([call("search", query=str(n)) for n in range(9)]), [search])
    outcome = await turn.run()
    assert (outcome.stop_reason, len(turn.provider.requests), len(queries)) == ("max_iterations", 6, 6)


@pytest.mark.ledger("LOOP-19", "CFG-15")
async def test_routing_only_returns_the_choice_without_running_it() -> None:
    search, queries = searching()
    turn = Turn(Script([call("search", query="a")]), [search], AgentConfig(routing_only=True))
    outcome = await turn.run()
    assert (outcome.stop_reason, outcome.tool_calls[0].name, outcome.tool_calls[0].args) == (
        "routed",
        "search",
        {"query": "a"},
    )
    assert (queries, outcome.messages, turn.journal.lines) == ([], (), [])


@pytest.mark.ledger("STOP-03")
async def test_a_terminal_tool_ends_the_turn_with_its_result() -> None:
    @tool(terminal=True, read_only=True)
    async def present_question() -> dict[str, int]:
        """Ask a prepared question."""
        return {"id": 7}

    turn = Turn(Script([call("present_question")]), [present_question])
    outcome = await turn.run()
    assert (outcome.stop_reason, json.loads(outcome.content)) == ("terminal_tool", {"id": 7})
    assert len(turn.provider.requests) == 1


@pytest.mark.ledger("TOOL-46")
@pytest.mark.parametrize("buttons", [(), (Button(label="A", token="a"),)], ids=["kept", "refused with buttons"])
async def test_a_terminal_tool_may_answer_with_a_message(buttons: Any) -> None:
    reply = Reply(text="Pick *one*", exact=True, buttons=buttons)

    @tool(terminal=True, read_only=True)
    async def show_plans() -> Reply:
        """Show the plans."""
        return reply

    turn = Turn(Script([call("show_plans"), "Which one?"]), [show_plans])
    outcome = await turn.run()
    if buttons:
        assert outcome.content == "Which one?" and "no handler" in told(outcome)[0]
        return
    assert (outcome.stop_reason, outcome.content, outcome.reply) == ("terminal_tool", reply.text, reply)
    again = Turn(Script([]), [show_plans], journal=turn.journal)
    assert (await again.run()).reply == reply  # also from the checkpoint
    bot = Agent([show_plans], provider=Script([call("show_plans")]))
    async with ChatDriver(bot) as chat:
        await chat.says("ana", "plans")
        assert [shown.text for shown in chat.messages] == ["Pick *one*"]


@pytest.mark.ledger("STOP-04")
@pytest.mark.parametrize("terminal", [False, True])
async def test_stop_condition_reads_the_raw_result_after_terminal(terminal: bool) -> None:
    heard: list[tuple[str, str]] = []

    @tool(read_only=True, terminal=terminal)
    async def rows(last: str) -> str:
        """Read rows."""
        return "row; " * 2000 + last

    def is_last(name: str, result: str) -> bool:
        heard.append((name, result))
        return result.endswith("end")

    script = Script([call("rows", last="more"), "many rows", call("rows", last="end"), "never asked"])
    config = AgentConfig(stop_condition=is_last, tool=ToolConfig(compress_results=True))
    turn = Turn(script, [rows], config)
    outcome = await turn.run()
    if terminal:
        assert (outcome.stop_reason, heard, len(script.requests)) == ("terminal_tool", [], 1)
        return
    assert told(outcome)[0] == "[compressed from 10004 chars] many rows"
    assert heard == [("rows", "row; " * 2000 + last) for last in ("more", "end")]
    assert (outcome.stop_reason, outcome.content, len(script.requests)) == ("stop_condition", heard[-1][1], 3)


@pytest.mark.ledger("STOP-07", "CFG-23")
async def test_a_stop_condition_ends_the_turn_with_that_result() -> None:
    config = AgentConfig(stop_condition=lambda name, result: "tutorials" in result)
    outcome = await Turn(Script([call("search", query="tutorials")]), [searching()[0]], config).run()
    assert (outcome.stop_reason, outcome.content) == ("stop_condition", "found tutorials")


@pytest.mark.ledger("STOP-05")
async def test_a_stop_condition_that_raises_is_false() -> None:
    def broken(name: str, result: str) -> bool:
        raise KeyError(name)

    turn = Turn(Script([call("search", query="a"), "b"]), [searching()[0]], AgentConfig(stop_condition=broken))
    assert (await turn.run()).stop_reason == "answered"


@pytest.mark.ledger("MISC-08")
async def test_same_call_and_result_three_times_is_a_loop() -> None:
    search, queries = searching()
    outcome = await Turn(Script([call("search", query="a") for _ in range(5)]), [search]).run()
    assert (outcome.stop_reason, len(queries)) == ("loop_detected", 3)


async def test_a_reply_that_was_cut_off_runs_none_of_its_calls() -> None:
    search, queries = searching()
    cut = Response(tool_calls=(call("search", query="a"),), finish="length")
    outcome = await Turn(Script([cut, "short"]), [search]).run()
    assert queries == []
    assert "cut off" in told(outcome)[0]
    assert outcome.content == "short"


async def test_500_calls_at_once_are_capped_and_each_is_answered() -> None:
    search, queries = searching()
    outcome = await Turn(Script([calls(*[call("search", query=str(n)) for n in range(500)]), "ok"]), [search]).run()
    assert len(queries) == CALLS_IN_ONE_REPLY
    assert len(told(outcome)) == 500
    assert "at most 32 calls" in told(outcome)[-1]


async def test_ids_that_a_server_leaves_out_are_made_up() -> None:
    twice = Response(tool_calls=(call("search", "x", query="a"), call("search", "x", query="b")), finish="tools")
    outcome = await Turn(Script([twice, "ok"]), [searching()[0]]).run()
    ids = [m.call_id for m in outcome.messages if m.role == "tool"]
    assert len(set(ids)) == 2
    assert [c.call_id for c in outcome.messages[0].tool_calls] == ids


@pytest.mark.ledger("STOP-08")
async def test_the_token_budget_ends_the_turn_before_the_next_call() -> None:
    turn = Turn(Script([call("search", query="a"), "never"]), [searching()[0]], AgentConfig(max_total_tokens=10))
    assert (await turn.run()).stop_reason == "budget"
    assert len(turn.provider.requests) == 1


@pytest.mark.ledger("STOP-08", "MISC-06")
async def test_stopping_during_a_tool_lets_it_finish_and_ends_the_turn() -> None:
    turn = Turn(Script([calls(call("slow"), call("search", query="a")), "never"]), [])

    @tool
    async def slow(ctx: ToolContext) -> str:
        """Take long."""
        turn.stopping.set()
        return f"finished, cancelled={ctx.cancelled}"

    search, queries = searching()
    turn.tools, turn.config = [slow, search], AgentConfig(parallel_tool_execution=False)
    outcome = await turn.run()
    assert outcome.stop_reason == "cancelled"
    assert told(outcome)[0] == "finished, cancelled=True"
    assert "not run: the person has ended this turn" in told(outcome)[1]
    assert queries == []


async def test_stopping_does_not_wait_for_the_model() -> None:
    turn = Turn(Script([]), [])
    asked, dropped = asyncio.Event(), asyncio.Event()

    class Slow(Script):
        async def complete(self, request: Any) -> Response:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()
            raise AssertionError

    turn.provider = Slow([])
    running = asyncio.ensure_future(turn.run())
    await asked.wait()
    turn.stopping.set()
    assert (await running).stop_reason == "cancelled"
    assert dropped.is_set()


class Stubborn(Script):
    """A model with another answer to a cancellation."""

    def __init__(self, instead: BaseException | None) -> None:
        super().__init__([])
        self.asked, self.instead = asyncio.Event(), instead

    async def complete(self, request: Any) -> Response:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.instead is not None:
                raise self.instead from None
        return Response(content="all the same")


@pytest.mark.parametrize("instead", [None, ValueError("oh"), ProviderError("script", "gone", retryable=True)])
async def test_model_that_resists_the_stop_is_stopped(instead: BaseException | None) -> None:
    turn = Turn(model := Stubborn(instead), [])
    running = asyncio.ensure_future(turn.run())
    await model.asked.wait()
    turn.stopping.set()
    assert (await running).stop_reason == "cancelled"
    assert running.cancelling() == 0


async def test_run_both_cancelled_and_stopped_is_cancelled() -> None:
    turn = Turn(model := Stubborn(asyncio.CancelledError()), [])
    running = asyncio.ensure_future(turn.run())
    await model.asked.wait()
    turn.stopping.set()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("instead", [None, ProviderError("script", "gone", retryable=True)])
async def test_model_that_resists_the_cancellation_is_cancelled(instead: BaseException | None) -> None:
    turn = Turn(model := Stubborn(instead), [])
    running = asyncio.ensure_future(turn.run())
    await model.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_turn_that_is_stopped_waits_for_no_further_attempt() -> None:
    waiting = asyncio.Event()

    class Patient(Turn):
        async def _sleep(self, seconds: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

    turn = Patient(Script([ProviderError("script", "busy", retryable=True)]), [])
    running = asyncio.ensure_future(turn.run())
    await waiting.wait()
    turn.stopping.set()
    assert (await running).stop_reason == "cancelled"


@pytest.mark.ledger("RTY-10", "RTY-11", "ERR-07")
async def test_a_tool_that_hangs_is_told_to_the_model() -> None:
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    lookup = tool(name="lookup", read_only=True, timeout_seconds=0.01)(hang)
    pay = tool(name="pay")(hang)
    config = AgentConfig(tool_timeout_seconds=0.02)
    first, second = told(await Turn(Script([calls(call("lookup"), call("pay")), "ok"]), [lookup, pay], config).run())
    assert first == "Tool 'lookup' timed out after 0.01 seconds"
    assert second.startswith("Tool 'pay' timed out after 0.02 seconds: its outcome is unknown")


async def test_a_long_error_is_cut() -> None:
    @tool
    async def fetch() -> None:
        """Fetch."""
        raise ToolFailed("<html>" * 10_000)

    (text,) = told(await Turn(Script([call("fetch"), "ok"]), [fetch]).run())
    assert 2000 < len(text) < 2050


async def ran_a_search() -> tuple[Turn, LoopOutcome]:
    turn = Turn(Script([call("search", query="a"), "ok"]), [searching()[0]], AgentConfig(model="m"))
    return turn, await turn.run(system="be kind")


@pytest.mark.ledger("OBS-03", "OBS-04", "OBS-15")
async def test_a_run_and_each_iteration_are_told() -> None:
    turn, outcome = await ran_a_search()
    of_a_call = ["llm_start", "llm_end", "usage"]
    of_a_tool = ["tool_start", "tool_end"]
    assert turn.told.names() == [
        "run_start",
        *("iteration_start", *of_a_call, *of_a_tool, "iteration_end"),
        *("iteration_start", *of_a_call, "iteration_end"),
        "run_end",
    ]
    (run_start,), (run_end,) = turn.told.of_kind(RunStart), turn.told.of_kind(RunEnd)
    assert ([each.content for each in run_start.messages], run_start.system_prompt) == (["hello"], "be kind")
    assert run_end.result is outcome
    assert [(event.iteration, len(event.messages)) for event in turn.told.of_kind(IterationStart)] == [(1, 1), (2, 3)]
    assert [event.response.content for event in turn.told.of_kind(IterationEnd)] == ["", "ok"]


@pytest.mark.ledger("OBS-06")
async def test_each_call_of_the_model_is_told_before_it_is_made() -> None:
    class Watched(Script):
        async def complete(self, request: Request) -> Response:
            told_by_then.append(turn.told.of_kind(LlmStart)[-1:])
            return await super().complete(request)

    told_by_then: list[list[LlmStart]] = []
    turn = Turn(Watched([call("search", query="a"), "ok"]), [searching()[0]], AgentConfig(model="m"))
    await turn.run(system="be kind")
    begun = turn.told.of_kind(LlmStart)
    assert [event.messages for event in begun] == [request.messages for request in turn.provider.requests]
    assert [(event.system_prompt, event.model, len(event.messages)) for event in begun] == [
        ("be kind", "m", 1),
        ("be kind", "m", 3),
    ]
    assert told_by_then == [[event] for event in begun]


@pytest.mark.ledger("OBS-07", "OBS-09")
async def test_each_reply_of_the_model_is_told() -> None:
    turn, _ = await ran_a_search()
    ended = turn.told.of_kind(LlmEnd)
    assert [event.response.content for event in ended] == ["", "ok"]
    assert [event.usage for event in turn.told.of_kind(RunUsage)] == [event.usage for event in ended]


@pytest.mark.ledger("OBS-02", "OBS-11", "OBS-12")
async def test_each_call_of_a_tool_is_told() -> None:
    turn, outcome = await ran_a_search()
    assert {event.run_id for event in turn.told.events if isinstance(event, RunEvent)} == {outcome.trace.run_id}
    (started,), (ended,) = turn.told.of_kind(ToolStart), turn.told.of_kind(ToolEnd)
    assert (started.tool_name, started.tool_args) == ("search", {"query": "a"})
    assert (ended.call_id, ended.result) == (started.call_id, told(outcome)[0])
    assert 0.0 < ended.duration_ms < 60_000.0


async def three_together() -> tuple[Turn, LoopOutcome, list[int]]:
    """Run three calls of one reply that end in another order, the second one with an error."""
    all_here = asyncio.Barrier(3)
    finish_order: list[int] = []
    turns = {3: asyncio.Event(), 1: asyncio.Event(), 2: asyncio.Event()}
    turns[3].set()
    after = {3: 1, 1: 2, 2: 2}

    @tool(read_only=True)
    async def work(n: int) -> str:
        """Work."""
        await all_here.wait()  # none gets past this alone
        await turns[n].wait()
        finish_order.append(n)
        turns[after[n]].set()
        if n == 2:
            raise RuntimeError("no")
        return f"did {n}"

    turn = Turn(Script([calls(call("work", n=1), call("work", n=2), call("work", n=3)), "ok"]), [work])
    return turn, await turn.run(), finish_order


@pytest.mark.ledger("PAR-01", "PAR-04", "PAR-08")
async def test_calls_of_one_reply_run_together_and_keep_call_order() -> None:
    _, outcome, finish_order = await three_together()
    assert finish_order == [3, 1, 2]
    assert told(outcome) == ["did 1", ANY, "did 3"]


@pytest.mark.ledger("PAR-05", "PAR-06", "OBS-13")
async def test_a_failing_call_among_others_is_told_alone() -> None:
    turn, *_ = await three_together()
    begun, ended, failed = turn.told.of_kind(ToolStart), turn.told.of_kind(ToolEnd), turn.told.of_kind(ToolErrorRaised)
    assert [event.call_id for event in begun] == ["id-0", "id-1", "id-2"]
    assert ({event.call_id for event in ended}, [event.call_id for event in failed]) == ({"id-0", "id-2"}, ["id-1"])


@pytest.mark.ledger("PAR-02", "CFG-16")
async def test_parallel_off_keeps_the_order() -> None:
    at_once = 0
    most = 0

    @tool(read_only=True)
    async def work() -> None:
        """Work."""
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    reply = calls(*[call("work") for _ in range(3)])
    await Turn(Script([reply, "ok"]), [work], AgentConfig(parallel_tool_execution=False)).run()
    assert most == 1
    await Turn(Script([reply, "ok"]), [work]).run()
    assert most == 3


@pytest.mark.ledger("PAR-03")
async def test_at_most_eight_calls_of_one_reply_run_at_once() -> None:
    running, most = 0, 0

    @tool(read_only=True)
    async def work() -> None:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1

    outcome = await Turn(Script([calls(*[call("work") for _ in range(32)]), "ok"]), [work]).run()
    assert (most, len(told(outcome))) == (8, 32)


@pytest.mark.ledger("PAR-07")
@pytest.mark.parametrize("number", [1, 2])
async def test_a_single_call_runs_in_the_task_of_the_turn(number: int) -> None:
    tasks: list[Any] = []

    @tool(read_only=True)
    async def work() -> None:
        """Work."""
        tasks.append(asyncio.current_task())

    await Turn(Script([calls(*[call("work") for _ in range(number)]), "ok"]), [work]).run()
    assert (tasks == [asyncio.current_task()]) == (number == 1)


@pytest.mark.ledger("PYG-04", "PYG-21")
async def test_a_completion_check_ends_the_loop_when_it_is_true() -> None:
    found: list[bool] = []

    @tool(completion_check=True, read_only=True)
    async def is_done() -> bool:
        """Say whether the task is done."""
        found.append(len(found) == 1)
        return found[-1]

    script = Script([call("is_done"), calls(call("is_done"), content="All is paid."), "never"])
    outcome = await Turn(script, [is_done]).run()
    assert (outcome.stop_reason, outcome.content, found) == ("stop_condition", "All is paid.", [False, True])
    assert told(outcome) == ["False", "True"]


@pytest.mark.ledger("PYG-21")
async def test_a_completion_check_gives_a_bool_and_says_so() -> None:
    @tool(completion_check=True)
    async def is_done() -> bool:
        """Say whether the task is done."""
        return "yes"  # type: ignore[return-value]

    outcome = await Turn(Script([call("is_done"), "not yet"]), [is_done]).run()
    assert (outcome.stop_reason, outcome.content) == ("answered", "not yet")
    assert told(outcome) == ["Tool 'is_done' returned str, and a completion check returns bool."]

    async def undeclared():  # type: ignore[no-untyped-def]
        """Say."""

    async def declared() -> bool:
        """Say."""
        return True

    wrong: list[Any] = [(undeclared, {}), (declared, {"terminal": True}), (declared, {"confirm": True})]
    for function, options in wrong:
        with pytest.raises(ToolValidationError, match="completion_check=True needs a function that returns bool"):
            Tool(function, completion_check=True, **options)


@pytest.mark.ledger("PAR-09")
async def test_a_stop_condition_counts_among_several_calls() -> None:
    search, queries = searching()
    reply = calls(call("search", query="a"), call("calculator", expression="1+1"), call("search", query="b"))
    config = AgentConfig(stop_condition=lambda name, result: name == "calculator")
    outcome = await Turn(Script([reply]), [search, calculator], config).run()
    assert (outcome.stop_reason, len(outcome.tool_calls), queries) == ("stop_condition", 3, ["a", "b"])
    assert outcome.content == told(outcome)[1]


@pytest.mark.ledger("PAR-09")
async def test_terminal_tool_ends_the_turn_after_the_other_calls() -> None:
    @tool(terminal=True, read_only=True)
    async def form(n: int) -> str:
        """Show a form."""
        return f"form {n}"

    search, queries = searching()
    reply = calls(call("search", query="a"), call("form", n=1), call("form", n=2))
    outcome = await Turn(Script([reply]), [search, form]).run()
    assert (outcome.stop_reason, outcome.content, queries) == ("terminal_tool", "form 1", ["a"])


async def test_a_turn_that_is_lost_takes_its_parallel_calls_with_it() -> None:
    ended: list[str] = []

    @tool(read_only=True)
    async def slow() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    @tool
    async def quick() -> str:
        """Be quick."""
        return "done"

    turn = Turn(Script([calls(call("slow"), call("quick"))]), [slow, quick])
    record = turn.journal.record

    async def fenced(step: Any) -> None:
        if "finished" in step:
            raise ProviderError("store", "fenced", retryable=False)
        await record(step)

    turn.journal.record = fenced  # type: ignore[method-assign]
    with pytest.raises(ProviderError, match="fenced"):
        await turn.run()
    assert ended == ["slow"]

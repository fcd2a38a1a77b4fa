"""The guards of one run, between model, tools and person."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from channels import Json
from gateway.agent.journal import CallResult
from gateway.agent.model import OnText
from gateway.agent.withdrawing import withdrawing_tool
from gateway.guards import Guardrail, GuardrailContext, GuardrailVerdict, Stage, screen_aside, screened_name
from gateway.logs import describe_error
from gateway.observe.events import GuardrailTriggered
from gateway.observe.teller import RunTeller
from gateway.providers.base import ModelMessage, ToolCall
from gateway.providers.calls import no_constant
from gateway.timing.left_tasks import leave
from gateway.tools import Tool, ToolContext
from gateway.tools.stopping import Stopped
from gateway.wording import say

log = logging.getLogger(__name__)

GUARD_SECONDS: Final = 5.0
"""The longest wait for one check of a guard. Then the text is blocked."""
WITHHELD: Final = "[a guard has withheld this text]"
SCREENING: Final = "screening"
"""The name of the screening of results in events."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A text blocked by a guard."""

    guardrail: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """The guards of one run."""

    guardrails: Sequence[Guardrail]
    context: ToolContext
    events: RunTeller
    tools: Mapping[str, Tool]

    def watches(self, stage: Stage) -> bool:
        """Return True if a guard checks the texts of this stage."""
        return any(stage in guardrail.stages for guardrail in self.guardrails)

    @property
    def sentence(self) -> str:
        """The sentence for a person in place of a withheld text."""
        return say("guarded", self.context.language)

    async def check(self, stage: Stage, text: str, tool_name: str = "") -> str | Blocked:
        """Return the text after all guards, in order, or the first block."""
        for guardrail in self.guardrails:
            if stage not in guardrail.stages:
                continue
            verdict = await self._verdict(guardrail, stage, text, tool_name)
            if verdict.action == "pass":
                continue
            await self.tell(stage, guardrail.name, verdict.action, verdict.detail)
            if verdict.action == "block":
                return Blocked(guardrail.name, verdict.detail)
            text = text if verdict.text is None else verdict.text
        return text

    async def tell(self, stage: Stage, name: str, action: str, detail: str) -> None:
        """Emit the event of a guard's action."""
        await self.events.tell(GuardrailTriggered, stage=stage, guardrail_name=name, action=action, detail=detail[:200])

    async def _verdict(self, guardrail: Guardrail, stage: Stage, text: str, tool_name: str) -> GuardrailVerdict:
        context = GuardrailContext(
            stage=stage,
            person=self.context.person,
            conversation=self.context.conversation,
            language=self.context.language,
            tool_name=tool_name,
        )
        task = asyncio.ensure_future(_checked(guardrail, text, context))
        try:
            done, _ = await self.context.stopping.unless_set(_ended(task))
        except asyncio.CancelledError:
            leave(task)
            raise
        except Stopped:
            leave(task)
            return GuardrailVerdict("block", detail="the run was stopped")
        if not done:
            leave(task)
            return self._fault(guardrail, f"no verdict within {GUARD_SECONDS:g} seconds")
        try:
            verdict = task.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a guard that fails blocks
            return self._fault(guardrail, describe_error(error))
        if not isinstance(verdict, GuardrailVerdict):
            return self._fault(guardrail, f"it gave {type(verdict).__name__}, no GuardrailVerdict")
        return verdict

    def _fault(self, guardrail: Guardrail, fault: str) -> GuardrailVerdict:
        log.error("guard %s failed, so the text is withheld: %s", guardrail.name, fault)
        return GuardrailVerdict("block", detail="the guard failed")

    # ── stages ──

    async def input(self, messages: Sequence[ModelMessage]) -> tuple[list[ModelMessage], bool]:
        """Return the conversation with guarded new messages. The flag is True if a message is blocked.

        The new messages are the person's messages at the end.
        """
        guarded, blocked = list(messages), False
        for index in range(len(guarded) - 1, -1, -1):
            message = guarded[index]
            if message.role not in ("user", "event"):
                break
            if message.role == "user":
                text = await self.check("input", message.content)
                blocked = blocked or isinstance(text, Blocked)
                guarded[index] = replace(message, content=WITHHELD if isinstance(text, Blocked) else text)
        return guarded, blocked

    async def args(self, call: ToolCall, args: Mapping[str, Json]) -> Mapping[str, Json] | Blocked:
        """Return the arguments of a call after the guards. A rewrite to anything but a JSON object blocks the call."""
        given = json.dumps(dict(args), ensure_ascii=False)
        text = await self.check("tool_args", given, call.name)
        if isinstance(text, Blocked) or text == given:
            return text if isinstance(text, Blocked) else args
        try:
            edited = json.loads(text, parse_constant=no_constant)
        except ValueError:
            edited = None
        if isinstance(edited, dict):
            return cast(dict[str, Json], edited)
        names = [guardrail.name for guardrail in self.guardrails if "tool_args" in guardrail.stages]
        return Blocked(", ".join(names), "a rewrite left no JSON object")

    async def results(self, calls: Sequence[ToolCall], results: Sequence[CallResult]) -> list[CallResult]:
        """Return the results of a reply for the model: screened, then guarded."""
        return [await self._result(call, result) for call, result in zip(calls, results, strict=True)]

    async def _result(self, call: ToolCall, result: CallResult) -> CallResult:
        tool = self.tools.get(call.name)
        if tool is not None and tool.screen_output and not result.failed:
            result = await self._screened(result)
        if not self.watches("tool_results") or tool is withdrawing_tool():
            return result
        text = await self.check("tool_results", result.text, call.name)
        # A text that was shortened before the process died is read in place of the other, so it is checked too.
        told = None if result.told is None else await self.check("tool_results", result.told, call.name)
        if isinstance(text, Blocked) or isinstance(told, Blocked):
            return replace(result, text=WITHHELD, told=None)
        return replace(result, text=text, told=told)

    async def _screened(self, result: CallResult) -> CallResult:
        screened = await screen_aside(result.text)
        names = [artifact.filename and screened_name(artifact.filename) for artifact in result.artifacts]
        renamed = [name != artifact.filename for name, artifact in zip(names, result.artifacts, strict=True)]
        if screened.kinds or any(renamed):
            kinds = ", ".join([*screened.kinds, *(["file name"] if any(renamed) else [])])
            await self.tell("tool_results", SCREENING, "rewrite", kinds)
        if screened.text == result.text and not any(renamed):
            return result
        artifacts = tuple(
            replace(artifact, filename=name) for name, artifact in zip(names, result.artifacts, strict=True)
        )
        told = None if result.told is None else (await screen_aside(result.told)).text
        return replace(result, text=screened.text, told=told, artifacts=artifacts)


async def _checked(guardrail: Guardrail, text: str, context: GuardrailContext) -> GuardrailVerdict:
    try:
        verdict = guardrail.check(text, context)
        return await verdict if inspect.isawaitable(verdict) else verdict
    except (SystemExit, GeneratorExit) as error:  # it would end the process
        raise RuntimeError(f"the guard raised {type(error).__name__}") from error


async def _ended(task: asyncio.Future[GuardrailVerdict]) -> tuple[set[Any], set[Any]]:
    return await asyncio.wait({task}, timeout=GUARD_SECONDS)


_SENTENCE_END: Final = re.compile(r"(?:[.!?…](?=\s)|[。！？।]|\n)\s*")
_LONGEST_HELD: Final = 2000
"""The most characters held back for the end of a sentence."""


@dataclass(slots=True)
class ReleasedText:
    """The streamed text of a run, shown sentence by sentence after the guards of the output."""

    guarding: Guarding
    on_text: OnText
    shown: list[str] = field(default_factory=list)
    """The shown pieces of the current reply."""
    blocked: bool = False
    _held: str = ""

    def restart(self) -> None:
        """Forget an interrupted reply. `blocked` stays."""
        self._held = ""
        self.shown.clear()

    async def add(self, piece: str) -> None:
        """Take a piece of the model's text, and show the completed sentences."""
        self._held += piece
        end = 0
        for match in _SENTENCE_END.finditer(self._held):
            end = match.end() if match.end() < len(self._held) or "\n" in match.group() else end
        if not end and len(self._held) > _LONGEST_HELD:
            end = self._held.rfind(" ") + 1 or len(self._held)
        if end:
            sentence, self._held = self._held[:end], self._held[end:]
            await self._release(sentence)

    async def end_of_reply(self) -> str:
        """Show the rest of a reply, and return all shown text of the reply."""
        rest, self._held = self._held, ""
        if rest:
            await self._release(rest)
        text = "".join(self.shown)
        self.shown.clear()
        return text

    async def _release(self, text: str) -> None:
        if self.blocked:
            return
        checked = await self.guarding.check("output", text)
        if isinstance(checked, Blocked):
            self.blocked, checked = True, self.guarding.sentence
        self.shown.append(checked)
        if inspect.isawaitable(said := self.on_text(checked)):
            await said

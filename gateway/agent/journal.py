"""The checkpoint of a turn: recorded steps for another process to continue from.

Steps, in recording order:

- ``{"reply": {...}}``: a reply of the model with tool calls. A reply without calls ends the turn and is not recorded.
- ``{"started": key}``: a call is about to run and must not simply be repeated. A key is "reply.call", counted from 1.
- ``{"finished": key, "result": {...}}``: the call's result, with artifacts and stashed action.
- ``{"shortened": key, "told": text, "usage": {...}}``: the model's text in place of a long result, and the
  usage of the call and of the shortening.
- ``{"inside": key, "step": {...}}``: a step of another agent's run, for a call handed over to the agent.
- ``{"asked": reply, "verdicts": [[key, {...}], ...]}``: the verdicts on the calls that needed a confirmation. No
  verdict approves a call, and an unknown verdict refuses the call.

An unknown or incomplete step ends the turn: continuing without the step could repeat a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import TypeAdapter

from channels import AskfirstError, Json, Media, Reply
from gateway.agent.confirming import Asked, Verdict
from gateway.artifacts import Artifact
from gateway.memory import NotedFact
from gateway.providers.base import NO_USAGE, Response, Usage
from gateway.tools import PendingConfirmation
from gateway.tools.context import PlannedTurn
from gateway.tools.pending_action import PendingAction

Keep: TypeAlias = Callable[[Artifact], Awaitable[Media]]
"""A callback to make a file's bytes durable before a record refers to the file."""


class UnreadableStep(AskfirstError):
    """A recorded step of a turn has an unknown kind, or is incomplete."""

    def __init__(self, number: int) -> None:
        super().__init__(f"step {number} of the turn's checkpoint cannot be read: the turn does not go on from it")


class Journal(Protocol):
    """A protocol for the storage of the steps of one turn."""

    @property
    def steps(self) -> Sequence[Json]:
        """The steps recorded by earlier attempts at this turn, in order."""
        ...

    async def record(self, step: Json) -> None:
        """Add a step, durable on return. The loop never records two steps at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of one tool call."""

    text: str
    """The text of the tool."""
    told: str | None = None
    """The model's text in place of `text`, if shortened or known not to get shorter."""
    failed: bool = False
    stop: Literal["terminal_tool", "stop_condition"] | None = None
    """The reason to end the loop with this result; None: the loop continues."""
    reply: Reply | None = None
    """The message returned by a terminal tool, with `text` as the text."""
    artifacts: tuple[Artifact, ...] = ()
    asked: tuple[Asked, ...] = ()
    """The actions of open questions to people: the call's stashed action, or the actions of another agent's run."""
    usage: Usage = NO_USAGE
    """The usage of another agent's run, and of the shortening of the text."""
    follow_ups: tuple[PlannedTurn, ...] = ()
    """The further turns planned by the tool."""
    noted: tuple[NotedFact, ...] = ()
    """The facts about the person noted by the tool."""
    withdrawn: tuple[str, ...] = ()
    """The ids of the open actions taken back by the model."""
    cache_key: str | None = field(default=None, compare=False)
    """The key in the tool's cache, for a kept or cacheable result."""

    @property
    def for_model(self) -> str:
        """The text for the model."""
        return self.text if self.told is None else self.told


class Progress:
    """A reader and writer of the recorded steps. Without a journal it stores no step."""

    def __init__(self, journal: Journal | None) -> None:
        """Read the recorded steps. Raises UnreadableStep."""
        self._journal = journal
        self._recording = asyncio.Lock()
        self._replies: list[Response] = []
        self._started: set[str] = set()
        self._finished: dict[str, CallResult] = {}
        self._verdicts: dict[int, dict[str, Verdict]] = {}
        self._inside: dict[str, list[Json]] = {}
        for number, step in enumerate(journal.steps if journal is not None else (), start=1):
            try:
                self._read(step)
            except (KeyError, TypeError, ValueError) as error:
                raise UnreadableStep(number) from error

    def reply(self, number: int) -> Response | None:
        """Return the recorded reply of this number, counted from 1."""
        return self._replies[number - 1] if number <= len(self._replies) else None

    def result(self, key: str) -> CallResult | None:
        """Return the result of a finished call."""
        return self._finished.get(key)

    def was_started(self, key: str) -> bool:
        """Return True if an earlier attempt began this call."""
        return key in self._started

    def verdicts(self, reply: int) -> Mapping[str, Verdict]:
        """Return the verdicts on the calls of this reply that needed a confirmation."""
        return self._verdicts.get(reply, {})

    async def replied(self, response: Response) -> None:
        if self._journal is not None:
            await self._record({"reply": asdict(response)})

    async def started(self, key: str) -> None:
        await self._record({"started": key})

    async def finished(self, key: str, result: CallResult) -> None:
        if self._journal is None:
            return
        artifacts: list[Json] = []
        for artifact in result.artifacts:
            fields = asdict(replace(artifact, content=None))
            artifacts.append({name: value for name, value in fields.items() if value is not None})
        body: dict[str, Json] = {"text": result.text, "failed": result.failed, "stop": result.stop}
        if result.asked:
            one, *more = map(_verdict_to_json, result.asked)
            body["asked"] = [one, *more] if more else one
        if result.follow_ups:
            body["follow_ups"] = [asdict(planned) for planned in result.follow_ups]
        if result.noted:
            body["noted"] = [asdict(fact) for fact in result.noted]
        if result.withdrawn:
            body["withdrawn"] = list(result.withdrawn)
        if result.reply is not None:
            body["reply"] = _adapter(Reply).dump_python(result.reply, mode="json")
        if result.usage.total_tokens:
            body["usage"] = asdict(replace(result.usage, by_tool={}))
        await self._record({"finished": key, "result": {**body, "artifacts": artifacts}})

    async def shortened(self, key: str, result: CallResult) -> None:
        if self._journal is not None:
            usage = asdict(replace(result.usage, by_tool={}))
            await self._record({"shortened": key, "told": result.told, "usage": usage})

    async def decided(self, reply: int, verdicts: Mapping[str, Verdict]) -> None:
        await self._record(
            {"asked": reply, "verdicts": [[key, _verdict_to_json(verdict)] for key, verdict in verdicts.items()]}
        )

    def inside(self, key: str) -> Journal | None:
        """Return the journal of another agent's run behind this call; None without a journal."""
        return None if self._journal is None else _Inside(key, self._inside.get(key, ()), self._record)

    async def _record(self, step: Json) -> None:
        if self._journal is not None:
            async with self._recording:
                await self._journal.record(step)

    def _read(self, step: Any) -> None:
        match step:
            case {"reply": body}:
                self._replies.append(_adapter(Response).validate_python(body))
            case {"started": str(key)}:
                self._started.add(key)
            case {"finished": str(key), "result": body}:
                stored = {name: body[name] for name in ("text", "failed", "stop", "artifacts")}
                optional = ("usage", "follow_ups", "noted", "withdrawn", "reply")
                stored |= {name: body[name] for name in optional if name in body}
                finished: CallResult = _adapter(CallResult).validate_python(stored)
                kept = body.get("asked") or []
                asked = [_verdict_from_json(each) for each in (kept if isinstance(kept, list) else [kept])]
                if refused := [each for each in asked if isinstance(each, str)]:
                    finished = CallResult(
                        text=refused[0], failed=True
                    )  # no person was asked, although the tool said so
                else:
                    finished = replace(finished, asked=tuple(each for each in asked if isinstance(each, Asked)))
                self._finished[key] = finished
            case {"shortened": str(key), "told": str(told), "usage": usage}:
                known = self._finished[key]
                self._finished[key] = replace(known, told=told, usage=_adapter(Usage).validate_python(usage))
            case {"inside": str(key), "step": inner}:
                self._inside.setdefault(key, []).append(inner)
            case {"asked": int(reply), "verdicts": list(verdicts)}:
                self._verdicts.setdefault(reply, {}).update((key, _verdict_from_json(body)) for key, body in verdicts)
            case _:
                raise ValueError("a step of no known kind")


@dataclass(frozen=True, slots=True)
class _Inside:
    """A Journal of another agent's run, inside the journal of the calling turn."""

    key: str
    steps: Sequence[Json]
    add: Callable[[Json], Awaitable[None]]

    async def record(self, step: Json) -> None:
        await self.add({"inside": self.key, "step": step})


def _verdict_to_json(verdict: Verdict) -> Json:
    if isinstance(verdict, Asked):
        confirmation = verdict.confirmation
        words: Json = {
            "action": confirmation.action,
            "preview": confirmation.preview,
            "user_prompt": confirmation.user_prompt,
        }
        return {"confirmation": words, "record": verdict.action.to_json()}
    return {"refused": verdict}


def _verdict_from_json(body: Any) -> Verdict:
    match body:
        case {
            "confirmation": {"action": str(action), "preview": str(preview), "user_prompt": str(user_prompt)},
            "record": dict(record),
        }:
            confirmation = PendingConfirmation(action=action, preview=preview, user_prompt=user_prompt)
            return Asked(confirmation=confirmation, action=PendingAction.from_json(record))
        case {"refused": str(text)}:
            return text
        case _:
            return _UNREADABLE_VERDICT


_UNREADABLE_VERDICT = (
    "Not run, and nobody was asked: what was decided about this call cannot be read. Call it again if it is still "
    "wanted."
)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return the adapter of a type, built only at a take-over because building costs milliseconds."""
    return TypeAdapter(kind)

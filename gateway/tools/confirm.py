"""Confirmation rules: the preview, the approvers and the timeouts with which a tool asks before it acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Literal, TypeAlias

from channels import Json, Person
from gateway.options import checked
from gateway.tools.verbs import VERBS

__all__ = ["Approvers", "AskFunction", "Confirm", "Preview", "ProbeFunction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The description of a call's effect that the person reads before they decide: plain text, not Markdown."""

    text: str
    table: Sequence[tuple[str, str]] | None = None
    """Rows of name and value. None shows the arguments as they are."""
    precondition: Json = None
    """The state that the preview observed (an etag, a count).

    The preview is made again right before the launch, and another value stops it. With None, another text or table
    does.
    """


AskFunction: TypeAlias = Callable[..., Awaitable[Preview | str]]
ProbeFunction: TypeAlias = Callable[..., Awaitable[Literal["done", "not_done", "unknown"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """The people that decide instead of the person who asked.

    Raises ValueError when the rule could never be met.
    """

    people: Sequence[str]
    """Persons, like ``telegram:123:456``. Duplicates and surrounding spaces are removed."""
    need: int = 1
    requester: bool = False
    """True if the person who asked may be one of the approvers."""

    def __post_init__(self) -> None:
        if isinstance(self.people, str):
            raise ValueError("Approvers(people=...) is a list of persons, not one text")
        people = tuple(dict.fromkeys(str(Person.parse(str(written).strip())) for written in self.people))
        if not 1 <= self.need <= len(people) + self.requester:
            raise ValueError(f"{self.need} approvers are needed, and {len(people)} are named")
        object.__setattr__(self, "people", people)


class Confirm:
    """The rule with which a tool asks for a confirmation.

    - `ask`: a template over the tool's arguments, or an async function of the tool's own arguments (and ToolContext)
      that returns a Preview or a text. A ValueError that it raises goes to the model, and the person is not asked.
      None: the tool's name and its arguments.
    - `ttl_seconds`: the time for which a button or a code is valid; None: the channel's.
    - `approvers`: the people that decide instead of the person who asked.
    - `probe`: an async function of the arguments that finds out whether an effect of unknown outcome happened.
    - `done`: a template over the arguments and ``{result}`` for the answer.
    - `after`: with ``"resume"`` the model continues after the decision.
    - `volatile`: True if the result of the preview function may change between the question and the launch, so that it
      is not compared.
    - `verb`: the verb of the question, one of `gateway.pending.VERBS`; None: the first word of the template says it.
      An answer with another verb ("yes, delete it" to a payment) does not count.
    """

    @checked
    def __init__(
        self,
        ask: str | AskFunction | None = None,
        *,
        ttl_seconds: float | None = None,
        approvers: Approvers | None = None,
        probe: ProbeFunction | None = None,
        done: str | None = None,
        after: Literal["receipt", "resume"] = "receipt",
        volatile: bool = False,
        verb: str | None = None,
    ) -> None:
        """Raises ValueError for a `ttl_seconds` that is not positive and finite, and for an unknown verb."""
        if ttl_seconds is not None and not (isfinite(ttl_seconds) and ttl_seconds > 0):
            raise ValueError(f"ttl_seconds must be a positive number of seconds, not {ttl_seconds!r}")
        if verb is not None and verb not in VERBS:
            near = get_close_matches(verb, VERBS, n=1)
            hint = f"did you mean {near[0]!r}? Known" if near else "known"
            raise ValueError(f"verb={verb!r} is none of the verbs of questions; {hint}: {', '.join(sorted(VERBS))}")
        self.verb = verb
        self.ask, self.ttl_seconds, self.approvers = ask, ttl_seconds, approvers
        self.probe, self.done, self.after, self.volatile = probe, done, after, volatile

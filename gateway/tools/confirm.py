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

__all__ = ["Approvers", "AskFunction", "Confirm", "Preview", "ProbeFunction", "Standing"]


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

    Each is asked in their own chat, and in a group of their platform in that group. Raises ValueError when the rule
    could never be met.
    """

    people: Sequence[str]
    """Persons, like ``telegram:123:456``. Duplicates and surrounding spaces are removed."""
    need: int = 1
    requester: bool = False
    """True if the person who asked may be one of the approvers."""
    remind_seconds: float | None = None
    """The time after which a silent approver is reminded, once; None: half of the time to answer."""
    standin: Sequence[str] = ()
    """Persons to ask when the approvers are silent after the reminder, or cannot be reached."""

    def __post_init__(self) -> None:
        if isinstance(self.people, str):
            raise ValueError("Approvers(people=...) is a list of persons, not one text")
        if isinstance(self.standin, str):
            raise ValueError("Approvers(standin=...) is a list of persons, not one text")
        if self.remind_seconds is not None and not (isfinite(self.remind_seconds) and self.remind_seconds > 0):
            raise ValueError(f"remind_seconds must be a positive number of seconds, not {self.remind_seconds!r}")
        people, standin = _written(self.people), _written(self.standin)
        if twice := [person for person in standin if person in people]:
            raise ValueError(f"{twice[0]} is an approver and a stand-in")
        if not 1 <= self.need <= len(people) + self.requester:
            raise ValueError(f"{self.need} approvers are needed, and {len(people)} are named")
        object.__setattr__(self, "people", people)
        object.__setattr__(self, "standin", standin)


def _written(people: Sequence[str]) -> tuple[str, ...]:
    """Return the written forms of these people, each once. Raises ValueError for a text that names no person."""
    return tuple(dict.fromkeys(str(Person.parse(str(written).strip())) for written in people))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The widest permission that a person may give, so that equal calls are not asked for a while.

    Raises ValueError for a duration or a number that is not positive, and when no argument has to stay the same.
    """

    max_seconds: float
    max_uses: int
    same: Sequence[str] = ()
    """The names of the arguments that must be equal in each use."""

    def __post_init__(self) -> None:
        if isinstance(self.same, str):
            raise ValueError("Standing(same=...) is a list of names of arguments, not one text")
        if not self.same:
            raise ValueError("Standing(same=...) needs an argument that stays the same, such as the customer")
        if not (isfinite(self.max_seconds) and self.max_seconds > 0) or self.max_uses < 1:
            raise ValueError("max_seconds and max_uses of Standing must be positive")
        object.__setattr__(self, "same", tuple(dict.fromkeys(self.same)))


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
    - `standing`: the permission that a person may give with their yes, by a button or a code of its own, so that
      matching calls are not asked for a while; None: none. Not together with `approvers`.
    - `on_item_failure`: with ``"stop"`` the later items of a plan do not run when this call has failed, or may have.
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
        standing: Standing | None = None,
        on_item_failure: Literal["continue", "stop"] = "continue",
    ) -> None:
        """Raises ValueError for a `ttl_seconds` that is not positive and finite, for an unknown verb, and for
        `standing` beside `approvers`, each of whom would have to give it."""
        if standing is not None and approvers is not None:
            raise ValueError("standing= does not go with approvers=: each of them would have to give the permission")
        if ttl_seconds is not None and not (isfinite(ttl_seconds) and ttl_seconds > 0):
            raise ValueError(f"ttl_seconds must be a positive number of seconds, not {ttl_seconds!r}")
        if verb is not None and verb not in VERBS:
            near = get_close_matches(verb, VERBS, n=1)
            hint = f"did you mean {near[0]!r}? Known" if near else "known"
            raise ValueError(f"verb={verb!r} is none of the verbs of questions; {hint}: {', '.join(sorted(VERBS))}")
        self.verb = verb
        self.ask, self.ttl_seconds, self.approvers = ask, ttl_seconds, approvers
        self.probe, self.done, self.after, self.volatile = probe, done, after, volatile
        self.standing, self.on_item_failure = standing, on_item_failure

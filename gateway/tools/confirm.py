"""How a tool asks before it acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

from channels import Json

__all__ = ["Approvers", "AskFunction", "Confirm", "Preview", "ProbeFunction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would happen, as the person is shown it: plain text, not Markdown."""

    text: str
    table: Sequence[tuple[str, str]] | None = None
    """Name and value, line by line; None: the arguments as they are."""
    precondition: Json = None
    """What the preview saw (an etag, a count): asked again right before the launch, and another value stops it."""


AskFunction: TypeAlias = Callable[..., Awaitable[Preview | str]]
ProbeFunction: TypeAlias = Callable[..., Awaitable[Literal["done", "not_done", "unknown"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """Who decides instead of the person who asked. Raises ValueError when the rule could never be met."""

    people: Sequence[str]
    """Persons as written: ``telegram:123:456``."""
    need: int = 1
    requester: bool = False
    """Whether the person who asked may be one of them."""

    def __post_init__(self) -> None:
        if isinstance(self.people, str):
            raise ValueError("Approvers(people=...) is a list of persons, not one text")
        for person in self.people:
            if person.count(":") < 2:
                raise ValueError(f"not a person: {person!r} (write channel:account:user, for example telegram:123:456)")
        if not 1 <= self.need <= len(set(self.people)) + self.requester:
            raise ValueError(f"{self.need} approvers are needed, and {len(set(self.people))} are named")


class Confirm:
    """How a tool asks.

    `ask`: a template over the tool's arguments, or an async function of the tool's own arguments (and ToolContext)
    that returns a Preview or a text; a ValueError of it reaches the model instead of the person. None: the tool's name
    and its arguments. `ttl_seconds`: how long a button or a code counts; None: the channel's. `probe`: an async
    function of the arguments that finds out whether an effect of unknown outcome happened. `done`: a template over the
    arguments and ``{result}`` for the answer. `after="resume"`: the model goes on once it is decided.
    """

    def __init__(
        self,
        ask: str | AskFunction | None = None,
        *,
        ttl_seconds: float | None = None,
        approvers: Approvers | None = None,
        probe: ProbeFunction | None = None,
        done: str | None = None,
        after: Literal["receipt", "resume"] = "receipt",
    ) -> None:
        """Raises ValueError for a `ttl_seconds` that is no positive, finite number."""
        if ttl_seconds is not None and not (isfinite(ttl_seconds) and ttl_seconds > 0):
            raise ValueError(f"ttl_seconds must be a positive number of seconds, not {ttl_seconds!r}")
        self.ask, self.ttl_seconds, self.approvers = ask, ttl_seconds, approvers
        self.probe, self.done, self.after = probe, done, after

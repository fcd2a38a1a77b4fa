"""Confirmation rules: the preview, the approvers and the timeouts of a tool's question."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite
from typing import Literal, TypeAlias, TypeGuard

from pydantic_core import to_jsonable_python

from channels import AskfirstError, Json
from gateway.config.options import WrongOption, checked
from gateway.logs import describe_error
from gateway.tools.approver_places import are_enough, written
from gateway.tools.layout import by_language, in_language
from gateway.tools.pending_action import PendingAction, canonical_json
from gateway.tools.stopping import is_cancelled

log = logging.getLogger("askfirst.approvers")

VERBS = frozenset(
    """approve archive block book buy cancel change close create delete deploy drop keep leave merge move pay publish
    refund reject restore send share skip stop transfer update""".split()  # noqa: SIM905
)
"""The verbs with words in gateway/pending/words. A question of any other verb takes plain answers only."""
_VERB = re.compile(r"[^\W\d_]+(-[^\W\d_]+)*")
NO_VERBS = frozenset({"cancel", "drop", "keep", "leave", "reject", "skip", "stop"})
"""Verbs also used for saying no.

A question of the same verb is not refused by these, and the buttons of the question name the effect.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The description of a call's effect, read by the person before the decision: plain text, not Markdown."""

    text: str
    table: Sequence[tuple[str, str]] | None = None
    """Rows of name and value. None shows the arguments themselves."""
    precondition: Json = None
    """The state observed by the preview (an etag, a count).

    The preview is made again right before the launch, and another value stops the launch. With None, another text or
    table does.
    """


AskFunction: TypeAlias = Callable[..., Awaitable[Preview | str]]
ProbeFunction: TypeAlias = Callable[..., Awaitable[Literal["done", "not_done", "unknown"]]]


NamePeople: TypeAlias = Callable[[], Awaitable[Sequence[str]]]

_LONGEST_NAME = 80
_NAMED_WITHIN_SECONDS = 5.0
"""The longest wait for an author's function that names approvers."""


class NoApprovers(AskfirstError):
    """The author's function named no approvers. The text goes to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """The people deciding instead of the requester.

    Each is asked in a private chat, or in the group for a call from a group of the same platform. Raises ValueError for
    a rule impossible to meet.
    """

    people: Sequence[str] | NamePeople
    """Persons, like ``telegram:123:456``. Duplicates and surrounding spaces are removed.

    ``place:slack:T1:C2`` is a group: the question is asked there, and each member may vote there, except the requester.

    An async function is called once at each question, for 5 seconds at most. The question keeps the returned list until
    the end. If the function fails or returns no person, nothing is asked, and the model is told.
    """
    need: int = 1
    requester: bool = False
    """True if the requester may be an approver, too."""
    remind_seconds: float | None = None
    """Seconds before a silent approver is reminded, once; None: half of the time to answer."""
    standin: Sequence[str] = ()
    """Persons to ask when the approvers are silent after the reminder, or cannot be reached."""
    name: str | Mapping[str, str] | None = None
    """The name of these people for the requester, for example ``our finance team``; or language -> name."""

    def __post_init__(self) -> None:
        if isinstance(self.people, str):
            raise ValueError("Approvers(people=...) is a list of persons, not one text")
        if isinstance(self.standin, str):
            raise ValueError("Approvers(standin=...) is a list of persons, not one text")
        if self.remind_seconds is not None and not (isfinite(self.remind_seconds) and self.remind_seconds > 0):
            raise ValueError(f"remind_seconds must be a positive number of seconds, not {self.remind_seconds!r}")
        for name in () if self.name is None else by_language(self.name, "Approvers(name=...)").values():
            if not isinstance(name, str) or not 0 < len(name.strip()) <= _LONGEST_NAME:
                raise ValueError(
                    f"Approvers(name=...) is a text of 1 to {_LONGEST_NAME} characters: how people call them"
                )
        if self.need < 1:
            raise ValueError(f"Approvers(need=...) is 1 or more, not {self.need}")
        object.__setattr__(self, "standin", _written(self.standin))
        if callable(self.people):
            if not inspect.iscoroutinefunction(self.people) or not _takes_nothing(self.people):
                raise ValueError("Approvers(people=...) is a list of persons, or an async function without parameters")
            return
        people = _written(self.people)
        if twice := [person for person in self.standin if person in people]:
            raise ValueError(f"{twice[0]} is an approver and a stand-in")
        if not are_enough(people, self.need - self.requester):
            raise ValueError(f"{self.need} approvers are needed, and {len(people)} are named")
        object.__setattr__(self, "people", people)

    @property
    def listed(self) -> Sequence[str] | None:
        """The people of the list; None while only a function names the people."""
        return None if callable(self.people) else self.people

    def name_in(self, language: str) -> str | None:
        """Return the name of these people in this language; None without a name."""
        return None if self.name is None else in_language(by_language(self.name, "name"), language)

    async def named(self) -> Approvers:
        """Return the rule with a list of people: the function's list at this moment. Raises NoApprovers."""
        if not callable(self.people):
            return self
        try:
            async with asyncio.timeout(_NAMED_WITHIN_SECONDS):
                found = await self.people()
            if isinstance(found, str):
                raise TypeError("the function returned one text, not a list of persons")
            people = _written(found)
        except (Exception, asyncio.CancelledError) as error:  # the author's code: a failure ends no turn
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # the turn itself is cancelled
            log.error("the function of Approvers(people=...) failed: %s", describe_error(error))
            raise NoApprovers("Not asked: the people who approve this cannot be found now. Try later.") from error
        if not people or not are_enough(people, self.need - self.requester):
            log.error("the function of Approvers(people=...) named %s people: %s are needed", len(people), self.need)
            raise NoApprovers("Not asked: too few people may approve this now.")
        standin = tuple(person for person in self.standin if person not in people)
        return replace(self, people=people, standin=standin)


def _takes_nothing(function: NamePeople) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters
    )


def _written(people: Sequence[str]) -> tuple[str, ...]:
    """Return the written forms of these people and places, each once. Raises ValueError for any other text."""
    return tuple(dict.fromkeys(written(str(each).strip()) for each in people))


_LONGEST_PERMISSION_SECONDS = 30 * 86400
"""Seconds for keeping the record of a settled action. A permission ends with the record of the giving action."""
_MOST_USES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The widest permission a person may give, so calls like the confirmed call are not asked for a while.

    An argument in neither `free` nor `most` must have the shown value in each call. With a preview function, the
    precondition must be the same too, or without a precondition the text and table, unless the author declares the
    preview volatile.

    Raises ValueError for a duration or a number not positive or too large, for a bound other than a finite number of 0
    or more, and for an argument with two rules.
    """

    max_seconds: float
    """At most 2592000: 30 days."""
    max_uses: int
    """At most 1000."""
    same: Sequence[str] = ()
    """Names of arguments fixed to the shown value, for the reader: arguments without a rule are fixed too."""
    free: Sequence[str] = ()
    """Names of the arguments that may have any value."""
    most: Mapping[str, int | float | Decimal] = field(default_factory=dict)
    """Argument -> bound. Any number from 0 to the bound is allowed."""

    def __post_init__(self) -> None:
        for option, names in (("same", self.same), ("free", self.free)):
            if (
                isinstance(names, str)
                or not isinstance(names, Iterable)
                or not all(isinstance(name, str) for name in names)
            ):
                raise ValueError(f'Standing({option}=...) is a list of names of arguments, like ["customer"]')
            object.__setattr__(self, option, tuple(dict.fromkeys(names)))
        _check_at_most("max_seconds", self.max_seconds, _LONGEST_PERMISSION_SECONDS)
        _check_at_most("max_uses", self.max_uses, _MOST_USES)
        if not isinstance(self.max_uses, int):
            raise ValueError(f"Standing(max_uses=...) must be a whole number, not {self.max_uses!r}")
        if not isinstance(self.most, Mapping):
            raise ValueError('Standing(most=...) maps arguments to their bounds, like {"amount": 100}')
        for name, bound in self.most.items():
            if not is_number(bound) or bound < 0:
                raise ValueError(
                    f"Standing(most=...) must bound {name!r} by a finite number of 0 or more, not {bound!r}"
                )
        object.__setattr__(self, "most", dict(self.most))
        for one, other in (("same", "free"), ("same", "most"), ("free", "most")):
            if both := sorted(set(getattr(self, one)) & set(getattr(self, other))):
                raise ValueError(f"Standing names {both[0]!r} in {one}= and in {other}=: leave it in one of them")

    @property
    def bounds(self) -> dict[str, Decimal]:
        """The bounds of `most`, exactly as written."""
        return {name: exact(bound) for name, bound in self.most.items()}


def is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Return True for a finite number. A bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    return value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or isfinite(value)


def exact(number: int | float | Decimal) -> Decimal:
    """Return the exact written number: the float 0.1 is one tenth, and no other number near it."""
    return Decimal(float.__repr__(number)) if isinstance(number, float) else Decimal(number)


def _check_at_most(option: str, value: float, most: int) -> None:
    if isinstance(value, Decimal) or not is_number(value) or not 0 < value <= most:
        raise ValueError(f"Standing({option}=...) must be a positive number of at most {most}, not {value!r}")


class Confirm:
    """The rule for a tool's question before a call.

    - `ask`: a template over the tool's arguments; language -> template; or an async function of the tool's own
      arguments (and ToolContext), with a Preview or a text as the result. A ValueError from the function goes to the
      model, and the person is not asked. None: the tool's name and its arguments.
    - `ttl_seconds`: how long a button or a code is valid; None: the channel's.
    - `approvers`: the people deciding instead of the requester.
    - `probe`: an async function of the arguments, for finding out whether an effect of unknown outcome happened.
    - `done`: a template over the arguments and ``{result}`` for the answer; or language -> template.
    - `failed`: the same, over the arguments and ``{reason}``, for a failure: the `person` of ToolFailed, or "It did not
      work." in the person's language.
    - `after`: with ``"resume"`` the model continues after the decision.
    - `volatile`: True if the result of the preview function may change between the question and the launch: the results
      are then not compared.
    - `verb`: the verb of the question, a word; None: the first word of the template. An answer with another verb ("yes,
      delete it" to a payment) does not count. A verb outside `gateway.pending.VERBS` takes a plain yes or no, the
      button and the code.
    - `standing`: the permission offered with a yes, by a separate button or code: matching calls are not asked for a
      while; None: none. Not together with `approvers`.
    - `on_item_failure`: with ``"stop"`` the later items of a plan do not run when this call has failed, or may have.
    """

    @checked
    def __init__(
        self,
        ask: str | Mapping[str, str] | AskFunction | None = None,
        *,
        ttl_seconds: float | None = None,
        approvers: Approvers | None = None,
        probe: ProbeFunction | None = None,
        done: str | Mapping[str, str] | None = None,
        failed: str | Mapping[str, str] | None = None,
        after: Literal["receipt", "resume"] = "receipt",
        volatile: bool = False,
        verb: str | None = None,
        standing: Standing | None = None,
        on_item_failure: Literal["continue", "stop"] = "continue",
    ) -> None:
        """Raises ValueError for a `ttl_seconds` not positive and finite, and for `standing` beside `approvers`, because
        each approver would have to give the permission. Raises WrongOption for a `verb` other than a word."""
        if standing is not None and approvers is not None:
            raise ValueError("standing= does not go with approvers=: each of them would have to give the permission")
        if ttl_seconds is not None and not (isfinite(ttl_seconds) and ttl_seconds > 0):
            raise ValueError(f"ttl_seconds must be a positive number of seconds, not {ttl_seconds!r}")
        if verb is not None and not _VERB.fullmatch(verb):
            raise WrongOption("Confirm", {"verb": f"should be a single word such as 'restart', not {verb!r}"})
        self.verb = verb
        self.ask, self.ttl_seconds, self.approvers = ask, ttl_seconds, approvers
        self.probe, self.done, self.failed, self.after, self.volatile = probe, done, failed, after, volatile
        self.standing, self.on_item_failure = standing, on_item_failure

    @property
    def unread_verb(self) -> str | None:
        """The named verb, if no language has words for it: the question takes plain answers only."""
        return self.verb if self.verb not in VERBS else None


def as_text(value: Json) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


LAUNCH_PREVIEW_SECONDS = 10.0
"""The timeout of the second preview, right before a launch, in seconds."""


def frozen(preview: Preview) -> Preview:
    """Return a copy with only text and plain JSON: a tuple in the precondition becomes a list.

    Raises ValueError for a preview without canonical JSON, or with table rows other than a name and a value.
    """
    try:
        rows = [(str(name), str(value)) for name, value in preview.table or ()]
    except (TypeError, ValueError):
        raise ValueError("the table of a preview must be rows of a name and a value") from None
    text, table = str(preview.text), rows if preview.table is not None else None
    canonical_json([text, rows, preview.precondition])
    return replace(preview, text=text, table=table, precondition=to_jsonable_python(preview.precondition))


def asked_with(action: PendingAction) -> Preview:
    """Return the preview shown with an action's question."""
    return Preview(text=action.preview, table=action.table, precondition=action.precondition)


def differing(before: Preview, now: Preview) -> list[str]:
    """Return the names of the differing parts (text, table, precondition).

    Values are compared as canonical JSON (RFC 8785), never by Python's equality: a tuple equals a list, and 1 is not
    True.
    """
    one, other = _parts(before), _parts(now)
    return [name for name in one if one[name] != other[name]]


def changed(before: Preview, now: Preview) -> list[str]:
    """Return the names of the preview's parts changed between the question and the launch.

    Only the precondition counts when either preview has one; otherwise text and table count.
    """
    names = differing(before, now)
    if before.precondition is None and now.precondition is None:
        return names
    return [name for name in names if name == "precondition"]


def _parts(preview: Preview) -> dict[str, bytes]:
    return {
        "text": canonical_json(preview.text),
        "table": canonical_json([list(row) for row in preview.table or ()]),
        "precondition": canonical_json(preview.precondition),
    }

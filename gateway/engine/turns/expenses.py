"""The expenses of a turn: the budgets of its person and of the bot, and what they have left.

The usage of a call to the model is booked in the commit that records its reply: that of the checkpoint, or that of the
turn's end. So a reply that another process continues from is booked once, and a call whose reply was lost with its
process is not booked. What a call may cost is reserved from before the call until its usage is booked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Final

from channels import Person
from channels.direct import DirectChannel
from gateway.access.budgets import Spent, UsageCount, count_name, spendings, standings
from gateway.config.limits import Budget, Window
from gateway.engine.context import EngineContext
from gateway.engine.reservations import Amount
from gateway.engine.turns.feature import RunningTurn, TurnFeature
from gateway.observe.events import BudgetWarning
from gateway.observe.teller import RunTeller
from gateway.providers.base import Usage
from gateway.store.errors import StoreError
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell, Spending
from gateway.stored import keys
from gateway.wording import duration, listing, money, number, say

_LONGEST_WINDOW_SECONDS: Final = 32 * 86_400.0


class BookedExpenses(TurnFeature):
    """Books the usage of a turn with the commits that record its steps and its end."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._of: dict[RunningTurn, PersonExpenses] = {}

    async def begin(self, turn: RunningTurn) -> None:
        continues = turn.lease.tries > 0
        expenses = PersonExpenses(self.context, turn.conversation, turn.person, turn.events, continues=continues)
        self._of[turn] = turn.expenses = expenses

    def committing(self, turn: RunningTurn, transaction: Transaction) -> contextlib.AbstractContextManager[None]:
        expenses = self._of.get(turn)  # a turn that is put aside untried has none
        return expenses.booked_by(transaction) if expenses is not None else contextlib.nullcontext()

    def ended(self, turn: RunningTurn) -> None:
        if (expenses := self._of.pop(turn, None)) is not None:
            expenses.end()


class PersonExpenses:
    """The expenses of one turn."""

    def __init__(
        self,
        context: EngineContext,
        conversation: str,
        person: Person,
        events: RunTeller,
        *,
        lane: str | None = None,
        continues: bool = False,
    ) -> None:
        """`lane`: the name of its reservations, the conversation by default. `continues`: an earlier attempt may have
        left reservations, which are replaced or removed."""
        self._context, self._conversation, self._person, self._events = context, conversation, person, events
        self._lane = lane or conversation
        self._unbooked: list[Spending] = []
        self._used, self._running = Amount(), Counter[Amount]()
        """The usage that is not booked yet, and the estimates of the calls that run."""
        self._has_reserved = continues and bool(context.budgets)
        self._shut: Spent | None = None
        self._told: Put | None = None

    # ── for the loop ──

    async def used_up(self) -> str | None:
        """Return which budget is used up; None if none is. The operator is warned; see `_judge`."""
        context = self._context
        return await self._judge(await self._standings(await context.clock.now())) if context.budgets else None

    async def _judge(self, found: Sequence[Spent]) -> str | None:
        """Return which budget is used up, and warn the operator of one that is or nearly is; None if none is used up.

        Of several, the one that opens last counts.
        """
        for standing in found:
            if standing.near_end:
                await self._warn(standing)
        shut = [standing for standing in found if standing.used_up]
        if not shut:
            return None
        self._shut = max(shut, key=lambda standing: standing.ends)
        return f"{self._shut.budget}: {self._shut.used:.6f}".rstrip("0").rstrip(".") + " are used"

    @contextlib.asynccontextmanager
    async def reserved(self, estimate: Usage, seconds: float) -> AsyncIterator[str | None]:
        """Reserve the estimated usage of a call for the block; see `Expenses.reserved`."""
        if not self._context.budgets:
            yield None
            return
        amount = Amount.of(estimate)
        self._running[amount] += 1
        try:
            yield await self._reserve(seconds)
        finally:
            self._running -= Counter([amount])

    def add(self, usage: Usage) -> None:
        """Add the usage of a call to the model, for the next commit."""
        at = self._context.clock.guess()
        self._unbooked += spendings(usage, person=str(self._person), conversation=self._conversation, at=at)
        self._used += Amount.of(usage)

    async def _reserve(self, seconds: float) -> str | None:
        """Reserve what the turn may use, and wait until the calls before it leave it room.

        Return which budget is used up, or None. Raises StoreError.
        """
        reservations, lane = self._context.reservations, self._lane
        self._has_reserved = True
        while True:
            await asyncio.gather(*(reservations.put(each, lane, self._outstanding, seconds) for each in self._holders))
            found = await self._standings(await self._context.clock.now())
            full = next((each for each in found if self._is_full(each)), None)
            if full is None or any(each.used_up for each in found):
                return await self._judge(found)
            await reservations.wait(self._holder(full.budget))

    def _is_full(self, standing: Spent) -> bool:
        """Return True if the calls before those of this turn may use up the rest of a budget."""
        before = self._context.reservations.before(self._holder(standing.budget), self._lane)
        return before.in_unit(standing.budget.unit) >= standing.left

    async def _release(self) -> None:
        """Write the usage that is still outstanding, or remove the reservations.

        What the store does not take lapses.
        """
        if not self._has_reserved:
            return
        reservations, holders, rest = self._context.reservations, self._holders, self._outstanding
        self._has_reserved = rest != Amount()
        with contextlib.suppress(StoreError):
            if self._has_reserved:
                seconds = self._context.bot.agent.config.request_timeout_seconds
                await asyncio.gather(*(reservations.put(each, self._lane, rest, seconds) for each in holders))
            else:
                await asyncio.gather(*(reservations.drop(each, self._lane) for each in holders))

    @property
    def _outstanding(self) -> Amount:
        """The usage that is not booked, and the estimates of the running calls."""
        return sum(self._running.elements(), self._used)

    @property
    def _holders(self) -> list[str]:
        return list(dict.fromkeys(map(self._holder, self._context.budgets)))

    def _holder(self, budget: Budget) -> str:
        return str(self._person) if budget.holder == "person" else self._context.bot.name

    async def _standings(self, at: datetime) -> list[Spent]:
        budgets, person = self._context.budgets, str(self._person)
        names = list({count_name(each.window, at, each.holder, person): None for each in budgets})
        counts = dict(zip(names, await self._context.store.spent(names), strict=True))
        return standings(budgets, counts, person=person, at=at)

    async def _warn(self, standing: Spent) -> None:
        """Tell the operator, once a window and holder, that a budget is nearly used up, and that it is used up."""
        budget = standing.budget
        holder = self._holder(budget)
        level = "used up" if standing.used_up else "nearly used up"
        once = Cell(
            name=f"budget/{level}/{budget}/{holder}/{standing.ends:%Y-%m-%d}",
            burst=1,
            period_seconds=_LONGEST_WINDOW_SECONDS,
        )
        if not await self._context.store.acquire([once]):
            await self._events.tell(
                BudgetWarning, budget=str(budget), holder=holder, used=standing.used, used_up=standing.used_up
            )

    # ── for the turn ──

    async def notice(self, language: str, *, began: bool) -> str | None:
        """Return the text for a turn that a budget has ended; see `TurnExpenses.notice`."""
        shut = self._shut
        if shut is None:
            return None
        context, until = self._context, shut.ends.isoformat()
        now = await context.clock.now()
        key = keys.key(context.store, self._conversation, keys.budget_told, str(self._person))
        told = (await context.store.get([key]))[key].value == until
        if told and not began and self._person.channel != DirectChannel.name:
            return ""
        left = max(1.0, (shut.ends - now).total_seconds())
        self._told = Put(until, left)
        return say(f"budget_{shut.budget.holder}", language, duration=duration(left, language))

    @contextlib.contextmanager
    def booked_by(self, transaction: Transaction) -> Iterator[None]:
        """Add to a commit of the turn what it has spent since the last one, and that its person was told.

        The commit is in the block. What it does not book is left for the next one.
        """
        transaction.spends, self._unbooked = self._unbooked, []
        used, self._used = self._used, Amount()
        if self._told is not None:
            transaction.puts[keys.budget_told(self._conversation, str(self._person))] = self._told
        try:
            yield
        except BaseException:
            self._unbooked, self._used = [*transaction.spends, *self._unbooked], used + self._used
            raise
        self._release_soon()

    def end(self) -> None:
        """Remove the reservations of a turn that ended, also without a commit."""
        self._used = Amount()
        self._release_soon()

    def _release_soon(self) -> None:
        if self._has_reserved:
            self._context.tasks.start(self._release(), "release of a budget")

    # ── /usage ──

    async def report(self, language: str) -> str:
        """Return the person's usage of today and of this month, and what is left of their budgets."""
        now, person = await self._context.clock.now(), str(self._person)
        windows: tuple[Window, ...] = ("day", "month")
        counts = await self._context.store.spent([count_name(window, now, "person", person) for window in windows])
        lines = []
        for window, stored in zip(windows, counts, strict=True):
            lines += _usage_lines(window, UsageCount.of_counts([stored]), language)
        for standing in await self._standings(now):
            if standing.budget.holder == "person":
                tokens = standing.budget.unit == "tokens"
                left = _tokens(int(standing.left), language) if tokens else money(standing.left, language)
                opens = duration((standing.ends - now).total_seconds(), language)
                lines.append(say(f"usage_left_{standing.budget.window}", language, left=left, duration=opens))
        return "\n".join(lines)


def _usage_lines(window: Window, count: UsageCount, language: str) -> list[str]:
    used = [_tokens(count.total_tokens, language)]
    if count.cost_nanos or not count.unpriced_tokens:
        used.append(money(count.cost_usd, language))
    lines = [say(f"usage_{window}", language, used=listing(used, language))]
    if count.cached_prompt_tokens:
        lines.append(say("usage_cached", language, used=_tokens(count.cached_prompt_tokens, language)))
    if count.unpriced_tokens:
        lines.append(say("usage_unpriced", language, used=_tokens(count.unpriced_tokens, language)))
    if count.saved_nanos:
        lines.append(say("usage_saved", language, used=money(count.saved_usd, language)))
    return lines


def _tokens(count: int, language: str) -> str:
    return say("usage_tokens", language, tokens=number(count, language))

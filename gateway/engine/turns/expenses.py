"""The expenses of a turn: the budgets of the person and of the bot, and the rest of each budget.

The usage of a call to the model is booked with the reply, in the commit of the checkpoint or of the turn's end. So a
recorded reply is booked once, also if another process continues the turn. A call is not booked if the reply was lost
with the process. The estimated usage of a call is reserved from before the call until the booking.
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
    """Books the usage of a turn with the commits of the turn's steps and end."""

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
    """The expenses of a turn, or of the work of a memory lane."""

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
        """`lane`: the name of the reservations, the conversation by default. `continues`: an earlier attempt may have
        left reservations to replace or remove."""
        self._context, self._conversation, self._person, self._events = context, conversation, person, events
        self._lane = lane or conversation
        self._unbooked: list[Spending] = []
        self._used, self._running = Amount(), Counter[Amount]()
        """The unbooked usage, and the estimates of the running calls."""
        self._has_reserved = continues and bool(context.rules.budgets)
        self._shut: Spent | None = None
        self._told: Put | None = None

    # ── for the loop ──

    @property
    def limited(self) -> bool:
        """True if there is a budget."""
        return bool(self._context.rules.budgets)

    async def used_up(self) -> str | None:
        """Return a text with the used-up budget, or None. The operator is warned; see `_judge`."""
        context = self._context
        return await self._judge(await self._standings(await context.clock.now())) if context.rules.budgets else None

    async def _judge(self, found: Sequence[Spent]) -> str | None:
        """Return a text with the used-up budget, or None. Warn the operator of each budget used up or nearly used up.

        Of several used-up budgets, the last to open again counts.
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
        if not self._context.rules.budgets:
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
        """Reserve the outstanding usage, and wait until earlier calls leave room.

        Return a text with the used-up budget, or None. Raises StoreError.
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
        """Return True if earlier calls than this turn's may use up the rest of a budget."""
        before = self._context.reservations.before(self._holder(standing.budget), self._lane)
        return before.in_unit(standing.budget.unit) >= standing.left

    async def _release(self) -> None:
        """Write the outstanding usage, or remove the reservations.

        After a store error, the old reservations lapse.
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
        """The unbooked usage, and the estimates of the running calls."""
        return sum(self._running.elements(), self._used)

    @property
    def _holders(self) -> list[str]:
        return list(dict.fromkeys(map(self._holder, self._context.rules.budgets)))

    def _holder(self, budget: Budget) -> str:
        return str(self._person) if budget.holder == "person" else self._context.bot.name

    async def _standings(self, at: datetime) -> list[Spent]:
        budgets, person = self._context.rules.budgets, str(self._person)
        names = list({count_name(each.window, at, each.holder, person): None for each in budgets})
        counts = dict(zip(names, await self._context.store.spent(names), strict=True))
        return standings(budgets, counts, person=person, at=at)

    async def _warn(self, standing: Spent) -> None:
        """Warn the operator of a nearly used-up budget and of a used-up budget, each once a window and holder."""
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
        """Return the text for a turn ended by a budget; see `TurnExpenses.notice`."""
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
        """Add the turn's unbooked usage and the "person was told" mark to `transaction`.

        Commit inside the block. After a failed commit the usage stays unbooked.
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
        """Remove the reservations of an ended turn, also after an end without a commit."""
        self._used = Amount()
        self._release_soon()

    def _release_soon(self) -> None:
        if self._has_reserved:
            self._context.tasks.start(self._release(), "release of a budget")

    # ── /usage ──

    async def report(self, language: str) -> str:
        """Return the person's usage of today and of this month, and the rest of each personal budget."""
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

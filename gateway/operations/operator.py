"""All commands of an operator on a store, with the commands on people and on the usage of the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date, datetime, time, timedelta
from typing import Final

from channels import Address, Json, Reply
from channels.webchat import SITE, WebChatChannel
from gateway.access.budgets import KEPT_DAYS, Subject, UsageCount, count_name
from gateway.access.sessions import end_all_sessions, end_session
from gateway.engine.strangers import Newcomers
from gateway.operations.actions import ActionCommands
from gateway.operations.audit import AuditCommands
from gateway.operations.base import (
    JsonObject,
    NotDone,
    StoreCommands,
    iso,
    record_served,
    record_wording,
    served_wording,
)
from gateway.operations.conversations import ConversationCommands, HistoryCommands
from gateway.operations.dead_letters import DeadLetterCommands
from gateway.operations.sealing import SealCommands
from gateway.pending.actions import OutgoingReply
from gateway.pending.audit import OPERATOR
from gateway.store.transaction import Transaction
from gateway.wording import say, speaking


class PeopleCommands(StoreCommands):
    """Commands on the people with access to a bot."""

    async def people(self) -> JsonObject:
        """Return the people turned away lately, and the people admitted by a code."""
        newcomers, admitted = await Newcomers(self._store, self._keyring).listed()
        return {"turned_away": [asdict(each) for each in newcomers], "admitted": [asdict(each) for each in admitted]}

    async def admit(self, code: str) -> JsonObject:
        """Admit the person with this code, and notify the person. Raises NotDone."""
        newcomer = await Newcomers(self._store, self._keyring).admit(code, OPERATOR)
        if newcomer is None:
            raise NotDone(f"no newcomer has the code {code!r} now: `askfirst people list` shows those who wait")
        bot = await self._bot_name()
        where = Address.parse(newcomer.address)
        if bot is not None and where.channel in self._channels:
            conversation, text = f"{bot}/{where}", say("admitted", newcomer.language)
            parts = self._render(conversation, where, [OutgoingReply(reply=Reply(text=text))])
            await self._store.commit(Transaction(partition=self._store.partition(conversation), parts=parts))
        return asdict(newcomer)

    async def expel(self, person: str) -> JsonObject:
        """Take back the admission of a person. Raises NotDone."""
        if not await Newcomers(self._store, self._keyring).expel(person):
            raise NotDone(f"{person} was not let in by a code: `askfirst people list` shows who was")
        return {"person": person}

    async def end_sessions(self, person: str = "") -> JsonObject:
        """End the sessions of a person of the web chat, or all sessions. Raises NotDone for any other person."""
        if not person:
            return {"ended": "all", "begun_until": iso(await end_all_sessions(self._store))}
        channel, _, rest = person.partition(":")
        account, _, user_id = rest.partition(":")
        if channel != WebChatChannel.name or not user_id:
            raise NotDone(
                f"{person} has no session: the web chat has them, like {WebChatChannel.name}:local:SESSION or "
                f"{WebChatChannel.name}:{SITE}:USER"
            )
        await end_session(self._store, f"{SITE}:{user_id}" if account == SITE else user_id)
        return {"ended": person}


_SUBJECTS: Final[Mapping[str, Subject]] = {
    "person": "person",
    "conversation": "conversation",
    "bot": "bot",
    "day": "bot",
}


class UsageCommands(StoreCommands):
    """Commands on the usage of the model."""

    async def usage(self, by: str, since: str = "") -> list[JsonObject]:
        """Return the usage since a day of UTC (``2026-11-01``; empty: as long as usage is kept), by `by`.

        Days are in order. Other rows are ordered by cost and tokens, the most first. Raises NotDone for an unknown `by`
        and for a `since` other than a day.
        """
        if by not in _SUBJECTS:
            raise NotDone(f"usage is listed by one of {', '.join(_SUBJECTS)}, not by {by!r}")
        today = (await self._store.now()).date()
        first = today - timedelta(days=KEPT_DAYS)
        first = max(first, await self._day(since) or first)
        bot = await self._bot_name() or "-"
        found: defaultdict[str, list[Mapping[str, int]]] = defaultdict(list)
        for ago in range((today - first).days, -1, -1):
            day = today - timedelta(days=ago)
            for name, counts in (await self._on(day, _SUBJECTS[by])).items():
                found[str(day) if by == "day" else name or bot].append(counts)
        rows = {name: UsageCount.of_counts(counts) for name, counts in found.items()}
        order = list(rows) if by == "day" else sorted(rows, key=lambda name: _rank(rows[name]), reverse=True)
        return [{by: name, **_to_json(rows[name])} for name in order]

    async def _on(self, day: date, subject: Subject) -> Mapping[str, Mapping[str, int]]:
        """Return the counts of a day by the name of the subject. The bot has no name."""
        prefix = count_name("day", datetime.combine(day, time()), subject)
        found = await self._store.all_spent(prefix)
        return {name.removeprefix(prefix): counts for name, counts in found.items()}


def _rank(count: UsageCount) -> tuple[int, int]:
    return count.cost_nanos, count.total_tokens


def _to_json(count: UsageCount) -> JsonObject:
    """Return a count. `cost_usd` is of the tokens with a known price; None if no token has a price."""
    priced = count.total_tokens > count.unpriced_tokens or count.cost_nanos
    return {
        "calls": count.calls,
        "total_tokens": count.total_tokens,
        "prompt_tokens": count.prompt_tokens,
        "completion_tokens": count.completion_tokens,
        "cached_prompt_tokens": count.cached_prompt_tokens,
        "cache_write_tokens": count.cache_write_tokens,
        "cost_usd": round(count.cost_usd, 9) if priced else None,
        "unpriced_tokens": count.unpriced_tokens,
        "saved_usd": round(count.saved_usd, 9),
    }


class Operator(
    ActionCommands,
    AuditCommands,
    ConversationCommands,
    DeadLetterCommands,
    HistoryCommands,
    PeopleCommands,
    SealCommands,
    UsageCommands,
):
    """The commands of an operator. Each public method but `remember` and `run` is a command with a JSON result."""

    async def remember(self) -> None:
        """Record the name and the wording of the served bot in the store, for commands beside the server."""
        await record_served(self._store, self._bot)
        if self._wording is not None:
            await record_wording(self._store, self._keyring, self._wording)

    async def run(self, command: str, arguments: Mapping[str, Json]) -> Json:
        """Run a command in the wording of the bot. Raises the errors of the command."""
        wording = self._wording or await served_wording(self._store, self._keyring)
        with speaking(wording):
            result: Json = await getattr(self, command)(**arguments)
        return result

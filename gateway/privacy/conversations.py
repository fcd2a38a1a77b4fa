"""The conversations of a bot, for the operator: listed, read, searched, exported and forgotten."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from channels import AskfirstError, Json, Person
from gateway.access.budgets import UsageCount, count_name
from gateway.artifacts import ArtifactStore
from gateway.memory import RESET, from_entries, to_entries
from gateway.pending.lines import read_entries
from gateway.pending.loading import stored_action
from gateway.pending.seal import Keyring
from gateway.pending.sealed_records import open_value
from gateway.privacy.forgetting import forget
from gateway.providers.base import ModelMessage
from gateway.store.base import Store
from gateway.store.types import Key, LogEntry
from gateway.stored import keys
from gateway.stored.memory_events import conversation_lane, person_lane
from gateway.stored.people import PeopleOf
from gateway.tools.pending_action import PendingAction

_PAGE: Final = 500
"""The lines read in one call of the store."""
_MOST: Final = 10_000
_UNSAID: Final = frozenset({"address", "ballots", "audit", "tokens"})
"""The fields of an action left out of the export: for the gateway alone."""


class UnknownConversation(AskfirstError):
    """The store has no conversation and no person of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no conversation and no person {name!r}: `askfirst conversations list` shows them")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    """A message found by a search."""

    conversation: str
    at: datetime
    message: ModelMessage


class Conversations:
    """The conversations of a bot in the store. A conversation is named like ``Bot/telegram:123:456``.

    A list, a search and the export of a person read all conversations. This is work for an operator, and no turn waits
    for the result. Every method raises StoreUnavailable while the store does not answer.
    """

    def __init__(self, store: Store, keyring: Keyring, bot: str, artifacts: ArtifactStore | None = None) -> None:
        """`artifacts` are the files of the bot; None: forgetting deletes no files."""
        self._store, self._keyring, self._bot, self._artifacts = store, keyring, bot, artifacts

    async def list(self, *, person: str | None = None, limit: int = 100) -> Sequence[str]:
        """Return the names of the conversations, in order. `person`: only conversations with the person's messages.

        `limit`: the most names. Raises ValueError for a limit below 1.
        """
        _check_limit(limit)
        return (await self._names(person))[:limit]

    async def read(self, conversation: str, *, last: int = 60) -> Sequence[ModelMessage]:
        """Return the last messages of a conversation, oldest first, including messages before the last reset.

        Raises ValueError for a `last` below 1, and UnknownConversation.
        """
        _check_limit(last)
        entries = await self._store.read(self._key(conversation, keys.transcript), last=last)
        if not entries and not await self._exists(conversation):
            raise UnknownConversation(conversation)
        return [message for _, message in _messages(self._genuine(conversation, entries))]

    async def search(self, text: str, *, person: str | None = None, limit: int = 5) -> Sequence[FoundMessage]:
        """Return the messages containing a text, in any case of the letters, the newest first.

        `person`: search only conversations with messages of the person. `limit`: the most messages. Raises ValueError
        for an empty text and for a limit below 1.
        """
        _check_limit(limit)
        wanted = text.strip().casefold()
        if not wanted:
            raise ValueError("the text to search for is empty")
        found: list[FoundMessage] = []
        for conversation in await self._names(person):
            for at, message in reversed(_messages(await self._transcript(conversation))):
                if wanted in message.content.casefold():
                    found.append(FoundMessage(conversation=conversation, at=at, message=message))
            found = sorted(found, key=lambda each: each.at, reverse=True)[:limit]
        return found

    async def export(self, who: str) -> dict[str, Json]:
        """Return all stored data of a conversation, or of a person like ``telegram:123:456``, as JSON.

        For a person: the person's own conversations as a whole, the actions requested or decided elsewhere, the noted
        facts and the usage. The messages of a group belong to all members, and are left out. Raises
        UnknownConversation.
        """
        if await self._exists(who):
            return {"conversation": who, **await self._conversation(who)}
        wrote = await self._names(who)
        groups = {name for name, there in (await self._people()).items() if there.group}
        own = [name for name in wrote if name not in groups]
        found: dict[str, Json] = {
            "person": who,
            "conversations": {name: await self._conversation(name) for name in own},
            "groups": [name for name in wrote if name in groups],
            "actions": [*await self._actions(lambda action: action.conversation not in own and _concerns(action, who))],
            "facts": await self._facts(who),
            "usage": await self._usage(who),
        }
        if not any(found[part] for part in found if part != "person"):
            raise UnknownConversation(who)
        return found

    async def forget(self, who: str) -> Mapping[str, int]:
        """Remove all data of a conversation, or of a person like ``telegram:123:456``.

        Return the removed counts of each kind; empty if there was no data. For a person, remove the person's own
        conversations as a whole, and the turns in groups. Raises NotForgotten during a turn or an action of the person
        or conversation. Then, and after a killed process, a repeat removes the rest. Raises ValueError for neither a
        conversation nor a person.
        """
        if not who.startswith(f"{self._bot}/"):
            Person.parse(who)
        return await forget(self._store, self._keyring, self._bot, who, self._artifacts)

    # ── reading ──

    def _key(self, conversation: str, name: Callable[[str], str]) -> Key:
        return keys.key(self._store, conversation, name)

    async def _names(self, person: str | None) -> Sequence[str]:
        """Return the names of all conversations, or of the conversations with messages of a person, in order."""
        people = await self._people()
        if person is None:
            return sorted({*people, *await self._transcripts()})
        found = {name for name, there in people.items() if person in there.people}
        own = f"{self._bot}/{person}"
        return sorted(found | {own} if await self._exists(own) else found)

    async def _exists(self, conversation: str) -> bool:
        """Return True for a conversation with a record of people, or with only a transcript (an older conversation)."""
        people = self._key(conversation, keys.people)
        if (await self._store.get([people]))[people].value is not None:
            return True
        return bool(await self._store.read(self._key(conversation, keys.transcript), last=1))

    async def _people(self) -> dict[str, PeopleOf]:
        """Return the people of each conversation."""
        prefix = keys.people("")
        found = await self._store.scan(prefix)
        return {key.name.removeprefix(prefix): PeopleOf.from_json(record.value) for key, record in found}

    async def _transcripts(self) -> set[str]:
        """Return the conversations with a transcript. Older conversations have no record of people."""
        prefix = keys.transcript("")
        return {key.name.removeprefix(prefix) for key in await self._store.logs(f"{prefix}{self._bot}/")}

    async def _transcript(self, conversation: str) -> Sequence[LogEntry]:
        return self._genuine(conversation, await self._lines(self._key(conversation, keys.transcript)))

    def _genuine(self, conversation: str, entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
        """Return the lines of a transcript written by this gateway."""
        return read_entries(self._keyring, conversation, entries).entries

    async def _lines(self, log: Key) -> Sequence[LogEntry]:
        found: list[LogEntry] = []
        while page := await self._store.read(log, after=found[-1].seq if found else 0, first=_PAGE):
            found += page
        return found

    async def _conversation(self, conversation: str) -> dict[str, Json]:
        """Return all stored data of a conversation."""
        lane = conversation_lane(conversation)
        memories = {what: keys.key(self._store, lane, keys.memory, what) for what in keys.MEMORIES}
        people = self._key(conversation, keys.people)
        found = await self._store.get([people, *memories.values()])
        waiting = await self._store.mailbox(conversation, _MOST)
        return {
            "people": dict(PeopleOf.from_json(found[people].value).people),
            "messages": [
                {"at": at.isoformat(), **to_entries([message])[0]}  # type: ignore[dict-item]
                for at, message in _messages(await self._transcript(conversation))
            ],
            "shown": [
                {"at": entry.stamp.isoformat(), "line": entry.value}
                for entry in await self._lines(self._key(conversation, keys.visible_log))
            ],
            "waiting": [dict(each.body) for each in waiting],
            "actions": [*await self._actions(lambda action: action.conversation == conversation)],
            "memories": {
                what: value
                for what, key in memories.items()
                if (value := open_value(self._keyring, key.name, found[key].value)) is not None
            },
        }

    async def _actions(self, is_wanted: Callable[[PendingAction], bool]) -> Sequence[Json]:
        """Return the readable and wanted actions, oldest first."""
        found: list[PendingAction] = []
        for key, record in await self._store.scan(keys.action("")):
            action = stored_action(self._keyring, key, record)
            if action is not None and is_wanted(action):
                found.append(action)
        found.sort(key=lambda action: action.requested_at)
        return [{name: value for name, value in each.to_json().items() if name not in _UNSAID} for each in found]

    async def _facts(self, person: str) -> Json:
        key = keys.key(self._store, person_lane(self._bot, person), keys.knowledge)
        return open_value(self._keyring, key.name, (await self._store.get([key]))[key].value) or []

    async def _usage(self, person: str) -> dict[str, Json]:
        """Return the usage of this month."""
        name = count_name("month", await self._store.now(), "person", person)
        count = UsageCount.of_counts(await self._store.spent([name]))
        return {"month": count.total_tokens, "cost_usd": count.cost_usd} if count.total_tokens else {}


def _messages(entries: Iterable[LogEntry]) -> list[tuple[datetime, ModelMessage]]:
    """Return the messages of these lines, without broken messages."""
    found: list[tuple[datetime, ModelMessage]] = []
    for entry in entries:
        if entry.value != RESET:
            with contextlib.suppress(ValueError):
                found += [(entry.stamp, message) for message in from_entries([entry.value])]
    return found


def _concerns(action: PendingAction, person: str) -> bool:
    return person in (action.requester, action.decided_by, *(vote.person for vote in action.votes))


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"the limit should be 1 or more, not {limit}")

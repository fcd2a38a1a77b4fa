"""Repeats: the end of loops between two machines, like the bot and an automatic reply.

A text of a person with the same answer five times within ten minutes gets a notice with the fifth answer. Then the text
is not answered, until the person writes another text or a day has passed. Only answers of the model count. Bare
replies, presses, commands, questions for a confirmation, and calls of the bot's own code do not count.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from channels import Json, Message, Reply
from gateway.bot.turn import Outcome, Turn
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.engine.turns.notes import is_said
from gateway.memory import to_entries
from gateway.pending.actions import OutgoingReply
from gateway.pending.lines import read_backwards
from gateway.store.transaction import Put
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.wording import say

log = logging.getLogger("askfirst.turns")

TIMES: Final = 5
_WITHIN: Final = timedelta(minutes=10)
_KEPT_SECONDS: Final = 86_400.0


class Repeats(TurnFeature):
    """Ends a conversation in which the same text gets the same answer again and again."""

    reads = (keys.REPEATED,)

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        noted = self._silenced_text(turn.lease)
        if noted is None or noted != _mark(asked.messages):
            return None
        log.info("%s: the same text again, which is not answered any more", turn.conversation)
        return Outcome(stop_reason="vetoed", transcript=to_entries(asked.notes))

    async def contribute(self, ending: Ending) -> None:
        turn, name = ending.turn, keys.repeated(ending.turn.conversation)
        mark = _mark(turn.batch.messages)
        if (noted := self._silenced_text(turn.lease)) is not None:
            if turn.batch.messages and noted != mark:
                ending.transaction.deletes.append(name)
            return
        outcome = ending.outcome
        if mark is None or turn.direct or outcome is None or outcome.loop is None or outcome.asked:
            return
        was_said = is_said(turn.lease.lines, turn.batch.messages[0].text)  # in most turns it was not
        if was_said and self._count(turn, ending.lines) >= TIMES:
            ending.transaction.puts[name] = Put(self.context.sealed(name, mark), _KEPT_SECONDS)
            ending.says.append(OutgoingReply(reply=Reply(text=say("repeated", ending.language))))

    def _silenced_text(self, lease: Lease) -> str | None:
        """Return the mark of the text no longer answered, or None."""
        if not self.context.has_prefetch(lease):
            return None
        key = keys.key(self.context.store, lease.lane, keys.repeated)
        noted = self.context.unsealed(key, lease.prefetched[key], lease.lane)
        return noted if isinstance(noted, str) else None

    def _count(self, turn: RunningTurn, lines: Sequence[Json]) -> int:
        """Return the number of consecutive equal answers to the text of this turn, including this turn."""
        lease, person = turn.lease, str(turn.person)

        def is_theirs(line: tuple[Json, datetime]) -> bool:
            # lines of groups name the person of their turn
            return isinstance(line[0], dict) and line[0].get("person", person) == person

        before = read_backwards(self.context.keyring, lease.lane, lease.lines)
        this = next(_exchanges((line, turn.batch.at) for line in reversed(lines)), None)
        if this is None:
            return 0
        count = 1
        for said, answer, at in _exchanges(takewhile(is_theirs, before)):
            if (said, answer) != this[:2] or turn.batch.at - at > _WITHIN:
                break
            count += 1
        return count


def _exchanges(lines: Iterable[tuple[Json, datetime]]) -> Iterator[tuple[str, str, datetime]]:
    """Yield the person's text, the answer and the time of each turn, from lines in reverse order."""
    said: list[str] = []
    answer, at = "", None
    for line, when in lines:
        if not isinstance(line, dict):  # a reset
            return
        content = str(line.get("content", ""))
        match line.get("role"):
            case "user":
                said.append(content)
                at = when
            case "assistant":
                if at is not None:
                    yield "\n".join(said), answer, at
                    said, answer, at = [], "", None
                answer = answer or content
    if at is not None:
        yield "\n".join(said), answer, at


def _mark(messages: Sequence[Message]) -> str | None:
    """Return a mark of the person and the text of these messages; None for several texts, a file, a command or no
    text."""
    first = next(iter(messages), None)
    if first is None or not first.text.strip() or first.command is not None:
        return None
    if any(message.text != first.text or message.attachments for message in messages):
        return None
    return hashlib.sha256(f"{first.person} {first.text}".encode("utf-8", "replace")).hexdigest()

"""Sessions of the web chat: the number of new sessions in a minute, and the sessions ended before their time.

A session itself is a signed cookie, and leaves no record. The end of a session is a record, kept for the whole lifetime
of a cookie.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from channels import Json
from channels.webchat import SESSION_SECONDS, Session
from gateway.access.reached import ReachedLimits
from gateway.config.limits import Share
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell, Key
from gateway.stored import keys

_MINUTE: Final = 60.0


class ChatSessions:
    """The sessions of a store. `share`: the most new sessions in a minute, over all processes."""

    def __init__(self, store: Store, share: Share, reached: ReachedLimits) -> None:
        self._store, self._share, self._reached = store, share, reached

    async def begin(self) -> float:
        """Count a new session. Return 0, else the seconds to wait. Raises StoreUnavailable."""
        most = self._share.all
        if most is None:
            return 0.0
        wait = await self._store.acquire([Cell(name="sessions", burst=most, period_seconds=_MINUTE)])
        if wait:
            self._reached.note("new sessions of the web chat", f"sessions={self._share}")
        return wait

    async def has_ended(self, session: Session) -> bool:
        """Return True for a session ended by the person or an operator. Raises StoreUnavailable."""
        one, every = _key(self._store, session.session_id), _key_of_all(self._store)
        of_person = _key(self._store, session.holder)
        found = await self._store.get(list({one, every, of_person}))
        if found[one].value is not None or _is_before(session.begun, found[every].value):
            return True
        return _is_before(session.begun, _at(found[of_person].value))

    async def end(self, session_id: str) -> None:
        """End a session. Raises StoreUnavailable."""
        await end_session(self._store, session_id)


async def end_session(store: Store, holder: str) -> None:
    """End a session, or all sessions of a logged-in person until now. Raises StoreUnavailable."""
    key = _key(store, holder)
    put = Put({"at": (await store.now()).isoformat()}, SESSION_SECONDS)
    await store.commit(Transaction(partition=key.partition, puts={key.name: put}))


async def end_all_sessions(store: Store) -> datetime:
    """End all sessions begun until now, and return the present moment. Raises StoreUnavailable."""
    key, now = _key_of_all(store), await store.now()
    put = Put(now.isoformat(), SESSION_SECONDS)
    await store.commit(Transaction(partition=key.partition, puts={key.name: put}))
    return now


def _is_before(begun: datetime, end: Json) -> bool:
    """Return True for a session begun before a recorded end, and for an unreadable end."""
    try:
        return end is not None and begun <= datetime.fromisoformat(str(end))
    except (ValueError, TypeError):
        return True


def _at(ended: Json) -> Json:
    return ended.get("at") if isinstance(ended, dict) else ended


def _key(store: Store, holder: str) -> Key:
    # Forgetting a person removes what bears their name. The session must stay ended.
    name = keys.ended_session(hashlib.sha256(holder.encode()).hexdigest())
    return Key(store.partition(name), name)


def _key_of_all(store: Store) -> Key:
    return Key(store.partition(keys.ENDED_SESSIONS), keys.ENDED_SESSIONS)

"""The errors of a store.

StoreError (AskfirstError)
├── Conflict         a version, an event or a pointer was not as the transaction expected
├── Fenced           the lease was lost to another worker
├── TooLate          the store's clock was past `not_after`
├── Overloaded       a new message was refused, and no event of the batch was stored
│   └── MailboxFull  because too many events wait in the conversation
├── StoreRefused     the store cannot be opened in this state
│   └── StoreInUse   because another process holds the store now
└── StoreUnavailable the outcome is unknown: read, do not repeat
    └── NotPrimary   the server is a replica, and may become the primary
"""

from __future__ import annotations

from datetime import datetime
from typing import Self

from channels import AskfirstError


class StoreError(AskfirstError):
    """The base class of a store's errors."""


class Conflict(StoreError):
    """A version, an event or a pointer was not as the transaction expected. Read again and decide anew."""


class Fenced(StoreError):
    """The lease was lost to another worker. Stop: the other worker does the work."""

    @classmethod
    def by_lane(cls, kind: str, lane: str, worker: str) -> Self:
        """Return the error for the lease of a lane no longer held by this worker."""
        return cls(f"the {kind} lease of {lane} is no longer held by {worker}")


class TooLate(StoreError):
    """The store's clock was past the transaction's `not_after`."""

    @classmethod
    def by_clock(cls, now: datetime, not_after: datetime | None) -> Self:
        """Return the error for a transaction after the latest moment."""
        return cls(f"it is {now}, and the transaction was good until {not_after}")


class Overloaded(StoreError):
    """Too many events wait: a new message was refused, and no event of the batch was stored."""

    @staticmethod
    def by_count(waiting: int) -> Overloaded:
        """Return the error for a store with this many waiting events."""
        return Overloaded(f"{waiting} events wait, which is all that may: try again when some are dealt with")


class MailboxFull(Overloaded):
    """New messages are refused in this conversation alone: too many events wait there."""

    def __init__(self, conversation: str, most: int) -> None:
        super().__init__(
            f"{most} events wait in {conversation}, which is all that may in one conversation: "
            "try again when some are dealt with"
        )


class StoreRefused(StoreError):
    """The store cannot be opened: in use, damaged, of another form, or with unsafe settings. It was not changed.

    The error text says how to repair the store.
    """


class StoreInUse(StoreRefused):
    """Another process holds the store. The store opens after the end of the other process, without any repair."""


class StoreUnavailable(StoreError):
    """The store did not answer. The call may have taken effect: read, do not repeat."""


class NotPrimary(StoreUnavailable):
    """The store is a replica and takes no writes. The replica may become the primary in a moment."""

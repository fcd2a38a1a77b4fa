"""The errors of a store.

    StoreError (AskfirstError)
    ├── Conflict         a version, an event or a pointer was not as the transaction expected
    ├── Fenced           the lease was lost to another worker
    ├── TooLate          the store's clock was past `not_after`
    ├── Overloaded       a new message was refused, and no event of its batch was stored
    │   └── MailboxFull  because too many events wait in its own conversation
    ├── StoreRefused     the store cannot be opened as it is
    │   └── StoreInUse   because another process holds it now
    └── StoreUnavailable the outcome is unknown: read, do not repeat

`gateway.store.form.NewerForm` is not one of them. The store works: a newer release wrote the record, and a worker of
that release handles it.
"""

from __future__ import annotations

from channels import AskfirstError

__all__ = [
    "Conflict",
    "Fenced",
    "MailboxFull",
    "Overloaded",
    "StoreError",
    "StoreInUse",
    "StoreRefused",
    "StoreUnavailable",
    "TooLate",
]


class StoreError(AskfirstError):
    """The base class of a store's errors."""


class Conflict(StoreError):
    """A version, an event or a pointer was not as the transaction expected. Read again and decide anew."""


class Fenced(StoreError):
    """The lease was lost to another worker. Stop: that worker does the work."""


class TooLate(StoreError):
    """The store's clock was past the transaction's `not_after`."""


class Overloaded(StoreError):
    """Too many events wait: a new message was refused, and no event of its batch was stored."""


class MailboxFull(Overloaded):
    """Too many events wait in this conversation: its new messages are refused, other conversations' are not."""

    def __init__(self, conversation: str, most: int) -> None:
        super().__init__(
            f"{most} events wait in {conversation}, which is all that may in one conversation: "
            "try again when some are dealt with"
        )


class StoreRefused(StoreError):
    """The store cannot be opened as it is: it is in use, damaged or of a newer release. It was not changed.

    The error text says how to repair it.
    """


class StoreInUse(StoreRefused):
    """Another process holds the store. It can be opened when that process ends, without any repair."""


class StoreUnavailable(StoreError):
    """The store did not answer. The call may have taken effect: read, do not repeat."""

"""The outcome of an answer, in the words of selectools' documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.artifacts import Artifact
from gateway.tools.pending_action import PendingAction

DEFAULT_IGNORE_TTL_SECONDS = 10.0

OutcomeStatus: TypeAlias = Literal[
    "executed",
    "expired",
    "digest_mismatch",
    "no_executor",
    "failed",
    "cancelled",
    "kind_mismatch",
    "ignored",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class ConfirmOutcome:
    """The outcome of one answer. Only `kind_mismatch` and `ignored` leave the action open.

    - ``executed``, ``failed``: the executor has run; it returned `result`, or raised.
    - ``unknown``: it may or may not have run to its end. It is not run again.
    - ``expired``: the answer came too late. Nothing ran.
    - ``cancelled``: the person said no.
    - ``digest_mismatch``: its arguments are not those that the caller expects, or it was changed without the key.
    - ``no_executor``: this process has neither the closure nor a factory for its kind.
    - ``kind_mismatch``: the answer is to another question: of another kind, or of another id.
    - ``ignored``: it stays open for some seconds.
    """

    status: OutcomeStatus
    record: PendingAction
    """The record as it is stored after this answer."""
    result: str | None = None
    """The executor's return value as text."""
    detail: Literal["id_mismatch", "tampered"] | None = None
    """``id_mismatch``: the kind is right and the id is another. ``tampered``: a `digest_mismatch` of a record that was
    changed in the store."""
    artifacts: tuple[Artifact, ...] = ()
    """The files that the executor emitted."""

    @property
    def executed(self) -> bool:
        """True if the executor has run and returned."""
        return self.status == "executed"

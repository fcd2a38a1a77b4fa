"""What selectools' pending stores say: the words of its documents for what became of an action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.artifacts import Artifact
from gateway.tools.pending_action import PendingAction

__all__ = ["DEFAULT_IGNORE_TTL_SECONDS", "ConfirmOutcome", "OutcomeStatus"]

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
    """What one answer came to. Only `kind_mismatch` and `ignored` leave the action open.

    - ``executed``, ``failed``: the executor has run; it returned `result`, or raised.
    - ``unknown``: it may or may not have run to its end. It is not run again.
    - ``expired``: the answer came too late. Nothing ran.
    - ``cancelled``: the person said no.
    - ``digest_mismatch``: other arguments than the caller expects, or changed in the store by somebody without the key.
    - ``no_executor``: this process has neither the closure nor a factory for its kind.
    - ``kind_mismatch``: the answer is to another question: of another kind, or of another id.
    - ``ignored``: it stays open for a moment.
    """

    status: OutcomeStatus
    record: PendingAction
    """As it is stored after this answer."""
    result: str | None = None
    """What the executor returned, as text."""
    detail: Literal["id_mismatch", "tampered"] | None = None
    """``id_mismatch``: of `kind_mismatch`, when the kind is right and the id is another. ``tampered``: of
    `digest_mismatch`, when it was changed in the store."""
    artifacts: tuple[Artifact, ...] = ()
    """The files that the executor emitted."""

    @property
    def executed(self) -> bool:
        """Whether the executor has run and returned."""
        return self.status == "executed"

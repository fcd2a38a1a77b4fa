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
    """The outcome of an answer. Only `kind_mismatch` and `ignored` leave the action open.

    - ``executed``, ``failed``: the executor has run, and returned `result` or raised.
    - ``unknown``: the executor may or may not have run to the end. The action is not run again.
    - ``expired``: the answer came too late. The executor did not run.
    - ``cancelled``: the person answered no.
    - ``digest_mismatch``: other arguments than expected by the caller, or a record changed without the key.
    - ``no_executor``: this process has neither the closure nor a factory for the kind.
    - ``kind_mismatch``: the answer is to another question, with another kind or id.
    - ``ignored``: the action stays open for some seconds.
    """

    status: OutcomeStatus
    record: PendingAction
    """The record as stored after this answer."""
    result: str | None = None
    """The executor's return value as text."""
    detail: Literal["id_mismatch", "tampered"] | None = None
    """``id_mismatch``: the right kind, but another id. ``tampered``: a `digest_mismatch` of a record changed in the
    store."""
    artifacts: tuple[Artifact, ...] = ()
    """The files emitted by the executor."""

    @property
    def executed(self) -> bool:
        """True if the executor has run and returned."""
        return self.status == "executed"

"""The two values that guard a record: the digest of what was asked, and the seal over what it has become."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace

from gateway.tools.action import PendingAction, canonical_json

__all__ = ["Keyring", "compute_digest"]

_UNSEALED = frozenset({"seal"})


def compute_digest(action: PendingAction) -> str:
    """SHA-256 over what was shown, who asked, where, who may approve and for how long: frozen at the ask.

    Raises ValueError when the arguments or the precondition are not canonical JSON.
    """
    return hashlib.sha256(
        canonical_json(
            {
                "schema": action.schema,
                "pending_action_id": action.pending_action_id,
                "kind": action.kind,
                "tool_version": action.tool_version,
                "args": dict(action.args),
                "precondition": action.precondition,
                "preview": action.preview,
                "table": [list(row) for row in action.table],
                "code": action.code,
                "requester": action.requester,
                "conversation": action.conversation,
                "approvers": sorted(action.approvers),
                "need": action.need,
                "ttl_seconds": action.ttl_seconds,
            }
        )
    ).hexdigest()


class Keyring:
    """The gateway's keys: the first seals, all verify.

    Raises ValueError without a key, or with one under 16 bytes.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a keyring needs keys of at least 16 bytes")
        self._keys = [hmac.new(key, b"askfirst pending action seal", hashlib.sha256).digest() for key in keys]

    def seal(self, action: PendingAction) -> PendingAction:
        """The record with a seal over every field it has now."""
        return replace(action, seal=self._mac(self._keys[0], action))

    def holds(self, action: PendingAction) -> bool:
        """Whether seal and digest are those of exactly this record."""
        try:
            macs, digest = [self._mac(key, action) for key in self._keys], compute_digest(action)
            sealed = any(hmac.compare_digest(mac.encode(), action.seal.encode()) for mac in macs)
            return sealed and hmac.compare_digest(digest.encode(), action.digest.encode())
        except ValueError:
            return False

    @staticmethod
    def _mac(key: bytes, action: PendingAction) -> str:
        stored = action.to_json()
        body = canonical_json({name: value for name, value in stored.items() if name not in _UNSEALED})
        return hmac.new(key, body, hashlib.sha256).hexdigest()

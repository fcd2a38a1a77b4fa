"""The digest of a question, and the seals over the records between the question and the effect.

A seal is an HMAC with the gateway's key over the stored bytes and their name. Bytes edited, copied to another name or
made without the key have no valid seal. Sealed are the record of each action, the index of its conversation, every
event, every queued part, every step of a turn's checkpoint, every line of a transcript, and each record for a model:
notes, memories, facts, kept results and cached replies.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeGuard

from channels import Json
from gateway.store.form import FORM
from gateway.tools.pending_action import PendingAction, canonical_json, json_text

Purpose: TypeAlias = Literal["record", "event", "part", "step", "note", "person", "line"]

SEAL_FAILED: Final = "seal check failed (not written with ASKFIRST_SECRET)"
"""The text for operators about a record or event with a wrong seal."""
_MAC_HEX = 32
"""The hex digits of the seal of an event, a part or a step: 128 bits. Slack's and Twilio's signatures have no less."""


def compute_digest(action: PendingAction) -> str:
    """Return the SHA-256 over the shown question, requester, conversation, approvers and ttl, all of them constant.

    No release changes this formula. A field added by a later release is included only for a record with this field.
    Raises ValueError if the arguments or the precondition are not canonical JSON.
    """
    added: dict[str, Json] = {"standins": [*sorted(action.standins)]} if action.standins else {}
    if action.salt:
        added["salt"] = action.salt
    if action.layout is not None:
        added["layout"] = action.layout.to_json()
    if action.standing is not None:
        offer = action.standing
        most: Json = [list(bound) for bound in offer.most]
        added["standing"] = [offer.code, offer.seconds, offer.uses, list(offer.free), most, offer.compared]
    return hashlib.sha256(
        canonical_json(
            {
                **added,
                "schema": 1,
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


@dataclass(frozen=True, slots=True)
class Sealed:
    """The exact text of a record, and the seal of its last write."""

    text: str
    seal: str
    is_old: bool = False
    """True if a key other than the first made the seal."""


def is_sealed(stored: object) -> TypeGuard[dict[str, Json]]:
    """Return True for a stored value in sealed form, with a valid seal or not."""
    return isinstance(stored, dict) and isinstance(stored.get("body"), str)


def step_context(conversation: str, last_mac: str) -> str:
    """Return the context for the seal of a checkpoint's step. `last_mac` is the seal of the step before, or empty."""
    return f"{conversation}\n{last_mac}"


class Keyring:
    """The gateway's keys. The first key seals; all keys verify.

    Raises ValueError without a key, or with a key under 16 bytes.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("a keyring needs keys of at least 16 bytes")
        # A copy of a begun HMAC costs less than a new one, and keeps the interpreter: `hmac.digest` releases it, and
        # waits for the store's thread to give it back.
        self._keys = [hmac.new(_derived(key, b"askfirst seal"), digestmod=hashlib.sha256) for key in keys]

    @property
    def rotates(self) -> bool:
        """True if there is an older key beside the first."""
        return len(self._keys) > 1

    # ── records ──

    def seal(self, name: str, text: str) -> dict[str, Json]:
        """Return the stored form of a record: the text, and the seal over text, form and name."""
        seal = self._mac("record", name, f"{FORM}\n{text}")
        return {"form": FORM, "seal": seal, "body": text}

    def open(self, name: str, stored: Json) -> Sealed | None:
        """Return the text and the seal of a record of this form with a valid seal, else None."""
        match stored:
            case {"form": int(form), "body": str(text), "seal": str(seal)} if form == FORM:
                number = self.key_of("record", name, f"{FORM}\n{text}", seal)
                return Sealed(text, seal, is_old=number > 0) if number is not None else None
        return None

    def pseudonym(self, person: str) -> str:
        """Return a keyed pseudonym of a person: 16 hex digits, the same in every process with these keys."""
        return self._mac("person", "", person)[:_MAC_HEX][:16]

    # ── events, parts, steps ──

    def stamped(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return the body with a seal over the JSON and the context."""
        return {**body, "mac": self.mac(purpose, context, json_text(body))}

    def is_genuine(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> bool:
        """Return True if the body carries the seal made by `stamped` in this context."""
        return self.key_of_body(purpose, context, body) is not None

    def key_of_body(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> int | None:
        """Return the number of the key used by `stamped` to seal the body: 0 is the first; None: no key."""
        bare = dict(body)
        mac = bare.pop("mac", None)
        return self.key_of(purpose, context, json_text(bare), mac) if isinstance(mac, str) else None

    # ── texts ──

    def mac(self, purpose: Purpose, context: str, text: str) -> str:
        """Return the seal over a text and a context: 32 hex digits."""
        return self._mac(purpose, context, text)[:_MAC_HEX]

    def key_of(self, purpose: Purpose, context: str, text: str, mac: str) -> int | None:
        """Return the number of the key that made this seal over a text: 0 is the first; None: no key."""
        if len(mac) < _MAC_HEX:
            return None
        message = _message(purpose, context, text)
        for number, key in enumerate(self._keys):
            if _same(_digest(key, message)[: len(mac)], mac):
                return number
        return None

    def _mac(self, purpose: Purpose, context: str, text: str) -> str:
        return _digest(self._keys[0], _message(purpose, context, text))


def _message(purpose: Purpose, context: str, text: str) -> bytes:
    """Return the joined fields. No two different triples give the same bytes."""
    head = context.encode("utf-8", "surrogatepass")
    return b"%b\n%d\n%b%b" % (purpose.encode(), len(head), head, text.encode("utf-8", "surrogatepass"))


def _digest(key: hmac.HMAC, message: bytes) -> str:
    begun = key.copy()
    begun.update(message)
    return begun.hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, purpose, hashlib.sha256).digest()

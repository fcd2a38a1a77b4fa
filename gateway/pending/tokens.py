"""Random names: what a button carries, the code a person can type, an action's id."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection

__all__ = ["CODE_LETTERS", "make_action_id", "make_code", "make_token", "token_partition", "token_sha256"]

CODE_LETTERS = "34679ACDEFGHJKMNPQRTUVWXY"
"""No two that look alike, written or spoken: neither 0 O, 1 I L, 2 Z, 5 S nor 8 B."""
_DIGITS = "34679"


def make_action_id() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(16)


def make_token(partition: str) -> str:
    """What a button carries: the partition's two digits and 128 random bits, 24 characters in all.

    Telegram allows 64 bytes (Bot API, InlineKeyboardButton.callback_data).
    """
    return f"{partition}{secrets.token_urlsafe(16)}"


def token_partition(token: str) -> str | None:
    """The partition a token of ours names, or None for what cannot be one."""
    return token[:2] if len(token) == 24 and token[:2].isascii() and token[:2].isdigit() else None


def token_sha256(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def make_code(taken: Collection[str]) -> str:
    """Four characters with at least one digit, not among those taken."""
    while True:
        code = "".join(secrets.choice(CODE_LETTERS) for _ in range(4))
        if any(char in _DIGITS for char in code) and code not in taken:
            return code

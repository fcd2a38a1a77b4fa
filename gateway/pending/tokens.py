"""Random names: the token of a button, the code of a prompt, the id and the salt of an action."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection

CODE_LETTERS = "34679ACDEFGHJKMNPQRTUVWXY"
"""The characters of codes. None looks or sounds like another: neither 0 O, 1 I L, 2 Z, 5 S nor 8 B."""
_DIGITS = "34679"


def make_action_id() -> str:
    """Return 128 random bits in hex."""
    return secrets.token_hex(16)


def make_salt() -> str:
    """Return 128 random bits in hex, for the digest of an action."""
    return secrets.token_hex(16)


def make_token(partition: str) -> str:
    """Return the token of a button: the partition's two digits and 128 random bits, 24 characters in all.

    Telegram allows 64 bytes (Bot API, InlineKeyboardButton.callback_data).
    """
    return f"{partition}{secrets.token_urlsafe(16)}"


def token_partition(token: str) -> str | None:
    """Return the partition named in a token; None if the text cannot be a token."""
    return token[:2] if len(token) == 24 and token[:2].isascii() and token[:2].isdigit() else None


def token_sha256(token: str) -> str:
    """Return the SHA-256 of a token. Only this hash is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def make_code(taken: Collection[str]) -> str:
    """Return a new code: four characters with at least one digit, not among the taken codes."""
    while True:
        code = "".join(secrets.choice(CODE_LETTERS) for _ in range(4))
        if any(char in _DIGITS for char in code) and code not in taken:
            return code

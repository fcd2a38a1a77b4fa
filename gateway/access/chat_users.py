"""The people logged in on the page of the web chat, as told by the author's `chat_user`."""

from __future__ import annotations

import re
from typing import Final

from channels import Person
from channels.webchat.verify import SITE
from gateway.config.options import WrongOption

_USER_ID: Final = re.compile(r"[A-Za-z0-9._@+|=~-]{0,127}[A-Za-z0-9_@+|=~-]")
"""The characters that read the same in a list of persons, a written person, an address, a path and a sentence."""
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
_MOST_NAME: Final = 100
_SHOULD_BE: Final = {
    "user_id": (
        "should be a string of 1 to 128 characters of A-Z, a-z, 0-9 and . _ @ + | = ~ - without a dot at the end: "
        "pass the number of the account, or a hash of its id"
    ),
    "name": "should be a string or None",
    "language": "should be a language tag like de or pt-BR, or None",
}


class ChatUser:
    """The person logged in on the page of the web chat: ``webchat:site:<user_id>``.

    `user_id`: the person's lasting id at the site, never given to another person. `name`: shown to approvers and to the
    model, cut to 100 characters. `language`: a BCP 47 tag; None: the browser's.
    """

    def __init__(self, user_id: str, *, name: str | None = None, language: str | None = None) -> None:
        """Raises WrongOption for an id of other characters, and for a language that is no tag."""
        fits = {
            "user_id": isinstance(user_id, str) and _USER_ID.fullmatch(user_id),
            "name": name is None or isinstance(name, str),
            "language": language is None or (isinstance(language, str) and _LANGUAGE.fullmatch(language)),
        }
        if issues := {option: _SHOULD_BE[option] for option, does_fit in fits.items() if not does_fit}:
            raise WrongOption("ChatUser", issues)  # without the values, which are of a person
        words = " ".join("".join(char if char.isprintable() else " " for char in name or "").split())
        self.user_id, self.name = user_id, words[:_MOST_NAME] or None
        self.language = language.replace("_", "-") if language is not None else None

    def __repr__(self) -> str:
        return f"ChatUser({self.user_id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatUser) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.user_id)

    def as_person(self, language: str | None) -> Person:
        """Return the person. `language`: the browser's, where the site names none."""
        return Person(
            channel="webchat",
            account=SITE,
            user_id=self.user_id,
            name=self.name,
            language=self.language or language,
        )

"""The permissions given by people for a while, as the witness saw them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.machine.things import NEAR, Thing

__all__ = ["PERMITTED_COPIES", "PERMITTED_SECONDS", "PERMITTED_USES", "Permissions", "Where"]

PERMITTED_SECONDS, PERMITTED_USES, PERMITTED_COPIES = 400.0, 2, 2
Where = tuple[str, str, str, str]
"""The giver, the chat, the tool, and the folder that stays the same."""


@dataclass(eq=False)
class _Permission:
    giver: Thing
    where: Where
    release: int
    until: float
    uses: set[str] = field(default_factory=set)
    """The keys of the effects."""
    revoked: bool = False


class Permissions:
    """The book. A possible permission counts: the book is never narrower than the gateway.

    A permission begins with the choosing yes. The gateway gives the permission later, at the launch, or never. An
    action reported as not happening gives none.
    """

    def __init__(self) -> None:
        self._given: list[_Permission] = []

    def give(self, giver: Thing, now: float) -> None:
        where = giver.requester, giver.place, giver.tool, giver.folder
        self._given.append(_Permission(giver, where, giver.release, now + PERMITTED_SECONDS + NEAR))

    def revoke(self, person: str, place: str) -> None:
        """Revoke the person's permissions here. All work since the person's /stop must be done."""
        for permission in self._given:
            permission.revoked = permission.revoked or permission.where[:2] == (person, place)

    def use(self, where: Where, key: str, release: int, asked_at: float, copies: int) -> bool:
        """Count a use of the permission with the earliest end; False without one. A repeated effect counts once."""
        if copies > PERMITTED_COPIES:
            return False
        if self.is_used_by(key):
            return True
        fits = [
            each
            for each in sorted(self._given, key=lambda each: each.until)
            if (each.where, each.release, each.revoked) == (where, release, False)
            and asked_at <= each.until
            and len(each.uses) < PERMITTED_USES
            and (not each.giver.ended or each.giver.changed)
        ]
        for permission in fits[:1]:
            permission.uses.add(key)
        return bool(fits)

    def is_used_by(self, key: str) -> bool:
        return any(key in permission.uses for permission in self._given)

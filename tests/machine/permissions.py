"""The permissions that people have given for a while, as the witness saw them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.machine.things import NEAR, Thing

__all__ = ["PERMITTED_COPIES", "PERMITTED_SECONDS", "PERMITTED_USES", "Permissions", "Where"]

PERMITTED_SECONDS, PERMITTED_USES, PERMITTED_COPIES = 400.0, 2, 2
Where = tuple[str, str, str, str]
"""Who allows it, in which chat, the tool, and the folder that stays the same."""


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
    """The book. What may be a permission is one: it is never narrower than that of the gateway.

    It begins with the yes that chooses it. The gateway gives it later, at the launch, or never; what people were told
    will not happen gives none.
    """

    def __init__(self) -> None:
        self._given: list[_Permission] = []

    def give(self, giver: Thing, now: float) -> None:
        where = giver.requester, giver.place, giver.tool, giver.folder
        self._given.append(_Permission(giver, where, giver.release, now + PERMITTED_SECONDS + NEAR))

    def revoke(self, person: str, place: str) -> None:
        """Everything is worked off since this person has said /stop there."""
        for permission in self._given:
            permission.revoked = permission.revoked or permission.where[:2] == (person, place)

    def use(self, where: Where, key: str, release: int, asked_at: float, copies: int) -> bool:
        """Count the use of the permission that ends first; False without one. A repeated effect is the same use."""
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

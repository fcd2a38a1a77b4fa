"""The Lua scripts, as loaded by Redis. The first lines of each file in `gateway/store/lua` are the documentation.

A script for removing or continuing work runs even on a server with full memory (`allow-oom`): people can still decide
and running work can still end. A script for only adding work is refused there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Literal

from gateway.store.form import FORM
from gateway.store.types import FOLDED_AFTER_SECONDS

_DIRECTORY = files("gateway.store") / "lua"
_COMMON = ("common", "lanes", "mailbox", "records", "leases")

_Flag = Literal["allow-oom", "no-writes", ""]


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the hash for finding the script on the server."""

    name: str
    flag: _Flag
    text: str = field(init=False)
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        first = f"#!lua flags={self.flag}" if self.flag else "#!lua"
        parts = [(_DIRECTORY / f"{part}.lua").read_text() for part in (*_COMMON, self.name)]
        object.__setattr__(
            self,
            "text",
            "\n".join(
                [
                    first,
                    f"local FORM = {FORM}",
                    f"local FOLDED_AFTER_SECONDS = {FOLDED_AFTER_SECONDS:.0f}",
                    *parts,
                ]
            ),
        )
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


ACCEPT = Script("accept", "allow-oom")
ACCEPT_NEW = Script("accept", "")
COMMIT = Script("commit", "allow-oom")
ADD = Script("commit", "")
LEASE = Script("lease", "allow-oom")
RENEW = Script("renew", "allow-oom")
GIVE_BACK = Script("give_back", "allow-oom")
FIRE_TIMERS = Script("fire_timers", "allow-oom")
DUE_TIMERS = Script("due_timers", "allow-oom")
REPLAY_DEAD = Script("replay_dead", "allow-oom")
ACQUIRE = Script("acquire", "allow-oom")
FORGET = Script("forget", "allow-oom")
TIMERS = Script("timers", "no-writes")
MAILBOXES = Script("mailboxes", "no-writes")
IN_MAILBOX = Script("in_mailbox", "no-writes")
DROP_SOME = Script("drop_some", "allow-oom")
PEEK = Script("peek", "no-writes")
GET = Script("get", "no-writes")
SCAN = Script("scan", "no-writes")
READ = Script("read", "no-writes")
STAMPS = Script("stamps", "no-writes")
SPENT = Script("spent", "no-writes")
ALL_SPENT = Script("all_spent", "no-writes")
PENDING_DECISIONS = Script("pending_decisions", "no-writes")
OUTBOX = Script("outbox", "no-writes")
HAS_WORK = Script("has_work", "no-writes")
IS_HELD = Script("is_held", "no-writes")
GET_DEAD = Script("get_dead", "no-writes")
DEAD_LETTERS = Script("dead_letters", "no-writes")
STATS = Script("stats", "no-writes")
WAITING = Script("waiting", "no-writes")

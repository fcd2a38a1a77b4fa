"""The names of all records and logs: one function each, with the writer and the time to live.

A record or log lives in the partition of its conversation, unless it says otherwise. `key` makes a `Key` of a name.
Records of actions, indexes, newcomers and admitted people are sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol

from gateway.store.types import Key

_P = ParamSpec("_P")

ACTION: Final = "action"
"""The prefix of `action`, for a prefetch."""
INDEX: Final = "open"
"""The prefix of `index`, for a prefetch."""
FOLDED_NOTES: Final = "notes"
"""The prefix of `folded_notes`, for a prefetch."""
TRANSCRIPT: Final = "transcript"
"""The prefix of `transcript`, for a prefetch."""
PEOPLE: Final = "people"
"""The prefix of `people`, for a prefetch."""
REPEATED: Final = "repeated"
"""The prefix of `repeated`, for a prefetch."""
MEMORIES: Final = ("summary", "entities", "relations")
"""The memories that a conversation may have; see `memory`."""
ADMITTED: Final = "admitted/"
"""The prefix of `admitted`, for a scan."""
SHAPES: Final = "shape/"
"""The prefix of `shape`, for a scan."""
PSEUDONYMS: Final = "pseudonym/"
"""The prefix of `pseudonym`, for a scan."""
FILES: Final = "file/"
"""The beginning of `kept_file`."""
NEWCOMERS: Final = "newcomers"
"""Record, in the partition of its own name: the last newcomers. Written by pairing, for a day after the last one."""
SERVED: Final = "served"
"""Record, in the partition of its own name: the name of the bot that this store serves. Written by the operations."""
REACHED: Final = "reached"
"""Record, in the partition of its own name: the shared limits that were reached lately. Written by whoever reaches one;
an hour."""
ENDED_SESSIONS: Final = "ended_sessions"
"""Record, in the partition of its own name: the moment up to which all sessions of the web chat were ended. Written by
the operations; as long as such a session could have lasted."""
EXPIRY: Final = "expiry"
"""Record, in the partition of its own name: when the next sweep of expired data is due. Written by the sweep; kept."""
AUDIT: Final = "audit"
"""Log, one a partition: the chained audit lines of all actions, which name people by pseudonyms. Written with each
change of an action; `audit` days of `ASKFIRST_RETENTION`."""
SECURITY: Final = "security"
"""Log, one a partition: refused presses and forged records. Written by decisions and by the inbox; the last ones,
`security` days of `ASKFIRST_RETENTION`."""


class _Partitions(Protocol):
    def partition(self, conversation: str) -> str: ...


def key(
    store: _Partitions,
    conversation: str,
    name: Callable[Concatenate[str, _P], str],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> Key:
    """Return the key of a conversation's record or log: ``key(store, conversation, transcript)``."""
    return Key(store.partition(conversation), name(conversation, *args, **kwargs))


def transcript(conversation: str) -> str:
    """Log: the messages of the conversation as the model reads them. Written by each turn; `transcript`
    days of `ASKFIRST_RETENTION`."""
    return f"{TRANSCRIPT}/{conversation}"


def visible_log(conversation: str) -> str:
    """Log: the lines that the person saw, for pages that read them from the gateway. Written by turns, decisions and
    delivery; `visible` days of `ASKFIRST_RETENTION`."""
    return f"visible/{conversation}"


def people(conversation: str) -> str:
    """Record: who wrote here, and whether it is a group. Written by the turn in which a person writes first;
    `transcript` days of `ASKFIRST_RETENTION` after its last write."""
    return f"{PEOPLE}/{conversation}"


def index(conversation: str) -> str:
    """Record: the conversation's actions in short. Written with each change of an action; 30 days after its last open
    action."""
    return f"{INDEX}/{conversation}"


def folded_notes(conversation: str) -> str:
    """Record: the notes for the model that no turn has read. Written by turns without a message; kept until a turn
    reads it."""
    return f"{FOLDED_NOTES}/{conversation}"


def memory(lane: str, what: str) -> str:
    """Record, in the partition of a memory lane: a summary, entities or relations. Written by that lane; `transcript`
    days of `ASKFIRST_RETENTION` after its last write."""
    return f"memory/{what}/{lane}"


def knowledge(lane: str) -> str:
    """Record, in the partition of a person's memory lane: the facts about that person. Written by that lane;
    `transcript` days of `ASKFIRST_RETENTION` after its last write."""
    return f"knowledge/{lane}"


def waits(lane: str) -> str:
    """Record, in the partition of a person's memory lane: the last questions to that person in groups. Written by that
    lane; two days after the last one."""
    return f"waits/{lane}"


def memory_epoch(conversation: str) -> str:
    """Record: the event that last emptied the transcript. Memories of an earlier epoch do not count. Written by turns
    and decisions; `transcript` days of `ASKFIRST_RETENTION`."""
    return f"memory_epoch/{conversation}"


def repeated(conversation: str) -> str:
    """Record: the text that a person repeats and that is not answered any more. Written by turns, sealed; deleted when
    another text comes, else after a day."""
    return f"{REPEATED}/{conversation}"


def streamed(conversation: str) -> str:
    """Record: the messages that show the text of the running turn, with its run. Written by turns, sealed; deleted
    when the turn ends, else after a day."""
    return f"streamed/{conversation}"


def failures(conversation: str) -> str:
    """Record: how the failed attempts of the turn at the mailbox's head ended. Written by failed turns; deleted when a
    turn ends."""
    return f"failures/{conversation}"


def addressed(conversation: str) -> str:
    """Record: the ids of the messages of a thread or topic that addressed the bot. Written by addressing; one day."""
    return f"asked/{conversation}"


def overheard(conversation: str) -> str:
    """Record: the last messages of a group that were not for the bot. Written by addressing; one day."""
    return f"beside/{conversation}"


def before_move(conversation: str) -> str:
    """Record: the conversation that a group was before the platform gave it a new address. Written by the inbox;
    kept."""
    return f"moved/{conversation}"


def links(conversation: str) -> str:
    """Record: the series of the conversation's links to files. Written when its links end; kept."""
    return f"links/{conversation}"


def opted_out(conversation: str) -> str:
    """Record: the person wants no messages. Written by turns and delivery; kept until the person opts in."""
    return f"opted_out/{conversation}"


def unreachable(conversation: str) -> str:
    """Record: the platform lets no message through. Written by delivery; one day, or until the person writes."""
    return f"unreachable/{conversation}"


def turn_result(conversation: str, message_id: str) -> str:
    """Record: how the turn of a call of the bot's own code ended. Written by that turn; ten minutes."""
    return f"word/{message_id}/{conversation}"


def trace(conversation: str, run_id: str) -> str:
    """Record: the trace of a turn, in its bounded form. Written by that turn; `ASKFIRST_TRACES_TTL_SECONDS`."""
    return f"trace/{run_id}/{conversation}"


def raw_results(conversation: str, tool_name: str) -> str:
    """Record: results of a tool before they were shortened, of the last turn that had any. Written by that turn; one
    day."""
    return f"raw/{tool_name}/{conversation}"


def budget_told(conversation: str, person: str) -> str:
    """Record: the end of the window in which the person was told here that a budget is used up. Written by turns; until
    that end."""
    return f"budget_told/{person}/{conversation}"


def reserved(holder: str) -> str:
    """Record, in the partition of a person or a bot: the budget that their running turns hold. Written by turns before
    and after each call to the model; until the last reservation lapses."""
    return f"reserved/{holder}"


def attempt_state(conversation: str, part_id: str) -> str:
    """Record: the attempt state of a part. Written by its sender; one day."""
    return f"doubt/{part_id}/{conversation}"


def platform_message(conversation: str, message_id: str) -> str:
    """Record: the part and the delivery reports of a platform's message. Written by receipts and reports; one day."""
    return f"message/{message_id}/{conversation}"


def part_message(conversation: str, part_id: str) -> str:
    """Record: the platform's id of a part that was accepted, from a report that came before the receipt. Written by
    reports; one day."""
    return f"taken/{part_id}/{conversation}"


def poller(channel: str) -> str:
    """Record, in the partition of the channel's name: the worker that polls it. Written by that worker; as long as a
    lease."""
    return f"poller/{channel}"


def kept_file(person: str, sha256: str) -> str:
    """Record, in the partition of the person: a file was kept for them, by the SHA-256 of its bytes. Written before
    the file; as long as the file."""
    return f"{FILES}{sha256}/{person}"


def action(action_id: str) -> str:
    """Record: an action. Written by its changes; 30 days after it settled, kept before."""
    return f"{ACTION}/{action_id}"


def pseudonym(person: str) -> str:
    """Record, in each partition with audit lines about the person: the key of their pseudonym in these lines. Written
    with the first of them; kept until the person is forgotten."""
    return f"{PSEUDONYMS}{person}"


def token(sha256: str) -> str:
    """Record: the action and the conversation of a button, by the SHA-256 of its token. Written with the prompt; as
    long as the action can be answered for."""
    return f"token/{sha256}"


def tool_lock(sha256: str) -> str:
    """Record, in the partition of this hash of a lock's name: the owner of a tool's lock. Written by the process that
    runs the tool; as long as a lease."""
    return f"lock/{sha256}"


def heartbeat(action_id: str) -> str:
    """Record: the process that runs a pending store's action is alive. Written by that process; 30 days, and deleted
    when the action ends."""
    return f"alive/{action_id}"


def seed_slot(conversation: str) -> str:
    """Record: an action of a pending store waits in this scope, with the end of its time. Written with each change;
    until that end."""
    return f"seed/{conversation}"


def admitted(person: str) -> str:
    """Record, in the partition of the person: an admitted newcomer. Written by pairing; kept until expelled."""
    return f"{ADMITTED}{person}"


def ended_session(sha256: str) -> str:
    """Record, in the partition of this hash of a session: the web chat's session was ended. Written by its person or by
    the operations; as long as the session could have lasted."""
    return f"ended_session/{sha256}"


def shape(conversation: str, name: str) -> str:
    """Record: the count of a payload's shape that no channel could read. Written by the inbox; 30 days."""
    return f"{SHAPES}{conversation}/{name}"

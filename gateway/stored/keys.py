"""The names of all records and logs: a function for each, with the writer and the time to live.

A record or log lives in the partition of the conversation, unless another partition is named. `key` makes a `Key` of a
name. Records of actions, indexes, newcomers and admitted people are sealed.
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
MISSED: Final = "missed"
"""The prefix of `missed`, for a prefetch."""
MEMORIES: Final = ("summary", "entities", "relations")
"""The memories of a conversation; see `memory`."""
ADMITTED: Final = "admitted/"
"""The prefix of `admitted`, for a scan."""
SHAPES: Final = "shape/"
"""The prefix of `shape`, for a scan."""
PSEUDONYMS: Final = "pseudonym/"
"""The prefix of `pseudonym`, for a scan."""
FILES: Final = "file/"
"""The prefix of `kept_file`."""
SHORT_LINKS: Final = "link/"
"""The prefix of `short_link`."""
NEWCOMERS: Final = "newcomers"
"""Record, in the partition of the same name: the last newcomers. Written by pairing; a day after the last newcomer."""
SERVED: Final = "served"
"""Record, in the partition of the same name: the name of this store's bot. Written by the operations."""
WORDING: Final = "wording"
"""Record, in the partition of the same name, sealed: the wording of the served bot. Written by the operations."""
REACHED: Final = "reached"
"""Record, in the partition of the same name: the recently reached shared limits.

Written by the process at the limit; an hour.
"""
ENDED_SESSIONS: Final = "ended_sessions"
"""Record, in the partition of the same name: the moment of the last ending of all web chat sessions.

Written by the operations; as long as a session from before could have lasted.
"""
EXPIRY: Final = "expiry"
"""Record, in the partition of the same name: the time of the next expiry sweep. Written by the sweep; kept."""
AUDIT: Final = "audit"
"""Log, one a partition: the chained audit lines of all actions, with pseudonyms of people.

Written with each change of an action; `audit` days of `ASKFIRST_RETENTION`.
"""
SECURITY: Final = "security"
"""Log, one a partition: refused presses and forged records.

Written by decisions and by the inbox; the last lines, `security` days of `ASKFIRST_RETENTION`.
"""


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
    """Log: the messages of the conversation, as read by the model.

    Written by each turn; `transcript` days of `ASKFIRST_RETENTION`.
    """
    return f"{TRANSCRIPT}/{conversation}"


def visible_log(conversation: str) -> str:
    """Log: the lines shown to the person, for pages reading from the gateway.

    Written by turns, decisions and delivery; `visible` days of `ASKFIRST_RETENTION`.
    """
    return f"visible/{conversation}"


def people(conversation: str) -> str:
    """Record: the people of the conversation, and the mark of a group.

    Written by the turn of a person's first message; `transcript` days of `ASKFIRST_RETENTION` after the last write.
    """
    return f"{PEOPLE}/{conversation}"


def index(conversation: str) -> str:
    """Record: the conversation's actions in short.

    Written with each change of an action; 30 days after the last open action.
    """
    return f"{INDEX}/{conversation}"


def folded_notes(conversation: str) -> str:
    """Record: the notes for the model, not read by a turn yet.

    Written by turns without a message; kept until read by a turn.
    """
    return f"{FOLDED_NOTES}/{conversation}"


def memory(lane: str, what: str) -> str:
    """Record, in the partition of a memory lane: a summary, entities or relations.

    Written by the lane; `transcript` days of `ASKFIRST_RETENTION` after the last write.
    """
    return f"memory/{what}/{lane}"


def knowledge(lane: str) -> str:
    """Record, in the partition of a person's memory lane: the facts about the person.

    Written by the lane; `transcript` days of `ASKFIRST_RETENTION` after the last write.
    """
    return f"knowledge/{lane}"


def waits(lane: str) -> str:
    """Record, in the partition of a person's memory lane: the last questions to the person in groups.

    Written by the lane; two days after the last question.
    """
    return f"waits/{lane}"


def memory_epoch(conversation: str) -> str:
    """Record: the last event to empty the transcript. Memories of an earlier epoch do not count.

    Written by turns and decisions; `transcript` days of `ASKFIRST_RETENTION`.
    """
    return f"memory_epoch/{conversation}"


def repeated(conversation: str) -> str:
    """Record: a text repeated by a person and not answered any more.

    Written by turns, sealed; deleted when another text comes, else after a day.
    """
    return f"{REPEATED}/{conversation}"


def beside(conversation: str, who: object) -> str:
    """Return the name of another conversation with the same bot: of an address, or a person's own.

    On platforms where the chat's id is the person's id, a person's own conversation is the private chat.
    """
    return f"{conversation.partition('/')[0]}/{who}"


def missed(conversation: str) -> str:
    """Record: news of ended actions with no place to be told, for the next message of the person.

    The conversation is the person's own; see `beside`. Written by the decision lane, sealed; deleted when told, else
    after 30 days.
    """
    return f"{MISSED}/{conversation}"


def streamed(conversation: str) -> str:
    """Record: the messages with the text of the running turn, and the run.

    Written by turns, sealed; deleted at the end of the turn, else after a day.
    """
    return f"streamed/{conversation}"


def failures(conversation: str) -> str:
    """Record: the outcomes of the failed attempts of the turn at the mailbox's head.

    Written by failed turns; deleted at the end of a turn.
    """
    return f"failures/{conversation}"


def addressed(conversation: str) -> str:
    """Record: the ids of the messages to the bot in a thread or topic. Written by addressing; one day."""
    return f"asked/{conversation}"


def overheard(conversation: str) -> str:
    """Record: the last messages of a group to others than the bot. Written by addressing; one day."""
    return f"beside/{conversation}"


def before_move(conversation: str) -> str:
    """Record: the conversation of a group before the platform gave a new address. Written by the inbox; kept."""
    return f"moved/{conversation}"


def links(conversation: str) -> str:
    """Record: the series of the conversation's links to files. Written when the links end; kept."""
    return f"links/{conversation}"


def short_link(sha256: str) -> str:
    """Record: the conversation and the rest of a link to a file, by the SHA-256 of the link's short token.

    Written before the link is sent; as long as the link.
    """
    return f"{SHORT_LINKS}{sha256}"


def opted_out(conversation: str) -> str:
    """Record: the person wants no messages. Written by turns and delivery; kept until the person opts in."""
    return f"opted_out/{conversation}"


def unreachable(conversation: str) -> str:
    """Record: the platform delivers no messages. Written by delivery; one day, or until the person writes."""
    return f"unreachable/{conversation}"


def turn_result(conversation: str, message_id: str) -> str:
    """Record: the result of a turn called by the bot's own code. Written by the turn; ten minutes."""
    return f"word/{message_id}/{conversation}"


def trace(conversation: str, run_id: str) -> str:
    """Record: the trace of a turn, in the bounded form. Written by the turn; `ASKFIRST_TRACES_TTL_SECONDS`."""
    return f"trace/{run_id}/{conversation}"


def raw_results(conversation: str, tool_name: str) -> str:
    """Record: results of a tool before shortening, from the last turn with results.

    Written by the turn; one day.
    """
    return f"raw/{tool_name}/{conversation}"


def budget_told(conversation: str, person: str) -> str:
    """Record: the end of the current budget window, after notifying the person here of a used-up budget.

    Written by turns; until the end of the window.
    """
    return f"budget_told/{person}/{conversation}"


def reserved(holder: str) -> str:
    """Record, in the partition of a person or a bot: the budget reserved by running turns.

    Written by turns before and after each call to the model; until the last reservation lapses.
    """
    return f"reserved/{holder}"


def attempt_state(conversation: str, part_id: str) -> str:
    """Record: the attempt state of a part. Written by the sender; one day."""
    return f"doubt/{part_id}/{conversation}"


def platform_message(conversation: str, message_id: str) -> str:
    """Record: the part and the delivery reports of a platform's message. Written by receipts and reports; one day."""
    return f"message/{message_id}/{conversation}"


def part_message(conversation: str, part_id: str) -> str:
    """Record: the platform's id of an accepted part, from a report before the receipt. Written by reports; one day."""
    return f"taken/{part_id}/{conversation}"


def poller(channel: str) -> str:
    """Record, in the partition of the channel's name: the polling worker. Written by the worker; as long as a lease."""
    return f"poller/{channel}"


def kept_file(person: str, sha256: str) -> str:
    """Record, in the partition of the person: the note of a file kept for the person, by the SHA-256 of the bytes.

    Written before the file; as long as the file.
    """
    return f"{FILES}{sha256}/{person}"


def action(action_id: str) -> str:
    """Record: an action. Written by changes of the action; kept until settled, then for 30 days."""
    return f"{ACTION}/{action_id}"


def pseudonym(person: str) -> str:
    """Record, in each partition with audit lines about the person: the key of the pseudonym in these lines.

    Written with the first line; kept until the person is forgotten.
    """
    return f"{PSEUDONYMS}{person}"


def token(sha256: str) -> str:
    """Record: the action and the conversation of a button, by the SHA-256 of the token.

    Written with the prompt; as long as the action accepts answers.
    """
    return f"token/{sha256}"


def tool_lock(sha256: str) -> str:
    """Record, in the partition of this hash of a lock's name: the owner of a tool's lock.

    Written by the process running the tool; as long as a lease.
    """
    return f"lock/{sha256}"


def heartbeat(action_id: str) -> str:
    """Record: the process running a pending store's action is alive.

    Written by the process; 30 days, and deleted at the end of the action.
    """
    return f"alive/{action_id}"


def seed_slot(conversation: str) -> str:
    """Record: an action of a pending store waits in this scope, with the end of the waiting time.

    Written with each change; until the end of the waiting time.
    """
    return f"seed/{conversation}"


def admitted(person: str) -> str:
    """Record, in the partition of the person: an admitted newcomer. Written by pairing; kept until expelled."""
    return f"{ADMITTED}{person}"


def chats(person: str) -> str:
    """Record, in the partition of the person: the ids of the person's chats on the page of the web chat.

    Written by the page with a chat's first message of a day; a year after the last write.
    """
    return f"chats/{person}"


def ended_session(sha256: str) -> str:
    """Record, in the partition of this hash: a session of the web chat, or a person's sessions until then, have ended.

    Written by the page or by the operations; as long as the session could have lasted.
    """
    return f"ended_session/{sha256}"


def shape(conversation: str, name: str) -> str:
    """Record: the count of a payload's shape unknown to every channel. Written by the inbox; 30 days."""
    return f"{SHAPES}{conversation}/{name}"

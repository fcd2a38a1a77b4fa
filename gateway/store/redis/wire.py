"""The arguments and the answers of the scripts, converted from and to the values of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.store.codec import (
    dead_to_text,
    decode_body,
    decode_loosely,
    encode,
    incoming_to_text,
    lines_of,
    micros,
    moment,
    open_letter,
    span,
    stamp_of,
)
from gateway.store.redis.client import Value
from gateway.store.redis.keys import PARTITIONS, to_bytes
from gateway.store.transaction import Transaction
from gateway.store.types import Cell, Dead, Incoming, Key, Kind, Lease, Prefetch, QueuedPart, Record, Snapshot, Waiting


def text_of(name: bytes) -> str:
    """Return the name of bytes from `to_bytes`."""
    return name.decode("utf-8", "surrogatepass")


def summed(counts: Sequence[Sequence[Any]]) -> Mapping[str, int]:
    """Return the sums of all partitions' counts. Each partition has a list of names, each followed by the count."""
    found: Counter[str] = Counter()
    for pairs in counts:
        for name, count in zip(pairs[::2], pairs[1::2], strict=True):
            found[text_of(name)] += count
    return found


# ───────────── arguments ─────────────


def check(transaction: Transaction, partition_of: Callable[[str], str]) -> None:
    """Raise ValueError for a transaction unacceptable in every state of the store."""
    partition = transaction.partition
    if partition not in PARTITIONS:
        raise ValueError(f"there is no partition {partition!r}")
    transaction.check()
    for conversation in transaction.conversations():
        if partition_of(conversation) != partition:
            raise ValueError(f"{conversation} is of partition {partition_of(conversation)}, not {partition}")


def only_adds(transaction: Transaction) -> bool:
    """Return True for a transaction without removal of work, refused by a server with full memory."""
    takes_off = (
        transaction.consume,
        transaction.drop_pointers,
        transaction.sent,
        transaction.cut,
        transaction.rewrite,
    )
    return transaction.lease is None and not any(takes_off)


def ready_indexes(kinds: Sequence[Kind], pool: str) -> list[tuple[Kind, bytes]]:
    """Return the kinds, each with the index of the ready lanes, also the topic of the notifications."""
    return [(kind, to_bytes(f"{kind}/{pool}" if kind == "out" and pool else kind)) for kind in kinds]


def lane_arguments(kinds: Sequence[Kind], only: str | None, pool: str) -> list[Value]:
    """Return a query for lanes, for `read_query` in lanes.lua."""
    looks = [word for pair in ready_indexes(kinds, pool) for word in pair]
    return [len(looks), *looks, *([0] if only is None else [1, to_bytes(only)])]


def prefetch_arguments(prefetch: Prefetch) -> list[Value]:
    """Return a prefetch, for `take_lane` in leases.lua."""
    return [prefetch.log or "", prefetch.last, *prefetch.records]


def event_arguments(event: Incoming) -> list[Value]:
    """Return an event, for `read_event` in mailbox.lua."""
    ids = [to_bytes(event_id) for event_id in dict.fromkeys(event.event_ids)]
    return [
        to_bytes(event.conversation),
        "" if event.stamp is None else micros(event.stamp),
        encode(event.body),
        event.decides | event.wakes << 1 | event.collects << 2 | event.refusable << 3 | (event.kind == "memory") << 4,
        "" if event.about is None else to_bytes(event.about),
        span(event.keep_seconds),
        len(ids),
        *ids,
    ]


def part_arguments(part: QueuedPart) -> list[Value]:
    """Return a part, for `queue` in mailbox.lua."""
    return [to_bytes(part.part_id), to_bytes(part.conversation), encode(part.body), to_bytes(part.pool)]


def lease_arguments(lease: Lease) -> list[Value]:
    """Return the kind, lane and fence of a lease, for `hold` in lanes.lua."""
    return [lease.kind, to_bytes(lease.lane), lease.fence]


def cell_arguments(cell: Cell) -> list[Value]:
    """Return a rate: the name, the cost, and the greatest lead, both in microseconds."""
    return [
        to_bytes(cell.name),
        cell.cost_micros,
        span(cell.period_seconds),
    ]


def operations(transaction: Transaction, partition_of: Callable[[str], str]) -> list[Value]:
    """Return the operations of a transaction, for commit.lua."""
    sent: list[Value] = []
    for name, *arguments in _operations(transaction, partition_of):
        sent += [name, *([] if name == "accept" else [len(arguments)])]  # the arguments of an event tell its end
        sent += [to_bytes(a) if isinstance(a, str) else a for a in arguments]
    return sent


def leaves(transaction: Transaction, partition_of: Callable[[str], str]) -> bool:
    """Return True for a transaction with an event for another partition."""
    return any(partition_of(event.conversation) != transaction.partition for event in transaction.hand_over)


def _records_and_logs(transaction: Transaction) -> Iterator[tuple[Value, ...]]:
    for name, new in transaction.puts.items():
        keep = "" if new.ttl_seconds is None else span(new.ttl_seconds)
        yield "put", name, encode(new.value), "same" if new.keeps_end else keep
    for name in transaction.deletes:
        yield "delete", name
    for cut in transaction.cut:
        yield "cut", to_bytes(cut.log), "" if cut.upto is None else cut.upto, cut.keep
    for log, seq, line in transaction.rewrite:
        yield "rewrite", log, seq, encode(line)
    for log, line in transaction.appends:
        yield "append", log, encode(line)


def _operations(transaction: Transaction, partition_of: Callable[[str], str]) -> Iterator[tuple[Value, ...]]:
    """Yield the operations in the order of effect, with values as JSON text."""
    lease = transaction.lease
    if lease is not None:
        yield "hold", lease.kind, lease.lane, lease.fence
    if transaction.not_after is not None:
        yield "not_after", micros(transaction.not_after)
    for name, version in transaction.expect.items():
        yield "expect", name, version
    yield from _records_and_logs(transaction)
    for conversation, seq in transaction.consume:
        yield "consume", conversation, seq
    for conversation, seq in transaction.drop_pointers:
        yield "drop_pointer", conversation, seq
    for conversation, seq, body in transaction.replace:
        yield "replace", conversation, seq, encode(body)
    for event in transaction.accept:
        yield "accept", *event_arguments(event)
    for event in transaction.hand_over:
        if partition_of(event.conversation) == transaction.partition:
            yield "accept", *event_arguments(event)
        elif event.stamp is not None:  # a timer that is due at once: firing one stores it in its own partition
            yield "timer", f"handover/{event.event_ids[0]}", micros(event.stamp), incoming_to_text(event)
    for part in transaction.parts:
        yield "part", *part_arguments(part)
    for part_id in transaction.sent:
        yield "sent", part_id
    for action_id in transaction.actions:
        yield "launch", action_id
    for timer in transaction.timers:
        yield "timer", timer.timer_id, micros(timer.due), incoming_to_text(timer.incoming)
    for timer_id in transaction.cancel:
        yield "cancel", timer_id
    for conversation, signal in transaction.signals:
        yield "signal", conversation, encode(signal)
    for spending in transaction.spends:
        amounts = (word for pair in spending.amounts.items() for word in pair)
        yield "spend", spending.name, span(spending.keep_seconds), *amounts
    for letter in transaction.dead:
        yield "dead", letter.dead_id, letter.conversation, letter.reason, dead_to_text(letter)
    if lease is not None:
        for step in transaction.steps:
            yield "step", lease.lane, encode(step)
        if transaction.finish is not None:
            moments = transaction.due, transaction.collect_until
            due, collect_until = ("" if each is None else micros(each) for each in moments)
            yield "finish", lease.kind, lease.lane, transaction.finish, due, collect_until
        if (chain := transaction.chain) is not None:
            worker, long = transaction.next_worker, span(chain.lease_seconds)
            yield "chain", chain.kind, chain.lane, worker, long, *prefetch_arguments(chain.prefetch)


# ───────────── answers ─────────────


def read_waiting(shown: Sequence[Any]) -> Waiting:
    """Return an event, from `show_event` in mailbox.lua."""
    seq, conversation, stamp, body, pointed, collects, kind, tries = shown
    return Waiting(
        seq=int(seq),
        conversation=text_of(conversation),
        stamp=stamp_of(stamp),
        body=decode_body(body),
        pointed=pointed == b"1",
        collects=collects == b"1",
        kind="memory" if kind == b"memory" else "turn",
        tries=int(tries),
    )


def read_parts(shown: Sequence[Sequence[bytes]]) -> list[QueuedPart]:
    """Return parts, from `show_parts` in mailbox.lua."""
    return [
        QueuedPart(
            part_id=text_of(part_id),
            conversation=text_of(conversation),
            body=decode_body(body),
            pool=text_of(pool),
            stamp=stamp_of(stamp),
            tries=int(tries),
        )
        for part_id, conversation, body, pool, stamp, tries in shown
    ]


def read_record(value: bytes | None, version: int) -> Record:
    """Return a record, from `show_record` in records.lua."""
    return Record() if value is None else Record(decode_loosely(value), version)


def read_letter(shown: Sequence[bytes]) -> Dead:
    """Return a dead letter, from dead_letters.lua."""
    seq, dead_id, conversation, reason, stamp, held = shown
    return open_letter(int(seq), text_of(dead_id), text_of(conversation), text_of(reason), int(stamp), held)


def _lines(shown: bytes) -> tuple[str, ...]:
    return tuple([line.partition(" ")[2] for line in lines_of(shown)])


def read_lease(worker: str, partition: str, shown: Sequence[Any], prefetch: Prefetch, sure_until: float) -> Lease:
    """Return a lease, from `take_lane` in leases.lua."""
    _, kind, name, fence, tries, died, events, parts, steps, now, records, lines = shown
    lane = text_of(name)
    keys = [Key(partition, f"{each}/{lane}") for each in prefetch.records]
    prefetched = Snapshot({key: read_record(*record) for key, record in zip(keys, records, strict=True)}, moment(now))
    return Lease(
        kind=kind.decode(),
        lane=lane,
        partition=partition,
        worker=worker,
        fence=fence,
        tries=tries,
        died=bool(died),
        events=tuple(map(read_waiting, events)),
        parts=tuple(read_parts(parts)),
        steps=tuple(map(decode_loosely, steps)),
        prefetched=prefetched,
        lines=_lines(lines) if lines else (),
        sure_until=sure_until,
    )

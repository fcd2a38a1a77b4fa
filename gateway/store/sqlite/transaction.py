"""Commits: first all expectations of a transaction are checked, then the changes are applied."""

from __future__ import annotations

import sqlite3

from gateway.store.codec import encode, incoming_to_text, micros, moment
from gateway.store.errors import Conflict, TooLate
from gateway.store.sqlite import lanes, leases, mailbox, records, spent
from gateway.store.sqlite.clock import Moment
from gateway.store.transaction import Committed, Transaction
from gateway.store.types import Kind


def check(transaction: Transaction) -> None:
    """Raise ValueError for a transaction unacceptable in every state of the store."""
    if transaction.partition != records.PARTITION:
        raise ValueError(f"partition {transaction.partition!r}: an embedded store has only {records.PARTITION!r}")
    transaction.check()


def apply(db: sqlite3.Connection, at: Moment, transaction: Transaction) -> Committed:
    """Apply the transaction. Raises Fenced, TooLate or Conflict; then the caller rolls back the changes before."""
    upto = _expect(db, at, transaction)
    for name, new in transaction.puts.items():
        records.put(db, at, name, new)
    for name in transaction.deletes:
        records.delete(db, at, name)
    records.cut(db, transaction.cut)
    if transaction.rewrite:
        records.rewrite(db, [(log, seq, encode(line)) for log, seq, line in transaction.rewrite])
    if transaction.appends:
        records.append(db, at, [(log, encode(line)) for log, line in transaction.appends])
    _events(db, at, transaction)
    _outbox(db, at, transaction)
    for action_id in transaction.actions:
        db.execute("INSERT INTO launch (action_id) VALUES (?)", (action_id,))
        lanes.put_off_no_more(db, "action", action_id)
        lanes.wake(db, at, "action", action_id)
    for timer in transaction.timers:
        db.execute(
            "INSERT OR REPLACE INTO timer VALUES (?, ?, ?)",
            (timer.timer_id, micros(timer.due), incoming_to_text(timer.incoming)),
        )
    for timer_id in transaction.cancel:
        db.execute("DELETE FROM timer WHERE timer_id = ?", (timer_id,))
    for conversation, signal in transaction.signals:
        leases.signal(db, conversation, encode(signal))
    spent.add(db, at, transaction.spends)
    for letter in transaction.dead:
        mailbox.keep_dead(db, at, letter)
    lease = None
    if transaction.lease is not None:
        leases.checkpoint(db, transaction.lease.lane, [encode(step) for step in transaction.steps])
        if transaction.finish is not None:
            moments = transaction.due, transaction.collect_until
            leases.finish(db, at, transaction.lease, upto, transaction.finish, *moments)
        if (chain := transaction.chain) is not None:
            lease = leases.lease(
                db, at, transaction.next_worker, [chain.kind], chain.lane, "", chain.lease_seconds, chain.prefetch
            )
            if lease is not None and all(part.conversation == lease.lane for part in transaction.parts):
                at.woken.difference_update(
                    {woken for woken in at.woken if woken[0] == lease.kind == "out"}
                )  # no other worker can lease it
    return Committed(moment(at.now), lease)


def _expect(db: sqlite3.Connection, at: Moment, transaction: Transaction) -> int:
    """Check the expectations. Return the last `seq` of the leased work; see `leases.hold`."""
    upto = 0 if transaction.lease is None else leases.hold(db, transaction.lease)
    if transaction.not_after is not None and at.now > micros(transaction.not_after):
        raise TooLate.by_clock(moment(at.now), transaction.not_after)
    for name, expected in transaction.expect.items():
        found = records.version(db, at, name)
        if found != expected:
            raise Conflict(f"record {name} has version {found}, not {expected}")
    return upto


def _clear_if_idle(db: sqlite3.Connection, at: Moment, transaction: Transaction, kind: Kind, lane: str) -> None:
    lease = transaction.lease
    if not (transaction.finish is not None and lease is not None and (lease.kind, lease.lane) == (kind, lane)):
        lanes.clear_if_idle(db, at, kind, lane)


def _events(db: sqlite3.Connection, at: Moment, transaction: Transaction) -> None:
    touched: set[tuple[Kind, str]] = set()
    for conversation, seq in transaction.consume:
        gone = db.execute(
            "DELETE FROM event WHERE seq = ? AND conversation = ? RETURNING kind", (seq, conversation)
        ).fetchall()
        if not gone:
            raise Conflict(f"event {seq} of {conversation} waits no longer")
        touched.add((gone[0][0], conversation))
    for kind, conversation in touched:
        _clear_if_idle(db, at, transaction, kind, conversation)
    for conversation, seq in transaction.drop_pointers:
        freed = db.execute(
            "UPDATE event SET pointed = 0 WHERE seq = ? AND conversation = ? AND pointed = 1 RETURNING wakes",
            (seq, conversation),
        ).fetchall()
        if not freed:
            raise Conflict(f"event {seq} of {conversation} has no pointer")
        if freed[0][0]:
            lanes.wake(db, at, "turn", conversation)
        else:
            lanes.rest(db, at, conversation)
    for conversation, seq, body in transaction.replace:
        written = db.execute(
            "UPDATE event SET body = ? WHERE seq = ? AND conversation = ?", (encode(body), seq, conversation)
        )
        if written.rowcount != 1:
            raise Conflict(f"event {seq} of {conversation} waits no longer")
    if arriving := [*transaction.accept, *transaction.hand_over]:  # all are of the one partition
        mailbox.accept(db, at, [[mailbox.arrival(event) for event in arriving]])


def _outbox(db: sqlite3.Connection, at: Moment, transaction: Transaction) -> None:
    for part in transaction.parts:
        mailbox.queue(db, at, part)
    touched: set[str] = set()
    for part_id in transaction.sent:
        gone = db.execute("DELETE FROM part WHERE part_id = ? RETURNING conversation", (part_id,)).fetchall()
        touched.update(conversation for (conversation,) in gone)
    for conversation in touched:
        _clear_if_idle(db, at, transaction, "out", conversation)

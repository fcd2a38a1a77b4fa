"""Relations: a single relation per triple, chosen by the words of the messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from channels import Json
from gateway import KnowledgeGraphMemory
from gateway.config.options import WrongOption

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def learned(memory: KnowledgeGraphMemory, known: Json, *triples: tuple[str, str, str], turn: int = 1) -> Json:
    found = [{"subject": s, "relation": r, "object": o} for s, r, o in triples]
    return memory.learn(known, json.dumps({"triples": found}), at=NOON, turn=turn).value


@pytest.mark.ledger("MEM-21")
def test_triple_has_confidence_turn_and_time() -> None:
    memory = KnowledgeGraphMemory()
    reply = {"triples": [{"subject": "Alice", "relation": "manages", "object": "Alpha", "confidence": 0.5}]}
    memory.alone = memory.learn([], json.dumps(reply), at=NOON, turn=3).value
    (triple,) = memory.triples
    assert (triple.subject, triple.relation, triple.object) == ("Alice", "manages", "Alpha")
    assert (triple.confidence, triple.turn, triple.at) == (0.5, 3, NOON)


def test_equal_triples_are_one_and_the_newest() -> None:
    memory = KnowledgeGraphMemory(max_triples=2)
    known = learned(memory, [], ("Alice", "manages", "Alpha"), ("Bo", "owns", "a boat"))
    known = learned(memory, known, ("ALICE", "Manages", "alpha"), turn=2)
    memory.alone = learned(memory, known, ("Cy", "likes", "tea"), turn=3)
    assert [(each.subject, each.turn) for each in memory.triples] == [("ALICE", 2), ("Cy", 3)]


def test_lines_are_chosen_by_shared_words_then_by_age() -> None:
    memory = KnowledgeGraphMemory(max_context_triples=2)
    known = learned(memory, [], ("Alice", "manages", "Alpha"), ("Bo", "owns", "a boat"), ("Cy", "likes", "tea"))
    assert memory.lines(known, "does ALICE manage it?") == ["Alice manages Alpha", "Cy likes tea"]
    assert memory.lines(known, "") == ["Cy likes tea", "Bo owns a boat"]


@pytest.mark.parametrize("reply", ["", "no JSON", '{"triples": [{"subject": "Alice"', '{"triples": 7}'])
def test_reply_that_cannot_be_read_is_refused(reply: str) -> None:
    with pytest.raises(ValueError):
        KnowledgeGraphMemory().learn([], reply, at=NOON, turn=1)


@pytest.mark.parametrize(
    "item", [{"subject": "Bo"}, ["Bo"], {"subject": "a", "relation": "b", "object": "c", "confidence": 7}]
)
def test_unreadable_relation_takes_no_other_along(item: Json) -> None:
    reply = json.dumps({"triples": [item, {"subject": "Alice", "relation": "manages", "object": "Alpha"}]})
    memory = KnowledgeGraphMemory()
    assert memory.lines(memory.learn([], reply, at=NOON, turn=1).value, "") == ["Alice manages Alpha"]


@pytest.mark.parametrize("option", ["max_triples", "max_context_triples", "relevance_window"])
def test_limit_below_one_is_refused(option: str) -> None:
    with pytest.raises(WrongOption, match=f"KnowledgeGraphMemory: {option}"):
        KnowledgeGraphMemory(**{option: 0})  # type: ignore[arg-type]

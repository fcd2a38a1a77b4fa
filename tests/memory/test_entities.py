"""Entities: merged by name, pruned by their last mention."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from channels import Json
from gateway import EntityMemory
from gateway.config.options import WrongOption

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def learned(memory: EntityMemory, known: Json, *names: str, at: datetime = NOON, **more: Json) -> Json:
    reply = json.dumps({"entities": [{"name": name, **more} for name in names]})
    return memory.learn(known, reply, at=at, turn=1).value


@pytest.mark.ledger("MEM-17")
def test_entity_is_merged_by_its_lower_cased_name() -> None:
    memory = EntityMemory()
    known = learned(memory, [], "Alice", type="person", attributes={"role": "buyer"})
    later = NOON + timedelta(hours=1)
    memory.alone = learned(memory, known, "ALICE", at=later, attributes={"city": "Porto"})
    (alice,) = memory.entities
    assert (alice.name, alice.type, alice.mentions) == ("Alice", "person", 2)
    assert (alice.first_mentioned, alice.last_mentioned) == (NOON, later)
    assert alice.attributes == {"role": "buyer", "city": "Porto"}


@pytest.mark.ledger("MEM-17")
def test_entities_named_longest_ago_are_pruned() -> None:
    memory = EntityMemory(max_entities=2)
    known = learned(memory, [], "Alice", "Bo")
    known = learned(memory, known, "alice")
    memory.alone = learned(memory, known, "Cy")
    assert [entity.name for entity in memory.entities] == ["Alice", "Cy"]


@pytest.mark.parametrize("reply", ["", "no JSON", '{"entities": [{"name": "A', '{"entities": "Alice"}'])
def test_reply_that_cannot_be_read_is_refused(reply: str) -> None:
    with pytest.raises(ValueError):
        EntityMemory().learn([], reply, at=NOON, turn=1)


def test_values_of_a_model_are_bounded() -> None:
    memory = EntityMemory()
    many: Json = {f"name {number}": "x\n" * 500 for number in range(50)}
    memory.alone = learned(memory, [], "A" * 5000, type="T" * 500, attributes=many)
    (entity,) = memory.entities
    assert (len(entity.name), len(entity.type), len(entity.attributes)) == (100, 30, 8)
    assert all(len(value) <= 120 and "\n" not in value for value in entity.attributes.values())
    memory.alone = learned(memory, [], *map(str, range(99)))
    assert len(memory.entities) == 30


@pytest.mark.parametrize(
    "item", [{"type": "person"}, {"name": "Bo", "type": None}, "Bo", {"name": "Bo", "attributes": 1}]
)
def test_unreadable_entity_takes_no_other_along(item: Json) -> None:
    reply = json.dumps({"entities": [item, {"name": "Alice", "type": ""}]})
    memory = EntityMemory()
    memory.alone = memory.learn([], reply, at=NOON, turn=1).value
    assert [(entity.name, entity.type) for entity in memory.entities] == [("Alice", "other")]


def test_entities_of_any_length_leave_room_for_a_conversation() -> None:
    memory = EntityMemory()
    known = learned(memory, [], *[f"{number} " + "A" * 100 for number in range(30)], attributes={"role": "x" * 120})
    lines = memory.lines(known, "")
    assert lines[0].startswith("29 ") and 4000 < sum(map(len, lines)) <= 5000


def test_empty_names_are_left_out() -> None:
    assert learned(EntityMemory(), [], "", "  ") == []


@pytest.mark.parametrize("options", [{"max_entities": 0}, {"relevance_window": 0}, {"provider": 7}, {"model": ""}])
def test_wrong_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(WrongOption, match="EntityMemory: "):
        EntityMemory(**options)  # type: ignore[arg-type]

"""An event that cannot be read leaves its shape and a count, and no words of any person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels import Parsed, WebhookResponse
from gateway.engine.intake.shapes import shape_of
from gateway.stored.keys import SHAPES
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, rig


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(Invoices().bot(), tmp_path, people=["test:bot:ana"]) as chat:
        yield chat


async def comes(chat: Rig, payload: bytes) -> None:
    parsed = Parsed((), WebhookResponse(), not_understood=True, payload=payload)
    await chat.worker.engine.inbox.accept(chat.platform, parsed)


async def kept(chat: Rig) -> list[dict[str, object]]:
    return [dict(record.value) for _, record in await chat.store.scan(SHAPES) if isinstance(record.value, dict)]


async def test_shapes_from_strangers_stay_bounded(chat: Rig) -> None:
    """A thousand dice and polls of somebody who may not talk."""
    for number in range(500):
        await comes(chat, json.dumps({"update_id": number, "message": {"dice": {"value": number % 6}}}).encode())
        poll = {"poll": {"question": f"my secret {number}", "options": [{"text": "a"}] * (number % 9)}}
        await comes(chat, json.dumps(poll).encode())
    found = await kept(chat)
    assert len(found) <= 3
    assert "secret" not in json.dumps(found)
    assert sorted(int(str(each["seen"])) for each in found)[-1] == 100
    assert (await chat.store.stats()).dead == 0


async def test_a_channel_has_so_many_shapes_at_most(chat: Rig) -> None:
    for number in range(300):
        await comes(chat, json.dumps({f"field_{number}": 1}).encode())
    assert len(await kept(chat)) == 100


async def test_a_shape_is_forgotten_after_a_month(chat: Rig) -> None:
    await comes(chat, b"{}")
    await chat.advance(29 * 86_400)
    assert len(await kept(chat)) == 1
    await chat.advance(2 * 86_400)
    assert await kept(chat) == []


@pytest.mark.parametrize(
    ("payload", "shape"),
    [
        (
            b'{"a": 1, "b": [true, null, "x", "y"], "c": {"d": 1.5}}',
            {"a": "number", "b": ["yes or no", "nothing", "text"], "c": {"d": "number"}},
        ),
        (b'{"\xc3\xa9 my words": 1}', {"?": "number"}),
        (b"Body=hello&From=%2B1555", {"Body": "text", "From": "text"}),
        (b'payload={"type":"shortcut"}', {"payload": {"type": "text"}}),
        (b"\xff\xfe", "bytes"),
        (b"", "bytes"),
        (b"[" * 20_000, "bytes"),
    ],
)
def test_a_shape_holds_names_of_fields_and_kinds_of_values(payload: bytes, shape: object) -> None:
    assert shape_of(payload) == shape


def test_a_shape_is_small_however_large_the_payload() -> None:
    deep = json.dumps({"a": [{f"f{n}": {"x": {"y": {"z": {"w": {"v": {"u": 1}}}}}} for n in range(500)}] * 50})
    assert len(json.dumps(shape_of(deep.encode()))) < 10_000

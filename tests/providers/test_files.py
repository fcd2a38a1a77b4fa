"""Pictures and PDFs on their way to the vendors' models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels import Media
from gateway import Agent, AgentConfig, InMemoryCache, image_message
from gateway.agent import replies
from gateway.agent.replies import read_contents
from gateway.memory.tokens import size
from gateway.providers import ModelMessage, Request, Response
from gateway.testing import ScriptedProvider
from tests.artifacts.test_pictures import png
from tests.fakes.model_server import Fail, Say
from tests.providers.vendors import ANTHROPIC, OPENAI, RESPONSES, Vendor, user

PNG, PDF = png(2, 2) + b"pixels", b"%PDF-1.7 a bill"
each_vendor = pytest.mark.parametrize(
    "vendor", [OPENAI, ANTHROPIC, RESPONSES], ids=["openai", "anthropic", "responses"]
)


def media(content: bytes, mime_type: str, name: str) -> Media:
    digest = hashlib.sha256(content).hexdigest()
    return Media(sha256=digest, mime_type=mime_type, filename=name, size=len(content))


PICTURE, BILL = media(PNG, "image/png", "cat.png"), media(PDF, "application/pdf", "bill.pdf")


def asked(*shown: bytes, files: tuple[Media, ...] = (PICTURE, BILL), text: str = "What is this?") -> Request:
    contents = {hashlib.sha256(content).hexdigest(): content for content in shown}
    return Request(messages=[ModelMessage(role="user", content=text, files=files)], contents=contents)


@each_vendor
@pytest.mark.ledger("MISC-09")
async def test_files_reach_the_vendor_in_its_own_form(vendor: Vendor) -> None:
    async with vendor.running() as (model, provider):
        model.script([Say("A cat and a bill."), Say("Nothing.")])
        assert (await provider.complete(asked(PNG, PDF))).content == "A cat and a bill."
        await provider.complete(asked(PNG, PDF, text=""))
        assert model.refused == []
        sent = str(model.requests[0][vendor.history])
    assert "iVBORw0KGgo" in sent  # a PNG in base64
    assert "JVBERi0xLjc" in sent  # a PDF
    assert "bill.pdf" in sent
    assert "What is this?" in sent


@each_vendor
async def test_a_file_that_is_not_shown_is_named(vendor: Vendor) -> None:
    async with vendor.running() as (model, provider):
        model.script([Say("I cannot see it.")])
        await provider.complete(asked(PNG))
        sent = str(model.requests[0][vendor.history])
    assert "[bill.pdf: this application/pdf file is not shown to you]" in sent
    assert "cat.png: this" not in sent


@each_vendor
async def test_a_model_without_eyes_is_asked_again_without_files(vendor: Vendor) -> None:
    code = "invalid_request_error" if vendor.name == "anthropic" else "invalid_value"
    async with vendor.running() as (model, provider):
        model.script([Fail(400, code, message="This model does not support image input."), Say("I cannot see it.")])
        result = await Agent(provider=provider).run([image_message(PNG, "What is this?")])
        assert result.content == "I cannot see it."
        first, second = (str(request[vendor.history]) for request in model.requests)
    assert "iVBORw0KGgo" in first
    assert "iVBORw0KGgo" not in second
    assert "is not shown to you" in second


def test_a_message_is_made_of_a_picture(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    message = image_message(tmp_path / "cat.png", "What is this?")
    assert [(file.filename, file.mime_type, file.size) for file in message.files] == [
        ("cat.png", "image/png", len(PNG))
    ]
    assert image_message(PDF, "Read").files[0].mime_type == "application/pdf"
    for wrong in (b"GIF", b"", b"<svg/>", b"\x89PNG\r\n\x1a\n" + bytes(6_000_000)):
        with pytest.raises(ValueError, match="a model takes PNG, JPEG, GIF and WebP"):
            image_message(wrong, "What is this?")


class Eyes(ScriptedProvider):
    """It notes what it was shown."""

    def __init__(self, *answers: str) -> None:
        super().__init__(answers)
        self.seen: list[Mapping[str, bytes]] = []

    async def complete(self, request: Request) -> Response:
        self.seen.append(request.contents)
        return await super().complete(request)


async def test_a_run_shows_a_picture_and_caches_by_it() -> None:
    eyes = Eyes("a cat", "a dog")
    agent = Agent(provider=eyes, config=AgentConfig(cache=InMemoryCache()))
    cat, dog = image_message(PNG, "What is this?"), image_message(png(2, 2) + b"dog", "What is this?")
    said = [(await agent.run([message])).content for message in (cat, dog, cat)]
    assert said == ["a cat", "a dog", "a cat"]
    assert [[*seen.values()] for seen in eyes.seen] == [[PNG], [png(2, 2) + b"dog"]]


async def test_the_newest_files_are_shown_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def reads(file: Media) -> bytes | None:
        read.append(file.filename)
        return None if file.filename == "gone.png" else bytes(file.size)

    named = [replace(PICTURE, sha256=f"{number:064}", filename=f"{number}.png") for number in range(12)]
    gone, large = (replace(PICTURE, sha256=f"{name:0>64}", filename=f"{name}.png") for name in ("gone", "large"))
    others = [gone, replace(large, size=5_000_001), media(b"a", "text/plain", "a.txt")]
    messages = [ModelMessage(role="user", files=(file,)) for file in (*named, *others)]
    assert [*await read_contents(messages, reads)] == [f"{number:064}" for number in range(11, 1, -1)]
    assert read[0] == "gone.png"
    assert "large.png" not in read
    monkeypatch.setattr(replies, "_MOST_BYTES", 2 * PICTURE.size)
    assert len(await read_contents(messages, reads)) == 2
    assert await read_contents(messages, None) == {}


def test_a_file_takes_its_place_in_the_window() -> None:
    assert size([user("x")]) == 1
    assert size([ModelMessage(role="user", content="x", files=(PICTURE,))]) == 6_401
    book: Any = replace(BILL, size=10_000_000)
    assert size([ModelMessage(role="user", files=(book,))]) == 400_000

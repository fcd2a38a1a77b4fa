"""The extras of a request: files, a schema of the answer, and a beginning known to the vendors' caches."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from channels import Media, MissingSetting
from gateway import Agent, AgentConfig, Gateway, InMemoryCache, ToolContext, image_message, tool
from gateway.agent import replies
from gateway.agent.replies import read_contents
from gateway.assembly import transcriber_of
from gateway.config.settings import Settings
from gateway.memory.tokens import size
from gateway.providers import ModelMessage, Request, Response
from gateway.providers.answer_schema import strict_schema
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.base import Transcriber, TranscriptionFailed
from gateway.providers.openai import OpenAIProvider
from gateway.providers.openai.transcription import OpenAITranscriber
from gateway.testing import ScriptedProvider
from tests.artifacts.test_pictures import png
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.model_server import Call, Fail, ModelServer, Say
from tests.fakes.schemas import fault_of_schema
from tests.fakes.transcription import FakeTranscription, Heard
from tests.providers.vendors import ANTHROPIC, ASKED, LIGHTS, OPENAI, RESPONSES, Vendor, user

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


# ── answers with a schema ──


class Line(BaseModel):
    text: str = Field(min_length=1)
    price: float = Field(ge=0, description="In euros.")


class Invoice(BaseModel):
    number: str = Field(pattern=r"^INV-\d+$")
    state: Literal["open", "paid"] = "open"
    note: str | None = None
    lines: list[Line]


@tool(read_only=True)
async def look_up(number: str) -> str:
    """Look up."""
    return f"{number}: one line, a lamp, 7 euros"


ANSWER = '{"number": "INV-7", "state": "paid", "note": null, "lines": [{"text": "Lamp", "price": 7}]}'


async def test_vendors_get_the_schema_and_no_instruction(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.provider(vendor.model, api_key=model.key, base_url=model.url, whole_api=True)
    agent = Agent([look_up], provider=provider, instructions="Be brief.")
    model.script([Call("look_up", {"number": "INV-7"}), Say(ANSWER)])
    result = await agent.run("INV-7?", response_format=Invoice)
    await provider.close()
    assert result.parsed.lines == [Line(text="Lamp", price=7)]
    for request in model.requests:
        sent = request.get("response_format") or (request.get("output_config") or request["text"])["format"]
        schema = sent.get("json_schema", sent)["schema"]
        assert schema["required"] == ["number", "state", "note", "lines"]
        assert schema["$defs"]["Line"]["properties"]["price"]["description"] == 'In euros. {"minimum": 0}'
        assert "JSON Schema" not in str(request[model.history]) + str(request.get("system"))


@pytest.mark.parametrize("vendor", ["openai", "anthropic"], indirect=True)
async def test_another_server_gets_an_instruction(vendor: Vendor, model: ModelServer) -> None:
    provider = vendor.at(model.url, model.key)
    model.script([Say(ANSWER)])
    result = await Agent(provider=provider).run("INV-7?", response_format=Invoice)
    await provider.close()
    assert result.parsed.number == "INV-7"
    [request] = model.requests
    assert not {"response_format", "output_config"} & request.keys()
    assert "JSON Schema" in str(request)


NAMED: dict[str, Any] = {"a": {"type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": NAMED},
        {"type": "object", "properties": NAMED, "required": ["a"], "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": NAMED, "required": ["a"], "additionalProperties": True},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {
            "type": "object",
            "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}},
            "properties": {"n": {"$ref": "#/$defs/n"}},
            "required": ["n"],
        },
    ],
)
def test_schema_that_no_vendor_enforces_becomes_an_instruction(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_a_strict_schema_is_one_that_the_vendors_take() -> None:
    strict = strict_schema(Invoice.model_json_schema())
    assert strict is not None
    assert fault_of_schema(strict) is None
    assert fault_of_schema(Invoice.model_json_schema()) is not None


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("openai:gpt-5-mini", True),
        ("openai:gpt-4o-mini", True),
        ("openai:gpt-4.1", True),
        ("openai:gpt-4-turbo", False),
        ("openai:gpt-3.5-turbo", False),
        ("anthropic:claude-sonnet-5", True),
        ("anthropic:claude-sonnet-4-5-20250929", True),
        ("anthropic:claude-opus-4-1-20250805", True),
        ("anthropic:claude-sonnet-4-20250514", False),
        ("anthropic:claude-3-5-haiku-latest", False),
    ],
)
def test_older_models_get_an_instruction(name: str, takes: bool) -> None:
    vendor, _, model = name.partition(":")
    kind = OpenAIProvider if vendor == "openai" else AnthropicProvider
    provider = kind(model, api_key="sk-none")
    schema: dict[str, Any] = {"type": "object", "properties": NAMED, "required": ["a"]}
    assert provider.takes_schema(schema, None) is takes


# ── the beginning of a request, for the vendors' caches ──


LONG = "You switch lamps. " + "Never in the attic. " * 300
EPHEMERAL = {"type": "ephemeral"}


class Lamp(BaseModel):
    name: str
    is_on: bool


@tool
async def switch(lamp: str, bright: bool = False) -> str:
    """Switch a lamp."""
    return f"{lamp} is off"


@tool(read_only=True)
async def lamps(room: str) -> list[str]:
    """List the lamps of a room."""
    return [f"{room} left", f"{room} right"]


def rendered(body: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the common part of a request, in the vendor's order of reading, and the messages separately."""
    first = body.get("messages", [{}])[0]
    in_messages = [first] if first.get("role") == "system" else []
    system = body.get("system") or body.get("instructions") or in_messages
    history: Sequence[Any] = body.get("input") or body["messages"][len(in_messages) :]
    form = body.get("response_format") or body.get("text") or body.get("output_config")
    return json.dumps([body["tools"], form, system]), [json.dumps(message) for message in history]


@pytest.mark.ledger("CALL-12")
@pytest.mark.parametrize("answer_format", [None, Lamp, {"type": "object"}])
async def test_common_part_is_the_same_in_every_call(vendor: Vendor, model: ModelServer, answer_format: Any) -> None:
    """Over turns with calls, events, languages and an answer's format: enforced by the vendor, or by instruction."""
    provider = vendor.provider(vendor.model, api_key=model.key, base_url=model.url, whole_api=True)
    agent = Agent([switch, lamps], provider=provider, instructions=LONG)
    heard: list[ModelMessage] = []
    answer = '{"name": "hall", "is_on": false}'
    for number, language in enumerate(("en", "de", "ar")):
        model.script([Say(calls=[Call("lamps", {"room": "hall"})], thinks="Which?"), Say(answer)])
        heard += [ModelMessage(role="event", content=f"Bill {number} was paid."), user(f"question {number}")]
        context = ToolContext(person="app:-:ana", idempotency_key=f"t{number}", language=language)
        heard += (await agent.run(heard, context=context, response_format=answer_format)).messages
    await provider.close()
    assert model.refused == []
    commons, histories = zip(*map(rendered, model.requests), strict=True)
    assert len(model.requests) == 6
    assert set(commons) == {commons[0]}
    for earlier, later in pairwise(histories):
        assert later[: len(earlier)] == earlier, "and what was said stays as it was said"


# ── Anthropic caches the marked parts ──


async def bodies_of(*requests: Request, whole_api: bool | None = True) -> list[dict[str, Any]]:
    async with FakeAnthropic() as model:
        provider = AnthropicProvider(ANTHROPIC.model, api_key=model.key, base_url=model.url, whole_api=whole_api)
        model.script(["ok"] * len(requests))
        for request in requests:
            await provider.complete(request)
        await provider.close()
        assert model.refused == []
        return model.requests


GOES_ON = [user("hello"), ModelMessage(role="assistant", content="Hello."), user("and?")]


async def test_instructions_and_tools_of_some_length_are_cached() -> None:
    wordy = replace(LIGHTS, description="Switch a lamp. " * 300)
    long, tools_alone = await bodies_of(replace(ASKED, system=LONG), replace(ASKED, system="", tools=[LIGHTS, wordy]))
    assert long["system"] == [{"type": "text", "text": LONG, "cache_control": EPHEMERAL}]
    assert [tool.get("cache_control") for tool in long["tools"]] == [None]
    assert [tool.get("cache_control") for tool in tools_alone["tools"]] == [None, EPHEMERAL]
    assert "cache_control" not in long.keys() | tools_alone.keys(), "a single question is not"


async def test_conversation_that_goes_on_is_cached_to_its_end() -> None:
    (short,) = await bodies_of(replace(ASKED, messages=GOES_ON))
    assert short["cache_control"] == EPHEMERAL
    assert short["system"] == "Be brief."


async def test_single_short_call_costs_no_more() -> None:
    (short,) = await bodies_of(ASKED)
    assert "cache_control" not in json.dumps(short)


async def test_requests_to_other_servers_have_no_cache_control() -> None:
    (other,) = await bodies_of(replace(ASKED, system=LONG, messages=GOES_ON), whole_api=None)
    assert "cache_control" not in json.dumps(other)


# ── Voice messages written down by an OpenAI-compatible server ──


async def words(fake: FakeTranscription, content: bytes = b"OggS", *, language: str | None = "es") -> str:
    transcriber = OpenAITranscriber(fake.url, "whisper-1", fake.key)
    assert isinstance(transcriber, Transcriber)
    try:
        return await transcriber.transcribe(content, filename="voice", mime_type="audio/ogg", language=language)
    finally:
        await transcriber.close()


async def test_a_recording_is_written_down() -> None:
    async with FakeTranscription(text=" delete it \n") as fake:
        assert await words(fake, language="es-MX") == "delete it"
        assert await words(fake, language=None) == "delete it"
        assert fake.heard[0] == Heard("whisper-1", "voice.ogg", b"OggS", "es")
        assert fake.heard[1].language is None


@pytest.mark.parametrize(
    ("mime_type", "ending"),
    [
        ("audio/ogg; codecs=opus", "ogg"),
        ("audio/wave", "wav"),
        ("audio/mp4", "m4a"),
        ("video/mp4", "mp4"),
        ("Video/WebM", "webm"),
        ("audio/mpeg", "mp3"),
        ("audio/flac", "flac"),
        ("application/ogg", "ogg"),
    ],
)
async def test_a_recording_has_the_ending_of_its_type(mime_type: str, ending: str) -> None:
    async with FakeTranscription() as fake:
        transcriber = OpenAITranscriber(fake.url, "whisper-1", fake.key)
        await transcriber.transcribe(b"sound", filename="clip.bin", mime_type=mime_type, language=None)
        await transcriber.close()
        assert fake.heard[0].filename == f"clip.{ending}"


async def test_a_server_that_is_busy_is_asked_once_more() -> None:
    async with FakeTranscription(fails=[503]) as fake:
        assert await words(fake) == "delete invoice seven"


@pytest.mark.parametrize(
    ("fails", "code"),
    [([503, 503], "the server answered 503"), ([400], "the server answered 400"), ([{"words": 1}], "in another shape")],
)
async def test_failure_has_a_reason_and_no_key(fails: list[object], code: str) -> None:
    async with FakeTranscription(fails=fails) as fake:
        with pytest.raises(TranscriptionFailed, match=code) as failed:
            await words(fake)
        assert fake.key not in str(failed.value)


async def test_a_wrong_key_and_a_dead_server_are_failures() -> None:
    async with FakeTranscription() as fake:
        wrong = OpenAITranscriber(fake.url, "whisper-1", "sk-wrong")
        with pytest.raises(TranscriptionFailed, match="401"):
            await wrong.transcribe(b"OggS", filename="v", mime_type="audio/ogg", language=None)
        await wrong.close()
    with pytest.raises(TranscriptionFailed, match="APIConnectionError"):
        await words(fake)


async def test_a_recording_that_is_too_large_is_not_sent() -> None:
    async with FakeTranscription() as fake:
        with pytest.raises(TranscriptionFailed, match="larger than 25 MB"):
            await words(fake, bytes(25_000_001))
        assert fake.heard == []


def test_half_of_the_settings_are_an_error() -> None:
    assert transcriber_of(Settings()) is None
    with pytest.raises(MissingSetting, match="ASKFIRST_TRANSCRIBE_MODEL"):
        transcriber_of(Settings(transcribe_url="http://127.0.0.1:1/v1"))
    with pytest.raises(MissingSetting, match="ASKFIRST_TRANSCRIBE_URL"):
        transcriber_of(Settings(transcribe_model="whisper-1"))
    settings = Settings(transcribe_url="http://127.0.0.1:1/v1", transcribe_model="whisper-1")
    assert isinstance(transcriber_of(settings), OpenAITranscriber)


async def test_a_gateway_that_ends_leaves_no_connection(tmp_path: Path) -> None:
    async with FakeTranscription() as fake:
        settings = Settings(
            store="sqlite:///:memory:",
            artifacts=tmp_path,
            transcribe_url=fake.url,
            transcribe_model="whisper-1",
            transcribe_api_key=SecretStr(fake.key),
        )
        async with Gateway(Agent(), settings) as gateway:
            transcriber = gateway.engine.context.transcriber
            assert transcriber is not None
            await transcriber.transcribe(b"OggS", filename="v", mime_type="audio/ogg", language=None)
            assert fake.connections == 1
        async with asyncio.timeout(10):
            while fake.connections:
                await asyncio.sleep(0.01)

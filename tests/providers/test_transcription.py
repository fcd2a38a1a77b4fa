"""Voice messages written down by an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from channels import MissingSetting
from gateway import Agent, Gateway
from gateway.assembly import transcriber_of
from gateway.providers.base import Transcriber, TranscriptionFailed
from gateway.providers.openai.transcription import OpenAITranscriber
from gateway.settings import Settings
from tests.fakes.transcription import FakeTranscription, Heard


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
async def test_a_failure_says_why_and_quotes_nothing(fails: list[object], code: str) -> None:
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

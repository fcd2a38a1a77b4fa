"""Tests of `send`: a call returns a receipt, or raises the error that decides the next step."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from pathlib import Path

import pytest

from channels import (
    Ambiguous,
    Channel,
    Media,
    OpenMedia,
    RateLimited,
    Reply,
    SendError,
    Unavailable,
    Undeliverable,
)
from gateway.testing.channel_contract.case import RETRY_AFTER_SECONDS, Arrived, ChannelCase, Fault
from gateway.testing.channel_contract.helpers import Chat, Contract, media_of, settings_of, without_io

_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
_ARRIVES_SECONDS = 5.0
_PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\n"
    b"IDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82"
)
_FILES = (
    ("image", "Foto ñ.png", "image/png", _PNG),
    ("audio", "song.mp3", "audio/mpeg", b"ID3" + bytes(1_000)),
    ("video", "film.mp4", "video/mp4", b"\0\0\0\x18ftypmp42" + bytes(1_000)),
    ("document", "Rechnung ü 1.pdf", "application/pdf", b"%PDF-1.7 " + bytes(range(256)) * 1_000),
)


class SendContract(Contract):
    async def test_a_receipt_names_the_message(self, chat: Chat) -> None:
        [first] = await chat.say("one")
        [second] = await chat.say("two")
        one, two = chat.arrived()[-2:]
        assert (one.text, two.text) == ("one", "two")
        assert first.message_id
        assert (first.message_id, second.message_id) == (one.message_id, two.message_id)
        assert first.message_id != second.message_id
        assert all(receipt.sent_at is None or receipt.sent_at.tzinfo for receipt in (first, second))

    async def test_too_many_requests_say_how_long_to_wait(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "limited")
        assert error is None or isinstance(error, RateLimited)
        assert error is None or error.retry_after_seconds == RETRY_AFTER_SECONDS

    async def test_a_refusal_for_good_is_undeliverable(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "refused")
        assert error is None or isinstance(error, Undeliverable)

    async def test_refused_token_is_unavailable_and_names_its_setting(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "unauthorized")
        if error is None:
            return
        assert isinstance(error, Unavailable)
        assert error.mend is not None, "nobody is told what to mend"
        assert error.mend.setting in {setting.name for setting in settings_of(case.channel)}

    async def test_a_page_of_something_between_is_no_word_of_the_platforms(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "page")
        assert error is None or type(error) is Unavailable

    async def test_a_server_error_is_to_be_tried_again(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "broken")
        assert error is None or type(error) is Unavailable

    async def test_a_connection_that_ends_without_an_answer_is_in_doubt(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "cut")
        assert error is None or type(error) is Ambiguous

    async def test_an_answer_that_never_comes_is_in_doubt(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "silent", goes_on=False)
        assert error is None or type(error) is Ambiguous

    async def test_unreachable_platform_raises_unavailable(self, case: ChannelCase, chat: Chat) -> None:
        error = await error_of(case, chat, "away", goes_on=False)
        assert error is None or type(error) is Unavailable

    async def test_errors_and_logs_tell_no_secret_and_no_words(
        self, case: ChannelCase, chat: Chat, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        secrets = [
            case.settings[each.name] for each in settings_of(case.channel) if each.secret and each.name in case.settings
        ]
        faults: list[Fault] = ["limited", "refused", "unauthorized", "page", "broken", "cut", "away"]
        told = ""
        for fault in faults:
            if error := await error_of(case, chat, fault, "Quellwasser 4711", goes_on=False):
                told += "".join(traceback.format_exception(error))
        told += caplog.text
        assert "Quellwasser" not in told
        assert not any(secret in told for secret in secrets)

    async def test_a_file_arrives_with_its_name_and_type(self, chat: Chat, channel: Channel) -> None:
        """A file of a supported kind arrives as a file, any other file as a name and a link."""
        for kind, filename, mime_type, content in _FILES:
            media = await media_of(chat.files, content, filename, mime_type)
            before = len(chat.arrived())
            await chat.say(Reply(media=(media,)))
            arrived = await file_of(chat, before, wanted=kind in channel.capabilities.media)
            if kind in channel.capabilities.media:
                assert arrived.file is not None, f"the {kind} did not arrive as itself"
                assert arrived.file.content == content
                assert arrived.file.mime_type in (mime_type, None)
                assert arrived.file.filename in (filename, None)
            else:
                assert re.search(r"https?://\S+/artifacts/\S+", arrived.text), "no link to it"
                assert filename[-4:] in arrived.text

    async def test_a_file_too_large_for_the_platform_goes_as_a_link(
        self, case: ChannelCase, chat: Chat, channel: Channel, tmp_path: Path
    ) -> None:
        media = Media(
            sha256="0" * 64,
            mime_type="application/pdf",
            filename="film.pdf",
            size=max(channel.capabilities.media.values(), default=0) + 1,
        )
        path, link = tmp_path / "film.pdf", "https://bot.example/artifacts/t?a=1&b=2"
        await asyncio.to_thread(path.write_bytes, b"%PDF")
        opened = OpenMedia(
            sha256=media.sha256,
            mime_type=media.mime_type,
            filename=media.filename,
            size=media.size,
            path=path,
            link=link,
        )
        before = len(chat.arrived())
        for part in channel.render(case.address, Reply(media=(media,))):
            await chat.send(part, opened=opened)
        [arrived] = chat.arrived()[before:]
        if case.platform is not None:
            assert arrived.file is None
            assert link in arrived.text
            assert "film.pdf" in arrived.text

    async def test_a_part_sent_again_under_its_key(self, case: ChannelCase, chat: Chat) -> None:
        """A part sent again is shown once if the platform recognises the key, else twice. The receipts show the
        difference."""
        before = len(chat.arrived())
        [part] = chat.render(Reply(text="once"))
        first, second = [await chat.send(part, key="k" * 32) for _ in range(2)]
        assert len(chat.arrived()) - before == (1 if case.recognises_keys else 2)
        assert (first == second) == case.recognises_keys


async def error_of(
    case: ChannelCase, chat: Chat, fault: Fault, words: str = "hello", *, goes_on: bool = True
) -> SendError | None:
    """Return the error raised for a message with this fault; None for a channel without a platform."""
    [part] = chat.render(Reply(text=words))
    if case.platform is None:
        with without_io("send without a platform"):
            assert (await chat.send(part)).message_id
        return None
    await case.platform.fail(fault)
    calls = case.platform.calls
    try:
        async with asyncio.timeout(10):
            await chat.send(part)
    except SendError as error:
        assert _CODE.fullmatch(error.code), "a code is a word of the platform's, not a sentence"
        assert case.platform.calls - calls <= 1, "nothing is repeated behind our back"
        if goes_on:
            [receipt] = await chat.say("after it")
            assert receipt.message_id
        return error
    raise AssertionError(f"{fault}: no error")


async def file_of(chat: Chat, before: int, *, wanted: bool) -> Arrived:
    """Wait for the message of a file, and return the message. A platform takes a moment to fetch a file itself."""
    async with asyncio.timeout(_ARRIVES_SECONDS):
        while True:
            arrived = chat.arrived()[before:]
            if arrived and (arrived[-1].file is not None or not wanted):
                return arrived[-1]
            await asyncio.sleep(0.005)

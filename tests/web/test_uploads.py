"""Files of the chat page: sent in pieces, counted once, kept for their session alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from channels import Attachment, Message
from channels.webchat import COOKIE, SECURE_COOKIE
from channels.webchat.payload import MAX_FILE_BYTES
from gateway.artifacts import ArtifactStore
from gateway.store.errors import StoreUnavailable
from gateway.web.chat_uploads import uploaded
from gateway.web.limits import MAX_BODY_BYTES
from tests.web.conftest import KEY, Bot, Start
from tests.web.test_chat import page, shown

OCTETS = {"Content-Type": "application/octet-stream"}
CONTENT = bytes(range(256)) * 1000
PIECE = 100_000


async def piece(
    http: aiohttp.ClientSession,
    body: bytes,
    at: int = 0,
    size: int | None = None,
    *,
    name: str = "notes.txt",
    **more: Any,
) -> tuple[int, Any]:
    query = {"upload": "u" * 32, "at": str(at), "size": str(len(body) if size is None else size), "name": name, **more}
    async with http.post("/chat/files", params=query, data=body, headers=OCTETS) as response:
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else await response.text()


async def sent(http: aiohttp.ClientSession, content: bytes, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for at in range(0, len(content), PIECE):
        status, answer = await piece(http, content[at : at + PIECE], at, len(content), **more)
        assert status == 200, answer
        assert answer["at"] == min(at + PIECE, len(content))
    file: dict[str, Any] = answer["file"]
    return file


async def say(http: aiohttp.ClientSession, *files: dict[str, Any], text: str = "") -> int:
    body = {"client_id": "c" * 32, "text": text, "files": files}
    async with http.post("/chat/messages", json=body) as response:
        return response.status


async def read(bot: Bot, attachment: Attachment) -> bytes:
    return b"".join([piece async for piece in bot.channel.fetch(attachment)])


async def test_a_file_in_pieces_arrives_whole_with_its_message(bot: Bot, start: Start) -> None:
    bot.channel.uploaded = lambda session, token: uploaded(bot.artifacts, session, token)
    async with start(), page(bot) as (http, session):
        file = await sent(http, CONTENT)
        assert await say(http, file) == 200
        [entry] = await shown(http, 1)
        async with http.get(f"/{entry['media'][0]['link']}") as response:
            assert await response.read() == CONTENT
        async with page(bot) as (stranger, _), stranger.get(f"/{entry['media'][0]['link']}") as response:
            assert response.status == 404
    [message] = bot.accepted
    assert isinstance(message, Message)
    [attachment] = message.attachments
    assert (attachment.kind, attachment.filename, attachment.size) == ("document", "notes.txt", len(CONTENT))
    assert await read(bot, attachment) == CONTENT
    assert bot.charged == [(f"webchat:local:{session}", len(CONTENT))]
    assert not [path for path in bot.artifacts.directory.iterdir() if path.name.startswith(".")]


async def test_a_piece_that_comes_again_adds_nothing(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _):
        for _ in range(2):
            assert await piece(http, CONTENT[:PIECE], 0, len(CONTENT)) == (200, {"at": PIECE})
        assert await piece(http, CONTENT[PIECE - 9 : PIECE + 1], PIECE - 9, len(CONTENT)) == (200, {"at": PIECE + 1})
        status, answer = await piece(http, CONTENT[PIECE : 2 * PIECE], PIECE, len(CONTENT))
        assert (status, answer) == (200, {"at": 2 * PIECE})
        _, answer = await piece(http, CONTENT[2 * PIECE :], 2 * PIECE, len(CONTENT))
        token = answer["file"]["token"]
    path, media, _ = bot.artifacts.resolve(token)
    assert path.read_bytes() == CONTENT
    assert media.size == len(CONTENT)
    assert len(bot.charged) == 1


async def test_a_piece_beyond_the_end_says_where_to_go_on(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _):
        assert await piece(http, b"x", 5, 100) == (409, {"at": 0})
        assert await piece(http, b"abc", 0, 100) == (200, {"at": 3})
        assert await piece(http, b"x", 5, 100) == (409, {"at": 3})
        assert await piece(http, b"x", 0, 101) == (200, {"at": 1}), "another size is another file"
    assert len(bot.charged) == 2


@pytest.mark.parametrize(
    ("status", "body", "query"),
    [
        (413, b"x", {"size": str(MAX_FILE_BYTES + 1)}),
        (413, b"x" * (MAX_BODY_BYTES + 1), {"size": str(MAX_FILE_BYTES)}),
        (400, b"", {"size": "5"}),
        (400, b"xx", {"size": "1"}),
        (400, b"x", {"at": "-1"}),
        (400, b"x", {"at": "nine"}),
        (400, b"x", {"name": ""}),
        (400, b"x", {"name": "n" * 256}),
        (400, b"x", {"upload": "../../etc"}),
        (400, b"x", {"more": "1"}),
    ],
)
async def test_odd_piece_is_refused(bot: Bot, start: Start, status: int, body: bytes, query: dict[str, str]) -> None:
    async with start(), page(bot) as (http, _):
        got, _ = await piece(http, body, **{"size": 1, **query} if "size" not in query else query)
    assert got == status
    assert bot.charged == []
    assert not bot.artifacts.directory.exists()


async def test_no_file_comes_from_elsewhere(bot: Bot, start: Start) -> None:
    query = {"upload": "u" * 32, "at": "0", "size": "1", "name": "a"}
    async with start(), page(bot) as (http, _):
        for headers in (
            {**OCTETS, "Origin": "http://elsewhere.example"},
            {**OCTETS, "Sec-Fetch-Site": "cross-site"},
        ):
            async with http.post("/chat/files", params=query, data=b"x", headers=headers) as response:
                assert response.status == 401
        forged = {**OCTETS, "Origin": bot.url, "Cookie": f"{COOKIE}={'s' * 22}.1.{'A' * 43}"}
        async with (
            aiohttp.ClientSession(bot.url) as nobody,
            nobody.post("/chat/files", params=query, data=b"x", headers=forged) as response,
        ):
            assert response.status == 401
    assert bot.charged == []


@pytest.mark.parametrize(("sent_as", "status"), [("application/octet-stream", 200), ("text/plain", 401)])
async def test_over_https_no_foreign_form_sends_a_file(bot: Bot, start: Start, sent_as: str, status: int) -> None:
    async with start(public_url="https://127.0.0.1"), aiohttp.ClientSession(bot.url) as http:
        cookie = bot.channel.cookies.begin(datetime.now(UTC), lambda count: b"s" * count).cookie
        headers = {
            "Content-Type": sent_as,
            "Cookie": f"{SECURE_COOKIE}={cookie}",
            "Origin": bot.url.replace("http:", "https:"),
        }
        query = {"upload": "u" * 32, "at": "0", "size": "1", "name": "a"}
        async with http.post("/chat/files", params=query, data=b"x", headers=headers) as response:
            assert response.status == status


async def test_no_more_files_are_kept_above_the_limits(bot: Bot, start: Start) -> None:
    bot.is_full = True
    async with start(), page(bot) as (http, _):
        status, _ = await piece(http, b"x")
        assert status == 507
    assert not bot.artifacts.directory.exists()


async def test_a_full_disk_and_a_store_that_is_away_are_told(bot: Bot, start: Start) -> None:
    directory = bot.artifacts.directory
    bot.artifacts = ArtifactStore(directory, [KEY], public_url=None, now=lambda: datetime.now(UTC), free=lambda _: 9)
    async with start(), page(bot) as (http, _):
        assert (await piece(http, b"x"))[0] == 507
        bot.fail.append(StoreUnavailable("the store is away"))
        assert (await piece(http, b"x"))[0] == 503
    assert not [*directory.iterdir()]


async def test_a_token_of_another_session_opens_nothing(bot: Bot, start: Start) -> None:
    bot.channel.uploaded = lambda session, token: uploaded(bot.artifacts, session, token)
    async with start():
        async with page(bot) as (http, _):
            file = await sent(http, b"the salary list")
        async with page(bot) as (thief, _):
            assert await say(thief, file, text="what does it say?") == 200
    [message] = bot.accepted
    assert isinstance(message, Message)
    with pytest.raises(Exception, match="not_a_file"):
        await read(bot, message.attachments[0])


@pytest.mark.parametrize(
    "files",
    [
        [{"token": "t", "filename": "a", "mime_type": "text/plain"}],
        [{"token": "../x", "filename": "a", "mime_type": "text/plain", "size": 1}],
        [{"token": "t", "filename": "a", "mime_type": "text\r\n/plain", "size": 1}],
        [{"token": "t", "filename": "a", "mime_type": "text/plain", "size": MAX_FILE_BYTES + 1}],
        [{"token": "t", "filename": "a", "mime_type": "text/plain", "size": 1}] * 11,
        [],
    ],
)
async def test_a_message_names_at_most_ten_whole_files(bot: Bot, start: Start, files: list[dict[str, Any]]) -> None:
    async with start(), page(bot) as (http, _):
        assert await say(http, *files) == 400
    assert bot.accepted == []


async def test_an_unfinished_file_is_swept_after_a_day(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _):
        await piece(http, b"abc", 0, 100)
        whole = await sent(http, b"whole")
        [part] = bot.artifacts.directory.glob(".*.part")
        await bot.artifacts.sweep(datetime.now(UTC) + timedelta(hours=23))
        assert part.exists()
        await bot.artifacts.sweep(datetime.now(UTC) + timedelta(hours=25))
        assert not part.exists()
        assert bot.artifacts.resolve(whole["token"])[0].exists()
        assert await piece(http, b"def", 3, 100) == (409, {"at": 0})


def test_a_file_is_no_larger_than_the_engine_reads() -> None:
    from gateway.engine.turns.attachments import LARGEST_BYTES, MOST_FILES

    assert (MAX_FILE_BYTES, 10) == (LARGEST_BYTES, MOST_FILES)

"""The server side of the chat page: the right to read and write, the shown entries and their form."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import escape, unescape
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest

from channels import Address, Attachment, Button, ButtonPress, Message, Reply, Settled
from channels.formatting import time_link
from channels.webchat import COOKIE, SECURE_COOKIE
from channels.webchat.payload import MAX_FILE_BYTES
from gateway.artifacts import ArtifactStore
from gateway.bot.commands import BotCommands
from gateway.config.limits import Share
from gateway.observe.events import ToolErrorRaised, ToolListed, TurnEnd
from gateway.store.errors import StoreUnavailable
from gateway.web.chat_streams import RenderedTexts, RenderingTurn
from gateway.web.chat_uploads import uploaded
from gateway.web.limits import MAX_BODY_BYTES
from gateway.web.markdown import to_html
from gateway.wording import LANGUAGES, Wording
from tests.observe.samples import sample
from tests.web.conftest import KEY, Bot, Start


@asynccontextmanager
async def page(bot: Bot) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A browser with the opened page, and the session."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(bot.url, cookie_jar=jar, headers={"Origin": bot.url}) as http:
        async with http.get("/chat") as response:
            assert response.status == 200
            session = response.cookies[COOKIE].value.partition(".")[0]
        yield http, session


async def shown(
    http: aiohttp.ClientSession, count: int, after: int = 0, last_event_id: str = ""
) -> list[dict[str, Any]]:
    """Return the first `count` messages of the page."""
    found: list[dict[str, Any]] = []
    headers = {"Last-Event-ID": last_event_id}
    async with http.get(f"/chat/events?after={after}", headers=headers) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        while len(found) < count:
            line = (await response.content.readline()).decode()
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
    return found


async def say(http: aiohttp.ClientSession, text: str, client_id: str = "c" * 32, **headers: str) -> int:
    body = {"client_id": client_id, "text": text}
    async with http.post("/chat/messages", json=body, headers=headers) as response:
        return response.status


async def test_the_page_comes_with_a_strict_cookie_and_policy(bot: Bot, start: Start) -> None:
    async with start(), aiohttp.ClientSession() as http, http.get(f"{bot.url}/chat") as response:
        body = await response.text()
        cookie = response.headers["Set-Cookie"]
        policy = response.headers["Content-Security-Policy"]

    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    # No part comes from another host, and the page has no inline script or style.
    assert not re.search(r"https?://|<style|<script(?! type=\"module\" src=\"chat/chat\.js\"></script>)| on\w+=", body)
    assert "<title>Invoices</title>" in body


async def test_messages_and_answers_are_shown_in_order_with_files(bot: Bot, start: Start) -> None:
    media = await bot.keeps(b"%PDF-1.7", "INV-7.pdf")
    bot.answer = lambda bot, event: bot.says(
        event.address.place,
        "m1",
        Reply(text="**Delete** it?", buttons=(Button(label="Confirm", token="t1", style="confirm"),), media=(media,)),
    )
    async with start(), page(bot) as (http, session):
        assert await say(http, "delete INV-42") == 200
        mine, file, prompt = await shown(http, 3)
        async with http.get(f"/{file['media'][0]['link']}") as response:
            assert await response.read() == b"%PDF-1.7"
        async with page(bot) as (stranger, _), stranger.get(f"/{file['media'][0]['link']}") as response:
            assert response.status == 404, "another browser's session"
        async with aiohttp.ClientSession(bot.url) as nobody, nobody.get(f"/{file['media'][0]['link']}") as response:
            assert response.status == 404
        [again] = await shown(http, 1, after=2)
        [resumed] = await shown(http, 1, last_event_id="2")

    assert (mine["from"], mine["text"], mine["message_id"]) == ("person", "delete INV-42", "c" * 32)
    assert prompt["html"] == "<p><strong>Delete</strong> it?</p>\n"
    assert prompt["buttons"] == [{"label": "Confirm", "token": "t1", "style": "confirm"}]
    assert (file["media"][0]["filename"], file["media"][0]["mime_type"]) == ("INV-7.pdf", "application/pdf")
    assert again["message_id"] == resumed["message_id"] == prompt["message_id"]
    [event] = bot.accepted
    assert isinstance(event, Message)
    assert str(event.person) == f"webchat:local:{session}"


async def test_a_press_sent_twice_is_one_press(bot: Bot, start: Start) -> None:
    body = {"client_id": "p" * 32, "token": "t1", "message_id": "m1"}
    async with start(), page(bot) as (http, session):
        for _ in range(2):
            async with http.post("/chat/presses", json=body) as response:
                assert (response.status, await response.json()) == (200, {"status": "accepted"})

    [event] = bot.accepted
    assert isinstance(event, ButtonPress)
    assert (event.token, event.message_id, event.address.place) == ("t1", "m1", session)


async def test_the_conversation_goes_on_when_the_page_is_opened_again(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, session):
        await say(http, "hello")
        async with http.get("/chat") as response:
            assert response.cookies[COOKIE].value.partition(".")[0] == session
        [mine] = await shown(http, 1)
    assert mine["text"] == "hello"


async def test_behind_https_the_session_is_of_this_host_alone(bot: Bot, start: Start) -> None:
    """No other site of the domain can set the cookie: `__Host-` (RFC 6265bis, 4.1.3.2)."""
    url = "https://127.0.0.1"
    async with start(public_url=url), aiohttp.ClientSession(bot.url, headers={"Origin": url}) as http:
        async with http.get("/chat", headers={"Host": "127.0.0.1"}) as response:
            cookie = response.cookies[SECURE_COOKIE]
            assert COOKIE not in response.cookies
        assert (cookie["secure"], cookie["path"], cookie["domain"], cookie["httponly"]) == (True, "/", "", True)
        mine = {"Host": "127.0.0.1", "Cookie": f"{SECURE_COOKIE}={cookie.value}"}
        assert await say(http, "hello", **mine) == 200
        assert await say(http, "hello", **{**mine, "Cookie": f"{COOKIE}={cookie.value}"}) == 401
        assert await say(http, "hello", **{**mine, "Origin": "http://127.0.0.1"}) == 401
        async with http.get("/chat", headers=mine) as response:
            session = cookie.value.partition(".")[0]
            assert response.cookies[SECURE_COOKIE].value.partition(".")[0] == session
        async with http.get("/chat/events", headers={**mine, "Cookie": f"{COOKIE}={cookie.value}"}) as response:
            assert response.status == 401
    assert [event.address.place for event in bot.accepted] == [session]


async def test_a_session_does_not_see_the_conversation_of_another(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (ana, _), page(bot) as (eve, _):
        await say(ana, "my secret")
        await say(eve, "hello", client_id="e" * 32)
        [seen] = await shown(eve, 1)
    assert seen["text"] == "hello"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Cookie": ""},
        {"Cookie": f"{COOKIE}=AAAAAAAAAAAAAAAAAAAAAA.1767225600.{'A' * 43}"},
    ],
    ids=lambda headers: " ".join(f"{name}={value[:24]}" for name, value in headers.items()),
)
async def test_a_press_of_a_foreign_page_is_refused(bot: Bot, start: Start, headers: dict[str, str]) -> None:
    press = {"client_id": "p" * 32, "token": "t1", "message_id": "m1"}
    async with start(), page(bot) as (http, _):
        if "Cookie" in headers:
            http.cookie_jar.clear()
        async with http.post("/chat/presses", json=press, headers=headers) as response:
            assert response.status == 401
        assert await say(http, "hello", **headers) == 401
    assert bot.accepted == []


async def test_a_page_that_sends_no_origin_is_refused(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _), aiohttp.ClientSession(bot.url, cookie_jar=http.cookie_jar) as other:
        assert await say(other, "hello") == 401
    assert bot.accepted == []


@pytest.mark.parametrize("path", ["/chat", "/chat/events", "/chat/console", "/chat/chat.js"])
async def test_another_host_name_is_refused(bot: Bot, start: Start, path: str) -> None:
    async with start(), page(bot) as (http, _):
        async with http.get(path, headers={"Host": "rebound.example"}) as response:
            assert response.status == 403
        assert COOKIE not in response.cookies


@pytest.mark.parametrize("path", ["/chat/events", "/chat/console"])
async def test_stream_without_session_or_from_another_site_is_refused(bot: Bot, start: Start, path: str) -> None:
    async with start(), page(bot) as (http, _):
        async with http.get(path, headers={"Sec-Fetch-Site": "cross-site"}) as response:
            assert response.status == 403
        http.cookie_jar.clear()
        async with http.get(path) as response:
            assert response.status == 401


async def test_a_store_that_does_not_answer_gives_status_503(bot: Bot, start: Start) -> None:
    bot.fail.append(StoreUnavailable("gone"))
    async with start(), page(bot) as (http, _):
        assert await say(http, "hello") == 503
        assert await say(http, "hello") == 200
    assert len(bot.accepted) == 1


async def test_the_console_shows_the_feed_from_its_backlog_on(bot: Bot, start: Start) -> None:
    bot.feed.read(sample(ToolErrorRaised, run_id="r", tool_name="delete_invoice"))
    async with start(), page(bot) as (http, _), http.get("/chat/console") as response:
        lines = [(await response.content.readline()).decode() for _ in range(5)]
    assert "event: notice\n" in lines
    [data] = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert (data["name"], data["run"], data["fields"]["tool"]) == ("tool_error", "r", "delete_invoice")


async def test_without_a_feed_there_is_no_console(bot: Bot, start: Start) -> None:
    async with start(console=False), page(bot) as (http, _):
        async with http.get("/chat/console") as response:
            assert response.status == 404
        async with http.get("/chat") as response:
            assert 'data-console="off"' in await response.text()


async def test_a_page_that_has_gone_holds_no_stream(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _), asyncio.timeout(60):
        async with http.get("/chat/events") as response:
            await response.content.readline()
            assert bot.channel.on_typing
        while bot.channel.on_typing:
            await asyncio.sleep(0.01)


async def test_the_server_stops_although_pages_listen(bot: Bot, start: Start) -> None:
    async with start() as running, page(bot) as (http, _), http.get("/chat/events") as response:
        await response.content.readline()
        async with asyncio.timeout(60):
            await running.cleanup()
        assert bot.channel.on_typing == set()


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a\nb", "<p>a<br />\nb</p>\n"),
        ("~~old~~ `new`", "<p><s>old</s> <code>new</code></p>\n"),
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>\n"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>\n"),
        ("[x](JaVaScRiPt&colon;alert(1))", "<p>[x](JaVaScRiPt:alert(1))</p>\n"),
        ("[x](data:text/html,x)", "<p>[x](data:text/html,x)</p>\n"),
        ("[x](/webhooks/y)", "<p>[x](/webhooks/y)</p>\n"),
        (
            "[bank](https://evil.example/)",
            '<p><a href="https://evil.example/" target="_blank" rel="noopener noreferrer nofollow" '
            'title="https://evil.example/">bank</a></p>\n',
        ),
    ],
)
def test_markdown_becomes_inert_html(text: str, html: str) -> None:
    assert to_html(text) == html


LINK = '<a href="{0}" target="_blank" rel="noopener noreferrer nofollow" title="{0}">{1}</a>'


def linked(address: str, words: str = "") -> str:
    return LINK.format(address, words or address)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("see https://a.example/x?y=1.", f"see {linked('https://a.example/x?y=1')}."),
        ("(http://localhost:8080/z)", f"({linked('http://localhost:8080/z')})"),
        ("mailto:ana@a.example", linked("mailto:ana@a.example")),
        ("a.example ana@a.example ftp://a.example //a.example", "a.example ana@a.example ftp://a.example //a.example"),
        ("`https://a.example`", "<code>https://a.example</code>"),
        ("![chart](https://a.example/c.png)", linked("https://a.example/c.png", "chart")),
        ("![](https://a.example/c.png)", linked("https://a.example/c.png")),
        ("[![in](https://a.example/c.png)](https://b.example)", linked("https://b.example", "in")),
        ("![chart](javascript:alert)", "![chart](javascript:alert)"),
    ],
)
def test_an_address_and_a_picture_are_links_to_it(text: str, html: str) -> None:
    assert to_html(text) == f"<p>{html}</p>\n"


def test_no_value_of_a_question_becomes_a_link() -> None:
    assert to_html("https://a\\.example http://localhost", links=False) == "<p>https://a.example http://localhost</p>\n"


def test_task_list_item_becomes_a_checkbox() -> None:
    box = '<li class="task"><input type="checkbox" disabled{} aria-label="{}"> {}</li>\n'
    html = to_html('- [ ] one "or" `two`\n- [x] https://a.example\n- [y] three\n\n[ ] four')
    one = box.format("", "one &quot;or&quot; two", "one &quot;or&quot; <code>two</code>")
    tasks = one + box.format(" checked", "https://a.example", linked("https://a.example"))
    assert html == f"<ul>\n{tasks}<li>[y] three</li>\n</ul>\n<p>[ ] four</p>\n"


@pytest.mark.parametrize(
    "text",
    [
        "http://" * 2_200,
        "mailto:a" * 1_900,
        "http://" + "a@" * 7_500,
        "http://a.b/ " * 1_300,
        "http://x/" + "(" * 15_000,
    ],
    ids=["schemes", "mailboxes", "names", "links", "brackets"],
)
def test_finding_addresses_takes_no_time(text: str) -> None:
    began = time.process_time()
    to_html(text)
    assert time.process_time() - began < 0.8


@pytest.mark.parametrize(
    "text",
    [
        "<b>\nword " * 1_000_000,
        "[<b>\n" * 100_000,
        "a|" * 50 + "\n" + "-|" * 50 + "\n" + "<b>\n" * 3_000,
        "> " * 30 + "<b>\n",
    ],
    ids=["long", "brackets", "table", "deep"],
)
def test_text_too_slow_to_parse_is_shown_whole_and_escaped(text: str) -> None:
    began = time.process_time()
    html = to_html(text)
    assert time.process_time() - began < 0.8
    assert html == f"<p>{escape(text)}</p>".replace("\n", "<br />\n") + "\n"


async def opened(url: str, accept_language: str | None) -> str:
    headers = {"Accept-Language": accept_language} if accept_language else {}
    async with aiohttp.ClientSession() as http, http.get(f"{url}/chat", headers=headers) as response:
        return unescape(await response.text())


@pytest.mark.parametrize(
    ("accepts", "language"),
    [
        ("pt-BR,pt;q=0.9", "pt"),
        ("es", "es"),
        ("fr-FR, es;q=0.5", "fr"),
        ("ar-EG", "ar"),
        ("tlh, es;q=0.5", "en"),
        (None, "en"),
        ('"><script>', "en"),
    ],
)
async def test_the_page_speaks_the_persons_language(bot: Bot, start: Start, accepts: str | None, language: str) -> None:
    async with start():
        body = await opened(bot.url, accepts)
    assert f'<html lang="{language}" dir="{"rtl" if language == "ar" else "ltr"}">' in body
    texts = {name: text for name, text in LANGUAGES[language].items() if name.startswith("page_")}
    assert f'placeholder="{texts["page_placeholder"]}"' in body
    [given] = re.findall(r'data-texts="(\{.*?\})">', body)
    assert {f"page_{name}": text for name, text in json.loads(given).items()} == texts
    assert "{{" not in body


async def test_the_page_speaks_the_bots_tone_and_own_sentences(bot: Bot, start: Start) -> None:
    bot.commands = BotCommands().described
    async with start(wording=Wording("familiar", {"de": {"page_send": "Ab damit", "cmd_help": "Hilf mir"}})):
        body = await opened(bot.url, "de")
    assert 'placeholder="Nachricht schreiben"' in body and "Deine Nachricht" in body and "Ihre Nachricht" not in body
    assert '"help": "Hilf mir"' in body
    assert "Ab damit" in body


async def test_the_page_speaks_the_bots_language_where_it_has_one(bot: Bot, start: Start) -> None:
    async with start(language="es-MX"):
        assert '<html lang="es"' in await opened(bot.url, "pt-BR")


@pytest.mark.parametrize("exact", [True, False])
async def test_no_address_in_a_question_is_a_link(bot: Bot, start: Start, exact: bool) -> None:
    reply = Reply(text="Open “http://localhost/x”?", exact=exact)
    bot.answer = lambda bot, event: bot.says(event.address.place, "m1", reply)
    async with start(), page(bot) as (http, _):
        await say(http, "hello")
        _, told = await shown(http, 2)
    assert ("<a " in told["html"]) is not exact
    assert "exact" not in told


async def test_the_time_of_a_note_is_marked_and_no_other(bot: Bot, start: Start) -> None:
    """The page shows the time in the person's zone. An equal time among the arguments stays as confirmed."""
    at = datetime(2026, 3, 1, 14, 2, tzinfo=UTC)
    text = "**Move it to 14:02 UTC**\n- to: 14:02 UTC\n\nConfirmed by you, done {}."
    text = text.format(time_link("14:02 UTC", at, with_day=False))
    settled = (Settled(state="done"),)
    bot.answer = lambda bot, event: bot.says(event.address.place, "m1", Reply(text=text, exact=True, settled=settled))
    async with start(), page(bot) as (http, _):
        await say(http, "hello")
        _, told = await shown(http, 2)
    assert told["settled"] == ["done"]
    assert told["html"].count("<time") == 1
    assert f'done <time datetime="{at.isoformat()}">14:02 UTC</time>.' in told["html"]


async def test_the_console_says_which_conversation_it_is(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, session):
        bot.feed.read(sample(TurnEnd, conversation=f"bot/webchat:local:{session}"))
        bot.feed.read(sample(TurnEnd, conversation="bot/telegram:1:2"))
        bot.feed.read(sample(ToolListed))
        found: list[tuple[str, bool]] = []
        async with http.get("/chat/console") as response:
            while len(found) < 3:
                if (line := (await response.content.readline()).decode()).startswith("data: "):
                    told = json.loads(line[6:])
                    found.append((told["where"], told["here"]))
    assert found == [(f"webchat:local:{session}", True), ("telegram:1:2", False), ("", False)]


# ── Streams: a few of one session, rendered once for all ──


@asynccontextmanager
async def stream(http: aiohttp.ClientSession) -> AsyncIterator[aiohttp.ClientResponse]:
    """An open stream."""
    async with http.get("/chat/events") as response:
        assert response.status == 200
        await response.content.readuntil(b":\n\n")
        yield response


async def test_the_oldest_of_too_many_streams_of_a_session_ends(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (ana, _), page(bot) as (eve, _), AsyncExitStack() as stack, asyncio.timeout(60):
        hers = await stack.enter_async_context(stream(ana))
        his = [await stack.enter_async_context(stream(eve)) for _ in range(9)]
        for ended in his[:3]:
            assert await ended.content.read() == b"retry: 30000\n\n"
        assert not any(open_.content.at_eof() for open_ in (hers, *his[3:]))
        assert len(bot.channel.on_typing) == 7


async def test_many_streams_of_one_session_cut_no_other_page(bot: Bot, start: Start) -> None:
    few = Share(None, None, 4)
    async with start(streams=few), page(bot) as (ana, _), page(bot) as (eve, _), AsyncExitStack() as stack:
        async with asyncio.timeout(60):
            hers = await stack.enter_async_context(stream(ana))
            his = [await stack.enter_async_context(stream(eve)) for _ in range(9)]
            for ended in his[:6]:
                assert await ended.content.read() == b"retry: 30000\n\n"
            await stack.enter_async_context(stream(ana))
            assert await his[6].content.read() == b"retry: 30000\n\n"
            assert not hers.content.at_eof()


async def test_each_text_is_rendered_once_for_all_streams(
    bot: Bot, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []

    def counted(text: str, *, links: bool = True) -> str:
        rendered.append(text)
        return to_html(text, links=links)

    monkeypatch.setattr("gateway.web.chat.to_html", counted)
    bot.answer = lambda bot, event: bot.says(event.address.place, "m1", Reply(text="**done**"))
    async with start(), page(bot) as (http, session), AsyncExitStack() as stack, asyncio.timeout(60):
        streams = [await stack.enter_async_context(stream(http)) for _ in range(6)]
        drawn = await bot.channel.stream(Address(channel="webchat", account="local", place=session))
        await drawn.update("a **draft")
        for each in streams:
            assert b"<strong>draft</strong>" in await each.content.readuntil(b"}\n\n")
        await say(http, "hello")
        for each in streams:
            await each.content.readuntil(b"event: message\nid: 2\n")
            assert b"<strong>done</strong>" in await each.content.readuntil(b"\n\n")
        await shown(http, 2)
    assert rendered == ["a **draft**", "**done**"]


async def test_the_loop_goes_round_between_two_renderings() -> None:
    """Many pages opened at once delay another request by at most the rendering of one text."""
    loop, rounds = asyncio.get_running_loop(), [0]

    def go_round() -> None:
        rounds[0] += 1
        loop.call_soon(go_round)

    made: list[int] = []

    def make(text: str, links: bool) -> str:
        made.append(rounds[0])
        return text

    texts = RenderedTexts(make, RenderingTurn(), 100)
    go_round()
    await asyncio.gather(*[texts.html(f"text {number}") for number in range(20)])
    assert len(set(made)) == 20


@pytest.mark.parametrize(
    "text",
    ["- a\n" * 4_000, "|" * 10 + "\n" + "|-" * 9 + "|\n" + "|a" * 9 + "|\n" * 600, "*a" * 8_000, "http://" * 2_285],
    ids=["list", "table", "stars", "addresses"],
)
async def test_no_text_holds_the_loop_while_it_is_rendered(text: str) -> None:
    """The loop beats every 10 milliseconds; between two beats there are less than 100 of the processor's time."""

    async def longest() -> float:
        texts = RenderedTexts(lambda text, links: to_html(text, links=links), RenderingTurn(), 1_000_000)
        making, most, last = asyncio.create_task(texts.html(text)), 0.0, time.process_time()
        while not making.done():
            await asyncio.sleep(0.01)
            most, last = max(most, time.process_time() - last), time.process_time()
        assert await making == to_html(text)
        return most

    found: list[float] = []
    while not found or (found[-1] >= 0.1 and len(found) < 3):  # a busy machine may give the thread all of its time
        found.append(await longest())
    assert min(found) < 0.1, found


async def test_rendered_texts_are_kept_up_to_their_room() -> None:
    made: list[str] = []

    def make(text: str, links: bool) -> str:
        made.append(text)
        return text * 2

    texts = RenderedTexts(make, RenderingTurn(), 100)
    for text in ("a" * 10, "b" * 10, "c" * 10, "a" * 10, "d" * 10, "a" * 10, "b" * 10, "e" * 90, "e" * 90):
        assert await texts.html(text) == text * 2
    assert made == [each * 10 for each in "abcdb"] + ["e" * 90] * 2


# ── Sessions: they end ──


async def test_logout_ends_the_session_for_good(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, session), stream(http) as open_, asyncio.timeout(60):
        [cookie] = [each.value for each in http.cookie_jar]
        bot.says(session, "m1", Reply(text="hello", media=(await bot.keeps(b"%PDF-1.7", "INV-7.pdf"),)))
        *_, file = await shown(http, 2)
        async with http.post("/chat/logout", headers={"Origin": "http://evil.example"}) as response:
            assert response.status == 401
        async with http.post("/chat/logout") as response:
            assert (response.status, await response.json()) == (200, {"status": "ended"})
            assert response.cookies[COOKIE]["max-age"] == "0"
        await open_.content.read()
        assert not [*http.cookie_jar]
        stolen = {"Cookie": f"{COOKIE}={cookie}"}
        assert await say(http, "hello", **stolen) == 401
        for path in ("/chat/events", "/chat/console"):
            async with http.get(path, headers=stolen) as response:
                assert response.status == 401
        async with http.get(f"/{file['media'][0]['link']}", headers=stolen) as response:
            assert response.status == 404
        assert (await piece(http, b"x", headers=stolen))[0] == 401
        async with http.get("/chat", headers=stolen) as response:
            assert response.cookies[COOKIE].value.partition(".")[0] != session
    assert bot.accepted == []


async def test_open_page_learns_that_an_operator_ended_its_session(
    bot: Bot, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.chat.HEARTBEAT_SECONDS", 0.01)
    async with start(), page(bot) as (http, session), stream(http) as open_, asyncio.timeout(60):
        bot.ended.add(session)
        await open_.content.read()
        async with http.get("/chat/events") as response:
            assert response.status == 401


async def test_no_visit_prolongs_a_session(bot: Bot, start: Start) -> None:
    now = datetime.now(UTC)
    old = bot.channel.cookies.sign("s" * 22, now - timedelta(days=29, hours=23))
    older = bot.channel.cookies.sign("s" * 22, now - timedelta(days=30, seconds=1))
    async with start(), aiohttp.ClientSession(bot.url) as http:
        async with http.get("/chat", headers={"Cookie": f"{COOKIE}={old.cookie}"}) as response:
            assert response.cookies[COOKIE].value == old.cookie
            assert 3500 < int(response.cookies[COOKIE]["max-age"]) <= 3600
        http.cookie_jar.clear()
        async with http.get("/chat", headers={"Cookie": f"{COOKIE}={older.cookie}"}) as response:
            assert response.cookies[COOKIE].value.partition(".")[0] != "s" * 22


async def test_too_many_new_sessions_are_told_when_to_come_again(bot: Bot, start: Start) -> None:
    bot.wait = 2.5
    async with start(), aiohttp.ClientSession(bot.url) as http:
        async with http.get("/chat") as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "3")
            assert response.headers["Refresh"] == "3" and not response.cookies
        known = bot.channel.cookies.begin(datetime.now(UTC), bytes)
        async with http.get("/chat", headers={"Cookie": f"{COOKIE}={known.cookie}"}) as response:
            assert response.status == 200


# ── Files of the chat page: sent in pieces, counted once, kept for their session alone ──


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
    headers: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> tuple[int, Any]:
    query = {"upload": "u" * 32, "at": str(at), "size": str(len(body) if size is None else size), "name": name, **more}
    async with http.post("/chat/files", params=query, data=body, headers={**OCTETS, **headers}) as response:
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


async def send(http: aiohttp.ClientSession, *files: dict[str, Any], text: str = "") -> int:
    body = {"client_id": "c" * 32, "text": text, "files": files}
    async with http.post("/chat/messages", json=body) as response:
        return response.status


async def read(bot: Bot, attachment: Attachment) -> bytes:
    return b"".join([piece async for piece in bot.channel.fetch(attachment)])


async def test_a_file_in_pieces_arrives_whole_with_its_message(bot: Bot, start: Start) -> None:
    bot.channel.uploaded = lambda session, token: uploaded(bot.artifacts, session, token)
    async with start(), page(bot) as (http, session):
        file = await sent(http, CONTENT)
        assert await send(http, file) == 200
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


async def test_a_piece_that_comes_again_adds_no_bytes(bot: Bot, start: Start) -> None:
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


async def test_a_token_of_another_session_opens_no_file(bot: Bot, start: Start) -> None:
    bot.channel.uploaded = lambda session, token: uploaded(bot.artifacts, session, token)
    async with start():
        async with page(bot) as (http, _):
            file = await sent(http, b"the salary list")
        async with page(bot) as (thief, _):
            assert await send(thief, file, text="what does it send?") == 200
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
        assert await send(http, *files) == 400
    assert bot.accepted == []


async def test_upload_that_no_message_names_leaves_within_an_hour(bot: Bot, start: Start) -> None:
    """The sweep runs every ten minutes."""
    async with start(), page(bot) as (http, session):
        await piece(http, b"abc", 0, 100)
        named = await sent(http, b"named", upload="n" * 32)
        unnamed = await sent(http, b"unnamed", upload="m" * 32)
        assert await send(http, named) == 200
        assert bot.named == [("notes.txt", f"webchat:local:{session}")]
        [part] = bot.artifacts.directory.glob(".*.part")
        path = bot.artifacts.resolve(unnamed["token"])[0]
        await bot.artifacts.sweep(datetime.now(UTC) + timedelta(minutes=49))
        assert part.exists() and path.exists()
        await bot.artifacts.sweep(datetime.now(UTC) + timedelta(minutes=51))
        assert not part.exists() and not path.exists()
        await bot.artifacts.sweep(datetime.now(UTC) + timedelta(days=29))
        assert bot.artifacts.resolve(named["token"])[0].exists()
        assert await piece(http, b"def", 3, 100) == (409, {"at": 0})


async def test_message_is_taken_although_its_file_cannot_be_kept(bot: Bot, start: Start) -> None:
    async with start(), page(bot) as (http, _):
        file = await sent(http, b"one")
        bot.is_full = True
        assert await send(http, file, text="look") == 200
    assert len(bot.accepted) == 1 and bot.named == []


def test_a_file_is_no_larger_than_the_engine_reads() -> None:
    from gateway.engine.turns.attachments import LARGEST_BYTES, MOST_FILES

    assert (MAX_FILE_BYTES, 10) == (LARGEST_BYTES, MOST_FILES)

"""People logged in on the site around the chat page: who they are, and what no other person gets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from channels.webchat import COOKIE
from gateway import Agent, Approvers, ChannelAgent, ChatUser, Confirm, tool
from gateway.config.options import WrongOption
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.web import chat, chat_visitors
from tests.web.site import SHOP, Site, Visitor

CHAT, OTHER = "A" * 22, "B" * 22
INSTEAD = "somebody else is logged in now: open the chat page again"


@pytest.fixture
def site() -> Site:
    return Site()


async def test_tools_run_for_the_logged_in_person(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path, allow="webchat:site:*"), Visitor(site, "ana") as ana, Visitor(site) as stranger:
        page = await ana.opens()
        assert '<html lang="de"' in await page.text()
        assert await ana.says("list invoices") == 200
        await ana.reads(2)
        assert COOKIE in site.requests[-1].cookies, "a request as aiohttp gives it"
        await stranger.opens()
        assert await stranger.says("list invoices") == 200
        [refused] = await stranger.reads(1)
        assert "talks only to people it knows" in refused["html"]
    [context] = site.ran_for
    assert (context.person, context.language, str(context.address)) == ("webchat:site:ana", "de", "webchat:site:ana")


async def test_another_browser_finds_conversation_and_chats(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as first, Visitor(site, "ana") as second:
        await first.opens()
        await first.says("list invoices")
        await first.reads(2)
        await first.says("what can you do?", CHAT)
        await first.reads(2, CHAT)
        await second.opens()
        [mine, _] = await second.reads(2)
        assert mine["text"] == "list invoices"
        listed = await second.chats()
        assert [(each["chat"], each["title"]) for each in listed] == [
            (CHAT, "what can you do?"),
            (None, "list invoices"),
        ]
        assert await first.posts("logout") == 200
        assert await first.says("hello") == 401
        await first.opens()
        assert await first.chats() == listed, "the chats stay with the person"


@pytest.mark.parametrize(("before", "after"), [("ana", "eve"), ("ana", None), (None, "eve")])
async def test_another_login_ends_the_session(
    site: Site, tmp_path: Path, before: str | None, after: str | None
) -> None:
    async with site.served(tmp_path), Visitor(site, before) as visitor, Visitor(site, before) as thief:
        await visitor.opens()
        assert await visitor.says("my secret") == 200
        await visitor.reads(2)
        [stolen] = [cookie for cookie in visitor.http.cookie_jar if cookie.key == COOKIE]
        visitor.log_in(after)
        async with visitor.http.get("/chat/events") as response:
            assert (response.status, await response.text()) == (401, INSTEAD)
        visitor.log_in(before)
        assert await visitor.says("hello") == 401, "the session has ended for good"
        thief.http.cookie_jar.update_cookies({COOKIE: stolen.value})
        assert await thief.says("hello") == 401

        visitor.log_in(after)
        await visitor.opens()
        assert await visitor.chats() == [], "nothing passes to another person"
        assert await visitor.says("list invoices") == 200
        [mine, _] = await visitor.reads(2)
        assert mine["text"] == "list invoices"


@pytest.mark.parametrize("path", ["messages", "presses", "stops", "files?upload=abcdefgh&at=0&size=1&name=a.txt"])
async def test_each_post_of_another_person_is_refused(site: Site, tmp_path: Path, path: str) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as visitor:
        await visitor.opens()
        visitor.log_in("eve")
        async with visitor.http.post(f"/chat/{path}", json={"client_id": "abcdefgh", "text": "x"}) as response:
            assert (response.status, await response.text()) == (401, INSTEAD)


async def test_open_pages_end_with_the_login(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as visitor:
        await visitor.opens()
        async with visitor.http.get("/chat/events") as stream:
            await stream.content.readline()
            visitor.log_in("eve")
            assert await visitor.says("hello") == 401
            async with asyncio.timeout(30):
                await stream.content.read()  # to its end


async def test_an_open_page_is_asked_for_its_login_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(chat, "LOGIN_SECONDS", 0.1)
    async with site.served(tmp_path), Visitor(site, "ana") as visitor:
        await visitor.opens()
        async with asyncio.timeout(30), visitor.http.get("/chat/events") as stream:
            await stream.content.read()  # to its end
        visitor.log_in(None)
        async with visitor.http.get("/chat/events") as stream:
            assert stream.status == 401


async def test_a_session_planted_by_another_is_never_used(site: Site, tmp_path: Path) -> None:
    """Fixation: a victim with the attacker's cookie gets a new session on the first visit."""
    async with site.served(tmp_path), Visitor(site, "eve") as eve, Visitor(site, "ana") as ana:
        await eve.opens()
        [planted] = [cookie.value for cookie in eve.http.cookie_jar if cookie.key == COOKIE]
        ana.http.cookie_jar.update_cookies({COOKIE: planted})
        page = await ana.opens()
        assert page.cookies[COOKIE].value.partition(".")[0] != planted.partition(".")[0]
        await ana.says("my secret")
        await ana.reads(2)
        assert await eve.says("hello") == 401


async def test_requests_of_other_pages_do_not_reach_the_hook(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as ana:
        await ana.opens()
        asked = len(site.requests)
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
            body = {"client_id": "abcdefgh", "text": "hello"}
            async with ana.http.post(
                "/chat/messages", json=body, headers={"Cookie": "login=eve", **headers}
            ) as response:
                assert response.status == 401
        assert len(site.requests) == asked
        assert await ana.says("hello") == 200, "the session goes on"


class Quoting(Exception):
    """An error with words of a person."""


@pytest.mark.parametrize("fails", [Quoting("token-of-ana"), TimeoutError("token-of-ana")], ids=["error", "timeout"])
async def test_a_request_under_a_failing_hook_is_not_stored(
    site: Site, tmp_path: Path, fails: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.served(tmp_path), Visitor(site, token="token-of-ana") as ana:
        await ana.opens()
        site.fails = fails
        assert await ana.says("hello") == 503
        assert (await ana.opens()).status == 503
        async with ana.http.get("/chat/events") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "5")
        assert await ana.posts("logout") == 200, "the way out is open"
        site.fails = None
        await ana.opens()
        assert await ana.chats() == []
        assert not await site.gateway.store.logs("visible/")
    said = [record for record in caplog.records if record.name == "askfirst.web" and record.levelno == logging.ERROR]
    assert said and "token" not in caplog.text


async def test_a_slow_hook_is_a_failing_one(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_visitors, "HOOK_SECONDS", 0.05)
    async with site.served(tmp_path), Visitor(site, "ana") as ana:
        await ana.opens()
        site.slow = asyncio.Event()
        assert await ana.says("hello") == 503
        site.slow.set()
        assert await ana.says("hello") == 200


@pytest.mark.parametrize("answer", ["ana", 7, object()], ids=["str", "int", "object"])
async def test_another_answer_of_the_hook_is_named(
    site: Site, tmp_path: Path, answer: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(request: object) -> object:
        return answer

    monkeypatch.setattr(Site, "chat_user", lambda site, request: wrong(request))
    async with site.served(tmp_path), Visitor(site) as visitor:
        assert (await visitor.opens()).status == 503
    assert f"chat_user returned {type(answer).__name__}: write it with async def" in caplog.text


@pytest.mark.parametrize(
    "user_id", ["", "a:b", "a\nb", "a/b", "*", "a,b", "a b", "a%2Fb", "ana.", "..", "ä", "x" * 129, 7, None], ids=repr
)
def test_ids_that_could_read_as_another_are_refused(user_id: str) -> None:
    with pytest.raises(WrongOption, match=r"ChatUser: user_id should be a string of 1 to 128 characters") as refused:
        ChatUser(user_id)
    assert not user_id or len(str(user_id)) < 3 or str(user_id) not in str(refused.value)


@pytest.mark.parametrize("user_id", ["7", "auth0|5f7c-1", "ana.mota+x@shop.example", "A_b=~", "x" * 128])
async def test_ids_of_usual_sites_make_a_person(site: Site, tmp_path: Path, user_id: str) -> None:
    async with site.served(tmp_path, allow=f"webchat:site:{user_id}"), Visitor(site, token=user_id) as visitor:
        await visitor.opens()
        assert await visitor.says("list invoices") == 200
        await visitor.reads(2)
    assert [context.person for context in site.ran_for] == [f"webchat:site:{user_id}"]


def test_a_name_is_one_short_line() -> None:
    assert ChatUser("7", name=" Ana\n\u202e  Mota ").name == "Ana Mota"
    assert ChatUser("7", name="x" * 200).name == "x" * 100
    assert ChatUser("7", language="pt_BR").language == "pt-BR"
    with pytest.raises(WrongOption, match="language should be a language tag"):
        ChatUser("7", language="Deutsch!")


async def test_uploads_open_for_their_person_alone(site: Site, tmp_path: Path) -> None:
    async with (
        site.served(tmp_path),
        Visitor(site, "ana") as first,
        Visitor(site, "ana") as second,
        Visitor(site, "eve") as eve,
    ):
        for visitor in (first, second, eve):
            await visitor.opens()
        piece = "/chat/files?upload=abcdefgh&at=0&size=5&name=a.txt"
        octets = {"Content-Type": "application/octet-stream"}
        async with first.http.post(piece, data=b"hello", headers=octets) as response:
            file = (await response.json())["file"]
        assert await first.posts("messages", text="see", files=[file]) == 200
        [mine] = (await second.reads(1))[0]["media"]
        for visitor, status in ((first, 200), (second, 200), (eve, 404)):
            async with visitor.http.get(f"/{mine['link']}") as response:
                assert response.status == status
        second.log_in("eve")
        async with second.http.get(f"/{mine['link']}") as response:
            assert response.status == 404, "the next person at this browser"
        await eve.says("hello")
        assert await eve.posts("messages", text="mine", files=[file]) == 200, "a token of another one's file"
        assert not list((tmp_path / "artifacts").glob("*eve*"))


async def test_a_person_of_the_site_approves(site: Site, tmp_path: Path) -> None:
    paid: list[str] = []

    @tool(confirm=Confirm("Pay {amount}?", approvers=Approvers(people=["webchat:site:boss"], name="the boss")))
    async def pay(amount: str) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    bot = ChannelAgent(Agent([pay], provider="demo"))
    async with site.served(tmp_path, bot=bot), Visitor(site, "ana") as ana, Visitor(site, "boss") as boss:
        await ana.opens()
        await ana.says("pay amount=10")
        await boss.opens()
        [asked] = await boss.reads(1)
        assert "Ana Mota" in asked["html"] and "Pay" in asked["html"]
        press = {"token": asked["buttons"][0]["token"], "message_id": asked["message_id"]}
        assert await ana.posts("presses", **press) == 200, "taken, and refused by the engine"
        assert await boss.posts("presses", **press) == 200
        await boss.reads(2)
        await ana.reads(3)
    assert paid == ["10"]


async def test_an_operator_ends_all_sessions_of_a_person(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, "ana") as ana, Visitor(site, "eve") as eve:
        for visitor in (ana, eve):
            await visitor.opens()
        context = site.gateway.engine.context
        operator = Operator(context.store, context.channels, context.keyring, bot=context.bot.name)
        with pytest.raises(NotDone, match="webchat:local:SESSION or webchat:site:USER"):
            await operator.end_sessions("webchat:site")
        await operator.end_sessions("webchat:site:ana")
        assert (await ana.says("hello"), await eve.says("hello")) == (401, 200)


async def test_without_the_setting_no_site_frames_the_page(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path), Visitor(site, token="token-of-ana") as ana:
        page = await ana.opens()
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert "SameSite=Strict" in page.headers["Set-Cookie"]
        assert "Partitioned" not in page.headers["Set-Cookie"]
        for path in ("/chat/embed.js", "/chat/session"):
            assert (await ana.opens(path)).status == 404
        body = {"client_id": "abcdefgh", "text": "hello"}
        async with ana.http.post("/chat/messages", json=body, headers={"Origin": SHOP}) as response:
            assert response.status == 401

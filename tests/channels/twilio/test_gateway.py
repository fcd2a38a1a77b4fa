"""Both channels behind the real gateway and web server, with one URL, one account and one store."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

from channels import Address, MissingSetting, Reply
from channels.formatting import GSM
from gateway import Gateway, Settings, emit_artifact
from gateway.artifacts import collecting
from gateway.store.errors import StoreUnavailable
from gateway.testing import ScriptedProvider, ToolCall
from gateway.web import serve, webhooks
from gateway.wording.sentences import headings
from tests.channels.twilio.conftest import ANA
from tests.channels.twilio.forms import request
from tests.e2e.house import Shop, env_of, pdf_of
from tests.fakes.twilio import Answer, FakeTwilio
from tests.ports import free_port

EMPTY = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
TAKEN = Answer(200, EMPTY, "text/xml")
DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-42"})
BY_CHANNEL = pytest.mark.parametrize("whatsapp", [False, True], ids=["sms", "whatsapp"])


class House:
    def __init__(self, gateway: Gateway, twilio: FakeTwilio, shop: Shop) -> None:
        self.gateway, self.twilio, self.shop = gateway, twilio, shop

    async def idle(self) -> None:
        while not await self.gateway.engine.idle():
            await asyncio.sleep(0.002)

    async def later(self, seconds: float) -> None:
        self.gateway.store.offset_seconds += seconds
        await self.gateway.engine.due()

    async def prompt(self, **how: Any) -> str:
        """Ana asks for the deletion of INV-42. Returns the prompt's code once the prompt's arrival is known."""
        assert await self.twilio.person_says(ANA, "delete INV-42", **how) == TAKEN
        prompt = await self.twilio.wait_for(lambda: self.twilio.last(ANA, containing="INV-42"))
        await self.idle()
        codes = {str(word) for word in re.findall(r"\b[A-Z0-9]{4}\b", prompt.body) if re.search(r"\d", word)}
        (code,) = codes
        return code


@contextlib.asynccontextmanager
async def open_house(
    directory: Path, script: Sequence[Any], twilio: FakeTwilio | None = None, *, public_url: str = "", **options: Any
) -> AsyncIterator[House]:
    """A house at a free port. The public URL is the port's unless `public_url` is set; `options` are the bot's."""
    async with contextlib.AsyncExitStack() as stack:
        twilio = await stack.enter_async_context(twilio or FakeTwilio())
        port = free_port()
        shop = Shop()
        settings = _settings(directory, twilio, public_url=public_url or f"http://127.0.0.1:{port}")
        bot = shop.bot(ScriptedProvider(script), **options)
        gateway = await stack.enter_async_context(await asyncio.to_thread(Gateway, bot, settings))
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", port)
        stack.push_async_callback(running.cleanup)
        twilio.webhook_url = f"http://127.0.0.1:{port}/webhooks/twilio"
        yield House(gateway, twilio, shop)


def _settings(directory: Path, twilio: FakeTwilio, **values: Any) -> Settings:
    account = {name.lower(): value for name, value in env_of(directory, twilio).items() if "TWILIO" in name}
    store = f"sqlite:///{directory / 'askfirst.db'}"
    return Settings(**{"store": store, "secret": "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK", "allow": "*", **account, **values})


@BY_CHANNEL
async def test_an_action_confirmed_by_its_code_runs_once(tmp_path: Path, whatsapp: bool) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        code = await house.prompt(whatsapp=whatsapp)
        form = house.twilio.form(ANA, f"ok {code.lower()}", whatsapp=whatsapp)
        assert await house.twilio.deliver(form) == TAKEN
        done = await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="is deleted"))
        assert done.to.startswith("whatsapp:") is whatsapp
        await house.later(29 * 86400.0)  # its signature proves it for ever
        assert await house.twilio.deliver(form) == TAKEN
        await house.idle()
        assert house.shop.deleted == ["INV-42"]
        assert house.twilio.last(ANA) is done


async def test_a_reply_to_the_prompt_decides_on_whatsapp(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        await house.prompt(whatsapp=True)
        prompt = house.twilio.last(ANA)
        await house.later(120.0)  # a bare word would count no more
        await house.twilio.person_says(ANA, "yes", whatsapp=True, reply_to=prompt)
        await house.twilio.wait_for(lambda: house.shop.deleted)
        await house.idle()


@pytest.mark.ledger("PEND-66")
@pytest.mark.parametrize(
    ("whatsapp", "language", "asked", "yes"),
    [
        (False, None, r"Reply OK (\w{4}) to confirm or NO \1 to cancel\.", "yes {}"),
        (False, "pt-BR", r"Responda SIM (\w{4}) para confirmar ou NAO \1 para cancelar\.", "Sim {}"),
        (True, "pt-BR", r"Responda \*SIM (\w{4})\* para confirmar ou \*NÃO \1\* para cancelar\.", "sim {}."),
        (True, "es", r"Responde \*SÍ (\w{4})\* para confirmar o \*NO \1\* para cancelar\.", "{} si"),
    ],
)
async def test_question_names_its_answer_words_in_the_chats_language(
    tmp_path: Path, whatsapp: bool, language: str | None, asked: str, yes: str
) -> None:
    async with open_house(tmp_path, [DELETE], language=language) as house:
        await house.twilio.person_says(ANA, "delete INV-42", whatsapp=whatsapp)
        prompt = await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="INV-42"))
        await house.idle()
        found = re.search(asked, prompt.body)
        assert found, prompt.body
        assert whatsapp or set(prompt.body) <= GSM
        await house.twilio.person_says(ANA, yes.format(found[1].lower()), whatsapp=whatsapp)
        await house.twilio.wait_for(lambda: house.shop.deleted)
        await house.idle()


# ── opt-out ──

FAREWELL = "You will hear nothing more from me. To hear from me again, write Start."


@BY_CHANNEL
@pytest.mark.parametrize("asked", ["", "STOP"], ids=["by our words", "by Advanced Opt-Out"])
async def test_opt_out_withdraws_open_asks_and_ends_messages(tmp_path: Path, whatsapp: bool, asked: str) -> None:
    fields: dict[str, Any] = {"OptOutType": asked} if asked else {}
    async with open_house(tmp_path, [DELETE]) as house:
        code = await house.prompt(whatsapp=whatsapp)
        before = len(house.twilio.sent)
        word = "salir" if asked else "STOP"
        assert await house.twilio.person_says(ANA, word, whatsapp=whatsapp, **fields) == TAKEN
        await house.idle()
        said = [sent.body for sent in house.twilio.sent[before:]]
        assert said == ([FAREWELL] if whatsapp and not asked else []), "Twilio tells them the rest"
        await house.twilio.person_says(ANA, f"ok {code}", whatsapp=whatsapp)
        await house.twilio.person_says(ANA, "hello?", whatsapp=whatsapp)
        await house.idle()
        await house.later(3600)
        await house.idle()
        assert house.shop.deleted == []
        assert len(house.twilio.sent) == before + len(said)
        tried = [call.path for call in house.twilio.calls if call.method == "POST" and "Messages" in call.path]
        assert len(tried) == before + len(said), "nothing was even tried"


# ── reports ──


@BY_CHANNEL
@pytest.mark.parametrize("early", [False, True], ids=["after the answer", "before it"])
async def test_question_that_did_not_arrive_cannot_be_confirmed(tmp_path: Path, whatsapp: bool, early: bool) -> None:
    twilio = FakeTwilio(reports=("sent", "undelivered") if early else (), reports_first=early)
    async with open_house(tmp_path, [DELETE], twilio) as house:
        code = await house.prompt(whatsapp=whatsapp)
        prompt = twilio.last(ANA)
        assert prompt is not None
        if not early:
            await twilio.report(prompt, "undelivered", code="30003")
            await twilio.report(prompt, "undelivered", code="30003")
            await house.idle()
        assert {answer for _, answer in prompt.reports} == {200}
        letters = await house.gateway.store.dead_letters()
        assert len(letters) == (2 if early else 1), "the words about it share its fate"
        assert all(letter.reason.startswith("taken by the platform, but it did not arrive") for letter in letters)
        told = twilio.last(ANA)
        assert told is not None and told.body.startswith("This did not arrive in time, so nothing was done: Delete")
        await twilio.person_says(ANA, f"ok {code}", whatsapp=whatsapp)
        await house.idle()
        assert house.shop.deleted == []


async def test_report_of_a_foreign_message_is_answered_and_ignored(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        code = await house.prompt()
        prompt = house.twilio.last(ANA)
        assert prompt is not None
        other = replace(prompt, sid="SM" + "f" * 32, status_callback=f"{house.twilio.webhook_url}/status", reports=[])
        for status in ("sent", "failed", "delivered"):
            await house.twilio.report(other, status)
        assert other.reports == [("sent", 200), ("failed", 200), ("delivered", 200)]
        await house.idle()
        await house.twilio.person_says(ANA, f"ok {code}")
        await house.twilio.wait_for(lambda: house.shop.deleted)
        await house.idle()


async def test_call_with_a_lost_answer_is_not_repeated_once_reported(tmp_path: Path) -> None:
    async with open_house(tmp_path, ["Hello, Ana."]) as house:
        house.twilio.fail_next(cut=True, taken=True)
        await house.twilio.person_says(ANA, "hello")
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA))
        await house.twilio.wait_for(lambda: len(sent.reports) == 2)
        await house.idle()
        await house.later(60)
        await house.idle()
        assert house.twilio.sent == [sent]
        assert await house.gateway.store.dead_letters() == [] and (await house.gateway.store.stats()).parts == 0


async def test_file_is_fetched_from_our_server_and_reported_arrived(tmp_path: Path) -> None:
    script = [ToolCall("send_invoice_pdf", {"invoice_id": "INV-42"}), "Here it is."]
    async with open_house(tmp_path, script, FakeTwilio(reports_first=True)) as house:
        await house.twilio.person_says(ANA, "send INV-42", whatsapp=True)
        sent = await house.twilio.wait_for(lambda: next((s for s in house.twilio.sent if s.media), None))
        assert (sent.media[0].content, sent.media[0].mime_type) == (pdf_of("INV-42"), "application/pdf")
        await house.twilio.wait_for(lambda: len(sent.reports) == 2)
        assert sent.reports == [("sent", 200), ("delivered", 200)]
        await house.idle()


async def test_a_picture_by_sms_is_one_where_there_is_mms(tmp_path: Path) -> None:
    picture = b"\x89PNG\r\n\x1a\n"

    async with open_house(tmp_path, []) as house, aiohttp.ClientSession() as http:
        with collecting() as emitted:
            emit_artifact(content=picture, mime_type="image/png", filename="bill.png")
        media = await house.gateway.engine.context.artifacts.keep(emitted[0])
        for number in (ANA, "+447700900123"):
            where = Address(channel="sms", account=house.twilio.sms, place=number)
            await house.gateway.engine.runtime.notify(where, Reply(media=(media,)))
        shown = await house.twilio.wait_for(lambda: next((s for s in house.twilio.sent if s.media), None))
        assert (shown.to, shown.body, shown.media[0].content) == (ANA, "", picture)
        linked = await house.twilio.wait_for(lambda: house.twilio.last("+447700900123", containing="bill.png: http"))
        async with http.get(linked.body.partition(": ")[2]) as found:
            assert (await found.read(), found.content_type) == (picture, "image/png")
        await house.idle()


async def test_file_by_sms_is_a_link_until_a_new_conversation(tmp_path: Path) -> None:
    script = [ToolCall("send_invoice_pdf", {"invoice_id": "INV-42"}), "Here it is."]
    async with open_house(tmp_path, script) as house, aiohttp.ClientSession() as http:
        await house.twilio.person_says(ANA, "send INV-42")
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="INV-42.pdf: http"))
        async with http.get(sent.body.partition(": ")[2]) as found:
            assert await found.read() == pdf_of("INV-42")
        await house.twilio.person_says(ANA, "/new")
        await house.idle()
        async with http.get(sent.body.partition(": ")[2]) as found:
            assert found.status == 404


async def test_only_signed_requests_to_the_webhook_url_are_taken(tmp_path: Path) -> None:
    async with open_house(tmp_path, []) as house, aiohttp.ClientSession() as http:
        form = house.twilio.form(ANA, "hello")
        root = house.twilio.webhook_url
        for url, headers, status in (
            (root, {}, 401),
            (root, house.twilio.signed(f"{root}/status", form), 401),
            (f"{root}/other", house.twilio.signed(f"{root}/other", form), 404),
        ):
            async with http.post(url, data=form, headers=headers) as response:
                assert response.status == status
        async with http.post(root, data=b"\xff", headers={"Content-Type": "application/octet-stream"}) as response:
            assert response.status == 401
        assert house.twilio.sent == []


@pytest.mark.parametrize(
    ("whatsapp", "options", "said"),
    [
        (False, {}, "Your message was not received. Please send it again."),
        (False, {"wording": {"en": {"not_stored": "Once more, please."}}}, "Once more, please."),
        (False, {"language": "pt-BR"}, "Sua mensagem nao foi recebida. Envie de novo, por favor."),
        (True, {"language": "pt-BR"}, "Sua mensagem não foi recebida. Envie de novo, por favor."),
        (True, {"language": "es"}, "Tu mensaje no se recibió. Envíalo otra vez, por favor."),
        (True, {"language": "es", "tone": "formal"}, "Su mensaje no se recibió. Envíelo otra vez, por favor."),
    ],
)
async def test_message_not_stored_is_answered_with_a_request_to_resend(
    tmp_path: Path, whatsapp: bool, options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(headings)  # read once in a process, when a bot with its own sentences is made
    async with open_house(tmp_path, [], **options) as house:
        rejected: list[tuple[str, int, str]] = []
        house.gateway.bot.on("webhook_rejected")(lambda *about: rejected.append(about))
        await house.gateway.store.close()
        answer = await house.twilio.person_says(ANA, "hello", whatsapp=whatsapp)
    assert (answer.status, answer.content_type) == (200, "text/xml")
    assert answer.body.endswith(f"<Response><Message>{said}</Message></Response>")
    assert rejected == [("whatsapp" if whatsapp else "sms", 200, "StoreUnavailable")]
    assert "a request was not stored" in [record.getMessage() for record in caplog.records]
    assert "hello" not in caplog.text and ANA not in caplog.text


async def test_message_stored_after_a_moment_asks_for_no_resend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twilio waits long enough, and delivers once."""
    monkeypatch.setattr(webhooks, "INSIST_SECONDS", 60.0)
    async with open_house(tmp_path, ["Hello, Ana."]) as house:
        refused, accept = asyncio.Semaphore(0), house.gateway.store.accept

        async def noted(*args: Any, **options: Any) -> Any:
            try:
                return await accept(*args, **options)
            except StoreUnavailable:
                refused.release()
                raise

        monkeypatch.setattr(house.gateway.store, "accept", noted)
        await house.gateway.store.close()
        writing = asyncio.create_task(house.twilio.person_says(ANA, "hello"))
        for _ in range(2):
            await refused.acquire()
        await house.gateway.store.open()
        assert await writing == TAKEN
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA))
        assert sent.body == "Hello, Ana."
        await house.idle()
        assert len(house.twilio.sent) == 1
    assert "a request was not stored" not in caplog.text


async def test_message_while_the_api_is_down_is_answered_once_it_is_up(tmp_path: Path) -> None:
    """Twilio delivers a message once: the webhook must not refuse the message."""
    twilio = FakeTwilio()
    twilio.down = True
    async with open_house(tmp_path, ["Hello, Ana."], twilio) as house:
        answers: list[str] = []
        house.gateway.bot.on("llm_end")(lambda run_id, response, usage: answers.append(response.content))
        assert await twilio.person_says(ANA, "hello") == TAKEN
        await twilio.wait_for(lambda: answers == ["Hello, Ana."])
        twilio.down = False
        await twilio.wait_for(lambda: twilio.last(ANA, containing="Hello, Ana."))
        await house.idle()


async def test_report_that_was_not_stored_is_answered_503(tmp_path: Path) -> None:
    async with open_house(tmp_path, ["Hello, Ana."], FakeTwilio(reports=())) as house:
        await house.twilio.person_says(ANA, "hello")
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA))
        await house.idle()
        await house.gateway.store.close()
        await house.twilio.report(sent, "delivered")
        assert sent.reports == [("delivered", 503)]


@pytest.mark.parametrize("public_url", ["https://bot.example.com", "https://example.com:8443/deep/bot"])
async def test_behind_a_proxy_the_signature_is_over_the_public_url(tmp_path: Path, public_url: str) -> None:
    """A TLS proxy on another port that removes a prefix from the path."""
    async with open_house(tmp_path, ["Hello, Ana."], FakeTwilio(reports=()), public_url=public_url) as house:
        form, here = house.twilio.form(ANA, "hello"), house.twilio.webhook_url
        named = f"{public_url}/webhooks/twilio"
        assert (await house.twilio.deliver(form, url=f"{here}?x=1", called=named)).status == 401
        assert (await house.twilio.deliver(form, url=here)).status == 401
        assert await house.twilio.deliver(form, url=f"{here}?x=1", called=f"{named}?x=1#rc=3&rp=all") == TAKEN
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA))
        assert sent.status_callback.startswith(f"{public_url}/webhooks/twilio/status?part=")
        await house.idle()


@pytest.mark.parametrize("name", ["twilio", "sms"])
async def test_another_server_hands_requests_over_by_either_name(tmp_path: Path, name: str) -> None:
    async with open_house(tmp_path, ["Hello, Ana."]) as house:
        form, url = house.twilio.form(ANA, "hello"), house.twilio.webhook_url
        headers = {name.lower(): value for name, value in house.twilio.signed(url, form).items()}
        response = await house.gateway.webhook(name, request(form, headers=headers, url=url))
        assert (response.status, response.body.decode()) == (200, EMPTY)
        await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="Hello, Ana."))
        await house.idle()


# ── settings ──


def changed(directory: Path, changes: Mapping[str, str | None]) -> Settings:
    public = "https://bot.example.com"
    settings = _settings(directory, FakeTwilio(), public_url=public, twilio_api_url="https://x.example")
    return settings.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "on"),
    [
        ({}, ("sms", "whatsapp")),
        ({"twilio_whatsapp_from": None}, ("sms",)),
        ({"twilio_sms_from": None}, ("whatsapp",)),
    ],
)
def test_each_number_switches_its_channel_on(tmp_path: Path, changes: dict[str, None], on: tuple[str, ...]) -> None:
    settings = changed(tmp_path, changes)
    assert tuple(settings.channels_on()) == on
    assert list(Gateway(Shop().bot(ScriptedProvider([])), settings).channels) == list(on)


@pytest.mark.parametrize(
    ("missing", "way", "named"),
    [
        (["twilio_account_sid"], "webhook", "TWILIO_ACCOUNT_SID"),
        (["twilio_auth_token"], "polling", "TWILIO_AUTH_TOKEN"),
        (["public_url"], "webhook", "ASKFIRST_PUBLIC_URL"),
        (["twilio_sms_from", "twilio_whatsapp_from"], "webhook", "TWILIO_SMS_FROM or TWILIO_WHATSAPP_FROM"),
    ],
)
def test_incomplete_settings_are_refused_with_the_missing_name(
    tmp_path: Path, missing: list[str], way: Literal["webhook", "polling"], named: str
) -> None:
    with pytest.raises(MissingSetting, match=named):
        changed(tmp_path, dict.fromkeys(missing)).channels_on(way)


def test_the_public_url_alone_means_no_channel(tmp_path: Path) -> None:
    settings = Settings(store="sqlite:///x.db", public_url="https://bot.example.com")
    assert settings.channels_on() == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TWILIO_ACCOUNT_SID", "SK00000000000000000000000000000001"),
        ("TWILIO_SMS_FROM", "Askfirst"),
        ("TWILIO_SMS_FROM", "5551234567x"),
        ("TWILIO_WHATSAPP_FROM", "whatsapp:12345"),
    ],
)
def test_unworkable_settings_are_refused_with_the_mend(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(MissingSetting, match=variable):
        Gateway(Shop().bot(ScriptedProvider([])), changed(tmp_path, {variable.lower(): value}))

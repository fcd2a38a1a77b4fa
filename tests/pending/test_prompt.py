"""The prompt as displayed to a person: rendered for Telegram, without the markup."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from channels import Address, Reply
from channels.formatting import GSM, drop_dear_accents, time_link
from channels.telegram.render import render
from channels.twilio.render import render_sms, render_whatsapp
from gateway.pending.prompt import (
    ButtonTokens,
    Listed,
    prompt,
    settled,
    settled_note,
    statement,
    what_became,
)
from gateway.pending.reading import read_code
from gateway.pending.transitions import approve, close, finish, launch, show
from gateway.pending.words import CARRIER_WORDS
from gateway.tools.confirm import NO_VERBS
from gateway.tools.escape import plain
from gateway.tools.layout import Layout
from gateway.tools.pending_action import Ballot, BallotOf, PendingAction
from gateway.wording import LANGUAGES, clock_time
from tests.pending.records import ANA, BOB, EVA, GROUP, NOW, record

CHAT = Address(channel="telegram", account="1", place="2")


def read(reply: Reply) -> str:
    """Return the text displayed by Telegram."""
    (part,) = render(CHAT, reply)
    return str(part.arguments["text"])


def asked(*actions: PendingAction, **more: Any) -> Reply:
    tokens = ButtonTokens(each=[(f"yes {n}", f"no {n}") for n, _ in enumerate(actions)])
    return prompt(actions, tokens, **more)


def done(action: PendingAction) -> PendingAction:
    return finish(launch(approve(show(action, NOW, "m"), str(ANA), "Ana", NOW), 5, NOW), 5, "done", "", NOW)


def test_prompt_of_one_question_reads_as_written_here() -> None:
    action = record(table=(), args={"invoice_id": "INV-42", "amount": 199.5, "to": ["a@b.c"]})
    reply = asked(action)
    assert read(reply) == (
        "Delete invoice INV-42?\n\n"
        '• invoice_id: INV-42\n• amount: 199.5\n• to: ["a@b.c"]\n\n'
        "You have 15 minutes to answer.\n\n"
        "In words: OK K7PA or NO K7PA."
    )
    assert reply.text[-reply.small :] == "In words: **OK K7PA** or **NO K7PA**."
    assert [(button.label, button.token, button.style) for button in reply.buttons] == [
        ("Confirm", "yes 0", "confirm"),
        ("Cancel", "no 0", "cancel"),
    ]


@pytest.mark.parametrize(
    ("language", "answer", "window"),
    [
        ("es", "Por escrito: SÍ K7PA o NO K7PA.", "Tienes 15 minutos para responder."),
        ("pt-BR", "Por escrito: SIM K7PA ou NÃO K7PA.", "Você tem 15 minutos para responder."),
        ("tlh", "In words: OK K7PA or NO K7PA.", "You have 15 minutes to answer."),
    ],
)
def test_in_the_language_of_the_conversation(language: str, answer: str, window: str) -> None:
    assert read(asked(record(language=language))).endswith(f"{window}\n\n{answer}")


def test_right_to_left_prompt_is_legible_and_its_codes_readable() -> None:
    action = record(language="ar", table=(), preview="Delete invoice INV-42?", approvers=(str(BOB), str(EVA)))
    action = replace(action, approvers_name="Finance")
    text = read(asked(action))
    assert "**" not in text and "كتابةً: نعم \u2068K7PA\u2069 أو لا \u2068K7PA\u2069." in text
    assert "\u2068Finance\u2069" in text
    note = read(Reply(text=settled_note(done(replace(action, approvers=())), NOW)))
    assert "\u2068Ana\u2069" in note and "\u206812:00 UTC\u2069" in note
    assert not re.search("\u2068\u2068|\u2069\u2069", text + note)
    typed = re.findall("\\w+ \u2068K7PA\u2069", text)
    assert [read_code(each, "ar") for each in typed] == [("K7PA", "confirm"), ("K7PA", "cancel")]


def test_several_questions_each_with_its_code_on_its_buttons() -> None:
    reply = asked(record(ttl_seconds=1800.0), record(code="A2CD", preview="Pay invoice INV-7?", ttl_seconds=60.0))
    text = read(reply)
    assert "1. Delete invoice INV-42?" in text and "2. Pay invoice INV-7?" in text
    assert text.endswith("You have 1 minute to answer.\n\nIn words: 1 OK K7PA, 2 OK A2CD, or NO with the code.")
    assert [button.label for button in reply.buttons] == ["Confirm 1", "Cancel 1", "Confirm 2", "Cancel 2"]
    assert [button.token for button in reply.buttons] == ["yes 0", "no 0", "yes 1", "no 1"]


def test_a_table_stands_before_the_arguments_and_hides_none() -> None:
    action = record(table=(("Customer", "ACME | Sons"), ("Total", "199.00\u00a0BRL"), ("Copies", "2")))
    rows = "• Customer: “ACME | Sons”\n• Total: “199.00 BRL”\n• Copies: 2\n• invoice_id: INV-42\n"
    assert rows in read(asked(action))


def test_argument_that_the_table_shows_alike_is_not_repeated() -> None:
    args = {"invoice_id": "INV-42", "copies": 2, "note": "2", "to": "Bob"}
    table = tuple((name, str(value)) for name, value in args.items() if name != "to")
    text = read(asked(record(args=args, table=(*table, ("to", "Bob B.")))))
    assert text.count("INV-42") == 2 and text.count("• copies: 2\n") == 1
    assert "• note: 2\n" in text and "• note: “2”\n" in text, "a text is not the number that the table shows"
    assert "• to: “Bob B.”\n" in text and "• to: Bob\n" in text


def test_argument_printed_by_the_template_is_not_repeated() -> None:
    one: dict[str, Any] = {"layout": Layout(templates={"": "Delete invoice {invoice_id}?"}), "table": ()}
    assert "• " not in read(asked(record(**one, preview="Delete invoice “INV-42”?")))
    both = read(asked(record(**one, args={"invoice_id": "INV-42", "copies": 1}, preview="Delete invoice “INV-42”?")))
    assert re.findall("• .*", both) == ["• copies: 1"]
    assert "• invoice_id: INV-42\n" in read(asked(record(table=(), preview="Delete invoice “INV-42”?")))
    joined = Layout(templates={"": "Print A{copies} of them?"})
    assert "• copies: 1\n" in read(asked(record(layout=joined, table=(), args={"copies": 1}, preview="Print A1?")))


def test_plan_is_a_line_an_item_and_a_button_a_number() -> None:
    items = [record(code=code, preview=f"Delete {code}?", args={}, table=(), plan="p") for code in ("A2CD", "B3CD")]
    tokens = ButtonTokens(each=[("yes 0", None), ("yes 1", None)], for_all=("all", "none"))
    reply = prompt(items, tokens, listed=Listed(total=2, words=True))
    assert read(reply) == (
        "1. Delete A2CD?\n2. Delete B3CD?\n\n"
        "You have 15 minutes to answer.\n\n"
        "In words: 1 OK A2CD, 2 OK B3CD, or NO with the code. "
        "Or write the numbers of those to confirm, for example 1, 2."
    )
    assert [(button.label, button.token, button.style) for button in reply.buttons] == [
        ("Confirm all", "all", "confirm"),
        ("Cancel all", "none", "cancel"),
        ("Confirm 1", "yes 0", "plain"),
        ("Confirm 2", "yes 1", "plain"),
    ]


@pytest.mark.parametrize(
    ("seconds", "local", "said"),
    [
        (86_400.0, False, "You have 1 day to answer."),
        (86_000.0, False, "You have 23 hours to answer."),
        (6_000.0, False, "You have 1 hour and 40 minutes to answer."),
        (86_400.0, True, "You have until Mar 2, 12:00 UTC to answer."),
        (7_200.0, True, "You have until Mar 1, 14:00 UTC to answer."),
        (1_800.0, True, "You have 30 minutes to answer."),
    ],
)
def test_end_of_a_long_time_is_named_where_times_are_local(seconds: float, local: bool, said: str) -> None:
    reply = asked(record(ttl_seconds=seconds), now=NOW, local_times=local)
    assert said in read(reply)
    end = time_link("", NOW + timedelta(seconds=seconds), with_day=True).removeprefix("[]")
    assert (end in reply.text) == ("until" in said)


def test_prompt_names_the_people_allowed_to_confirm() -> None:
    one, two = (record(approvers=(str(BOB), str(EVA)), need=need) for need in (1, 2))
    assert "\n\nAsked by Ana (test ana). The decision is up to the people who decide.\n" in read(asked(one))
    named = replace(two, approvers_name="our *finance* team")
    assert "Asked by Ana (test ana). 2 confirmations are needed. The decision is up to our *finance* team." in read(
        asked(named)
    )
    assert "test:bot" not in read(asked(one)) + read(asked(two)), "nobody reads an address"
    assert "Only Ana can answer." in read(asked(record(address=GROUP)))
    assert "Only the person" not in read(asked(record()))


def test_prompt_names_its_asker_where_others_decide() -> None:
    """The freely chosen name stands beside the identity given by the platform."""
    others = record(approvers=(str(BOB), str(ANA)), requester_name="the CEO", requester_handle="ana", address=GROUP)
    who = "“the CEO” (@ana, test ana)"
    assert f"Asked by {who}. The decision is up to" in read(asked(others))
    both = read(asked(others, record(pending_action_id="6e" * 16, approvers=(str(EVA),))))
    assert both.index(who) < both.index("2. Delete") < both.index("Asked by Ana (test ana).")
    asked_there = Ballot(person=str(BOB), conversation="bot/test:bot:bob", state="shown")
    for alone in (record(approvers=(str(ANA),)), replace(others, ballots=(asked_there,)), record(address=GROUP)):
        assert "test ana" not in read(asked(alone)), "only the asker decides here"
    votes = BallotOf(conversation="c", action_id="a", people=(str(BOB),), need=1)
    ballot = replace(others, approvers=(str(BOB),), ballot_of=votes)
    again = read(asked(ballot, intro="Nothing has been done yet."))
    assert again.startswith(f"Nothing has been done yet.\n\n{who} asks for your approval.\n\nDelete invoice INV-42?")
    assert "Asked by" not in again


def test_a_prompt_shown_again_says_the_time_that_is_left() -> None:
    action = show(record(), NOW, "m1")
    again = asked(action, intro="Nothing has been done yet.", now=NOW + timedelta(minutes=10))
    assert read(again).startswith("Nothing has been done yet.\n\nDelete")
    assert "\n\nYou have 5 minutes to answer.\n\n" in read(again)


HOSTILE = [
    ("**INV-2**", "**INV-2**", "**INV-2**"),
    ("[pay](http://evil.example)", "[pay](http://evil.example)", "[pay](http://evil.example)"),
    ("`x` _y_ ~z~ <b>&amp;", "`x` _y_ ~z~ <b>&amp;", "`x` _y_ ~z~ <b>&amp;"),
    ("a\n# b\n- c\n> d", "a ⏎ # b ⏎ - c ⏎ > d", "a⏎# b⏎- c⏎> d"),
    ("1\u202e2\u2066\u200b\u200f\ufeff", "1\\u202e2\\u2066\\u200b\\u200f\\ufeff", None),
    ("\x00\x1b[31m\r\t", "\\u0000\\u001b[31m\\u000d\\u0009", None),
    ("\U000e0041", "\\U000e0041", None),
    ("\u2028\u2029", "\\u2028\\u2029", None),
    ("1\u00a0000\u202f€", "1 000 €", "1\\u00a0000\\u202f€"),
    ("\\*", "\\*", "\\\\*"),
]
"""A value, the form in a sentence, and the form as an argument if different."""


@pytest.mark.parametrize(("value", "sentence", "exact"), HOSTILE)
def test_hostile_value_is_shown_literally(value: str, sentence: str, exact: str | None) -> None:
    action = record(args={"it": value}, table=(), preview=f"Delete ({value})?")
    text = read(asked(action))
    assert f"• it: “{exact or sentence}”\n" in text
    assert text.startswith(f"Delete ({sentence})?\n")
    assert f"Delete ({sentence})" in read(Reply(text=settled_note(done(action), NOW)))


@pytest.mark.parametrize(("value", "sentence", "exact"), HOSTILE)
def test_hostile_name_and_person_are_shown_as_they_are(value: str, sentence: str, exact: str | None) -> None:
    assert f"• “{exact or sentence}”: x\n" in read(asked(record(args={value: "x"}, table=())))
    closed = close(show(record(), NOW, "m"), "refused", NOW, by=str(ANA), name=value)
    assert f"Not done, said “{exact or sentence}”." in read(Reply(text=settled_note(closed, NOW)))


def test_a_long_name_is_shortened() -> None:
    closed = close(show(record(), NOW, "m"), "refused", NOW, by=str(ANA), name=f"Bob{'o' * 90} the Boss")
    assert read(Reply(text=settled_note(closed, NOW))).endswith("said “Bobooooooooooooooooooooo…oooooo the Boss”.")


def test_a_long_value_stands_in_the_prompt_whole() -> None:
    value = f"begin {'x' * 2000} end"
    assert f"• it: “{value}”\n" in read(asked(record(args={"it": value}, table=())))


def test_blank_preview_is_replaced_by_the_tools_name() -> None:
    assert read(asked(record(preview="  "))).startswith("delete invoice\n")


@pytest.mark.parametrize(
    ("preview", "shown"),
    [
        ("Delete invoice INV-42 for good?", "Delete invoice INV-42 for good"),
        ("¿Borrar la factura INV-42?", "Borrar la factura INV-42"),
        ("削除しますか？", "削除しますか"),
        ("Delete INV-42", "Delete INV-42"),
        ("Why? Delete INV-42 now? ", "Why? Delete INV-42 now"),
    ],
)
def test_settled_sentence_is_no_question(preview: str, shown: str) -> None:
    assert read(Reply(text=statement(preview))) == shown
    note = read(Reply(text=settled_note(done(record(preview=preview)), NOW)))
    rows = "• Invoice: INV-42\n• invoice_id: INV-42"
    assert note == f"{shown}\n\n{rows}\n\n✅ Confirmed by Ana, done 12:00 UTC.", "still what was confirmed"


def test_every_end_has_its_note_and_its_late_answer() -> None:
    action = show(record(), NOW, "m")
    running = launch(approve(action, str(ANA), "Ana", NOW), 5, NOW)
    ends: dict[str, PendingAction] = {
        "done": done(record()),
        "failed": finish(running, 5, "failed", None, NOW),
        "unknown": finish(running, 5, "unknown", None, NOW),
        "refused": close(action, "refused", NOW, by=str(ANA), name="Ana"),
        "withdrawn": close(action, "withdrawn", NOW),
        "expired": close(action, "expired", NOW),
        "not started": close(approve(action, str(ANA), "Ana", NOW), "expired", NOW),
        "undelivered": close(record(), "undelivered", NOW),
        "drifted": close(action, "drifted", NOW),
    }
    for language in LANGUAGES:
        notes = {settled_note(replace(end, language=language), NOW) for end in ends.values()}
        assert len(notes) == len(ends)
        assert not any("None" in note for note in notes)
    late = {name: what_became(end, NOW) for name, end in ends.items()}
    assert late["done"] == "This is already done."
    assert late["refused"] == late["withdrawn"] == "This is already cancelled."
    assert late["expired"] == late["undelivered"] == late["not started"]
    assert what_became(running, NOW) == "This is already confirmed and running."
    assert what_became(action, NOW) == "Nothing has been done yet."
    assert what_became(action, NOW + timedelta(seconds=901)) == late["expired"]


def test_plain_text_is_never_markup() -> None:
    everything = "".join(map(chr, range(32, 127)))
    assert read(Reply(text=f"x {plain(everything)}")) == f"x {everything}"


# ── where there are no buttons ──


def in_words(*actions: PendingAction, sms: bool = True, **more: Any) -> str:
    """Return the text displayed by SMS or WhatsApp."""
    reply = prompt(actions, ButtonTokens(), letters=drop_dear_accents if sms else str, **more)
    assert reply.buttons == ()
    place = Address(channel="sms", account="+15550001111", place="+15557654321")
    (part,) = render_sms(place, reply) if sms else render_whatsapp(reply)
    return str(part.arguments["body"])


@pytest.mark.ledger("PEND-66")
def test_prompt_without_buttons_names_the_answering_words() -> None:
    action = record(table=(), args={"invoice_id": "INV-42"}, ttl_seconds=1800.0)
    assert in_words(action) == (
        "Delete invoice INV-42?\n\n- invoice_id: INV-42\n\n"
        "Reply OK K7PA to confirm or NO K7PA to cancel.\n\nYou have 30 minutes to answer."
    )
    assert in_words(action, sms=False).startswith("*Delete invoice INV-42?*\n\n• invoice_id: INV-42\n\nReply *OK K7PA*")


@pytest.mark.parametrize(
    ("language", "sms", "whatsapp", "window"),
    [
        ("en", "Reply OK K7PA to confirm or NO K7PA to cancel.", None, "You have 30 minutes to answer."),
        (
            "es-MX",
            "Responde SI K7PA para confirmar o NO K7PA para cancelar.",
            "Responde *SÍ K7PA* para confirmar o *NO K7PA* para cancelar.",
            "Tienes 30 minutos para responder.",
        ),
        (
            "pt-BR",
            "Responda SIM K7PA para confirmar ou NAO K7PA para cancelar.",
            "Responda *SIM K7PA* para confirmar ou *NÃO K7PA* para cancelar.",
            "Voce tem 30 minutos para responder.",
        ),
    ],
)
def test_worded_prompt_is_one_cheap_message_in_each_language(
    language: str, sms: str, whatsapp: str | None, window: str
) -> None:
    action = record(language=language, table=(), args={"invoice_id": "INV-42"}, ttl_seconds=1800.0)
    text = in_words(action)
    assert text.endswith(f"{sms}\n\n{window}")
    assert set(text) <= GSM and len(text) <= 160
    if whatsapp is not None:
        assert whatsapp in in_words(action, sms=False)
    for typed, intent in zip(re.findall(r"\S+ K7PA", text), ("confirm", "cancel"), strict=True):
        for reader in (language, "en", "pl"):
            assert read_code(typed, reader) == ("K7PA", intent)
        assert typed.split()[0].casefold() not in CARRIER_WORDS


@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl", "pt"])
@pytest.mark.parametrize("verb", [None, "cancel"])
def test_every_worded_prompt_stays_in_the_cheap_alphabet(language: str, verb: str | None) -> None:
    asks = partial(record, language=language, verb=verb, table=(), args={"invoice_id": "INV-42"}, ttl_seconds=1800.0)
    short = in_words(asks())
    assert len(short) + sum(map(short.count, "^{}\\[~]|€")) <= 160
    people = (str(BOB), str(EVA))
    for action in (
        asks(address=GROUP),
        asks(approvers=people),
        asks(approvers=people, need=2),
        asks(preview="x" * 9999, filed=True),
    ):
        assert set(short + in_words(action)) <= GSM


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("delete", "Reply OK K7PA to confirm or NO K7PA to cancel."),
        (None, "Reply OK K7PA to confirm or NO K7PA to cancel."),
        *((verb, "Reply OK K7PA to do it or NO K7PA to leave it as it is.") for verb in sorted(NO_VERBS)),
    ],
)
def test_question_to_cancel_never_says_that_no_cancels(verb: str | None, answer: str) -> None:
    assert answer in in_words(record(verb=verb))
    long = record(verb=verb, args={"note": "x" * 9999}, filed=True)
    assert answer in read(asked(long)), "its file has no button to confirm"
    assert read(asked(record(verb=verb))).count("OK K7PA or NO K7PA") == 1


def test_text_of_a_tool_or_a_person_keeps_its_letters() -> None:
    action = record(language="pt", preview="Apagar a fatura da Conceição?", table=(("João", "São Paulo"),))
    text = in_words(action)
    assert "Apagar a fatura da Conceição?" in text and 'João: "São Paulo"' in text
    assert "Voce tem" in text


def test_several_in_words_are_numbered_each_with_its_code() -> None:
    text = in_words(record(table=()), record(code="A2CD", preview="Pay invoice INV-7?", table=()), sms=False)
    assert re.findall(r"^(\d)\. \*(.+)\*$", text, re.MULTILINE) == [
        ("1", "Delete invoice INV-42?"),
        ("2", "Pay invoice INV-7?"),
    ]
    assert "Reply *OK K7PA* to confirm or *NO K7PA* to cancel." in text
    assert "Reply *OK A2CD* to confirm or *NO A2CD* to cancel." in text


@pytest.mark.parametrize(("value", "shown"), [("a\nb", '"a\\nb"'), ("a b", '"a b"'), ("שלום", '"שלום"')])
def test_signs_around_a_value_stay_in_the_cheap_alphabet(value: str, shown: str) -> None:
    text = in_words(record(table=(), args={"note": value}))
    assert f"- note: {shown}\n" in text and set(text) - set(value) <= GSM


def test_right_to_left_value_keeps_the_order_around_it() -> None:
    action = record(table=(), args={"note": "שלום", "lines": ["שלום"], "copies": 2}, preview="Print “שלום” 2 times?")
    text = read(asked(action))
    assert text.startswith("Print \u2068“שלום”\u2069 2 times?\n\n")
    assert '• note: \u2068“שלום”\u2069\n• lines: \u2068[\u2068"שלום"\u2069]\u2069\n• copies: 2\n' in text


def test_right_to_left_name_keeps_the_order_around_it() -> None:
    text = read(asked(record(table=(), args={"הערה": "a b", "עותקים": 2}, preview="Print?")))
    assert "• הערה: \u2068“a b”\u2069\n• עותקים: \u20682\u2069\n" in text


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (show(record(), NOW, "m"), "open"),
        (approve(show(record(), NOW, "m"), str(ANA), "Ana", NOW), "running"),
        (done(record()), "done"),
        (close(show(record(), NOW, "m"), "refused", NOW, by=str(ANA), name="Ana"), "not_done"),
        (close(show(record(), NOW, "m"), "withdrawn", NOW), "not_done"),
        (close(show(record(), NOW, "m"), "expired", NOW), "expired"),
        (close(approve(show(record(), NOW, "m"), str(ANA), "Ana", NOW), "expired", NOW), "not_done"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_settled_reports_the_state_of_the_action(action: PendingAction, state: str) -> None:
    assert settled(action).state == state


def test_time_of_a_note_is_local_where_the_channel_shows_it() -> None:
    assert settled_note(done(record()), NOW).endswith("done 12:00 UTC.")
    local = time_link("12:00 UTC", NOW, with_day=False)
    assert settled_note(done(record()), NOW, local_times=True).endswith(f"done {local}.")
    value = record(args={"it": local}, table=(), preview=f"Move {local}?")
    assert local not in settled_note(done(value), NOW), "a value is no time"


def test_reply_of_two_questions_has_the_state_of_each() -> None:
    first, second = (show(record(pending_action_id=each * 32), NOW, "m") for each in "ab")
    assert asked(first, second).settled == ()
    reply = asked(close(first, "refused", NOW, by=str(ANA), name="Ana"), second)
    assert [each.state for each in reply.settled] == ["not_done", "open"]


@pytest.mark.parametrize(
    ("language", "yes", "no"),
    [
        ("en", "Confirmed by you, done", "Not done: you said no."),
        ("es", "Confirmado por ti, hecho", "No se hizo: dijiste que no."),
        ("pt", "Confirmado por você, feito", "Não foi feito: você disse não."),
    ],
)
def test_person_without_a_name_is_you_in_a_private_chat(language: str, yes: str, no: str) -> None:
    action = record(language=language)
    refused = close(show(action, NOW, "m"), "refused", NOW, by=str(ANA), name=None)
    assert yes in settled_note(replace(done(action), decided_name=None), NOW)
    assert no in settled_note(refused, NOW)
    in_a_group = replace(done(action), decided_name=None, address=GROUP)
    assert f"`{ANA}`" in settled_note(in_a_group, NOW)
    by_another = replace(done(action), decided_name=None, decided_by=str(BOB))
    assert f"`{BOB}`" in settled_note(by_another, NOW)


def test_list_names_only_codes_that_confirm_here() -> None:
    elsewhere = Ballot(person=str(BOB), conversation="bot/test:bot:bob", state="shown")
    asked_there: dict[str, Any] = {"approvers": (str(BOB),), "approvers_name": "finance", "ballots": (elsewhere,)}
    about: dict[str, Any] = {"args": {}, "table": (), "plan": "p"}
    items = [
        record(code="A2CD", preview="Pay A?", **about, **asked_there),
        record(code="B3CD", pending_action_id="6e" * 16, preview="Pay B?", **about),
    ]
    tokens = ButtonTokens(each=[(None, "no 0"), ("yes 1", None)], for_all=("all", "none"))
    reply = prompt(items, tokens, listed=Listed(total=2))
    assert read(reply).endswith("In words: 2 OK B3CD, or NO with the code.")
    assert "I have asked finance. You will hear from me here within 15 minutes. Reply NO A2CD if" in read(reply)
    labels = ["Confirm all", "Cancel all", "Cancel 1", "Confirm 2"]
    assert [button.label for button in reply.buttons] == labels
    settled_too = prompt([close(items[1], "withdrawn", NOW), items[0]], tokens, listed=Listed(total=2))
    assert read(settled_too).index("2. Pay A?") < read(settled_too).index("I have asked finance")


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_clock_after_midnight_has_an_hour(language: str) -> None:
    for hour, written in ((0, "0"), (6, "6"), (10, "10")):
        assert clock_time(NOW.replace(hour=hour, minute=5), language).split(":")[0].split(".")[0] == written

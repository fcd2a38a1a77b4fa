"""Labels, currencies and templates of a question, in each language."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
from babel.numbers import get_currency_precision, get_currency_symbol, get_decimal_symbol, get_group_symbol
from hypothesis import given
from hypothesis import strategies as st

from gateway import Label, Money
from gateway.pending.prompt import ButtonTokens, prompt
from gateway.pending.seal import compute_digest
from gateway.tools import Confirm, Tool, ToolValidationError, tool
from gateway.tools.layout import Layout, Template
from gateway.wording import LANGUAGES, amount
from tests.pending.records import record

EUR = Money("EUR")
CURRENCIES = ("EUR", "USD", "JPY", "KWD", "BRL", "INR", "CHF", "CLF")


def paying(confirm: Any = "Pay {amount} to {payee}?", **options: Any) -> Tool:
    @tool(confirm=confirm, **options)
    async def pay(
        amount: Annotated[Decimal, EUR, Label({"en": "Amount", "de": "Betrag"})],
        payee: Annotated[str, Label("Payee")],
        note: Annotated[str, Label({"en": "Note", "de": "Notiz"})] = "",
    ) -> None:
        """Pay."""

    return pay


def question_of(made: Tool, args: dict[str, Any], language: str) -> str:
    checked = made.validate(args)
    assert made.layout is not None
    text = made.layout.sentence(checked, language) if made.layout.templates else "Pay?"
    action = record(args=checked, table=(), layout=made.layout, preview=text, language=language)
    return prompt([action], ButtonTokens()).text.split("\n\n")[0].replace("\\", "")


ARGS = {"amount": "1120.5", "payee": "Blue Bakery", "note": "soon"}
IN_TWO = {"en": "Pay {amount} to {payee}?", "de": "{amount} an {payee} zahlen?"}


@pytest.mark.parametrize(
    ("confirm", "args", "language", "shown"),
    [
        (IN_TWO, ARGS, "en", "**Pay €1,120.50 to “Blue Bakery”?**\n- Note: soon"),
        (IN_TWO, ARGS, "de-AT", "**1.120,50 € an “Blue Bakery” zahlen?**\n- Notiz: soon"),
        (IN_TWO, ARGS, "fr", "**Pay 1 120,50 € to “Blue Bakery”?**\n- Note: soon"),
        (IN_TWO, {**ARGS, "amount": "12.345"}, "de", "**12.345 EUR an “Blue Bakery” zahlen?**\n- Notiz: soon"),
        (IN_TWO, {**ARGS, "amount": "-7"}, "en", "**Pay -€7.00 to “Blue Bakery”?**\n- Note: soon"),
        (True, ARGS, "de", "**Pay?**\n- Betrag: 1.120,50 €\n- Payee: “Blue Bakery”\n- Notiz: soon"),
        (
            "Pay {payee}{amount}?",
            ARGS,
            "en",
            "**Pay “Blue Bakery”€1,120.50?**\n- Amount: €1,120.50\n- Payee: “Blue Bakery”\n- Note: soon",
        ),
    ],
    ids=["en", "de", "another language", "more decimals", "negative", "no template", "joined"],
)
def test_question_has_labels_and_amounts(confirm: Any, args: dict[str, Any], language: str, shown: str) -> None:
    assert question_of(paying(confirm), args, language) == shown


@pytest.mark.parametrize("currency", CURRENCIES)
@given(value=st.decimals(allow_nan=False, allow_infinity=False, places=None, min_value=-(10**16), max_value=10**16))
def test_each_amount_can_be_read_back(currency: str, value: Decimal) -> None:
    for language in LANGUAGES:
        written = amount(value, currency, language)
        if written in (f"{value:f} {currency}", f"{value} {currency}"):
            _, _, fraction = f"{value:f}".partition(".")
            is_exact = len(fraction.rstrip("0")) <= get_currency_precision(currency) and abs(value) < 10**15
            assert not is_exact or len(value.as_tuple().digits) > 30 or language != "en"
            continue
        bare = written.replace(spaced(get_currency_symbol(currency, language)), "").strip()
        group, point = spaced(get_group_symbol(language)), get_decimal_symbol(language)
        assert Decimal(bare.replace(group, "").replace(point, ".").replace("\u2212", "-").replace(" ", "")) == value


def spaced(symbol: str) -> str:
    """Return a symbol with a plain space and without a mark of direction."""
    return symbol.translate({0xA0: " ", 0x202F: " ", 0x200E: None, 0x200F: None})


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("Pay {a} to {b}?", {"a", "b"}),
        ("{a}{b}", set()),
        ("{a}: {b}.", {"a", "b"}),
        ("x{a} {b}y", set()),
        ("({a}) #{b}", {"a", "b"}),
        ("{a}.{b} {a}", {"a"}),
        ("{a}.5 {b}-", {"b"} - {"b"}),
    ],
)
def test_value_beside_a_letter_or_a_value_is_not_apart(text: str, apart: set[str]) -> None:
    assert Template(text, None).apart == apart


def test_labels_change_the_digest_and_the_layout_alone() -> None:
    one, other = paying(), paying()
    assert one.layout == other.layout and one.version_hash == other.version_hash

    @tool(confirm="Pay {amount} to {payee}?")
    async def pay(amount: Decimal, payee: str, note: str = "") -> None:
        """Pay."""

    assert pay.version_hash == one.version_hash
    assert pay.layout != one.layout
    asked = record(layout=one.layout)
    assert one.matches(replace(asked, tool_version=one.version_hash))
    assert not pay.matches(replace(asked, tool_version=one.version_hash))
    assert len({compute_digest(replace(asked, layout=layout)) for layout in (one.layout, pay.layout, None)}) == 3


async def test_done_text_has_the_amount_too() -> None:
    made = paying(Confirm(done="Paid {amount}."))
    assert await made.done_text(made.validate(ARGS), "", "de") == "Paid 1\\.120,50 €."


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[str, EUR], "Money is for an int"),
        (Annotated[bool, EUR], "Money is for an int"),
        (list[Annotated[Decimal, EUR]], "around the whole type"),
        (Annotated[Decimal, EUR, Money("USD")], "more than one Money"),
        (Annotated[str, Label("Payee")], "would both read 'payee'"),
        (Annotated[str, Label("payee")], "would both read 'payee'"),
    ],
    ids=str,
)
def test_mark_at_a_wrong_place_is_refused(annotation: Any, words: str) -> None:
    async def pay(amount: Any, payee: str) -> None:
        """Pay."""

    pay.__annotations__["amount"] = annotation
    with pytest.raises(ToolValidationError, match=words):
        tool(confirm=True)(pay)


@pytest.mark.parametrize(
    "annotation", [Annotated[Decimal | None, EUR], Annotated[int, EUR] | None, Annotated[float, EUR]]
)
def test_number_may_be_left_out_and_is_still_an_amount(annotation: Any) -> None:
    layout = Layout.of(None, {"amount": annotation})
    assert layout is not None
    assert [layout.value("amount", value, "en") for value in (7, 0.5, None)] == ["€7.00", "€0.50", "null"]


@pytest.mark.parametrize("wrong", ["", " ", "a\nb", "x" * 61, {}, {"xx": "Amount"}, {"en": ""}], ids=str)
def test_wrong_label_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Label"):
        Label(wrong)


@pytest.mark.parametrize("wrong", ["", "eur", "EURO", "XYZ", 7], ids=str)
def test_unknown_currency_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ISO 4217"):
        Money(wrong)


@pytest.mark.parametrize("value", ["1E+99999999999", "1E+60000000", "9" * 40, "1E-99999999"])
def test_amount_of_any_size_is_short(value: str) -> None:
    layout = Layout(currencies={"amount": "EUR"})
    assert len(layout.value("amount", value, "en")) <= 60


@pytest.mark.parametrize("value", [5, Decimal("5.00"), 5.0])
def test_author_writes_an_amount_as_a_question_does(value: Any) -> None:
    assert [EUR.text(value, language) for language in ("en", "de")] == ["€5.00", "5,00 €"]
    with pytest.raises(ValueError, match="no amount"):
        EUR.text(Decimal("NaN"), "en")


def test_labels_differ_in_a_language_without_a_label() -> None:
    async def pay(
        amount: Annotated[str, Label({"de": "X", "fr": "Y"})], payee: Annotated[str, Label({"fr": "X", "de": "W"})]
    ) -> None:
        """Pay."""

    with pytest.raises(ToolValidationError, match="would both read 'x'"):
        tool(confirm=True)(pay)

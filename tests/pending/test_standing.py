"""The calls covered by a standing permission: an argument without a rule is as shown, a bounded one is a number."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pending import deciding, settling
from gateway.pending.standing import covers, permissions_of, use
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.tools import Approvers, Confirm, Preview, Standing, Tool, ToolParameter, ToolValidationError, tool
from gateway.tools.layout import Layout
from gateway.tools.pending_action import Grant, PendingAction, StandingOffer
from tests.pending.records import ANA, BOB, NOW, Table, deletion, record

LONG: dict[str, Any] = {"max_seconds": 3600, "max_uses": 3}


def paying(rule: Standing, **options: Any) -> Tool:
    @tool(confirm=Confirm("Pay {amount} to {customer}?", standing=rule, **options))
    async def pay(customer: str, amount: int | float, lines: list[Any] | None = None, urgent: bool = False) -> None:
        """Pay a customer."""

    return pay


def giving(paid: Tool, args: dict[str, Any], **changes: Any) -> PendingAction:
    """Return a launched action with the permission allowed by the rule of the tool."""
    rule = paid.confirm.standing if paid.confirm is not None else None
    assert rule is not None
    offer = StandingOffer(
        code="M3QX",
        seconds=rule.max_seconds,
        uses=rule.max_uses,
        free=tuple(rule.free),
        most=tuple((name, str(bound)) for name, bound in rule.bounds.items()),
        compared=paid.compares_previews,
    )
    grant = Grant(given=NOW, until=NOW + timedelta(hours=1))
    return replace(call(paid, args), state="running", allows=True, standing=offer, grant=grant, **changes)


def call(paid: Tool, args: dict[str, Any], **changes: Any) -> PendingAction:
    checked = paid.validate(args)
    fields = {"kind": paid.name, "tool_version": paid.version_hash, "layout": paid.layout, "args": checked}
    return record(**fields, precondition=None, **changes)


def is_covered(rule: Standing, shown: dict[str, Any], called: dict[str, Any], **options: Any) -> bool:
    paid = paying(rule, **options)
    return covers(giving(paid, shown), call(paid, called), paid)


SHOWN: dict[str, Any] = {"customer": "C7", "amount": 10, "lines": [{"sku": 1, "tags": ["a", None]}], "urgent": False}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"amount": 10.0}, True),
        ({"amount": 1e1}, True),
        ({"amount": "10"}, True),  # the checked argument is the number
        ({"amount": 11}, False),
        ({"amount": 10.000001}, False),
        ({"customer": "c7"}, False),
        ({"customer": "C7 "}, False),
        ({"customer": "\uff237"}, False),
        ({"urgent": True}, False),
        ({"urgent": "false"}, True),
        ({"lines": [{"tags": ["a", None], "sku": 1.0}]}, True),
        ({"lines": [{"sku": True, "tags": ["a", None]}]}, False),
        ({"lines": [{"sku": "1", "tags": ["a", None]}]}, False),
        ({"lines": [{"sku": 1, "tags": [None, "a"]}]}, False),
        ({"lines": [{"sku": 1, "tags": ["a"]}]}, False),
        ({"lines": []}, False),
        ({"lines": None}, False),
    ],
)
def test_argument_without_a_rule_must_be_as_it_was_shown(changes: dict[str, Any], same: bool) -> None:
    assert is_covered(Standing(**LONG), SHOWN, SHOWN | changes) is same
    assert is_covered(Standing(**LONG, same=["customer"]), SHOWN, SHOWN | changes) is same


def test_argument_that_is_left_out_is_its_default() -> None:
    short = {"customer": "C7", "amount": 10}
    assert is_covered(Standing(**LONG), short, short | {"urgent": False, "lines": None})
    assert is_covered(Standing(**LONG), short | {"urgent": False}, short)
    assert not is_covered(Standing(**LONG), short | {"urgent": True}, short)


def test_free_argument_may_be_anything() -> None:
    rule = Standing(**LONG, free=["lines", "customer"])
    assert is_covered(rule, SHOWN, SHOWN | {"lines": None, "customer": ""})
    assert not is_covered(rule, SHOWN, SHOWN | {"lines": None, "amount": 11})


@pytest.mark.parametrize(
    ("amount", "covered"),
    [
        *((value, True) for value in (0, -0.0, 1, 1.0, 99.99, 100, 100.0, 1e2, "1e2", " 100", 5e-324)),
        *((value, False) for value in (-1, -0.01, 100.01, 101, 100.00000000000001, 2**53 - 1, 1e308)),
    ],
)
def test_bounded_argument_is_a_number_from_0_to_its_bound(amount: Any, covered: bool) -> None:
    for bound in (100, 100.0, Decimal(100), Decimal("1E+2")):
        assert is_covered(Standing(**LONG, most={"amount": bound}), SHOWN, SHOWN | {"amount": amount}) is covered


def test_bound_and_value_are_compared_as_they_are_written() -> None:
    for bound in (0.1, Decimal("0.1")):
        assert is_covered(Standing(**LONG, most={"amount": bound}), SHOWN, SHOWN | {"amount": 0.1})
        assert not is_covered(Standing(**LONG, most={"amount": bound}), SHOWN, SHOWN | {"amount": 0.10000000000000002})


@given(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), st.integers(0, 10**6) | st.floats(0, 1e6))
def test_no_number_past_its_bound_is_covered(amount: float, bound: float) -> None:
    covered = is_covered(Standing(**LONG, most={"amount": bound}), SHOWN, SHOWN | {"amount": amount})
    assert covered is (0 <= amount <= bound)


@pytest.mark.parametrize("amount", [True, False, float("nan"), float("inf"), "NaN", "many", None, [1], {"a": 1}])
def test_value_that_is_no_number_is_refused_before_comparison(amount: Any) -> None:
    paid = paying(Standing(**LONG, most={"amount": 100}))
    with pytest.raises(ToolValidationError):
        paid.validate(SHOWN | {"amount": amount})
    forged = replace(call(paid, SHOWN), args={**call(paid, SHOWN).args, "amount": amount})
    assert not covers(giving(paid, SHOWN), forged, paid)


@pytest.mark.parametrize(
    ("value", "covered"),
    [("12.50", True), (12.5, True), ("1E+1", True), ("100", True), ("100.000000000000000000000000000000001", False)],
)
def test_decimal_is_compared_exactly(value: Any, covered: bool) -> None:
    @tool(confirm=Confirm("Pay {amount}?", standing=Standing(**LONG, most={"amount": 100})))
    async def pay(amount: Decimal) -> None:
        """Pay."""

    assert covers(giving(pay, {"amount": "1"}), call(pay, {"amount": value}), pay) is covered


@pytest.mark.parametrize("name", ["limit", "rate"])
def test_bounded_argument_that_was_not_given_is_asked(name: str) -> None:
    """The tool takes a default never shown to a person."""
    parameters = [ToolParameter("limit", int, "Most.", required=False), ToolParameter("rate", "number", "Rate.")]
    rule = Confirm("Set?", standing=Standing(**LONG, most={name: 5}, free=[other(name)]))
    set_it = Tool.from_schema("set", "Set it.", parameters, lambda **args: None, confirm=rule)
    giver = giving(set_it, {"limit": 1, "rate": 1})
    assert covers(giver, call(set_it, {"limit": 5, "rate": 5}), set_it)
    assert not covers(giver, call(set_it, {"limit": 6, "rate": 6}), set_it)
    assert covers(giver, call(set_it, {"rate": 5}), set_it) is (name == "rate")


def other(name: str) -> str:
    return "rate" if name == "limit" else "limit"


def test_optional_number_that_is_none_is_asked() -> None:
    @tool(confirm=Confirm("Pay?", standing=Standing(**LONG, most={"amount": 5})))
    async def pay(amount: int | None = None) -> None:
        """Pay."""

    giver = giving(pay, {"amount": 1})
    assert covers(giver, call(pay, {"amount": 2}), pay)
    assert not covers(giver, call(pay, {}), pay)


# ── other parts that have to be the same ──


def test_another_person_tool_version_or_template_is_asked() -> None:
    paid = paying(Standing(**LONG, free=["customer"]))
    giver, again = giving(paid, SHOWN), call(paid, SHOWN)
    assert covers(giver, again, paid)
    assert not covers(giver, replace(again, requester=str(BOB)), paid)
    assert not covers(giver, replace(again, approvers=(str(BOB),)), paid)
    assert not covers(giver, replace(again, kind="refund"), paid)
    assert not covers(replace(giver, tool_version="other"), again, paid)
    assert not covers(replace(giver, layout=Layout(templates={"": "other"})), again, paid)
    assert not covers(giver, again, None)
    assert not covers(replace(giver, standing=None), again, paid)


@pytest.mark.parametrize("volatile", [False, True])
def test_preview_must_be_the_same_unless_it_is_volatile(volatile: bool) -> None:
    async def ask() -> Preview:
        return Preview(text="Pay?")

    @tool(confirm=Confirm(ask, verb="pay", volatile=volatile, standing=Standing(**LONG, free=["amount"])))
    async def pay(amount: int) -> None:
        """Pay."""

    giver, again = giving(pay, {"amount": 1}), call(pay, {"amount": 2})
    assert covers(giver, again, pay)
    for one, two in (
        ({"preview": "Pay a?"}, {"preview": "Pay b?"}),
        ({"table": (("a", "1"),)}, {"table": (("a", "2"),)}),
        ({"precondition": 1}, {"precondition": 2}),
        ({"precondition": 1}, {"precondition": True}),
        ({"precondition": 1}, {"precondition": None}),
    ):
        assert covers(replace(giver, **one), replace(again, **two), pay) is volatile
    told = replace(giver, precondition=1, preview="Pay a?"), replace(again, precondition=1.0, preview="Pay b?")
    assert covers(*told, pay), "with a precondition, nothing else of a preview counts"


def test_preview_that_was_compared_still_is_once_it_is_volatile() -> None:
    paid = paying(Standing(**LONG))
    giver = giving(paid, SHOWN)
    assert giver.standing is not None
    compared = replace(giver, standing=replace(giver.standing, compared=True), preview="Pay a?")
    assert not covers(compared, call(paid, SHOWN), paid)


# ── a record that is put back while its action runs ──


async def test_tampered_running_action_permits_no_call(private: Table) -> None:
    """The action ends in a newly sealed record, including the end of the permission."""
    rule = Standing(**LONG, free=["invoice_id"])
    erased = deletion(Confirm("Delete invoice {invoice_id}?", standing=rule))
    asked = await private.asked(tool=erased)
    actions = await private.actions()
    deciding.apply(actions, actions.by_id[asked.pending_action_id], "confirm", ANA, actions.now, allows=True)
    await private.write(actions)
    actions = await private.actions()
    settling.launch(actions, asked.pending_action_id, 1, actions.now)
    await private.write(actions)
    key = Key("00", f"action/{asked.pending_action_id}")
    before = (await private.store.get([key]))[key].value

    assert await is_used(private, erased, "INV-1")
    await private.store.commit(Transaction(partition="00", puts={key.name: Put(before)}))
    actions = await private.actions()
    giver = actions.by_id[asked.pending_action_id]
    assert (giver.state, giver.grant and giver.grant.ended) == ("unknown", "tampered")
    await private.write(actions)
    assert permissions_of(await private.actions()) == []
    assert not await is_used(private, erased, "INV-2")


async def is_used(private: Table, erased: Tool, invoice: str) -> bool:
    actions = await private.actions()
    found = use(actions, private.proposed(actions, invoice, tool=erased), erased, heard=None)
    await private.write(actions)
    return found


# ── the rule ──


@pytest.mark.parametrize(
    ("options", "issue"),
    [
        ({"max_seconds": 0}, "max_seconds=...) must be a positive number of at most 2592000, not 0"),
        ({"max_seconds": float("nan")}, "max_seconds=...) must be a positive number"),
        ({"max_seconds": float("inf")}, "max_seconds=...) must be a positive number"),
        ({"max_seconds": 2592001}, "max_seconds=...) must be a positive number of at most 2592000"),
        ({"max_seconds": True}, "max_seconds=...) must be a positive number"),
        ({"max_seconds": "60"}, "max_seconds=...) must be a positive number"),
        ({"max_seconds": Decimal(60)}, "max_seconds=...) must be a positive number"),
        ({"max_uses": 0}, "max_uses=...) must be a positive number of at most 1000, not 0"),
        ({"max_uses": 1001}, "max_uses=...) must be a positive number of at most 1000"),
        ({"max_uses": True}, "max_uses=...) must be a positive number"),
        ({"max_uses": 1.5}, "max_uses=...) must be a whole number, not 1.5"),
        ({"same": "customer"}, "same=...) is a list of names of arguments"),
        ({"free": "customer"}, "free=...) is a list of names of arguments"),
        ({"free": [1]}, "free=...) is a list of names of arguments"),
        ({"free": None}, "free=...) is a list of names of arguments"),
        ({"most": ["amount"]}, "most=...) maps arguments to their bounds"),
        ({"most": {"amount": True}}, "most=...) must bound 'amount' by a finite number of 0 or more, not True"),
        ({"most": {"amount": "100"}}, "must bound 'amount' by a finite number of 0 or more, not '100'"),
        ({"most": {"amount": -1}}, "must bound 'amount' by a finite number of 0 or more, not -1"),
        ({"most": {"amount": float("nan")}}, "must bound 'amount' by a finite number of 0 or more, not nan"),
        ({"most": {"amount": float("inf")}}, "must bound 'amount' by a finite number"),
        ({"most": {"amount": Decimal("NaN")}}, "must bound 'amount' by a finite number"),
        ({"most": {"amount": Decimal("sNaN")}}, "must bound 'amount' by a finite number"),
        ({"most": {"amount": Decimal("Infinity")}}, "must bound 'amount' by a finite number"),
        ({"same": ["a"], "free": ["a"]}, "names 'a' in same= and in free=: leave it in one of them"),
        ({"same": ["a"], "most": {"a": 1}}, "names 'a' in same= and in most=: leave it in one of them"),
        ({"free": ["a"], "most": {"a": 1}}, "names 'a' in free= and in most=: leave it in one of them"),
    ],
)
def test_rule_that_cannot_hold_is_refused(options: dict[str, Any], issue: str) -> None:
    with pytest.raises(ValueError) as refused:
        Standing(**{**LONG, **options})
    assert issue in str(refused.value)


@pytest.mark.parametrize("option", ["same", "free", "most"])
def test_rule_that_names_no_argument_of_its_tool_is_refused(option: str) -> None:
    named: Any = {"client": 1} if option == "most" else ["client"]
    with pytest.raises(ToolValidationError) as refused:
        paying(Standing(**LONG, **{option: named}))
    known = "its arguments: customer, amount, lines, urgent"
    assert f"Standing({option}=) names ['client']; {known}" in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "is_number"),
    [
        *((each, True) for each in (int, float, Decimal, int | float, int | None, Decimal | None)),
        *((each, False) for each in (str, bool, int | str, int | bool, list[int], Literal[1, 2], dict[str, int])),
    ],
)
def test_only_a_number_can_be_bounded(annotation: Any, is_number: bool) -> None:
    async def pay(amount: Any) -> None:
        """Pay."""

    pay.__annotations__["amount"] = annotation
    if is_number:
        tool(confirm=Confirm("Pay {amount}?", standing=Standing(**LONG, most={"amount": 1})))(pay)
        return
    with pytest.raises(ToolValidationError) as refused:
        tool(confirm=Confirm("Pay {amount}?", standing=Standing(**LONG, most={"amount": 1})))(pay)
    assert "Standing(most=) bounds ['amount'], whose type is no number" in str(refused.value)
    assert "Annotate int, float or Decimal" in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "is_number"),
    [
        ({"type": "integer"}, True),
        ({"type": ["number", "null"]}, True),
        ({"type": "boolean"}, False),
        ({"type": ["integer", "string"]}, False),
        ({"enum": [1, 2]}, False),
        ({}, False),
    ],
)
def test_only_a_number_of_a_schema_can_be_bounded(schema: dict[str, Any], is_number: bool) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"amount": schema}}
    rule = Confirm("Pay?", standing=Standing(**LONG, most={"amount": 1}))

    def make() -> Tool:
        return Tool.from_schema("pay", "Pay.", parameters, lambda **args: None, confirm=rule)

    if is_number:
        make()
    else:
        with pytest.raises(ToolValidationError, match="whose type is no number"):
            make()


def test_approvers_and_a_permission_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="does not go with approvers="):
        Confirm("Pay?", approvers=Approvers(people=[str(BOB)]), standing=Standing(**LONG))

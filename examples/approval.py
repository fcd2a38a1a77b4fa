"""A bot that refunds orders, for example in a group. Anybody may ask; the people in ORDERS_MANAGERS have to say yes.

Run it with: askfirst dev examples/approval.py
"""

import os

from askfirst import Agent, AgentConfig, Approvers, ChannelAgent, Confirm, Preview, ToolContext, tool

ORDERS = {"A-17": ("Ana", 40), "A-18": ("Ben", 900)}
"""Number -> (customer, euros)."""
MANAGERS = [person for person in os.environ.get("ORDERS_MANAGERS", "").split(",") if person]
"""People, like telegram:123456:789, as /whoami answers. If it is empty, the person who asked decides."""


def found(order: str) -> tuple[str, int]:
    """Return an order. The model reads the error and can ask again."""
    if (number := order.strip().upper()) not in ORDERS:
        raise ValueError(f"There is no order {order}.")
    return ORDERS[number]


@tool(read_only=True)
def list_orders() -> list[dict[str, object]]:
    """List the orders: number, customer and amount in euros."""
    return [{"number": number, "customer": who, "amount": euros} for number, (who, euros) in ORDERS.items()]


async def about_to_refund(order: str, ctx: ToolContext) -> Preview:
    """Return the question that the group sees."""
    customer, euros = found(order)
    return Preview(
        text=f"Refund order {order.upper()}?",
        table=[("Customer", customer), ("Amount", f"{euros} EUR")],
        precondition=str(euros),
    )


@tool(confirm=Confirm(about_to_refund, verb="refund", approvers=Approvers(people=MANAGERS) if MANAGERS else None))
async def refund_order(order: str, ctx: ToolContext) -> str:
    """Refund an order."""
    customer, euros = found(order)
    ORDERS.pop(order.strip().upper())
    return f"{euros} EUR go back to {customer}."


bot = ChannelAgent(
    Agent(
        [list_orders, refund_order],
        instructions="You look after the orders of a small shop. Be brief.",
        config=AgentConfig(name="Orders"),
    ),
    greeting="Hello! Try **list orders** or **refund order A-17**.",
)

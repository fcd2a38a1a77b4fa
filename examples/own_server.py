"""A bot inside your own server, here FastAPI: one process for the shop, the chat page and the webhooks.

Run it with:

    pip install fastapi uvicorn
    ASKFIRST_ALLOW='webchat:*' uvicorn own_server:app --app-dir examples

Then open http://127.0.0.1:8000/bot/chat and write "cancel order A-17". The shop's own page is /orders.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel

from askfirst import Agent, AgentConfig, ChannelAgent, Confirm, Gateway, Preview, tool


class Order(BaseModel):
    customer: str
    euros: int
    state: str = "open"


ORDERS = {"A-17": Order(customer="Ana", euros=40), "A-18": Order(customer="Ben", euros=900)}
MANAGER = os.environ.get("ORDERS_MANAGER")
"""Chat that is notified of new orders, like telegram:123456:789."""


@tool(read_only=True)
async def list_orders() -> dict[str, Order]:
    """List the orders."""
    return ORDERS


async def about_to_cancel(order: str) -> Preview:
    """Return the question. An error goes to the model instead, and the person is not asked."""
    if (found := ORDERS.get(order)) is None:
        raise ValueError(f"There is no order {order}.")
    table = [("Customer", found.customer), ("Amount", f"{found.euros} EUR")]
    return Preview(text=f"Cancel order {order}?", table=table, precondition=found.model_dump())


@tool(confirm=Confirm(about_to_cancel, verb="cancel"))
async def cancel_order(order: str) -> str:
    """Cancel an order."""
    ORDERS[order].state = "cancelled"
    return f"Order {order} is cancelled."


bot = ChannelAgent(
    Agent([list_orders, cancel_order], instructions="You look after orders.", config=AgentConfig(name="Shop"))
)
gateway = Gateway(bot, chat=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with gateway:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/bot", gateway.asgi_app())


@app.get("/orders")
async def orders() -> dict[str, Order]:
    return ORDERS


@app.put("/orders/{number}", status_code=201)
async def take(number: str, order: Order) -> Order:
    """Take an order, and tell the manager."""
    ORDERS[number] = order
    if MANAGER:
        await bot.notify(MANAGER, f"A new order: **{number}**, {order.euros} EUR.")
    return order

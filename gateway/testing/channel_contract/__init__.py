"""The contract of channels, as tests: subclass `ChannelContract` and add a fixture `case`.

    class TestMyChannel(ChannelContract):
        @pytest_asyncio.fixture
        async def case(self):
            async with FakePlatform() as platform:
                yield ChannelCase(channel=MyChannel, settings={...}, ...)

The tests are asynchronous, because a channel is called within the event loop. Required: pytest, pytest-asyncio and
Hypothesis. Each test makes a new channel of the case.
"""

from gateway.testing.channel_contract.case import (
    RETRY_AFTER_SECONDS,
    Arrived,
    ArrivedFile,
    ChannelCase,
    Delivery,
    Fault,
    MessageField,
    Platform,
    Webhook,
)
from gateway.testing.channel_contract.parse import ParseContract, WordsContract
from gateway.testing.channel_contract.powers import PowersContract
from gateway.testing.channel_contract.render import RenderContract
from gateway.testing.channel_contract.send import SendContract
from gateway.testing.channel_contract.verify import VerifyContract

__all__ = [
    "RETRY_AFTER_SECONDS",
    "Arrived",
    "ArrivedFile",
    "ChannelCase",
    "ChannelContract",
    "Delivery",
    "Fault",
    "MessageField",
    "Platform",
    "Webhook",
]


class ChannelContract(VerifyContract, ParseContract, WordsContract, RenderContract, SendContract, PowersContract):
    """All tests of a channel. A subclass adds the fixture `case`."""

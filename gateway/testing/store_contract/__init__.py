"""The contract of a store, as tests: subclass `StoreContract` and add a fixture `store`.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path):
            store = MyStore(..., max_waiting=self.max_waiting)
            await store.open()
            yield store
            await store.close()

The store is empty and open, and no other test uses this store. A test with several conversations in a partition chooses
names of this partition, so a store with many partitions needs no changes. Tests take leases for fractions of a second,
and wait for the outcome.
"""

from typing import ClassVar

from gateway.testing.store_contract.commits import CommitsContract
from gateway.testing.store_contract.decisions import ActionsContract, DecisionsContract
from gateway.testing.store_contract.forgetting import ForgettingContract
from gateway.testing.store_contract.lanes import HandoverContract, LanesContract, TakeoverContract
from gateway.testing.store_contract.logs import CutsContract, LogsContract
from gateway.testing.store_contract.mailbox import MAX_WAITING, MailboxContract, WaitingContract
from gateway.testing.store_contract.model import ModelContract
from gateway.testing.store_contract.outbox import ChainedContract, DeadLettersContract, OutboxContract
from gateway.testing.store_contract.prefetch import PrefetchContract
from gateway.testing.store_contract.records import CellsContract, RecordsContract, SpendingContract
from gateway.testing.store_contract.service import ServiceContract, TimersContract

__all__ = ["StoreContract"]


class StoreContract(
    MailboxContract,
    DecisionsContract,
    LanesContract,
    WaitingContract,
    TakeoverContract,
    PrefetchContract,
    ChainedContract,
    ActionsContract,
    OutboxContract,
    CommitsContract,
    RecordsContract,
    LogsContract,
    CutsContract,
    TimersContract,
    HandoverContract,
    DeadLettersContract,
    CellsContract,
    SpendingContract,
    ForgettingContract,
    ServiceContract,
    ModelContract,
):
    """The tests of a store. A subclass has an async fixture `store`, made with `max_waiting=self.max_waiting`."""

    max_waiting: ClassVar[int] = MAX_WAITING

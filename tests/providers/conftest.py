"""A vendor's server, and a provider for the server. A test without a named vendor runs with each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.providers import Provider
from tests.fakes.model_server import ModelServer
from tests.providers.vendors import VENDORS, Vendor


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return VENDORS[request.param]


@pytest.fixture
async def model(vendor: Vendor) -> AsyncIterator[ModelServer]:
    async with vendor.fake() as model:
        yield model


@pytest.fixture
async def provider(vendor: Vendor, model: ModelServer) -> AsyncIterator[Provider]:
    provider = vendor.at(model.url, model.key)
    yield provider
    await provider.close()

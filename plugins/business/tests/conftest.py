"""Provides one context for all tests of a module, because creating its TLS settings takes longer than most tests."""

from collections.abc import Iterator

import pytest

from appliance.connectors.contract import Context
from appliance.connectors.testing import open_context


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with open_context(seconds=900) as ctx:
        yield ctx

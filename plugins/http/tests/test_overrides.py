"""A call runs the method whose effect was checked: no header turns it into another."""

from collections.abc import Iterator

import pytest
from gos_connector_http import HttpConnector

from appliance.connectors.contract import ConfigError
from appliance.connectors.testing import LoopbackServer, open_context


@pytest.mark.parametrize("action", ["get", "post"])
@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x_http_method_override", "X-Method-Override ", "X-HTTP-Method"])
def test_a_header_that_changes_the_method_is_refused(server: LoopbackServer, action: str, name: str) -> None:
    server.answer("/orders")
    it = HttpConnector({"base_url": server.url})
    with open_context() as ctx, pytest.raises(ConfigError, match="would change the method"):
        it.call(action, {"url": "/orders", "headers": {name: "DELETE"}}, ctx)
    assert server.received == []


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()

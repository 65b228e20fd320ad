"""The trigger `new_items`: items beyond the cursor, once each, in order."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_http import HttpConnector
from gos_connector_http.polling import MAX_PER_POLL

from appliance.connectors.contract import Context, Polled, SystemFailure
from appliance.connectors.testing import LoopbackServer, open_context, schema_problems


class Service:
    """A list of items at `/orders`."""

    def __init__(self, server: LoopbackServer, ctx: Context) -> None:
        self.server, self.ctx = server, ctx
        self.it = HttpConnector({"base_url": server.url})

    def set_items(self, items: Any) -> None:
        self.server.answer("/orders", 200, json.dumps(items).encode())

    def poll(self, cursor: Any = None, **more: Any) -> Polled:
        query = {"url": "/orders", "cursor_field": "at", **more}
        [trigger] = self.it.triggers
        assert schema_problems(trigger.query, query) == []
        return self.it.poll("new_items", query, cursor, self.ctx)


@pytest.fixture
def service() -> Iterator[Service]:
    server = LoopbackServer()
    with open_context() as ctx:
        yield Service(server, ctx)
    server.close()


def keys(polled: Polled) -> list[str]:
    return [item.key for item in polled.items]


def test_polling_begins_now_or_at_the_start(service: Service) -> None:
    service.set_items([{"id": "b", "at": 2}, {"id": "a", "at": 1}])
    assert service.poll() == Polled((), 2)
    polled = service.poll(begin="start")
    assert (keys(polled), polled.cursor, polled.more) == (["a@1", "b@2"], 2, False)
    service.set_items([])
    assert service.poll() == Polled((), None)


def test_items_beyond_the_cursor_are_new_even_when_changed(service: Service) -> None:
    service.set_items({"data": [{"id": 1, "at": "2026-01-03"}, {"id": 2, "at": "2026-01-02"}, {"id": 1, "at": "2026-01-01"}]})
    polled = service.poll("2026-01-01", items="/data")
    assert (keys(polled), polled.cursor) == (["2@2026-01-02", "1@2026-01-03"], "2026-01-03")
    assert polled.items[0].data == {"id": 2, "at": "2026-01-02"}
    assert service.poll("2026-01-03", items="/data") == Polled([], "2026-01-03")


def test_the_cursor_is_sent_when_a_parameter_is_configured(service: Service) -> None:
    service.set_items([{"id": 1, "at": 5}])
    service.poll(4, cursor_parameter="since", query={"sort": "at"})
    assert service.server.received[-1].path == "/orders?sort=at&since=4"
    service.poll(cursor_parameter="since")
    assert service.server.received[-1].path == "/orders"


def test_a_large_result_is_split_without_splitting_a_cursor_value(service: Service) -> None:
    items = [{"id": number, "at": number // 3} for number in range(3 * MAX_PER_POLL)]
    service.set_items(items)
    cursor: Any = -1
    seen: list[str] = []
    for _ in range(10):
        polled = service.poll(cursor)
        seen += keys(polled)
        cursor = polled.cursor
        if not polled.more:
            break
    assert seen == [f"{item['id']}@{item['at']}" for item in items]


@pytest.mark.parametrize(
    "items", [{"no": "list"}, [1], [{"id": 1}], [{"at": 1}], [{"id": 1, "at": 1}, {"id": 2, "at": "x"}], [{"id": 1, "at": None}]]
)
def test_items_without_order_or_key_are_a_failure(service: Service, items: Any) -> None:
    service.set_items(items)
    with pytest.raises(SystemFailure):
        service.poll(begin="start")

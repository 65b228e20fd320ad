"""A small order system for the starter solution: takes orders over HTTP and keeps them in memory.

It is off in production; the demo configuration enables it together with the egress rule that lets a connector reach it.
"""

from collections import OrderedDict
from threading import Lock
from typing import Any

from quart import Blueprint, Response, jsonify, request

MAX_ORDERS = 10_000


class OrderBook:
    """Orders by number; a repeated idempotency key returns the first confirmation."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = Lock()

    def place(self, key: str, order: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The confirmation of an order, and whether the order is new."""
        with self._lock:
            if key and key in self._answers:
                return self._answers[key], False
            confirmation = {"reference": f"SO-{len(self._answers) + 1:06d}", "number": order["number"], "status": "accepted"}
            self._orders[str(order["number"])] = {**order, **confirmation}
            self._answers[key or confirmation["reference"]] = confirmation
            for entries in (self._orders, self._answers):
                while len(entries) > MAX_ORDERS:
                    entries.popitem(last=False)
            return confirmation, True

    def get(self, number: str) -> dict[str, Any] | None:
        with self._lock:
            return self._orders.get(number)

    def count(self) -> int:
        return len(self._orders)


def make_demo() -> Blueprint:
    """Routes: `POST /demo/orders`, `GET /demo/orders`, `GET /demo/orders/<number>`."""
    blueprint = Blueprint("demo", __name__, url_prefix="/demo")
    book = OrderBook()

    async def place() -> tuple[Response, int]:
        order = await request.get_json(silent=True)
        if not isinstance(order, dict) or not order.get("number"):
            return jsonify({"error": "an order must be an object with a number"}), 422
        confirmation, new = book.place(request.headers.get("Idempotency-Key", ""), order)
        return jsonify(confirmation), 201 if new else 200

    async def show(number: str) -> tuple[Response, int]:
        order = book.get(number)
        return (jsonify(order), 200) if order else (jsonify({"error": "no such order"}), 404)

    async def count() -> Response:
        return jsonify({"count": book.count()})

    blueprint.add_url_rule("/orders", "place", place, methods=["POST"])
    blueprint.add_url_rule("/orders", "count", count)
    blueprint.add_url_rule("/orders/<number>", "show", show)
    return blueprint

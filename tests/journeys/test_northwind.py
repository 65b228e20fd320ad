"""The starter with real orders: 830 of them in batches through the API, with 40 planted defects."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.solutions import service, starter_solution
from appliance.testing.running import Running
from tests.journeys.order_files import PlantedOrder, Row, plant, to_csv, total_of

NORTHWIND = Path(__file__).parents[2].parent / "shared" / "data" / "northwind"
ORDERS, LINES = 830, 2155
BATCH = 100


@dataclass(frozen=True)
class Trade:
    """Rows of orders in the format of the starter, and the catalogue."""

    rows: list[Row]
    products: list[dict[str, str]]


def read_table(name: str) -> list[Row]:
    with (NORTHWIND / f"{name}.csv").open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


def read_northwind() -> Trade:
    """The orders from the four joined Northwind tables."""
    customers = {row["CustomerID"]: row["CompanyName"] for row in read_table("customers")}
    products = {row["ProductID"]: row["ProductName"] for row in read_table("products")}
    orders = {row["OrderID"]: row for row in read_table("orders")}
    rows = []
    for line in read_table("order_details"):
        head = orders[line["OrderID"]]
        rows.append({
            "number": line["OrderID"], "ordered_at": head["OrderDate"],
            "required_at": head["RequiredDate"], "shipped_at": head["ShippedDate"],
            "customer": head["CustomerID"], "customer_name": customers[head["CustomerID"]], "ship_country": head["ShipCountry"],
            "sku": line["ProductID"], "product": products[line["ProductID"]], "quantity": line["Quantity"],
            "unit_price": line["UnitPrice"], "discount": line["Discount"],
        })  # fmt: skip
    return Trade(rows, [{"sku": sku, "name": name} for sku, name in products.items()])


def generate_trade() -> Trade:
    """Generated orders and lines of the same number and shape, used where the Northwind data is missing."""
    products = [{"sku": str(number), "name": f"Product {number}, „{number % 7}“"} for number in range(1, 78)]
    rows = []
    for number in range(ORDERS):
        count = 3 if number < LINES - 2 * ORDERS else 2
        for position in range(count):
            seed = number * 31 + position * 17
            rows.append({
                "number": str(10_248 + number),
                "ordered_at": f"199{6 + number % 3}-{1 + number % 12:02}-{1 + number % 28:02} 00:00:00.000",
                "required_at": "1999-01-15 00:00:00.000", "shipped_at": "" if number % 40 == 0 else "1998-12-31 00:00:00.000",
                "customer": f"CUST{number % 89}", "customer_name": f"Customer {number % 89}, Gmbh & Söhne",
                "ship_country": "Österreich",
                "sku": str(1 + (seed + position) % 77), "product": f"Product {seed % 77}", "quantity": str(1 + seed % 130),
                "unit_price": f"{2 + seed % 260}.{seed % 100:02}",
                "discount": ("0.0", "0.05", "0.1", "0.15", "0.2", "0.25")[seed % 6],
            })  # fmt: skip
    return Trade(rows, products)


@pytest.fixture(scope="module")
def trade() -> Trade:
    return read_northwind() if NORTHWIND.is_dir() else generate_trade()


@pytest.fixture(scope="module")
def shop(running: Running) -> Iterator[httpx.Client]:
    """A tenant with the starter."""
    scope = running.tenant("northwind")
    starter = starter_solution(f"http://127.0.0.1:{running.config.server.port}/demo")
    service.apply_solution(scope, running.services.solutions, starter)
    with running.api("northwind") as client:
        yield client


def orders_of(trade: Trade) -> list[list[Row]]:
    return [list(rows) for _, rows in groupby(trade.rows, key=lambda row: row["number"])]


def batches_of(orders: list[list[Row]], planted: list[PlantedOrder]) -> Iterator[tuple[str, list[tuple[int, str, str]]]]:
    """Files of up to 100 valid orders mixed with planted ones, and the expected defects of each file."""
    good, bad = iter(orders), iter(planted)
    while chunk := list(islice(good, BATCH)):
        rows: list[Row] = []
        expected = []
        for position, order in enumerate(chunk):
            if position % 20 == 7 and (spoilt := next(bad, None)) is not None:
                expected.append((len(rows) + 2 + spoilt.at, spoilt.field, spoilt.code))
                rows += spoilt.rows
            rows += order
        yield to_csv(rows), expected


def entities(shop: httpx.Client, collection: str) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        query = {"limit": 500, "sort": "id"} | ({"cursor": cursor} if cursor else {})
        answer = shop.post(f"/api/v1/datapool/{collection}/query", json=query).json()
        yield from answer["data"]
        cursor = answer["meta"].get("next_cursor")
        if cursor is None:
            return


def test_valid_orders_are_stored_with_exact_totals_and_planted_defects_are_reported(trade: Trade, shop: httpx.Client) -> None:
    orders = orders_of(trade)
    assert (len(orders), len(trade.rows)) == (ORDERS, LINES)
    skus = (trade.products[0]["sku"], trade.products[1]["sku"])
    defects = 0
    total = Decimal(0)
    for number, (text, expected) in enumerate(batches_of(orders, plant(skus))):
        body = {"orders": text} | ({"products": trade.products} if number == 0 else {})
        execution = shop.post("/api/v1/processes/order-intake/execute?wait=60", json=body).json()["data"]
        assert execution["status"] == "succeeded", execution
        output = execution["output"]
        assert [(d["line"], d["field"], d["code"]) for d in output["defects"]] == expected
        defects += len(expected)
        total += Decimal(output["total"])
    assert defects == 40

    expected_totals = {rows[0]["number"]: total_of(rows) for rows in orders}
    by_number = {order["number"]: order for order in entities(shop, "orders")}
    assert {name: Decimal(order["total"]) for name, order in by_number.items()} == expected_totals
    assert total == sum(expected_totals.values())
    lines = list(entities(shop, "order_lines"))
    assert len(lines) == LINES
    exact = sum(Decimal(r["quantity"]) * Decimal(r["unit_price"]) * (1 - Decimal(r["discount"])) for r in trade.rows)
    assert sum(Decimal(line["amount"]) for line in lines) == exact
    first = by_number[orders[0][0]["number"]]
    assert (first["customer_name"], first["ordered_at"]) == (orders[0][0]["customer_name"], orders[0][0]["ordered_at"][:10])


def test_the_generated_trade_has_the_shape_of_the_real_one() -> None:
    trade = generate_trade()
    assert (len(orders_of(trade)), len(trade.rows), len(trade.products)) == (ORDERS, LINES, 77)
    assert len({(row["number"], row["sku"]) for row in trade.rows}) == LINES


def test_a_repeated_batch_is_reported_and_changes_nothing(trade: Trade, shop: httpx.Client) -> None:
    rows = orders_of(trade)[0]
    before = [order for order in entities(shop, "orders") if order["number"] == rows[0]["number"]]
    answer = shop.post("/api/v1/processes/order-intake/execute?wait=60", json={"orders": to_csv(rows)}).json()["data"]
    assert [defect["code"] for defect in answer["output"]["defects"]] == ["duplicate_number"]
    assert [order for order in entities(shop, "orders") if order["number"] == rows[0]["number"]] == before

"""Order files for the starter: rows by column, and defects planted at known lines."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

COLUMNS = [
    "number", "ordered_at", "required_at", "shipped_at", "customer", "customer_name", "ship_country",
    "sku", "product", "quantity", "unit_price", "discount",
]  # fmt: skip
Row = dict[str, str]
GOOD: Row = {
    "ordered_at": "1997-03-03", "required_at": "1997-03-31", "shipped_at": "", "customer": "PLANT",
    "customer_name": "Planted & Söhne", "ship_country": "Germany", "quantity": "3", "unit_price": "10.50", "discount": "0.05",
}  # fmt: skip


def to_csv(rows: list[Row]) -> str:
    """A CSV file with a header, quoted as needed; line 2 is the first row."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def total_of(rows: list[Row]) -> Decimal:
    """The exact total of an order of these lines, rounded half up to cents once."""
    exact = sum((Decimal(r["quantity"]) * Decimal(r["unit_price"]) * (1 - Decimal(r["discount"] or "0")) for r in rows), Decimal(0))
    return exact.quantize(Decimal("0.01"), ROUND_HALF_UP)


@dataclass(frozen=True)
class PlantedOrder:
    """An order with exactly one defect, in its line `at` (from 0)."""

    name: str
    rows: list[Row]
    at: int
    field: str
    code: str


def _set_cell(field: str, value: str, code: str, at: int = 0) -> Callable[[list[Row]], tuple[int, str, str]]:
    def change(rows: list[Row]) -> tuple[int, str, str]:
        rows[at][field] = value
        return at, field, code

    return change


def _repeat_sku(rows: list[Row]) -> tuple[int, str, str]:
    rows[1]["sku"] = rows[0]["sku"]
    return 1, "sku", "duplicate_line"


SPOILERS: Mapping[str, Callable[[list[Row]], tuple[int, str, str]]] = {
    "missing customer": _set_cell("customer", "", "missing"),
    "missing customer in a later line": _set_cell("customer", "  ", "missing", 1),
    "missing sku": _set_cell("sku", "", "missing"),
    "missing quantity": _set_cell("quantity", "", "missing", 1),
    "missing price": _set_cell("unit_price", "", "missing"),
    "missing date": _set_cell("ordered_at", "", "missing"),
    "negative quantity": _set_cell("quantity", "-3", "not_positive"),
    "zero quantity": _set_cell("quantity", "0", "not_positive", 1),
    "half a piece": _set_cell("quantity", "1.5", "not_whole"),
    "quantity in words": _set_cell("quantity", "three", "not_a_number"),
    "quantity with thousands": _set_cell("quantity", "1,000", "not_a_number", 1),
    "quantity out of this world": _set_cell("quantity", "99999999", "too_large"),
    "unknown product": _set_cell("sku", "NO-SUCH", "unknown_product"),
    "unknown product in a later line": _set_cell("sku", "4711", "unknown_product", 1),
    "day that is none": _set_cell("ordered_at", "1997-02-30", "bad_date"),
    "date of another country": _set_cell("ordered_at", "03/15/1997", "bad_date"),
    "date in words": _set_cell("required_at", "next week", "bad_date"),
    "shipped on a day that is none": _set_cell("shipped_at", "1997-13-01", "bad_date", 1),
    "required before it was ordered": _set_cell("required_at", "1997-01-01", "before_order"),
    "lost characters": _set_cell("customer_name", "Planted & S\ufffdhne", "broken_encoding"),
    "misread characters": _set_cell("customer_name", "Planted & SÃ¶hne", "broken_encoding", 1),
    "control character": _set_cell("product", "Te\u0007a", "broken_encoding"),
    "misread capital": _set_cell("ship_country", "Ã\u0096sterreich", "broken_encoding"),
    "formula": _set_cell("customer_name", '=HYPERLINK("http://evil.example","x")', "formula"),
    "formula with plus": _set_cell("product", "+1+cmd|' /C calc'!A0", "formula"),
    "formula with minus": _set_cell("product", "-2+3", "formula", 1),
    "formula with at": _set_cell("ship_country", "@SUM(A1)", "formula"),
    "formula as quantity": _set_cell("quantity", "=1+1", "formula"),
    "price with comma": _set_cell("unit_price", "10,50", "not_a_number"),
    "price with currency": _set_cell("unit_price", "10.50 EUR", "not_a_number", 1),
    "negative price": _set_cell("unit_price", "-10.50", "negative"),
    "price too precise": _set_cell("unit_price", "10.50001", "too_precise"),
    "discount in percent": _set_cell("discount", "15", "out_of_range"),
    "negative discount": _set_cell("discount", "-0.1", "out_of_range", 1),
    "discount in words": _set_cell("discount", "much", "not_a_number"),
    "the same product twice": _repeat_sku,
    "another date in a later line": _set_cell("ordered_at", "1997-03-04", "contradiction", 1),
    "another customer in a later line": _set_cell("customer", "OTHER", "contradiction", 1),
    "name too long": _set_cell("customer_name", "x" * 201, "too_long"),
    "number too long": _set_cell("number", "9" * 41, "too_long"),
}


def plant(skus: tuple[str, str], first_number: int = 90_001) -> list[PlantedOrder]:
    """One order of two lines for every kind of defect; `skus` are products that exist."""
    orders = []
    for offset, (name, change) in enumerate(SPOILERS.items()):
        rows = [{**GOOD, "number": str(first_number + offset), "sku": sku, "product": f"product {sku}"} for sku in skus]
        at, field, code = change(rows)
        orders.append(PlantedOrder(name, rows, at, field, code))
    return orders

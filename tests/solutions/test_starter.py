"""The starter: order intake on a real appliance."""

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.solutions import service
from appliance.solutions.starter import starter_folder, starter_input, starter_solution
from tests.journeys.order_files import COLUMNS, GOOD, Row, plant, to_csv, total_of
from tests.solutions.conftest import SolutionTenant

SAMPLE = json.loads(starter_input().read_text("utf8"))
SKUS = ("T-100", "C-310")


@dataclass
class Intake:
    """A tenant with the starter."""

    api: httpx.Client

    def take(self, orders: str, **more: Any) -> dict[str, Any]:
        """The output of an execution that must succeed."""
        body = {"orders": orders, **more}
        answer = self.api.post("/api/v1/processes/order-intake/execute?wait=60", json=body)
        assert answer.is_success, answer.text
        execution = answer.json()["data"]
        pause, ends = threading.Event(), clock.monotonic() + 300
        while execution["status"] in ("queued", "running"):  # a busy machine may take longer than one request waits
            assert clock.monotonic() < ends, execution
            pause.wait(0.2)
            execution = self.api.get(execution["links"]["self"]).json()["data"]
        assert execution["status"] == "succeeded", execution
        output: dict[str, Any] = execution["output"]
        return output

    def defects(self, orders: str, **more: Any) -> list[tuple[int, str, str]]:
        return [(d["line"], d["field"], d["code"]) for d in self.take(orders, **more)["defects"]]

    def replay_everything(self) -> None:
        executions = self.api.get("/api/v1/executions?limit=500").json()["data"]
        assert executions
        for execution in executions:
            if execution["status"] in ("succeeded", "failed"):
                replay = self.api.post(f"{execution['links']['self']}/replay", json={}).json()["data"]
                assert replay["identical"], (replay.get("first_divergence"), replay["output"]["diff"])

    def entities(self, collection: str, filter_: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        query = {"filter": filter_ or {}, "limit": 500, "sort": "created_at"}
        answer = self.api.post(f"/api/v1/datapool/{collection}/query", json=query)
        answer.raise_for_status()
        data: list[dict[str, Any]] = answer.json()["data"]
        return data


@pytest.fixture
def intake(make_tenant: Callable[..., SolutionTenant]) -> Iterator[Intake]:
    """A fresh tenant with the starter and its catalogue; whatever a test ran there is replayed without a difference."""
    tenant = make_tenant()
    service.apply_solution(tenant.scope, tenant.tools, starter_solution(tenant.demo))
    client = Intake(tenant.api)
    client.take(to_csv([]), products=SAMPLE["products"])
    yield client
    client.replay_everything()


def order(number: str, **cells: str) -> Row:
    return {**GOOD, "number": number, "sku": "T-100", "product": "Darjeeling", **cells}


def test_the_sample_is_accepted_except_for_its_two_defects(intake: Intake) -> None:
    output = intake.take(SAMPLE["orders"])
    assert output["orders"] == {"read": 12, "accepted": 10, "rejected": 2}
    assert output["lines"] == {"read": 18, "accepted": 16}
    assert [(d["line"], d["field"], d["code"], d["value"]) for d in output["defects"]] == [
        (8, "quantity", "not_positive", "-4"),
        (13, "customer", "missing", ""),
    ]
    assert {name: each["orders"] for name, each in output["by_class"].items()} == {"auto": 7, "review": 1, "manager": 2}
    stored = intake.entities("orders")
    assert sum(Decimal(each["total"]) for each in stored) == Decimal(output["total"])
    assert sum(Decimal(each["payable"]) for each in stored) == Decimal(output["payable"])
    assert all(each["reference"].startswith("SO-") for each in stored)
    assert len(intake.entities("order_lines")) == 16


def test_the_sample_files_say_the_same() -> None:
    assert (starter_folder() / "sample" / "orders.csv").read_text("utf8") == SAMPLE["orders"]


def test_forty_planted_defects_are_reported_by_line_and_field(intake: Intake) -> None:
    rows = [order("good-1"), order("good-1", sku="C-310")]
    expected = []
    for defect in plant(SKUS):
        expected.append((len(rows) + 2 + defect.at, defect.field, defect.code))
        rows += defect.rows
    rows += [order("good-2")]
    output = intake.take(to_csv(rows))
    assert len(expected) == 40
    assert [(d["line"], d["field"], d["code"]) for d in output["defects"]] == expected
    assert output["orders"] == {"read": 42, "accepted": 2, "rejected": 40}
    assert [each["number"] for each in intake.entities("orders")] == ["good-1", "good-2"]


def test_a_duplicate_number_is_a_defect_and_the_first_row_is_stored(intake: Intake) -> None:
    rows = [order("1"), order("2"), order("1", quantity="99")]
    assert intake.defects(to_csv(rows)) == [(4, "number", "duplicate_number")]
    assert [(each["number"], each["lines"]) for each in intake.entities("orders")] == [("1", 1), ("2", 1)]


def test_a_repeated_number_is_a_defect_unless_it_is_replaced(intake: Intake) -> None:
    intake.take(to_csv([order("1"), order("1", sku="C-310")]))
    again = to_csv([order("1", quantity="7")])
    assert intake.defects(again) == [(2, "number", "duplicate_number")]
    assert intake.take(again, on_duplicate="replace")["orders"]["accepted"] == 1
    (stored,) = intake.entities("orders")
    assert (stored["lines"], Decimal(stored["total"])) == (1, total_of([order("1", quantity="7")]))
    assert [line["quantity"] for line in intake.entities("order_lines")] == [7]


def test_no_order_loses_a_line_whose_number_cannot_be_read(intake: Intake) -> None:
    invalid_rows = [order("1"), order("", sku="C-310"), order("1", sku="H-500")]
    first = [order("=2", customer="OTHER"), order("2", sku="C-310", customer="OTHER")]
    assert intake.defects(to_csv(invalid_rows + first)) == [(3, "number", "missing"), (5, "number", "formula")]
    assert intake.entities("orders") == []


def test_cells_may_hold_commas_quotes_and_line_breaks(intake: Intake) -> None:
    name = 'Müller, "Söhne"\n& Co 😀'
    output = intake.take("\ufeff" + to_csv([order("1", customer_name=name), order("2", quantity="0")]))
    assert [d["line"] for d in output["defects"]] == [4]
    assert intake.entities("orders")[0]["customer_name"] == name


def test_columns_are_found_by_name_in_any_order_and_further_ones_are_ignored(intake: Intake) -> None:
    text = "Unit_Price,note, SKU ,quantity,customer,ordered_at,number\r\n2.5,hi,T-100,3,ALFKI,1997-01-01 00:00:00.000,77\r\n\r\n"
    output = intake.take(text)
    assert (output["total"], output["ignored_columns"], output["defect_count"]) == ("7.50", ["note"], 0)
    assert intake.entities("orders")[0]["ordered_at"] == "1997-01-01"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, column, "missing_column") for column in ("number", "ordered_at", "customer", "sku", "quantity", "unit_price")]),
        (",".join(COLUMNS).replace("customer,", "client,") + "\n", [(1, "customer", "missing_column")]),
        (",".join([*COLUMNS, "sku"]) + "\n", [(1, "sku", "duplicate_column")]),
        (to_csv([order("1")]).rstrip("\n") + ",extra\n", [(2, "", "too_many_fields")]),
        (to_csv([]) + "1,1997-01-01\n", [(2, "", "too_few_fields")]),
    ],
)
def test_columns_and_fields_that_are_missing_or_too_many(intake: Intake, text: str, expected: list[Any]) -> None:
    assert [results for results in intake.defects(text) if results in expected] == expected
    assert intake.entities("orders") == []


def test_a_file_with_the_maximum_of_lines_is_accepted_and_a_longer_one_is_not(intake: Intake) -> None:
    rows = [order(f"many-{number}", customer_name="名" * 20, discount="") for number in range(1000)]
    rejected = intake.take(to_csv([*rows, order("one-more")]))
    assert [(d["line"], d["code"]) for d in rejected["defects"]] == [(1002, "too_many_lines")]
    assert intake.entities("orders") == []
    assert intake.take(to_csv(rows))["orders"]["accepted"] == 1000


def test_a_file_of_nothing_but_defects_lists_the_first_thousand(intake: Intake) -> None:
    output = intake.take(to_csv([]) + ("=" * 40 + ",") * 11 + "=\n" + (",,,,,,,,,,," + "\n") * 999)
    assert (output["orders"]["accepted"], len(output["defects"])) == (0, 1000)
    assert output["defect_count"] > 1000


def test_any_file_ends_in_a_successful_execution(intake: Intake) -> None:
    rng = random.Random(20)  # noqa: S311 a repeatable test, not a secret
    pieces = ['"', '""', ",", "\n", "\r\n", "\r", "=", "-", "+", "1", "T-100", "1997-01-01", "9" * 30, "NaN", "1e5", "\u0000",
              "\u2028", "\ufffd", "😀", " ", "\t", "x" * 250, "__proto__", "constructor", "٣"]  # fmt: skip
    for _ in range(40):
        rows = [order(rng.choice(["1", "2", "", "__proto__"])) for _ in range(rng.randint(1, 6))]
        for row in rows:
            row[rng.choice(COLUMNS)] = "".join(rng.choices(pieces, k=rng.randint(0, 3)))
        text = to_csv(rows)
        at = rng.randrange(len(text))
        output = intake.take(text[:at] + rng.choice(pieces) + text[at:], on_duplicate=rng.choice(["report", "replace"]))
        assert output["orders"]["read"] == output["orders"]["accepted"] + output["orders"]["rejected"]


@pytest.mark.parametrize("broken", ['"Planted', 'Plan"ted', '"Planted" GmbH'])
def test_a_quote_that_does_not_fit_costs_its_own_line_only(intake: Intake, broken: str) -> None:
    rows = [order("1"), order("2", customer_name="BROKEN"), order("3", customer_name='"Quoted", Inc.')]
    result = intake.defects(to_csv(rows).replace("BROKEN", broken))
    assert result[0] == (3, "", "bad_quoting")
    assert {line for line, _, _ in result} == {3}
    assert [each["number"] for each in intake.entities("orders")] == ["1", "3"]


def test_totals_are_exact_and_rounded_half_up_once_per_order(intake: Intake) -> None:
    rows = [
        order("half", quantity="1", unit_price="0.10", discount="0.05"),
        order("half", sku="C-310", quantity="1", unit_price="0.10", discount="0.05"),
        order("up", quantity="1", unit_price="0.10", discount="0.05"),
        order("binary", quantity="3", unit_price="0.1", discount="0"),
        order("large", quantity="999999", unit_price="999998.9999", discount="0"),
        order("free", quantity="1", unit_price="5", discount="1"),
    ]
    intake.take(to_csv(rows))
    totals = {each["number"]: each["total"] for each in intake.entities("orders")}
    assert totals == {"half": "0.19", "up": "0.10", "binary": "0.30", "large": "999997999901.00", "free": "0.00"}
    assert [line["amount"] for line in intake.entities("order_lines", {"order_number": "half"})] == ["0.095", "0.095"]


def test_the_order_system_gets_every_order_once(intake: Intake, make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant()
    intake.take(to_csv([order("sent-1"), order("sent-2")]))
    seen = httpx.get(f"{tenant.demo}/orders/sent-1", trust_env=False).json()
    assert (seen["total"], seen["approval_class"], len(seen["lines"])) == (str(total_of([order("sent-1")])), "auto", 1)


def test_an_order_system_that_is_down_fails_by_its_class_keeps_nothing_and_can_be_retried(
    make_tenant: Callable[..., SolutionTenant]
) -> None:
    tenant = make_tenant()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = starter_solution(f"http://127.0.0.1:{nobody.getsockname()[1]}")
        service.apply_solution(tenant.scope, tenant.tools, down)
        body = {"orders": to_csv([order("late-1")]), "products": SAMPLE["products"]}
        failed = tenant.api.post("/api/v1/processes/order-intake/execute?wait=60", json=body).json()["data"]
    assert (failed["status"], failed["error"]["failure_class"], failed["error"]["step"]) == ("failed", "connector", "place")
    intake = Intake(tenant.api)
    assert intake.entities("orders") == []
    service.apply_solution(tenant.scope, tenant.tools, starter_solution(tenant.demo))
    again = f"/api/v1/processes/order-intake/executions/{failed['execution_id']}/retry"
    retried = tenant.api.post(again, json={}).json()["data"]["execution_id"]
    with tenant.api.stream("GET", f"/api/v1/processes/order-intake/executions/{retried}/events") as events:
        *_, last = (line for line in events.iter_lines() if line.startswith("data:"))
    assert '"status": "succeeded"' in last or '"status":"succeeded"' in last
    assert [each["number"] for each in intake.entities("orders")] == ["late-1"]


def test_two_executions_with_the_same_order_at_once_keep_it_once(intake: Intake) -> None:
    text = to_csv([order("twin"), order("twin", sku="C-310")])
    with ThreadPoolExecutor(4) as threads:
        outputs = list(threads.map(lambda _: intake.take(text), range(4)))
    assert all(output["orders"]["read"] == 1 for output in outputs)
    assert [each["number"] for each in intake.entities("orders")] == ["twin"]
    assert len(intake.entities("order_lines")) == 2


def test_what_breaks_the_input_schema_leaves_no_execution(intake: Intake) -> None:
    before = len(intake.api.get("/api/v1/processes/order-intake/executions").json()["data"])
    for body in ({}, {"orders": 3}, {"orders": "x", "colour": "red"}, {"orders": "x" * 160_001}):
        answer = intake.api.post("/api/v1/processes/order-intake/execute", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "validation_failed")
    assert len(intake.api.get("/api/v1/processes/order-intake/executions").json()["data"]) == before

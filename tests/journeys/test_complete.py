"""One solution with every kind of step and every option: from its folder through `gos apply` and the API to the result."""

import csv
import hmac
import io
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest
from openpyxl import Workbook

from appliance.cli import main
from appliance.core import yaml12
from appliance.processes.definitions import process_schema
from appliance.processes.definitions.nodes import KINDS
from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.formats.test_recognition import saved, scan
from tests.journeys.order_files import Row
from tests.journeys.test_northwind import NORTHWIND, generate_trade, read_northwind
from tests.llm.provider import Provider

FOLDER = Path(__file__).parent / "complete"
TENANT = "complete"
PASSWORD = "correct horse battery"
ORDERS, FIRST_UNKNOWN = 40, 3
DEADLINE = 180.0
FINISHED = ("succeeded", "failed", "timed_out", "cancelled")
# Options of steps besides their kind; the solution uses all of them.
OPTIONS = set(process_schema()["$defs"]["step"]["properties"]) - set(KINDS)


@pytest.fixture(scope="module")
def folder(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the solution, with the demo of this appliance as its order system."""
    solution = tmp_path_factory.mktemp("complete") / "solution"
    shutil.copytree(FOLDER, solution)
    system = solution / "integrations/order-system.yaml"
    system.write_text(system.read_text().replace("localhost:8080", f"127.0.0.1:{running.config.server.port}"))
    return solution


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[httpx.Client]:
    with running.api(TENANT) as client:
        yield client


@pytest.fixture(scope="module")
def operator(running: Running, api: httpx.Client) -> Browser:
    running.user("olga@complete.test", PASSWORD)
    people.add_member(running.tenant(TENANT), "olga@complete.test", "operator", approver=True)
    browser = Browser(running)
    assert browser.sign_in("olga@complete.test", PASSWORD, TENANT).status_code == 200
    return browser


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """A language model with scripted answers."""
    server = Provider()
    yield server
    server.close()


@pytest.fixture(scope="module")
def day() -> list[Row]:
    """The lines of the first Northwind orders, or of generated ones."""
    trade = read_northwind() if NORTHWIND.is_dir() else generate_trade()
    orders = [list(lines) for _, lines in groupby(trade.rows, lambda row: row["number"])]
    return [line for order in orders[:ORDERS] for line in order]


def totals_of(lines: list[Row]) -> dict[str, Decimal]:
    """The total of each order, calculated independently of the solution."""
    totals: dict[str, Decimal] = {}
    for line in lines:
        discount = Decimal(line["discount"]).quantize(Decimal("0.01"))
        amount = Decimal(line["quantity"]) * Decimal(line["unit_price"]) * (1 - discount)
        totals[line["number"]] = totals.get(line["number"], Decimal(0)) + amount
    return {number: total.quantize(Decimal("0.01"), ROUND_HALF_UP) for number, total in totals.items()}


def data(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json()["data"]


def wait_until(fetch: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
    """Fetch until the condition holds; returns the last result."""
    ends, pause = time.monotonic() + DEADLINE, threading.Event()
    while not condition(seen := fetch()):
        assert time.monotonic() < ends, f"the condition never held: {seen}"
        pause.wait(0.05)
    return seen


def test_the_solution_has_every_kind_and_every_option() -> None:
    used: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "id" in value and len(set(value) & set(KINDS)) == 1:
                used.update(value)
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    for path in FOLDER.glob("processes/*/process.yaml"):
        walk(yaml12.load(path.read_text()))
    assert set(KINDS) | OPTIONS <= used


@dataclass(frozen=True)
class Day:
    """The input of a day, the expected totals, and the indexes of orders with an unknown customer."""

    input: dict[str, Any]
    totals: dict[str, Decimal]
    unknown: list[int]

    @property
    def placed(self) -> dict[str, Decimal]:
        return {number: total for index, (number, total) in enumerate(self.totals.items()) if index not in self.unknown}

    @property
    def classes(self) -> Counter[str]:
        return Counter("large" if total >= 1000 else "small" for total in self.placed.values())


@pytest.fixture(scope="module")
def applied(running: Running, folder: Path, api: httpx.Client) -> None:
    """The folder is in the tenant, once its secret is set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOS_URL", running.config.tenant_url(TENANT))
        patch.setenv("GOS_API_KEY", running.key(TENANT))
        assert main(["check", str(folder)]) == 0
        assert main(["apply", str(folder)]) == 1, "a secret is missing"
        data(api.put("/api/v1/secrets/seal", json={"value": "swordfish"}))
        assert main(["apply", str(folder)]) == 0
    assert len(data(api.get("/api/v1/processes"))) == 6


@pytest.fixture(scope="module")
def parsed(api: httpx.Client, applied: None, day: list[Row]) -> dict[str, Any]:
    """The parsed documents of the day: a CSV file, a workbook, and a scan that is slightly rotated and noisy."""
    customers = {line["customer"]: line["customer_name"] for line in day}
    unknown = list(customers)[FIRST_UNKNOWN]
    book = Workbook()
    sheet = book.create_sheet("Customers", 0)
    for row in (("code", "name"), *((code, name) for code, name in customers.items() if code != unknown)):
        sheet.append(row)
    content = io.BytesIO()
    book.save(content)
    table = io.StringIO()
    writer = csv.DictWriter(table, ("number", "customer", "quantity", "unit_price", "discount"), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(day)
    files = {
        "table": ("orders.csv", table.getvalue().encode()), "book": ("customers.xlsx", content.getvalue()),
        "scan": ("invoice.png", saved(scan(), "PNG")),
    }  # fmt: skip
    input_ = {
        member: data(api.post("/api/v1/documents", params={"name": name}, content=content))["id"]
        for member, (name, content) in files.items()
    }
    started = data(api.post("/api/v1/processes/papers/execute", json=input_))
    seen = wait_until(lambda: data(api.get(started["links"]["self"])), lambda seen: seen["status"] in FINISHED)
    assert seen["status"] == "succeeded", seen["error"]
    read: dict[str, Any] = seen["output"]
    return read


@pytest.fixture(scope="module")
def expected_day(parsed: dict[str, Any], day: list[Row]) -> Day:
    """The input of the day from the parsed documents, with the results that the test calculates."""
    known_codes = {each["code"] for each in parsed["customers"]}
    of_unknown = {line["number"] for line in day if line["customer"] not in known_codes}
    totals = totals_of(day)
    failed = [index for index, number in enumerate(totals) if number in of_unknown]
    assert failed
    return Day({"day": "monday", "customers": parsed["customers"], "lines": parsed["lines"]}, totals, failed)


@pytest.fixture(scope="module")
def day_execution(api: httpx.Client, applied: None, operator: Browser, provider: Provider, expected_day: Day) -> dict[str, Any]:
    """The finished execution of the day, with all of its waits resolved."""
    started = data(api.post("/api/v1/processes/trading-day/execute", json=expected_day.input))
    url = f"/api/v1/processes/trading-day/executions/{started['execution_id']}"

    def waits_for(reason: str) -> dict[str, Any]:
        seen: dict[str, Any] = wait_until(
            lambda: data(api.get(url)), lambda seen: seen.get("wait_reason") == reason or seen["status"] in FINISHED
        )
        assert seen["status"] == "waiting", seen
        return seen

    waits_for("approval")
    (approval,) = data(api.get("/api/v1/approvals", params={"execution_id": started["execution_id"]}))
    assert approval["title"] == f"{ORDERS} orders on monday"
    page = operator.post(operator.at(TENANT, f"/console/approvals/{approval['id']}"), {"verdict": "approve"})
    assert page.status_code == 200
    (wait,) = waits_for("event")["waiting_for"]["waits"]
    data(api.post(f"{url}/resume", json={"token": wait["token"], "input": {"sum": 17}}))
    waits_for("input")
    provider.say({"mood": "splendid"}, {"mood": "good"}, "Sell less. ")
    data(api.post("/api/v1/llm-profiles", json={"slug": "writer", "kind": "openai", "base_url": provider.url, "model": "small"}))
    seen: dict[str, Any] = wait_until(lambda: data(api.get(url)), lambda seen: seen["status"] in FINISHED)
    assert seen["status"] == "succeeded", seen["error"]
    return seen


def test_documents_are_parsed(parsed: dict[str, Any], day: list[Row]) -> None:
    assert [line["number"] for line in parsed["lines"]] == [line["number"] for line in day]
    assert parsed["loaded"] == len(parsed["customers"]) > FIRST_UNKNOWN
    assert (parsed["total"], parsed["unpacked"]) == ("342.00", 1)
    assert "Invoice of EUR 342.00" in parsed["letter"]


def test_the_day_has_the_expected_result(
    api: httpx.Client, day_execution: dict[str, Any], provider: Provider, expected_day: Day
) -> None:
    output = day_execution["output"]
    assert (output["placed"], output["failed"]) == (len(expected_day.placed), expected_day.unknown)
    assert (output["paid"], output["rate"], output["mood"], output["advice"]) == (17, "connector", "good", "Sell less.")
    assert len(provider.requests) == 3, "an invalid answer is requested again, then the agent calls"
    assert output["approved_by"]
    assert output["confirmed"] == {"day": "monday", "orders": ORDERS, "waited": True}
    assert {each["class"]: each["orders"] for each in output["summary"]["classes"]} == expected_day.classes
    orders = data(api.get("/api/v1/datapool/orders/entities?limit=500"))
    assert {order["number"]: Decimal(order["total"]) for order in orders} == expected_day.placed
    assert all(order["reference"].startswith("SO-") and order["customer"] for order in orders)


def test_every_kind_of_step_has_run(api: httpx.Client, day_execution: dict[str, Any]) -> None:
    steps = {step["step"]: step for step in data(api.get(f"{day_execution['links']['steps']}?limit=500"))}
    (read,) = data(api.get("/api/v1/processes/papers/executions"))
    kinds = {step["kind"] for step in (*steps.values(), *data(api.get(read["links"]["steps"])))}
    assert (steps["rate"]["status"], steps["stubborn"]["attempt"], steps["stubborn"]["output"]) == ("failed", 2, 2)
    assert kinds >= set(KINDS) - {"stop"}


def test_every_trigger_creates_one_notice(
    running: Running, api: httpx.Client, day_execution: dict[str, Any], expected_day: Day
) -> None:
    body = b'{"about": "a new shop"}'
    headers = {"X-Signature": "sha256=" + hmac.new(b"swordfish", body, "sha256").hexdigest(), "X-Delivery": "d-1"}
    with running.client(f"{TENANT}.{running.config.domains.base}", headers) as shop:
        sent = [shop.post("/hooks/shop/notices", content=body, headers={"Content-Type": "application/json"}) for _ in range(2)]
        assert [answer.status_code for answer in sent] == [202, 202]
        assert shop.post("/hooks/shop/notices", content=body + b" ").status_code == 401
    expected = Counter(["webhook", "day", *["order"] * expected_day.classes["large"]])
    url = "/api/v1/datapool/notices/entities?limit=500"
    notices = wait_until(lambda: data(api.get(url)), lambda seen: len(seen) >= expected.total())
    assert Counter(each["kind"] for each in notices) == expected


def test_a_preview_reuses_cached_results_and_stops(api: httpx.Client, day_execution: dict[str, Any], expected_day: Day) -> None:
    again = data(api.post("/api/v1/processes/trading-day/execute?wait=30", json={**expected_day.input, "preview": True}))
    assert again["status"] == "succeeded", again
    assert len(again["output"]["orders"]) == ORDERS
    steps = data(api.get(again["links"]["steps"]))
    assert {step["step"]: step["result_source"] for step in steps}["classes"] == "cached"
    assert steps[-1]["kind"] == "stop"


def test_a_failure_is_compensated_and_reported(api: httpx.Client, day_execution: dict[str, Any]) -> None:
    failed = data(api.post("/api/v1/processes/spoilt/execute?wait=30", json={}))
    assert (failed["status"], failed["error"]["message"]) == ("failed", "spoilt")

    def notices(kind: str) -> list[str]:
        entities = data(api.get("/api/v1/datapool/notices/entities?limit=500"))
        return [each["about"] for each in entities if each["kind"] == kind]

    assert wait_until(lambda: notices("alarm"), bool) == ["spoilt"]
    assert notices("reserved") == []

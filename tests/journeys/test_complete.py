"""One solution with every kind of step and every option: from its folder through `gos apply` and the API to the result."""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.cli import main
from appliance.core import yaml12
from appliance.processes.nodes import KINDS
from appliance.processes.schema import process_schema
from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.journeys.order_files import Row
from tests.journeys.test_northwind import NORTHWIND, generate_trade, read_northwind

FOLDER = Path(__file__).parent / "complete"
TENANT = "complete"
PASSWORD = "correct horse battery"
ORDERS, FIRST_UNKNOWN = 40, 3
DEADLINE = 60.0
# What steps may carry besides their kind; none of these is left out of the solution.
OPTIONS = set(process_schema()["$defs"]["step"]["properties"]) - set(KINDS)


@pytest.fixture(scope="module")
def folder(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solution, its order system being the demo of this appliance."""
    made = tmp_path_factory.mktemp("complete") / "solution"
    shutil.copytree(FOLDER, made)
    system = made / "integrations/order-system.yaml"
    system.write_text(system.read_text().replace("localhost:8080", f"127.0.0.1:{running.config.server.port}"))
    return made


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
def day() -> list[Row]:
    """The lines of the first orders of the Northwind company, or of one like it."""
    trade = read_northwind() if NORTHWIND.is_dir() else generate_trade()
    orders = [list(lines) for _, lines in groupby(trade.rows, lambda row: row["number"])]
    return [line for order in orders[:ORDERS] for line in order]


def totals_of(lines: list[Row]) -> dict[str, Decimal]:
    """What each order comes to, calculated in another language and another way."""
    totals: dict[str, Decimal] = {}
    for line in lines:
        discount = Decimal(line["discount"]).quantize(Decimal("0.01"))
        amount = Decimal(line["quantity"]) * Decimal(line["unit_price"]) * (1 - discount)
        totals[line["number"]] = totals.get(line["number"], Decimal(0)) + amount
    return {number: total.quantize(Decimal("0.01"), ROUND_HALF_UP) for number, total in totals.items()}


def data(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json()["data"]


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """What is seen once it is so."""
    ends, pause = time.monotonic() + DEADLINE, threading.Event()
    while not is_so(seen := look()):
        assert time.monotonic() < ends, f"it never came to that: {seen}"
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


def test_a_day_of_trading(
    running: Running, folder: Path, api: httpx.Client, operator: Browser, day: list[Row], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GOS_URL", running.config.tenant_url(TENANT))
    monkeypatch.setenv("GOS_API_KEY", running.key(TENANT))
    assert main(["check", str(folder)]) == 0
    assert main(["apply", str(folder)]) == 1, "a secret is missing"
    assert "set it: PUT /api/v1/secrets/seal" in capsys.readouterr().err
    data(api.put("/api/v1/secrets/seal", json={"value": "swordfish"}))
    assert main(["apply", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "complete: 5 changed"

    customers = {line["customer"]: line["customer_name"] for line in day}
    unknown = list(dict.fromkeys(line["customer"] for line in day))[FIRST_UNKNOWN]
    known = [{"code": code, "name": name} for code, name in customers.items() if code != unknown]
    columns = ("number", "customer", "quantity", "unit_price", "discount")
    lines = [{name: line[name] for name in columns} for line in day]
    given = {"day": "monday", "customers": known, "lines": lines}
    started = data(api.post("/api/v1/processes/trading-day/execute", json=given))
    url = f"/api/v1/processes/trading-day/executions/{started['execution_id']}"

    waiting = until(lambda: data(api.get(url)), lambda seen: seen["status"] not in ("queued", "running"))
    assert (waiting["status"], waiting["wait_reason"]) == ("waiting", "approval"), waiting
    (asked,) = data(api.get("/api/v1/approvals", params={"execution_id": started["execution_id"]}))
    assert asked["title"] == f"{ORDERS} orders on monday"
    page = operator.post(operator.at(TENANT, f"/console/approvals/{asked['id']}"), {"verdict": "approve"})
    assert page.status_code == 200

    waiting = until(lambda: data(api.get(url)), lambda seen: seen.get("wait_reason") == "event")
    (wait,) = waiting["waiting_for"]["waits"]
    data(api.post(f"{url}/resume", json={"token": wait["token"], "input": {"sum": 17}}))
    done = until(lambda: data(api.get(url)), lambda seen: seen["status"] in ("succeeded", "failed"))
    assert done["status"] == "succeeded", done["error"]

    totals = totals_of(day)
    of_unknown = {line["number"] for line in day if line["customer"] == unknown}
    failed = [index for index, number in enumerate(totals) if number in of_unknown]
    output = done["output"]
    assert failed
    assert (output["placed"], output["failed"], output["paid"], output["rate"]) == (ORDERS - len(failed), failed, 17, "connector")
    assert output["approved_by"]
    assert output["confirmed"] == {"day": "monday", "orders": ORDERS, "waited": True}
    kept = data(api.get("/api/v1/datapool/orders/entities?limit=500"))
    placed = {number: total for index, (number, total) in enumerate(totals.items()) if index not in failed}
    assert {order["number"]: Decimal(order["total"]) for order in kept} == placed
    assert all(order["reference"].startswith("SO-") and order["customer"] for order in kept)
    classes = Counter("large" if total >= 1000 else "small" for total in placed.values())
    assert {each["class"]: each["orders"] for each in output["summary"]["classes"]} == classes
    steps = {step["step"]: step for step in data(api.get(f"{url}/steps?limit=500"))}
    assert (steps["rate"]["status"], steps["stubborn"]["attempt"], steps["stubborn"]["output"]) == ("failed", 2, 2)
    assert {step["kind"] for step in steps.values()} >= set(KINDS) - {"stop"}

    again = data(api.post("/api/v1/processes/trading-day/execute?wait=30", json={**given, "preview": True}))
    assert again["status"] == "succeeded", again
    assert len(again["output"]["orders"]) == ORDERS
    preview = data(api.get(f"/api/v1/processes/trading-day/executions/{again['execution_id']}/steps"))
    assert {step["step"]: step["result_source"] for step in preview}["classes"] == "cached"
    assert preview[-1]["kind"] == "stop"

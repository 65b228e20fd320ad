"""What docs/monitor.md and the dashboard say of the metrics is what the appliance shows, and its example is an alert."""

import json
import re
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.architecture.source_tree import ROOT

PAGE = (ROOT / "docs" / "monitor.md").read_text("utf-8")
TYPE = re.compile(r"^# HELP (?P<name>\w+) (?P<help>.+)\n# TYPE (?P=name) (?P<type>\w+)$", re.MULTILINE)
ROW = re.compile(r"^\| `(?P<name>gos_\w+)` \| (?P<type>\w+) \| .*?\| (?P<help>.+) \|$", re.MULTILINE)
NAME = re.compile(r"\bgos_\w+")


@pytest.fixture
def shown(running: Running) -> dict[str, tuple[str, str]]:
    """Type and help of every metric of ours, as a scraper gets them."""
    host = {"Host": f"localhost{running.config.port_suffix}"}
    with httpx.Client(trust_env=False, timeout=60) as client:
        text = client.get(f"http://127.0.0.1:{running.config.server.port}/metrics", headers=host).text
    return {found["name"]: (found["type"], found["help"]) for found in TYPE.finditer(text) if found["name"].startswith("gos_")}


def test_the_page_lists_every_metric(shown: dict[str, tuple[str, str]]) -> None:
    assert {found["name"]: (found["type"], found["help"]) for found in ROW.finditer(PAGE)} == shown


def test_every_query_of_the_dashboard_names_metrics_that_are_there(shown: dict[str, tuple[str, str]]) -> None:
    dashboard: Any = json.loads((ROOT / "packaging" / "grafana" / "gos.json").read_text("utf-8"))
    histograms = [name for name, (kind, _) in shown.items() if kind == "histogram"]
    exported = set(shown) | {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= len(dashboard["panels"]) > 10
    queried = {name for query in queries for name in NAME.findall(query)}
    assert queried - exported == set()
    assert [query for query in queries if not NAME.search(query)] == []


def test_the_conditions_of_the_page_are_those_of_the_api(acme: httpx.Client) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    body = {**json.loads(example), "actions": [{"kind": "webhook"}]}
    answer = acme.post("/api/v1/logs/alerts", json=body)
    assert answer.status_code == 201, answer.text
    alert = answer.json()["data"]
    acme.delete(f"/api/v1/logs/alerts/{alert['id']}").raise_for_status()
    assert {name: alert[name] for name in ("name", "condition", "for", "repeat")} == {
        name: body[name] for name in ("name", "condition", "for", "repeat")
    }

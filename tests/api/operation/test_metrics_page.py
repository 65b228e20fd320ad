"""The metrics in docs/monitor.md and in the dashboard are those of the appliance, and the example alert of the page is valid."""

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
def metrics(running: Running) -> dict[str, tuple[str, str]]:
    """Type and help of every metric of ours, as a scraper gets them."""
    host = {"Host": f"localhost{running.config.port_suffix}"}
    with httpx.Client(trust_env=False, timeout=60) as client:
        text = client.get(f"http://127.0.0.1:{running.config.server.port}/metrics", headers=host).text
    return {match["name"]: (match["type"], match["help"]) for match in TYPE.finditer(text) if match["name"].startswith("gos_")}


def test_the_page_lists_every_metric(metrics: dict[str, tuple[str, str]]) -> None:
    assert {match["name"]: (match["type"], match["help"]) for match in ROW.finditer(PAGE)} == metrics


def test_every_query_of_the_dashboard_names_existing_metrics(metrics: dict[str, tuple[str, str]]) -> None:
    dashboard: Any = json.loads((ROOT / "packaging" / "grafana" / "gos.json").read_text("utf-8"))
    histograms = [name for name, (kind, _) in metrics.items() if kind == "histogram"]
    exported = set(metrics) | {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
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

"""The pages of alerts and of the Monitor: what they show, to whom, and what their forms do."""

import re
from collections.abc import Callable

import httpx
import pytest

from appliance.console.frame.formatting import size
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser

SignedIn = Callable[[str], Browser]
FORM = {"kind": "failures", "above": "3", "window": "15m", "process": "greeting", "for": "5m", "repeat": ""}


def show(browser: Browser, path: str) -> httpx.Response:
    return browser.get(browser.at("acme", f"/console{path}"))


def test_an_alert_is_created_silenced_tested_and_deleted_by_forms(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    name = fresh("<alert>")
    choices = show(owner, "/alerts/new").text
    assert choices.count('href="?kind=') == 9
    page = owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": name, "starts": greeting})
    assert page.status_code == 200
    address = owner.url
    assert name.replace("<", "&lt;").replace(">", "&gt;") in page.text
    assert "Condition: more than 3 failures of greeting within 15m." in page.text
    assert "Starts the process greeting" in page.text
    silenced = owner.post(f"{address}/change", {"to": "8h"}).text
    assert "Silenced until" in silenced
    assert "Silenced until" not in owner.post(f"{address}/change", {"to": "heard"}).text
    assert "Test notification" in owner.post(f"{address}/change", {"to": "test"}).text
    assert 'value="on"' in owner.post(f"{address}/change", {"to": "off"}).text
    assert owner.post(f"{address}/change", {"to": "elsewhere"}).status_code == 422
    alert_id = address.rpartition("/")[2]
    assert acme.get(f"/api/v1/logs/alerts/{alert_id}").json()["data"]["for"] == "5m"
    owner.post(f"{address}/delete", {})
    assert acme.get(f"/api/v1/logs/alerts/{alert_id}").status_code == 404


def test_the_form_of_an_alert_keeps_what_it_does_not_show(
    owner: Browser, acme: httpx.Client, greeting: str
) -> None:
    owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": "To be changed", "starts": greeting})
    address = owner.url
    at = f"/api/v1/logs/alerts/{address.rpartition('/')[2]}"
    form = owner.get(f"{address}/edit").text
    for part in ('value="To be changed"', 'name="above" value="3"', 'value="15m"', 'value="greeting" selected', "save-alert"):
        assert part in form, part
    changed = {**FORM, "name": "Changed", "above": "7.5", "window": "1h", "for": "", "repeat": "4h", "starts": ""}
    assert "Condition: more than 7.5 failures of greeting within 1h." in owner.post(f"{address}/edit", changed).text
    stored = acme.get(at).json()["data"]
    assert (stored["name"], stored["for"], stored["repeat"], stored["actions"]) == ("Changed", "0s", "4h", [])
    refused = owner.post(f"{address}/edit", {**changed, "window": "soon", "name": "Kept"})
    assert (refused.status_code, 'id="window-error"' in refused.text, 'value="Kept"' in refused.text) == (422, True, True)
    acme.patch(at, json={"condition": {"kind": "failures", "above": 0, "window": "15m"}}).raise_for_status()
    assert 'name="above" value="0"' in owner.get(f"{address}/edit").text
    both = [{"kind": "process", "process": greeting}, {"kind": "process", "process": greeting}]
    acme.patch(at, json={"actions": both}).raise_for_status()
    assert "These notifications cannot be edited" in owner.get(f"{address}/edit").text
    owner.post(f"{address}/edit", {**changed, "name": "Again"})
    stored = acme.get(at).json()["data"]
    assert (stored["name"], stored["actions"]) == ("Again", both)


@pytest.fixture
def alert_with_webhook(acme: httpx.Client) -> tuple[str, str]:
    """The id of an alert, and of the webhook that it calls."""
    webhook = {"url": "https://example.org/hook", "events": ["alert.firing"], "description": "Pager"}
    hook = acme.post("/api/v1/webhooks", json=webhook).json()["data"]["id"]
    body = {
        "name": fresh("alert"), "condition": {"kind": "disk_full", "above": 99}, "actions": [{"kind": "webhook", "webhook": hook}],
    }  # fmt: skip
    return acme.post("/api/v1/logs/alerts", json=body).json()["data"]["id"], hook


def test_a_deleted_webhook_stays_until_another_is_chosen(
    owner: Browser, acme: httpx.Client, alert_with_webhook: tuple[str, str]
) -> None:
    alert, hook = alert_with_webhook
    acme.delete(f"/api/v1/webhooks/{hook}").raise_for_status()
    form = show(owner, f"/alerts/{alert}/edit").text
    assert f'<option value="{hook}" selected>{hook} (no longer exists)</option>' in form
    assert "More than (% of the disk)" in form
    unchanged = {"kind": "disk_full", "name": "Renamed", "above": "99", "for": "", "repeat": "", "webhook": hook}
    for fields, expected in ((unchanged, [{"kind": "webhook", "webhook": hook}]), (unchanged | {"webhook": ""}, [])):
        assert owner.post(owner.at("acme", f"/console/alerts/{alert}/edit"), fields).status_code == 200
        stored = acme.get(f"/api/v1/logs/alerts/{alert}").json()["data"]
        assert (stored["name"], stored["actions"]) == ("Renamed", expected)
    chosen = owner.post(owner.at("acme", f"/console/alerts/{alert}/edit"), unchanged)
    assert chosen.status_code == 422, "a deleted webhook cannot be chosen again"


def test_a_disabled_webhook_is_marked_in_the_list_of_choices(
    owner: Browser, acme: httpx.Client, alert_with_webhook: tuple[str, str]
) -> None:
    alert, hook = alert_with_webhook
    acme.patch(f"/api/v1/webhooks/{hook}", json={"enabled": False}).raise_for_status()
    form = show(owner, f"/alerts/{alert}/edit").text
    assert f'<option value="{hook}" selected>Pager (disabled)</option>' in form
    assert "no longer exists" not in form
    assert hook not in show(owner, "/alerts/new?kind=disk_full").text


def test_errors_appear_at_their_field_and_the_input_stays(owner: Browser, greeting: str) -> None:
    for field, text in (("above", "many"), ("window", "soon"), ("for", "long")):
        refused = owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": "Kept <name>", field: text})
        assert refused.status_code == 422
        assert f'id="{field}-error"' in refused.text
        assert "Kept &lt;name&gt;" in refused.text
        assert f'value="{text}"' in refused.text


def test_a_reader_cannot_change_alerts(signed_in: SignedIn, acme: httpx.Client) -> None:
    condition = {"kind": "queue_age", "longer_than": "30d"}
    alert = acme.post("/api/v1/logs/alerts", json={"name": fresh("alert"), "condition": condition}).json()["data"]["id"]
    operator = signed_in("operator@acme.test")
    page = show(operator, f"/alerts/{alert}")
    assert page.status_code == 200
    assert 'method="post"' not in page.text.partition("<main")[2]
    assert show(operator, "/alerts/new").status_code == 403
    assert show(operator, f"/alerts/{alert}/edit").status_code == 403
    for path in ("", f"/{alert}/change", f"/{alert}/delete", f"/{alert}/edit"):
        assert operator.post(operator.at("acme", f"/console/alerts{path}"), {"to": "off"}).status_code == 403
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/alerts/{alert}")).status_code == 404


@pytest.mark.parametrize("query", ["", "?span=15m", "?span=30d", "?since=2026-01-31T14:00&until=2026-02-03T09:30"])
def test_the_monitor_shows_a_time(owner: Browser, greeting: str, query: str) -> None:
    page = show(owner, f"/monitor{query}")
    assert page.status_code == 200
    columns = re.findall(r'<path class="bar-[a-z]+" d="([^"]*)"', page.text)
    assert sum(path.count("M") for path in columns) >= 4
    if "since" in query:
        assert "From 2026-01-31 14:00 to 2026-02-03 09:30 UTC" in page.text


def test_the_monitor_counts_executions_and_offers_retries(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    for guest in ("Ada", "nobody"):
        acme.post("/api/v1/processes/greeting/execute?wait=30", json={"guest": guest}).raise_for_status()
    page = show(owner, "/monitor?span=1h").text
    assert "nobody cannot be greeted" in page
    assert 'aria-label="Retry all of greeting greet"' in page
    assert 'class="line-slow"' in page
    link = '<a href="/console/processes/greeting">greeting</a>'
    assert link not in page
    assert 'href="?span=1h&amp;by=process#by-process" aria-expanded="false"' in page
    assert link in show(owner, "/monitor?span=1h&by=process").text
    assert 'data-testid="retry-all"' in show(owner, "/failures").text


def test_a_resolved_failure_cannot_be_retried(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    acme.post("/api/v1/processes/greeting/execute?wait=30", json={"guest": "nobody"}).raise_for_status()
    groups = acme.get("/api/v1/logs/failures?process=greeting&state=open").json()["data"]
    assert groups
    for group in groups:
        acme.patch(f"/api/v1/logs/failures/{group['id']}", json={"state": "resolved"}).raise_for_status()
    listed = show(owner, "/failures?state=resolved").text
    assert f"/failures/{groups[0]['id']}/state" in listed
    for page in (listed, show(owner, "/monitor?span=1h").text):
        assert f"/failures/{groups[0]['id']}/retry" not in page


def test_the_monitor_counts_requests_by_key(signed_in: SignedIn, staff: Running) -> None:
    """In a tenant of its own: the page shows the busiest keys, and others are busy."""
    staff.tenant("counted")
    staff.user("owner@counted.test", "correct horse battery", "counted", "owner")
    with staff.api("counted") as api:
        key = api.post("/api/v1/keys", json={"name": "Counted <key>", "scopes": ["logs.read"]}).json()["data"]
        headers = {"X-API-Key": key["key"]}
        assert api.get("/api/v1/logs", headers=headers).status_code == 200
        assert api.get("/api/v1/processes", headers=headers).status_code == 403
    staff.services.monitor.key_traffic.flush()
    browser = signed_in("owner@counted.test")
    page = browser.get(browser.at("counted", "/console/monitor?span=15m")).text
    (row,) = re.findall(r"<tr data-testid=.row.><td[^>]*>Counted &lt;key&gt;.*?</tr>", page)
    assert re.findall(r'<td class="number">(\d+)</td>', row) == ["2", "1"]


SIZES = [(820, "820 B"), (16_400, "16 KB"), (1_240_000, "1.2 MB"), (270_553_200_000, "270.6 GB")]


@pytest.mark.parametrize(("bytes_", "expected"), SIZES)
def test_sizes_are_short(bytes_: int, expected: str) -> None:
    assert size(bytes_) == expected


def test_an_invalid_time_is_refused(owner: Browser) -> None:
    for query in ("?span=1y", "?since=yesterday", "?since=2026-02-03T09:30&until=2026-01-31T14:00"):
        assert show(owner, f"/monitor{query}").status_code == 400

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


def test_an_alert_is_made_silenced_tried_and_deleted_by_forms(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    name = fresh("<alert>")
    choices = show(owner, "/alerts/new").text
    assert choices.count('href="?kind=') == 8
    made = owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": name, "starts": greeting})
    assert made.status_code == 200
    address = owner.url
    assert name.replace("<", "&lt;").replace(">", "&gt;") in made.text
    assert "Condition: more than 3 failures of greeting within 15m." in made.text
    assert "Starts the process greeting" in made.text
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


def test_an_alert_is_changed_by_its_form_and_what_the_form_cannot_say_stays(
    owner: Browser, acme: httpx.Client, greeting: str
) -> None:
    owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": "To be changed", "starts": greeting})
    address = owner.url
    at = f"/api/v1/logs/alerts/{address.rpartition('/')[2]}"
    form = owner.get(f"{address}/edit").text
    for shown in ('value="To be changed"', 'name="above" value="3"', 'value="15m"', 'value="greeting" selected', "save-alert"):
        assert shown in form, shown
    changed = {**FORM, "name": "Changed", "above": "7.5", "window": "1h", "for": "", "repeat": "4h", "starts": ""}
    assert "Condition: more than 7.5 failures of greeting within 1h." in owner.post(f"{address}/edit", changed).text
    told = acme.get(at).json()["data"]
    assert (told["name"], told["for"], told["repeat"], told["actions"]) == ("Changed", "0s", "4h", [])
    refused = owner.post(f"{address}/edit", {**changed, "window": "soon", "name": "Kept"})
    assert (refused.status_code, 'id="window-error"' in refused.text, 'value="Kept"' in refused.text) == (422, True, True)
    acme.patch(at, json={"condition": {"kind": "failures", "above": 0, "window": "15m"}}).raise_for_status()
    assert 'name="above" value="0"' in owner.get(f"{address}/edit").text
    both = [{"kind": "process", "process": greeting}, {"kind": "process", "process": greeting}]
    acme.patch(at, json={"actions": both}).raise_for_status()
    assert "These notifications cannot be edited" in owner.get(f"{address}/edit").text
    owner.post(f"{address}/edit", {**changed, "name": "Again"})
    told = acme.get(at).json()["data"]
    assert (told["name"], told["actions"]) == ("Again", both)


@pytest.fixture
def hooked(acme: httpx.Client) -> tuple[str, str]:
    """The id of an alert, and of the webhook that it tells."""
    asked = {"url": "https://example.org/hook", "events": ["alert.firing"], "description": "Pager"}
    hook = acme.post("/api/v1/webhooks", json=asked).json()["data"]["id"]
    body = {
        "name": fresh("alert"), "condition": {"kind": "disk_full", "above": 99}, "actions": [{"kind": "webhook", "webhook": hook}],
    }  # fmt: skip
    return acme.post("/api/v1/logs/alerts", json=body).json()["data"]["id"], hook


def test_what_is_not_there_any_more_stays_until_somebody_chooses_otherwise(
    owner: Browser, acme: httpx.Client, hooked: tuple[str, str]
) -> None:
    alert, hook = hooked
    acme.delete(f"/api/v1/webhooks/{hook}").raise_for_status()
    form = show(owner, f"/alerts/{alert}/edit").text
    assert f'<option value="{hook}" selected>{hook} (no longer exists)</option>' in form
    assert "More than (% of the disk)" in form
    unchanged = {"kind": "disk_full", "name": "Renamed", "above": "99", "for": "", "repeat": "", "webhook": hook}
    for given, kept in ((unchanged, [{"kind": "webhook", "webhook": hook}]), (unchanged | {"webhook": ""}, [])):
        assert owner.post(owner.at("acme", f"/console/alerts/{alert}/edit"), given).status_code == 200
        told = acme.get(f"/api/v1/logs/alerts/{alert}").json()["data"]
        assert (told["name"], told["actions"]) == ("Renamed", kept)
    chosen = owner.post(owner.at("acme", f"/console/alerts/{alert}/edit"), unchanged)
    assert chosen.status_code == 422, "it is chosen anew"


def test_a_webhook_that_is_disabled_is_called_so_where_it_is_chosen(
    owner: Browser, acme: httpx.Client, hooked: tuple[str, str]
) -> None:
    alert, hook = hooked
    acme.patch(f"/api/v1/webhooks/{hook}", json={"enabled": False}).raise_for_status()
    form = show(owner, f"/alerts/{alert}/edit").text
    assert f'<option value="{hook}" selected>Pager (disabled)</option>' in form
    assert "no longer exists" not in form
    assert hook not in show(owner, "/alerts/new?kind=disk_full").text


def test_what_is_wrong_stands_at_its_field_and_nothing_is_lost(owner: Browser, greeting: str) -> None:
    for field, text in (("above", "many"), ("window", "soon"), ("for", "long")):
        refused = owner.post(owner.at("acme", "/console/alerts"), {**FORM, "name": "Kept <name>", field: text})
        assert refused.status_code == 422
        assert f'id="{field}-error"' in refused.text
        assert "Kept &lt;name&gt;" in refused.text
        assert f'value="{text}"' in refused.text


def test_who_may_not_write_processes_reads_alerts_only(signed_in: SignedIn, acme: httpx.Client) -> None:
    condition = {"kind": "queue_age", "longer_than": "30d"}
    made = acme.post("/api/v1/logs/alerts", json={"name": fresh("alert"), "condition": condition}).json()["data"]["id"]
    operator = signed_in("operator@acme.test")
    page = show(operator, f"/alerts/{made}")
    assert page.status_code == 200
    assert 'method="post"' not in page.text.partition("<main")[2]
    assert show(operator, "/alerts/new").status_code == 403
    assert show(operator, f"/alerts/{made}/edit").status_code == 403
    for path in ("", f"/{made}/change", f"/{made}/delete", f"/{made}/edit"):
        assert operator.post(operator.at("acme", f"/console/alerts{path}"), {"to": "off"}).status_code == 403
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/alerts/{made}")).status_code == 404


@pytest.mark.parametrize("query", ["", "?span=15m", "?span=30d", "?since=2026-01-31T14:00&until=2026-02-03T09:30"])
def test_the_monitor_shows_a_time(owner: Browser, greeting: str, query: str) -> None:
    page = show(owner, f"/monitor{query}")
    assert page.status_code == 200
    assert page.text.count('class="bar-') >= 4
    if "since" in query:
        assert "From 2026-01-31 14:00 to 2026-02-03 09:30 UTC" in page.text


def test_the_monitor_counts_what_ran_and_offers_to_retry_what_failed(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    for guest in ("Ada", "nobody"):
        acme.post("/api/v1/processes/greeting/execute?wait=30", json={"guest": guest}).raise_for_status()
    page = show(owner, "/monitor?span=1h").text
    assert "nobody cannot be greeted" in page
    assert 'aria-label="Retry all of greeting greet"' in page
    assert 'class="line-slow"' in page
    assert '<a href="/console/processes/greeting">greeting</a>' in page
    assert 'data-testid="retry-all"' in show(owner, "/failures").text


def test_of_what_is_resolved_there_is_nothing_to_retry(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    acme.post("/api/v1/processes/greeting/execute?wait=30", json={"guest": "nobody"}).raise_for_status()
    groups = acme.get("/api/v1/logs/failures?process=greeting&state=open").json()["data"]
    assert groups
    for group in groups:
        acme.patch(f"/api/v1/logs/failures/{group['id']}", json={"state": "resolved"}).raise_for_status()
    listed = show(owner, "/failures?state=resolved").text
    assert f"/failures/{groups[0]['id']}/state" in listed
    for page in (listed, show(owner, "/monitor?span=1h").text):
        assert f"/failures/{groups[0]['id']}/retry" not in page


def test_the_monitor_tells_what_came_with_each_key(signed_in: SignedIn, staff: Running) -> None:
    """In a tenant of its own: the page shows the busiest keys, and others are busy."""
    staff.tenant("counted")
    staff.user("owner@counted.test", "correct horse battery", "counted", "owner")
    with staff.api("counted") as api:
        made = api.post("/api/v1/keys", json={"name": "Counted <key>", "scopes": ["logs.read"]}).json()["data"]
        headers = {"X-API-Key": made["key"]}
        assert api.get("/api/v1/logs", headers=headers).status_code == 200
        assert api.get("/api/v1/processes", headers=headers).status_code == 403
    staff.services.key_traffic.flush()
    browser = signed_in("owner@counted.test")
    page = browser.get(browser.at("counted", "/console/monitor?span=15m")).text
    (row,) = re.findall(r"<tr data-testid=.row.><td[^>]*>Counted &lt;key&gt;.*?</tr>", page)
    assert re.findall(r'<td class="number">(\d+)</td>', row) == ["2", "1"]


SIZES = [(820, "820 B"), (16_400, "16 KB"), (1_240_000, "1.2 MB"), (270_553_200_000, "270.6 GB")]


@pytest.mark.parametrize(("bytes_", "shown"), SIZES)
def test_sizes_are_short(bytes_: int, shown: str) -> None:
    assert size(bytes_) == shown


def test_a_time_that_is_none_is_refused(owner: Browser) -> None:
    for query in ("?span=1y", "?since=yesterday", "?since=2026-02-03T09:30&until=2026-01-31T14:00"):
        assert show(owner, f"/monitor{query}").status_code == 400

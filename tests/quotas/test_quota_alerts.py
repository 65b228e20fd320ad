"""An alert fires while more than so many percent of a quota is in use, by the same figures as the page of quotas."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core.database import caches
from appliance.monitor.alerts import evaluate_all
from appliance.quotas import KINDS
from appliance.tenants import quota_settings
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh


@pytest.fixture(scope="module")
def watched(running: Running) -> Iterator[Resources]:
    """A tenant of this module's own, whose quotas the tests set."""
    running.tenant("watched")
    with running.api("watched") as client:
        yield Resources(running, "watched", client)


@pytest.fixture(autouse=True)
def no_quotas(watched: Resources) -> Iterator[None]:
    """No quotas before and after, and fresh figures: what is shown may be a second old."""
    caches.empty_all()
    yield
    quota_settings.change_quotas(watched.scope, dict.fromkeys(KINDS, "default"))


def fill_up(running: Running, watched: Resources, name: str) -> None:
    """Give the tenant a quota of what it uses."""
    used = running.services.limits.quotas.read_state(watched.scope, name).used
    quota_settings.change_quotas(watched.scope, {name: f"{used}{'B' if name == 'storage' else ''}"})


def create(watched: Resources, **condition: Any) -> str:
    body = {"name": fresh("Quota"), "condition": {"kind": "quota", **condition}}
    return str(watched.ask("POST", "/logs/alerts", body)["id"])


def look(watched: Resources, running: Running, alert: str) -> dict[str, Any]:
    """The alert after its condition has been checked."""
    caches.empty_all()
    evaluate_all(running.services.monitor.alerts.facts)
    return dict(watched.ask("GET", f"/logs/alerts/{alert}"))


def add(watched: Resources, collection: str, count: int) -> None:
    new = [{"op": "create", "collection": collection, "values": {"number": fresh("n"), "total": 1}} for _ in range(count)]
    watched.ask("POST", "/datapool/batch", {"operations": new})


def test_an_alert_fires_while_a_quota_is_nearly_used_up(running: Running, watched: Resources) -> None:
    alert = create(watched, quota="entities", above=80)
    seen = look(watched, running, alert)
    assert (seen["state"], seen["now"]) == ("ok", "the quota entities has no limit")
    assert seen["says"] == "more than 80 % of the quota entities is in use"
    collection = watched.collection()
    used = running.services.limits.quotas.read_state(watched.scope, "entities").used
    fifth = used + 10
    quota_settings.change_quotas(watched.scope, {"entities": str(5 * fifth)})
    add(watched, collection, 4 * fifth - used)
    seen = look(watched, running, alert)
    assert (seen["state"], seen["now"]) == ("ok", "80 % of the quota entities is in use, at most 80 % allowed")
    add(watched, collection, fifth // 2)
    assert look(watched, running, alert)["state"] == "firing"
    watched.ask("DELETE", f"/datapool/{collection}", params={"allow_loss": "true"})
    assert look(watched, running, alert)["state"] == "ok"
    turns = [event["turn"] for event in watched.ask("GET", f"/logs/alerts/{alert}/history")]
    assert turns == ["resolved", "firing"]


def test_an_alert_of_any_quota_names_those_that_are_nearly_used_up(running: Running, watched: Resources) -> None:
    watched.entity(watched.collection())
    alert = create(watched, above=50)
    assert look(watched, running, alert)["now"] == "no quota is more than 50 % used"
    fill_up(running, watched, "entities")
    fill_up(running, watched, "storage")
    seen = look(watched, running, alert)
    assert seen["state"] == "firing"
    assert seen["now"] == "these quotas are more than 50 % used: storage (100 %), entities (100 %)"
    assert seen["says"] == "more than 50 % of a quota is in use"
    quota_settings.change_quotas(watched.scope, {"entities": "1M"})
    assert look(watched, running, alert)["now"] == "this quota is more than 50 % used: storage (100 %)"


@pytest.mark.parametrize("name", KINDS)
def test_every_quota_can_be_watched_by_the_figures_of_its_page(
    running: Running, watched: Resources, name: str
) -> None:
    alert = create(watched, quota=name, above=99.99)
    limit = "100" if KINDS[name].unit == "money" else "100MB" if name == "storage" else "100"
    quota_settings.change_quotas(watched.scope, {name: limit})
    seen = look(watched, running, alert)
    quotas = {each["name"]: each for each in watched.ask("GET", "/quotas")}
    percent = round(100 * quotas[name]["used"] / quotas[name]["limit"], 1)
    if name == "requests_per_day":  # this request and those before it are counted within two seconds
        assert seen["now"].endswith(" % of the quota requests_per_day is in use, at most 99.99 % allowed")
    else:
        assert seen["now"] == f"{percent:g} % of the quota {name} is in use, at most 99.99 % allowed"


@pytest.mark.parametrize(("condition", "pointer", "expected"), [
    ({"quota": "coffee", "above": 80}, "/condition/quota", "storage, entities"),
    ({"quota": "storage"}, "/condition/above", "quota needs above"),
    ({"quota": "storage", "above": 100}, "/condition/above", "between 0 and 99.99"),
    ({"quota": "storage", "above": 80, "window": "5m"}, "/condition/window", "does not have window"),
])  # fmt: skip
def test_what_is_no_condition_of_a_quota_is_refused(
    watched: Resources, condition: dict[str, Any], pointer: str, expected: str
) -> None:
    answer = watched.client.post("/api/v1/logs/alerts", json={"name": "Quota", "condition": {"kind": "quota", **condition}})
    (detail,) = answer.json()["error"]["details"]
    assert (answer.status_code, detail["pointer"], expected in detail["message"]) == (422, pointer, True), answer.text

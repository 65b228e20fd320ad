"""Entities are created, changed and deleted by a form: unchanged fields stay, and conflicting changes are shown."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

MAKERS = {"name": "form_makers", "fields": [{"name": "name", "type": "text"}]}
THINGS = {
    "name": "form_things",
    "fields": [
        {"name": "title", "type": "text", "required": True},
        {"name": "price", "type": "decimal", "scale": 2},
        {"name": "parts", "type": "json"},
        {"name": "seen", "type": "datetime"},
        {"name": "stocked", "type": "boolean", "required": True, "default": False},
        {"name": "maker", "type": "relation", "collection": "form_makers"},
        {"name": "made", "type": "datetime", "default": "$now"},
    ],
}


@pytest.fixture(scope="module")
def maker(acme: httpx.Client) -> str:
    for collection in (MAKERS, THINGS):
        acme.post("/api/v1/datapool", json=collection).raise_for_status()
    return str(acme.post("/api/v1/datapool/form_makers/entities", json={"name": "Olive & Co"}).json()["data"]["id"])


@pytest.fixture
def thing(acme: httpx.Client, maker: str) -> dict[str, Any]:
    values = {"title": "Jar\r\nof olives", "price": "3.40", "parts": {"glass": 1, "lid": 2}, "seen": "2026-01-02T03:04:05.678Z"}
    entity: dict[str, Any] = acme.post("/api/v1/datapool/form_things/entities", json=values | {"maker": maker}).json()["data"]
    return entity


def get_entity(acme: httpx.Client, entity_id: str) -> dict[str, Any]:
    entity: dict[str, Any] = acme.get(f"/api/v1/datapool/form_things/entities/{entity_id}").json()["data"]
    return entity


def form_of(page: httpx.Response) -> dict[str, str]:
    """The fields that a browser would submit unchanged."""
    sent = dict(re.findall(r'<input type="(?:text|hidden|email)"[^>]*? name="([^"]+)"[^>]*? value="([^"]*)"', page.text))
    sent |= dict(re.findall(r'<textarea [^>]*? name="([^"]+)"[^>]*>\n([^<]*)</textarea>', page.text))
    for name, options in re.findall(r'<select [^>]*? name="([^"]+)"[^>]*>(.*?)</select>', page.text, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', options)
        sent[name] = chosen[1] if chosen else ""
    ticked = re.findall(r'<input type="checkbox" [^>]*? name="(in/[^"]+)"[^>]* checked', page.text)
    sent = {name: unescape(value).replace("\n", "\r\n") for name, value in sent.items() if name != "then"}
    return sent | dict.fromkeys(ticked, "true")


def test_the_form_creates_an_entity(owner: Browser, acme: httpx.Client, maker: str) -> None:
    at = owner.at("acme", "/console/datapool/form_things/new")
    form = form_of(owner.get(at))
    assert "Olive &amp; Co</option>" in owner.get(at).text
    owner.post(at, form | {"in/title": "Cup", "in/price": "2", "in/maker": f'"{maker}"', "in/seen": "2026-05-06 07:08"})
    entity = get_entity(acme, owner.url.rpartition("/")[2])
    assert (entity["title"], entity["price"], entity["stocked"], entity["maker"]) == ("Cup", "2.00", False, maker)
    assert entity["seen"] == "2026-05-06T07:08:00.000Z"
    assert entity["made"] is not None, "an empty field gets its default"


def test_errors_appear_at_their_field_and_nothing_is_stored(owner: Browser, acme: httpx.Client, maker: str) -> None:
    at = owner.at("acme", "/console/datapool/form_things/new")
    before = len(acme.get("/api/v1/datapool/form_things/entities").json()["data"])
    page = owner.post(at, {"in/title": "", "in/price": "cheap", "in/parts": "[1]"})
    assert page.status_code == 422
    assert re.search(r'id="in/price-error">must be a decimal', page.text)
    assert re.search(r'id="in/title-error">is required', page.text)
    assert 'value="cheap"' in page.text
    unparsable = owner.post(at, {"in/title": "x", "in/parts": "{"})
    assert "One value is invalid" in unparsable.text
    assert len(acme.get("/api/v1/datapool/form_things/entities").json()["data"]) == before


def test_only_changed_fields_are_stored(owner: Browser, acme: httpx.Client, thing: dict[str, Any]) -> None:
    at = owner.at("acme", f"/console/datapool/form_things/{thing['id']}/edit")
    form = form_of(owner.get(at))
    owner.post(at, form)
    assert get_entity(acme, thing["id"]) == thing, "a form submitted unchanged changes nothing, not even line endings"
    owner.post(at, form | {"in/parts": '{"glass": 3}', "in/stocked": "true"})
    now = get_entity(acme, thing["id"])
    assert now["parts"] == {"glass": 3}, "members removed from an object are deleted"
    assert now["stocked"] is True
    assert now["title"] == thing["title"]
    assert now["seen"] == thing["seen"]
    assert now["_version"] == 2


def test_a_conflict_shows_both_values_and_loses_neither(owner: Browser, acme: httpx.Client, thing: dict[str, Any]) -> None:
    at = owner.at("acme", f"/console/datapool/form_things/{thing['id']}/edit")
    form = form_of(owner.get(at))
    acme.patch(f"/api/v1/datapool/form_things/entities/{thing['id']}", json={"price": "5.00", "stocked": True}).raise_for_status()
    page = owner.post(at, form | {"in/price": "4.00", "in/title": "Jar"})
    assert page.status_code == 412
    assert "Changed by API key" in page.text
    rows = re.findall(r"<td>(\w+)</td><td><del>(.*?)</del></td><td><ins>(.*?)</ins></td><td>(.*?)</td>", page.text)
    assert [(row[0], row[3].split(";")[0]) for row in rows] == [("price", "yours"), ("stocked", "theirs")]
    assert "3.40" in rows[0][1]
    assert "5.00" in rows[0][2]
    assert get_entity(acme, thing["id"])["price"] == "5.00"
    again = form_of(page)
    assert (again["in/price"], again["in/title"], again["in/stocked"], again["version"]) == ("4.00", "Jar", "true", "2")
    owner.post(at, again)
    now = get_entity(acme, thing["id"])
    assert (now["price"], now["title"], now["stocked"]) == ("4.00", "Jar", True)


def test_the_history_says_who_changed_what(owner: Browser, acme: httpx.Client, thing: dict[str, Any]) -> None:
    at = owner.at("acme", f"/console/datapool/form_things/{thing['id']}")
    owner.post(f"{at}/edit", form_of(owner.get(f"{at}/edit")) | {"in/price": "9.00"})
    text = owner.get(at).text
    assert "by owner@acme.test" in text
    assert re.search(r"<dt>price</dt><dd><del>3\.40\s*</del>.*?<ins>9\.00\s*</ins>", text)
    assert text.count('data-testid="change"') == 2


def test_an_entity_is_deleted_only_in_the_version_shown(owner: Browser, acme: httpx.Client, thing: dict[str, Any]) -> None:
    at = owner.at("acme", f"/console/datapool/form_things/{thing['id']}")
    acme.patch(f"/api/v1/datapool/form_things/entities/{thing['id']}", json={"price": "5.00"}).raise_for_status()
    assert owner.post(f"{at}/delete", {"version": "1"}).status_code == 412
    assert get_entity(acme, thing["id"])["price"] == "5.00"
    owner.post(f"{at}/delete", {"version": "2"})
    assert owner.url.endswith("/console/datapool/form_things")
    deleted = owner.get(at)
    assert "These are its last values" in deleted.text
    assert "5.00" in deleted.text
    assert "Delete" not in re.sub("Deleted", "", deleted.text)


def test_a_reader_gets_no_form(signed_in: Callable[[str], Browser], acme: httpx.Client, thing: dict[str, Any]) -> None:
    viewer = signed_in("viewer@acme.test")
    at = viewer.at("acme", f"/console/datapool/form_things/{thing['id']}")
    page = viewer.get(at).text
    assert "delete-entity" not in page
    assert "edit-entity" not in page
    for path, form in (("edit", {"version": "1"}), ("delete", {"version": "1"})):
        assert viewer.post(f"{at}/{path}", form).status_code == 403
    assert viewer.post(viewer.at("acme", "/console/datapool/form_things/new"), {"in/title": "x"}).status_code == 403
    assert get_entity(acme, thing["id"]) == thing


def test_a_relation_can_be_entered_by_the_title_of_its_entity(owner: Browser, acme: httpx.Client, maker: str) -> None:
    many = [{"op": "create", "collection": "form_many", "values": {"name": f"No {n}"}} for n in range(201)]
    acme.post("/api/v1/datapool", json={"name": "form_many", "fields": [{"name": "name", "type": "text"}]}).raise_for_status()
    acme.post("/api/v1/datapool/batch", json={"operations": [*many, many[0]]}).raise_for_status()
    fields = [{"name": "of", "type": "relation", "collection": "form_many"}]
    acme.post("/api/v1/datapool", json={"name": "form_leading", "fields": fields}).raise_for_status()
    at = owner.at("acme", "/console/datapool/form_leading/new")
    assert "or its name" in owner.get(at).text
    assert "several entities in form_many have this title" in owner.post(at, {"in/of": "No 0"}).text
    assert "no entity in form_many has this title" in owner.post(at, {"in/of": "No 999"}).text
    owner.post(at, {"in/of": "No 7"})
    assert ">No 7</a>" in owner.get(owner.url).text

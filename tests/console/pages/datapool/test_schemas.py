"""A collection's schema in the console: created, changed after a plan, and never losing values without a confirmation."""

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

PLAN: dict[str, Any] = {
    "name": "schema_plans",
    "fields": [
        {"name": "title", "type": "text", "required": True, "description": "What it is called"},
        {"name": "size", "type": "text"},
        {"name": "state", "type": "select", "options": ["new", "old"]},
    ],
    "indexes": [{"fields": ["title", "size"]}],
    "search": ["title"],
    "access": {"list": "allow"},
}


@pytest.fixture
def plans(acme: httpx.Client) -> httpx.Client:
    acme.delete("/api/v1/datapool/schema_plans?allow_loss=true")
    acme.post("/api/v1/datapool", json=PLAN).raise_for_status()
    for size in ("12", "large"):
        acme.post("/api/v1/datapool/schema_plans/entities", json={"title": size, "size": size, "state": "new"}).raise_for_status()
    return acme


def definition(api: httpx.Client, name: str = "schema_plans") -> dict[str, Any]:
    collection: dict[str, Any] = api.get(f"/api/v1/datapool/{name}").json()["data"]
    return collection


def form_of(page: httpx.Response) -> dict[str, str]:
    """What a browser would send back unchanged."""
    sent = dict(re.findall(r'<input(?: type="hidden")? name="(\w+)" value="([^"]*)"', page.text))
    for name, options in re.findall(r'<select name="(t\d+)"[^>]*>(.*?)</select>', page.text, re.DOTALL):
        sent[name] = re.findall(r"<option selected>(\w+)<", options)[0]
    sent |= dict.fromkeys(re.findall(r'<input type="checkbox" name="(\w+)" value="1"[^>]* checked', page.text), "1")
    sent |= dict(re.findall(r'<textarea[^>]* name="(yaml)"[^>]*>\n([^<]*)</textarea>', page.text))
    return {name: unescape(value) for name, value in sent.items()}


def at(owner: Browser, path: str = "") -> str:
    return owner.at("acme", f"/console/datapool/schema_plans/schema{path}")


def test_a_form_sent_back_unchanged_changes_nothing(owner: Browser, plans: httpx.Client) -> None:
    before = definition(plans)
    planned = owner.post(at(owner, "/plan"), form_of(owner.get(at(owner, "/edit"))))
    assert "No changes" in planned.text
    assert "apply-schema" not in planned.text
    owner.post(at(owner), form_of(planned))
    assert definition(plans) == before


def test_a_field_is_renamed_with_its_values_and_one_is_added(owner: Browser, plans: httpx.Client) -> None:
    form = form_of(owner.get(at(owner, "/edit")))
    planned = owner.post(at(owner, "/plan"), form | {"n0": "name", "n3": "weight", "t3": "decimal", "x3": "3", "d3": "1.5"})
    assert "title is renamed to name" in planned.text.lower()
    assert [field["name"] for field in definition(plans)["fields"]] == ["title", "size", "state"], "a plan changes nothing"
    owner.post(at(owner), form_of(planned))
    now = definition(plans)
    assert [field["name"] for field in now["fields"]] == ["name", "size", "state", "weight"]
    assert (now["search"], now["indexes"][0]["fields"], now["access"]["list"]) == (["name"], ["name", "size"], "allow")
    assert now["fields"][0]["description"] == "What it is called"
    rows = plans.get("/api/v1/datapool/schema_plans/entities?sort=name").json()["data"]
    assert [(row["name"], row["weight"]) for row in rows] == [("12", "1.500"), ("large", "1.500")]


def test_values_are_lost_only_after_a_confirmation(owner: Browser, plans: httpx.Client) -> None:
    planned = owner.post(at(owner, "/plan"), form_of(owner.get(at(owner, "/edit"))) | {"t1": "integer"})
    assert "Permanently delete 1 value of size" in re.sub(r"\s+", " ", planned.text)
    refused = owner.post(at(owner), form_of(planned))
    assert refused.status_code == 422
    assert definition(plans)["fields"][1]["type"] == "text"
    owner.post(at(owner), form_of(refused) | {"allow_loss": "yes"})
    assert definition(plans)["fields"][1]["type"] == "integer"
    rows = plans.get("/api/v1/datapool/schema_plans/entities?sort=title").json()["data"]
    assert [row["size"] for row in rows] == [12, None]


def test_a_plan_is_recomputed_after_a_concurrent_change(owner: Browser, plans: httpx.Client) -> None:
    planned = form_of(owner.post(at(owner, "/plan"), form_of(owner.get(at(owner, "/edit"))) | {"g2": "1"}))
    plans.patch("/api/v1/datapool/schema_plans", json={"description": "changed"}).raise_for_status()
    late = owner.post(at(owner), planned | {"allow_loss": "yes"})
    assert late.status_code == 412
    assert len(definition(plans)["fields"]) == 3
    owner.post(at(owner), form_of(late) | {"allow_loss": "yes"})
    assert [field["name"] for field in definition(plans)["fields"]] == ["title", "size"]


def test_errors_appear_at_their_field(owner: Browser, plans: httpx.Client) -> None:
    form = form_of(owner.get(at(owner, "/edit")))
    page = owner.post(at(owner, "/plan"), form | {"n1": "no name", "n3": "other", "t3": "relation", "x3": "nowhere"})
    assert page.status_code == 422
    assert re.search(r'id="wrong-1">Name must contain only letters', page.text)
    assert 'value="nowhere"' in page.text
    wrong = owner.post(at(owner, "/plan"), {"yaml": "name: [\n"})
    assert "The YAML is invalid" in wrong.text
    assert wrong.status_code == 422


def test_yaml_replaces_a_whole_rule(owner: Browser, plans: httpx.Client) -> None:
    before = {"list": {"state": {"_eq": "new"}, "title": "12"}, "view": "allow"}
    plans.patch("/api/v1/datapool/schema_plans", json={"access": before}).raise_for_status()
    text = json.dumps(PLAN | {"access": {"list": {"state": {"_neq": "old"}, "size": None}}})
    planned = owner.post(at(owner, "/plan"), {"yaml": text})
    assert "list changes from" in planned.text.lower()
    owner.post(at(owner), form_of(planned))
    now = definition(plans)["access"]
    assert now["list"] == {"state": {"_neq": "old"}, "size": {"_null": True}}
    assert (now["view"], now["create"]) == ("deny", "deny")


@pytest.mark.parametrize("path", ["", "/plan"])
@pytest.mark.parametrize("access", ["deny", ["allow"]])
def test_invalid_rules_are_refused_and_stay_in_the_form(
    owner: Browser, plans: httpx.Client, access: Any, path: str
) -> None:
    text = json.dumps(PLAN | {"access": access})
    version = str(definition(plans)["_version"])
    page = owner.post(at(owner, path), {"yaml": text, "version": version})
    assert page.status_code == 422
    assert "must be an object with list, view" in page.text
    assert form_of(page)["yaml"].strip() == text


def test_a_collection_is_created_empty_and_deleted_by_typing_its_name(owner: Browser, acme: httpx.Client) -> None:
    new = owner.at("acme", "/console/datapool/-/new")
    assert owner.post(new, {"name": "schema_made", "n0": "a", "t0": "nonsense"}).status_code == 422
    owner.post(new, {"name": "schema_made", "description": "", "n0": "a", "t0": "select", "x0": "x, y", "r0": "1", "s0": "1"})
    assert owner.url.endswith("/console/datapool/schema_made")
    collection = definition(acme, "schema_made")
    field = collection["fields"][0]
    assert (field["options"], field["required"], collection["search"]) == (["x", "y"], True, ["a"])
    acme.post("/api/v1/datapool/schema_made/entities", json={"a": "x"}).raise_for_status()
    page = owner.at("acme", "/console/datapool/schema_made/schema/delete")
    assert owner.post(page, {}).status_code == 409
    owner.post(page, {"allow_loss": "yes"})
    assert acme.get("/api/v1/datapool/schema_made").status_code == 404


def test_a_file_becomes_a_collection_with_its_rows(owner: Browser, acme: httpx.Client) -> None:
    acme.delete("/api/v1/datapool/schema_orders?allow_loss=true")
    text = "OrderID,Order Date,Freight,Paid,Ship Name\n10248,1996-07-04 00:00:00.000,32.38,yes,Vins\n"
    text += "10249,1996-07-05 00:00:00.000,11.6,no,Toms\n"
    page = owner.upload(owner.at("acme", "/console/datapool/-/guess"), ("orders.csv", text.encode()))
    form = form_of(page)
    columns = [(form[f"n{n}"], form[f"t{n}"], form[f"x{n}"]) for n in range(5)]
    assert columns == [
        ("order_id", "integer", ""), ("order_date", "date", ""), ("freight", "decimal", "2"), ("paid", "boolean", ""),
        ("ship_name", "text", ""),
    ]  # fmt: skip
    assert (form["u0"], form["r0"]) == ("1", "1")
    page = owner.post(owner.at("acme", "/console/datapool/-/new"), form | {"name": "schema_orders"})
    assert "/console/datapool/schema_orders/import/imp_" in owner.url
    assert "5 of 5 mapped to a field" in page.text


def test_a_reader_sees_schemas_without_forms(signed_in: Callable[[str], Browser], plans: httpx.Client) -> None:
    operator = signed_in("operator@acme.test")
    page = operator.get(at(operator)).text
    assert "edit-schema" not in page
    assert "delete-collection" not in page
    for path in ("", "/plan", "/delete"):
        assert operator.post(at(operator, path), {"n0": "x", "allow_loss": "yes"}).status_code == 403
    assert operator.post(operator.at("acme", "/console/datapool/-/new"), {"name": "x"}).status_code == 403

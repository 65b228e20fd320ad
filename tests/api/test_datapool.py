"""The DataPool over HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.testing.running import Running
from tests.processes.world import wait_until

DEFINITION = {
    "name": "parcels",
    "fields": [
        {"name": "number", "type": "text", "required": True, "unique": True},
        {"name": "total", "type": "decimal", "scale": 2},
    ],
    "search": ["number"],
}
BASE = "/api/v1/datapool"
ENTITIES = f"{BASE}/parcels/entities"


@pytest.fixture
def parcels(acme: httpx.Client, globex: httpx.Client) -> Iterator[httpx.Client]:
    for client in (acme, globex):
        answer = client.post(BASE, json=DEFINITION)
        assert answer.status_code == 201, answer.text
        assert answer.headers["Location"] == f"{BASE}/parcels"
    yield acme
    for client in (acme, globex):
        assert client.delete(f"{BASE}/parcels", params={"allow_loss": "true"}).status_code == 200


def create(client: httpx.Client, **values: Any) -> dict[str, Any]:
    answer = client.post(ENTITIES, json=values)
    assert answer.status_code == 201, answer.text
    entity: dict[str, Any] = answer.json()["data"]
    assert answer.headers["Location"] == f"{ENTITIES}/{entity['id']}"
    return entity


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_an_entity_lives_from_creation_to_deletion(parcels: httpx.Client, globex: httpx.Client) -> None:
    entity = create(parcels, number="1", total="5")
    url = f"{ENTITIES}/{entity['id']}"
    read = parcels.get(url)
    assert (read.json()["data"], read.headers["ETag"]) == (entity, '"1"')
    assert globex.get(url).status_code == 404
    changed = parcels.patch(url, json={"total": None}, headers={"If-Match": '"1"'})
    assert (changed.json()["data"]["total"], changed.headers["ETag"]) == (None, '"2"')
    for stale in ('"1"', '"x"'):
        assert code(parcels.put(url, json={"number": "2"}, headers={"If-Match": stale})) == (412, "version_conflict")
    assert parcels.put(url, json={"number": "2"}).json()["data"]["number"] == "2"
    history = parcels.get(f"{url}/history", params={"limit": "2"}).json()
    assert [change["version"] for change in history["data"]] == [3, 2]
    assert history["meta"]["next_cursor"]
    assert parcels.delete(url, headers={"If-Match": '"3"'}).json()["data"] == {"deleted": entity["id"]}
    assert code(parcels.get(url)) == (404, "not_found")


def test_a_large_collection_is_gone_at_once_and_soon_removed(running: Running, acme: httpx.Client) -> None:
    """Its name is free again with the answer, and the appliance removes the rest by itself."""
    fields = [{"name": "number", "type": "text", "unique": True}]
    assert acme.post(BASE, json={"name": "crates", "fields": fields}).status_code == 201
    operations = [{"op": "create", "collection": "crates", "values": {"number": str(number)}} for number in range(500)]
    assert acme.post(f"{BASE}/batch", json={"operations": operations}).status_code == 200
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE name = 'crates'")
    assert code(acme.delete(f"{BASE}/crates")) == (409, "conflict")
    assert acme.delete(f"{BASE}/crates", params={"allow_loss": "true"}).json()["data"] == {"deleted": "crates"}
    for path in ("", "/entities", "/events"):
        assert code(acme.get(f"{BASE}/crates{path}")) == (404, "not_found"), path
    assert code(acme.get(f"{BASE}/-{table}")) == (404, "not_found")
    assert "crates" not in [each["name"] for each in acme.get(BASE).json()["data"]]
    assert acme.post(BASE, json={"name": "crates", "fields": fields}).status_code == 201
    assert acme.get(f"{BASE}/crates/entities", params={"count": "exact"}).json()["meta"]["total"] == 0
    wait_until(lambda: table not in db.database.obj.get_tables())
    assert db.rows("SELECT count(*) FROM entity_change WHERE collection = ?", (table,)) == [(0,)]
    assert acme.delete(f"{BASE}/crates").status_code == 200


def test_errors_name_every_member(parcels: httpx.Client) -> None:
    answer = parcels.post(ENTITIES, json={"total": "x", "colour": 1})
    assert code(answer) == (422, "validation_failed")
    details = answer.json()["error"]["details"]
    assert {(d["pointer"], d["code"]) for d in details} == {
        ("/number", "required"), ("/total", "invalid_format"), ("/colour", "unknown_field"),
    }  # fmt: skip
    assert all(detail["message"] for detail in details)


def test_a_list_is_filtered_searched_sorted_and_paged(parcels: httpx.Client, globex: httpx.Client) -> None:
    for number in range(5):
        create(parcels, number=f"n{number}", total=str(number))
    create(globex, number="foreign", total="3")
    params = {"filter": json.dumps({"total": {"_gte": "1"}}), "sort": "-total", "fields": "number", "limit": "3", "count": "exact"}
    first = parcels.get(ENTITIES, params=params).json()
    assert [entity["number"] for entity in first["data"]] == ["n4", "n3", "n2"]
    assert first["meta"]["total"] == 4
    rest = parcels.get(ENTITIES, params={**params, "cursor": first["meta"]["next_cursor"]}).json()
    assert [entity["number"] for entity in rest["data"]] == ["n1"]
    assert "next_cursor" not in rest["meta"]
    assert [e["number"] for e in parcels.get(ENTITIES, params={"search": "N4"}).json()["data"]] == ["n4"]
    grouped = parcels.post(f"{BASE}/parcels/query", json={"aggregate": {"sum": {"fn": "sum", "field": "total"}}})
    assert grouped.json()["data"] == [{"sum": "10.00"}]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"filter": "{"}, (400, "invalid_filter")),
        ({"filter": "[" * 100}, (413, "payload_too_large")),
        ({"filter": '{"colour": 1}'}, (400, "invalid_filter")),
        ({"sort": "colour"}, (400, "invalid_request")),
        ({"limit": "0"}, (400, "invalid_request")),
        ({"limit": "x"}, (400, "invalid_request")),
        ({"cursor": "x"}, (400, "invalid_cursor")),
        ({"colour": "red"}, (400, "invalid_request")),
    ],
)
def test_a_wrong_list_request_is_refused(parcels: httpx.Client, params: dict[str, str], expected: tuple[int, str]) -> None:
    assert code(parcels.get(ENTITIES, params=params)) == expected


def test_a_batch_is_all_or_nothing(parcels: httpx.Client) -> None:
    operations = [{"op": "create", "collection": "parcels", "values": {"number": n}} for n in ("1", "2")]
    answer = parcels.post(f"{BASE}/batch", json={"operations": operations, "dry_run": True})
    assert [result["event"] for result in answer.json()["data"]] == ["created", "created"]
    refused = parcels.post(f"{BASE}/batch", json={"operations": [*operations, operations[0]]})
    assert [d["pointer"] for d in refused.json()["error"]["details"]] == ["/operations/2/values/number"]
    assert parcels.get(ENTITIES).json()["data"] == []
    keyed = [
        parcels.post(f"{BASE}/batch", json={"operations": operations}, headers={"Idempotency-Key": "parcels-1"}) for _ in range(2)
    ]
    assert keyed[0].json()["data"] == keyed[1].json()["data"]
    assert len(parcels.get(ENTITIES).json()["data"]) == 2


def test_rows_are_imported_and_exported(parcels: httpx.Client) -> None:
    answer = parcels.post(f"{BASE}/parcels/import", content=b"number,total\n1,5\n2,x\n=1,\n", headers={"Content-Type": "text/csv"})
    report = answer.json()["data"]
    assert (report["created"], report["failed"]) == (2, 1)
    assert [(e["line"], e["field"], e["code"]) for e in report["errors"]] == [(3, "total", "invalid_format")]
    exported = parcels.get(f"{BASE}/parcels/export", params={"format": "csv"})
    assert b",'=1," in exported.content
    assert "parcels.csv" in exported.headers["Content-Disposition"]
    lines = parcels.get(f"{BASE}/parcels/export", params={"format": "ndjson"}).content
    again = parcels.post(
        f"{BASE}/parcels/import", params={"key": "number"}, content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert again.json()["data"]["unchanged"] == 2
    assert code(parcels.post(f"{BASE}/parcels/import", content=b"x")) == (415, "unsupported_media_type")


def test_an_import_that_refuses_bad_rows_fails_with_each_of_them(parcels: httpx.Client) -> None:
    def load(**query: str) -> httpx.Response:
        rows = b"number,total\n1,5\n2,x\n"
        return parcels.post(f"{BASE}/parcels/import", params=query, content=rows, headers={"Content-Type": "text/csv"})

    answer = load(on_error="refuse")
    assert code(answer) == (422, "validation_failed")
    assert [(each["pointer"], each["code"]) for each in answer.json()["error"]["details"]] == [("/lines/3/total", "invalid_format")]
    assert "1 of 2 rows" in answer.json()["error"]["message"]
    assert parcels.get(ENTITIES).json()["data"] == []
    tried = load(on_error="refuse", dry_run="true")
    assert (tried.status_code, tried.json()["data"]["failed"], tried.json()["data"]["stored"]) == (200, 1, False)


def test_an_import_heeds_charset_and_decimal_sign(parcels: httpx.Client) -> None:
    kind = {"Content-Type": 'TEXT/CSV; charset="ISO-8859-1"'}
    rows = "number;total\nM\u00fc;1.234,5\n".encode("latin-1")
    answer = parcels.post(f"{BASE}/parcels/import?decimal=,", content=rows, headers=kind)
    assert answer.json()["data"]["created"] == 1, answer.text
    (entity,) = parcels.get(ENTITIES).json()["data"]
    assert (entity["number"], entity["total"]) == ("M\u00fc", "1234.50")
    packed = parcels.post(f"{BASE}/parcels/import", content=b"\x1f\x8b\x08\x00", headers={"Content-Type": "text/csv"})
    assert code(packed) == (422, "validation_failed")


def test_a_schema_change_is_planned_and_then_applied(parcels: httpx.Client) -> None:
    create(parcels, number="1", total="5")
    patch = {"fields": [{"id": "number", "name": "tracking", "type": "text", "required": True, "unique": True}], "search": []}
    url = f"{BASE}/parcels"
    planned = parcels.patch(url, json=patch, params={"dry_run": "true"}).json()["data"]
    assert {(step["field"], step["change"], step["lost"]) for step in planned["steps"]} == {
        ("total", "drop", 1),
        ("tracking", "rename", 0),
    }
    assert code(parcels.patch(url, json=patch)) == (422, "validation_failed")
    changed = parcels.patch(url, json=patch, params={"allow_loss": "true"}, headers={"If-Match": '"1"'})
    assert (changed.json()["data"]["_version"], changed.headers["ETag"]) == (2, '"2"')
    assert parcels.get(ENTITIES).json()["data"][0]["tracking"] == "1"


def test_a_definition_may_be_yaml(acme: httpx.Client) -> None:
    text = "name: yaml_parcels\nfields:\n  - {name: on, type: boolean}\n"
    answer = acme.post(BASE, content=text, headers={"Content-Type": "application/yaml"})
    assert answer.json()["data"]["fields"][0]["name"] == "on"
    assert acme.delete(f"{BASE}/yaml_parcels").status_code == 200


def test_scopes_separate_readers_writers_and_administrators(running: Running, parcels: httpx.Client) -> None:
    with running.api("acme", ["entities.read"]) as reader:
        assert reader.get(ENTITIES).status_code == 200
        assert code(reader.post(ENTITIES, json={"number": "1"})) == (403, "scope_missing")
    with running.api("acme", ["entities.write"]) as writer:
        assert writer.post(ENTITIES, json={"number": "1"}).status_code == 201
        assert code(writer.delete(f"{BASE}/parcels")) == (403, "scope_missing")


def test_a_follower_sees_changes_and_resumes_where_it_stopped(parcels: httpx.Client) -> None:
    create(parcels, number="1")
    [first] = follow(parcels, 1, after="0")
    assert (first["event"], first["data"]["entity"]["number"]) == ("created", "1")
    following = follow(parcels, 2, after=first["id"], make=("2", "3"))
    assert [event["data"]["entity"]["number"] for event in following] == ["2", "3"]
    assert code(parcels.get(f"{BASE}/parcels/events", headers={"Last-Event-ID": "x"})) == (400, "invalid_request")


def follow(client: httpx.Client, count: int, *, after: str, make: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The next `count` events after the event `after`; entities with the numbers `make` are made once the stream is open."""
    events: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    with client.stream("GET", f"{BASE}/parcels/events", headers={"Last-Event-ID": after}) as stream:
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if line.startswith(": connected"):
                for number in make:
                    create(client, number=number)
            elif name:
                event[name] = json.loads(value) if name == "data" else value
            elif event:
                events.append(event)
                event = {}
            if len(events) == count:
                break
    return events

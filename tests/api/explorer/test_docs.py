"""/api-docs/: the contract as data and as an explorer that needs no other host; schemas and metrics."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest

from appliance.testing.running import Running


@pytest.fixture
def visitor(running: Running) -> Iterator[httpx.Client]:
    with running.client("acme.localhost") as client:
        yield client


def test_the_explorer_asks_no_other_host(visitor: httpx.Client) -> None:
    page = visitor.get("/api-docs/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(addresses) >= 5
    for address in addresses:
        assert address.startswith(("/", "#"))
        assert not address.startswith("//")
    assert "<script>" not in page.text
    assert " on" not in re.sub(r">[^<]*<", "><", page.text).replace(" only", "")


@pytest.mark.parametrize("path", ["", "openapi.json", "process.schema.json", "solution.schema.json"])
def test_the_contract_needs_no_key(visitor: httpx.Client, path: str) -> None:
    assert visitor.get(f"/api-docs/{path}").status_code == 200


@pytest.mark.parametrize("path", ["/api-docs", "/console"])
def test_a_missing_slash_is_redirected(visitor: httpx.Client, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status_code in (301, 302, 303, 307, 308)
    assert answer.headers["location"].endswith(f"{path}/")


def test_the_document_names_this_host_and_its_schemas_are_schemas(visitor: httpx.Client, running: Running) -> None:
    document = visitor.get("/api-docs/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": f"http://acme.localhost{running.config.port_suffix}"}]
    for name, schema in document["components"]["schemas"].items():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert name
    text = str(document)
    references = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert references <= set(document["components"]["schemas"])


def test_every_family_of_routes_is_listed_and_described(visitor: httpx.Client) -> None:
    document = visitor.get("/api-docs/openapi.json").json()
    used = {tag for operations in document["paths"].values() for each in operations.values() for tag in each["tags"]}
    listed = {each["name"]: each["description"] for each in document["tags"]}
    assert used == set(listed)
    assert all(listed.values())


def test_the_parameters_of_execute_are_explained(visitor: httpx.Client) -> None:
    document = visitor.get("/api-docs/openapi.json").json()
    parameters = document["paths"]["/api/v1/processes/{process_id}/execute"]["post"]["parameters"]
    shared = document["components"]["parameters"]
    whole = [shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in parameters]
    descriptions = {each["name"]: each.get("description") for each in whole if each["in"] == "query"}
    assert all(descriptions[name] for name in ("wait", "run_at", "expires_in", "priority", "label", "version")), descriptions


def test_the_schema_of_processes_is_a_schema(visitor: httpx.Client) -> None:
    schema = visitor.get("/api-docs/process.schema.json").json()
    jsonschema_rs.meta.validate(schema)
    check = jsonschema_rs.validator_for(schema)
    assert check.is_valid({"id": "a", "steps": [{"id": "x", "rule": {"expression": "= 1"}}]})
    assert not check.is_valid({"id": "a", "steps": [{"id": "x", "nonsense": {}}]})


@pytest.mark.parametrize("name", ["solution", "collection", "integration", "rule-tests", "cases"])
def test_the_files_of_a_solution_have_schemas(visitor: httpx.Client, name: str) -> None:
    schema = visitor.get(f"/api-docs/{name}.schema.json").json()
    jsonschema_rs.meta.validate(schema)
    assert not jsonschema_rs.validator_for(schema).is_valid({"unheard_of": 1})


def test_metrics_are_served_on_the_base_host_only(running: Running, visitor: httpx.Client) -> None:
    assert visitor.get("/metrics").status_code == 404
    with running.client("localhost") as client:
        answer = client.get("/metrics")
        assert answer.status_code == 200
        assert "gos_http_requests_total{" in answer.text
        assert "acme" not in answer.text


def test_every_array_says_what_its_items_are(visitor: httpx.Client) -> None:
    """Generators of clients need it, beside `prefixItems` too."""
    offences: list[str] = []

    def walk(part: Any, where: str) -> None:
        if isinstance(part, dict):
            if part.get("type") == "array" and "items" not in part:
                offences.append(where)
            for name, inner in part.items():
                walk(inner, f"{where}/{name}")

    walk(visitor.get("/api-docs/openapi.json").json()["components"]["schemas"], "")
    assert offences == []

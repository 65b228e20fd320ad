"""Schemathesis against the live contract: real ids and examples mixed with generated data; every answer fits its schema.

The normal run takes a sample; `packaging/test.sh -m fuzz` makes 5,000 requests.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from appliance.api import load_routes
from appliance.api.frame.routing import Route
from tests.api.examples import EXAMPLES, Example
from tests.api.resources import Resources

CHECKS = [content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance]
QUICK = settings(deadline=None, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
LONG_WAITS = {"wait", "run_at", "follow"}


@schemathesis.serializer("application/zip", "application/gzip")
def write_archive(context: Any, value: Any) -> bytes:
    """An archive is sent as it is; of generated data its text."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


@dataclass
class Fuzz:
    """Sends cases and counts the responses."""

    tenant: Resources
    operations: dict[str, Any]
    session: requests.Session
    answers: Counter[int] = field(default_factory=Counter)
    by_route: dict[str, Counter[int]] = field(default_factory=dict)

    def send(self, route: Route, case: Any) -> None:
        answer = case.call(base_url=f"http://127.0.0.1:{self.tenant.running.config.server.port}", session=self.session)
        self.answers[answer.status_code] += 1
        self.by_route.setdefault(route.name, Counter())[answer.status_code] += 1
        allowed = {502, 504} if route.name == "execute_action" else set()
        if answer.status_code not in allowed:
            case.validate_response(answer, checks=[not_a_server_error, *CHECKS])

    def run(self, route: Route, count: int) -> None:
        """`count` requests to a route, four of five with valid parts of its example."""
        operation = self.operations[route.name]
        plans = cycle(("good", "query", "ids", "good", "nothing"))

        @settings(QUICK, max_examples=count)
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            plan = next(plans)
            case.query = {name: value for name, value in (case.query or {}).items() if name not in LONG_WAITS}
            example = EXAMPLES[route.name](self.tenant)
            if plan != "nothing":
                case.path_parameters = dict(example.path)
            if plan in ("good", "query"):
                apply_example(route, case, example, with_query=plan == "good")
            self.send(route, case)

        fuzz()


def apply_example(route: Route, case: Any, example: Example, *, with_query: bool) -> None:
    """The example's body, and its query unless the generated one is to stay."""
    case.headers = {name: value for name, value in (case.headers or {}).items() if name not in ("If-Match", "Idempotency-Key")}
    case.headers |= example.headers
    if with_query:
        case.query = dict(example.query)
    if route.body is None:
        return
    # Generated YAML bodies are data that the library serializes, so the example is passed as data too.
    case.body = yaml.safe_load(example.body) if example.media == "application/yaml" else example.body
    case.media_type = example.media or "application/json"


def is_endless(route: Route) -> bool:
    return route.name == "follow_collection"


@pytest.fixture(scope="module")
def fuzz(ours: Resources) -> Iterator[Fuzz]:
    document = ours.client.get("/api-docs/openapi.json").json()
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    operations = {}
    for result in schema.get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]  # the document is read by its own tests first
        operations[operation.definition.raw["operationId"]] = operation
    with requests.Session() as session:
        session.headers["X-API-Key"] = ours.client.headers["x-api-key"]
        yield Fuzz(ours, operations, session)


def test_the_document_is_served_with_every_route(fuzz: Fuzz) -> None:
    assert set(fuzz.operations) == {route.name for route in load_routes()}


def run_all(fuzz: Fuzz, total: int) -> Counter[int]:
    fuzz.answers.clear()
    fuzz.by_route.clear()
    routes = [route for route in load_routes() if not is_endless(route)]
    for route in routes:
        fuzz.run(route, -(-total // len(routes)))
    successful = {name for name, answers in fuzz.by_route.items() if any(200 <= status < 300 for status in answers)}
    assert successful == {route.name for route in routes}
    return fuzz.answers


def share_of_success(answers: Counter[int]) -> float:
    return sum(count for status, count in answers.items() if 200 <= status < 300) / answers.total()


def test_a_sample_of_requests_is_answered_as_documented(fuzz: Fuzz) -> None:
    assert share_of_success(run_all(fuzz, 300)) > 0.5


@pytest.mark.fuzz
def test_five_thousand_requests_are_answered_as_documented(fuzz: Fuzz) -> None:
    answers = run_all(fuzz, 5_000)
    print(dict(sorted(answers.items())), {name: dict(counts) for name, counts in fuzz.by_route.items()})
    assert answers.total() >= 5_000
    assert share_of_success(answers) >= 0.5

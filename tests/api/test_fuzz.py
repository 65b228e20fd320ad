"""Schemathesis against the live contract: real ids and examples mixed with generated data; every answer fits its schema.

The normal run takes a sample; `packaging/test.sh -m fuzz` makes 5,000 requests, and `python -m tests.soak.fuzzing` 100,000.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
import requests

from appliance.api import load_appliance_routes, load_routes
from tests.api.examples import EXAMPLES
from tests.api.openapi.fuzzing import Fuzz, is_endless, load_operations
from tests.api.resources import Resources


@pytest.fixture(scope="module")
def fuzz(ours: Resources) -> Iterator[Fuzz]:
    operations = load_operations(ours.client.get("/api-docs/openapi.json").json())
    with requests.Session() as session:
        session.headers["X-API-Key"] = ours.client.headers["x-api-key"]
        yield Fuzz(ours.running.config.server.port, lambda route: EXAMPLES[route.name](ours), operations, session)


def test_the_document_is_served_with_every_route(fuzz: Fuzz) -> None:
    assert set(fuzz.operations) == {route.name for route in (*load_routes(), *load_appliance_routes())}


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

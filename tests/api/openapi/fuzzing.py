"""Requests that Schemathesis makes up from the contract, with real ids and the examples of the routes mixed in."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from appliance.api.frame.routing import Route
from tests.api.example import Example

CHECKS = [content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance]
QUICK = settings(deadline=None, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
LONG_WAITS = {"wait", "run_at", "follow"}
FOREIGN_FAULTS = {"execute_action": {502, 504}}
"""Statuses by which a route says that a foreign system is at fault."""


@schemathesis.serializer("application/zip", "application/gzip")
def write_archive(context: Any, value: Any) -> bytes:
    """An archive is sent as it is; of generated data its text."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


def load_operations(document: Any) -> dict[str, Any]:
    """The operations of an OpenAPI document by the names of their routes."""
    operations = {}
    for result in schemathesis.openapi.from_dict(json.loads(json.dumps(document))).get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]  # the document is read by its own tests first
        operations[operation.definition.raw["operationId"]] = operation
    return operations


@dataclass
class Fuzz:
    """Sends cases and counts the responses."""

    port: int
    examples: Callable[[Route], Example]
    operations: dict[str, Any]
    session: requests.Session
    answers: Counter[int] = field(default_factory=Counter)
    by_route: dict[str, Counter[int]] = field(default_factory=dict)
    plans: Sequence[str] = ("good", "query", "ids", "good", "nothing")
    """What cases keep of the example, in turns: all of it, all but the query, the ids, or nothing."""

    def call(self, route: Route, case: Any, session: requests.Session) -> requests.Response:
        """Send a case and count the response."""
        answer: requests.Response = case.call(
            base_url=f"http://127.0.0.1:{self.port}", session=session
        )
        self.answers[answer.status_code] += 1
        self.by_route.setdefault(route.name, Counter())[answer.status_code] += 1
        return answer

    def check(self, route: Route, case: Any, answer: requests.Response) -> None:
        """Raises when the response is not as documented, or a server error."""
        if answer.status_code not in FOREIGN_FAULTS.get(route.name, ()):
            case.validate_response(answer, checks=[not_a_server_error, *CHECKS])

    def send(self, route: Route, case: Any, plan: str) -> None:
        self.check(route, case, self.call(route, case, self.session))

    def prepare(self, route: Route, case: Any, plan: str) -> None:
        """Put into the case what the plan wants of the example."""
        example = self.examples(route)
        if plan != "nothing":
            case.path_parameters = dict(example.path)
        if plan in ("good", "query"):
            apply_example(route, case, example, with_query=plan == "good")

    def run(self, route: Route, count: int, seed: int | None = None) -> None:
        """`count` requests to a route; the same in each run, or those of a seed."""
        plans: Iterator[str] = cycle(self.plans)

        @settings(QUICK, max_examples=count, derandomize=seed is None)
        @given(case=self.operations[route.name].as_strategy())
        def fuzz(case: Any) -> None:
            plan = next(plans)
            case.query = {name: value for name, value in (case.query or {}).items() if name not in LONG_WAITS}
            self.prepare(route, case, plan)
            self.send(route, case, plan)

        (fuzz if seed is None else with_seed(seed)(fuzz))()


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

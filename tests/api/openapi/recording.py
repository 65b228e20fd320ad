"""`python -m tests.api.openapi.recording [OPERATION...]`: records the examples of the OpenAPI document, from real requests.

Each operation gets a tenant of its own, so that its example does not depend on the others.  What differs from run to run is
replaced; arrays are cut after a few entries.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import yaml

from appliance.api import load_appliance_routes, load_routes
from appliance.api.frame.examples import EXAMPLES_FILE
from appliance.api.frame.routing import Json, Route
from appliance.tenants import APPLIANCE_SCOPES, SCOPES, appliance_scope
from appliance.tenants.keys import KeySpec, issue_key
from appliance.testing.running import Running, make_config, start
from tests.api import resources
from tests.api.example import Example
from tests.api.examples import EXAMPLES
from tests.api.openapi.normalizing import KEY, Normalizer
from tests.api.openapi.refusals import REFUSALS
from tests.api.resources import Resources
from tests.api.sending import CREATING_PUTS, address, send, unknown_id
from tests.operations.examples import EXAMPLES as OPERATION_EXAMPLES
from tests.operations.examples import PASSPHRASE, PROVIDERS
from tests.webapps.name_server import running_name_server

REQUEST_ID = "req-example"
FILLED_BY = {
    "list_members": "remove_member", "list_keys": "get_key", "list_processes": "get_process", "list_secrets": "delete_secret",
    "search_executions": "get_execution", "list_executions": "get_execution", "list_collections": "get_collection",
    "list_llm_profiles": "get_llm_profile", "list_integrations": "get_integration", "search_calls": "get_call",
    "list_calls": "get_call", "list_webhooks": "get_webhook", "list_logs": "get_execution", "get_analytics": "get_execution",
    "list_failures": "get_failure", "list_audit": "get_process", "list_alerts": "get_alert", "list_approvals": "get_approval",
    "list_invitations": "get_invitation", "list_entities": "get_entity", "query_entities": "get_entity",
    "export_entities": "get_entity", "list_samples": "get_sample", "list_deliveries": "get_delivery",
    "list_documents": "get_document", "list_reviews": "get_review", "list_shares": "get_share", "list_agents": "get_agent",
    "list_runs": "get_run", "list_skills": "get_skill", "list_policies": "get_policy", "list_webapps": "get_webapp",
    "list_webapp_domains": "get_webapp_domain", "list_visits": "revoke_visit",
    "list_folder_rules": "delete_folder_rule", "list_service_accounts": "get_service_account",
}  # fmt: skip
"""Lists, and the operations whose examples prepare something for them to show."""


def _followed_collection(tenant: Resources) -> Example:
    """The collection's events from the first one on, which tells more than waiting for the next."""
    collection = EXAMPLES["get_entity"](tenant).path["collection"]
    return Example({"collection": collection}, headers={"Last-Event-ID": "0"}, stream=True)


INSTEAD: dict[str, Callable[[Resources], Example]] = {
    "follow_collection": _followed_collection,
    "get_connector": lambda tenant: Example({"connector": "email"}),
}
"""Requests that show more, or are shorter, than those of the tests."""


def record(running: Running, route: Route, number: int) -> dict[str, Any]:
    """The example of a route, as it stands in the file."""
    began = datetime.now(UTC)
    resources.restart_numbers()
    name = f"acme{number:03}"
    with running.api(name) as client:
        tenant = Resources(running, name, client)
        if route.name in FILLED_BY:
            EXAMPLES[FILLED_BY[route.name]](tenant)
        example = INSTEAD.get(route.name, EXAMPLES[route.name])(tenant)
        refused = refuse(tenant, route, example)
        answer = (follow if example.stream else send)(client, route, example, **{"X-Request-Id": REQUEST_ID})
        if not answer.is_success:
            raise RuntimeError(f"{route.name}: {answer.text}")
    port = str(running.config.server.port)
    texts = {
        f"http://{name}.localhost:{port}": "https://acme.gos.example", f"{name}.localhost:{port}": "acme.gos.example",
        f"127.0.0.1:{port}/demo": "orders.example/api", f"localhost:{port}": "gos.example", f"localhost%3A{port}": "gos.example",
        f":{port}": "", "localhost": "gos.example", name: "acme", name.title(): "Acme",
    }  # fmt: skip
    return _to_recorded(route, example, (answer, refused), Normalizer(texts, began))


def record_operation(running: Running, route: Route) -> dict[str, Any]:
    """The example of a route of the appliance itself."""
    began, base = datetime.now(UTC), running.config.domains.base
    spec = KeySpec("example", sorted(APPLIANCE_SCOPES), "test", rate_requests=1_000_000)
    text = issue_key(appliance_scope(), running.services.sealer, spec)[1]
    narrow = issue_key(appliance_scope(), running.services.sealer, replace(spec, scopes=_others(route)))[1]
    with running.client(base, {"X-API-Key": text}) as client:
        example = OPERATION_EXAMPLES[route.name](client)
        if route.parameters:
            unknown = dict.fromkeys(route.parameters, "unknown")
            refused = send(client, route, replace(example, path=unknown), **{"X-Request-Id": REQUEST_ID})
        else:
            refused = send(client, route, example, **{"X-Request-Id": REQUEST_ID, "X-API-Key": narrow})
        answer = send(client, route, example, **{"X-Request-Id": REQUEST_ID})
        if not answer.is_success:
            raise RuntimeError(f"{route.name}: {answer.text}")
    port, data = str(running.config.server.port), str(running.config.data)
    texts = {
        f"localhost:{port}": "gos.example", f":{port}": "", "localhost": "gos.example", data: "/var/lib/gos",
        data.removeprefix("/private"): "/var/lib/gos",
    }  # fmt: skip
    return _to_recorded(route, example, (answer, refused), Normalizer(texts, began))


def _others(route: Route) -> list[str]:
    """The scopes of the appliance without the one that the route needs."""
    return sorted(set(APPLIANCE_SCOPES) - {str(route.scope)})


def _to_recorded(
    route: Route, example: Example, answers: tuple[httpx.Response, httpx.Response], clean: Normalizer
) -> dict[str, Any]:
    """The parts of an example as they stand in the file, of the answer and a refusal."""
    answer, refused = answers
    recorded = {
        "path": clean(example.path), "query": clean(_query(route, example)),
        **_request(route, example), "status": answer.status_code, "answer": _answer(route, answer),
        "refusal_status": refused.status_code, "refusal": refused.json(),
    }  # fmt: skip
    recorded |= {part: clean(recorded[part]) for part in ("body", "answer", "refusal") if part in recorded}
    return {part: value for part, value in recorded.items() if value not in ({}, None)}


def follow(client: httpx.Client, route: Route, example: Example, **headers: str) -> httpx.Response:
    """The beginning of an endless answer, up to its first event."""
    text = ""
    with client.stream(route.method, address(route, example.path), headers={**example.headers, **headers}) as answer:
        for piece in answer.iter_text():
            text += piece
            if _event_of(text) is not None:
                break
    answer._content = text.encode()
    return answer


def refuse(tenant: Resources, route: Route, example: Example) -> httpx.Response:
    """A typical refusal: one written for the route, an unknown id, an unknown member, a limit, a missing scope or a wrong key."""
    headers = {"X-Request-Id": REQUEST_ID}
    if route.name in REFUSALS:
        return send(tenant.client, route, REFUSALS[route.name](tenant, example), **headers)
    if route.parameters and route.name not in CREATING_PUTS:
        last = route.parameters[-1]
        path = {**example.path, last: unknown_id(last, example.path[last])}
        return send(tenant.client, route, Example(path, example.body, example.query, example.media, example.headers), **headers)
    if isinstance(example.body, dict):
        return send(tenant.client, route, Example(example.path, {**example.body, "colour": "blue"}), **headers)
    if route.listed:
        return send(tenant.client, route, Example(query={"limit": 900}), **headers)
    if route.scope is None:
        return send(tenant.client, route, example, **headers, **{"X-API-Key": KEY})
    with tenant.running.api(tenant.tenant, [scope for scope in SCOPES if scope != route.scope]) as narrow:
        return send(narrow, route, example, **headers)


def _query(route: Route, example: Example) -> dict[str, Any]:
    """The query with values of the declared types, not as texts."""
    if route.query is None:
        return {}
    typed = route.query.model_validate(example.query).model_dump(mode="json", by_alias=True)
    return {name: typed[name] for name in example.query}


def _request(route: Route, example: Example) -> dict[str, Any]:
    """Media type and body, as far as it is text or JSON."""
    if example.body is None or (isinstance(route.body, Json) and route.body.kind == "archive"):
        return {}
    if example.media == "application/yaml":
        return {"media": example.media, "body": yaml.safe_load(example.body)}
    body = example.body.decode() if isinstance(example.body, bytes) else example.body
    return {"media": example.media or "application/json", "body": body}


def _answer(route: Route, answer: httpx.Response) -> Any:
    media = answer.headers["content-type"].partition(";")[0]
    if media == "application/json":
        return answer.json()
    if media == "text/event-stream":
        return _event_of(answer.text)
    try:
        text = answer.content.decode()
    except UnicodeDecodeError:  # a picture or an archive
        return None
    return None if "\0" in text else text


def _event_of(text: str) -> dict[str, str] | None:
    """The first event in the text of a stream; comments are none."""
    for block in text.split("\n\n")[:-1]:
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        if lines:
            return {name: value for name, _, value in lines}
    return None


def write_examples(examples: dict[str, dict[str, Any]]) -> None:
    """Write the file, one line for each part of an example."""
    parts = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f" {json.dumps(part)}: {json.dumps(value, ensure_ascii=False)}" for part, value in example.items())
        + "\n}"
        for name, example in sorted(examples.items())
    ]
    EXAMPLES_FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def main(names: list[str]) -> int:
    """Record these operations, or all, and write them beside the others; one that fails is reported and keeps its example."""
    numbers, failures = count(1), 0
    routes = [route for route in [*load_routes(), *load_appliance_routes()] if route.name in names or not names]
    examples = json.loads(EXAMPLES_FILE.read_text("utf-8")) if names else {}
    with tempfile.TemporaryDirectory() as folder, running_name_server() as server:
        settings = {
            "demo__order_system": True, "egress__allow": ["127.0.0.0/8"], "domains__resolvers": [server.address],
            "sign_in__providers": PROVIDERS,
        }  # fmt: skip
        running = start(make_config(Path(folder), limits__route_calls=100_000, backup__passphrase=PASSPHRASE, **settings))
        for route in routes:
            try:
                own = route.is_of_appliance
                examples[route.name] = record_operation(running, route) if own else record(running, route, next(numbers))
            except (RuntimeError, AssertionError, LookupError) as error:
                failures += 1
                print(f"{route.name}: {error!r}")
        running.stop()
    write_examples(examples)
    print(f"{len(routes) - failures} examples recorded in {EXAMPLES_FILE}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A request whose tenant is deleted while it is served gets a coded answer, whatever it writes, and leaves no row."""

import httpx
import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import Route
from appliance.core.database import db
from appliance.testing.running import Running
from tests.api.deletions import deleted_before_a_write
from tests.api.examples import EXAMPLES
from tests.api.resources import Resources, fresh
from tests.api.sending import send

CHANGING = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes() if route.method != "GET"]
ALLOWED = {(421, "unknown_host"), (404, "not_found"), (401, "invalid_api_key"), (403, "scope_missing")}


def check_answer(answer: httpx.Response, tenant_id: str) -> None:
    """The request was refused as one to an unknown tenant, or found nothing to change, or no key that permits it, any more."""
    if not answer.is_success:
        error = answer.json()["error"]
        assert error["code"] != "internal", error
        assert (answer.status_code, error["code"]) in ALLOWED, error
    tables = [name for name in db.database.get_tables() if any(each.name == "tenant_id" for each in db.database.get_columns(name))]
    left = [name for name in tables if db.rows(f'SELECT 1 FROM "{name}" WHERE tenant_id = ? LIMIT 1', (tenant_id,))]  # noqa: S608
    assert left == []


@pytest.mark.writes_once(reason="the tenant can be deleted once")
@pytest.mark.parametrize("route", CHANGING)
def test_a_write_beside_the_deletion_of_its_tenant_has_a_coded_answer(running: Running, route: Route) -> None:
    name = fresh("leaving")
    with running.api(name) as client:
        example = EXAMPLES[route.name](Resources(running, name, client))
        with deleted_before_a_write(name) as is_deleted:
            answer = send(client, route, example)
    if is_deleted.is_set():
        check_answer(answer, name)


@pytest.mark.writes_once(reason="the tenant can be deleted once")
def test_an_idempotency_key_beside_the_deletion_of_its_tenant_has_a_coded_answer(running: Running) -> None:
    name = fresh("leaving")
    with running.api(name) as client:
        with deleted_before_a_write(name):
            answer = client.post("/api/v1/datapool", json={"name": "pots"}, headers={"Idempotency-Key": "one"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "unknown_host")
        check_answer(answer, name)
        again = client.post("/api/v1/datapool", json={"name": "pots"}, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["error"]["code"]) == (421, "unknown_host")

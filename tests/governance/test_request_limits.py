"""Open requests are capped per requester, agent and tenant; further requests are refused with a reason."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, RateLimited
from appliance.governance.approvals import approvals, human_input, request_limits
from appliance.governance.approvals.approvals import Approval
from appliance.governance.approvals.human_input import HumanInput
from appliance.governance.subjects import Subject
from tests.governance.asking import TenantFixture
from tests.governance.test_governor import audit_fields
from tests.integrations.world import World

KEY = Subject("key:a", "rest")


@pytest.fixture(autouse=True)
def bounds() -> Iterator[None]:
    """Low limits, so that few requests reach them."""
    before = request_limits.RequestLimits(request_limits.limits.of_tenant, request_limits.limits.of_requester)
    request_limits.configure(of_tenant=5, of_requester=3)
    yield
    request_limits.configure(of_tenant=before.of_tenant, of_requester=before.of_requester)


def ask(world: World, subject: Subject = KEY, **options: Any) -> Approval:
    return human_input.request_human_input(world.one, subject, HumanInput("input", "How many?", **options))


def expect_rate_limit(world: World, subject: Subject = KEY) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        ask(world, subject)
    return caught.value


def test_a_requester_has_a_limit_of_open_requests(world: World) -> None:
    approvals_of_key = [ask(world, idempotency_key=str(number)) for number in range(3)]
    error = expect_rate_limit(world)
    assert (error.code, error.extra["reason"], error.extra["whose"], error.extra["most"]) == (
        "rate_limited", "too_many_open_requests", "requester", 3,
    )  # fmt: skip
    assert error.headers["Retry-After"] == "60"
    assert "status=pending" in error.message
    [refusal] = audit_fields(world, "approval.refuse")
    assert (refusal["reason"], refusal["whose"]) == ("too_many_open_requests", "requester")
    assert ask(world, idempotency_key="0").id == approvals_of_key[0].id, "a repeated request returns the first one"
    human_input.cancel_request(world.one, KEY, approvals_of_key[0].id)
    ask(world)
    ask(world, Subject("key:b", "rest"))


def test_a_tenant_has_a_limit_of_open_requests_of_its_own(world: World) -> None:
    for number in range(5):
        ask(world, Subject(f"key:{number}", "rest"))
    assert expect_rate_limit(world, Subject("key:5", "rest")).extra["whose"] == "tenant"
    human_input.request_human_input(world.two, KEY, HumanInput("input", "How many?"))


def test_all_runs_of_an_agent_share_its_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "find_starter", lambda scope, actor: "key:test")
    for number in range(3):
        ask(world, Subject(f"run:{number}", "agent", "clerk", str(number)))
    assert expect_rate_limit(world, Subject("run:3", "agent", "clerk", "3")).extra["whose"] == "agent"
    ask(world, Subject("run:4", "agent", "other", "4"))


def test_the_limit_holds_for_concurrent_requests(world: World) -> None:
    def try_ask(_: int) -> str:
        try:
            return ask(world).id
        except ApplianceError as error:
            return error.code

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(try_ask, range(12)))
    assert results.count("rate_limited") == 9


def test_an_execution_over_the_limit_is_refused(world: World) -> None:
    tenant = TenantFixture(world.one)
    origin = tenant.origin(tenant.execution())
    request = approvals.parse_request({"kind": "approval", "title": "Once more"}, origin, clock.now_ms())
    for _ in range(3):
        db.write(lambda: approvals.request_approval(world.one, request))
    with pytest.raises(RateLimited):
        db.write(lambda: approvals.request_approval(world.one, request))

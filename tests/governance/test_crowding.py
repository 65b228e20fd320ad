"""Nobody floods the people who decide: open requests are capped, and who asks for more is refused with a reason."""

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
from tests.governance.asking import Town
from tests.governance.test_governor import audited
from tests.integrations.world import World

KEY = Subject("key:a", "rest")


@pytest.fixture(autouse=True)
def bounds() -> Iterator[None]:
    """Few requests are many here."""
    before = request_limits.RequestLimits(request_limits.limits.of_tenant, request_limits.limits.of_requester)
    request_limits.configure(of_tenant=5, of_requester=3)
    yield
    request_limits.configure(of_tenant=before.of_tenant, of_requester=before.of_requester)


def ask(world: World, subject: Subject = KEY, **more: Any) -> Approval:
    return human_input.request_human_input(world.one, subject, HumanInput("input", "How many?", **more))


def refused(world: World, subject: Subject = KEY) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        ask(world, subject)
    return caught.value


def test_one_who_asks_has_so_many_open_requests_and_may_ask_again_once_one_is_closed(world: World) -> None:
    asked = [ask(world, idempotency_key=str(number)) for number in range(3)]
    error = refused(world)
    assert (error.code, error.extra["reason"], error.extra["whose"], error.extra["most"]) == (
        "rate_limited", "too_many_open_requests", "requester", 3,
    )  # fmt: skip
    assert error.headers["Retry-After"] == "60"
    assert "status=pending" in error.message
    [told] = audited(world, "approval.refuse")
    assert (told["reason"], told["whose"]) == ("too_many_open_requests", "requester")
    assert ask(world, idempotency_key="0").id == asked[0].id, "what was asked before is answered"
    human_input.cancel_request(world.one, KEY, asked[0].id)
    ask(world)
    ask(world, Subject("key:b", "rest"))


def test_a_tenant_has_so_many_too_whoever_asks_and_another_is_not_concerned(world: World) -> None:
    for number in range(5):
        ask(world, Subject(f"key:{number}", "rest"))
    assert refused(world, Subject("key:5", "rest")).extra["whose"] == "tenant"
    human_input.request_human_input(world.two, KEY, HumanInput("input", "How many?"))


def test_the_runs_of_an_agent_count_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "find_starter", lambda scope, actor: "key:test")
    for number in range(3):
        ask(world, Subject(f"run:{number}", "agent", "clerk", str(number)))
    assert refused(world, Subject("run:3", "agent", "clerk", "3")).extra["whose"] == "agent"
    ask(world, Subject("run:4", "agent", "other", "4"))


def test_of_many_that_ask_at_once_only_so_many_are_asked(world: World) -> None:
    def one(_: int) -> str:
        try:
            return ask(world).id
        except ApplianceError as error:
            return error.code

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(one, range(12)))
    assert found.count("rate_limited") == 9


def test_an_execution_that_asks_too_much_is_refused(world: World) -> None:
    town = Town(world.one)
    origin = town.origin(town.execution())
    request = approvals.parse_request({"kind": "approval", "title": "Once more"}, origin, clock.now_ms())
    for _ in range(3):
        db.write(lambda: approvals.request_approval(world.one, request))
    with pytest.raises(RateLimited):
        db.write(lambda: approvals.request_approval(world.one, request))

"""A condition about the service account also holds for what an execution does that a key of the account has started."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import LoopbackServer
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, AccountSpec, service_accounts
from appliance.tenants.keys import KeySpec
from appliance.testing.running import Running
from tests.api.resources import PREFIX, Resources, fresh
from tests.sites.route_shop import wait_for

JSON = "application/json"


@pytest.fixture
def ours(running: Running, acme: httpx.Client) -> Resources:
    return Resources(running, "acme", acme)


@pytest.fixture
def bank() -> Iterator[LoopbackServer]:
    """A foreign system that takes payments and remembers them."""
    server = LoopbackServer()
    server.answer("/pay", 200, b"{}", Content_Type=JSON)
    yield server
    server.close()


@pytest.fixture
def policy(ours: Resources) -> Iterator[Callable[..., None]]:
    """Activate a policy with one rule; it is deactivated after the test."""
    names: list[str] = []

    def activate(**rule: Any) -> None:
        names.append(fresh("accounts"))
        ours.ask("PUT", f"/policies/{names[-1]}", {"mode": "enforce", "rules": [{"id": "r", "reason": "by the test", **rule}]})
        ours.ask("POST", f"/policies/{names[-1]}/activate", {})

    yield activate
    for name in names:
        ours.ask("POST", f"/policies/{name}/deactivate")


@pytest.fixture
def robot(running: Running) -> Iterator[httpx.Client]:
    """The API with a key of the service account `robot-…`; its name is in the header X-Test-Account."""
    owner = TenantScope("acme", f"user:{running.user(fresh('owner') + '@acme.test', 'a long enough password', 'acme')}", ALL_SCOPES)
    account = fresh("robot")
    service_accounts.create_account(owner, AccountSpec(account, "Robot", sorted(ALL_SCOPES)))
    _, text = service_accounts.issue_key(owner, running.services.sealer, account, KeySpec("its", sorted(ALL_SCOPES), "test"))
    with running.client("acme.localhost", {"X-API-Key": text, "X-Test-Account": account}) as client:
        yield client


@pytest.fixture
def step(ours: Resources, bank: LoopbackServer) -> dict[str, Any]:
    """A step that pays."""
    slug = fresh("bank")
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": {"base_url": bank.url}})
    return {"id": "pay", "integration": {"use": slug, "action": "post", "input": {"url": "/pay", "json": {"amount": 5}}}}


@pytest.fixture
def paying(ours: Resources, step: dict[str, Any]) -> str:
    """A process that pays."""
    return ours.process(steps=[step])


def execute(client: httpx.Client, process: str) -> dict[str, Any]:
    """The execution once it has ended."""
    answer = client.post(f"{PREFIX}/processes/{process}/execute", json={}, params={"wait": 30})
    assert answer.is_success, answer.text
    return follow(client, process, answer.json()["data"]["execution_id"])


def follow(client: httpx.Client, process: str, execution_id: str) -> dict[str, Any]:
    def ended() -> dict[str, Any]:
        execution: dict[str, Any] = client.get(f"{PREFIX}/processes/{process}/executions/{execution_id}").json()["data"]
        return execution if execution["status"] in ("succeeded", "failed") else {}

    execution: dict[str, Any] = wait_for(ended)
    return execution


def outcome(execution: dict[str, Any]) -> str:
    return str(execution["error"]["code"] if execution["status"] == "failed" else execution["status"])


def test_an_execution_acts_on_behalf_of_the_account_that_started_it(
    acme: httpx.Client, robot: httpx.Client, paying: str, policy: Callable[..., None], bank: LoopbackServer
) -> None:
    policy(effect="deny", operations=["post"], when={"subject": {"service_account": robot.headers["X-Test-Account"]}})
    assert outcome(execute(robot, paying)) == "policy_denied"
    assert outcome(execute(robot, paying)) == "policy_denied", "the second time it is remembered"
    assert bank.received == []
    assert outcome(execute(acme, paying)) == "succeeded"


def test_a_child_inherits_and_so_does_its_child(
    ours: Resources, robot: httpx.Client, acme: httpx.Client, paying: str, policy: Callable[..., None], bank: LoopbackServer
) -> None:
    policy(effect="deny", operations=["post"], when={"subject": {"service_account": {"_null": False}}})
    inner = ours.process(steps=[{"id": "sub", "process": {"use": paying, "input": {}}}])
    outer = ours.process(steps=[{"id": "sub", "process": {"use": inner, "input": {}}}])
    assert execute(robot, outer)["status"] == "failed"
    assert bank.received == []
    assert execute(acme, outer)["status"] == "succeeded"
    assert len(bank.received) == 1


def test_what_nobody_or_a_person_starts_has_no_account(
    ours: Resources, robot: httpx.Client, step: dict[str, Any], policy: Callable[..., None], bank: LoopbackServer
) -> None:
    """The account has published the process and its webhook: that does not make it the starter."""
    hook, acme = fresh("hook"), ours.client
    trigger = {"id": "order", "webhook": {"path": hook, "verify": {"kind": "none"}}}
    process = Resources(ours.running, "acme", robot).process(steps=[step], triggers=[trigger])
    policy(effect="deny", operations=["post"], when={"subject": {"service_account": {"_null": True}}})
    assert outcome(execute(robot, process)) == "succeeded"
    assert outcome(execute(acme, process)) == "policy_denied"
    acme.post(f"/hooks/{hook}", json={}).raise_for_status()
    path = f"{PREFIX}/processes/{process}/executions"
    wait_for(lambda: len(acme.get(path, params={"status": "failed"}).json()["data"]) == 2)
    assert len(bank.received) == 1


def test_a_retry_acts_for_whoever_retries(
    robot: httpx.Client, acme: httpx.Client, paying: str, policy: Callable[..., None], bank: LoopbackServer
) -> None:
    policy(effect="deny", operations=["post"], when={"subject": {"service_account": {"_null": False}}})
    failed = execute(robot, paying)
    path = f"{PREFIX}/processes/{paying}/executions/{failed['execution_id']}/retry"
    ids = [each.post(path, json={"from": "failed"}).raise_for_status().json()["data"]["execution_id"] for each in (robot, acme)]
    assert [outcome(follow(acme, paying, each)) for each in ids] == ["policy_denied", "succeeded"]
    assert len(bank.received) == 1


def test_the_account_is_no_actor_of_its_executions(
    robot: httpx.Client, paying: str, policy: Callable[..., None], bank: LoopbackServer
) -> None:
    """`actors` says who acts, and that is the execution."""
    policy(effect="deny", operations=["post"], subject={"actors": [f"service:{robot.headers['X-Test-Account']}"]})
    assert outcome(execute(robot, paying)) == "succeeded"
    assert len(bank.received) == 1

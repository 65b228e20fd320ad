"""Tokens of OAuth 2: one renewal for many calls over all processes, kept before they are used, never shown."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.oauth import TokenAnswer
from appliance.connectors.testing import Answer, Received
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AddressNotAllowed, ValidationFailed
from appliance.governance.executor import ActionFailed, ActionRequest
from appliance.integrations.spec import IntegrationSpec, merged_spec
from appliance.integrations.tokens import TokenStore
from tests.integrations.provider import SECRET, Provider
from tests.integrations.world import World

THREADS = 20
GENEROUS_S = 30.0


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def connect(world: World, provider: Provider, **auth: Any) -> None:
    """An integration `crm` whose tokens a person has granted."""
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings(**auth)))
    grant(world, provider)


def grant(world: World, provider: Provider) -> None:
    provider.refresh.add("refresh-token-0-canary")
    provider.access = {"access-token-0-canary"}
    answer = TokenAnswer("access-token-0-canary", "refresh-token-0-canary", 3000.0, "read")
    ready = world.integrations.ready(world.one, "crm")
    db.write(lambda: world.integrations.calls.tokens.store_granted(world.one.with_actor("user:ada"), ready, answer))


def spend(world: World) -> None:
    """The access token has reached its end."""
    db.write(lambda: db.execute("UPDATE integration_token SET renew_at = ?", (clock.now_ms() - 1,)))


def ask(world: World, url: str = "me") -> Any:
    return world.executor.execute(world.one, ActionRequest("crm", "get", {"url": url})).output


def refused(world: World) -> ActionFailed:
    with pytest.raises(ActionFailed) as caught:
        ask(world)
    assert "canary" not in caught.value.message + str(caught.value.extra)
    return caught.value


def test_a_client_gets_one_token_for_many_calls(world: World, provider: Provider) -> None:
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings(grant="client_credentials")))
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: ask(world)["status"], range(THREADS)))
    assert statuses == [200] * THREADS
    assert provider.asked == ["client_credentials"]


@pytest.mark.parametrize(("client_auth", "lasts"), [("post", 3600), ("basic", None)])
def test_a_spent_token_is_renewed_once_for_twenty_calls(world: World, client_auth: str, lasts: int | None) -> None:
    provider = Provider(client_auth=client_auth, lasts=lasts)
    connect(world, provider)
    assert ask(world)["body"] == {"seen": "[redacted]"}
    spend(world)
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: ask(world)["status"], range(THREADS)))
    provider.close()
    assert statuses == [200] * THREADS
    assert provider.asked == ["refresh_token"]


def test_twenty_refusals_renew_once(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.access.clear()  # revoked before its end: the API refuses it, whatever the clock says
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: ask(world)["status"], range(THREADS)))
    assert statuses == [200] * THREADS
    assert provider.asked == ["refresh_token"]


def test_processes_renew_once(world: World, provider: Provider) -> None:
    """Two keepers share nothing but the database, as two processes do."""
    connect(world, provider)
    spend(world)
    started, go_on = threading.Event(), threading.Event()
    answer_normally = provider.server.answers["/token"]

    def slow(request: Received) -> Answer:
        started.set()
        assert go_on.wait(GENEROUS_S)
        return answer_normally(request)

    provider.server.answers["/token"] = slow
    ready = world.integrations.ready(world.one, "crm")
    with ThreadPoolExecutor(2) as pool, client_of() as client:
        first = pool.submit(token_by(TokenStore(world.sealer), ready, client))
        assert started.wait(GENEROUS_S)
        second = pool.submit(token_by(TokenStore(world.sealer), ready, client))
        with pytest.raises(TimeoutError):
            second.result(0.5)
        go_on.set()
        assert first.result(GENEROUS_S) == second.result(GENEROUS_S) == "access-token-1-canary"
    assert provider.asked == ["refresh_token"]


@contextmanager
def client_of() -> Iterator[EgressClient]:
    client = EgressClient(Egress.of(["127.0.0.0/8"]))
    yield client
    client.close()


def token_by(keeper: TokenStore, ready: Any, client: EgressClient) -> Callable[[], str]:
    source = keeper.tokens_of(ready, client)
    assert source is not None
    return lambda: source.access_token("", clock.monotonic() + GENEROUS_S)


def test_a_process_that_died_while_renewing_is_waited_for_no_longer_than_its_lease(world: World, provider: Provider) -> None:
    connect(world, provider)
    spend(world)
    keeper = world.integrations.calls.tokens
    assert keeper.claim_lease(world.one, "crm", 1) is not None
    assert keeper.claim_lease(world.one, "crm", 1) is None
    expired = clock.now_ms() - 1
    db.write(lambda: db.execute("UPDATE integration_token SET lease_until = ?", (expired,)))
    assert ask(world)["status"] == 200


def test_a_rotated_token_is_stored_before_it_is_used(world: World, provider: Provider) -> None:
    connect(world, provider)
    seen: list[str] = []
    usual = provider.server.answers["/api/me"]

    def look(request: Received) -> Answer:
        ready = world.integrations.ready(world.one, "crm")
        seen.append(world.integrations.calls.tokens.load(world.one, ready).refresh)
        return usual(request)

    provider.server.answers["/api/me"] = look
    for number in (1, 2):
        spend(world)
        ask(world)
        assert seen[-1] == f"refresh-token-{number}-canary"
        assert provider.refresh == {seen[-1]}


def test_a_provider_that_does_not_rotate_keeps_its_refresh_token(world: World) -> None:
    provider = Provider(rotates=False)
    connect(world, provider)
    for _ in range(2):
        spend(world)
        assert ask(world)["status"] == 200
    provider.close()
    assert provider.asked == ["refresh_token"] * 2


def test_a_withdrawn_consent_says_connect_again_and_is_not_asked_for_twice(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.revoke()
    for _ in range(3):
        failure = refused(world)
        assert (failure.error_class, failure.outcome, failure.retryable) == ("auth_error", "not_done", False)
        assert "connect again" in failure.message
    assert provider.asked == ["refresh_token"]
    ready = world.integrations.ready(world.one, "crm")
    assert world.integrations.calls.tokens.connection(world.one, ready).state == "expired"
    grant(world, provider)
    assert ask(world)["status"] == 200
    assert world.integrations.calls.tokens.connection(world.one, ready).state == "connected"


def test_whoever_is_refused_after_another_renewed_takes_the_others_token(world: World, provider: Provider) -> None:
    """The lease ran out while the provider was slow, another process took over: the first one's refusal counts for nothing."""
    connect(world, provider)
    spend(world)
    ready = world.integrations.ready(world.one, "crm")
    keeper = world.integrations.calls.tokens

    def overtake(_: Received) -> Answer:
        provider.access = {"access-token-9-canary"}
        before = keeper.load(world.one, ready)
        keeper.store(world.one, ready, before, TokenAnswer("access-token-9-canary", "refresh-token-9-canary", 3000.0))
        return Answer(400, body=b'{"error": "invalid_grant"}')

    provider.server.answers["/token"] = overtake
    assert ask(world)["status"] == 200
    assert keeper.connection(world.one, ready).state == "connected"


def test_an_api_that_refuses_a_fresh_token_is_an_auth_error(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.server.answer("/api/me", 401, b"no")
    assert refused(world).error_class == "auth_error"
    assert provider.asked == ["refresh_token"]


def test_nobody_has_connected_yet(world: World, provider: Provider) -> None:
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings()))
    failure = refused(world)
    assert (failure.error_class, failure.outcome) == ("auth_error", "not_done")
    assert "connect it first" in failure.message
    assert provider.server.received == []


TROUBLE = [
    (Answer(500), "transient_error"),
    (Answer(429, {"Retry-After": "0"}), "rate_limited"),
    (Answer(302, {"Location": "http://127.0.0.1:1/"}), "config_error"),
    (Answer(200, {}, b"<html>"), "system_error"),
    (Answer(200, {}, b'{"access_token": "x\\ny"}'), "system_error"),
    (Answer(200, {}, b'{"access_token": "x", "token_type": "mac"}'), "system_error"),
    (Answer(200, {}, b'{"error": "invalid_scope"}'), "auth_error"),
    (Answer(401), "auth_error"),
    (Answer(200, {}, b"x" * 70_000), "system_error"),
]


def test_a_token_address_in_trouble_is_told_and_recovers(world: World, provider: Provider) -> None:
    connect(world, provider)
    spend(world)
    for answer, error_class in TROUBLE:
        provider.refusal = answer
        failure = refused(world)
        assert (failure.error_class, failure.outcome) == (error_class, "not_done"), answer
        provider.refusal = None
        db.write(lambda: db.execute("DELETE FROM integration_circuit"))
        assert ask(world)["status"] == 200
        spend(world)


def test_the_token_address_obeys_the_egress_rules(world: World, provider: Provider) -> None:
    settings = provider.settings(grant="client_credentials", token_url="http://169.254.169.254/latest")
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", settings))
    with pytest.raises(AddressNotAllowed):
        ask(world)


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "http://127.0.0.1:1/elsewhere"},
        {"auth": {"token_url": "http://127.0.0.1:1/token"}},
        {"auth": {"profile": "google"}},
    ],
)
def test_tokens_and_secrets_never_follow_a_changed_address(world: World, provider: Provider, change: dict[str, Any]) -> None:
    connect(world, provider)
    current = world.integrations.get_integration(world.one, "crm")
    with pytest.raises(ValidationFailed, match="enter the value again"):
        world.integrations.replace_integration(world.one, "crm", merged_spec(current, {"settings": change}))
    again = {**change, "auth": {**change.get("auth", {}), "client_secret": SECRET}}
    world.integrations.replace_integration(world.one, "crm", merged_spec(current, {"settings": again}))
    assert "connect it first" in refused(world).message
    assert provider.asked == []


def test_a_new_client_secret_keeps_the_connection(world: World, provider: Provider) -> None:
    connect(world, provider)
    current = world.integrations.get_integration(world.one, "crm")
    spec = merged_spec(current, {"settings": {"auth": {"client_secret": "another-secret"}}})
    world.integrations.replace_integration(world.one, "crm", spec)
    assert ask(world)["status"] == 200


def test_no_token_lies_readable_anywhere(world: World, provider: Provider) -> None:
    connect(world, provider)
    spend(world)
    assert "canary" not in str(ask(world))
    refresh = world.executor.execute(world.one, ActionRequest("crm", "get", {"url": "me", "accept_statuses": [401]}))
    assert "canary" not in str(refresh)
    tables = ("integration", "integration_token", "integration_call", "log_line", "audit_entry")
    dump = "".join(str(db.rows(f"SELECT * FROM {table}")) for table in tables)  # noqa: S608 - our own names
    assert "canary" not in dump
    assert "canary" not in str(world.integrations.get_integration(world.one, "crm"))


def test_another_tenant_of_the_same_name_has_tokens_of_its_own(world: World, provider: Provider) -> None:
    connect(world, provider)
    world.integrations.create_integration(world.two, "crm", IntegrationSpec("http", provider.settings()))
    with pytest.raises(ActionFailed, match="connect it first"):
        world.executor.execute(world.two, ActionRequest("crm", "get", {"url": "me"}))


def test_a_deleted_integration_leaves_no_tokens(world: World, provider: Provider) -> None:
    connect(world, provider)
    world.integrations.delete_integration(world.one, "crm")
    assert db.rows("SELECT * FROM integration_token") == []


def test_a_call_does_not_wait_beyond_its_time(world: World, provider: Provider) -> None:
    connect(world, provider)
    spend(world)
    assert world.integrations.calls.tokens.claim_lease(world.one, "crm", 1) is not None
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, ActionRequest("crm", "get", {"url": "me"}, seconds=0.5))
    assert (caught.value.error_class, caught.value.outcome) == ("transient_error", "not_done")
    assert provider.asked == []

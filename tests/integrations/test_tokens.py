"""OAuth 2 tokens: renewed once for many calls across all processes, stored before they are used, never shown."""

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
TIMEOUT_S = 30.0


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def connect(world: World, provider: Provider, **auth: Any) -> None:
    """Create an integration `crm` and grant its tokens as a user would."""
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings(**auth)))
    grant(world, provider)


def grant(world: World, provider: Provider) -> None:
    provider.refresh.add("refresh-token-0-canary")
    provider.access = {"access-token-0-canary"}
    answer = TokenAnswer("access-token-0-canary", "refresh-token-0-canary", 3000.0, "read")
    ready = world.integrations.ready(world.one, "crm")
    db.write(lambda: world.integrations.calls.tokens.store_granted(world.one.with_actor("user:ada"), ready, answer))


def expire(world: World) -> None:
    """Let the access token expire."""
    db.write(lambda: db.execute("UPDATE integration_token SET renew_at = ?", (clock.now_ms() - 1,)))


def call(world: World, url: str = "me") -> Any:
    return world.executor.execute(world.one, ActionRequest("crm", "get", {"url": url})).output


def failed_call(world: World) -> ActionFailed:
    with pytest.raises(ActionFailed) as caught:
        call(world)
    assert "canary" not in caught.value.message + str(caught.value.extra)
    return caught.value


def test_a_client_gets_one_token_for_many_calls(world: World, provider: Provider) -> None:
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings(grant="client_credentials")))
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: call(world)["status"], range(THREADS)))
    assert statuses == [200] * THREADS
    assert provider.grants == ["client_credentials"]


@pytest.mark.parametrize(("client_auth", "lasts"), [("post", 3600), ("basic", None)])
def test_an_expired_token_is_renewed_once_for_twenty_calls(world: World, client_auth: str, lasts: int | None) -> None:
    provider = Provider(client_auth=client_auth, lasts=lasts)
    connect(world, provider)
    assert call(world)["body"] == {"seen": "[redacted]"}
    expire(world)
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: call(world)["status"], range(THREADS)))
    provider.close()
    assert statuses == [200] * THREADS
    assert provider.grants == ["refresh_token"]


def test_twenty_refusals_renew_once(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.access.clear()  # revoked before it expires: the API refuses it
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(lambda _: call(world)["status"], range(THREADS)))
    assert statuses == [200] * THREADS
    assert provider.grants == ["refresh_token"]


def test_processes_renew_once(world: World, provider: Provider) -> None:
    """Two token stores share only the database, as two processes do."""
    connect(world, provider)
    expire(world)
    started, release = threading.Event(), threading.Event()
    answer_normally = provider.server.answers["/token"]

    def slow(request: Received) -> Answer:
        started.set()
        assert release.wait(TIMEOUT_S)
        return answer_normally(request)

    provider.server.answers["/token"] = slow
    ready = world.integrations.ready(world.one, "crm")
    with ThreadPoolExecutor(2) as pool, client_of() as client:
        first = pool.submit(token_getter(TokenStore(world.sealer), ready, client))
        assert started.wait(TIMEOUT_S)
        second = pool.submit(token_getter(TokenStore(world.sealer), ready, client))
        with pytest.raises(TimeoutError):
            second.result(0.5)
        release.set()
        assert first.result(TIMEOUT_S) == second.result(TIMEOUT_S) == "access-token-1-canary"
    assert provider.grants == ["refresh_token"]


@contextmanager
def client_of() -> Iterator[EgressClient]:
    client = EgressClient(Egress.of(["127.0.0.0/8"]))
    yield client
    client.close()


def token_getter(token_store: TokenStore, ready: Any, client: EgressClient) -> Callable[[], str]:
    source = token_store.tokens_of(ready, client)
    assert source is not None
    return lambda: source.access_token("", clock.monotonic() + TIMEOUT_S)


def test_the_lease_of_a_dead_process_expires(world: World, provider: Provider) -> None:
    connect(world, provider)
    expire(world)
    token_store = world.integrations.calls.tokens
    assert token_store.claim_lease(world.one, "crm", 1) is not None
    assert token_store.claim_lease(world.one, "crm", 1) is None
    expired = clock.now_ms() - 1
    db.write(lambda: db.execute("UPDATE integration_token SET lease_until = ?", (expired,)))
    assert call(world)["status"] == 200


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
        expire(world)
        call(world)
        assert seen[-1] == f"refresh-token-{number}-canary"
        assert provider.refresh == {seen[-1]}


def test_a_provider_that_does_not_rotate_keeps_its_refresh_token(world: World) -> None:
    provider = Provider(rotates=False)
    connect(world, provider)
    for _ in range(2):
        expire(world)
        assert call(world)["status"] == 200
    provider.close()
    assert provider.grants == ["refresh_token"] * 2


def test_a_revoked_consent_requires_reconnecting(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.revoke()
    for _ in range(3):
        failure = failed_call(world)
        assert (failure.error_class, failure.outcome, failure.retryable) == ("auth_error", "not_done", False)
        assert "connect again" in failure.message
    assert provider.grants == ["refresh_token"]
    ready = world.integrations.ready(world.one, "crm")
    assert world.integrations.calls.tokens.connection(world.one, ready).state == "expired"
    grant(world, provider)
    assert call(world)["status"] == 200
    assert world.integrations.calls.tokens.connection(world.one, ready).state == "connected"


def test_a_refused_renewal_uses_the_token_another_process_renewed(world: World, provider: Provider) -> None:
    """The lease ran out while the provider was slow, another process took over: the first one's refusal is ignored."""
    connect(world, provider)
    expire(world)
    ready = world.integrations.ready(world.one, "crm")
    token_store = world.integrations.calls.tokens

    def overtake(_: Received) -> Answer:
        provider.access = {"access-token-9-canary"}
        before = token_store.load(world.one, ready)
        token_store.store(world.one, ready, before, TokenAnswer("access-token-9-canary", "refresh-token-9-canary", 3000.0))
        return Answer(400, body=b'{"error": "invalid_grant"}')

    provider.server.answers["/token"] = overtake
    assert call(world)["status"] == 200
    assert token_store.connection(world.one, ready).state == "connected"


def test_an_api_that_refuses_a_fresh_token_is_an_auth_error(world: World, provider: Provider) -> None:
    connect(world, provider)
    provider.server.answer("/api/me", 401, b"no")
    assert failed_call(world).error_class == "auth_error"
    assert provider.grants == ["refresh_token"]


def test_without_a_connection_calls_fail(world: World, provider: Provider) -> None:
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings()))
    failure = failed_call(world)
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


def test_a_failing_token_address_is_reported_and_recovers(world: World, provider: Provider) -> None:
    connect(world, provider)
    expire(world)
    for answer, error_class in TROUBLE:
        provider.refusal = answer
        failure = failed_call(world)
        assert (failure.error_class, failure.outcome) == (error_class, "not_done"), answer
        provider.refusal = None
        db.write(lambda: db.execute("DELETE FROM integration_circuit"))
        assert call(world)["status"] == 200
        expire(world)


def test_the_token_address_obeys_the_egress_rules(world: World, provider: Provider) -> None:
    settings = provider.settings(grant="client_credentials", token_url="http://169.254.169.254/latest")
    world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", settings))
    with pytest.raises(AddressNotAllowed):
        call(world)


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
    assert "connect it first" in failed_call(world).message
    assert provider.grants == []


def test_a_new_client_secret_keeps_the_connection(world: World, provider: Provider) -> None:
    connect(world, provider)
    current = world.integrations.get_integration(world.one, "crm")
    spec = merged_spec(current, {"settings": {"auth": {"client_secret": "another-secret"}}})
    world.integrations.replace_integration(world.one, "crm", spec)
    assert call(world)["status"] == 200


def test_no_token_is_stored_in_plain_text(world: World, provider: Provider) -> None:
    connect(world, provider)
    expire(world)
    assert "canary" not in str(call(world))
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


def test_a_call_does_not_wait_beyond_its_timeout(world: World, provider: Provider) -> None:
    connect(world, provider)
    expire(world)
    assert world.integrations.calls.tokens.claim_lease(world.one, "crm", 1) is not None
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, ActionRequest("crm", "get", {"url": "me"}, seconds=0.5))
    assert (caught.value.error_class, caught.value.outcome) == ("transient_error", "not_done")
    assert provider.grants == []

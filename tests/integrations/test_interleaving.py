"""Two changes of integrations, their calls and tokens end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.connectors.oauth import TokenAnswer
from appliance.core.database import db
from appliance.governance.executor import ActionRequest
from appliance.integrations import gate, records
from appliance.integrations.records import Completion, Draft
from appliance.integrations.spec import IntegrationSpec
from appliance.tenants import service as tenants
from appliance.tenants.grants import secret_bindings
from tests.integrations.provider import Provider
from tests.integrations.world import Ledger, World, open_world
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    with open_world(cluster.emptied()) as world:
        yield world


def spec(**settings: Any) -> IntegrationSpec:
    return IntegrationSpec("ledger", {"token": "tok-4711-secret", **settings})


def add(of: World, **settings: Any) -> str:
    """A new integration, by its slug."""
    return of.integrations.create_integration(of.one, f"books{next(numbers)}", spec(**settings)).slug


def read(of: World, slug: str) -> Any:
    """The label, version, result of the last test, bindings and calls of an integration."""
    tested = "CASE WHEN checked_at IS NOT NULL THEN check_ok END"
    rows = db.rows(f"SELECT settings LIKE '%new%', version, {tested} FROM integration WHERE id = ?", (slug,))  # noqa: S608
    calls = db.rows("SELECT status, tries FROM integration_call WHERE integration_id = ? ORDER BY 1, 2", (slug,))
    return rows, len(db.rows("SELECT 1 FROM secret_binding WHERE target = ?", (slug,))), calls


def two_integrations_of_one_name(of: World) -> Pair:
    slug = f"books{next(numbers)}"
    return Pair.of((partial(of.integrations.create_integration, of.one, slug, spec()),) * 2, partial(read, of, slug))


def put(of: World, slug: str, new: IntegrationSpec) -> Any:
    return db.write(lambda: of.integrations.save_integration(of.one, slug, new))


def an_integration_is_put_twice(of: World) -> Pair:
    slug = f"books{next(numbers)}"
    return Pair.of((partial(put, of, slug, spec()),) * 2, partial(read, of, slug))


def an_integration_is_put_and_deleted(of: World) -> Pair:
    slug = add(of)
    return Pair(
        lambda: put(of, slug, spec(label="new")),
        lambda: of.integrations.delete_integration(of.one, slug),
        partial(read, of, slug),
    )


def an_integration_is_created_and_deleted(of: World) -> Pair:
    slug = f"books{next(numbers)}"
    return Pair(
        lambda: of.integrations.create_integration(of.one, slug, spec()),
        lambda: of.integrations.delete_integration(of.one, slug),
        partial(read, of, slug),
    )


def two_changes_of_a_version(of: World) -> Pair:
    slug = add(of)
    change = of.integrations.replace_integration
    return Pair.of((partial(change, of.one, slug, spec(label=f"new {n}"), if_version=1) for n in (1, 2)), partial(read, of, slug))


def an_integration_is_tested_and_changed(of: World) -> Pair:
    """The result of a test belongs to the settings that were tested."""
    slug = add(of)
    return Pair(
        lambda: of.integrations.test_integration(of.one, slug),
        lambda: of.integrations.replace_integration(of.one, slug, spec(token="wrong", label="new")),
        partial(read, of, slug),
    )


def a_secret_is_used_and_its_binding_removed(of: World) -> Pair:
    """Somebody who may not bind the secret saves an integration that uses it."""
    slug, name = f"books{next(numbers)}", f"erp{next(numbers)}"
    tenants.set_secret(of.one, of.sealer, name, "tok-4711-secret")
    of.integrations.create_integration(of.one, slug, spec(token=f"= secrets.{name}"))
    [binding] = secret_bindings.list_bindings(of.one, name)
    plain = tenants.system_scope("one", "key:plain")
    builder = type(plain)(plain.tenant_id, plain.actor, plain.scopes - {"secrets.write"})
    change = of.integrations.replace_integration
    return Pair(
        lambda: change(builder, slug, spec(token=f"= secrets.{name}", label="new")),
        lambda: secret_bindings.unbind(of.one, name, binding.id),
        partial(read, of, slug),
    )


def call(of: World, slug: str, key: str | None = None, action: str = "book") -> Any:
    return of.executor.execute(of.one, ActionRequest(slug, action, {}, idempotency_key=key)).output and None


def a_call_is_made_twice_with_a_key(of: World) -> Pair:
    slug = add(of)
    before = len(Ledger.booked)
    return Pair.of(
        (partial(call, of, slug, "k"),) * 2, lambda: (read(of, slug), len(Ledger.booked) - before),
        may_refuse=("IdempotencyInFlight",),
    )  # fmt: skip


def a_call_is_made_and_the_integration_deleted(of: World) -> Pair:
    slug = add(of)
    return Pair(
        lambda: call(of, slug), lambda: of.integrations.delete_integration(of.one, slug), partial(read, of, slug)
    )


def a_system_is_read_and_the_integration_deleted(of: World) -> Pair:
    slug = add(of)
    return Pair(
        lambda: call(of, slug, action="look"), lambda: of.integrations.delete_integration(of.one, slug), partial(read, of, slug)
    )


def a_queued_call_is_claimed_twice(of: World) -> Pair:
    slug = add(of)
    draft = Draft(slug, "ledger", "book", "write", {}, "digest")
    call_id, _ = db.write(lambda: records.enqueue_call(of.one, draft))
    claims: list[Any] = []

    def claim(owner: str) -> None:
        claims.append(records.claim_queued(of.one, call_id, owner))

    return Pair.of(
        (partial(claim, owner) for owner in "ab"),
        lambda: (sorted(each is None for each in claims), read(of, slug)),
    )


def a_call_ends_and_is_taken_over(of: World) -> Pair:
    """A write whose process seems to be gone is in doubt, or done."""
    slug = add(of)
    draft = Draft(slug, "ledger", "book", "write", {}, "digest", key="k")
    begin = partial(records.begin_call, of.one, draft, admit=lambda *_: None)
    started = begin("gone", lambda _: True)
    done = Completion("succeeded", "done", {"n": 1})
    return Pair(
        lambda: records.finish_call(of.one, started, draft, done),  # type: ignore[arg-type]
        lambda: begin("here", lambda _: False),
        lambda: db.rows("SELECT status FROM integration_call WHERE integration_id = ?", (slug,)),
    )


def two_probes_of_an_open_circuit(of: World) -> Pair:
    slug = add(of)
    insert = (
        "INSERT INTO integration_circuit (tenant_id, integration_id, failures, openings, open_until, reason, changed_at) "
        "VALUES ('one', ?, 5, 1, 1, 'no connection', 1)"
    )
    db.write(lambda: db.execute(insert, (slug,)))
    probes: list[bool] = []
    claim = lambda: probes.append(db.write(lambda: gate._claim_probe(of.one, slug, 30.0)) is None)  # noqa: E731
    return Pair(claim, claim, lambda: sorted(probes))


def tokens_are_granted_and_forgotten(of: World) -> Pair:
    provider = Provider()
    slug = f"crm{next(numbers)}"
    of.integrations.create_integration(of.one, slug, IntegrationSpec("http", provider.settings()))
    provider.close()
    ready, tokens = of.integrations.ready(of.one, slug), of.integrations.calls.tokens
    answer = TokenAnswer("access-token", "refresh-token", 3000.0, "read")
    return Pair(
        lambda: db.write(lambda: tokens.store_granted(of.one.with_actor("user:ada"), ready, answer)),
        lambda: db.write(lambda: tokens.forget(of.one, slug)),
        lambda: tokens.connection(of.one, ready).state,
    )


def a_renewal_is_leased_twice(of: World) -> Pair:
    slug = add(of)
    tokens = of.integrations.calls.tokens
    owners: list[Any] = []
    claim = lambda: owners.append(tokens.claim_lease(of.one, slug, 0))  # noqa: E731
    return Pair(claim, claim, lambda: sorted(each is None for each in owners))


def tokens_are_renewed_and_the_integration_deleted(of: World) -> Pair:
    slug = add(of)
    tokens = of.integrations.calls.tokens
    return Pair(
        lambda: tokens.claim_lease(of.one, slug, 0) and None,
        lambda: of.integrations.delete_integration(of.one, slug),
        lambda: db.rows("SELECT 1 FROM integration_token WHERE integration_id = ?", (slug,)),
    )


PAIRS: dict[str, Callable[[World], Pair]] = {
    each.__name__: each
    for each in (
        two_integrations_of_one_name, an_integration_is_put_twice, an_integration_is_put_and_deleted,
        an_integration_is_created_and_deleted, two_changes_of_a_version, an_integration_is_tested_and_changed,
        a_secret_is_used_and_its_binding_removed, a_call_is_made_twice_with_a_key, a_call_is_made_and_the_integration_deleted,
        a_system_is_read_and_the_integration_deleted, a_queued_call_is_claimed_twice,
        a_call_ends_and_is_taken_over, two_probes_of_an_open_circuit,
        tokens_are_granted_and_forgotten, a_renewal_is_leased_twice, tokens_are_renewed_and_the_integration_deleted,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(world: World, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](world), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_a_version_is_changed_twice(world: World) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: two_changes_of_a_version(world))

"""What refuses a reset refuses it before anything has changed, and what it keeps it keeps in between."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from appliance.backups.jobs import RESET
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, ApplianceError, Conflict, GrantRequired, Overloaded, ValidationFailed
from appliance.documents import retention
from appliance.solutions import service as solutions
from appliance.tenants import people, service
from appliance.tenants.grants import build_access_spec, grants
from appliance.webapps.domains import name_ownership
from appliance.webapps.domains.models import DomainRow
from tests.backups.job_processes import Processes
from tests.backups.test_transfer import tenant_rows
from tests.solutions.test_reset_steps import (
    FILES,
    Killed,
    begin,
    check_complete,
    cluster,
    die_before,
    last,
    take_over,
    work,
)

__all__ = ["cluster"]


def hold_document(cluster: Processes) -> None:
    retention.set_hold(cluster.scope, str(db.rows("SELECT id FROM document WHERE tenant_id = 'initech'")[0][0]), "a quarrel")


def withdraw_grant(cluster: Processes) -> None:
    access = build_access_spec({"datapool": {"parts": ["read"]}})
    owner = replace(cluster.scope, actor=f"user:{people.find_user('ada').id}")
    db.write(lambda: grants.give_grant(cluster.scope, "process:count", access))
    db.write(lambda: grants.withdraw_grant(owner, "process:count", access.digest))


def relation(name: str, to: str) -> dict[str, bytes]:
    return {f"collections/{name}.yaml": f"fields:\n  - {{name: of, type: relation, collection: {to}}}\n".encode()}


PROCESS = b"id: count\ngrants: {datapool: {parts: [read]}}\nsteps:\n  - {id: wait, wait: {for: 1s}}\n"
READER = PROCESS.replace(b"{datapool: {parts: [read]}}", b"{documents: [read]}")
REFUSALS: dict[str, tuple[Callable[[Processes], None], dict[str, bytes], type[ApplianceError]]] = {
    "a document is held": (hold_document, {}, retention.DocumentKept),
    "an owner withdrew a grant": (withdraw_grant, {"processes/count/process.yaml": PROCESS}, GrantRequired),
    "a secret is missing": (lambda _: None, {"solution.yaml": b"name: wanted\nneeds: {secrets: [other]}\n"}, Conflict),
    "a rule of access names no field": (
        lambda _: None, {"collections/parts.yaml": FILES["collections/parts.yaml"] + b"access: {list: {other: {_eq: 1}}}\n"},
        ValidationFailed,
    ),
    "collections refer to each other in a circle": (
        lambda _: None, {**relation("a", "b"), **relation("b", "c"), **relation("c", "a")}, ValidationFailed,
    ),
    "there are too many collections": (
        lambda _: None, {f"collections/c{number}.yaml": b"fields: [{name: a, type: text}]\n" for number in range(500)}, Conflict,
    ),
    "the solution is wrong": (lambda _: None, {"collections/parts.yaml": b"name: parts\nfields: 3\n"}, ApplianceError),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_reset_changes_nothing(cluster: Processes, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    prepare, files, error = REFUSALS[case]
    prepare(cluster)
    process, claim = begin(cluster, files={**FILES, **files})
    before = tenant_rows("initech")
    with pytest.raises(error):
        work(process, claim, monkeypatch)
    assert (tenant_rows("initech"), service.is_being_reset("initech")) == (before, False)
    service.refuse_reset("initech")


def test_a_secret_that_is_deleted_in_between_refuses_a_reset(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write that begins it looks at everything again."""
    process, claim = begin(cluster, files={**FILES, "solution.yaml": b"name: wanted\nneeds: {secrets: [erp]}\n"})

    def delete_secret(writes: int) -> None:
        if writes == 1:
            db.submit(partial(db.execute, "DELETE FROM secret WHERE tenant_id = 'initech'")).result()

    with pytest.raises(Conflict, match="secret erp"):
        work(process, claim, monkeypatch, delete_secret)
    assert not service.is_being_reset("initech")


def test_grants_that_a_reset_deletes_do_not_count_for_what_it_applies(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has less access than the solution needs is refused at once, and not when the grants are gone."""
    access = build_access_spec({"documents": ["read"]})
    db.write(lambda: grants.give_grant(cluster.scope, "process:count", access))
    without = {name for name in cluster.scope.scopes if name.startswith("documents.")}
    cluster.scope = replace(cluster.scope, scopes=cluster.scope.scopes - without)
    process, claim = begin(cluster, files={**FILES, "processes/count/process.yaml": READER})
    with pytest.raises(GrantRequired):
        work(process, claim, monkeypatch)
    assert not service.is_being_reset("initech")
    assert [each.digest for each in grants.list_grants(cluster.scope, "process:count")] == [access.digest]


def test_a_forced_reset_deletes_retained_documents(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_document(cluster)
    others = tenant_rows("hooli")
    process, claim = begin(cluster, force=True)
    work(process, claim, monkeypatch)
    check_complete(cluster, others)


def test_the_tenant_alone_may_claim_its_host_names_again(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    current, released = "shop.example.com", "given-up.example.com"

    def own() -> None:
        name_ownership.add_tombstone(released, "initech")
        cluster.scope.insert(
            DomainRow, host=current, app_id="shop", state="active", method="txt", token="t", is_primary=True, records=[],
            created_at=1, created_by="user:ada", checks=0, tries=0,
        )  # fmt: skip
        db.execute("INSERT INTO domain_name (name, tenant_id, host) VALUES (?, 'initech', ?)", (current, current))

    db.write(own)
    process, claim = begin(cluster)
    with pytest.raises(Killed):
        work(process, claim, monkeypatch, die_before(2))
    for is_done in (False, True):
        assert db.rows("SELECT 1 FROM domain_name WHERE tenant_id = 'initech'") == [], "it is not served any more"
        name_ownership.check_available(cluster.scope, [current, released])
        for name in (current, released):
            with pytest.raises(AlreadyExists):
                name_ownership.check_available(service.system_scope("hooli"), [name])
        if not is_done:
            work(*take_over(cluster, "one", "two"), monkeypatch)


def raise_unchecked(*_: object) -> None:
    raise Overloaded("the runtime that checks this code is not ready")


def test_a_reset_whose_solution_cannot_be_checked_now_fails_and_changes_nothing(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime may never become ready, and a reset that waits for it could not be ended."""
    process, claim = begin(cluster)
    before = tenant_rows("initech")
    monkeypatch.setattr(solutions, "find_problems", raise_unchecked)
    process.runner._run(claim)
    job = last(cluster)
    assert (job.state, job.problem is not None and "is not ready" in job.problem.message) == ("failed", True)
    assert db.rows("SELECT kind FROM tenant_job") == [(RESET,)], "a reset that has ended needs no solution"
    assert (tenant_rows("initech"), service.is_being_reset("initech")) == (before, False)


def test_whoever_completes_a_reset_does_not_check_its_solution_again(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tenant_rows("hooli")
    process, claim = begin(cluster)
    with pytest.raises(Killed):
        work(process, claim, monkeypatch, die_before(4))
    monkeypatch.setattr(solutions, "find_problems", raise_unchecked)
    work(*take_over(cluster, "one", "two"), monkeypatch)
    check_complete(cluster, others)

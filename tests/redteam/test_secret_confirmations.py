"""Uses of secrets that a development version asked the owners about: suspended or limited until they decide."""

import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import httpx
import pytest

from appliance.console.pages.govern.confirmations import VIEWS
from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.sqlite import Sqlite
from appliance.core.scope import TenantScope
from appliance.solutions import unbound_uses
from appliance.tenants import ALL_SCOPES, people
from appliance.tenants.grants import Confirmation, ConfirmationRequest, SecretDestination, confirmations, secret_bindings
from appliance.testing.running import Running
from tests.redteam.test_secrets import API, Listener, leaking

DAY_MS = 86_400_000
OWNER = "owner@upgraded.test"


class UpgradedTenant:
    """A tenant with integrations that use the secret `topsecret`, which is not bound to them."""

    def __init__(self, running: Running, owner: httpx.Client, listener: Listener) -> None:
        self.running, self.owner, self.listener = running, owner, listener
        self.scope = running.tenant("upgraded")

    def add_integration(self, slug: str) -> SecretDestination:
        self.owner.post(f"{API}/integrations", json=leaking(self.listener.url, slug)).raise_for_status()
        place = (self.scope.tenant_id, slug)
        db.write(lambda: db.execute("DELETE FROM secret_binding WHERE tenant_id = ? AND target = ?", place))
        destination: SecretDestination = self.running.services.integrations.destination(self.scope, slug)
        return destination

    def request(self, slug: str, *, lasts_ms: int = 0) -> Confirmation:
        """The open request about a new integration, whose use of the secret continues for `lasts_ms`."""
        place = self.add_integration(slug)
        deadline = clock.now_ms() + lasts_ms if lasts_ms else None
        if deadline:
            secret_bindings.bind(self.scope, "topsecret", place)
            self.set_expiry(slug, deadline)
        details = {"secret": "topsecret", **asdict(place), "author": "", "reason": "departed" if deadline else "wider"}
        request = ConfirmationRequest("secret", "topsecret", f"digest of {slug}", details, deadline)
        db.write(partial(confirmations.request_confirmation, self.scope, request))
        (confirmation,) = self.list_open(slug)
        return confirmation

    def set_expiry(self, slug: str, at: int) -> None:
        db.write(partial(db.execute, "UPDATE secret_binding SET expires_at = ? WHERE target = ?", (at, slug)))

    def list_open(self, slug: str) -> list[Confirmation]:
        return [each for each in confirmations.list_open(self.scope) if each.details.get("target") == slug]

    def works(self, slug: str) -> bool:
        answer = self.owner.post(f"{API}/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/x"}})
        assert answer.is_success or answer.json()["error"]["code"] == "policy_denied", answer.text
        return answer.is_success

    def decide(self, confirmation: Confirmation, *, confirm: bool) -> None:
        members = {each.login: each.user_id for each in people.list_members(self.scope)}
        owner = members.get(OWNER) or self.running.user(OWNER, "correct horse battery staple", self.scope.tenant_id)
        person = TenantScope(self.scope.tenant_id, f"user:{owner}", ALL_SCOPES)
        self.running.services.governance.confirmations.decide(person, confirmation.id, confirm)


@pytest.fixture
def upgraded(running: Running) -> Iterator[UpgradedTenant]:
    listener = Listener()
    with running.api("upgraded") as owner:
        owner.put(f"{API}/secrets/topsecret", json={"value": "an old secret"}).raise_for_status()
        yield UpgradedTenant(running, owner, listener)
        for each in owner.get(f"{API}/integrations", params={"limit": 500}).json()["data"]:
            owner.delete(f"{API}/integrations/{each['slug']}")
        owner.delete(f"{API}/secrets/topsecret")
    listener.close()


def test_a_suspended_use_works_once_an_owner_confirms_it(upgraded: UpgradedTenant) -> None:
    confirmation = upgraded.request("old-wide")
    assert not upgraded.works("old-wide")
    upgraded.decide(confirmation, confirm=True)
    assert upgraded.works("old-wide")
    assert upgraded.list_open("old-wide") == []


def test_a_limited_use_works_until_its_deadline(upgraded: UpgradedTenant) -> None:
    upgraded.request("old-gone", lasts_ms=30 * DAY_MS)
    assert upgraded.works("old-gone")
    upgraded.set_expiry("old-gone", clock.now_ms() - 1)
    assert not upgraded.works("old-gone")


def test_a_limited_use_lasts_once_an_owner_confirms_it(upgraded: UpgradedTenant) -> None:
    upgraded.decide(upgraded.request("old-kept", lasts_ms=30 * DAY_MS), confirm=True)
    (binding,) = [each for each in secret_bindings.list_bindings(upgraded.scope) if each.destination.target == "old-kept"]
    assert binding.expires_at is None


@pytest.mark.parametrize("by_hosts", [False, True])
def test_a_refused_use_ends(upgraded: UpgradedTenant, by_hosts: bool) -> None:
    slug = f"old-refused-{int(by_hosts)}"
    confirmation = upgraded.request(slug, lasts_ms=30 * DAY_MS)
    if by_hosts:
        (binding,) = [each for each in secret_bindings.list_bindings(upgraded.scope) if each.destination.target == slug]
        secret_bindings.unbind(upgraded.scope, "topsecret", binding.id)
        secret_bindings.bind(upgraded.scope, "topsecret", replace(binding.destination, digest=""))
    assert upgraded.works(slug)
    upgraded.decide(confirmation, confirm=False)
    assert not upgraded.works(slug)


@pytest.mark.parametrize(
    "definition",
    ['{"id": "odd", "grants": {"secrets": ["not-topsecret"]}, "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}',
     '{"id": "odd", "grants": {"secrets": ["topsecret"]}, "steps": "of an earlier release"}'],
    ids=["a-name-no-secret-has", "unreadable-now"],
)  # fmt: skip
def test_an_unreadable_process_does_not_break_the_page_of_a_secret(upgraded: UpgradedTenant, definition: str) -> None:
    body = {"definition": {"id": "odd", "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}}
    upgraded.owner.put(f"{API}/processes/odd", json=body).raise_for_status()
    upgraded.owner.post(f"{API}/processes/odd/publish", json={}).raise_for_status()
    update = "UPDATE process_version SET definition = ? WHERE tenant_id = ? AND process_id = 'odd'"
    db.write(lambda: db.execute(update, (definition, upgraded.scope.tenant_id)))
    place = upgraded.add_integration("old-beside")
    try:
        assert unbound_uses(upgraded.running.services.referrers, upgraded.scope, "topsecret") == [place]
    finally:
        upgraded.owner.delete(f"{API}/processes/odd")


def test_other_processes_cost_nothing_where_the_uses_of_a_secret_are_looked_up(
    upgraded: UpgradedTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    run_statement, own_thread = Sqlite._execute_cursor, threading.get_ident()

    def note(self: Sqlite, sql: str, params: Any, **options: Any) -> Any:
        if threading.get_ident() == own_thread:
            executed.append(sql)
        return run_statement(self, sql, params, **options)

    monkeypatch.setattr(Sqlite, "_execute_cursor", note)
    counts = []
    for number in range(2):
        executed.clear()
        unbound_uses(upgraded.running.services.referrers, upgraded.scope, "topsecret")
        counts.append(len(executed))
        body = {"definition": {"id": f"other-{number}", "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}}
        upgraded.owner.put(f"{API}/processes/other-{number}", json=body).raise_for_status()
        upgraded.owner.post(f"{API}/processes/other-{number}/publish", json={}).raise_for_status()
    for number in range(2):
        upgraded.owner.delete(f"{API}/processes/other-{number}").raise_for_status()
    assert counts[0] == counts[1] > 0


def test_the_page_names_the_hosts_and_the_reason(upgraded: UpgradedTenant) -> None:
    confirmation = upgraded.request("old-told", lasts_ms=DAY_MS)
    view = VIEWS["secret"](confirmation, "somebody")
    assert [line.text for line in view.lines] == ["by the integration old-told", f"sent to {confirmation.details['hosts']}"]
    assert "Who set it up is unknown" in view.why

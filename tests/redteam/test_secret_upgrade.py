"""Uses of secrets from before they had destinations: taken over, suspended, or kept for a while, by who stored them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.app.secret_adoption import adopt_secret_uses
from appliance.console.pages.govern.confirmations import VIEWS
from appliance.core import clock, migrations
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.solutions import unbound_uses
from appliance.tenants import ALL_SCOPES, people
from appliance.tenants.grants import Confirmation, confirmations, secret_bindings
from appliance.tenants.keys import keys
from appliance.testing.running import Running
from tests.redteam.test_secrets import API, INTEGRATIONS, Listener, leaking

DAY_MS = 86_400_000


OWNER = "owner@upgraded.test"


class TenantBeforeUpgrade:
    """A tenant as the upgrade finds it, with uses of a secret that nobody has bound."""

    def __init__(self, running: Running, owner: httpx.Client, listener: Listener) -> None:
        self.running, self.owner, self.listener = running, owner, listener
        self.scope = running.tenant("upgraded")

    def integration(self, slug: str, author: str) -> None:
        """An integration with the secret, last changed by `author`."""
        self.owner.post(f"{API}/integrations", json=leaking(self.listener.url, slug)).raise_for_status()
        place = (self.scope.tenant_id, slug)
        db.write(lambda: db.execute("DELETE FROM secret_binding WHERE tenant_id = ? AND target = ?", place))
        update = "UPDATE audit_entry SET actor = ? WHERE tenant_id = ? AND subject = ? AND action = 'integration.create'"
        db.write(lambda: db.execute(update, (author, *place)))
        insert = "INSERT INTO secret_use (tenant_id, kind, target) VALUES (?, 'integration', ?)"
        db.write(lambda: db.execute(insert, place))

    def works(self, slug: str) -> bool:
        answer = self.owner.post(f"{API}/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/x"}})
        assert answer.is_success or answer.json()["error"]["code"] == "policy_denied", answer.text
        return answer.is_success

    def adopt(self) -> None:
        adopt_secret_uses(self.running.services)
        assert db.rows("SELECT target FROM secret_use") == [], "each use is looked at once"

    def find_confirmation(self, slug: str) -> Confirmation | None:
        matches = [each for each in confirmations.list_open(self.scope) if each.details.get("target") == slug]
        return matches[0] if matches else None

    def decide(self, confirmation: Confirmation, confirm: bool) -> None:
        members = {each.login: each.user_id for each in people.list_members(self.scope)}
        owner = members.get(OWNER) or self.running.user(OWNER, "correct horse battery staple", self.scope.tenant_id)
        person = TenantScope(self.scope.tenant_id, f"user:{owner}", ALL_SCOPES)
        self.running.services.governance.confirmations.decide(person, confirmation.id, confirm)


@pytest.fixture
def before(running: Running) -> Iterator[TenantBeforeUpgrade]:
    listener = Listener()
    with running.api("upgraded") as owner:
        owner.put(f"{API}/secrets/topsecret", json={"value": "an old secret"}).raise_for_status()
        yield TenantBeforeUpgrade(running, owner, listener)
        for each in owner.get(f"{API}/integrations", params={"limit": 500}).json()["data"]:
            owner.delete(f"{API}/integrations/{each['slug']}")
        owner.delete(f"{API}/secrets/topsecret")
    listener.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema."""
    cluster = None if request.param == "sqlite" else request.getfixturevalue("cluster")
    return f"sqlite:///{tmp_path}/gos.db" if cluster is None else str(cluster.make_database())


def test_the_upgrade_records_what_uses_secrets(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = migrations.all_migrations()
    index = next(place for place, each in enumerate(every) if each.name == "secret_bindings")
    db.open_database(new_url)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "all_migrations", lambda: every[:index])
            migrations.migrate()
        for table, values in OLD:
            db.write(partial(insert, table, values))
        migrations.migrate()
        rows = db.rows("SELECT kind, target FROM secret_use ORDER BY kind, target")
        assert [tuple(row) for row in rows] == [("integration", "uses"), ("llm-profile", "uses"), ("process", "uses")]
    finally:
        db.close_database()


def insert(table: str, values: dict[str, Any]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608 - names of ours


def old_rows(slug: str, *, uses: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    times = {"tenant_id": "one", "created_at": 1, "updated_at": 1}
    settings = '{"token": "= secrets.token"}' if uses else '{"token": {"sealed": true}}'
    integration = {
        "id": slug, "name": slug, "connector": "http", "settings": settings, "sealed": b"", "version": 1, "concurrency": 8,
    }  # fmt: skip
    yield "integration", {**times, **integration}
    yield "llm_profile", {**times, "id": slug, "settings": "{}", "reference": "token" if uses else None, "version": 1}
    draft = {"definition": '{"grants": {"secrets": ["a"]}}' if uses else "{}", "files": "{}", "draft_digest": ""}
    yield "process", {**times, **draft, "id": slug, "name": slug, "published_version": 1}
    version = {"tenant_id": "one", "process_id": slug, "version": 1, "message": "", "created_at": 1, "created_by": "user:u"}
    yield "process_version", {**draft, **version}


OLD = [
    ("tenant", {"id": "one", "name": "One", "kind": "standard", "created_at": 1}),
    *old_rows("uses", uses=True), *old_rows("none", uses=False),
]  # fmt: skip


def key_of(running: Running, scopes: list[str]) -> Any:
    spec = keys.KeySpec("author", scopes, "test")
    return keys.issue_key(running.tenant("upgraded"), running.services.sealer, spec)[0]


def test_uses_stored_with_secrets_write_are_adopted_silently(before: TenantBeforeUpgrade) -> None:
    before.integration("old-own", f"key:{key_of(before.running, sorted(ALL_SCOPES)).id}")
    assert not before.works("old-own"), "nothing is bound yet"
    before.adopt()
    assert before.works("old-own")
    assert before.find_confirmation("old-own") is None


def test_uses_beyond_their_authors_scopes_are_suspended_until_confirmed(before: TenantBeforeUpgrade) -> None:
    before.integration("old-wide", f"key:{key_of(before.running, INTEGRATIONS).id}")
    before.adopt()
    assert not before.works("old-wide")
    confirmation = before.find_confirmation("old-wide")
    assert confirmation is not None
    assert (confirmation.kind, confirmation.details["reason"], confirmation.deadline) == ("secret", "wider", None)
    assert "suspended" in confirmation.details["why"]
    assert confirmation.details["hosts"] in before.listener.url
    before.decide(confirmation, confirm=True)
    assert before.works("old-wide")
    assert before.find_confirmation("old-wide") is None


def test_uses_without_an_author_work_until_a_deadline(before: TenantBeforeUpgrade) -> None:
    before.integration("old-gone", "user:nobody-here")
    before.adopt()
    confirmation = before.find_confirmation("old-gone")
    assert confirmation is not None
    assert confirmation.details["reason"] == "departed"
    assert confirmation.deadline is not None
    assert 29 * DAY_MS < confirmation.deadline - clock.now_ms() <= 30 * DAY_MS
    assert before.works("old-gone")
    (binding,) = [b for b in secret_bindings.list_bindings(before.scope) if b.destination.target == "old-gone"]
    assert binding.expires_at == confirmation.deadline
    db.write(lambda: db.execute("UPDATE secret_binding SET expires_at = ? WHERE target = 'old-gone'", (clock.now_ms() - 1,)))
    assert not before.works("old-gone"), "it has ended"


def test_refused_uses_end(before: TenantBeforeUpgrade) -> None:
    before.integration("old-refused", "user:nobody-here")
    before.adopt()
    confirmation = before.find_confirmation("old-refused")
    assert confirmation is not None
    before.decide(confirmation, confirm=False)
    assert not before.works("old-refused")


def test_refused_uses_end_when_bound_by_hosts_alone(before: TenantBeforeUpgrade) -> None:
    before.integration("old-hosts", "user:nobody-here")
    before.adopt()
    confirmation = before.find_confirmation("old-hosts")
    assert confirmation is not None
    (binding,) = [b for b in secret_bindings.list_bindings(before.scope) if b.destination.target == "old-hosts"]
    secret_bindings.unbind(before.scope, "topsecret", binding.id)
    secret_bindings.bind(before.scope, "topsecret", replace(binding.destination, digest=""))
    assert before.works("old-hosts")
    before.decide(confirmation, confirm=False)
    assert not before.works("old-hosts")


def test_an_author_is_assessed_by_the_current_role(before: TenantBeforeUpgrade) -> None:
    builder = before.running.user("builder@upgraded.test", "correct horse battery staple", "upgraded", role="builder")
    before.integration("old-member", f"user:{builder}")
    before.adopt()
    assert before.works("old-member")
    people.remove_member(before.scope, builder)


def test_a_key_of_a_removed_member_is_no_author(before: TenantBeforeUpgrade) -> None:
    person = before.running.user("left@upgraded.test", "correct horse battery staple", "upgraded", role="builder")
    by_person = TenantScope(before.scope.tenant_id, f"user:{person}", ALL_SCOPES)
    spec = keys.KeySpec("author", [*INTEGRATIONS, "secrets.write"], "test")
    key = keys.issue_key(by_person, before.running.services.sealer, spec)[0]
    people.remove_member(before.scope, person)
    before.integration("old-left", f"key:{key.id}")
    before.adopt()
    confirmation = before.find_confirmation("old-left")
    assert confirmation is not None
    assert confirmation.details["reason"] == "departed"


def test_a_key_that_rotated_itself_is_still_the_author(before: TenantBeforeUpgrade) -> None:
    first = key_of(before.running, sorted(ALL_SCOPES))
    by_key = TenantScope(before.scope.tenant_id, f"key:{first.id}", ALL_SCOPES)
    second, _ = keys.rotate_key(by_key, before.running.services.sealer, first.id, 0)
    before.integration("old-rotated", f"key:{second.id}")
    before.adopt()
    assert before.find_confirmation("old-rotated") is None
    assert before.works("old-rotated")


def test_an_orphaned_key_is_no_author(before: TenantBeforeUpgrade) -> None:
    orphan = key_of(before.running, sorted(ALL_SCOPES))
    orphan.orphaned_at, orphan.orphan_until = clock.now_ms() - 1, clock.now_ms() + DAY_MS
    db.write(orphan.save)
    before.integration("old-orphaned", f"key:{orphan.id}")
    before.adopt()
    confirmation = before.find_confirmation("old-orphaned")
    assert confirmation is not None
    assert confirmation.details["reason"] == "departed"


@pytest.mark.parametrize(
    "definition",
    ['{"id": "odd", "grants": {"secrets": ["no-such-name"]}, "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}',
     '{"id": "odd", "grants": {"secrets": ["topsecret"]}, "steps": "of an earlier release"}'],
    ids=["a-name-no-secret-has", "unreadable-now"],
)  # fmt: skip
def test_an_unreadable_process_blocks_neither_start_nor_console(before: TenantBeforeUpgrade, definition: str) -> None:
    body = {"definition": {"id": "odd", "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}}
    before.owner.put(f"{API}/processes/odd", json=body).raise_for_status()
    before.owner.post(f"{API}/processes/odd/publish", json={}).raise_for_status()
    update = "UPDATE process_version SET definition = ? WHERE tenant_id = ? AND process_id = 'odd'"
    db.write(lambda: db.execute(update, (definition, before.scope.tenant_id)))
    insert = "INSERT INTO secret_use (tenant_id, kind, target) VALUES (?, 'process', 'odd')"
    db.write(lambda: db.execute(insert, (before.scope.tenant_id,)))
    before.integration("old-beside", "system")
    try:
        before.adopt()
        assert before.works("old-beside")
        assert unbound_uses(before.running.services.referrers, before.scope, "topsecret") == []
    finally:
        before.owner.delete(f"{API}/processes/odd")


def test_a_tenant_with_many_uses_is_adopted_completely(before: TenantBeforeUpgrade, monkeypatch: pytest.MonkeyPatch) -> None:
    before.integration("old-many", "system")
    monkeypatch.setattr(secret_bindings, "MAX_BINDINGS", 0)
    before.adopt()
    assert before.works("old-many")


def test_the_page_names_the_hosts_and_the_reason(before: TenantBeforeUpgrade) -> None:
    before.integration("old-told", "user:nobody-here")
    before.adopt()
    confirmation = before.find_confirmation("old-told")
    assert confirmation is not None
    view = VIEWS["secret"](confirmation, "somebody")
    assert [line.text for line in view.lines] == ["by the integration old-told", f"sent to {confirmation.details['hosts']}"]
    assert "Who set it up is unknown" in view.why

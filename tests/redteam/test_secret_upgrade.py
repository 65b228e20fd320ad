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


class Before:
    """A tenant as the upgrade finds it: uses of a secret by nobody's leave."""

    def __init__(self, running: Running, owner: httpx.Client, listener: Listener) -> None:
        self.running, self.owner, self.listener = running, owner, listener
        self.scope = running.tenant("upgraded")

    def integration(self, slug: str, author: str) -> None:
        """An integration with the secret, last changed by `author`."""
        self.owner.post(f"{API}/integrations", json=leaking(self.listener.url, slug)).raise_for_status()
        place = (self.scope.tenant_id, slug)
        db.write(lambda: db.execute("DELETE FROM secret_binding WHERE tenant_id = ? AND target = ?", place))
        told = "UPDATE audit_entry SET actor = ? WHERE tenant_id = ? AND subject = ? AND action = 'integration.create'"
        db.write(lambda: db.execute(told, (author, *place)))
        noted = "INSERT INTO secret_use (tenant_id, kind, target) VALUES (?, 'integration', ?)"
        db.write(lambda: db.execute(noted, place))

    def works(self, slug: str) -> bool:
        answer = self.owner.post(f"{API}/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/x"}})
        assert answer.is_success or answer.json()["error"]["code"] == "policy_denied", answer.text
        return answer.is_success

    def adopt(self) -> None:
        adopt_secret_uses(self.running.services)
        assert db.rows("SELECT target FROM secret_use") == [], "each use is looked at once"

    def asked(self, slug: str) -> Confirmation | None:
        found = [each for each in confirmations.list_open(self.scope) if each.details.get("target") == slug]
        return found[0] if found else None

    def decide(self, asked: Confirmation, confirm: bool) -> None:
        members = {each.login: each.user_id for each in people.list_members(self.scope)}
        owner = members.get(OWNER) or self.running.user(OWNER, "correct horse battery staple", self.scope.tenant_id)
        person = TenantScope(self.scope.tenant_id, f"user:{owner}", ALL_SCOPES)
        self.running.services.confirmations.decide(person, asked.id, confirm)


@pytest.fixture
def before(running: Running) -> Iterator[Before]:
    listener = Listener()
    with running.api("upgraded") as owner:
        owner.put(f"{API}/secrets/topsecret", json={"value": "an old secret"}).raise_for_status()
        yield Before(running, owner, listener)
        for each in owner.get(f"{API}/integrations", params={"limit": 500}).json()["data"]:
            owner.delete(f"{API}/integrations/{each['slug']}")
        owner.delete(f"{API}/secrets/topsecret")
    listener.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema."""
    cluster = None if request.param == "sqlite" else request.getfixturevalue("cluster")
    return f"sqlite:///{tmp_path}/gos.db" if cluster is None else str(cluster.make_database())


def test_the_upgrade_notes_what_uses_secrets(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = migrations.all_migrations()
    here = next(place for place, each in enumerate(every) if each.name == "secret_bindings")
    db.open_database(new_url)
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(migrations, "all_migrations", lambda: every[:here])
            migrations.migrate()
        for table, values in OLD:
            db.write(partial(insert, table, values))
        migrations.migrate()
        found = db.rows("SELECT kind, target FROM secret_use ORDER BY kind, target")
        assert [tuple(row) for row in found] == [("integration", "uses"), ("llm-profile", "uses"), ("process", "uses")]
    finally:
        db.close_database()


def insert(table: str, values: dict[str, Any]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608 - names of ours


def old_rows(slug: str, *, uses: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    times = {"tenant_id": "one", "created_at": 1, "updated_at": 1}
    settings = '{"token": "= secrets.token"}' if uses else '{"token": {"sealed": true}}'
    named = {"id": slug, "name": slug, "connector": "http", "settings": settings, "sealed": b"", "version": 1, "concurrency": 8}
    yield "integration", {**times, **named}
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


def test_what_may_set_secrets_has_stored_is_taken_over_silently(before: Before) -> None:
    before.integration("old-own", f"key:{key_of(before.running, sorted(ALL_SCOPES)).id}")
    assert not before.works("old-own"), "nothing is bound yet"
    before.adopt()
    assert before.works("old-own")
    assert before.asked("old-own") is None


def test_what_goes_beyond_its_author_is_suspended_until_an_owner_confirms(before: Before) -> None:
    before.integration("old-wide", f"key:{key_of(before.running, INTEGRATIONS).id}")
    before.adopt()
    assert not before.works("old-wide")
    asked = before.asked("old-wide")
    assert asked is not None
    assert (asked.kind, asked.details["reason"], asked.deadline) == ("secret", "wider", None)
    assert "suspended" in asked.details["why"]
    assert asked.details["hosts"] in before.listener.url
    before.decide(asked, confirm=True)
    assert before.works("old-wide")
    assert before.asked("old-wide") is None


def test_what_has_lost_its_author_goes_on_until_a_deadline(before: Before) -> None:
    before.integration("old-gone", "user:nobody-here")
    before.adopt()
    asked = before.asked("old-gone")
    assert asked is not None
    assert asked.details["reason"] == "departed"
    assert asked.deadline is not None
    assert 29 * DAY_MS < asked.deadline - clock.now_ms() <= 30 * DAY_MS
    assert before.works("old-gone")
    (binding,) = [b for b in secret_bindings.list_bindings(before.scope) if b.destination.target == "old-gone"]
    assert binding.expires_at == asked.deadline
    db.write(lambda: db.execute("UPDATE secret_binding SET expires_at = ? WHERE target = 'old-gone'", (clock.now_ms() - 1,)))
    assert not before.works("old-gone"), "it has ended"


def test_what_an_owner_refuses_ends(before: Before) -> None:
    before.integration("old-refused", "user:nobody-here")
    before.adopt()
    asked = before.asked("old-refused")
    assert asked is not None
    before.decide(asked, confirm=False)
    assert not before.works("old-refused")


def test_what_an_owner_refuses_ends_also_where_its_hosts_alone_were_chosen(before: Before) -> None:
    before.integration("old-hosts", "user:nobody-here")
    before.adopt()
    asked = before.asked("old-hosts")
    assert asked is not None
    (binding,) = [b for b in secret_bindings.list_bindings(before.scope) if b.destination.target == "old-hosts"]
    secret_bindings.unbind(before.scope, "topsecret", binding.id)
    secret_bindings.bind(before.scope, "topsecret", replace(binding.destination, digest=""))
    assert before.works("old-hosts")
    before.decide(asked, confirm=False)
    assert not before.works("old-hosts")


def test_a_member_is_judged_by_the_role_of_now(before: Before) -> None:
    builder = before.running.user("builder@upgraded.test", "correct horse battery staple", "upgraded", role="builder")
    before.integration("old-member", f"user:{builder}")
    before.adopt()
    assert before.works("old-member")
    people.remove_member(before.scope, builder)


def test_the_key_of_somebody_who_left_is_no_author_any_more(before: Before) -> None:
    person = before.running.user("left@upgraded.test", "correct horse battery staple", "upgraded", role="builder")
    by_person = TenantScope(before.scope.tenant_id, f"user:{person}", ALL_SCOPES)
    spec = keys.KeySpec("author", [*INTEGRATIONS, "secrets.write"], "test")
    key = keys.issue_key(by_person, before.running.services.sealer, spec)[0]
    people.remove_member(before.scope, person)
    before.integration("old-left", f"key:{key.id}")
    before.adopt()
    asked = before.asked("old-left")
    assert asked is not None
    assert asked.details["reason"] == "departed"


def test_a_key_that_rotated_itself_is_still_the_author(before: Before) -> None:
    first = key_of(before.running, sorted(ALL_SCOPES))
    by_key = TenantScope(before.scope.tenant_id, f"key:{first.id}", ALL_SCOPES)
    second, _ = keys.rotate_key(by_key, before.running.services.sealer, first.id, 0)
    before.integration("old-rotated", f"key:{second.id}")
    before.adopt()
    assert before.asked("old-rotated") is None
    assert before.works("old-rotated")


def test_a_key_that_waits_for_its_adoption_is_no_author(before: Before) -> None:
    orphan = key_of(before.running, sorted(ALL_SCOPES))
    orphan.orphaned_at, orphan.orphan_until = clock.now_ms() - 1, clock.now_ms() + DAY_MS
    db.write(orphan.save)
    before.integration("old-orphaned", f"key:{orphan.id}")
    before.adopt()
    asked = before.asked("old-orphaned")
    assert asked is not None
    assert asked.details["reason"] == "departed"


@pytest.mark.parametrize(
    "definition",
    ['{"id": "odd", "grants": {"secrets": ["no-such-name"]}, "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}',
     '{"id": "odd", "grants": {"secrets": ["topsecret"]}, "steps": "of an earlier release"}'],
    ids=["a-name-no-secret-has", "unreadable-now"],
)  # fmt: skip
def test_an_odd_process_keeps_neither_the_start_nor_the_console(before: Before, definition: str) -> None:
    body = {"definition": {"id": "odd", "steps": [{"id": "a", "rule": {"expression": "= 1"}}]}}
    before.owner.put(f"{API}/processes/odd", json=body).raise_for_status()
    before.owner.post(f"{API}/processes/odd/publish", json={}).raise_for_status()
    changed = "UPDATE process_version SET definition = ? WHERE tenant_id = ? AND process_id = 'odd'"
    db.write(lambda: db.execute(changed, (definition, before.scope.tenant_id)))
    noted = "INSERT INTO secret_use (tenant_id, kind, target) VALUES (?, 'process', 'odd')"
    db.write(lambda: db.execute(noted, (before.scope.tenant_id,)))
    before.integration("old-beside", "system")
    try:
        before.adopt()
        assert before.works("old-beside")
        assert unbound_uses(before.running.services, before.scope, "topsecret") == []
    finally:
        before.owner.delete(f"{API}/processes/odd")


def test_a_tenant_with_many_uses_is_taken_over_whole(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    before.integration("old-many", "system")
    monkeypatch.setattr(secret_bindings, "MAX_BINDINGS", 0)
    before.adopt()
    assert before.works("old-many")


def test_the_page_names_the_hosts_and_the_reason(before: Before) -> None:
    before.integration("old-told", "user:nobody-here")
    before.adopt()
    asked = before.asked("old-told")
    assert asked is not None
    told = VIEWS["secret"](asked, "somebody")
    assert [line.text for line in told.lines] == ["by the integration old-told", f"sent to {asked.details['hosts']}"]
    assert "Who set it up is unknown" in told.why

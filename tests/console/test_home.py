"""The console's home page: open tasks by the reader's permissions, and the first steps of a new tenant."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from appliance.console.frame.menu import MENU
from appliance.core import clock
from appliance.core.database.sqlite import Sqlite
from appliance.core.scope import TenantScope
from appliance.tenants import AccountChanges, AccountSpec, accounts, people, scopes_of_role, service_accounts
from appliance.tenants.keys import keys
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

BROKEN: dict[str, Any] = {"id": "broken", "name": "Broken", "steps": [{"id": "break", "rule": {"expression": "= input.no.way"}}]}


def get_home(browser: Browser, tenant: str) -> str:
    page = browser.get(browser.at(tenant, "/console/"))
    assert (page.status_code, browser.url) == (200, browser.at(tenant, "/console/"))
    return page.text


def test_a_new_tenant_sees_its_first_steps(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    staff.user("owner@newcomer.test", PASSWORD, "newcomer", "owner")
    staff.user("viewer@newcomer.test", PASSWORD, "newcomer", "viewer")
    owner, viewer = signed_in("owner@newcomer.test"), signed_in("viewer@newcomer.test")
    first = get_home(owner, "newcomer")
    assert "All clear" in first
    assert "Build a process" in first
    assert "1 of 3 done" in first, "another member has joined already"
    assert "First steps" not in get_home(viewer, "newcomer")
    with staff.api("newcomer") as api:
        resources = Resources(staff, "newcomer", api)
        process = resources.process()
        page = get_home(owner, "newcomer")
        assert (f'href="/console/processes/{process}"' in page, "filled in with an example" in page) == (True, False)
        with_example = resources.process(name="Z", input={"properties": {"n": {"type": "integer", "examples": [7]}}})
        page = get_home(owner, "newcomer")
        assert (f"/console/processes/{with_example}?from=example" in page, "filled in with an example" in page) == (True, True)
        resources.execution(process)
    assert "First steps" not in get_home(owner, "newcomer"), "a key was issued, and it has run"


def test_the_key_of_the_first_run_does_not_count_as_an_issued_key(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    staff.user("owner@firstkey.test", PASSWORD, "firstkey", "owner")
    owner, scope = signed_in("owner@firstkey.test"), staff.tenant("firstkey")
    spec = keys.KeySpec("first run", ["processflow.read"], keys.FIRST)
    keys.issue_key(scope, staff.services.sealer, spec, lifetime_ms=86_400_000)
    assert "0 of 3 done" in get_home(owner, "firstkey")
    keys.issue_key(scope, staff.services.sealer, keys.KeySpec("mine", ["processflow.read"]))
    assert "1 of 3 done" in get_home(owner, "firstkey")


def test_the_badge_counts_requests_the_reader_can_decide(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    for role in ("owner", "operator"):
        staff.user(f"{role}@badge.test", PASSWORD, "badge", role)
    owner, operator = signed_in("owner@badge.test"), signed_in("operator@badge.test")
    with staff.api("badge") as api:
        Resources(staff, "badge", api).request()
    assert 'title="1 request to decide"' in get_home(owner, "badge")
    assert "to decide" not in get_home(operator, "badge"), "approvers are needed"


def test_an_administrator_is_reminded_of_backups_and_dismisses_steps(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    staff.user("owner@beginner.test", PASSWORD, "beginner", "owner")
    people.add_member(staff.tenant("beginner"), "owner@acme.test", "owner")
    own, other = Browser(staff), signed_in("owner@beginner.test")
    own.sign_in("owner@acme.test", PASSWORD, "beginner")
    assert "Create a backup" in get_home(own, "beginner")
    assert "Create a backup" not in get_home(other, "beginner")
    assert own.post(own.at("beginner", "/console/first-steps/dismiss"), {}).status_code == 200
    assert "First steps" not in get_home(own, "beginner")
    assert "First steps" in get_home(other, "beginner")


def test_owners_see_service_accounts_for_which_nobody_is_responsible(
    staff: Running, signed_in: Callable[[str], Browser]
) -> None:
    for role in ("owner", "builder"):
        staff.user(f"{role}@machinery.test", PASSWORD, "machinery", role)
    staff.user("leaver@machinery.test", PASSWORD, "machinery", "owner")
    owner, builder = signed_in("owner@machinery.test"), signed_in("builder@machinery.test")
    leaver = f"user:{people.find_user('leaver@machinery.test').id}"
    scope = TenantScope("machinery", leaver, scopes_of_role("owner"))
    spec = AccountSpec("intake", "Intake of <orders>", ["skills.read"])
    service_accounts.create_account(scope, spec)
    service_accounts.create_account(scope, replace(spec, id="attended", title="Attended", responsible="owner@machinery.test"))
    assert "Nobody is responsible" not in get_home(owner, "machinery")
    accounts.disable_account("leaver@machinery.test")
    page = get_home(owner, "machinery")
    assert ("Nobody is responsible" in page, "Intake of &lt;orders&gt;" in page, "Attended" in page) == (True, True, False)
    assert 'href="/console/service-accounts/intake"' in page
    assert "Nobody is responsible" not in get_home(builder, "machinery"), "only owners can name somebody"
    changes = AccountChanges(responsible="owner@machinery.test")
    service_accounts.change_account(replace(scope, actor="system"), "intake", changes)
    assert "Nobody is responsible" not in get_home(owner, "machinery")


def test_shortcuts_of_the_menu_are_unique() -> None:
    keys = [section.key for group in MENU for section in group.sections]
    assert sorted(keys) == sorted(set(keys))
    assert not {"g", "/", "?"} & set(keys), "these have another meaning after g"
    assert all(len(key) == 1 for key in keys)


def test_open_tasks_are_shown_to_those_with_the_permission(staff: Running, signed_in: Callable[[str], Browser]) -> None:
    staff.user("owner@needy.test", PASSWORD, "needy", "owner")
    staff.user("operator@needy.test", PASSWORD, "needy", "operator")
    owner, operator = signed_in("owner@needy.test"), signed_in("operator@needy.test")
    with staff.api("needy") as api:
        resources = Resources(staff, "needy", api)
        api.post("/api/v1/processes", json=BROKEN).raise_for_status()
        api.post("/api/v1/processes/broken/publish", json={}).raise_for_status()
        resources.execution("broken")
        approval_id = resources.request()
        soon, late = fresh("soon"), fresh("late")
        for name, days in ((soon, 29), (late, 31)):
            ends = clock.rfc3339(clock.now_ms() + days * 86_400_000)
            api.post("/api/v1/keys", json={"name": name, "scopes": ["logs.read"], "expires_at": ends}).raise_for_status()
    page = get_home(owner, "needy")
    for part in ("New failures", "broken: ", f"/console/approvals/{approval_id}", "API keys expiring within 30 days", soon):
        assert part in page
    assert late not in page
    page = get_home(operator, "needy")
    assert "New failures" in page
    assert approval_id not in page, "not theirs to decide"
    assert "API keys expiring" not in page, "not theirs to rotate"


def test_the_first_steps_take_as_many_statements_with_many_processes(
    staff: Running, signed_in: Callable[[str], Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    staff.user("owner@builder.test", PASSWORD, "builder", "owner")
    owner = signed_in("owner@builder.test")
    executed: list[str] = []
    run_statement = Sqlite._execute_cursor

    def counted(self: Sqlite, sql: str, *arguments: Any) -> Any:
        executed.append(sql)
        return run_statement(self, sql, *arguments)

    def statements_on_processes() -> int:
        executed.clear()
        get_home(owner, "builder")
        return sum("process_version" in sql or 'FROM "process"' in sql for sql in executed)

    with staff.api("builder") as api:
        resources = Resources(staff, "builder", api)
        resources.process()
        monkeypatch.setattr(Sqlite, "_execute_cursor", counted)
        one = statements_on_processes()
        for _ in range(3):
            resources.process()
        assert statements_on_processes() == one > 0

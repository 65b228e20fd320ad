"""While a tenant is reset, its hosts and keys get 503, whoever waits for it gets an answer, and other tenants notice nothing."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.errors import Conflict
from appliance.core.leases.open_tenants import fenced_tenants, is_open
from appliance.solutions import read_solution
from appliance.tenants import people, request_guards, service
from appliance.tenants.grants import grants
from appliance.testing.running import Running
from appliance.web.deleted_tenants import explain_fault
from appliance.webapps.routes import required_access, subject_of
from tests.api.resources import Resources, fresh
from tests.backups.test_emptying import count_rows
from tests.processes.world import wait_until

FILES = {"solution.yaml": b"name: wanted\n", "collections/parts.yaml": b"name: parts\nfields:\n  - {name: number, type: text}\n"}


@contextmanager
def paused_reset(running: Running, tenant: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block, a reset of the tenant has begun and deletes nothing yet; afterwards it is complete."""
    has_begun, may_go_on, empty = threading.Event(), threading.Event(), short_writes.delete

    def pause(*args: Any) -> int:
        has_begun.set()
        assert may_go_on.wait(60)
        return empty(*args)

    monkeypatch.setattr(short_writes, "delete", pause)
    resets = running.services.transfers.resets
    with ThreadPoolExecutor(1) as threads:
        reset = threads.submit(resets.reset, running.tenant(tenant), FILES)
        try:
            assert has_begun.wait(60)
            yield
        finally:
            may_go_on.set()
        assert reset.result(60).deleted > 0


def check_refused(response: httpx.Response) -> None:
    error = response.json()["error"]
    assert (response.status_code, error["code"], response.headers["Retry-After"]) == (503, "overloaded", "5"), response.text
    assert error["message"] == "this tenant is being reset; try again when that is done"


def test_a_tenant_that_is_reset_answers_nothing_but_the_page_of_its_reset(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = fresh("resetting"), fresh("other")
    with running.api(name) as client, running.api(other) as others:
        resources = Resources(running, name, client)
        app, process = resources.webapp(), resources.process()
        resources.execution(process)
        key = {"X-API-Key": client.headers["X-API-Key"]}
        base, content = running.config.domains.base, running.config.domains.content
        with paused_reset(running, name, monkeypatch):
            check_refused(client.get("/api/v1/tenant"))
            check_refused(client.post(f"/api/v1/processes/{process}/execute", json={}))
            for path in ("/console", "/console/settings", "/hooks/orders", "/mcp", "/api-docs/"):
                check_refused(client.post(path) if path in ("/hooks/orders", "/mcp") else client.get(path))
            for browser in ({"Accept": "text/html,*/*;q=0.8"}, {"Sec-Fetch-Mode": "navigate"}):
                page = client.get("/console/settings", headers=browser)
                assert (page.status_code, page.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
                assert "<p>This tenant is being reset; try again when that is done</p>" in page.text
            german = client.get("/console/", headers={"Accept": "text/html", "Accept-Language": "de", "X-Request-ID": "<i>"}).text
            for text in ('lang="de"', "<h1>Zurzeit nicht verfügbar</h1>", "<p>Dieser Mandant wird gerade zurückgesetzt;"):
                assert text in german
            assert (">Erneut versuchen</a>" in german, "<small>Anfrage req_" in german) == (True, True)
            check_refused(client.get("/api/v1/tenant", headers={"Accept": "text/html"}))
            check_refused(client.post("/console/settings", headers={"Accept": "text/html"}))
            check_refused(client.get("/console/", headers={"Sec-Fetch-Mode": "cors", "Accept": "text/html"}))
            for host in (f"{app}--{name}.{content}", f"cdn--{name}.{content}"):
                with running.client(host) as visitor:
                    for path in ("/", "/static/app.js", "/console/settings/reset"):
                        check_refused(visitor.get(path))
            with running.client(base, key) as at_base:
                check_refused(at_base.get("/api/v1/tenant"))
                assert at_base.get("/healthz").status_code == 200
            page = client.get("/console/settings/reset")
            assert page.status_code != 503, "its owners see the progress there, after they have signed in"
            assert client.get("/static/console.css").status_code != 503
            assert others.get("/api/v1/tenant").status_code == 200
            late = explain_fault(RuntimeError("a foreign key"), name)
            assert "is being reset" in str(late)
            with pytest.raises(RuntimeError, match="a foreign key"):
                raise explain_fault(RuntimeError("a foreign key"), other)
        assert [each["name"] for each in client.get("/api/v1/datapool").raise_for_status().json()["data"]] == ["parts"]


def test_whoever_waits_for_an_execution_gets_an_answer_when_its_tenant_is_reset(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fresh("resetting")
    with running.api(name) as client, ThreadPoolExecutor(2) as threads:
        resources = Resources(running, name, client)
        process, execution = resources.waiting_execution()
        triggered = resources.triggered_process()
        began = clock.monotonic()
        waiting = threads.submit(client.post, f"/api/v1/processes/{process}/execute", params={"wait": 50}, json={})
        stream = threads.submit(client.get, f"/api/v1/processes/{process}/executions/{execution}/events", timeout=50)
        wait_until(lambda: count(name, "execution WHERE status = 'waiting' AND tenant_id = ?") == 2)
        with paused_reset(running, name, monkeypatch):
            assert count(name, "execution WHERE status <> 'cancelled' AND tenant_id = ?") == 0
            assert count(name, "trigger_state WHERE tenant_id = ?") == 0, triggered
            answer, events = waiting.result(40), stream.result(40)
        assert clock.monotonic() - began < 45, "they are told, and do not wait until their time is over"
        assert (answer.status_code, events.status_code) == (200, 200)
        assert answer.json()["data"]["status"] == "cancelled"
        assert answer.json()["data"]["error"]["message"] == "The tenant is being reset or deleted, which ends what was under way."
        assert count(name, "execution WHERE tenant_id = ?") == 0


def count(tenant: str, of: str) -> int:
    return int(db.rows(f"SELECT count(*) FROM {of}", (tenant,))[0][0])  # noqa: S608


def test_requests_are_accepted_at_once_after_a_reset(running: Running) -> None:
    name = fresh("resetting")
    with running.api(name) as client:
        assert client.get("/api/v1/tenant").status_code == 200
        db.write(lambda: service.begin_reset(running.tenant(name), force=False))
        check_refused(client.get("/api/v1/tenant"))
        with pytest.raises(Conflict, match="is being reset; try again when that is done"):
            db.write(lambda: service.begin_reset(running.tenant(name), force=True))
        assert (is_open(name), name in fenced_tenants()) == (False, True)
        db.write(lambda: service.end_reset(running.tenant(name)))
        assert client.get("/api/v1/tenant").status_code == 200
        assert (is_open(name), name in fenced_tenants()) == (True, False)


APP = {"app.yaml": b"{}\n", "public/index.html": b"<p>" + b"a text that is worth an encoding " * 200}
SKILL = b"---\nname: %s\ndescription: a\n---\na\n"


def apps_and_skills(apps: int, skills: int) -> dict[str, bytes]:
    files = {f"webapps/app-{number}/{path}": content for number in range(apps) for path, content in APP.items()}
    return FILES | files | {f"SKILLS/skill-{number}/SKILL.md": SKILL % b"skill-%d" % number for number in range(skills)}


@pytest.mark.parametrize(("apps", "skills", "problem"), [(201, 0, "at most 200 WebApps"), (0, 501, "at most 500 skills")])
def test_what_only_applying_refuses_is_refused_before_anything_is_deleted(
    running: Running, apps: int, skills: int, problem: str
) -> None:
    name = fresh("resetting")
    with running.api(name) as client:
        process = Resources(running, name, client).process()
        with pytest.raises(Conflict, match=problem):
            running.services.transfers.resets.reset(running.tenant(name), apps_and_skills(apps, skills))
        assert client.get(f"/api/v1/processes/{process}").status_code == 200
        assert count(name, "audit_entry WHERE action = 'tenant.reset' AND tenant_id = ?") == 0


def test_an_app_whose_access_an_owner_has_withdrawn_is_refused_before_anything_is_deleted(running: Running) -> None:
    name = fresh("resetting")
    files = {
        **FILES, "processes/p/process.yaml": b"id: p\nsteps:\n - {id: w, wait: {for: 1s}}\n", "webapps/a/public/index.html": b"x",
        "webapps/a/app.yaml": b"routes:\n - {path: /x, method: POST, process: p, access: public}\n",
    }  # fmt: skip
    solution, scope = read_solution(files), running.tenant(name)
    access = required_access(solution.webapps["a"].routes)
    person = people.create_user(f"{name}@example.com", None)
    people.add_member(scope, person.login, "owner")
    owner = replace(scope, actor=f"user:{person.id}")
    db.write(lambda: grants.give_grant(scope, subject_of("a"), access))
    db.write(lambda: grants.withdraw_grant(owner, subject_of("a"), access.digest))
    with running.api(name) as client:
        process = Resources(running, name, client).process()
        with pytest.raises(Conflict, match="an owner withdrew or refused access that the WebApp 'a' needs"):
            running.services.transfers.resets.reset(scope, files)
        assert client.get(f"/api/v1/processes/{process}").status_code == 200


def test_a_reset_brings_apps_with_their_contents_and_skills(running: Running) -> None:
    name = fresh("resetting")
    with running.api(name) as client:
        running.services.transfers.resets.reset(running.tenant(name), apps_and_skills(2, 2))
        with running.client(f"app-1--{name}.{running.config.domains.content}") as visitor:
            assert visitor.get("/").content == APP["public/index.html"]
        assert [each["name"] for each in client.get("/api/v1/skills").json()["data"]] == ["skill-0", "skill-1"]


# -- what came before, or to a process that does not know of the reset yet


def unknown(tenant: str) -> None:
    """As in another process, which looked a moment ago whether the tenant is being reset."""
    ((created_at,),) = db.rows("SELECT created_at FROM tenant WHERE id = ?", (tenant,))
    request_guards._states[tenant] = request_guards._State(clock.monotonic() + 60, int(created_at), 0)


def at_base_host(running: Running, client: httpx.Client) -> httpx.Response:
    with running.client(running.config.domains.base, {"X-API-Key": client.headers["X-API-Key"]}) as at_base:
        return at_base.post("/api/v1/documents", params={"name": "late.txt"}, content=b"late")


LATE: dict[str, Callable[[Resources, httpx.Client, dict[str, str]], httpx.Response]] = {
    "a document": lambda _, client, __: client.post("/api/v1/documents", params={"name": "late.txt"}, content=b"late"),
    "an entity": lambda _, client, known: client.post(
        f"/api/v1/datapool/{known['collection']}/entities", json={"number": "late", "total": 1}
    ),
    "an execution": lambda _, client, known: client.post(f"/api/v1/processes/{known['process']}/execute", json={}),
    "one that is awaited": lambda _, client, known: client.post(
        f"/api/v1/processes/{known['process']}/execute", params={"wait": 5}, json={}
    ),
    "a secret that the solution needs": lambda resources, client, known: client.delete(f"/api/v1/secrets/{known['secret']}"),
    "a webhook": lambda _, client, known: client.post(f"/hooks/{known['process']}", json={}, headers={"X-API-Key": ""}),
    "at the base host": lambda resources, client, _: at_base_host(resources.running, client),
}


def hooked_process(resources: Resources) -> str:
    """A process whose id is the path of its webhook."""
    name = resources.process()
    definition = {"id": name, "steps": [{"id": "answer", "rule": {"expression": "= 1"}}]}
    trigger = {"webhook": {"path": name, "verify": {"kind": "none"}}}
    resources.ask("PUT", f"/processes/{name}", {**definition, "triggers": [trigger]})
    resources.ask("POST", f"/processes/{name}/publish", {})
    return name


@pytest.mark.parametrize("what", LATE)
def test_a_process_that_does_not_know_of_a_reset_writes_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    name = fresh("resetting")
    with running.api(name) as client:
        resources = Resources(running, name, client)
        known = {"process": hooked_process(resources), "collection": resources.collection(), "secret": resources.secret()}
        with paused_reset(running, name, monkeypatch):
            before = rows_of(name)
            unknown(name)
            check_refused(LATE[what](resources, client, known))
            assert rows_of(name) == before
            request_guards.forget_state(name)


def test_a_process_that_has_missed_a_whole_reset_refuses_one_write(running: Running) -> None:
    """It cannot tell the request from one that began before the reset."""
    name = fresh("resetting")
    with running.api(name) as client:
        running.services.transfers.resets.reset(running.tenant(name), apps_and_skills(1, 0))
        unknown(name)
        refused, accepted = (client.post("/api/v1/documents", params={"name": "new.txt"}, content=b"new") for _ in range(2))
        assert refused.status_code == 503
        assert "this tenant was reset while your request was under way" in refused.text
        assert accepted.status_code == 201


def rows_of(tenant: str) -> dict[str, int]:
    """Without what counts requests."""
    counted = ("key_usage", "key_address", "tally")
    return {table: number for table, number in count_rows(tenant).items() if table not in counted}


def test_an_upload_that_began_before_a_reset_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    name = fresh("resetting")
    with running.api(name) as client, ThreadPoolExecutor(1) as threads:
        Resources(running, name, client).process()
        has_begun, may_end = threading.Event(), threading.Event()

        def content() -> Iterator[bytes]:
            yield b"x" * 100_000
            has_begun.set()
            assert may_end.wait(60)
            yield b"x" * 100_000

        sending = threads.submit(client.post, "/api/v1/documents", params={"name": "large.bin"}, content=content())
        assert has_begun.wait(10), sending.result(10).text
        with paused_reset(running, name, monkeypatch):
            may_end.set()
            check_refused(sending.result(60))
            assert count(name, "document WHERE tenant_id = ?") == 0

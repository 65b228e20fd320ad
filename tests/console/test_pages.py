"""Pages of a tenant's console: what they show, to whom, and what they refuse."""

import json
import re
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.console.blueprint import PAGES
from appliance.console.frame.routing import PageRoute
from appliance.console.frame.session import SIGN_OUT
from appliance.core.interface import ui_folder
from appliance.processes.engine import FINISHED
from appliance.testing.running import Running
from tests.console.browser import Browser

INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", re.IGNORECASE)
LISTS = [
    "processes", "executions", "approvals", "failures", "logs", "monitor", "alerts", "datapool", "integrations", "documents",
    "webapps", "policies", "kill-switches", "keys", "about",
]  # fmt: skip


def path_of(route: PageRoute) -> str:
    return re.sub(r"<\w+>", "unknown", route.path)


def execute(acme: httpx.Client, guest: str) -> str:
    """The id of a finished execution of `greeting`."""
    answer = acme.post("/api/v1/processes/greeting/execute?wait=30", json={"guest": guest}).json()["data"]
    assert answer["status"] in FINISHED
    return str(answer["execution_id"])


@pytest.mark.parametrize("role", ["owner", "builder", "operator", "viewer"])
@pytest.mark.parametrize("name", LISTS)
def test_every_member_sees_the_lists(signed_in: Callable[[str], Browser], greeting: str, name: str, role: str) -> None:
    browser = signed_in(f"{role}@acme.test")
    page = browser.get(browser.at("acme", f"/console/{name}"))
    assert page.status_code == 200
    assert urlsplit(browser.url).path == f"/console/{name}"
    assert 'aria-current="page"' in page.text
    assert not INLINE.search(page.text)
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")


def test_about_says_how_busy_the_sandbox_is(signed_in: Callable[[str], Browser], greeting: str) -> None:
    browser = signed_in("viewer@acme.test")
    page = browser.get(browser.at("acme", "/console/about"))
    assert re.search(r"<dt>Sandbox</dt><dd>\d+ of \d+ places in \d+ process(es)? in use, \d+ queued, \d+ restarted", page.text)


def test_no_template_holds_script_or_style() -> None:
    """Except the frame of pages on content hosts, which have no files of the console: its hash is in their policy."""
    violations = [
        f"{path.name}: {match[0]}"
        for path in sorted((ui_folder() / "templates").rglob("*.html"))
        if path.relative_to(ui_folder()).as_posix() != "templates/sites/frame.html"
        if (match := INLINE.search(path.read_text("utf8")))
    ]
    assert violations == []


@pytest.mark.parametrize("route", [r for r in PAGES if r.needs_session], ids=lambda r: f"{r.method} {r.path}")
def test_no_page_opens_without_a_session(staff: Running, route: PageRoute) -> None:
    browser = Browser(staff)
    address = browser.at("acme", path_of(route))
    answer = browser.get(address) if route.method == "GET" else browser.post(address, {})
    if route.method == "GET" or route.path == SIGN_OUT:
        assert urlsplit(browser.url).path == "/sign-in"
    else:
        assert (answer.status_code, "<h1>You were signed out</h1>" in answer.text) == (401, True)


@pytest.mark.parametrize("route", [r for r in PAGES if r.needs_session and r.scope], ids=lambda r: f"{r.method} {r.path}")
def test_a_page_beyond_the_role_is_refused(signed_in: Callable[[str], Browser], route: PageRoute) -> None:
    viewer = signed_in("viewer@acme.test")
    address = viewer.at("acme", path_of(route))
    page = viewer.get(address) if route.method == "GET" else viewer.post(address, {})
    if route.scope and not route.scope.endswith(".read"):
        assert page.status_code == 403
        assert route.scope in page.text
    else:
        assert page.status_code in (200, 404, 400, 422)  # 422 for a form without its required fields


OF_APPLIANCE = "/console/appliance/"
# Forms that readers may submit, and why.
OPEN_FORMS = {
    "/console/account/password": "one's own", "/console/account/data": "one's own",
    "/console/account/language": "one's own",
    "/console/account/sessions/end": "one's own", "/console/account/sessions/end-all": "one's own",
    "/console/account/factors/<factor_id>/rename": "one's own", "/console/account/factors/<factor_id>/remove": "one's own",
    "/console/account/recovery-codes": "one's own", "/console/account/recovery-codes/file": "one's own",
    "/console/account/sessions/<sign_in_id>/end": "one's own", "/console/first-steps/dismiss": "one's own", SIGN_OUT: "one's own",
    "/console/confirmations/<confirmation_id>": "an owner decides",
    "/console/approvals": "decides who is asked", "/console/approvals/<approval_id>": "decides who is asked",
    "/console/documents/<document_id>/reviews/<review_id>": "decides who is asked",
    "/console/skills/<name>/approve": "an approver decides", "/console/skills/<name>/revoke": "an approver decides",
    "/console/quotas": "administrators of the appliance", "/console/quotas/expiry": "administrators of the appliance",
    "/console/audit/verify": "changes nothing", "/console/policies/-/decide": "changes nothing",
}  # fmt: skip


def test_changes_need_more_than_a_read_scope() -> None:
    """The test above trusts the scope that a route declares; this one compares it with what the route does."""
    posts = [route for route in PAGES if route.method == "POST"]
    unprotected = {route.path for route in posts if route.scope is None or route.scope.endswith(".read")}
    assert {path for path in unprotected if not path.startswith(OF_APPLIANCE)} == OPEN_FORMS.keys()


@pytest.mark.parametrize(
    "route", [r for r in PAGES if r.path.startswith(OF_APPLIANCE)], ids=lambda r: f"{r.method} {r.path}"
)  # fmt: skip
def test_pages_of_the_appliance_are_for_administrators(signed_in: Callable[[str], Browser], route: PageRoute) -> None:
    """An owner of a tenant is none of them."""
    browser = signed_in("owner@globex.test")
    address = browser.at("globex", path_of(route))
    page = browser.get(address) if route.method == "GET" else browser.post(address, {})
    assert page.status_code == 403
    assert "administrators of the appliance" in page.text


@pytest.mark.parametrize("route", [r for r in PAGES if r.method == "POST"], ids=lambda r: r.path)
def test_a_form_of_another_site_is_refused(owner: Browser, route: PageRoute) -> None:
    page = owner.post(owner.at("acme", path_of(route)), {}, **{"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 403
    assert "another site" in page.text


def test_things_of_other_tenants_look_like_missing_ones(
    signed_in: Callable[[str], Browser], acme: httpx.Client, greeting: str
) -> None:
    stranger = signed_in("owner@globex.test")
    execution = execute(acme, "Ada")
    key = acme.post("/api/v1/keys", json={"name": "stays", "scopes": ["logs.read"]}).json()["data"]["id"]
    for kind, foreign in (("processes", greeting), ("executions", execution)):
        pages = [stranger.get(stranger.at("globex", f"/console/{kind}/{name}")) for name in (foreign, "unknown-one")]
        assert [page.status_code for page in pages] == [404, 404]
    for action in ("rotate", "revoke"):
        assert stranger.post(stranger.at("globex", f"/console/keys/{key}/{action}"), {"overlap": "0"}).status_code == 404
    assert stranger.post(stranger.at("globex", f"/console/executions/{execution}/cancel"), {}).status_code == 404
    assert acme.get(f"/api/v1/keys/{key}").json()["data"].get("revoked_at") is None


def test_the_form_has_the_fields_of_the_schema_and_text_stays_text(owner: Browser, greeting: str) -> None:
    page = owner.get(owner.at("acme", f"/console/processes/{greeting}")).text
    for part in ('name="in/guest"', 'name="in/times"', 'name="in/note/text"', 'value="1"', "Greets a &lt;guest&gt; &amp; counts"):
        assert part in page
    example = owner.get(owner.at("acme", f"/console/processes/{greeting}?from=example")).text
    assert 'value="Ada"' in example


def test_a_run_leads_to_its_execution_and_a_form_sent_twice_runs_once(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    address = owner.at("acme", f"/console/processes/{greeting}")
    form = {"token": "once", "in/guest": "Grace", "in/times": "2"}
    owner.post(address, form)
    first = owner.url
    owner.post(address, form)
    assert owner.url == first
    execution = acme.get(f"/api/v1/processes/{greeting}/executions/{first.rsplit('/', maxsplit=1)[1]}").json()["data"]
    assert execution["input"] == {"guest": "Grace", "times": 2}


@pytest.mark.parametrize(
    ("form", "status", "message"),
    [
        ({"in/guest": "A"}, 422, 'id="in/guest-error"'),
        ({"in/guest": "", "in/times": "1"}, 422, "This member is required."),
        ({"in/guest": "Ada", "in/times": "x"}, 422, "Enter a whole number."),
        ({"as": "json", "in": "{"}, 422, "Invalid JSON"),
        ({"as": "json", "in": "[]"}, 422, "The input must be a JSON object"),
        ({"as": "json", "in": '{"guest": "Ada", "more": 1}'}, 422, "not known here"),
    ],
)
def test_invalid_input_is_explained_at_its_field_and_stays(
    owner: Browser, acme: httpx.Client, greeting: str, form: dict[str, str], status: int, message: str
) -> None:
    before = acme.get("/api/v1/executions?count=exact").json()["meta"]["total"]
    page = owner.post(owner.at("acme", f"/console/processes/{greeting}"), form)
    assert page.status_code == status
    assert message in page.text
    assert 'aria-invalid="true"' in page.text
    assert acme.get("/api/v1/executions?count=exact").json()["meta"]["total"] == before


def test_a_viewer_sees_no_button_that_would_be_refused(
    signed_in: Callable[[str], Browser], acme: httpx.Client, greeting: str
) -> None:
    viewer, execution = signed_in("viewer@acme.test"), execute(acme, "nobody")
    for path in (f"processes/{greeting}", f"executions/{execution}", "keys", "failures"):
        page = viewer.get(viewer.at("acme", f"/console/{path}")).text
        assert re.findall(r'<form method="post" action="([^"]+)"', page) == ["/console/sign-out"]


def test_a_failure_says_where_and_what_to_do_and_can_be_retried(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    execution = execute(acme, "nobody")
    page = owner.get(owner.at("acme", f"/console/executions/{execution}")).text
    for part in ("Step greet failed", "nobody cannot be greeted", "What to do:", ":3:", "greeting nobody", "Retry from where"):
        assert part in page
    owner.post(owner.at("acme", f"/console/executions/{execution}/retry"), {"from": "failed", "token": "t"})
    assert owner.url != owner.at("acme", f"/console/executions/{execution}")
    assert execution in owner.get(owner.url).text


def test_a_finished_execution_cannot_be_cancelled(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    page = owner.post(owner.at("acme", f"/console/executions/{execute(acme, 'Ada')}/cancel"), {})
    assert page.status_code == 409
    assert "The execution is succeeded already." in page.text


def test_polling_stops_when_the_execution_is_finished(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    part = owner.get(owner.at("acme", f"/console/executions/{execute(acme, 'Ada')}?part=live"))
    assert part.text.lstrip().startswith("<div data-part>")
    assert "data-live" not in part.text
    assert "<html" not in part.text


def test_a_part_without_a_session_is_401_not_a_redirect(staff: Running) -> None:
    assert Browser(staff).get(Browser(staff).at("acme", "/console/logs?part=live")).status_code == 401


def test_a_truncated_value_can_be_downloaded(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    base = owner.at("acme", f"/console/executions/{execute(acme, 'Ada')}/value")
    step = owner.get(f"{base}?part=output&path=greet")
    assert json.loads(step.text) == {"text": "Hello Ada"}
    assert step.headers["Content-Disposition"].startswith("attachment")
    assert json.loads(owner.get(f"{base}?part=input").text) == {"guest": "Ada"}
    assert owner.get(f"{base}?part=state").status_code == 400
    assert owner.get(f"{base}?part=output&path=nope").status_code == 404


def test_a_key_is_shown_once_works_and_is_revoked(owner: Browser, staff: Running) -> None:
    scopes = ["processflow.read", "logs.read"]
    form: dict[str, str | list[str]] = {"name": "shop", "environment": "test", "days": "30", "scopes": scopes}
    page = owner.post(owner.at("acme", "/console/keys/new"), form)
    assert page.status_code == 201
    match = re.search(r'id="key">(gos_test_\w{36})<', page.text)
    assert match is not None
    with staff.client("acme.localhost", {"X-API-Key": match[1]}) as client:
        assert client.get("/api/v1/processes").status_code == 200
        assert client.get("/api/v1/keys").status_code == 403
        listed = owner.get(owner.at("acme", "/console/keys")).text
        assert match[1] not in listed
        key_id = re.findall(r"/console/keys/(key_\w+)/revoke", listed)[0]
        owner.post(owner.at("acme", f"/console/keys/{key_id}/revoke"), {})
        assert client.get("/api/v1/processes").status_code == 401


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scopes": []}, "Select at least one scope"),
        ({"scopes": ["keys.everything"]}, "Name at least one known scope"),
        ({"name": " "}, "Name must have 1 to 200"),
        ({"days": "9999"}, "lifetime must be 1 to 730 days"),
        ({"addresses": "not-an-address"}, "is not an address or network"),
    ],
)
def test_an_invalid_key_form_is_explained(owner: Browser, change: dict[str, str | list[str]], message: str) -> None:
    form: dict[str, str | list[str]] = {"name": "shop", "environment": "test", "days": "30", "scopes": ["logs.read"], **change}
    page = owner.post(owner.at("acme", "/console/keys/new"), form)
    assert page.status_code == 422
    assert message in page.text


def test_a_group_of_failures_is_resolved_and_retried(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    execute(acme, "nobody")
    groups = [g for g in acme.get("/api/v1/logs/failures").json()["data"] if g["process_id"] == greeting]
    assert "nobody cannot be greeted" in owner.get(owner.at("acme", "/console/failures")).text
    owner.post(owner.at("acme", f"/console/failures/{groups[0]['id']}/state"), {"state": "resolved"})
    assert "nobody cannot be greeted" in owner.get(owner.at("acme", "/console/failures?state=resolved")).text
    page = owner.post(owner.at("acme", f"/console/failures/{groups[0]['id']}/retry"), {"version": "published"})
    assert re.search(r"\d+ executions? retried", page.text)


def test_logs_are_searched(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    execute(acme, "Hypatia")
    page = owner.get(owner.at("acme", "/console/logs?text=Hypatia")).text
    assert "greeting Hypatia" in page
    assert "No lines match" in owner.get(owner.at("acme", "/console/logs?text=nobody-ever-said-this")).text


def test_hostile_text_in_an_input_stays_text(owner: Browser, acme: httpx.Client, greeting: str) -> None:
    hostile = "<script>alert(1)</script>\"'{{7*7}}"
    execution = execute(acme, hostile)
    for path in (f"executions/{execution}", f"processes/{greeting}?from={execution}", "logs?text=script"):
        page = owner.get(owner.at("acme", f"/console/{path}"))
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;alert(1)" in page.text
        assert "{{7*7}}" in page.text


@pytest.mark.parametrize("path", ["nowhere", "executions/x/y/z", "processes/unknown", "datapool/unknown", "integrations/unknown"])
def test_a_missing_page_says_so(owner: Browser, path: str) -> None:
    page = owner.get(owner.at("acme", f"/console/{path}"))
    assert page.status_code == 404
    assert "<h1>Not found</h1>" in page.text


@pytest.mark.parametrize("query", ["executions?state=no", "executions?cursor=no", "failures?state=no", "logs?level=no"])
def test_an_invalid_address_is_explained(owner: Browser, query: str) -> None:
    assert owner.get(owner.at("acme", f"/console/{query}")).status_code in (400, 422)


FIELDS = [
    {"name": "title", "type": "text", "required": True},
    {"name": "price", "type": "decimal"},
    {"name": "details", "type": "json"},
]


@pytest.fixture(scope="module")
def books(acme: httpx.Client) -> list[str]:
    """A collection with three entities; answers their ids."""
    acme.post("/api/v1/datapool", json={"name": "console_books", "fields": FIELDS, "search": ["title"]}).raise_for_status()
    rows = (("Emma", "9.25"), ("Dune", "12"), ("Ilias", "3"))
    values = [{"title": title, "price": price, "details": {"a": "<b>"}} for title, price in rows]
    answers = [acme.post("/api/v1/datapool/console_books/entities", json=each).json()["data"] for each in values]
    return [answer["id"] for answer in answers]


def titles(page: httpx.Response) -> list[str]:
    return re.findall(r'class="cover" href="/console/datapool/console_books/[^"]+">(\w+)<', page.text)


def test_entities_are_sorted_searched_and_shown(owner: Browser, books: list[str]) -> None:
    base = owner.at("acme", "/console/datapool/console_books")
    assert "3" in owner.get(owner.at("acme", "/console/datapool")).text
    assert titles(owner.get(f"{base}?sort=price")) == ["Ilias", "Emma", "Dune"]
    assert titles(owner.get(f"{base}?sort=-title")) == ["Ilias", "Emma", "Dune"]
    assert titles(owner.get(f"{base}?search=dune")) == ["Dune"]
    assert "No matches" in owner.get(f"{base}?search=zzz").text
    whole = owner.get(f"{base}/{books[0]}").text
    assert "9.25" in whole
    assert "&lt;b&gt;" in whole
    assert owner.get(f"{base}?sort=nothing").status_code == 400
    assert owner.get(f"{base}/ent_unknown").status_code == 404


def test_an_integration_is_tested_and_its_secret_never_shown(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client
) -> None:
    settings = {"base_url": "http://192.0.2.1:9/", "auth": {"kind": "bearer", "token": "s3cret-never-shown"}}
    created = acme.post("/api/v1/integrations", json={"slug": "console-erp", "connector": "http", "settings": settings})
    assert created.status_code == 201, created.text
    page = owner.post(owner.at("acme", "/console/integrations/console-erp/test"), {})
    assert urlsplit(owner.url).path == "/console/integrations/console-erp"
    assert "The last test failed." in page.text
    assert "s3cret-never-shown" not in page.text
    assert ">encrypted<" in page.text
    viewer = signed_in("viewer@acme.test")
    assert viewer.post(viewer.at("acme", "/console/integrations/console-erp/test"), {}).status_code == 403


def test_the_catalogue_is_searched(owner: Browser) -> None:
    address = owner.at("acme", "/console/integrations/catalogue")
    assert "PostgreSQL 15" in owner.get(address).text
    page = owner.get(f"{address}?q=mariadb").text
    assert ("MariaDB 10.11" in page, "PostgreSQL 15" in page) == (True, False)
    assert "No matching connectors" in owner.get(f"{address}?q=%3Cscript%3Ealert").text


def test_a_draft_is_published_or_every_problem_listed(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client
) -> None:
    steps = [{"id": "one", "rule": {"expression": "= 1 +"}}, {"id": "one", "wait": {"for": "soon"}}]
    acme.put("/api/v1/processes/console-draft", json={"id": "console-draft", "steps": steps}).raise_for_status()
    address = owner.at("acme", "/console/processes/console-draft")
    assert "Not published yet." in owner.get(address).text
    before = owner.get(f"{address}/diff").text
    assert ("The draft cannot be published yet." in before, "the id &#39;one&#39; is taken" in before) == (True, True)
    page = owner.post(f"{address}/publish", {})
    assert page.status_code == 422
    assert "The draft was not published." in page.text
    assert "the id &#39;one&#39; is taken" in page.text
    assert "soon" in page.text
    assert "/console/processes/console-draft/edit?file=process.yaml#line=" in page.text
    steps = [{"id": "one", "rule": {"expression": "= 1"}}]
    acme.put("/api/v1/processes/console-draft", json={"id": "console-draft", "steps": steps}).raise_for_status()
    assert 'data-testid="draft-problems"' not in owner.get(f"{address}/diff").text
    operator = signed_in("operator@acme.test")
    assert operator.post(f"{address}/publish", {}).status_code == 403
    assert "Review and publish it" not in operator.get(address).text
    assert owner.post(f"{address}/publish", {"message": "Now it counts"}).status_code == 200
    published = owner.get(address).text
    assert "Now it counts" in published
    assert "Review and publish it" not in published

"""WebApps of a solution: read, planned, made and published with everything else, pruned, and pulled back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.core.errors import Conflict, DefinitionInvalid, NotFound, ScopeMissing
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.solutions import service
from appliance.solutions.folder import write_folder
from appliance.solutions.kinds.changes import Change
from appliance.solutions.kinds.webapp_deployment import load_published
from appliance.webapps import NewApp, Settings
from appliance.webapps.domains import NewDomain
from tests.solutions.conftest import Gos, SolutionTenant, make_solution, read
from tests.solutions.test_service import actions_of

ROUTES = "routes:\n  - {path: /api/add, method: POST, process: add, access: public}\n"
LIST = "  - {path: /api/things, entities: things, operations: [list], access: public}\n"


def with_app(about: str = "spa: true\n" + ROUTES + LIST, **pages: str) -> dict[str, str]:
    pages = pages or {"index.html": "<h1>Shop</h1>", ".well-known/security.txt": "Contact: mailto:a@example.com", ".draft": "x"}
    public = {f"webapps/shop/public/{path}": text for path, text in pages.items()}
    return make_solution(**{"webapps/shop/app.yaml": about, **public})


def change_of(changes: list[Change]) -> Change:
    (change,) = (change for change in changes if change.kind == "webapp")
    return change


def numbers(tenant: SolutionTenant) -> tuple[int | None, int]:
    """The published and the latest version."""
    webapps = tenant.running.services.webapps.apps
    return webapps.get_app(tenant.scope, "shop").published_version, webapps.list_versions(
        tenant.scope, "shop", PageRequest(1)
    ).items[
        0
    ].number


def problems_of(files: dict[str, str]) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        read(files)
    return [detail.message for detail in caught.value.details]


def test_an_app_is_made_and_published_with_everything_it_leads_to(tenant: SolutionTenant) -> None:
    planned = change_of(tenant.plan(with_app()))
    assert (planned.action, planned.summary, planned.blocked) == ("create", "2 files", None)
    assert change_of(tenant.apply(with_app())).action == "create"
    assert numbers(tenant) == (1, 1)
    with tenant.running.client(f"shop--{tenant.scope.tenant_id}.{tenant.running.config.domains.content}") as visitor:
        assert visitor.get("/").text == "<h1>Shop</h1>"


def test_unchanged_content_creates_no_version(tenant: SolutionTenant) -> None:
    tenant.apply(with_app())
    assert (change_of(tenant.apply(with_app())).action, numbers(tenant)) == ("unchanged", (1, 1))
    later = with_app(**{"index.html": "<h1>New</h1>", "more.html": "more"})
    assert change_of(tenant.plan(later)).summary == "1 file added; 1 file changed; 1 file removed; published as the next version"
    assert (change_of(tenant.apply(later)).action, numbers(tenant)) == ("update", (2, 2))
    files = {"index.html": "<h1>New</h1>", "more.html": "more"}
    assert change_of(tenant.plan(with_app("spa: false\n", **files))).summary == "app.yaml changed; published as the next version"
    tenant.running.services.webapps.apps.roll_back(tenant.scope, "shop", 1)
    assert change_of(tenant.apply(later)).summary == "version 2 has the same content and is published"
    assert numbers(tenant) == (2, 2)


def test_a_failed_check_fails_the_app_alone_and_is_tried_again_without_a_new_version(tenant: SolutionTenant) -> None:
    tenant.apply(with_app("smoke: [{path: /, contains: Shop}]\n"))
    wrong = with_app("smoke: [{path: /, contains: Nowhere}]\n")
    done = tenant.apply({**wrong, "collections/more.yaml": "fields: [{name: a, type: text}]\n"})
    failed = change_of(done).failed or ""
    assert "GET / 'Nowhere' is not in the response" in failed
    assert "it answered: <h1>Shop</h1>" in failed
    assert (numbers(tenant), actions_of(done)["collection more"]) == ((1, 2), "create")
    again = change_of(tenant.apply(wrong))
    assert (again.summary, "Nowhere" in (again.failed or "")) == ("version 2 has the same content and is published", True)
    assert numbers(tenant) == (1, 2)


def test_a_reset_reports_apps_that_are_not_served(tenant: SolutionTenant) -> None:
    tenant.apply(with_app())
    files = {path: text.encode() for path, text in with_app("smoke: [{path: /, contains: Nowhere}]\n").items()}
    done = tenant.running.services.transfers.resets.reset(tenant.scope, files)
    assert done.deleted > 0
    assert list(done.failed) == ["shop"]
    assert "Nowhere" in done.failed["shop"]


def test_no_app_is_created_when_the_apply_fails(tenant: SolutionTenant, monkeypatch: pytest.MonkeyPatch) -> None:
    files = with_app("routes: [{path: /api/x, method: POST, process: gone, access: public}]\n")
    assert "uses the process 'gone', which is in neither the tenant nor the solution" in (
        change_of(tenant.plan(files)).blocked or ""
    )
    with pytest.raises(Conflict, match="webapp shop"):
        tenant.apply(files)

    def refuse(scope: TenantScope, *_: Any) -> None:
        assert tenant.running.services.webapps.apps.get_app(scope, "shop").published_version == 1
        raise Conflict("the last write of all is refused")

    monkeypatch.setattr(service, "record_items", refuse)
    with pytest.raises(Conflict, match="last write"):
        tenant.apply(with_app())
    assert tenant.api.get("/api/v1/webapps").json()["data"] == []
    assert tenant.api.get("/api/v1/processes").json()["data"] == []


def test_an_app_waits_for_the_integration_that_sends_its_codes(tenant: SolutionTenant) -> None:
    access = "access: {email: {integration: NAME, allow: ['*@a.example']}}\n"
    blocked = change_of(tenant.plan(with_app(access.replace("NAME", "post")))).blocked or ""
    assert blocked.startswith("its access uses the integration post, which is in neither the tenant nor the solution")
    assert change_of(tenant.plan(with_app(access.replace("NAME", "erp")))).blocked is None


def test_every_problem_of_an_app_has_its_place() -> None:
    assert problems_of(with_app("spa: true\nroutes:\n  - {path: /a, method: POST, process: add}\n"))[0].startswith(
        "webapps/shop/app.yaml:3: /routes/0/access access must be public, signed_in or member"
    )
    assert any("/smoke/0/path" in each for each in problems_of(with_app("smoke: [{path: x}]\n")))
    assert any("app.yaml line 2: " in each for each in problems_of(with_app("[")))
    assert any("redirects" in each for each in problems_of(with_app("spa: true\n", _redirects="nonsense")))
    files = {**with_app(), "webapps/shop/notes.txt": "", "webapps/stray.html": "", "webapps/Shop/public/index.html": ""}
    assert [each.split(": ")[0] for each in problems_of(files)] == [
        "webapps/stray.html", "webapps/Shop/app.yaml", "webapps/shop/notes.txt",
    ]  # fmt: skip


def test_a_page_that_holds_an_api_key_is_refused_before_it_is_sent(tenant: SolutionTenant) -> None:
    assert "an API key" in problems_of(with_app(**{"app.js": f"key = '{tenant.running.key(tenant.scope.tenant_id)}'"}))[0]


def test_a_key_needs_the_scopes_of_webapps_only_where_one_changes(make_tenant: Callable[..., SolutionTenant]) -> None:
    tenant = make_tenant()
    tenant.api.put("/api/v1/secrets/erp_token", json={"value": "swordfish-17"}).raise_for_status()
    scopes = frozenset({"solutions.apply", "datapool.admin", "integrations.write", "processflow.write", "webapps.write"})
    limited = SolutionTenant(tenant.running, TenantScope(tenant.scope.tenant_id, "key:ci", scopes), tenant.api)
    with pytest.raises(ScopeMissing, match=r"webapps\.publish"):
        limited.plan(with_app())
    tenant.apply(with_app())
    assert change_of(limited.apply(with_app())).action == "unchanged"


def test_a_prune_deletes_the_app_and_nothing_its_routes_lead_to(tenant: SolutionTenant) -> None:
    tenant.apply(with_app())
    without = {"solution.yaml": "name: small\n"}
    assert change_of(tenant.plan(without)).action == "leftover"
    tenant.running.services.webapps.domains.claim_domain(tenant.scope, "shop", NewDomain("shop.example.com"))
    assert (change_of(tenant.plan(without, prune=True)).blocked or "").startswith("it is served at shop.example.com")
    assert change_of(tenant.plan(without, prune=True, allow_loss=True)).blocked is None
    tenant.running.services.webapps.domains.release_domain(tenant.scope, "shop", "shop.example.com")
    assert actions_of(tenant.apply(without, prune=True))["webapp shop"] == "delete"
    with pytest.raises(NotFound, match="shop"):
        numbers(tenant)
    tenant.apply(with_app())
    tenant.apply({"solution.yaml": "name: other\n", **{k: v for k, v in with_app().items() if k.startswith("webapps")}})
    blocked = {f"{c.kind} {c.id}": c.blocked or "" for c in tenant.plan(without, prune=True)}
    assert blocked["process add"].startswith("the route /api/add of the WebApp shop uses it")
    assert "webapp shop" not in blocked, "another solution brought it too"


def test_a_prune_leaves_an_app_that_somebody_else_has_made(tenant: SolutionTenant) -> None:
    webapps = tenant.running.services.webapps.apps
    tenant.apply(with_app())
    webapps.delete_app(tenant.scope, "shop", force=True)
    for name in ("shop", "other"):
        webapps.create_app(tenant.scope, NewApp(name))
    tenant.apply({"solution.yaml": "name: small\n"}, prune=True)
    assert [app.id for app in webapps.list_apps(tenant.scope, PageRequest()).items] == ["other", "shop"]


def test_an_unpublished_version_is_not_pulled(tenant: SolutionTenant) -> None:
    webapps = tenant.running.services.webapps.apps
    tenant.apply(with_app())
    webapps.add_version(tenant.scope, "shop", webapps.prepare_version(tenant.scope, {"index.html": b"draft"}, Settings()))
    result, left_out = load_published(tenant.scope, webapps, tenant.running.services.blobs)
    assert (result["shop"].files["index.html"], result["shop"].settings.spa, left_out) == (b"<h1>Shop</h1>", True, [])
    assert change_of(tenant.apply(with_app())).action == "unchanged"


def test_a_pulled_app_is_the_one_that_is_served(gos: Gos, tenant: SolutionTenant, tmp_path: Path) -> None:
    about = "# the shop\nspa: true\nsmoke: [{path: /}]\n" + ROUTES
    files = with_app(about, **{"index.html": "<h1>Shop</h1>"})
    write_folder(tmp_path / "own", {path: text.encode() for path, text in files.items()})
    image = bytes(range(256))
    write_folder(tmp_path / "own", {"webapps/shop/public/logo.png": image})
    code, out, _ = gos("apply", tmp_path / "own")
    assert (code, "+ webapp shop  2 files" in out.splitlines()) == (0, True)
    assert gos("pull", tmp_path / "own")[:2] == (0, ""), "what says the same stays as its author wrote it"
    assert gos("pull", tmp_path / "new")[0] == 0
    assert (tmp_path / "new/webapps/shop/public/logo.png").read_bytes() == image
    code, out, _ = gos("apply", tmp_path / "new")
    assert (code, "= webapp shop  version 1" in out.splitlines(), numbers(tenant)) == (0, True, (1, 1))
    assert "1 webapps, no errors" in gos("check", tmp_path / "new")[1]
    (tmp_path / "own/webapps/shop/app.yaml").write_text(about.replace("path: /}", "path: /, status: 204}"))
    code, out, _ = gos("apply", tmp_path / "own")
    assert (code, "    failed: version 2 was not published: GET / answered 200 instead of 204" in out) == (1, True)


def test_an_app_too_large_for_a_solution_is_listed_and_left_out(
    gos: Gos, tenant: SolutionTenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant.apply(with_app())
    monkeypatch.setattr("appliance.solutions.kinds.webapp_deployment.MAX_EXPORT_BYTES", 10)
    code, out, errors = gos("pull", tmp_path / "pulled")
    assert (code, "webapps/" in out, "left out: shop: too large for a solution" in errors) == (0, False, True)

"""LLM profiles and secrets in the console: created, tested, priced, changed and deleted; keys are never displayed."""

import json
import re
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.llm.provider import Provider, Say
from tests.sites.test_webapps import deploy, new_app

KEY = "sk-canary-of-the-console"
NEW = "/console/llm-profiles/-/new"


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.close()


def form(provider: Provider, **more: str) -> dict[str, str]:
    fields = {"in/kind": '"openai"', "in/model": "small", "in/base_url": provider.url, "in/api_key": KEY}
    return {"slug": fresh("model"), "name": "Small one", **fields, **more}


def test_a_profile_is_created_tested_and_deleted(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    priced = {"in/price/currency": "EUR", "in/price/input": "2", "in/price/output": "10", "in/budgets/month/cost": "5"}
    sent = form(provider, **priced)
    page = owner.post(owner.at("acme", NEW), sent)
    assert "0.00 EUR of 5.00" in page.text
    assert KEY not in page.text
    provider.say(Say("ready"))
    tested = owner.post(owner.at("acme", f"/console/llm-profiles/{sent['slug']}/test"), {})
    assert "The model responds." in tested.text
    assert provider.requests[-1].headers["authorization"].endswith(KEY)
    assert acme.get(f"/api/v1/llm-profiles/{sent['slug']}/usage").json()["data"]["day"]["calls"] == 1
    assert sent["slug"] in owner.get(owner.at("acme", "/console/llm-profiles")).text
    owner.post(owner.at("acme", f"/console/llm-profiles/{sent['slug']}/delete"), {})
    assert acme.get(f"/api/v1/llm-profiles/{sent['slug']}").status_code == 404


def test_a_model_that_does_not_answer_is_reported(owner: Browser, provider: Provider) -> None:
    sent = form(provider)
    owner.post(owner.at("acme", NEW), sent)
    provider.say(Say(status=401))
    tested = owner.post(owner.at("acme", f"/console/llm-profiles/{sent['slug']}/test"), {})
    assert (tested.status_code, "The model does not respond." in tested.text) == (200, True)


def test_a_changed_profile_keeps_its_key_unless_the_address_changes(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    sent = form(provider)
    owner.post(owner.at("acme", NEW), sent)
    at = owner.at("acme", f"/console/llm-profiles/{sent['slug']}/settings")
    assert KEY not in owner.get(at).text
    change = {**sent, "in/api_key": "", "in/model": "large", "version": "1"}
    assert "large" in owner.post(at, change).text
    assert acme.get(f"/api/v1/llm-profiles/{sent['slug']}").json()["data"]["api_key"]["sealed"] is True
    assert owner.post(at, change).status_code == 412
    elsewhere = owner.post(at, {**change, "version": "2", "in/base_url": "https://example.com/v1"})
    assert elsewhere.status_code == 422
    assert re.search(r'id="in/api_key"[^>]*aria-invalid="true"', elsewhere.text)


def test_errors_appear_at_their_field(owner: Browser, provider: Provider) -> None:
    wrong = owner.post(owner.at("acme", NEW), form(provider, **{"in/base_url": "nowhere", "in/timeout": "soon"}))
    assert wrong.status_code == 422
    for name in ("base_url", "timeout"):
        assert f'id="in/{name}-error"' in wrong.text
    unpriced = owner.post(owner.at("acme", NEW), form(provider, **{"in/budgets/day/cost": "1"}))
    assert "a budget with `cost` needs" in unpriced.text.lower()


def test_a_removed_key_stays_removed_after_an_error(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    sent = form(provider)
    owner.post(owner.at("acme", NEW), sent)
    at = owner.at("acme", f"/console/llm-profiles/{sent['slug']}/settings")
    change = {**sent, "in/api_key": "", "version": "1", "in/timeout": "soon", "forget:in/api_key": "true"}
    wrong = owner.post(at, change)
    assert (wrong.status_code, 'name="forget:in/api_key" value="true" checked' in wrong.text) == (422, True)
    assert owner.post(at, {**change, "in/timeout": "30s"}).status_code == 200
    assert "api_key" not in {k for k, v in acme.get(f"/api/v1/llm-profiles/{sent['slug']}").json()["data"].items() if v}


def test_no_model_is_called_while_the_tenant_is_switched_off(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    sent = form(provider)
    owner.post(owner.at("acme", NEW), sent)
    off = {"kind": "tenant", "off": True, "reason": "somebody looks"}
    acme.put("/api/v1/kill-switches", json=off).raise_for_status()
    try:
        page = owner.post(owner.at("acme", f"/console/llm-profiles/{sent['slug']}/test"), {})
        refused = acme.post(f"/api/v1/llm-profiles/{sent['slug']}/test")
    finally:
        acme.put("/api/v1/kill-switches", json={**off, "off": False}).raise_for_status()
    assert (page.status_code, "is switched off" in page.text) == (403, True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "policy_denied")
    assert provider.requests == []


def test_webhooks_and_webapps_that_need_a_secret_are_listed(owner: Browser, acme: httpx.Client) -> None:
    name, hook, app = fresh("secret").replace("-", "_"), fresh("hook"), fresh("app")
    acme.put(f"/api/v1/secrets/{name}", json={"value": KEY}).raise_for_status()
    verify = {"kind": "github", "secret": f"= secrets.{name}"}
    triggers = [{"webhook": {"path": hook, "verify": verify}}]
    acme.post("/api/v1/processes", json={"id": hook, "name": hook, "steps": [], "triggers": triggers}).raise_for_status()
    new_app(acme, app)
    about = json.dumps({"access": {"password": {"secret": name}}}).encode()
    deploy(acme, app, {"app.yaml": about, "public/index.html": b"<h1>Inside</h1>"})
    page = owner.get(owner.at("acme", f"/console/secrets/{name}")).text
    assert (f"/console/processes/{hook}" in page, f"/console/webapps/{app}" in page) == (True, True)
    acme.delete(f"/api/v1/processes/{hook}").raise_for_status()
    acme.delete(f"/api/v1/webapps/{app}", params={"force": "true"}).raise_for_status()


def test_a_secret_is_set_listed_and_deleted(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client, provider: Provider
) -> None:
    name, sent = fresh("secret").replace("-", "_"), form(provider)
    page = owner.post(owner.at("acme", "/console/secrets"), {"name": name, "value": KEY})
    assert (KEY in page.text, "No process, WebApp, integration or LLM profile uses it." in page.text) == (False, True)
    owner.post(owner.at("acme", NEW), {**sent, "in/api_key": f"= secrets.{name}"})
    at = owner.at("acme", f"/console/secrets/{name}")
    assert f"/console/llm-profiles/{sent['slug']}" in owner.get(at).text
    assert 'id="name-error"' in owner.post(owner.at("acme", "/console/secrets"), {"name": "no name", "value": "x"}).text
    operator, stranger = signed_in("operator@acme.test"), signed_in("owner@globex.test")
    assert operator.get(operator.at("acme", "/console/secrets")).status_code == 403
    seen = operator.get(operator.at("acme", f"/console/llm-profiles/{sent['slug']}")).text
    assert (f"secrets.{name}" in seen, "/console/secrets/" in seen) == (True, False)
    assert f"/console/secrets/{name}" in owner.get(owner.at("acme", f"/console/llm-profiles/{sent['slug']}")).text
    assert operator.post(operator.at("acme", f"/console/secrets/{name}/delete"), {}).status_code == 403
    assert stranger.get(stranger.at("globex", f"/console/secrets/{name}")).status_code == 404
    owner.post(f"{at}/delete", {})
    assert name not in acme.get("/api/v1/secrets").text

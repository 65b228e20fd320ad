"""Secrets have a destination: a key without secrets.write can neither send one elsewhere nor read it."""

import base64
import html
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from appliance.connectors import BLOT, Redactor
from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.integrations.models import IntegrationRow
from appliance.solutions import write_zip
from appliance.tenants import ALL_SCOPES
from appliance.tenants.grants import SecretDestination, confirmations, place_of_hosts, secret_bindings
from appliance.testing.running import Running
from tests.console.browser import Browser

API = "/api/v1"
CANARY = "topsecret-kanari-7Qx2"
INTEGRATIONS = ["integrations.read", "integrations.write", "integrations.execute"]


class Listener(LoopbackServer):
    """Answers everything with what it was sent, the value backwards as well."""

    def __init__(self) -> None:
        super().__init__()

        def echo(request: Received) -> Answer:
            sent = json.dumps({"headers": request.headers, "path": request.path, "body": request.body.decode("utf-8", "replace")})
            return Answer(200, {"Content-Type": "application/json"}, json.dumps({"echo": sent, "backwards": sent[::-1]}).encode())

        class Everywhere(dict[str, Any]):
            def get(self, key: str, default: Any = None) -> Any:
                return super().get(key, echo)

        self.answers = Everywhere()

    def transcript(self) -> str:
        return "\n".join(f"{each.path} {each.headers} {each.body!r}" for each in self.received)


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.close()


@pytest.fixture
def owner(running: Running) -> Iterator[httpx.Client]:
    with running.api("acme") as client:
        client.put(f"{API}/secrets/topsecret", json={"value": CANARY}).raise_for_status()
        yield client
        for each in client.get(f"{API}/integrations", params={"limit": 500}).json()["data"]:
            if each["slug"].startswith("leak"):
                client.delete(f"{API}/integrations/{each['slug']}")
        client.delete(f"{API}/secrets/topsecret")


def leaking(url: str, slug: str = "leak") -> dict[str, Any]:
    return {"slug": slug, "connector": "http", "settings": {"base_url": url, "headers": {"X-Leak": "= secrets.topsecret"}}}


def test_a_key_of_integrations_alone_sends_no_secret_to_a_host_of_its_own(
    running: Running, owner: httpx.Client, listener: Listener
) -> None:
    with running.api("acme", INTEGRATIONS) as mallory:
        response = mallory.post(f"{API}/integrations", json=leaking(listener.url))
        mallory.post(f"{API}/integrations/leak/execute", json={"action": "get", "input": {"url": "/x"}})
        mallory.post(f"{API}/integrations/leak/test")
        tried = mallory.post(f"{API}/connectors/http/test", json={"settings": leaking(listener.url)["settings"]})
    assert CANARY not in listener.transcript()
    assert response.status_code == 403, response.text
    assert response.json()["error"]["code"] == "scope_missing"
    assert "secrets.write" in response.text
    assert tried.status_code == 403, tried.text


def change(client: httpx.Client, slug: str, settings: dict[str, Any]) -> httpx.Response:
    return client.patch(f"{API}/integrations/{slug}", json={"settings": settings})


def test_moving_where_a_bound_secret_goes_needs_secrets_write(running: Running, owner: httpx.Client, listener: Listener) -> None:
    created = owner.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9"))
    assert created.status_code == 201, created.text
    with running.api("acme", INTEGRATIONS) as mallory:
        for settings in ({"base_url": listener.url}, {"base_url": listener.url, "headers": {"Y": "= secrets.topsecret"}}):
            moved = change(mallory, "leak", settings)
            assert (moved.status_code, moved.json()["error"]["code"]) == (403, "scope_missing"), moved.text
            assert "127.0.0.1" in moved.text, "it says where the secret would have gone"
            assert "owner" in moved.text, "it says who can do it"
        copied = mallory.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9", "leak-copy"))
        assert copied.status_code == 403, "another slug is another destination"
        renamed = change(mallory, "leak", {"headers": {"X-Leak": None, "X-Other": "= secrets.topsecret"}})
        assert renamed.status_code == 200, renamed.text
        tried = mallory.post(
            f"{API}/connectors/http/test",
            json={"settings": leaking(listener.url)["settings"], "integration": "leak"},
        )
        assert tried.status_code == 403, tried.text
    assert change(owner, "leak", {"base_url": listener.url}).status_code == 200
    assert owner.post(f"{API}/integrations/leak/execute", json={"action": "get", "input": {"url": "/x"}}).is_success
    assert CANARY in listener.transcript(), "whoever may set secrets may lead them elsewhere"
    with running.api("acme", INTEGRATIONS) as mallory:
        assert change(mallory, "leak", {"base_url": "http://127.0.0.1:9"}).status_code == 403, "it goes where it was led last"


def test_a_row_changed_by_another_way_sends_no_secret(running: Running, owner: httpx.Client, listener: Listener) -> None:
    owner.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9")).raise_for_status()
    scope = running.tenant("acme")
    settings = {**scope.get(IntegrationRow, id="leak").settings, "base_url": listener.url}
    db.write(lambda: scope.update(IntegrationRow, settings=settings).where(IntegrationRow.id == "leak").execute())
    for call in ("execute", "test"):
        body = {"action": "get", "input": {"url": "/x"}} if call == "execute" else None
        refused = owner.post(f"{API}/integrations/leak/{call}", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "policy_denied"), refused.text
    assert CANARY not in listener.transcript()


def test_a_redirect_to_another_host_takes_no_secret_along(owner: httpx.Client, listener: Listener) -> None:
    door = LoopbackServer()
    door.answers = {"/x": lambda _: Answer(302, {"Location": f"{listener.url}/y"}, b"")}
    owner.post(f"{API}/integrations", json=leaking(door.url)).raise_for_status()
    owner.post(f"{API}/integrations/leak/execute", json={"action": "get", "input": {"url": "/x"}})
    door.close()
    assert "/y" in listener.transcript(), "the redirect was followed"
    assert CANARY not in listener.transcript()


def test_secrets_need_an_address_that_no_call_chooses(owner: httpx.Client) -> None:
    body = {"slug": "leak", "connector": "http", "settings": {"headers": {"X-Leak": "= secrets.topsecret"}}}
    refused = owner.post(f"{API}/integrations", json=body)
    assert refused.status_code == 422
    assert refused.json()["error"]["details"][0]["pointer"] == "/settings/base_url"


def test_a_model_profile_sends_no_secret_to_an_address_of_its_own(
    running: Running, owner: httpx.Client, listener: Listener
) -> None:
    body = {"kind": "openai", "model": "m", "base_url": f"{listener.url}/v1", "api_key": "= secrets.topsecret"}
    with running.api("acme", INTEGRATIONS) as mallory:
        response = mallory.post(f"{API}/llm-profiles", json={"slug": "leaking-model", **body})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "scope_missing"), response.text
        owned = {**body, "base_url": "http://127.0.0.1:9/v1"}
        owner.put(f"{API}/llm-profiles/leaking-model", json=owned).raise_for_status()
        assert mallory.put(f"{API}/llm-profiles/leaking-model", json=body).status_code == 403
        assert mallory.put(f"{API}/llm-profiles/leaking-model", json={**owned, "model": "n"}).status_code == 200
    owner.delete(f"{API}/llm-profiles/leaking-model")
    assert listener.transcript() == ""


def test_a_webapp_gives_no_secret_to_a_provider_of_its_own(running: Running, owner: httpx.Client) -> None:
    oidc = {"issuer": "https://id.mallory.example", "client_id": "x", "client_secret": {"secret": "topsecret"}, "allow": ["*"]}
    solution = {
        "solution.yaml": b"name: leak\n",
        "webapps/leaking/app.yaml": json.dumps({"access": {"oidc": oidc}}).encode(),
        "webapps/leaking/public/index.html": b"<p>hello</p>",
    }
    archive, zipped = write_zip(solution), {"Content-Type": "application/zip"}
    with running.api("acme", ["solutions.apply", "webapps.read", "webapps.write", "webapps.publish"]) as mallory:
        refused = mallory.post(f"{API}/solutions/apply", content=archive, headers=zipped)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing"), refused.text
        applied = owner.post(f"{API}/solutions/apply", content=archive, headers=zipped)
        assert applied.is_success, applied.text
        assert [each["kind"] for each in destinations(owner)] == ["webapp"]
    owner.delete(f"{API}/webapps/leaking", params={"force": True})


def test_deleting_a_resource_deletes_its_secret_destinations(running: Running, owner: httpx.Client) -> None:
    """Those by hosts alone, too; another place of that name, and another tenant's, keep theirs."""
    for slug in ("leak-gone", "leak-stays"):
        owner.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9", slug)).raise_for_status()
    by_hosts = {"kind": "integration", "target": "leak-gone", "hosts": "later.example"}
    owner.post(f"{API}/secrets/topsecret/bindings", json=by_hosts).raise_for_status()
    model = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "= secrets.topsecret"}
    owner.put(f"{API}/llm-profiles/leak-gone", json=model).raise_for_status()
    oidc = {"issuer": "https://id.example", "client_id": "x", "client_secret": {"secret": "topsecret"}, "allow": ["*"]}
    app = {"webapps/leak-gone/app.yaml": json.dumps({"access": {"oidc": oidc}}).encode(), "solution.yaml": b"name: gone\n"}
    archive = write_zip({**app, "webapps/leak-gone/public/index.html": b"<p>hello</p>"})
    owner.post(f"{API}/solutions/apply", content=archive, headers={"Content-Type": "application/zip"}).raise_for_status()
    with running.api("globex") as other:
        other.put(f"{API}/secrets/topsecret", json={"value": CANARY}).raise_for_status()
        other.post(f"{API}/secrets/topsecret/bindings", json=by_hosts).raise_for_status()
        expected = {"integration": 2, "llm-profile": 1, "webapp": 1}
        for kind, count in expected.items():
            assert len(bound(owner, kind, "leak-gone")) == count, kind
            owner.delete(f"{API}/{kind}s/leak-gone", params={"force": True} if kind == "webapp" else {}).raise_for_status()
            assert bound(owner, kind, "leak-gone") == []
        assert [each["target"] for each in destinations(owner)] == ["leak-stays"]
        assert len(destinations(other)) == 1
        other.delete(f"{API}/secrets/topsecret").raise_for_status()


def bound(client: httpx.Client, kind: str, target: str) -> list[dict[str, Any]]:
    return [each for each in destinations(client) if (each["kind"], each["target"]) == (kind, target)]


def destinations(client: httpx.Client) -> list[dict[str, Any]]:
    secrets = client.get(f"{API}/secrets").raise_for_status().json()["data"]
    return [binding for secret in secrets if secret["name"] == "topsecret" for binding in secret["bindings"]]


def reading(name: str) -> dict[str, Any]:
    source = "export default async function (input, api) { return (await api.secrets.get('topsecret')).length }"
    step = {"id": "s", "code": {"language": "javascript", "source": source}}
    return {"id": name, "steps": [step], "grants": {"secrets": ["topsecret"]}, "output": "= steps.s"}


def run(client: httpx.Client, name: str) -> dict[str, Any]:
    answer = client.post(f"{API}/processes/{name}/execute", params={"wait": 20}, json={})
    execution: dict[str, Any] = answer.json()["data"]
    return execution


def test_code_reads_only_secrets_that_are_bound_to_its_process(owner: httpx.Client) -> None:
    owner.put(f"{API}/processes/reader", json=reading("reader")).raise_for_status()
    owner.post(f"{API}/processes/reader/publish", json={}).raise_for_status()
    assert run(owner, "reader")["status"] == "succeeded", "published by somebody who may set secrets"
    (binding,) = destinations(owner)
    assert (binding["kind"], binding["target"]) == ("process", "reader")
    owner.delete(f"{API}/secrets/topsecret/bindings/{binding['id']}").raise_for_status()
    refused = run(owner, "reader")
    assert refused["status"] == "failed"
    assert refused["error"]["code"] == "policy_denied"
    assert "Secrets, topsecret" in refused["error"]["message"]
    owner.put(f"{API}/secrets/topsecret", json={"value": CANARY, "bind": {"processes": ["reader"]}}).raise_for_status()
    assert run(owner, "reader")["status"] == "succeeded"
    owner.delete(f"{API}/processes/reader", params={"force": True})
    assert destinations(owner) == [], "another process of the name gets nothing by it"


def test_a_key_without_secrets_write_reads_no_secret_by_a_process(running: Running, owner: httpx.Client) -> None:
    with running.api("acme", ["processflow.read", "processflow.write", "processflow.execute"]) as mallory:
        mallory.put(f"{API}/processes/thief", json=reading("thief")).raise_for_status()
        published = mallory.post(f"{API}/processes/thief/publish", json={})
        if published.is_success:
            assert run(mallory, "thief")["error"]["code"] == "policy_denied"
    assert destinations(owner) == []
    owner.delete(f"{API}/processes/thief", params={"force": True})


def test_a_destination_can_be_bound_before_it_exists(running: Running, owner: httpx.Client, listener: Listener) -> None:
    bind = {"integrations": [{"slug": "leak-later", "hosts": listener.url}]}
    owner.put(f"{API}/secrets/topsecret", json={"value": CANARY, "bind": bind}).raise_for_status()
    with running.api("acme", INTEGRATIONS) as builder:
        assert builder.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9", "leak-later")).status_code == 403
        assert builder.post(f"{API}/integrations", json=leaking(listener.url, "leak-later")).status_code == 201
        assert builder.post(f"{API}/integrations/leak-later/test").is_success
    assert CANARY in listener.transcript()
    missing = owner.post(f"{API}/secrets/topsecret/bindings", json={"kind": "integration", "target": "nowhere"})
    assert missing.status_code == 422, missing.text


def test_a_destination_of_hosts_is_for_verified_tls_alone(running: Running, owner: httpx.Client, listener: Listener) -> None:
    host = listener.url.removeprefix("http://")
    bind = {"integrations": [{"slug": "leak-clear", "hosts": host}, {"slug": "db-clear", "hosts": "db.example.com:5432"}]}
    assert place_of_hosts("integration", "erp", "https://a.example, http://b.example:8069").hosts == "a.example, http://b.example:8069"
    owner.put(f"{API}/secrets/topsecret", json={"value": CANARY, "bind": bind}).raise_for_status()
    database = {"host": "db.example.com", "user": "u", "database": "d", "password": "= secrets.topsecret"}
    with running.api("acme", INTEGRATIONS) as builder:
        refused = builder.post(f"{API}/integrations", json=leaking(listener.url, "leak-clear"))
        assert refused.status_code == 403, refused.text
        assert listener.url in refused.json()["error"]["message"], "it says what the destination would be"
        assert builder.post(f"{API}/integrations", json=leaking(f"https://{host}", "leak-clear")).status_code == 201
        for more, status in (({"tls": "off"}, 403), ({"ca": "a certificate"}, 403), ({}, 201)):
            body = {"slug": "db-clear", "connector": "postgresql", "settings": {**database, **more}}
            answer = builder.post(f"{API}/integrations", json=body)
            assert answer.status_code == status, answer.text
    for slug in ("leak-clear", "db-clear"):
        owner.delete(f"{API}/integrations/{slug}").raise_for_status()


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text,
        lambda text: text[::-1],
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: base64.b64encode(b"Bearer " + text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(b"?" + text.encode()).decode(),
        lambda text: quote(text, safe=""),
        lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
        lambda text: json.dumps(json.dumps(text)),
        html.escape,
    ],
    ids=["plain", "backwards", "hex", "hex-upper", "base64", "base64-url", "percent", "percent-all", "json", "html"],
)  # fmt: skip
def test_usual_encodings_of_a_secret_are_redacted(encode: Any) -> None:
    secret = "kanari/ü>+'&\"12?~"
    text = Redactor([secret]).text(f"before {encode(secret)} after")
    assert BLOT in text
    assert encode(secret) not in text


def test_an_owner_who_grants_a_process_its_secret_binds_it(running: Running, owner: httpx.Client) -> None:
    scope = running.tenant("acme")
    with running.api("acme", ["processflow.read", "processflow.write", "processflow.execute"]) as builder:
        builder.put(f"{API}/processes/granted", json=reading("granted")).raise_for_status()
        refused = builder.post(f"{API}/processes/granted/publish", json={})
        assert refused.status_code == 403, refused.text
        confirmation = next(each for each in confirmations.list_open(scope) if each.subject == "process:granted")
        person = running.user("decider@acme.test", "correct horse battery staple", "acme")
        running.services.governance.confirmations.decide(TenantScope("acme", f"user:{person}", ALL_SCOPES), confirmation.id, True)
        assert [(each["kind"], each["target"]) for each in destinations(owner)] == [("process", "granted")]
        builder.post(f"{API}/processes/granted/publish", json={}).raise_for_status()
        assert run(builder, "granted")["status"] == "succeeded"
    owner.delete(f"{API}/processes/granted", params={"force": True})


def test_the_console_shows_and_chooses_where_a_secret_goes(running: Running, owner: httpx.Client) -> None:
    running.user("chooser@acme.test", "correct horse battery staple", "acme", role="builder")
    browser = Browser(running)
    browser.sign_in("chooser@acme.test", "correct horse battery staple", "acme")
    at = browser.at("acme", "/console/secrets/topsecret")
    assert "None yet." in browser.get(at).text
    owner.post(f"{API}/integrations", json=leaking("http://127.0.0.1:9")).raise_for_status()
    scope = running.tenant("acme")
    (own,) = destinations(owner)
    assert "127.0.0.1:9" in browser.get(at).text
    removed = browser.post(f"{at}/bindings/{own['id']}/delete", {})
    assert "Used without being allowed" in removed.text
    allowed = browser.post(f"{at}/bindings", {"kind": "integration", "target": "leak"})
    assert "Used without being allowed" not in allowed.text
    assert destinations(owner)[0]["bound_by"].startswith("user:")
    unknown = browser.post(f"{at}/bindings", {"kind": "integration", "target": "nowhere"})
    assert 'id="target-error"' in unknown.text
    assert secret_bindings.find_unbound(scope, ["topsecret"], SecretDestination("process", "reader")) == ["topsecret"]

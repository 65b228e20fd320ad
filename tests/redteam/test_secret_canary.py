"""A canary secret: no calls by any scope but `secrets.write` bring it to a listener or into an answer.

Calls are drawn from the route table with the bodies of its examples, in which texts are replaced by references to the canary and by
the listener's address, and from a list of plausible attempts; they are made by keys of one scope each, and of all but one.
"""

import base64
import copy
import html
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.api import load_routes
from appliance.api.frame.routing import PREFIX, Route
from appliance.solutions import write_zip
from appliance.tenants import SCOPES
from appliance.testing.running import Running
from tests.api.examples import EXAMPLES
from tests.api.resources import Resources
from tests.redteam.test_secrets import Listener

CANARY = "kanari-allein-9Zk4-weit"
ALONE = sorted(set(SCOPES) - {"secrets.write"})
ALL_BUT_ONE = frozenset(ALONE)
REFERENCES = ("= secrets.canary", "{{ secrets.canary }}", "x {{secrets.canary}}")
_numbers = iter(range(1, 1 << 30))
# What answers with a stream that does not end, or takes the tenant away from the others.
EXCLUDED = {"follow_execution", "follow_run", "follow_events", "delete_secret", "set_secret", "remove_secret_binding"}
SAMPLED_ROUTES = sorted((r for r in load_routes() if r.name not in EXCLUDED and r.method != "DELETE"), key=lambda r: r.name)


def forms(canary: str) -> list[bytes]:
    """The canary in its encodings: plain, backwards, in hex, escaped, and in base64 at every offset."""
    raw = canary.encode()
    encodings = [raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), html.escape(canary).encode()]
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        part = text[(0, 2, 3)[shift] : len(text) - 2]
        encodings += [part, part.replace(b"+", b"-").replace(b"/", b"_")]
    return encodings


@dataclass
class Hunt:
    """A tenant with a canary, a listener, and everything that was answered to whoever is after it."""

    running: Running
    resources: Resources
    listener: Listener
    clients: dict[frozenset[str], httpx.Client] = field(default_factory=dict)
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)

    def client(self, scopes: frozenset[str]) -> httpx.Client:
        if scopes not in self.clients:
            self.clients[scopes] = self.running.api("canary", scopes)
        return self.clients[scopes]

    def ask(self, client: httpx.Client, method: str, path: str, **parts: Any) -> httpx.Response | None:
        with client.stream(method, PREFIX + path, **parts) as answer:
            endless = "event-stream" in answer.headers.get("content-type", "")
            content = next(answer.iter_raw(), b"") if endless else answer.read()
        self.answers.append((f"{method} {path}", content + str(answer.headers.raw).encode()))
        self.statuses.add(answer.status_code)
        return None if endless else answer

    def leaks(self) -> list[str]:
        places = [where for where, content in self.answers if any(form in content for form in forms(CANARY))]
        received = self.listener.transcript().encode()
        return places + ["the listener"] * any(form in received for form in forms(CANARY))

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@pytest.fixture(scope="module")
def hunt(running: Running) -> Iterator[Hunt]:
    listener = Listener()
    with running.api("canary") as owner:
        owner.put(f"{PREFIX}/secrets/canary", json={"value": CANARY}).raise_for_status()
        new_hunt = Hunt(running, Resources(running, "canary", owner), listener)
        yield new_hunt
    new_hunt.close()
    listener.close()


# -- plausible attempts

Attempt = Callable[[Hunt, httpx.Client, str], None]


def _integration(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    slug, url = f"leak-{next(_numbers)}", hunt.listener.url
    for settings_ in (
        {"base_url": url, "headers": {"X-Leak": reference}},
        {"base_url": url, "auth": {"kind": "bearer", "token": reference}},
        {"base_url": f"{url}/{reference}"},
        {"headers": {"X-Leak": reference}},
        {"base_url": url, "query": {"leak": reference}},
    ):
        body = {"slug": slug, "connector": "http", "settings": settings_}
        hunt.ask(client, "POST", "/connectors/http/test", json={"settings": settings_})
        hunt.ask(client, "POST", "/integrations", json=body)
        hunt.ask(client, "PATCH", f"/integrations/{slug}", json={"settings": settings_})
        hunt.ask(client, "POST", f"/integrations/{slug}/test")
        for url_ in ("/x", f"{url}/x"):
            hunt.ask(client, "POST", f"/integrations/{slug}/execute", json={"action": "get", "input": {"url": url_}})
        hunt.ask(client, "POST", f"/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/x"}, "mode": "preview"})
    hunt.ask(client, "GET", f"/integrations/{slug}")


def _move_integration(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    """An integration that the owner uses for the canary, led elsewhere; its own host is nobody's."""
    hunt.ask(client, "PATCH", "/integrations/owned", json={"settings": {"base_url": hunt.listener.url}})
    hunt.ask(client, "PATCH", "/integrations/owned", json={"settings": {"auth": {"kind": "none"}, "headers": {"X": reference}}})
    hunt.ask(client, "POST", "/integrations/owned/execute", json={"action": "get", "input": {"url": f"{hunt.listener.url}/x"}})
    copied = hunt.ask(client, "GET", "/integrations/owned")
    if copied is not None and copied.is_success:
        settings_ = {**copied.json()["data"]["settings"], "base_url": hunt.listener.url}
        hunt.ask(client, "POST", "/integrations", json={"slug": "copied", "connector": "http", "settings": settings_})


def _process(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    name = f"leak-{next(_numbers)}"
    body = "const s = await api.secrets.get('canary'); api.log.info(s); return [...s].reverse().join('')"
    code = {"language": "javascript", "source": f"export default async function (input, api) {{ {body} }}"}
    definition = {"id": name, "steps": [{"id": "s", "code": code}], "grants": {"secrets": ["canary"]}, "output": "= steps.s"}
    hunt.ask(client, "PUT", f"/processes/{name}", json=definition)
    hunt.ask(client, "POST", f"/processes/{name}/publish", json={})
    hunt.ask(client, "POST", f"/processes/{name}/execute", params={"wait": 5}, json={})
    hunt.ask(client, "POST", f"/processes/{name}/test", json={"input": {}})
    expression = {"id": f"{name}-x", "steps": [{"id": "s", "set": {"value": reference}}], "output": reference}
    hunt.ask(client, "PUT", f"/processes/{name}-x", json=expression)
    hunt.ask(client, "POST", f"/processes/{name}-x/publish", json={})
    hunt.ask(client, "POST", f"/processes/{name}-x/execute", params={"wait": 5}, json={})


def _model(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    slug = f"leak-{next(_numbers)}"
    body = {"slug": slug, "kind": "openai", "model": "m", "base_url": f"{hunt.listener.url}/v1", "api_key": "= secrets.canary"}
    hunt.ask(client, "POST", "/llm-profiles", json=body)
    hunt.ask(client, "PUT", "/llm-profiles/owned-model", json={name: value for name, value in body.items() if name != "slug"})
    hunt.ask(client, "GET", "/llm-profiles/owned-model")


def _solution(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    slug = f"leak-{next(_numbers)}"
    files = {
        "solution.yaml": b"name: leak\nneeds: {secrets: [canary]}\n",
        f"integrations/{slug}.yaml": json.dumps(
            {"name": slug, "connector": "http", "settings": {"base_url": hunt.listener.url, "headers": {"X-Leak": reference}}}
        ).encode(),
    }
    hunt.ask(client, "POST", "/solutions/apply", content=write_zip(files), headers={"Content-Type": "application/zip"})
    hunt.ask(client, "POST", f"/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/x"}})


def _other_ways(hunt: Hunt, client: httpx.Client, reference: str) -> None:
    hunt.ask(client, "POST", "/webhooks", json={"url": f"{hunt.listener.url}/{reference}", "events": ["execution.failed"]})
    hunt.ask(client, "POST", "/secrets/canary/bindings", json={"kind": "integration", "target": "leak", "hosts": "127.0.0.1"})
    hunt.ask(client, "PUT", "/secrets/other", json={"value": reference, "bind": {"processes": ["leak"]}})
    hunt.ask(client, "GET", "/secrets")
    hunt.ask(client, "POST", "/documents", files={"file": ("leak.txt", reference.encode(), "text/plain")})
    hunt.ask(client, "POST", "/keys", json={"name": "more", "scopes": ["secrets.write"]})


ATTEMPTS: tuple[Attempt, ...] = (_integration, _move_integration, _process, _model, _solution, _other_ways)


@pytest.fixture(scope="module")
def owned(hunt: Hunt) -> None:
    """What the owner has bound the canary to: hosts without a server, so that an attacker has to redirect it."""
    owner = hunt.resources
    settings_ = {"base_url": "http://127.0.0.1:9", "auth": {"kind": "bearer", "token": "= secrets.canary"}}
    owner.ask("POST", "/integrations", {"slug": "owned", "connector": "http", "settings": settings_})
    profile = {"slug": "owned-model", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    owner.ask("POST", "/llm-profiles", {**profile, "api_key": "= secrets.canary"})


@pytest.mark.parametrize("scope", [*ALONE, "all but secrets.write"])
def test_no_attempt_by_a_scope_reveals_the_canary(hunt: Hunt, owned: None, scope: str) -> None:
    client = hunt.client(ALL_BUT_ONE if scope == "all but secrets.write" else frozenset({scope}))
    for attempt in ATTEMPTS:
        attempt(hunt, client, "= secrets.canary")
    assert hunt.leaks() == []


# -- the route table


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts stand in a body."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _places(each, (*at, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _places(each, (*at, number))
    elif isinstance(value, str) and at:
        yield at


def _replace_at(body: Any, place: tuple[Any, ...], text: str) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = text
    return changed


def _draw_body(body: Any, listener: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """The example's body with up to three of its texts replaced: by the canary's name, or by the listener's address."""
    places = list(_places(body))
    for _ in range(draw(st.integers(1, 3)) if places else 0):
        place = draw(st.sampled_from(places))
        body = _replace_at(body, place, draw(st.sampled_from((*REFERENCES, listener, "canary", f"{listener}/{REFERENCES[1]}"))))
    return body


def _send(hunt: Hunt, client: httpx.Client, route: Route, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    example = EXAMPLES[route.name](hunt.resources)
    parts: dict[str, Any] = {"params": example.query, "headers": example.headers}
    if example.media:
        parts |= {"content": example.body, "headers": {**example.headers, "Content-Type": example.media}}
    elif example.body is not None:
        parts["json"] = _draw_body(example.body, hunt.listener.url, draw)
    hunt.ask(client, route.method, route.path.format(**example.path), **parts)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_sequence_over_the_route_table_reveals_the_canary(hunt: Hunt, owned: None, data: st.DataObject) -> None:
    scopes = data.draw(st.sampled_from([ALL_BUT_ONE, ALL_BUT_ONE, *(frozenset({each}) for each in ALONE)]))
    client = hunt.client(scopes)
    allowed = [route for route in SAMPLED_ROUTES if route.scope is None or route.scope in scopes]
    for _ in range(data.draw(st.integers(2, 6))):
        if data.draw(st.integers(0, 3)) == 0:
            attempt = data.draw(st.sampled_from(ATTEMPTS))
            attempt(hunt, client, data.draw(st.sampled_from(REFERENCES)))
        else:
            _send(hunt, client, data.draw(st.sampled_from(allowed)), data.draw)
    assert hunt.leaks() == []


def test_the_same_attempts_with_secrets_write_reveal_the_canary(hunt: Hunt, owned: None) -> None:
    """The hunt can succeed: what it looks for would be found."""
    assert {200, 201, 403} <= hunt.statuses, "some calls were answered and some refused"
    assert hunt.leaks() == []
    with hunt.running.api("canary") as owner:
        _integration(hunt, owner, "= secrets.canary")
        _process(hunt, owner, "= secrets.canary")
    leaks = hunt.leaks()
    assert "the listener" in leaks
    assert any("/execute" in where for where in leaks), "code that may read it answers it backwards"

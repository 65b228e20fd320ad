"""Policies evaluate the request as it is sent: no spelling of it, copy of an integration or detour bypasses a rule."""

import itertools
import json
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.connectors import read_request
from appliance.connectors.contract import HttpRequest
from appliance.connectors.testing import Answer, LoopbackServer
from tests.api.resources import PREFIX, Resources, fresh
from tests.redteam.policies import DENIED, code_of


@pytest.fixture
def bank() -> Iterator[LoopbackServer]:
    """A foreign system that takes everything."""
    server = LoopbackServer()
    for path in ("/orders", "/payments", "/other"):
        server.answers[path] = lambda received: Answer(200, {"Content-Type": "application/json"}, b"{}")
    yield server
    server.close()


@pytest.fixture
def connect(ours: Resources) -> Callable[..., str]:
    """An HTTP integration; answers its slug."""

    def create(base_url: str | None = None, **more: Any) -> str:
        slug = fresh("bank")
        settings = {**({"base_url": base_url} if base_url else {}), **more}
        ours.ask("POST", "/integrations", {"connector": "http", "name": slug, "slug": slug, "settings": settings})
        return slug

    return create


@pytest.fixture
def send(ours: Resources) -> Callable[..., tuple[int, str]]:
    """Execute an action: status and code of the answer."""

    def execute(slug: str, action: str, **params: Any) -> tuple[int, str]:
        return code_of(ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json={"action": action, "input": params}))

    return execute


DONE = (200, "")
TOKEN = {"auth": {"kind": "header", "name": "X-Token", "value": "one-and-the-same-secret"}}


def test_a_rule_about_an_operation_matches_every_way_to_send_it(
    bank: LoopbackServer, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None]
) -> None:
    slug = connect(bank.url)
    policy(
        {"effect": "deny", "integrations": [slug], "operations": ["post"]},
        {"effect": "deny", "integrations": [slug], "operations": ["request"], "when": {"input": {"method": {"_eq": "DELETE"}}}},
        {"effect": "deny", "integrations": [slug], "operations": ["patch"]},
    )
    assert send(slug, "post", url="/orders") == send(slug, "request", method="POST", url="/orders") == DENIED
    assert send(slug, "delete", url="/orders") == send(slug, "request", method="DELETE", url="/orders") == DENIED
    assert send(slug, "put", url="/orders", query={"_method": "patch"}) == DENIED
    assert send(slug, "put", url="/orders", form={"_method": "PATCH"}) == DENIED
    assert send(slug, "put", url="/orders?_METHOD=post") == DENIED
    assert send(slug, "put", url="/orders", json={"a": 1}) == send(slug, "get", url="/orders") == DONE
    assert [each.method for each in bank.received] == ["PUT", "GET"]


RAW = "application/x-www-form-urlencoded"
BODIES: list[dict[str, Any]] = [
    {"json": {"amount": 5000}},
    {"json": {"amount": "5000"}},
    {"json": {"am\u00f6unt": 1, "amount": 5000}},
    {"form": {"amount": 5000}},
    {"form": {"amount": [1, 5000]}},
    {"raw": {"text": '{"amount": 5000}', "content_type": "application/json"}},
    {"raw": {"text": '{"amount": 1, "amount": 5000}', "content_type": "application/json"}},
    {"raw": {"text": '{"amount": 5000}', "content_type": "text/plain"}},
    {"raw": {"base64": "eyJhbW91bnQiOiA1MDAwfQ=="}},
    {"raw": {"text": "amount=5000", "content_type": RAW}},
    {"raw": {"text": "amount=1&amount=5000", "content_type": RAW}},
    {"raw": {"text": "<amount>5000</amount>", "content_type": "application/xml"}},
    {"json": {"x": "&amount=5000&"}, "headers": {"Content-Type": RAW}},
    {"multipart": [{"name": "amount", "value": "5000"}]},
    {"multipart": [{"name": "order", "value": "amount: 5000", "filename": "order.txt"}]},
    {"json": [{"amount": 5000}]},
    {"json": {"amount": 1}, "headers": {"Content-Encoding": "gzip"}},
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", ["json", "form"])
def test_a_condition_on_an_amount_holds_for_every_body_that_carries_it(
    bank: LoopbackServer, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None],
    body: dict[str, Any], kind: str,
) -> None:  # fmt: skip
    slug = connect(bank.url)
    policy({"effect": "deny", "integrations": [slug], "effects": ["write"], "when": {"input": {kind: {"amount": {"_gt": 1000}}}}})
    assert send(slug, "post", url="/payments", **body) == DENIED
    assert send(slug, "post", url="/payments", **{kind: {"amount": 10}}) == DONE
    assert len(bank.received) == 1


def test_rules_match_names_and_texts_in_any_unicode_form(
    bank: LoopbackServer, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None]
) -> None:
    slug = connect(bank.url)
    composed, decomposed = unicodedata.normalize("NFC", "größe"), unicodedata.normalize("NFD", "größe")
    assert composed != decomposed
    for name, other in ((composed, decomposed), (decomposed, composed)):
        policy({"effect": "deny", "integrations": [slug], "when": {"input": {"json": {name: {"_gt": 10}}}}})
        assert send(slug, "post", url="/orders", json={other: 11}) == DENIED
    policy({"effect": "deny", "integrations": [slug], "when": {"input": {"json": {"city": {"_eq": f"{composed}"}}}}})
    assert send(slug, "post", url="/orders", json={"city": decomposed}) == DENIED
    assert send(slug, "post", url="/orders", json={composed: 1, decomposed: 99}) == DENIED  # two members of one name
    assert bank.received == []


@pytest.mark.parametrize(
    "url", ["/payments", "payments", "/payments?x=1", "/%70ayments", "//payments", "/./payments", "/pay{x}", "?amount=5000"]
)
def test_a_condition_on_the_address_and_its_query_holds_however_they_are_written(
    bank: LoopbackServer, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None], url: str
) -> None:
    slug = connect(bank.url)
    policy(
        {"effect": "deny", "integrations": [slug], "when": {"input": {"url": {"_starts_with": "/payments"}}}},
        {"effect": "deny", "integrations": [slug], "when": {"input": {"query": {"amount": {"_gt": 1000}}}}},
    )
    params = {"path": {"x": "ments"}} if "{x}" in url else {}
    code = send(slug, "get", url=url, **params)
    assert code == DENIED or (url == "//payments" and code[0] != 200)
    assert send(slug, "get", url="/orders", query={"amount": 10}) == DONE


def test_an_allowed_amount_is_not_exceeded_by_another_body(
    bank: LoopbackServer, connect: Callable[..., str], agent: httpx.Client, policy: Callable[..., None]
) -> None:
    slug = connect(bank.url)
    small = {"input": {"json": {"amount": {"_lt": 100}}}}
    policy({"effect": "allow", "subject": {"credentials": ["agent"]}, "integrations": [slug], "when": small})

    def pay(**params: Any) -> tuple[int, str]:
        body = {"action": "post", "input": {"url": "/payments", **params}}
        return code_of(agent.post(f"{PREFIX}/integrations/{slug}/execute", json=body))

    assert pay(json={"amount": 50}) == DONE
    refused = [pay(json={"amount": 500}), pay(form={"amount": 50}), pay(json={"amount": 50}, headers={"Content-Type": RAW})]
    assert DONE not in refused


def test_a_copy_does_not_bypass_a_kill_switch(
    bank: LoopbackServer, ours: Resources, connect: Callable[..., str], send: Callable[..., Any]
) -> None:
    slug, clone = connect(bank.url, **TOKEN), connect(bank.url, **TOKEN)
    other = connect(bank.url, auth={**TOKEN["auth"], "value": "another-secret-of-ours"})
    try:
        ours.ask("PUT", "/kill-switches", {"integration": slug, "off": True, "reason": "it books twice"})
        late = connect(bank.url.replace("127.0.0.1", "localhost"), **TOKEN)
        assert send(slug, "post", url="/orders") == send(clone, "post", url="/orders") == send(late, "get", url="/orders") == DENIED
        error = ours.client.post(f"{PREFIX}/integrations/{clone}/test").json()["error"]
        assert (error["code"], slug in error["message"], clone in error["message"]) == ("policy_denied", True, True)
        assert "whose credential" in error["message"]
        assert send(other, "post", url="/orders") == DONE
        ours.ask("PATCH", f"/integrations/{clone}", {"settings": {"auth": {**TOKEN["auth"], "value": "a-third-secret-of-ours"}}})
        assert send(clone, "post", url="/orders") == DONE, "it has a secret of its own by now"
    finally:
        ours.ask("PUT", "/kill-switches", {"integration": slug, "off": False})
    assert send(late, "post", url="/orders") == DONE


def test_a_rule_about_an_integration_matches_others_with_the_same_secret(
    bank: LoopbackServer, ours: Resources, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None]
) -> None:
    slug = connect(bank.url, **TOKEN)
    policy({"effect": "deny", "integrations": [slug], "effects": ["write"]})
    clone, other = connect(bank.url, **TOKEN), connect(bank.url, auth={**TOKEN["auth"], "value": "another-secret-of-ours"})
    alias = connect(bank.url.replace("127.0.0.1", "localhost"), **TOKEN)
    assert send(clone, "post", url="/orders") == send(alias, "post", url="/orders") == DENIED
    assert send(clone, "get", url="/orders") == send(other, "post", url="/orders") == DONE
    open_one = connect(bank.url)
    policy({"effect": "deny", "integrations": [open_one]})
    assert send(connect(bank.url), "get", url="/orders") == DENIED  # neither has a secret, both lead to the same system


def test_a_redirect_bypasses_no_rule_about_a_host(
    bank: LoopbackServer, ours: Resources, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None]
) -> None:
    target = LoopbackServer()
    target.answer("/other", body=b"{}", Content_Type="application/json")
    try:
        bank.answers["/away"] = lambda received: Answer(302, {"Location": f"{target.url}/other"}, b"")
        bank.answers["/twice"] = lambda received: Answer(302, {"Location": f"{bank.url}/away"}, b"")
        slug = connect(bank.url)
        assert send(slug, "get", url="/away") == DONE
        for effect in ("deny", "require_approval"):
            policy({"effect": effect, "integrations": [slug], "hosts": [target.url.removeprefix("http://")]})
            for path in ("/away", "/twice"):
                assert send(slug, "get", url=path) == (403, "address_not_allowed")
        assert len(target.received) == 1
        assert send(slug, "get", url="/orders") == DONE
        fields = [json.loads(each["fields"]) for each in ours.ask("GET", "/logs/audit?action=policy.deny&limit=3")]
        assert all(target.url.removeprefix("http://") in each["reasons"][0] for each in fields)
    finally:
        target.close()


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "graphql": ("url", {"action": "query", "input": {"document": "{ me }"}}),
    "odata": ("base_url", {"action": "list", "input": {"entity_set": "Orders"}}),
    "soap": ("wsdl_url", {"action": "describe", "input": {}}),
    "mcp": ("url", {"action": "list_tools", "input": {}}),
}


@pytest.mark.parametrize("connector", CALLS)
def test_rules_about_hosts_apply_to_other_connectors(
    bank: LoopbackServer, ours: Resources, policy: Callable[..., None], connector: str
) -> None:
    target, slug = LoopbackServer(), fresh("bank")
    member, call = CALLS[connector]
    away = Answer(307, {"Location": f"{target.url}/other"}, b"")
    bank.answers["/away"] = bank.answers["/away/$metadata"] = bank.answers["/away/Orders"] = lambda received: away
    ours.ask("POST", "/integrations", {"connector": connector, "slug": slug, "settings": {member: f"{bank.url}/away"}})

    def count_requests() -> tuple[int, int]:
        before = len(bank.received)
        ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=call)
        return len(bank.received) - before, len(target.received)

    try:
        policy({"effect": "deny", "integrations": [slug], "hosts": [target.url.removeprefix("http://")]})
        own, redirected = count_requests()
        assert own >= 1
        assert redirected == 0, "it sends to its own host, and is led on to no other"
        policy({"effect": "deny", "integrations": [slug], "hosts": [bank.url.removeprefix("http://")]})
        assert count_requests() == (0, 0)
    finally:
        target.close()


@pytest.mark.parametrize(
    "written", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "user@127.0.0.1"]
)
def test_a_host_is_the_same_however_it_is_written(
    bank: LoopbackServer, connect: Callable[..., str], send: Callable[..., Any], policy: Callable[..., None], written: str
) -> None:
    slug = connect()
    policy({"effect": "deny", "integrations": [slug], "hosts": ["127.0.0.1"]})
    port = bank.url.rpartition(":")[2]
    code = send(slug, "get", url=f"http://{written}:{port}/orders")
    assert code == DENIED or ("@" in written and code[0] != 200), code
    assert bank.received == []


def test_a_request_with_thousands_of_methods_is_evaluated_with_a_few() -> None:
    names = ["".join(letters) for letters in itertools.product("ABCDEFGHIJKLMNOP", repeat=3)]
    content = "&".join(f"_method={name}" for name in [*names, "DELETE"]).encode()
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    sent = read_request(HttpRequest("POST", "http://shop.test/", headers=form, content=content))
    assert {"POST", "DELETE"} <= set(sent.methods)
    assert len(sent.methods) <= 20
    assert len(sent.inputs({})) <= 200, "conditions are tried on each of them, while everybody waits"

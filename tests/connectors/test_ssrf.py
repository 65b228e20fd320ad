"""A corpus of addresses known from attacks, tried in every way a tenant can name one: no connection is made."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pydantic
import pytest
from gos_connector_http import HttpConnector

from appliance.connectors.context import CallContext
from appliance.connectors.contract import ConnectorError, Context, HttpRequest
from appliance.connectors.egress import Egress, EgressClient, system_resolver
from appliance.connectors.network.addresses import parse_allow
from appliance.connectors.testing import LoopbackServer
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.llm import LanguageModels, Origin, Profile, parse_prompt
from appliance.monitor import Deliverer, Webhooks, WebhookSpec, webhooks
from appliance.tenants import service as tenants
from tests.store.opening import open_migrated

SEALER = Sealer(b"k" * 32)
EVENT = "execution.failed"
HOSTS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "0.0.0.0",
    "localhost", "localhost.", "127.0.0.1.", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::ffff:169.254.169.254]", "169.254.169.254", "2852039166", "0xa9fea9fe",
    "0251.0376.0251.0376", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "10.0.0.1", "172.16.0.1",
    "192.168.1.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::]", "[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "[fc00::1]",
    "[ff02::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "inside.example",
    "①②⑦.⓪.⓪.①", "127。0。0。1", "127\uff0e0\uff0e0\uff0e1", "\uff11\uff12\uff17.0.0.1", "ⓛocalhost", "%31%32%37.0.0.1",
    "good.example@127.0.0.1", "good.example:80@127.0.0.1", "good.example%40127.0.0.1", "127.0.0.1%2f.good.example",
    "127.0.0.1\\@good.example", "good.example\\@127.0.0.1",
]  # fmt: skip
URLS = [f"http://{host}:{{port}}/" for host in HOSTS] + [
    "http:////127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://good.example#@127.0.0.1:{port}/",
    "http://good.example\t@127.0.0.1:{port}/", "http://good.example\r\nHost: 127.0.0.1:{port}/", "http://\x00127.0.0.1:{port}/",
    "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "ftp://127.0.0.1:{port}/", "unix:///run/x.sock",
]  # fmt: skip
_watched: list[list[Any]] = []
_slugs = count(1)


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _watched:
        _watched[-1].append(args[1])


@pytest.fixture(scope="session")
def audited() -> None:
    """Python reports every connection before it is made; an audit hook cannot be removed again."""
    sys.addaudithook(_note)


@pytest.fixture
def connected(audited: None) -> Iterator[list[Any]]:
    """Every address this process connects to during the test."""
    _watched.append([])
    yield _watched[-1]
    _watched.pop()


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantScope]:
    folder: Path = tmp_path_factory.mktemp("ssrf")
    open_migrated(f"sqlite:///{folder}/gos.db")
    tenants.create_tenant("acme", "Acme")
    yield tenants.system_scope("acme")
    db.close_database()


def resolve(host: str, port: int) -> list[str]:
    """The name server of an attacker: every made-up name resolves to an internal address."""
    return ["127.0.0.1"] if "example" in host else system_resolver(host, port)


@contextmanager
def calling(egress: Egress) -> Iterator[Context]:
    client = EgressClient(egress)
    try:
        yield CallContext(egress, client, "one", time.monotonic() + 10, lambda *_: None)
    finally:
        client.close()


def by_egress(egress: Egress, _scope: TenantScope, url: str) -> None:
    with calling(egress) as ctx:
        ctx.http.send(HttpRequest("GET", url))


def by_http_connector(egress: Egress, _scope: TenantScope, url: str) -> None:
    connector = HttpConnector({})
    with calling(egress) as ctx:
        connector.call("get", {"url": url}, ctx)


def by_base_address(egress: Egress, _scope: TenantScope, url: str) -> None:
    connector = HttpConnector({"base_url": url})
    with calling(egress) as ctx:
        connector.check(ctx)


def by_webhook(egress: Egress, scope: TenantScope, url: str) -> None:
    verbs, deliverer = Webhooks(SEALER, egress), Deliverer(egress, SEALER, frozenset)
    row, _ = verbs.create_webhook(scope, WebhookSpec(url, [EVENT]))
    try:
        db.write(lambda: webhooks.emit(scope, EVENT, dict))
        wait(deliverer.begin_due(), 20)
        (delivery,) = verbs.list_deliveries(scope, row.id, None, PageRequest()).items
        if delivery.attempts[0].get("status") != 200:
            raise ConnectorError(delivery.attempts[0].get("error", ""))
    finally:
        deliverer.stop()
        verbs.delete_webhook(scope, row.id)


def by_llm_profile(egress: Egress, scope: TenantScope, url: str) -> None:
    models = LanguageModels(egress, SEALER, lambda _scope, _name: "")
    slug = f"model-{next(_slugs)}"
    profile = Profile.model_validate({"kind": "openai", "model": "small", "base_url": url})
    models.create_profile(scope, slug, profile, "sk-canary-123")
    generation = models.generate(scope, parse_prompt({"profile": slug, "prompt": "Who?"}), Origin(), clock.monotonic() + 10)
    if generation.error is not None:
        raise generation.error


WAYS = [by_egress, by_http_connector, by_base_address, by_webhook, by_llm_profile]
Way = Callable[[Egress, TenantScope, str], None]
# A redirect is followed by the one client that all ways share: the whole corpus through it, samples through the others.
REDIRECTED = [(way, url) for way in WAYS for url in URLS[:: 1 if way is by_egress else 5] if url.startswith("http://")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("url", URLS)
def test_no_internal_address_is_connected_to(
    twin_server: LoopbackServer, tenant: TenantScope, connected: list[Any], way: Way, url: str
) -> None:
    twin_server.answer("/")
    with pytest.raises((ConnectorError, ApplianceError, pydantic.ValidationError)):
        way(Egress(resolver=resolve), tenant, url.format(port=twin_server.port))
    assert connected == []


@pytest.mark.parametrize(("way", "url"), REDIRECTED)
def test_no_redirect_reaches_an_internal_address(
    other_server: LoopbackServer, twin_server: LoopbackServer, tenant: TenantScope, connected: list[Any], way: Way, url: str
) -> None:
    twin_server.answer("/")
    location = url.format(port=twin_server.port)
    for path in ("/", "/chat/completions"):
        other_server.answer(path, 302, b"{}", Location=location)
    egress = Egress(parse_allow(["127.0.0.2/32"]), resolver=resolve)
    with pytest.raises((ConnectorError, ApplianceError)):
        way(egress, tenant, other_server.url + "/")
    assert {address[0] for address in connected} == {"127.0.0.2"}
    assert twin_server.received == []


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_rebinds_to_an_internal_address_is_not_followed(
    other_server: LoopbackServer, twin_server: LoopbackServer, tenant: TenantScope, connected: list[Any], way: Way
) -> None:
    resolved: list[str] = []

    def turning(host: str, _port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.2"] if len(resolved) == 1 else ["127.0.0.1"]

    for path in ("/", "/chat/completions"):
        other_server.answer(path, 500, b"{}", Connection="close")
        twin_server.answer(path)
    egress = Egress(parse_allow(["127.0.0.2/32"]), resolver=turning)
    for _ in range(2):
        try:
            way(egress, tenant, f"http://turning.example:{other_server.port}/")
        except (ConnectorError, ApplianceError) as error:
            failure = error
    assert "egress.allow" in str(failure)
    assert {address[0] for address in connected} == {"127.0.0.2"}
    assert twin_server.received == []

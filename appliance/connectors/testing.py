"""The contract suite: tests that every connector must pass, against a real system or a loopback server.

A plugin's test file:

    class TestEcho(ConnectorContract):
        connector = EchoConnector

        @pytest.fixture
        def settings(self, server):             # settings that work
            return {"base_url": server.url}

        @pytest.fixture
        def broken_settings(self):              # settings with which the system cannot be reached
            return {"base_url": "http://127.0.0.1:1"}
"""

# ruff: noqa: S101 - this is a test suite

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from appliance.connectors.auth import oauth_of
from appliance.connectors.context import CallContext
from appliance.connectors.contract import EFFECTS, ConfigError, Connector, ConnectorError, DocumentContent, Json, Level
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.folders import AllowedFolders, TenantFolders
from appliance.connectors.oauth import ClientTokens
from appliance.connectors.registry import Installed, check_declaration, check_discovered
from appliance.core import clock
from appliance.core.json_schema import compile_schema

_PORTS = range(20_000, 32_000)
LOOPBACK = ("127.0.0.0/8", "::1")
"""Egress rules that allow loopback, where a plugin's test server listens."""

_PIECE = 64 * 1024
_log = logging.getLogger(__name__)


def free_port() -> int:
    """Return a loopback port that is currently free, for a test server.

    It is below the ephemeral range: a port in that range could be taken by a client before the server starts.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _sink(level: Level, message: str, fields: Json) -> None:
    _log.log(logging.getLevelNamesMapping()[level.upper()], "%s %s", message, json.dumps(dict(fields)))


@contextmanager
def open_context(
    *,
    allow: Sequence[str] = LOOPBACK,
    folders: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    key: str = "contract-suite",
    seconds: float = 10.0,
) -> Iterator[CallContext]:
    """Open a real context that reaches loopback and `folders` (quota 1,000,000 bytes), with a deadline in `seconds`.

    `names` maps each host to the single address it resolves to, in place of the system's resolver.
    """
    egress = Egress.of(allow)
    if names is not None:
        egress = replace(egress, resolver=lambda host, _: [names[host]])
    client = EgressClient(egress)
    jails = TenantFolders(AllowedFolders.of(folders, quota=1_000_000), "acme")
    try:
        yield CallContext(egress, client, key, time.monotonic() + seconds, _sink, folders=jails)
    finally:
        client.close()


def with_tokens(ctx: CallContext, auth: Json) -> CallContext:
    """Return the context with tokens of the client credentials grant if the `auth` block is of kind `oauth2`."""
    oauth = oauth_of(auth)
    return ctx if oauth is None else replace(ctx, tokens=ClientTokens(oauth, ctx.http))


class HeldDocuments:
    """In-memory `ctx.documents` for tests; `held` maps ids to name, content type and bytes."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[str, str, bytes]] = {}

    def open(self, document_id: str) -> DocumentContent:
        if document_id not in self.documents:
            raise ConfigError(f"There is no document {document_id!r} here; check its id.")
        name, content_type, content = self.documents[document_id]
        pieces = [content[start : start + _PIECE] for start in range(0, len(content), _PIECE)]
        return DocumentContent(document_id, name, content_type, len(content), lambda: iter(pieces))

    def create(self, name: str, chunks: Iterable[bytes], content_type: str = "") -> str:
        document_id = f"doc_{len(self.documents) + 1}"
        self.documents[document_id] = (name, content_type, b"".join(chunks))
        return document_id


def with_documents(ctx: CallContext, documents: HeldDocuments) -> CallContext:
    """Return the context with access to these documents."""
    return replace(ctx, documents=documents)


def schema_problems(schema: Json, value: Any) -> list[str]:
    """Return the pointers of all violations of the JSON Schema in `value`."""
    return [problem.pointer for problem in compile_schema(schema).problems(value)]


@dataclass(frozen=True)
class Received:
    """A request received by the test server; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """A response of the test server."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"


def _nothing_here(_request: Received) -> Answer:
    return Answer(404, body=b"nothing here")


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect during a response, which some tests do on purpose."""


class LoopbackServer:
    """A real HTTP server on loopback: `answers` maps paths to handlers, `received` lists all requests in order."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.answers: dict[str, Callable[[Received], Answer]] = {}
        self.received: list[Received] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.command, self.path, headers, body)
                outer.received.append(request)
                answer = outer.answers.get(self.path.split("?")[0], _nothing_here)(request)
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Keep the server's access log out of the test output."""

        self._server = _Quiet((host, port), Handler)
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def answer(self, path: str, status: int = 200, body: bytes = b"ok", **headers: str) -> None:
        """Set a fixed response for `path`; `Content_Type="text/plain"` sets a header."""
        fixed = Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
        self.answers[path] = lambda _: fixed

    def expect(self, path: str) -> threading.Event:
        """Return an event that is set when the next request for `path` arrives."""
        arrived = threading.Event()
        answer = self.answers.get(path, _nothing_here)

        def note(request: Received) -> Answer:
            arrived.set()
            return answer(request)

        self.answers[path] = note
        return arrived

    def hold(self, path: str) -> threading.Event:
        """Delay responses at `path` until the returned event is set."""
        released = threading.Event()
        answer = self.answers.get(path, _nothing_here)

        def wait(request: Received) -> Answer:
            released.wait()
            return answer(request)

        self.answers[path] = wait
        return released

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ConnectorContract:
    """Base class of a plugin's contract tests: set `connector`, and override `settings` and `broken_settings`."""

    connector: type[Connector]
    allow: Sequence[str] = LOOPBACK
    """The egress rules of the suite."""

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        raise NotImplementedError("give settings that work")

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        raise NotImplementedError("give settings with which the system cannot be reached")

    @pytest.fixture
    def ctx(self, settings: dict[str, Any]) -> Iterator[CallContext]:
        with open_context(allow=self.allow) as ctx:
            yield with_tokens(ctx, self.connector.auth_of(settings))

    @pytest.fixture
    def it(self, settings: dict[str, Any]) -> Iterator[Connector]:
        it = self.connector(settings)
        yield it
        it.close()

    def test_it_is_declared_well(self) -> None:
        check_declaration(Installed(self.connector, "contract suite"), self.connector.name)

    def test_every_action_says_what_it_does(self) -> None:
        assert self.connector.title
        assert all(action.summary for action in self.connector.actions)

    def test_the_settings_are_valid_against_its_schema(self, settings: dict[str, Any]) -> None:
        assert schema_problems(self.connector.settings_schema, settings) == []

    def test_secret_settings_are_texts(self) -> None:
        for schema in _secret_schemas(self.connector.settings_schema):
            assert schema.get("type") == "string"

    def test_check_says_a_sentence(self, it: Connector, ctx: CallContext) -> None:
        assert it.check(ctx).strip()

    def test_check_fails_with_an_error_of_the_contract(self, broken_settings: dict[str, Any], ctx: CallContext) -> None:
        broken = self.connector(broken_settings)
        with pytest.raises(ConnectorError) as caught:
            broken.check(ctx)
        broken.close()
        assert type(caught.value) is not ConnectorError
        assert caught.value.message

    def test_samples_run_and_their_output_is_valid(self, it: Connector, ctx: CallContext) -> None:
        for action in self.connector.actions:
            output = it.call(action.name, dict(action.sample), ctx)
            assert json.loads(json.dumps(output)) == output
            assert schema_problems(action.output, output) == [], action.name

    def test_the_effect_of_a_call_never_exceeds_the_declared_one(self, it: Connector) -> None:
        for action in self.connector.actions:
            assert EFFECTS.index(it.effect_of(action, dict(action.sample))) <= EFFECTS.index(action.effect)

    def test_what_it_discovers_is_declared_well_and_found_again(self, it: Connector, ctx: CallContext) -> None:
        actions = list(it.discover(ctx))
        check_discovered(Installed(self.connector, "contract suite"), actions)
        assert json.loads(json.dumps([dict(action.plan) for action in actions])) == [dict(action.plan) for action in actions]
        assert [action.name for action in it.discover(ctx)] == [action.name for action in actions]

    def test_triggers_begin_where_they_are_and_go_on_from_their_cursor(self, it: Connector, ctx: CallContext) -> None:
        for trigger in self.connector.triggers:
            first = it.poll(trigger.name, dict(trigger.sample), None, ctx)
            again = it.poll(trigger.name, dict(trigger.sample), json.loads(json.dumps(first.cursor)), ctx)
            for item in [*first.items, *again.items]:
                assert item.key, trigger.name
                assert schema_problems(trigger.item, dict(item.data)) == [], trigger.name

    def test_an_unknown_trigger_is_refused(self, it: Connector, ctx: CallContext) -> None:
        with pytest.raises(ConnectorError):
            it.poll("no_such_trigger", {}, None, ctx)

    def test_an_unknown_action_is_refused(self, it: Connector, ctx: CallContext) -> None:
        with pytest.raises(ConnectorError):
            it.call("no_such_action", {}, ctx)

    def test_close_may_be_called_twice(self, settings: dict[str, Any]) -> None:
        closed = self.connector(settings)
        closed.close()
        closed.close()


def write_certificate(folder: Path) -> str:
    """Write the files `certificate` and `key` of a server at 127.0.0.1, and return the certificate, its own authority, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    begins = now - timedelta(days=400)  # TLS does not know of a clock that another test has moved
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), begins, now + timedelta(days=2)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    for file, content in (("certificate", certificate), ("key", private)):
        (folder / file).write_bytes(content)
    (folder / "key").chmod(0o600)
    return certificate.decode("ascii")


def _secret_schemas(schema: Json) -> Iterator[Json]:
    if schema.get("secret") is True:
        yield schema
    for part in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(part, dict):
            yield from _secret_schemas(part)

"""A small ACME authority on loopback (RFC 8555) that validates challenges for real and fails on request."""

import base64
import hashlib
import http.client
import json
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.sites.signing import Authority, Leaf, text_of

URN = "urn:ietf:params:acme:error:"
Answer = tuple[int, dict[str, str], Any]


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Problem(Exception):
    """An error response."""

    def __init__(self, status: int, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers or {}
        self.body = {"type": kind if ":" in kind else URN + kind, "detail": detail, "status": status}


@dataclass
class OrderState:
    names: list[str]
    account: str
    authorizations: list[str] = field(default_factory=list)
    status: str = "pending"
    chain: str = ""
    error: dict[str, Any] | None = None


@dataclass
class AuthorizationState:
    host: str
    wildcard: bool
    order: OrderState
    status: str = "pending"
    token: str = field(default_factory=lambda: encode(secrets.token_bytes(24)))
    error: dict[str, Any] | None = None
    checks: int = 0


class AcmeServer:
    """The authority's state.  `port` is the HTTP port of all hosts (they are this machine), `records` a folder whose files hold
    the values of TXT records, `failures` the error responses to the next requests for a resource."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = 0
        self.records: Path | None = None
        self.signer = Authority("Loopback authority")
        self.days = (-1.0, 90.0)
        self.pause = 0  # polls that an order stays in processing
        self.window: dict[str, str] | None = None
        self.eab: tuple[str, bytes] | None = None
        self.failures: dict[str, list[Problem]] = defaultdict(list)
        self.seen: list[str] = []
        self.nonces: set[str] = set()
        self.accounts: dict[str, dict[str, str]] = {}
        self.orders: list[OrderState] = []
        self.authorizations: list[AuthorizationState] = []
        self.lock = threading.RLock()

    def nonce(self) -> str:
        fresh = encode(secrets.token_bytes(16))
        self.nonces.add(fresh)
        return fresh

    # -- signatures

    def read(self, raw: bytes, url: str) -> tuple[str, dict[str, str], Any]:
        """Account (empty for a new one), its key and the payload of a signed request."""
        message = json.loads(raw)
        header = json.loads(decode(message["protected"]))
        if header["nonce"] not in self.nonces:
            raise Problem(400, "badNonce", "this nonce is not one of mine")
        self.nonces.discard(header["nonce"])
        if header["url"] != url:
            raise Problem(401, "unauthorized", "signed for another address")
        account = header.get("kid", "")
        key = header["jwk"] if not account else self.accounts[account]
        _verify(key, f"{message['protected']}.{message['payload']}".encode(), decode(message["signature"]))
        payload = json.loads(decode(message["payload"])) if message["payload"] else None
        return account, key, payload

    # -- resources

    def directory(self) -> dict[str, Any]:
        names = {"newNonce": "nonce", "newAccount": "account", "newOrder": "order", "revokeCert": "revoke", "keyChange": "key"}
        resources: dict[str, Any] = {name: f"{self.url}/{path}" for name, path in names.items()}
        return resources | ({"renewalInfo": f"{self.url}/renewal"} if self.window else {})

    def account(self, key: dict[str, str], payload: dict[str, Any]) -> Answer:
        if not payload.get("termsOfServiceAgreed"):
            raise Problem(403, "userActionRequired", "agree to the terms")
        if self.eab is not None:
            self._check_binding(payload.get("externalAccountBinding"), key)
        existing = next((uri for uri, jwk in self.accounts.items() if jwk == key), None)
        uri = existing or f"{self.url}/account/{len(self.accounts) + 1}"
        self.accounts[uri] = key
        return (200 if existing else 201), {"Location": uri}, {"status": "valid", "contact": payload.get("contact", [])}

    def _check_binding(self, binding: Any, key: dict[str, str]) -> None:
        if not binding or self.eab is None:
            raise Problem(403, "externalAccountRequired", "bind it to an account of ours")
        mac = hmac.HMAC(self.eab[1], hashes.SHA256())
        mac.update(f"{binding['protected']}.{binding['payload']}".encode())
        mac.verify(decode(binding["signature"]))
        assert json.loads(decode(binding["protected"]))["kid"] == self.eab[0]
        assert json.loads(decode(binding["payload"])) == key

    def new_order(self, account: str, payload: dict[str, Any]) -> Answer:
        order = OrderState([each["value"] for each in payload["identifiers"]], account)
        for name in order.names:
            order.authorizations.append(f"{self.url}/authz/{len(self.authorizations)}")
            self.authorizations.append(AuthorizationState(name.removeprefix("*."), name.startswith("*."), order))
        self.orders.append(order)
        return 201, {"Location": f"{self.url}/order/{len(self.orders) - 1}"}, self.show(order)

    def show(self, order: OrderState) -> dict[str, Any]:
        number = self.orders.index(order)
        body = {
            "status": order.status, "identifiers": [{"type": "dns", "value": name} for name in order.names],
            "authorizations": order.authorizations, "finalize": f"{self.url}/finalize/{number}",
        }  # fmt: skip
        if order.status == "valid":
            body["certificate"] = f"{self.url}/certificate/{number}"
        return body | ({"error": order.error} if order.error else {})

    def poll(self, number: int) -> Answer:
        order = self.orders[number]
        if order.status == "processing":
            self.pause -= 1
            order.status = "valid" if self.pause < 0 else "processing"
        return 200, {"Retry-After": "1"} if order.status == "processing" else {}, self.show(order)

    def authorization(self, number: int) -> Answer:
        authorization = self.authorizations[number]
        kinds = ("dns-01",) if authorization.wildcard else ("http-01", "dns-01", "tls-alpn-01")
        state = {"token": authorization.token, "status": authorization.status}
        if authorization.error:
            state["error"] = authorization.error  # type: ignore[assignment]
        challenges = [{"type": kind, "url": f"{self.url}/challenge/{number}/{kind}", **state} for kind in kinds]
        identifier = {"type": "dns", "value": authorization.host}
        body = {"identifier": identifier, "status": authorization.status, "challenges": challenges}
        return 200, {}, body | ({"wildcard": True} if authorization.wildcard else {})

    def challenge(self, number: int, kind: str, key: dict[str, str]) -> Answer:
        authorization = self.authorizations[number]
        authorization.checks += 1
        thumb = json.dumps({name: key[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"), sort_keys=True)
        expected = f"{authorization.token}.{encode(hashlib.sha256(thumb.encode()).digest())}"
        error = self._prove_http(authorization, expected) if kind == "http-01" else self._prove_dns(authorization, expected)
        authorization.status, authorization.error = ("invalid" if error else "valid"), error
        states = [self.authorizations[int(url.rpartition("/")[2])].status for url in authorization.order.authorizations]
        authorization.order.status = "invalid" if "invalid" in states else "ready" if set(states) == {"valid"} else "pending"
        link = {"Link": f'<{self.url}/authz/{number}>;rel="up"'}
        return (
            200,
            link,
            {
                "type": kind, "url": f"{self.url}/challenge/{number}/{kind}", "status": authorization.status,
                "token": authorization.token,
            },
        )

    def _prove_http(self, authorization: AuthorizationState, expected: str) -> dict[str, Any] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", f"/.well-known/acme-challenge/{authorization.token}", headers={"Host": authorization.host})
            answer = connection.getresponse()
            body = answer.read(1000).decode().rstrip()
        except OSError as error:
            return {"type": f"{URN}connection", "detail": f"{authorization.host}: {error}", "status": 400}
        finally:
            connection.close()
        if answer.status == 200 and body == expected:
            return None
        detail = f"{authorization.host} answered {answer.status} with {body[:40]!r}"
        return {"type": f"{URN}unauthorized", "detail": detail, "status": 403}

    def _prove_dns(self, authorization: AuthorizationState, expected: str) -> dict[str, Any] | None:
        value = encode(hashlib.sha256(expected.encode()).digest())
        file = self.records / f"_acme-challenge.{authorization.host}" if self.records else None
        if file is not None and file.exists() and value in file.read_text().split():
            return None
        return {"type": f"{URN}dns", "detail": f"no TXT record at _acme-challenge.{authorization.host}", "status": 400}

    def finalize(self, number: int, payload: dict[str, Any]) -> Answer:
        order = self.orders[number]
        if order.status != "ready":
            raise Problem(403, "orderNotReady", "prove the names first")
        csr = x509.load_der_x509_csr(decode(payload["csr"]))
        requested = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        if not csr.is_signature_valid or sorted(requested) != sorted(order.names):
            raise Problem(400, "badCSR", "the request names other hosts than the order")
        leaf = Leaf(order.names, begins=self.days[0], ends=self.days[1])
        order.chain = text_of(self.signer.sign(leaf, csr.public_key()), self.signer.certificate)
        order.status = "processing"
        return 200, {}, self.show(order)

    # -- routing

    def answer(self, path: str, raw: bytes) -> Answer:
        parts = path.strip("/").split("/")
        account, key, payload = self.read(raw, f"{self.url}{path}")
        if path == "/account":
            return self.account(key, payload)
        if path == "/order":
            return self.new_order(account, payload)
        number = int(parts[1])
        if parts[0] == "challenge":
            return self.challenge(number, parts[2], key)
        if parts[0] == "finalize":
            return self.finalize(number, payload)
        if parts[0] == "certificate":
            return 200, {}, self.orders[number].chain
        return self.poll(number) if parts[0] == "order" else self.authorization(number)


def _verify(key: dict[str, str], message: bytes, signature: bytes) -> None:
    x, y = (int.from_bytes(decode(key[name]), "big") for name in ("x", "y"))
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    half = len(signature) // 2
    numbers = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
    public.verify(encode_dss_signature(*numbers), message, ec.ECDSA(hashes.SHA256()))


class _Handler(BaseHTTPRequestHandler):
    authority: AcmeServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Quiet."""

    def do_HEAD(self) -> None:
        self._send(200, {}, None)

    def do_GET(self) -> None:
        self._reply(lambda: (200, {"Retry-After": "21600"}, self._read()))

    def _read(self) -> Any:
        if self.path.startswith("/renewal/"):
            return {"suggestedWindow": self.authority.window}
        return self.authority.directory()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self._reply(lambda: self.authority.answer(self.path, raw))

    def _reply(self, make: Any) -> None:
        resource = self.path.strip("/").partition("/")[0]
        with self.authority.lock:
            self.authority.seen.append(resource)
            failures = self.authority.failures[resource]
            try:
                if failures:
                    raise failures.pop(0)
                self._send(*make())
            except Problem as problem:
                self._send(problem.status, {"Content-Type": "application/problem+json", **problem.headers}, problem.body)

    def _send(self, status: int, headers: dict[str, str], body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Replay-Nonce", self.authority.nonce())
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


@contextmanager
def acme_server() -> Iterator[AcmeServer]:
    """The authority, listening until the block ends."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.authority = authority = AcmeServer(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield authority
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""ACME client (RFC 8555): account, order, challenges, certificate, and renewal information (RFC 9773).

Signing, nonces and messages come from the `acme` library. Nothing here sleeps or polls: callers come back later.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from acme import challenges, errors, messages
from acme.client import ClientNetwork, ClientV2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from josepy.errors import Error as JoseError
from josepy.jwa import ES256
from josepy.jwk import JWKEC

from appliance.core import clock

from .orders import Stopped

SECONDS = 15
_RETRYABLE = frozenset({"badNonce", "serverInternal"})
_MOST_DETAIL = 600


class Refused(Exception):
    """The authority refused the request; `type` and the message come from its problem document. `retry_after` in milliseconds."""

    def __init__(self, kind: str, detail: str, retry_after: int = 0) -> None:
        super().__init__(detail)
        self.type, self.detail, self.retry_after = kind, detail[:_MOST_DETAIL], retry_after


class Unreachable(Exception):
    """The authority did not respond, or its response was invalid; the request can be repeated later. `retry_after` in
    milliseconds."""

    def __init__(self, detail: str, retry_after: int = 0) -> None:
        super().__init__(detail)
        self.detail, self.retry_after = detail[:_MOST_DETAIL], retry_after


@dataclass(frozen=True)
class Registration:
    """How the appliance registers: its contact address, and the external account binding to an existing account, if any."""

    email: str = ""
    eab_key_id: str = ""
    eab_hmac_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Order:
    """An order as the authority reports it; `pause` is the requested delay before the next request, in milliseconds."""

    status: str
    authorizations: tuple[str, ...]
    finalize: str
    certificate: str | None
    problem: Refused | None
    pause: int


@dataclass(frozen=True)
class Challenge:
    """The authorization of one name: its status and the challenge to publish.

    `record` is the name and value of the TXT record (DNS-01), or the host and key authorization (HTTP-01, served under
    `token`).
    """

    status: str
    url: str
    token: str
    record: tuple[str, str]
    problem: Refused | None
    challenge: messages.ChallengeBody | None
    pause: int


class AcmeClient:
    """One account with one authority. Every method makes one request, and raises Refused or Unreachable."""

    def __init__(self, directory: str, key: bytes, uri: str | None, ca_file: str, stopping: threading.Event) -> None:
        """Once `stopping` is set, every method raises Stopped."""
        self._stopping = stopping
        private = serialization.load_pem_private_key(key, None)
        self._key = JWKEC(key=private)
        # `requests` accepts the path of a CA file here, but the library's annotation allows only a boolean.
        trust: Any = ca_file or True
        self._net = ClientNetwork(self._key, alg=ES256, verify_ssl=trust, user_agent="gos-appliance", timeout=SECONDS)
        self._net.session.trust_env = False
        self._pause = 0
        self._net.session.hooks["response"].append(self._note_pause)
        with self._translate_errors():
            self._client = ClientV2(ClientV2.get_directory(directory, self._net), self._net)
        if uri is not None:
            self._net.account = messages.RegistrationResource(body=messages.Registration(), uri=uri)

    def register(self, registration: Registration) -> str:
        """Register the account, or find the existing one of this key; returns its URL."""
        with self._translate_errors():
            binding = None
            if registration.eab_key_id:
                public, directory = self._key.public_key(), self._client.directory
                binding = messages.ExternalAccountBinding.from_data(
                    public, registration.eab_key_id, registration.eab_hmac_key, directory
                )
            new = messages.NewRegistration.from_data(
                email=registration.email or None, external_account_binding=binding, terms_of_service_agreed=True
            )
            try:
                uri = str(self._client.new_account(new).uri)
            except errors.ConflictError as conflict:
                uri = conflict.location
                self._net.account = messages.RegistrationResource(body=messages.Registration(), uri=uri)
        return uri

    def new_order(self, names: tuple[str, ...]) -> str:
        """Order a certificate for these names; returns the URL of the order."""
        identifiers = [messages.Identifier(typ=messages.IDENTIFIER_FQDN, value=name) for name in names]
        answer = self._post(self._client.directory["newOrder"], messages.NewOrder(identifiers=identifiers))
        return str(answer.headers["Location"])

    def get_order(self, url: str) -> Order:
        """Fetch the current state of an order."""
        with self._translate_errors():
            body = messages.Order.from_json(self._post(url, None).json())
        status = body.status.name if body.status is not None else "unknown"
        problem = None if body.error is None else _to_refused(body.error, 0)
        return Order(status, tuple(body.authorizations or ()), body.finalize or "", body.certificate, problem, self._pause)

    def get_challenge(self, url: str, kind: str) -> Challenge:
        """The `http-01` or `dns-01` challenge of an authorization (RFC 8555 § 7.1.4); Refused when the authority does not offer
        it."""
        with self._translate_errors():
            body = messages.Authorization.from_json(self._post(url, None).json())
        host = str(body.identifier.value)
        error = next((challenge.error for challenge in body.challenges if challenge.error is not None), None)
        problem = None if error is None else _to_refused(error, 0)
        challenge = next((challenge for challenge in body.challenges if challenge.chall.typ == kind), None)
        if challenge is None or not isinstance(challenge.chall, challenges.KeyAuthorizationChallenge):
            if body.status.name == "pending":
                raise Refused("no_challenge", f"the authority does not offer {kind} for {host}")
            return Challenge(
                status=body.status.name, url="", token="", record=("", ""), problem=problem, challenge=None, pause=self._pause,
            )
        value = challenge.chall.validation(self._key)
        name = challenge.chall.validation_domain_name(host) if isinstance(challenge.chall, challenges.DNS01) else host
        token = str(challenge.chall.encode("token"))
        return Challenge(
            status=body.status.name, url=challenge.uri, token=token, record=(name, value), problem=problem, challenge=challenge,
            pause=self._pause,
        )

    def answer_challenge(self, challenge: Challenge) -> None:
        """Tell the authority that the challenge is published."""
        if challenge.challenge is not None:
            self._post(challenge.url, challenge.challenge.response(self._key))

    def finalize(self, order: Order, names: tuple[str, ...], private_key: bytes) -> None:
        """Send the certificate signing request; the certificate is issued later."""
        self._post(order.finalize, messages.CertificateRequest(csr=_signing_request(names, private_key)))

    def download(self, url: str) -> str:
        """The certificate chain in PEM, the host's certificate first."""
        return str(self._post(url, None).text)

    def renewal_time(self, chain: str) -> int | None:
        """When the authority suggests renewing the certificate (epoch ms); None when it does not say."""
        with self._translate_errors():
            try:
                suggested, _ = self._client.renewal_time(chain.encode())
            except errors.ARIError as error:
                raise Unreachable(str(error)) from error
        return None if suggested is None else int(suggested.timestamp() * 1000)

    def _post(self, url: str, body: Any) -> requests.Response:
        with self._translate_errors():
            answer = self._net.post(url, body, new_nonce_url=self._client.directory["newNonce"])
        if not isinstance(answer, requests.Response):
            raise TypeError("the ACME library did not return a requests.Response")
        return answer

    def _note_pause(self, response: requests.Response, *_: object, **__: object) -> None:
        self._pause = read_retry_after(response.headers.get("Retry-After", ""))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translates the library's exceptions to Refused and Unreachable."""
        if self._stopping.is_set():
            raise Stopped
        self._pause = 0
        try:
            yield
        except messages.Error as error:
            if error.code in _RETRYABLE:
                raise Unreachable(_to_refused(error, 0).detail, self._pause) from error
            raise _to_refused(error, self._pause) from error
        except (requests.RequestException, errors.Error, JoseError, ValueError, KeyError) as error:
            raise Unreachable(f"the authority could not be reached: {_describe_error(error)}", self._pause) from error


def new_private_key() -> bytes:
    """Create a key for an account or a host (P-256), in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def read_retry_after(text: str) -> int:
    """Milliseconds of a Retry-After header, given in seconds or as a date; 0 when it is missing or invalid."""
    if text.strip().isdigit():
        return int(text.strip()[:9]) * 1000
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return 0
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return max(0, int((when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds() * 1000))


def _to_refused(error: messages.Error, pause: int) -> Refused:
    details = [error.detail or error.title or error.description or "the authority gave no reason"]
    details += [problem.detail for problem in error.subproblems or () if problem.detail]
    return Refused(str(error.typ), "; ".join(details), pause)


def _describe_error(error: Exception) -> str:
    if isinstance(error, requests.Timeout):
        return f"no response within {SECONDS} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "its own certificate is not trusted (acme.ca_file names further authorities)"
    if isinstance(error, requests.ConnectionError):
        return "connection refused"
    if isinstance(error, errors.ClientError) and error.args and isinstance(error.args[0], requests.Response):
        return f"it responded with status {error.args[0].status_code}"
    return f"{type(error).__name__} {error}"[:200]


def _signing_request(names: tuple[str, ...], private_key: bytes) -> x509.CertificateSigningRequest:
    key = serialization.load_pem_private_key(private_key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of an order must be an elliptic curve key")
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    return builder.add_extension(hosts, critical=False).sign(key, hashes.SHA256())

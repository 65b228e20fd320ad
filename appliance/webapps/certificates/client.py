"""The client of an ACME authority (RFC 8555): account, order, challenges, certificate, renewal information (RFC 9773).

Signing, nonces and messages are the library's; waiting is not: nothing here sleeps, whoever calls comes again.
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
_LATER = frozenset({"badNonce", "serverInternal"})
_MOST_DETAIL = 600


class Refused(Exception):
    """The authority will not: `type` and the message are those of its problem document; times in milliseconds."""

    def __init__(self, kind: str, detail: str, retry_after: int = 0) -> None:
        super().__init__(detail)
        self.type, self.detail, self.retry_after = kind, detail[:_MOST_DETAIL], retry_after


class Unreachable(Exception):
    """The authority does not answer, or not with sense: the same question may be asked again later."""

    def __init__(self, detail: str, retry_after: int = 0) -> None:
        super().__init__(detail)
        self.detail, self.retry_after = detail[:_MOST_DETAIL], retry_after


@dataclass(frozen=True)
class Registration:
    """How the appliance presents itself: contact, and what binds it to an account it has with the authority."""

    email: str = ""
    eab_key_id: str = ""
    eab_hmac_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Order:
    """An order as the authority sees it; `pause` is how long it wishes to be left alone, in milliseconds."""

    status: str
    authorizations: tuple[str, ...]
    finalize: str
    certificate: str | None
    problem: Refused | None
    pause: int


@dataclass(frozen=True)
class Question:
    """One name that is to be proven: what to publish, and whether the authority still waits for it.

    `record` is name and value of the TXT record (DNS-01), or host and key authorisation (HTTP-01, under `token`).
    """

    status: str
    url: str
    token: str
    record: tuple[str, str]
    problem: Refused | None
    challenge: messages.ChallengeBody | None
    pause: int


class AcmeClient:
    """One account with one authority.  Every method is one exchange, and raises Refused or Unreachable."""

    def __init__(self, directory: str, key: bytes, uri: str | None, ca_file: str, stopping: threading.Event) -> None:
        """Once `stopping` is set, nothing is asked any more: Stopped."""
        self._stopping = stopping
        private = serialization.load_pem_private_key(key, None)
        self._key = JWKEC(key=private)
        # `requests` takes a file of authorities where the library's annotation knows only yes and no.
        trust: Any = ca_file or True
        self._net = ClientNetwork(self._key, alg=ES256, verify_ssl=trust, user_agent="gos-appliance", timeout=SECONDS)
        self._net.session.trust_env = False
        self._pause = 0
        self._net.session.hooks["response"].append(self._note_pause)
        with self._told():
            self._client = ClientV2(ClientV2.get_directory(directory, self._net), self._net)
        if uri is not None:
            self._net.account = messages.RegistrationResource(body=messages.Registration(), uri=uri)

    def register(self, registration: Registration) -> str:
        """The account's address, made unless the authority knows the key already."""
        with self._told():
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
            except errors.ConflictError as known:
                uri = known.location
                self._net.account = messages.RegistrationResource(body=messages.Registration(), uri=uri)
        return uri

    def new_order(self, names: tuple[str, ...]) -> str:
        """Order a certificate for these names; answers the order's address."""
        identifiers = [messages.Identifier(typ=messages.IDENTIFIER_FQDN, value=name) for name in names]
        answer = self._post(self._client.directory["newOrder"], messages.NewOrder(identifiers=identifiers))
        return str(answer.headers["Location"])

    def get_order(self, url: str) -> Order:
        """How an order stands."""
        with self._told():
            body = messages.Order.from_json(self._post(url, None).json())
        status = body.status.name if body.status is not None else "unknown"
        problem = None if body.error is None else _refused(body.error, 0)
        return Order(status, tuple(body.authorizations or ()), body.finalize or "", body.certificate, problem, self._pause)

    def get_question(self, url: str, kind: str) -> Question:
        """What an authorization (RFC 8555 § 7.1.4) asks for by `http-01` or `dns-01`; Refused when that is not offered."""
        with self._told():
            body = messages.Authorization.from_json(self._post(url, None).json())
        host = str(body.identifier.value)
        failed = next((each.error for each in body.challenges if each.error is not None), None)
        problem = None if failed is None else _refused(failed, 0)
        found = next((each for each in body.challenges if each.chall.typ == kind), None)
        if found is None or not isinstance(found.chall, challenges.KeyAuthorizationChallenge):
            if body.status.name == "pending":
                raise Refused("no_challenge", f"the authority does not offer {kind} for {host}")
            return Question(body.status.name, "", "", ("", ""), problem, None, self._pause)
        value = found.chall.validation(self._key)
        name = found.chall.validation_domain_name(host) if isinstance(found.chall, challenges.DNS01) else host
        token = str(found.chall.encode("token"))
        return Question(body.status.name, found.uri, token, (name, value), problem, found, self._pause)

    def answer(self, question: Question) -> None:
        """Tell the authority that what it asked for is there."""
        if question.challenge is not None:
            self._post(question.url, question.challenge.response(self._key))

    def finalize(self, order: Order, names: tuple[str, ...], private_key: bytes) -> None:
        """Send the request to sign; the certificate comes later."""
        self._post(order.finalize, messages.CertificateRequest(csr=_signing_request(names, private_key)))

    def download(self, url: str) -> str:
        """The chain in PEM, the host's own certificate first."""
        return str(self._post(url, None).text)

    def renewal_time(self, chain: str) -> int | None:
        """When the authority wishes the certificate to be renewed; None when it has no wish."""
        with self._told():
            try:
                wish, _ = self._client.renewal_time(chain.encode())
            except errors.ARIError as error:
                raise Unreachable(str(error)) from error
        return None if wish is None else int(wish.timestamp() * 1000)

    def _post(self, url: str, what: Any) -> requests.Response:
        with self._told():
            answer = self._net.post(url, what, new_nonce_url=self._client.directory["newNonce"])
        if not isinstance(answer, requests.Response):
            raise TypeError("the library does not answer as it did")
        return answer

    def _note_pause(self, response: requests.Response, *_: object, **__: object) -> None:
        self._pause = read_retry_after(response.headers.get("Retry-After", ""))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the library raises, as Refused or Unreachable."""
        if self._stopping.is_set():
            raise Stopped
        self._pause = 0
        try:
            yield
        except messages.Error as error:
            if error.code in _LATER:
                raise Unreachable(_refused(error, 0).detail, self._pause) from error
            raise _refused(error, self._pause) from error
        except (requests.RequestException, errors.Error, JoseError, ValueError, KeyError) as error:
            raise Unreachable(f"the authority cannot be asked: {_sentence(error)}", self._pause) from error


def new_private_key() -> bytes:
    """A new key for an account or a host (P-256), in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def read_retry_after(text: str) -> int:
    """Milliseconds that a Retry-After asks for, in seconds or as a date; 0 for none and for what cannot be read."""
    if text.strip().isdigit():
        return int(text.strip()[:9]) * 1000
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return 0
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return max(0, int((when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds() * 1000))


def _refused(error: messages.Error, pause: int) -> Refused:
    said = [error.detail or error.title or error.description or "the authority gave no reason"]
    said += [each.detail for each in error.subproblems or () if each.detail]
    return Refused(str(error.typ), "; ".join(said), pause)


def _sentence(error: Exception) -> str:
    if isinstance(error, requests.Timeout):
        return f"it has not answered within {SECONDS} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "its own certificate is not trusted (acme.ca_file names further authorities)"
    if isinstance(error, requests.ConnectionError):
        return "it accepts no connection"
    if isinstance(error, errors.ClientError) and error.args and isinstance(error.args[0], requests.Response):
        return f"it answers with status {error.args[0].status_code}"
    return f"{type(error).__name__} {error}"[:200]


def _signing_request(names: tuple[str, ...], private_key: bytes) -> x509.CertificateSigningRequest:
    key = serialization.load_pem_private_key(private_key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("an order's key is one that this appliance made")
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    return builder.add_extension(hosts, critical=False).sign(key, hashes.SHA256())

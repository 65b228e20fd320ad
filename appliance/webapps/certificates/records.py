"""Data types of the certificates."""

from dataclasses import dataclass
from typing import Literal

Origin = Literal["acme", "uploaded", "internal"]


@dataclass(frozen=True)
class Pair:
    """A certificate chain, the host's certificate first, and its private key; both PEM."""

    chain: bytes
    private_key: bytes

    def __repr__(self) -> str:
        return "Pair(…)"  # keeps the key out of logs and tracebacks


@dataclass(frozen=True)
class CertificateDetails:
    """The details of a certificate. Times in milliseconds; `fingerprint` is the SHA-256 in hexadecimal."""

    names: tuple[str, ...]
    issuer: str
    fingerprint: str
    key: str
    not_before: int
    not_after: int


@dataclass(frozen=True)
class Problem:
    """Why the last attempt failed: the authority's problem type (or one of our own), a sentence, and the time."""

    type: str
    detail: str
    at: int


@dataclass(frozen=True)
class Certificate:
    """The certificate of a host without its key; `since` is when the host first had one that was not issued internally."""

    host: str
    origin: Origin
    facts: CertificateDetails
    since: int | None
    renew_at: int | None
    updated_at: int

    @property
    def stamp(self) -> str:
        """Changes whenever the certificate or its chain changes."""
        return f"{self.facts.fingerprint}/{self.updated_at}"


@dataclass(frozen=True)
class ServedCertificate:
    """A certificate to use in TLS handshakes for `hosts`; `pair` is None when its key cannot be decrypted."""

    certificate: Certificate
    hosts: tuple[str, ...]
    pair: Pair | None


@dataclass(frozen=True)
class OrderStatus:
    """The state of an order: whether it is running, when the next attempt is, and why the last one failed."""

    host: str
    running: bool
    failures: int
    next_try: int
    problem: Problem | None

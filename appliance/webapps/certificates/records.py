"""What crosses the border of the certificates."""

from dataclasses import dataclass
from typing import Literal

Origin = Literal["acme", "uploaded", "internal"]


@dataclass(frozen=True)
class Pair:
    """A chain, the host's own certificate first, and the private key of that; both PEM."""

    chain: bytes
    private_key: bytes

    def __repr__(self) -> str:
        return "Pair(…)"  # a key must not reach a log by way of a traceback


@dataclass(frozen=True)
class Facts:
    """What a certificate says about itself.  Times in milliseconds; `fingerprint` is the SHA-256 in hexadecimal."""

    names: tuple[str, ...]
    issuer: str
    fingerprint: str
    key: str
    not_before: int
    not_after: int


@dataclass(frozen=True)
class Problem:
    """Why the last try failed: the authority's problem type (or one of ours), its sentence, and when it was."""

    type: str
    detail: str
    at: int


@dataclass(frozen=True)
class Certificate:
    """What may be shown about the certificate of a host; `since` is when the host first had one from beyond this appliance."""

    host: str
    origin: Origin
    facts: Facts
    since: int | None
    renew_at: int | None
    updated_at: int

    @property
    def stamp(self) -> str:
        """Another one whenever something about it has changed, be it only the chain."""
        return f"{self.facts.fingerprint}/{self.updated_at}"


@dataclass(frozen=True)
class Served:
    """What a handshake takes; `hosts` are the names that it is offered for, `pair` is None where the key does not open."""

    certificate: Certificate
    hosts: tuple[str, ...]
    pair: Pair | None


@dataclass(frozen=True)
class Ordering:
    """How far a host without a good certificate has come: when the next try is, and why the last one failed."""

    host: str
    running: bool
    failures: int
    next_try: int
    problem: Problem | None

"""One TLS context for all HTTP clients of a test process: each would read the authorities anew, which takes 17 ms."""

import os
import ssl
from functools import cache, cached_property
from typing import Any

import httpx
from httpx._transports import default

from appliance.connectors.egress import Egress

PROPER = httpx.create_ssl_context
TLS = Egress.__dict__["tls"]
_PLACES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@cache
def _shared(trust_env: bool, *places: str | None) -> ssl.SSLContext:
    return PROPER(trust_env=trust_env)


def _create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Whoever trusts somebody else, or nobody, or shows a certificate, has a context of their own."""
    if verify is not True or cert is not None:
        return PROPER(verify=verify, cert=cert, trust_env=trust_env)
    return _shared(trust_env, *(os.environ.get(name) for name in _PLACES))


def _tls(egress: Egress) -> ssl.SSLContext:
    """Whoever brings authorities of their own has a context of their own."""
    return TLS.func(egress) if egress.ca_file else _shared(False)


def trust_once() -> None:
    """From now on in this process."""
    shared = cached_property(_tls)
    shared.__set_name__(Egress, "tls")
    Egress.tls = shared  # type: ignore[assignment]
    default.create_ssl_context = _create  # type: ignore[attr-defined]  # its clients make theirs through this name

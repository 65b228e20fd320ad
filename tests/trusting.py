"""Shares one TLS context among all HTTP clients of a test process: loading the certificate authorities takes 17 ms each time."""

import os
import ssl
from functools import cache, cached_property
from typing import Any

import httpx
from httpx._transports import default

from appliance.connectors.egress import Egress

ORIGINAL_CREATE = httpx.create_ssl_context
TLS = Egress.__dict__["tls"]
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@cache
def _shared(trust_env: bool, *locations: str | None) -> ssl.SSLContext:
    return ORIGINAL_CREATE(trust_env=trust_env)


def _create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Clients with other authorities, without verification or with a certificate get their own context."""
    if verify is not True or cert is not None:
        return ORIGINAL_CREATE(verify=verify, cert=cert, trust_env=trust_env)
    return _shared(trust_env, *(os.environ.get(name) for name in _VARIABLES))


def _tls(egress: Egress) -> ssl.SSLContext:
    """Appliances with their own authorities get their own context."""
    return TLS.func(egress) if egress.ca_file else _shared(False)


def trust_once() -> None:
    """Share one TLS context in this process."""
    shared = cached_property(_tls)
    shared.__set_name__(Egress, "tls")
    Egress.tls = shared  # type: ignore[assignment]
    default.create_ssl_context = _create  # type: ignore[attr-defined]  # httpx creates contexts through this name

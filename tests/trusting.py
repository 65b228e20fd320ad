"""One TLS context for all HTTP clients of a test process: each would read the authorities anew, which takes 17 ms."""

import os
import ssl
from functools import cache
from typing import Any

import httpx
from httpx._transports import default

PROPER = httpx.create_ssl_context
_PLACES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@cache
def _shared(trust_env: bool, *places: str | None) -> ssl.SSLContext:
    return PROPER(trust_env=trust_env)


def _create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Whoever trusts somebody else, or nobody, or shows a certificate, has a context of their own."""
    if verify is not True or cert is not None:
        return PROPER(verify=verify, cert=cert, trust_env=trust_env)
    return _shared(trust_env, *(os.environ.get(name) for name in _PLACES))


def trust_once() -> None:
    """From now on in this process."""
    default.create_ssl_context = _create  # type: ignore[attr-defined]  # its clients make theirs through this name

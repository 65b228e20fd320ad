"""What the base host alone serves, of the whole appliance: its figures, and the root of its built-in authority."""

import hmac
from pathlib import Path
from typing import Any, cast

from quart import Blueprint, Response, request
from werkzeug.datastructures import Headers

from appliance.connectors.egress import MARK
from appliance.core.config import Config
from appliance.core.errors import AddressNotAllowed, ConfigInvalid, InvalidApiKey, NotFound
from appliance.core.sentences import Sentence
from appliance.monitor import metrics
from appliance.webapps.certificates import ca_certificate

from .front import host_of
from .networks import Networks

SHORTEST_TOKEN = 16
# What tells that somebody else stands between: the address of the connection is then not that of who asks.
_RELAYED = (MARK.lower(), "forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")


def make_root(config: Config) -> Blueprint:
    """`/metrics`, and `/ca.pem` where the built-in authority signs."""
    root = Blueprint("root", __name__)
    readers = MetricsReaders(config)

    @root.get("/metrics")
    async def show_metrics() -> Response:
        _on_base("/metrics")
        readers.check(request.headers, cast(dict[str, Any], request.scope)["gos.address"])
        return Response(metrics.render(), content_type="text/plain; version=0.0.4; charset=utf-8")

    @root.get("/ca.pem")
    async def show_authority() -> Response:
        _on_base("/ca.pem")
        file = ca_certificate(config)
        if config.tls_mode != "internal" or not file.exists():
            raise NotFound("the built-in authority does not sign here, so there is no root certificate to trust")
        headers = {"Content-Disposition": 'attachment; filename="ca.pem"', "Cache-Control": "no-cache"}
        return Response(file.read_bytes(), headers=headers, content_type="application/x-pem-file")

    return root


class MetricsReaders:
    """Who may read the metrics: they tell of every tenant."""

    def __init__(self, config: Config) -> None:
        self._token = _read_token(config)
        self._networks = Networks(config.metrics.allow)

    def check(self, headers: Headers, address: str) -> None:
        """InvalidApiKey without the right token, AddressNotAllowed where none is set; both say who can mend it."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        shown = token.strip().encode() if scheme.lower() == "bearer" else b""
        if self._token and shown and hmac.compare_digest(shown, self._token):
            return
        if address in self._networks and not any(name in headers for name in _RELAYED):
            return
        if self._token:
            raise InvalidApiKey(
                "send the token of metrics.token as Authorization: Bearer; whoever runs this appliance knows it",
                headers={"WWW-Authenticate": "Bearer"},
            )
        raise AddressNotAllowed(
            "the metrics are shown to the addresses of metrics.allow only, asked directly; whoever runs this appliance can add "
            "yours, or set metrics.token"
        )


def _read_token(config: Config) -> bytes:
    if not config.metrics.token_file:
        return config.metrics.token.encode()
    try:
        token = Path(config.metrics.token_file).read_bytes().strip()
    except OSError as error:
        raise ConfigInvalid(Sentence(
            "metrics.token_file: %(token_file)s cannot be read (%(strerror)s)",
            token_file=config.metrics.token_file, strerror=error.strerror,
        )) from error
    if len(token) < SHORTEST_TOKEN:
        raise ConfigInvalid(Sentence(
            "metrics.token_file: the token in it has %(token)s characters; it needs %(shortest_token)s",
            token=len(token), shortest_token=SHORTEST_TOKEN,
        ))
    return token


def _on_base(path: str) -> None:
    """A tenant's host says nothing about the others."""
    if host_of(cast(dict[str, Any], request.scope)).kind != "base":
        raise NotFound(Sentence("there is no %(path)s here; the base host serves it", path=path))

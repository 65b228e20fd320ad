"""Routes of the base host for the whole appliance: metrics, the built-in authority's certificate, and the keys of audit trails."""

import hmac
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path

from quart import Blueprint

from appliance.connectors.egress import MARK
from appliance.core.config import Config
from appliance.core.errors import AddressNotAllowed, ConfigInvalid, InvalidApiKey, NotFound
from appliance.core.sentences import Sentence
from appliance.monitor import metrics
from appliance.monitor.signed_trails import public_keys_file
from appliance.web import Request, Response, in_thread, view
from appliance.webapps.certificates import ca_certificate

from .networks import Networks

SHORTEST_TOKEN = 16
# Headers that show that a relay is in between, so that the peer address is not the client's.
_RELAYED = (MARK.lower(), "forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")


def build_root(config: Config, threads: Executor) -> Blueprint:
    """Build the blueprint with `/metrics`, `/audit-keys.pem`, and `/ca.pem` where the built-in authority is in use.

    `threads` are for what reads the database.
    """
    root = Blueprint("root", __name__)
    readers = MetricsReaders(config)

    async def show_metrics(request: Request) -> Response:
        _require_base_host(request)
        readers.check(request.headers, request.address)
        return Response(200, metrics.render().encode(), {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def show_authority(request: Request) -> Response:
        _require_base_host(request)
        file = ca_certificate(config)
        if config.tls_mode != "internal" or not file.exists():
            raise NotFound("the built-in authority is not in use, so there is no root certificate")
        headers = {"Content-Disposition": 'attachment; filename="ca.pem"', "Cache-Control": "no-cache"}
        return Response(200, file.read_bytes(), {"Content-Type": "application/x-pem-file", **headers})

    async def show_audit_keys(request: Request) -> Response:
        _require_base_host(request)
        keys = await in_thread(threads, public_keys_file)
        if not keys:
            raise NotFound("no audit trail was signed yet, so there is no public key; `gos audit key` makes one")
        headers = {"Content-Disposition": 'attachment; filename="audit-keys.pem"', "Cache-Control": "no-cache"}
        return Response(200, keys.encode(), {"Content-Type": "application/x-pem-file", **headers})

    root.add_url_rule("/audit-keys.pem", "show_audit_keys", view(show_audit_keys))
    root.add_url_rule("/metrics", "show_metrics", view(show_metrics))
    root.add_url_rule("/ca.pem", "show_authority", view(show_authority))
    return root


class MetricsReaders:
    """Checks who may read the metrics, which include every tenant."""

    def __init__(self, config: Config) -> None:
        self._token = _read_token(config)
        self._networks = Networks(config.metrics.allow)

    def check(self, headers: Mapping[str, str], address: str) -> None:
        """InvalidApiKey when a token is configured and missing or wrong, otherwise AddressNotAllowed; both say how to get
        access."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent_token = token.strip().encode() if scheme.lower() == "bearer" else b""
        if self._token and sent_token and hmac.compare_digest(sent_token, self._token):
            return
        if address in self._networks and not any(name in headers for name in _RELAYED):
            return
        if self._token:
            raise InvalidApiKey(
                "send the token of metrics.token as Authorization: Bearer; ask the operator for it",
                headers={"WWW-Authenticate": "Bearer"},
            )
        raise AddressNotAllowed(
            "the metrics are available only to the addresses in metrics.allow, without a proxy; the operator can add "
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
            "metrics.token_file: the token has %(token)s characters; it needs at least %(shortest_token)s",
            token=len(token), shortest_token=SHORTEST_TOKEN,
        ))
    return token


def _require_base_host(request: Request) -> None:
    """NotFound on tenant hosts, which must not reveal anything about other tenants."""
    if request.host.kind != "base":
        raise NotFound(Sentence("%(path)s does not exist here; use the base host", path=request.path))

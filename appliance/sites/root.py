"""What the base host alone serves, of the whole appliance: its figures, and the root of its built-in authority."""

from typing import Any, cast

from quart import Blueprint, Response, request

from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.monitor import metrics
from appliance.webapps.certificates.authority import ca_certificate

from .front import host_of


def make_root(config: Config) -> Blueprint:
    """`/metrics`, and `/ca.pem` where the built-in authority signs."""
    root = Blueprint("root", __name__)

    @root.get("/metrics")
    async def show_metrics() -> Response:
        _on_base("/metrics")
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


def _on_base(path: str) -> None:
    """A tenant's host says nothing about the others."""
    if host_of(cast(dict[str, Any], request.scope)).kind != "base":
        raise NotFound(f"there is no {path} here; the base host serves it")

"""/api-docs/: the OpenAPI document and an explorer that makes calls with an API key, served from this host alone."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

from quart import Blueprint, Response, jsonify, request

from appliance.solutions import schema_files
from appliance.web import Services

from . import openapi

# Swagger UI needs no more than style-src 'self'; its icons are data: images.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def contract() -> dict[str, Any]:
    """The OpenAPI document without servers; cached, because routes do not change while the appliance runs."""
    return openapi.document("")


def make_docs(services: Services, page: Path) -> Blueprint:
    """The blueprint of /api-docs/; `page` is the explorer's HTML, whose assets are static files."""
    blueprint = Blueprint("docs", __name__, url_prefix="/api-docs")
    html = page.read_text("utf8")
    schemas = schema_files(services.integrations.registry)

    async def index() -> Response:
        response = Response(html, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = CSP
        return response

    async def document() -> Response:
        openapi_document = await asyncio.get_running_loop().run_in_executor(services.threads, contract)
        return jsonify({**openapi_document, "servers": [{"url": f"{request.scheme}://{request.host}"}]})

    async def schema(name: str) -> Response:
        return jsonify(schemas[name])

    blueprint.add_url_rule("/", "index", index)
    blueprint.add_url_rule("/openapi.json", "openapi", document)
    for name in schemas:
        blueprint.add_url_rule(f"/{name}", name.replace(".", "_"), schema, defaults={"name": name})
    return blueprint

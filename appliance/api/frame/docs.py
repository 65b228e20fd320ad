"""/api-docs/: the contract and an explorer that takes an API key and makes calls, all from this host."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

from quart import Blueprint, Response, jsonify, request

from appliance.solutions import Services, schema_files

from . import openapi

# style-src 'self' suffices for swagger-ui; its icons are data: images.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def contract() -> dict[str, Any]:
    """The document without its server: the routes do not change while the appliance runs."""
    return openapi.document("")


def make_docs(services: Services, page: Path) -> Blueprint:
    """The pages under /api-docs/; `page` is the explorer's HTML, whose assets are static files."""
    blueprint = Blueprint("docs", __name__, url_prefix="/api-docs")
    html = page.read_text("utf8")
    schemas = schema_files(services.integrations.registry)

    async def index() -> Response:
        response = Response(html, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = CSP
        return response

    async def document() -> Response:
        made = await asyncio.get_running_loop().run_in_executor(services.threads, contract)
        return jsonify({**made, "servers": [{"url": f"{request.scheme}://{request.host}"}]})

    async def schema(name: str) -> Response:
        return jsonify(schemas[name])

    blueprint.add_url_rule("/", "index", index)
    blueprint.add_url_rule("/openapi.json", "openapi", document)
    for name in schemas:
        blueprint.add_url_rule(f"/{name}", name.replace(".", "_"), schema, defaults={"name": name})
    return blueprint

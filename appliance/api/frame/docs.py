"""/api-docs/: the OpenAPI document and an explorer that makes calls with an API key, served from this host alone."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from quart import Blueprint, abort

from appliance.solutions import schema_files
from appliance.web import Request, Response, Services, in_thread, view

from .routing import PREFIX

# Swagger UI needs no more than style-src 'self'; its icons are data: images.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def contract() -> dict[str, Any]:
    """The OpenAPI document without servers; cached, because routes do not change while the appliance runs."""
    from .openapi import document  # few appliances are asked for it, so a start does without

    return document("")


def make_docs(services: Services, page: Path) -> Blueprint:
    """The blueprint of /api-docs/; `page` is the explorer's HTML, whose assets are static files."""
    blueprint = Blueprint("docs", __name__, url_prefix="/api-docs")
    html = page.read_bytes()

    @cache
    def schemas() -> dict[str, dict[str, Any]]:
        return schema_files(services.integrations.registry)  # loads every connector, so not before it is requested

    async def index(_: Request) -> Response:
        return Response(200, html, {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": CSP})

    async def document(request: Request) -> Response:
        openapi_document = await in_thread(services.threads, contract)
        paths = {path: at_base(item) if is_of_appliance(path) else item for path, item in openapi_document["paths"].items()}
        return _as_json({**openapi_document, "paths": paths, "servers": [{"url": request.origin}]})

    def is_of_appliance(path: str) -> bool:
        return path.startswith(f"{PREFIX}/appliance/")

    def at_base(item: dict[str, Any]) -> dict[str, Any]:
        """The operations of a path, which only the base host answers."""
        return {method: {**operation, "servers": [{"url": services.config.base_url}]} for method, operation in item.items()}

    async def schema(_: Request, name: str) -> Response:
        files = await in_thread(services.threads, schemas)
        return _as_json(files[name]) if name in files else abort(404)

    blueprint.add_url_rule("/", "index", view(index))
    blueprint.add_url_rule("/openapi.json", "openapi", view(document))
    blueprint.add_url_rule("/<name>", "schema", view(schema))
    return blueprint


def _as_json(value: Any) -> Response:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return Response(200, f"{text}\n".encode(), {"Content-Type": "application/json"})

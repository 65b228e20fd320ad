"""Requests without a server."""

from typing import Any

from appliance.tenants import HostMatch
from appliance.web import Request


def request_to(authority: str, path: str = "/", *, scheme: str = "http", tenant: str | None = None, **more: Any) -> Request:
    """A GET request with an empty body, as the front would pass it on; `more` are further entries of its scope."""
    scope = {
        "type": "http", "method": "GET", "scheme": scheme, "path": path, "query_string": b"",
        "gos.host": HostMatch("tenant" if tenant else "base", tenant), "gos.request_id": "req_1", "gos.address": "192.0.2.1",
        **more, "headers": [(b"host", authority.encode()), *more.get("headers", ())],
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request.of(scope, receive)

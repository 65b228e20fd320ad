"""A span for each request to the API, the console, MCP and webhooks, under the one that its caller names."""

from collections.abc import Mapping

from appliance.core import clock
from appliance.monitor import Place, Span, spans

from .answers import Scope

AREAS = ("api", "console", "mcp", "hooks")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class RequestSpan:
    """Begun with the request; whoever works for it finds its place as `gos.trace` in the scope, and says its `gos.route`."""

    def __init__(self, scope: Scope, around: Place | None) -> None:
        self._place, self._parent = spans.under(around), around.span if around else ""
        self._began, self._began_ms = clock.monotonic(), clock.now_ms()
        scope["gos.trace"] = str(self._place)

    def end(self, scope: Scope, area: str, status: int) -> None:
        """The route's template stands for the path, which may hold what is nobody's business, as the query does."""
        if area not in AREAS:
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        route, host = scope.get("gos.route", f"/{area}"), scope.get("gos.host")
        about: dict[str, str | int] = {
            "http.request.method": method, "http.route": route, "http.response.status_code": status, "gos.area": area,
            "gos.request_id": scope["gos.request_id"],
        }  # fmt: skip
        if host is not None and host.tenant:
            about["gos.tenant"] = host.tenant
        took_ms = (clock.monotonic() - self._began) * 1000
        failed = str(status) if status >= 500 else ""
        spans.add(Span(f"{method} {route}", self._place, self._parent, "server", self._began_ms, took_ms, failed, about))


def begin(scope: Scope, headers: Mapping[bytes, bytes]) -> RequestSpan | None:
    """None while nobody takes spans."""
    if not spans.is_on:
        return None
    return RequestSpan(scope, spans.read(headers.get(b"traceparent", b"").decode("latin1")))

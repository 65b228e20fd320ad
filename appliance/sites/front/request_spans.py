"""Creates a span for each request to the API, the console, MCP and webhooks, as a child of the caller's span."""

from collections.abc import Mapping

from appliance.core import clock
from appliance.monitor import Span, SpanContext, spans
from appliance.web import Scope

AREAS = ("api", "console", "mcp", "hooks")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class RequestSpan:
    """The span of a request. Its position is in the scope as `gos.trace`; handlers set `gos.route`."""

    def __init__(self, scope: Scope, parent: SpanContext | None) -> None:
        self._place, self._parent = spans.child_of(parent), parent.span if parent else ""
        self._started, self._started_ms = clock.monotonic(), clock.now_ms()
        scope["gos.trace"] = str(self._place)

    def end(self, scope: Scope, area: str, status: int) -> None:
        """Finish the span. It records the route's template instead of the path and query, which may hold personal data."""
        if area not in AREAS:
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        route, host = scope.get("gos.route", f"/{area}"), scope.get("gos.host")
        attributes: dict[str, str | int] = {
            "http.request.method": method, "http.route": route, "http.response.status_code": status, "gos.area": area,
            "gos.request_id": scope["gos.request_id"],
        }  # fmt: skip
        if host is not None and host.tenant:
            attributes["gos.tenant"] = host.tenant
        took_ms = (clock.monotonic() - self._started) * 1000
        failed = str(status) if status >= 500 else ""
        spans.add(Span(
            name=f"{method} {route}", place=self._place, parent=self._parent, kind="server", began_ms=self._started_ms,
            took_ms=took_ms, failed=failed, about=attributes,
        ))


def start(scope: Scope, headers: Mapping[bytes, bytes]) -> RequestSpan | None:
    """Start a span, or return None while tracing is off."""
    if not spans.is_on:
        return None
    return RequestSpan(scope, spans.parse(headers.get(b"traceparent", b"").decode("latin1")))

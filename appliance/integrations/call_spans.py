"""Tracing spans for calls to foreign systems: integration, action and result, but no content."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.connectors.contract import ConnectorError
from appliance.core import clock
from appliance.core.scope import TenantScope
from appliance.monitor import Span, spans

from .connections import OpenedIntegration


@contextmanager
def call_span(scope: TenantScope, ready: OpenedIntegration, action: str) -> Iterator[None]:
    """Record a span around one call, below the scope's span."""
    if not spans.is_on:
        yield
        return
    around, began_ms, began, failed = spans.parse(scope.trace), clock.now_ms(), clock.monotonic(), ""
    try:
        yield
    except ConnectorError as error:
        failed = type(error).__name__
        raise
    except BaseException:
        failed = "fault"
        raise
    finally:
        about = {"gos.tenant": scope.tenant_id, "gos.integration": ready.slug, "gos.action": action}
        about["gos.connector"] = ready.connector_label
        kind, actor_id = scope.actor.partition(":")[::2]
        if kind == "execution":
            about["gos.execution"] = actor_id
        took_ms, parent = (clock.monotonic() - began) * 1000, around.span if around else ""
        spans.add(Span(
            name=f"call {ready.slug}.{action}", place=spans.child_of(around), parent=parent, kind="client", began_ms=began_ms,
            took_ms=took_ms, failed=failed, about=about,
        ))

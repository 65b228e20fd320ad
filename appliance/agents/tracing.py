"""OpenTelemetry spans around runs, model turns and tool calls: names, sizes, costs and results, never message contents.

Only the OpenTelemetry API is used, which does nothing by itself: to collect spans, install its SDK alongside the appliance.
Names follow the semantic conventions for generative AI (1.41); `gos.*` are our own.  A run that waited or crashed continues
in a new span with the same `gen_ai.conversation.id`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_tracer

from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.llm import Conversation, Generated, Profile, Reply

_FINISHES = {"tools": "tool_calls", "refused": "content_filter"}


@dataclass(frozen=True)
class Telemetry:
    """Creates spans with the tracer provider of this process, which is a no-op unless the SDK is installed."""

    tracer: Tracer = field(default_factory=lambda: get_tracer("gos.agents"))

    @contextmanager
    def run(self, scope: TenantScope, agent: str, run_id: str) -> Iterator[Span]:
        """A span around one segment of a run, from its claim to its end or its next wait."""
        about = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": agent, "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": run_id, "gos.tenant": scope.tenant_id,
        }  # fmt: skip
        with self._span(f"invoke_agent {agent}", SpanKind.INTERNAL, about) as span:
            yield span

    @contextmanager
    def turn(self, conversation: Conversation, profile: Profile, run_id: str) -> Iterator[Span]:
        """A span around one request to a model; `record_turn` adds the result."""
        place = urlsplit(profile.address)
        about = {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": profile.kind, "gen_ai.request.model": profile.model,
            "gen_ai.conversation.id": run_id, "server.address": place.hostname or "", "gos.llm.profile": conversation.profile,
            "server.port": place.port or (443 if place.scheme == "https" else 80),
            "gen_ai.request.max_tokens": conversation.max_tokens or profile.parameters.max_tokens,
        }  # fmt: skip
        with self._span(f"chat {profile.model}", SpanKind.CLIENT, about) as span:
            yield span

    @contextmanager
    def tool(self, name: str, call_id: str, run_id: str) -> Iterator[Span]:
        """A span around one tool call, including the evaluation of the policies."""
        about = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function", "gen_ai.conversation.id": run_id,
        }  # fmt: skip
        with self._span(f"execute_tool {name}", SpanKind.INTERNAL, about) as span:
            yield span

    @contextmanager
    def _span(self, name: str, kind: SpanKind, about: Mapping[str, Any]) -> Iterator[Span]:
        attributes = {member: value for member, value in about.items() if value is not None}
        # The SDK would record the exception's message, which may contain parts of the conversation.
        with self.tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                code = error.code if isinstance(error, ApplianceError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR, code))
                raise


TELEMETRY = Telemetry()


def record_turn(span: Span, generated: Generated) -> None:
    """Add a model turn's tokens, cost and finish reason to its span."""
    used = generated.used
    span.set_attribute("gen_ai.usage.input_tokens", used.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", used.output_tokens)
    span.set_attribute("gos.cost_nano", used.cost_nano)
    if isinstance(generated.value, Reply):
        reply = generated.value
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", reply.cached_tokens)
        span.set_attribute("gen_ai.response.model", reply.model)
        span.set_attribute("gen_ai.response.id", reply.id)
        span.set_attribute("gen_ai.response.finish_reasons", [_FINISHES.get(reply.finish, reply.finish)])

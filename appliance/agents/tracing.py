"""Spans of OpenTelemetry around runs, model turns and tool calls: names, sizes, costs and outcomes, never what was said.

Only OpenTelemetry's interface is used, which does nothing by itself: whoever wants the spans installs its SDK beside the
appliance.  Names are those of its semantic conventions for generative AI (1.41); `gos.*` are our own.  The run of an agent that
waited, or that a crash ended, goes on in another span; `gen_ai.conversation.id` is the same.
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
    """Where spans go; the provider that is installed in this process, which is none without the SDK."""

    tracer: Tracer = field(default_factory=lambda: get_tracer("gos.agents"))

    @contextmanager
    def run(self, scope: TenantScope, agent: str, run_id: str) -> Iterator[Span]:
        """Around one stretch of a run, from its claim to its end or its next wait."""
        about = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": agent, "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": run_id, "gos.tenant": scope.tenant_id,
        }  # fmt: skip
        with self._span(f"invoke_agent {agent}", SpanKind.INTERNAL, about) as span:
            yield span

    @contextmanager
    def turn(self, conversation: Conversation, profile: Profile, run_id: str) -> Iterator[Span]:
        """Around one question to a model; `tell_turn` says what it came to."""
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
        """Around one call of a tool, its judgement by the policies included."""
        about = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function", "gen_ai.conversation.id": run_id,
        }  # fmt: skip
        with self._span(f"execute_tool {name}", SpanKind.INTERNAL, about) as span:
            yield span

    @contextmanager
    def _span(self, name: str, kind: SpanKind, about: Mapping[str, Any]) -> Iterator[Span]:
        given = {member: value for member, value in about.items() if value is not None}
        # What the SDK would record of an exception by itself has its message, which may hold what was said.
        with self.tracer.start_as_current_span(
            name, kind=kind, attributes=given, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                code = error.code if isinstance(error, ApplianceError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR, code))
                raise


TELEMETRY = Telemetry()


def tell_turn(span: Span, generated: Generated) -> None:
    """What a question came to: tokens, cost and why the model stopped."""
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

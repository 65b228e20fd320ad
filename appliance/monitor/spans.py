"""Tracing spans: ids, names and results, never values; nothing is recorded while there is no exporter."""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from . import metrics

SENT = metrics.registry.counter("gos_otlp_spans_sent_total", "Spans that the collector has taken.")
LOST = metrics.registry.counter("gos_otlp_spans_lost_total", "Spans that never reached the collector.", ("why",))
FAILED = metrics.registry.counter("gos_otlp_pushes_failed_total", "Pushes that the collector did not take.", ("signal",))

Kind = Literal["server", "internal", "client"]
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)
_NOWHERE = ("0" * 32, "0" * 16)


@dataclass(frozen=True)
class SpanContext:
    """A span's W3C Trace Context; spans below one that is not `wanted` are not wanted either."""

    trace: str
    span: str
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.is_sampled):02x}"


@dataclass(frozen=True)
class Span:
    """A finished span; `parent` is the id of the enclosing span, or empty.

    `failed` is the class of a failure, never its message, which could quote confidential data.
    """

    name: str
    place: SpanContext
    parent: str
    kind: Kind
    began_ms: int
    took_ms: float
    failed: str = ""
    about: Mapping[str, str | int] = field(default_factory=dict)


class Spans:
    """Forwards spans to an exporter; thread-safe.  `take` must not block."""

    def __init__(self) -> None:
        self._take: Callable[[Span], None] | None = None
        self._percent = 100

    @property
    def is_on(self) -> bool:
        return self._take is not None

    def export_to(self, take: Callable[[Span], None] | None, percent: int = 100) -> None:
        """From now on, forward the spans of this percentage of traces to `take`; None stops forwarding."""
        self._percent, self._take = percent, take

    def add(self, span: Span) -> None:
        """Forward a span, if there is an exporter and its trace is sampled."""
        take = self._take
        if take is not None and span.place.is_sampled:
            take(span)

    def parse(self, traceparent: str) -> SpanContext | None:
        """Parse a `traceparent` header; None if it is invalid, which W3C Trace Context requires to ignore."""
        match = _TRACEPARENT.fullmatch(traceparent.strip())
        if match is None or match[1] == _NOWHERE[0] or match[2] == _NOWHERE[1]:
            return None
        return SpanContext(match[1], match[2], bool(int(match[3], 16) & 1) and self._is_sampled(match[1]))

    def child_of(self, around: SpanContext | None, key: str = "") -> SpanContext:
        """The context of a new span below another, or of a new trace; the same `key` gives the same ids."""
        if around is not None:
            return SpanContext(around.trace, span_id(key), around.is_sampled)
        trace = hashlib.sha256(f"trace/{key}".encode()).hexdigest()[:32] if key else secrets.token_hex(16)
        return SpanContext(trace, span_id(key), self._is_sampled(trace))

    def _is_sampled(self, trace: str) -> bool:
        """Whether the trace is sampled, by its id, so that all of its spans and all services with the same rate agree."""
        return int(trace[16:], 16) * 100 < self._percent << 64


def span_id(key: str = "") -> str:
    """A span id derived from `key`, which needs no storage; random without a key."""
    return hashlib.sha256(f"span/{key}".encode()).hexdigest()[:16] if key else secrets.token_hex(8)


spans = Spans()

"""Spans of what the appliance does: ids, names and outcomes, never values; nothing is made while nobody takes them."""

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
class Place:
    """A span as W3C Trace Context names it; what is under one that is not `wanted` is not wanted either."""

    trace: str
    span: str
    wanted: bool

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.wanted):02x}"


@dataclass(frozen=True)
class Span:
    """Something that is over; `parent` is the id of the span around it, or empty.

    `failed` is the kind of a failure and no message, which could quote what must not leave.
    """

    name: str
    place: Place
    parent: str
    kind: Kind
    began_ms: int
    took_ms: float
    failed: str = ""
    about: Mapping[str, str | int] = field(default_factory=dict)


class Spans:
    """Where spans go; thread-safe.  `take` must not wait."""

    def __init__(self) -> None:
        self._take: Callable[[Span], None] | None = None
        self._percent = 100

    @property
    def is_on(self) -> bool:
        return self._take is not None

    def give_to(self, take: Callable[[Span], None] | None, percent: int = 100) -> None:
        """From now on: every span of so many of a hundred traces to `take`; None for nobody."""
        self._percent, self._take = percent, take

    def add(self, span: Span) -> None:
        """Hand it on, if somebody takes spans and it is among those wanted."""
        take = self._take
        if take is not None and span.place.wanted:
            take(span)

    def read(self, traceparent: str) -> Place | None:
        """The span that a header names; None for nonsense, which W3C Trace Context has everybody pass over."""
        found = _TRACEPARENT.fullmatch(traceparent.strip())
        if found is None or found[1] == _NOWHERE[0] or found[2] == _NOWHERE[1]:
            return None
        return Place(found[1], found[2], bool(int(found[3], 16) & 1) and self._is_chosen(found[1]))

    def under(self, around: Place | None, key: str = "") -> Place:
        """The place of a span within another, or of the first of a trace; with a key it is the same every time."""
        if around is not None:
            return Place(around.trace, span_id(key), around.wanted)
        trace = hashlib.sha256(f"trace/{key}".encode()).hexdigest()[:32] if key else secrets.token_hex(16)
        return Place(trace, span_id(key), self._is_chosen(trace))

    def _is_chosen(self, trace: str) -> bool:
        """By the trace's id, so that all its spans fare alike, and wherever else the same share is taken."""
        return int(trace[16:], 16) * 100 < self._percent << 64


def span_id(key: str = "") -> str:
    """Of the thing named so, which needs no memory then; without a name a new one."""
    return hashlib.sha256(f"span/{key}".encode()).hexdigest()[:16] if key else secrets.token_hex(8)


spans = Spans()

"""A tracer that keeps every span, as the SDK would be handed it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import INVALID_SPAN_CONTEXT, Span, SpanContext, Tracer, get_current_span, use_span


class RecordedSpan(Span):
    """One span: its name, its parent's name, its attributes and whether it has ended."""

    def __init__(self, name: str, parent: Any, attributes: Any) -> None:
        self.name, self.parent, self.attributes = name, parent, dict(attributes or {})
        self.is_over = False
        self.status: str | None = None

    def end(self, end_time: Any = None) -> None:
        self.is_over = True

    def get_span_context(self) -> SpanContext:
        return INVALID_SPAN_CONTEXT

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: Any = None) -> None:
        self.attributes[f"event {name}"] = attributes

    def update_name(self, name: str) -> None:
        self.name = name

    def is_recording(self) -> bool:
        return not self.is_over

    def set_status(self, status: Any, description: Any = None) -> None:
        self.status = f"{status.status_code.name} {status.description}"

    def record_exception(self, exception: Any, attributes: Any = None, timestamp: Any = None, escaped: bool = False) -> None:
        self.attributes["exception"] = repr(exception)


class RecordingTracer(Tracer):
    """`spans` in the order in which they began."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def start_span(
        self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, *_: Any, **__: Any
    ) -> RecordedSpan:
        above = get_current_span()
        self.spans.append(RecordedSpan(name, above.name if isinstance(above, RecordedSpan) else None, attributes))
        return self.spans[-1]

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, attributes: Any = None, record_exception: bool = True, set_status_on_exception: bool = True, **_: Any
    ) -> Iterator[RecordedSpan]:
        span = self.start_span(name, attributes=attributes)
        with use_span(span, end_on_exit=True, record_exception=record_exception, set_status_on_exception=set_status_on_exception):
            yield span

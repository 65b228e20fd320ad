"""OTLP's messages in protobuf: the few of them that spans and metrics need, by the field numbers of opentelemetry-proto 1.

Written out here because the SDK with its exporter is seven packages with threads, queues and environment variables of their own,
and has no way in for histograms that were counted elsewhere.  The tests read it with the project's own classes.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from appliance.monitor import metrics
from appliance.monitor.metrics import SECONDS, Sample
from appliance.monitor.spans import Span

About = Mapping[str, str | int]
Counts = Sequence[int]

_KINDS = {"internal": 1, "server": 2, "client": 3}
_ERROR = 2
_CUMULATIVE = 2
_SCOPE = "gos"


def traces(resource: About, spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest."""
    found = b"".join(_nested(2, _span(each)) for each in spans)
    return _nested(1, _resource(resource) + _nested(2, _nested(1, _text(1, _SCOPE)) + found))


def measures(resource: About, registry: metrics.Registry, began_ns: int, now_ns: int) -> bytes:
    """An ExportMetricsServiceRequest with all that was counted since `began_ns`."""
    times = (began_ns, now_ns)
    found = b"".join(_nested(2, _metric(sample, times)) for sample in registry.samples())
    return _nested(1, _resource(resource) + _nested(2, _nested(1, _text(1, _SCOPE)) + found))


def _resource(about: About) -> bytes:
    return _nested(1, _attributes(1, about))


def _span(span: Span) -> bytes:
    began = span.began_ms * 1_000_000
    ended = began + max(0, int(span.took_ms * 1_000_000))
    about = {**span.about, "error.type": span.failed} if span.failed else span.about
    return b"".join(
        (
            _nested(1, bytes.fromhex(span.place.trace)), _nested(2, bytes.fromhex(span.place.span)),
            _nested(4, bytes.fromhex(span.parent)) if span.parent else b"", _text(5, span.name), _number(6, _KINDS[span.kind]),
            _fixed(7, began), _fixed(8, ended), _attributes(9, about),
            _nested(15, _number(3, _ERROR)) if span.failed else b"",
        )
    )  # fmt: skip


def _metric(sample: Sample, times: tuple[int, int]) -> bytes:
    if sample.kind == "histogram":
        points = b"".join(_nested(1, _histogram_point(sample.labels, key, value, times)) for key, value in sample.values)
        data = _nested(9, points + _number(2, _CUMULATIVE))
    else:
        points = b"".join(_nested(1, _number_point(sample.labels, key, value, times)) for key, value in sample.values)
        data = _nested(5, points) if sample.kind == "gauge" else _nested(7, points + _number(2, _CUMULATIVE) + _number(3, 1))
    return _text(1, sample.name) + _text(2, sample.help) + data


def _number_point(labels: Sequence[str], key: Sequence[str], value: float, times: tuple[int, int]) -> bytes:
    began, now = times
    return _fixed(2, began) + _fixed(3, now) + _double(4, value) + _attributes(7, dict(zip(labels, key, strict=True)))


def _histogram_point(labels: Sequence[str], key: Sequence[str], value: tuple[Counts, float], times: tuple[int, int]) -> bytes:
    (counts, total), (began, now) = value, times
    return b"".join(
        (
            _fixed(2, began), _fixed(3, now), _fixed(4, sum(counts)), _double(5, total),
            _nested(6, struct.pack(f"<{len(counts)}Q", *counts)), _nested(7, struct.pack(f"<{len(SECONDS)}d", *SECONDS)),
            _attributes(9, dict(zip(labels, key, strict=True))),
        )
    )  # fmt: skip


def _attributes(field: int, about: About) -> bytes:
    return b"".join(_nested(field, _text(1, name) + _nested(2, _value(value))) for name, value in about.items())


def _value(value: str | int) -> bytes:
    return _text(1, value) if isinstance(value, str) else _number(3, value)


# Protobuf itself: a tag of field and wire type, then the value.


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _nested(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _nested(field, text.encode("utf-8", "replace"))

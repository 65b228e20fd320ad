"""Export to a collector: what it receives, and what happens to spans that cannot be delivered."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.core.config import load_config
from appliance.core.config.sections import Otlp
from appliance.core.errors import ConfigInvalid
from appliance.monitor.metrics import SECONDS, Registry
from appliance.monitor.otlp import exporter as pushing
from appliance.monitor.otlp.exporter import Exporter
from appliance.monitor.spans import FAILED, LOST, SENT, Span, SpanContext, Spans

from .collector import TRACES, Collector, to_dict

SPAN_CONTEXT = SpanContext("ab" * 16, "cd" * 8, True)
SPAN = Span(
    "call erp.get", SPAN_CONTEXT, "ef" * 8, "client", 1_700_000_000_000, 12.5, "", {"gos.tenant": "acme", "gos.number": 300}
)


@pytest.fixture(autouse=True)
def database() -> None:
    """Pushing needs none."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


Make = Callable[..., Exporter]


@pytest.fixture
def make(collector: Collector) -> Make:
    """An exporter to the collector that is not started, with settings of its own."""

    def exporter(registry: Registry | None = None, **settings: Any) -> Exporter:
        chosen = replace(Otlp(endpoint=collector.url, metrics_seconds=0), **settings)
        return Exporter(chosen, {"service.name": "gos", "service.version": "1"}, registry or Registry())

    return exporter


def count_of(metric: Any, *labels: str) -> float:
    return float(dict(metric.sample().values).get(labels, 0))


def test_a_span_arrives_whole(collector: Collector, make: Make) -> None:
    exporter = make(headers=("X-Token: a: b",))
    exporter.add(SPAN)
    exporter.add(replace(SPAN, parent="", kind="server", failed="timeout"))
    exporter.start()
    exporter.stop(10)
    one, two = collector.spans()
    assert (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()) == (SPAN_CONTEXT.trace, SPAN_CONTEXT.span, "ef" * 8)
    assert (one.name, one.kind, one.status.code, two.kind, two.status.code) == ("call erp.get", 3, 0, 2, 2)
    assert one.end_time_unix_nano - one.start_time_unix_nano == 12_500_000
    assert one.start_time_unix_nano == 1_700_000_000_000_000_000
    assert to_dict(one.attributes) == {"gos.tenant": "acme", "gos.number": 300}
    assert (to_dict(two.attributes)["error.type"], two.parent_span_id) == ("timeout", b"")
    assert collector.resource() == {"service.name": "gos", "service.version": "1"}
    assert collector.received[0].headers["x-token"] == "a: b"
    assert collector.received[0].headers["content-type"] == "application/x-protobuf"


def test_metrics_are_those_of_the_registry(collector: Collector, make: Make) -> None:
    registry = Registry()
    registry.counter("hits_total", "Hits.", ("status",)).inc(3, "200")
    duration = registry.histogram("took_seconds", "Took.")
    duration.observe(0.3)
    duration.observe(120)
    registry.gauge("depth", "Depth.", lambda: 1.5)
    exporter = make(registry, metrics_seconds=60)
    exporter.start()
    exporter.stop(10)
    metrics = collector.metrics()
    (hits,), (point,) = metrics["hits_total"].sum.data_points, metrics["took_seconds"].histogram.data_points
    assert (hits.as_double, to_dict(hits.attributes), metrics["hits_total"].description) == (3.0, {"status": "200"}, "Hits.")
    assert (metrics["hits_total"].sum.is_monotonic, metrics["hits_total"].sum.aggregation_temporality) == (True, 2)
    assert (point.count, point.sum, tuple(point.explicit_bounds)) == (2, 120.3, SECONDS)
    assert (list(point.bucket_counts).index(1), point.bucket_counts[-1], len(point.bucket_counts)) == (8, 1, len(SECONDS) + 1)
    assert metrics["depth"].gauge.data_points[0].as_double == 1.5
    assert TRACES not in [each.path for each in collector.received]


def test_spans_lost_to_a_dead_collector_are_counted(
    collector: Collector, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "MAX_QUEUED", 10)
    full, stopped = count_of(LOST, "queue_full"), count_of(LOST, "stopped")
    collector.close()
    exporter = make()
    for _ in range(25):
        exporter.add(SPAN)
    assert count_of(LOST, "queue_full") - full == 15
    exporter.start()
    exporter.stop(10)
    assert count_of(LOST, "stopped") - stopped == 10


def test_a_hanging_collector_does_not_delay_the_stop(collector: Collector, make: Make) -> None:
    stopped, released = count_of(LOST, "stopped"), collector.hold(TRACES)
    exporter = make()
    exporter.add(SPAN)
    exporter.start()
    exporter.stop(0.1)
    assert count_of(LOST, "stopped") - stopped == 1
    released.set()
    exporter.stop(10)  # so that its thread counts nothing in another test


@pytest.mark.parametrize(("status", "why"), [(400, "refused"), (302, "refused"), (503, "stopped")])
def test_rejected_spans_are_counted_as_lost(collector: Collector, make: Make, status: int, why: str) -> None:
    lost, sent, failed = count_of(LOST, why), count_of(SENT), count_of(FAILED, "traces")
    collector.answer(TRACES, status, b"", Location="/elsewhere")
    exporter = make()
    exporter.add(SPAN)
    exporter.start()
    exporter.stop(10)
    assert (count_of(LOST, why) - lost, count_of(SENT) - sent, count_of(FAILED, "traces") - failed) == (1, 0, 1)
    assert [each.path for each in collector.received] == [TRACES]


def test_spans_are_retried_while_the_collector_is_unavailable(
    collector: Collector, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "SPAN_SECONDS", 0.01)
    monkeypatch.setattr(pushing, "MAX_PAUSE", 0.01)
    collector.answer(TRACES, 503, b"")
    request_received, exporter = collector.expect(TRACES), make()
    exporter.add(SPAN)
    exporter.start()
    assert request_received.wait(10)
    collector.answer(TRACES, 200, b"")
    assert collector.expect(TRACES).wait(10)
    exporter.stop(10)
    assert collector.spans()[-1].span_id.hex() == SPAN_CONTEXT.span


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True), (f"00-{'a' * 32}-{'b' * 16}-00", False),
        (f"cc-{'a' * 32}-{'b' * 16}-01-more", True),
        ("", None), (f"00-{'0' * 32}-{'b' * 16}-01", None), (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None), (f"00-{'A' * 32}-{'b' * 16}-01", None), ("00-short-01", None),
    ],
)  # fmt: skip
def test_a_traceparent_header_is_parsed_as_w3c_specifies(text: str, is_sampled: bool | None) -> None:
    context = Spans().parse(text)
    assert (context and context.is_sampled) == is_sampled


def test_a_percentage_of_traces_is_sampled_in_full() -> None:
    exported: list[Span] = []
    spans = Spans()
    spans.export_to(exported.append, 25)
    for number in range(1000):
        first = spans.child_of(None, f"exe_{number}")
        inner = spans.child_of(spans.parse(str(first)), f"exe_{number}/step")
        for place in (first, inner):
            spans.add(replace(SPAN, place=place))
    by_trace = {span.place.trace for span in exported}
    assert 150 < len(by_trace) < 350
    assert len(exported) == 2 * len(by_trace)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "collector:4318"), ("endpoint", "http://user:word@host"), ("headers", ["no colon"]),
        ("headers", ["A: b\nC: d"]), ("sample_percent", 101), ("ca_file", "/nowhere/ca.pem"),
    ],
)  # fmt: skip
def test_invalid_settings_are_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigInvalid, match=f"otlp.{name}"):
        load_config(environment={}, flags={"otlp.endpoint": "http://127.0.0.1:4318", f"otlp.{name}": value})


LOADED = """
import json, sys
from appliance.app.telemetry import Telemetry
from appliance.core.config import load_config
from appliance.monitor.spans import spans
telemetry = Telemetry(load_config(environment={}, flags={"otlp.endpoint": sys.argv[1]}), "one")
telemetry.start()
print(json.dumps([spans.is_on, sorted(name for name in sys.modules if name.startswith("appliance.monitor.otlp"))]))
telemetry.stop()
"""


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:1"])
def test_the_exporter_is_not_imported_without_a_collector(tmp_path: Path, endpoint: str) -> None:
    completed = subprocess.run([sys.executable, "-c", LOADED, endpoint], cwd=tmp_path, capture_output=True, text=True, check=True)
    is_on, loaded = json.loads(completed.stdout.splitlines()[-1])
    assert (is_on, "appliance.monitor.otlp.exporter" in loaded) == (bool(endpoint), bool(endpoint))
    assert bool(loaded) == bool(endpoint)

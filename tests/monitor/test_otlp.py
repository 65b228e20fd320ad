"""Pushing to a collector: what arrives, and what becomes of spans when it does not."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.core.config import load_config
from appliance.core.errors import ConfigInvalid
from appliance.core.sections import Otlp
from appliance.monitor.metrics import SECONDS, Registry
from appliance.monitor.otlp import exporter as pushing
from appliance.monitor.otlp.exporter import Exporter
from appliance.monitor.spans import FAILED, LOST, SENT, Span, SpanContext, Spans

from .collector import TRACES, Collector, told

PLACE = SpanContext("ab" * 16, "cd" * 8, True)
SPAN = Span("call erp.get", PLACE, "ef" * 8, "client", 1_700_000_000_000, 12.5, "", {"gos.tenant": "acme", "gos.number": 300})


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


def counted(metric: Any, *labels: str) -> float:
    return float(dict(metric.sample().values).get(labels, 0))


def test_a_span_arrives_whole(collector: Collector, make: Make) -> None:
    exporter = make(headers=("X-Token: a: b",))
    exporter.add(SPAN)
    exporter.add(replace(SPAN, parent="", kind="server", failed="timeout"))
    exporter.start()
    exporter.stop(10)
    one, two = collector.spans()
    assert (one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()) == (PLACE.trace, PLACE.span, "ef" * 8)
    assert (one.name, one.kind, one.status.code, two.kind, two.status.code) == ("call erp.get", 3, 0, 2, 2)
    assert one.end_time_unix_nano - one.start_time_unix_nano == 12_500_000
    assert one.start_time_unix_nano == 1_700_000_000_000_000_000
    assert told(one.attributes) == {"gos.tenant": "acme", "gos.number": 300}
    assert (told(two.attributes)["error.type"], two.parent_span_id) == ("timeout", b"")
    assert collector.resource() == {"service.name": "gos", "service.version": "1"}
    assert collector.received[0].headers["x-token"] == "a: b"
    assert collector.received[0].headers["content-type"] == "application/x-protobuf"


def test_metrics_are_those_of_the_registry(collector: Collector, make: Make) -> None:
    registry = Registry()
    registry.counter("hits_total", "Hits.", ("status",)).inc(3, "200")
    took = registry.histogram("took_seconds", "Took.")
    took.observe(0.3)
    took.observe(120)
    registry.gauge("depth", "Depth.", lambda: 1.5)
    exporter = make(registry, metrics_seconds=60)
    exporter.start()
    exporter.stop(10)
    found = collector.metrics()
    (hits,), (point,) = found["hits_total"].sum.data_points, found["took_seconds"].histogram.data_points
    assert (hits.as_double, told(hits.attributes), found["hits_total"].description) == (3.0, {"status": "200"}, "Hits.")
    assert (found["hits_total"].sum.is_monotonic, found["hits_total"].sum.aggregation_temporality) == (True, 2)
    assert (point.count, point.sum, tuple(point.explicit_bounds)) == (2, 120.3, SECONDS)
    assert (list(point.bucket_counts).index(1), point.bucket_counts[-1], len(point.bucket_counts)) == (8, 1, len(SECONDS) + 1)
    assert found["depth"].gauge.data_points[0].as_double == 1.5
    assert TRACES not in [each.path for each in collector.received]


def test_a_dead_collector_costs_spans_that_are_counted_and_nobodys_time(
    collector: Collector, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "MAX_QUEUED", 10)
    full, stopped = counted(LOST, "queue_full"), counted(LOST, "stopped")
    collector.close()
    exporter = make()
    for _ in range(25):
        exporter.add(SPAN)
    assert counted(LOST, "queue_full") - full == 15
    exporter.start()
    exporter.stop(10)
    assert counted(LOST, "stopped") - stopped == 10


def test_a_collector_that_hangs_does_not_hold_up_the_end(collector: Collector, make: Make) -> None:
    stopped, released = counted(LOST, "stopped"), collector.hold(TRACES)
    exporter = make()
    exporter.add(SPAN)
    exporter.start()
    exporter.stop(0.1)
    assert counted(LOST, "stopped") - stopped == 1
    released.set()
    exporter.stop(10)  # so that its thread counts nothing in another test


@pytest.mark.parametrize(("status", "why"), [(400, "refused"), (302, "refused"), (503, "stopped")])
def test_what_the_collector_does_not_take_is_lost_and_counted(collector: Collector, make: Make, status: int, why: str) -> None:
    lost, sent, failed = counted(LOST, why), counted(SENT), counted(FAILED, "traces")
    collector.answer(TRACES, status, b"", Location="/elsewhere")
    exporter = make()
    exporter.add(SPAN)
    exporter.start()
    exporter.stop(10)
    assert (counted(LOST, why) - lost, counted(SENT) - sent, counted(FAILED, "traces") - failed) == (1, 0, 1)
    assert [each.path for each in collector.received] == [TRACES]


def test_what_could_not_be_taken_at_once_is_sent_again(
    collector: Collector, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "SPAN_SECONDS", 0.01)
    monkeypatch.setattr(pushing, "MAX_PAUSE", 0.01)
    collector.answer(TRACES, 503, b"")
    refused, exporter = collector.expect(TRACES), make()
    exporter.add(SPAN)
    exporter.start()
    assert refused.wait(10)
    collector.answer(TRACES, 200, b"")
    assert collector.expect(TRACES).wait(10)
    exporter.stop(10)
    assert collector.spans()[-1].span_id.hex() == PLACE.span


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True), (f"00-{'a' * 32}-{'b' * 16}-00", False),
        (f"cc-{'a' * 32}-{'b' * 16}-01-more", True),
        ("", None), (f"00-{'0' * 32}-{'b' * 16}-01", None), (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None), (f"00-{'A' * 32}-{'b' * 16}-01", None), ("00-short-01", None),
    ],
)  # fmt: skip
def test_what_callers_name_is_read_as_w3c_has_it(text: str, wanted: bool | None) -> None:
    place = Spans().parse(text)
    assert (place and place.is_sampled) == wanted


def test_so_many_traces_of_a_hundred_are_taken_and_each_of_them_whole() -> None:
    taken: list[Span] = []
    spans = Spans()
    spans.export_to(taken.append, 25)
    for number in range(1000):
        first = spans.child_of(None, f"exe_{number}")
        inner = spans.child_of(spans.parse(str(first)), f"exe_{number}/step")
        for place in (first, inner):
            spans.add(replace(SPAN, place=place))
    by_trace = {span.place.trace for span in taken}
    assert 150 < len(by_trace) < 350
    assert len(taken) == 2 * len(by_trace)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "collector:4318"), ("endpoint", "http://user:word@host"), ("headers", ["no colon"]),
        ("headers", ["A: b\nC: d"]), ("sample_percent", 101), ("ca_file", "/nowhere/ca.pem"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_named(name: str, value: Any) -> None:
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
def test_nothing_of_it_is_loaded_without_a_collector(tmp_path: Path, endpoint: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED, endpoint], cwd=tmp_path, capture_output=True, text=True, check=True)
    is_on, loaded = json.loads(ran.stdout.splitlines()[-1])
    assert (is_on, "appliance.monitor.otlp.exporter" in loaded) == (bool(endpoint), bool(endpoint))
    assert bool(loaded) == bool(endpoint)

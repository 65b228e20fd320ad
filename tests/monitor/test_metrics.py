"""Metrics: the text a Prometheus server reads."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.monitor import metrics
from appliance.monitor.metrics import Registry


@pytest.fixture(autouse=True)
def database() -> None:
    """Counting needs none."""


def test_counters_and_gauges_are_written_with_help_type_and_labels() -> None:
    registry = Registry()
    hits = registry.counter("hits_total", "Hits.", ("route", "status"))
    hits.inc(1, "/a", "200")
    hits.inc(2, "/a", "200")
    hits.inc(1, '/"\\\n', "500")
    registry.gauge("depth", "Depth.", lambda: 1.5)
    assert registry.render() == (
        "# HELP depth Depth.\n# TYPE depth gauge\ndepth 1.5\n"
        "# HELP hits_total Hits.\n# TYPE hits_total counter\n"
        'hits_total{route="/\\"\\\\\\n",status="500"} 1\n'
        'hits_total{route="/a",status="200"} 3\n'
    )


def test_a_histogram_counts_cumulatively() -> None:
    registry = Registry()
    duration = registry.histogram("took_seconds", "Took.", ("kind",))
    for seconds in (0.001, 0.002, 0.3, 120):
        duration.observe(seconds, "code")
    lines = registry.render().splitlines()
    assert 'took_seconds_bucket{kind="code",le="0.001"} 1' in lines
    assert 'took_seconds_bucket{kind="code",le="0.5"} 3' in lines
    assert 'took_seconds_bucket{kind="code",le="60"} 3' in lines
    assert 'took_seconds_bucket{kind="code",le="+Inf"} 4' in lines
    assert 'took_seconds_sum{kind="code"} 120.303' in lines
    assert 'took_seconds_count{kind="code"} 4' in lines


def test_label_values_are_bounded() -> None:
    registry = Registry()
    hits = registry.counter("hits_total", "Hits.", ("path",))
    for number in range(metrics.MAX_SERIES + 50):
        hits.inc(1, f"/{number}")
    lines = registry.render().splitlines()
    assert len(lines) == metrics.MAX_SERIES + 3
    assert 'hits_total{path="other"} 50' in lines


def test_no_count_is_lost_between_threads() -> None:
    registry = Registry()
    hits = registry.counter("hits_total", "Hits.")

    def count(_: int) -> None:
        for _ in range(5000):
            hits.inc(1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert "hits_total 40000" in registry.render()


def test_declaring_again_answers_the_same_metric_and_labels_must_fit() -> None:
    registry = Registry()
    hits = registry.counter("hits_total", "Hits.", ("route",))
    assert registry.counter("hits_total", "Hits.", ("route",)) is hits
    with pytest.raises(ValueError, match="another metric"):
        registry.counter("hits_total", "Hits.", ("status",))
    with pytest.raises(ValueError, match="another metric"):
        registry.histogram("hits_total", "Hits.", ("route",))
    with pytest.raises(ValueError, match="labels"):
        hits.inc(1)


@pytest.mark.usefixtures("two_tenants")
def test_the_appliance_has_one_registry() -> None:
    metrics.registry.counter("gos_test_total", "Tests.", ("kind",)).inc(1, "one")
    assert 'gos_test_total{kind="one"} 1' in metrics.render()

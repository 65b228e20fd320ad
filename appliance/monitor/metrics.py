"""Counters, histograms and gauges of this process in the Prometheus text format 0.0.4.

Used instead of prometheus-client: no global collectors, bounded label values, and 1 µs per count.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 1_000
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_OTHER = "other"

Labels = tuple[str, ...]
Values = Mapping[Labels, float]


@dataclass(frozen=True)
class Sample:
    """A metric's current values; a histogram's value is its bucket counts with their sum."""

    name: str
    kind: str
    help: str
    labels: Labels
    values: Sequence[tuple[Labels, Any]]


class _Metric:
    """Values by label values; beyond `MAX_SERIES`, new combinations are counted as `other`."""

    kind = "untyped"

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self.name = name
        self.labels = tuple(labels)
        self._help = help_text
        self._lock = threading.Lock()
        self._values: dict[Labels, Any] = {}

    def _key(self, values: Labels) -> Labels:
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(values)} values")
        if values in self._values or len(self._values) < MAX_SERIES:
            return values
        return (_OTHER,) * len(values)

    def render(self) -> list[str]:
        with self._lock:
            values = sorted(self._values.items())
            body = [line for key, value in values for line in self._lines(key, value)]
        return [f"# HELP {self.name} {self._help}", f"# TYPE {self.name} {self.kind}", *body]

    def sample(self) -> Sample:
        with self._lock:
            values = [(key, self._copy(value)) for key, value in sorted(self._values.items())]
        return Sample(self.name, self.kind, self._help, self.labels, values)

    @staticmethod
    def _copy(value: Any) -> Any:
        return value

    def _lines(self, key: Labels, value: Any) -> list[str]:
        return [f"{self.name}{self._braces(key)} {_number(value)}"]

    def _braces(self, key: Labels, *more: tuple[str, str]) -> str:
        pairs = [*zip(self.labels, key, strict=True), *more]
        return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in pairs) + "}" if pairs else ""


class Counter(_Metric):
    """A number that only grows."""

    kind = "counter"

    def inc(self, amount: float, *labels: str) -> None:
        with self._lock:
            key = self._key(labels)
            self._values[key] = self._values.get(key, 0) + amount


class Histogram(_Metric):
    """Durations in seconds, counted in fixed buckets."""

    kind = "histogram"

    def observe(self, seconds: float, *labels: str) -> None:
        with self._lock:
            key = self._key(labels)
            state = self._values.get(key)
            if state is None:
                state = self._values[key] = [[0] * (len(SECONDS) + 1), 0.0]
            state[0][bisect_left(SECONDS, seconds)] += 1
            state[1] += seconds

    @staticmethod
    def _copy(value: Any) -> Any:
        counts, total = value
        return tuple(counts), total

    def _lines(self, key: Labels, value: Any) -> list[str]:
        counts, total = value
        lines, passed = [], 0
        for bound, count in zip([*map(_number, SECONDS), "+Inf"], counts, strict=True):
            passed += count
            lines.append(f"{self.name}_bucket{self._braces(key, ('le', bound))} {passed}")
        braces = self._braces(key)
        return [*lines, f"{self.name}_sum{braces} {_number(total)}", f"{self.name}_count{braces} {passed}"]


class Gauge(_Metric):
    """A number that is read when the metrics are rendered."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        super().__init__(name, help_text, ())
        self._read = read

    def render(self) -> list[str]:
        self._values[()] = self._read()
        return super().render()

    def sample(self) -> Sample:
        self._values[()] = self._read()
        return super().sample()


class Gauges(_Metric):
    """Numbers by label values, which are read when the metrics are rendered."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, labels: Sequence[str], read: Callable[[], Values]) -> None:
        super().__init__(name, help_text, labels)
        self._read = read

    def render(self) -> list[str]:
        self._values = dict(self._read())
        return super().render()

    def sample(self) -> Sample:
        self._values = dict(self._read())
        return super().sample()


M = TypeVar("M", bound=_Metric)


class Registry:
    """Metrics by name.  Declaring the same metric again returns the existing one.

    A gauge may be declared again with another reader, for a component that was restarted.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        return self._declare(Counter(name, help_text, labels))

    def histogram(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Histogram:
        return self._declare(Histogram(name, help_text, labels))

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        self._metrics[name] = Gauge(name, help_text, read)

    def gauges(self, name: str, help_text: str, labels: Sequence[str], read: Callable[[], Values]) -> None:
        self._metrics[name] = Gauges(name, help_text, labels, read)

    def render(self) -> str:
        """Every metric as text, by name."""
        lines = [line for _, metric in sorted(self._metrics.items()) for line in metric.render()]
        return "\n".join([*lines, ""])

    def samples(self) -> list[Sample]:
        """The current values of every metric, by name."""
        return [metric.sample() for _, metric in sorted(self._metrics.items())]

    def _declare(self, metric: M) -> M:
        existing = self._metrics.setdefault(metric.name, metric)
        if not isinstance(existing, type(metric)) or existing.labels != metric.labels:
            raise ValueError(f"there is already another metric {metric.name}, a {existing.kind} with the labels {existing.labels}")
        return existing


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


registry = Registry()


def render() -> str:
    """All metrics of this process, for `GET /metrics`."""
    return registry.render()

"""Pushes spans and metrics to the collector; a slow or unreachable collector costs spans, but delays no request."""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from typing import Literal

import httpx

from appliance.core import clock
from appliance.core.config.sections import Otlp
from appliance.monitor import metrics
from appliance.monitor.spans import FAILED, LOST, SENT, Span

from . import wire
from .client import make_client

log = logging.getLogger(__name__)

MAX_QUEUED = 4096
BATCH = 512
SPAN_SECONDS = 2.0
TRIES = 4
MAX_PAUSE = 30.0
_LATER = frozenset({408, 429, 502, 503, 504})
Answer = Literal["taken", "refused", "later"]


class Exporter:
    """An exporter thread; `add` never blocks, and the queue is bounded.  `resource` identifies the appliance."""

    def __init__(self, settings: Otlp, resource: Mapping[str, str], registry: metrics.Registry = metrics.registry) -> None:
        self._base, self._metrics_seconds = settings.endpoint.rstrip("/"), settings.metrics_seconds
        self._resource, self._registry = resource, registry
        self._waiting: deque[Span] = deque()
        self._batch: list[Span] = []
        self._tries = 0
        self._paused_until = 0.0
        self._measured = clock.monotonic()
        self._began_ns = clock.now_ms() * 1_000_000
        self._is_healthy = True
        self._due, self._stopping = threading.Event(), threading.Event()
        self._client = make_client(settings)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, span: Span) -> None:
        """Queue a span; if the queue is full, it is dropped and counted."""
        if len(self._waiting) >= MAX_QUEUED:
            LOST.inc(1, "queue_full")
            return
        self._waiting.append(span)
        if len(self._waiting) == BATCH:
            self._due.set()

    def stop(self, seconds: float) -> None:
        """Send what is queued within this time, trying each batch once; the rest is dropped and counted."""
        self._stopping.set()
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("the collector did not respond in time; the last spans are lost")
        self._drop_all("stopped")
        self._client.close()

    def _run(self) -> None:
        while True:
            self._due.wait(SPAN_SECONDS)
            self._due.clear()
            is_last = self._stopping.is_set()  # read before the work: spans added during it are not sent any more
            try:
                self._push_spans(is_last=is_last)
                self._push_metrics(is_last=is_last)
            except Exception:
                log.exception("spans or metrics could not be sent")
                self._drop_batch("fault")
            if is_last:
                return

    def _push_spans(self, *, is_last: bool) -> None:
        if clock.monotonic() < self._paused_until and not is_last:
            return
        while self._batch or self._waiting:
            while self._waiting and len(self._batch) < BATCH:
                self._batch.append(self._waiting.popleft())
            answer = self._post("traces", wire.encode_traces(self._resource, self._batch))
            self._tries += 1
            if answer == "taken":
                SENT.inc(len(self._batch))
                self._batch, self._tries = [], 0
            elif answer == "refused" or self._tries >= TRIES:
                self._drop_batch("refused" if answer == "refused" else "unreachable")
            if answer == "later":
                self._paused_until = clock.monotonic() + min(2.0**self._tries, MAX_PAUSE)
                return

    def _push_metrics(self, *, is_last: bool) -> None:
        now = clock.monotonic()
        if not self._metrics_seconds or (now - self._measured < self._metrics_seconds and not is_last):
            return
        self._measured = now
        self._post("metrics", wire.encode_metrics(self._resource, self._registry, self._began_ns, clock.now_ms() * 1_000_000))

    def _post(self, signal: str, content: bytes) -> Answer:
        try:
            with self._client.stream("POST", f"{self._base}/v1/{signal}", content=content) as response:
                status = response.status_code  # the body could be endless
        except httpx.HTTPError as error:
            return self._record_failure(signal, f"cannot be reached ({type(error).__name__})", "later")
        if 200 <= status < 300:
            if not self._is_healthy:
                log.info("the collector accepts traces and metrics again")
            self._is_healthy = True
            return "taken"
        return self._record_failure(signal, f"answered {status}", "later" if status in _LATER else "refused")

    def _record_failure(self, signal: str, what: str, answer: Answer) -> Answer:
        """Count a failure; it is logged once until the collector recovers."""
        FAILED.inc(1, signal)
        if self._is_healthy:
            log.warning("the collector %s %s for %s; check otlp.endpoint and otlp.headers", self._base, what, signal)
        self._is_healthy = False
        return answer

    def _drop_batch(self, why: str) -> None:
        LOST.inc(len(self._batch), why)
        self._batch, self._tries = [], 0

    def _drop_all(self, why: str) -> None:
        if left := len(self._waiting) + len(self._batch):
            LOST.inc(left, why)
        self._waiting.clear()

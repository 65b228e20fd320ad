"""Metrics of the sandbox."""

from functools import partial

from appliance.monitor.metrics import Registry
from appliance.sandbox import Outcome, Pool, Reason

_GAUGES = (
    ("processes", "Sandbox processes that run code."),
    ("slots", "Places in sandbox processes."),
    ("busy", "Sandbox places in use."),
    ("queued", "Steps waiting for a sandbox place."),
    ("confined", "Sandbox processes whose system calls are filtered."),
)


class SandboxMetrics:
    """Counts a pool's events as its observer."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waits = registry.histogram("gos_sandbox_queue_seconds", "Time until a sandbox place was found.", ("lane",))
        self._restarts = registry.counter("gos_sandbox_restarts_total", "Sandbox processes replaced.", ("lane", "reason"))
        self._steps = registry.counter("gos_sandbox_steps_total", "Steps run in the sandbox.", ("language", "outcome"))
        self._seconds = registry.histogram("gos_sandbox_step_seconds", "Time a step took, its calls included.", ("language",))

    def watch(self, pool: Pool) -> None:
        """Observe this pool from now on, and export its state."""
        pool.observe(self)
        for name, text in _GAUGES:
            self._registry.gauge(f"gos_sandbox_{name}", text, partial(lambda name: float(pool.health()[name]), name))
        self._registry.gauge(
            "gos_sandbox_oldest_wait_seconds", "Longest wait for a sandbox place right now.",
            lambda: pool.health()["oldest_wait_ms"] / 1000,
        )  # fmt: skip

    def waited(self, lane: str, seconds: float) -> None:
        self._waits.observe(seconds, lane)

    def replaced(self, lane: str, reason: Reason) -> None:
        self._restarts.inc(1, lane, reason)

    def stepped(self, language: str, outcome: Outcome) -> None:
        ended = "succeeded" if outcome.snapshot is None else "suspended"
        if outcome.failure is not None:
            ended = str(outcome.failure.failure_class)
        self._steps.inc(1, language, ended)
        self._seconds.observe(outcome.wall_ms / 1000, language)

"""Gauges that are read when the metrics are requested."""

from typing import TYPE_CHECKING

from appliance.backups.rehearsal import has_failed
from appliance.core.database import db
from appliance.integrations import gate
from appliance.monitor import SandboxMetrics, metrics
from appliance.sites.front import WorkQueue
from appliance.web import Services

from . import quotas
from .audit_forwarding import add_forwarding_gauge

if TYPE_CHECKING:
    from appliance.backups.points import PointShipper


def add_request_gauges(queue: WorkQueue) -> None:
    """Have the registry ask the queue of requests whenever it is read."""
    metrics.registry.gauge("gos_requests_waiting", "Requests waiting for their turn.", lambda: float(queue.waiting))
    metrics.registry.gauge("gos_request_turns", "How many requests are worked on at once at most.", lambda: float(queue.turns))


def add_gauges(services: Services, points: "PointShipper | None") -> None:
    """Have the registry ask these parts whenever it is read."""
    SandboxMetrics(metrics.registry).watch(services.sandbox)
    metrics.registry.gauge("gos_queue_messages", "Wake-ups nobody has taken yet.", lambda: float(services.queue.depth()))
    circuits = "Integrations with an open circuit."
    metrics.registry.gauge("gos_integration_circuits_open", circuits, lambda: float(gate.open_circuits()))
    checks = services.monitor.audit_checks
    broken = "Audit trails that were broken when last verified."
    metrics.registry.gauge("gos_audit_trails_broken", broken, lambda: float(checks.count_broken()))
    add_forwarding_gauge(services.monitor.audit_forwardings)
    failed = "1 if the last rehearsal of a restore failed, else 0."
    metrics.registry.gauge("gos_backup_rehearsal_failed", failed, lambda: float(has_failed()))
    lag = "Seconds of changes that are not yet shipped to backup.points_to; 0 without it."
    metrics.registry.gauge("gos_backup_points_lag_seconds", lag, points.lag if points is not None else lambda: 0.0)
    metrics.registry.gauge("gos_db_writer_waiting", "Functions waiting for the writer.", lambda: float(db.writer_depth()))
    quotas.add_gauges(services.limits.quotas)
    services.monitor.disk.measure()
    for name, help_text, read in (
        ("gos_disk_bytes", "Size of the disk that holds the data folder.", lambda: services.monitor.disk.read().total),
        ("gos_disk_free_bytes", "What is free on it.", lambda: services.monitor.disk.read().free),
        ("gos_database_bytes", "Size of the database.", lambda: services.monitor.disk.read().database),
        ("gos_blobs_bytes", "Contents of documents, WebApps and skills.", lambda: services.monitor.disk.read().blobs),
    ):
        metrics.registry.gauge(name, help_text, read)
    metrics.registry.gauge(
        "gos_executions_active", "Executions driven by this process.", lambda: float(len(services.processes.runner.active))
    )
    metrics.registry.gauge("gos_streams_open", "Event streams that are followed.", lambda: float(services.limits.streams.count()))

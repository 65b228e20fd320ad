"""Gauges that are read when the metrics are requested."""

from appliance.core.database import db
from appliance.integrations import gate
from appliance.monitor import SandboxMetrics, metrics
from appliance.web import Services


def add_gauges(services: Services) -> None:
    """Have the registry ask these parts whenever it is read."""
    SandboxMetrics(metrics.registry).watch(services.sandbox)
    metrics.registry.gauge("gos_queue_messages", "Wake-ups nobody has taken yet.", lambda: float(services.queue.depth()))
    circuits = "Integrations with an open circuit."
    metrics.registry.gauge("gos_integration_circuits_open", circuits, lambda: float(gate.open_circuits()))
    metrics.registry.gauge("gos_db_writer_waiting", "Functions waiting for the writer.", lambda: float(db.writer_depth()))
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

"""Builds the systems that get the entries of audit trails, as the configuration names them."""

from functools import partial

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.config.sections import Otlp
from appliance.core.crypto import Sealer
from appliance.monitor import metrics
from appliance.monitor.forwarding import AuditForwarding, Destination, SyslogServer, read_lag
from appliance.monitor.signed_trails import AuditKeys

from .telemetry import resource_of


def make_destinations(config: Config, instance: str) -> list[Destination]:
    """The syslog server and the collector, each if there is one; `instance` names this process at the collector."""
    audit, destinations = config.audit, list[Destination]()
    if audit.syslog:
        destinations.append(SyslogServer(audit, config.domains.base))
    if audit.otlp:
        from appliance.monitor.otlp import AuditCollector

        settings = Otlp(endpoint=audit.otlp, headers=audit.otlp_headers, ca_file=audit.ca_file)
        destinations.append(AuditCollector(settings, resource_of(config.otlp, instance)))
    return destinations


def make_forwardings(config: Config, sealer: Sealer, instance: str) -> tuple[AuditForwarding, ...]:
    """The forwarding of this process to each destination."""
    keys, checkpoint_ms = AuditKeys(sealer), config.audit.checkpoint_minutes * 60_000
    return tuple(AuditForwarding(each, keys, checkpoint_ms) for each in make_destinations(config, instance))


def add_forwarding_gauge(forwardings: tuple[AuditForwarding, ...]) -> None:
    """Have the registry ask how far the destinations are behind whenever it is read."""
    names = [each.destination.name for each in forwardings]
    help_text = "Age of the oldest entry of an audit trail that was not sent yet; 0 if all were."
    metrics.registry.gauges("gos_audit_forwarding_lag_seconds", help_text, ("destination",), partial(_read_lags, names))


def _read_lags(names: list[str]) -> dict[tuple[str, ...], float]:
    now = clock.now_ms()
    oldest = {name: read_lag(name).oldest_at for name in names}
    return {(name,): 0.0 if at is None else max(0.0, (now - at) / 1000) for name, at in oldest.items()}

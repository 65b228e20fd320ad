"""What `gos doctor` says about the systems that get the entries of audit trails."""

from collections.abc import Iterator
from contextlib import closing

from appliance.app.audit_forwarding import make_destinations
from appliance.core import clock
from appliance.core.config import Config
from appliance.monitor.forwarding import Destination, Undelivered, read_lag

Finding = tuple[str, str]
LONG_LAG_MS = 15 * 60_000


def forwarding_findings(config: Config) -> Iterator[Finding]:
    """Check that each system can be reached, has the entries and refused none; the store must be open."""
    for destination in make_destinations(config, "doctor"):
        with closing(destination):
            yield _check(destination)
        yield from _find_lag(destination.name)


def _check(destination: Destination) -> Finding:
    setting = f"audit.{destination.name}"
    try:
        destination.check()
    except Undelivered as error:
        what = "audit.otlp_headers" if destination.name == "otlp" else "its port"
        return "FAIL", (
            f"{setting}: {destination.address} {error}; entries wait in the database until it takes them: check its address, "
            f"{what} and audit.ca_file"
        )
    return "ok", f"the system that gets the audit trails can be reached ({setting}: {destination.address})"


def _find_lag(name: str) -> Iterator[Finding]:
    lag = read_lag(name)
    if lag.oldest_at is not None and clock.now_ms() - lag.oldest_at > LONG_LAG_MS:
        yield "FAIL", (
            f"audit.{name}: entries of {lag.trails} audit trails wait to be sent, the oldest from {clock.rfc3339(lag.oldest_at)}; "
            "unless it was configured just now, see the log of the appliance for the reason, and whether `gos serve` or "
            "`gos worker` runs"
        )
    if lag.rejected:
        yield "FAIL", (
            f"audit.{name}: the collector has refused {lag.rejected} records of audit trails for good; its answers are in the log "
            "of the appliance, and `gos audit export` has the entries"
        )

"""What `gos doctor` says about the systems that get the entries of audit trails."""

from collections.abc import Iterator
from contextlib import closing

from appliance.app.audit_forwarding import make_destinations
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.scope import APPLIANCE
from appliance.monitor.forwarding import (
    REJECTION_DAYS,
    Destination,
    TrailRejections,
    Undelivered,
    list_rejections,
    read_lag,
)

Finding = tuple[str, str]
LONG_LAG_MS = 15 * 60_000
MOST_TRAILS = 20


def forwarding_findings(config: Config) -> Iterator[Finding]:
    """Check that each system can be reached, has the entries and refused none; the store must be open."""
    for destination in make_destinations(config, "doctor"):
        with closing(destination):
            yield _check(destination)
        yield from _find_lag(destination.name)
        yield from _find_rejections(destination.name)


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


def _find_rejections(name: str) -> Iterator[Finding]:
    """What the system has refused, by trail: until somebody acknowledges it, or for `REJECTION_DAYS`."""
    trails = [each for each in list_rejections() if each.destination == name and each.is_recent]
    for each in trails[:MOST_TRAILS]:
        yield "FAIL", _describe(each)
    if len(trails) > MOST_TRAILS:
        yield "FAIL", (
            f"audit.{name}: records of {len(trails) - MOST_TRAILS} more audit trails were refused; `gos audit rejections` lists "
            "them"
        )


def _describe(each: TrailRejections) -> str:
    trail = "the audit trail of the appliance" if each.tenant_id == APPLIANCE else f"the audit trail of {each.tenant_id}"
    count = "1 record" if each.count == 1 else f"{each.count} records"
    command = f"send it the entries that `{each.export_command}` prints" if each.export_command else "retention has deleted them"
    return (
        f"audit.{each.destination}: the collector has refused {count} of {trail} for good, among the entries {each.first_seq} to "
        f"{each.last_seq}, last at {clock.rfc3339(each.at)}: {each.reason or 'it did not say why'}; find the reason at the "
        f"collector, {command}, then acknowledge it by `gos audit rejections --acknowledge` or in the console (this finding ends "
        f"{REJECTION_DAYS} days after the last refusal in any case)"
    )

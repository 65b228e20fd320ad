"""Controls every call: the number of concurrent calls per integration, and the circuit breaker of its foreign system."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from appliance.connectors.contract import ConnectorError
from appliance.core import clock
from appliance.core.database import db
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scope import TenantScope
from appliance.integrations import circuit as deciding
from appliance.integrations.call_slots import CallSlots, ProcessSlots, SlotRequest
from appliance.integrations.circuit import Circuit, State, Withheld
from appliance.integrations.models import CircuitRow
from appliance.monitor import Line, metrics, write_lines

DEFAULT_CONCURRENCY = 16
"""Concurrent calls of an integration, unless its `concurrency` says otherwise."""
MAX_CONCURRENCY = 64

WITHHELD = metrics.registry.counter("gos_integration_calls_withheld_total", "Calls that were not sent.", ("why",))
CIRCUITS = metrics.registry.counter("gos_integration_circuit_changes_total", "Circuits that changed.", ("state",))

_COLUMNS = "failures, openings, open_until, probing_until, held_until, reason, changed_at"
# Nothing is stored for an integration that was deleted meanwhile.
_UPSERT = (
    f"INSERT INTO integration_circuit ({_COLUMNS}, tenant_id, integration_id) "  # noqa: S608 - constant names
    "SELECT ?, ?, ?, ?, ?, ?, ?, tenant_id, id FROM integration WHERE tenant_id = ? AND id = ? "
    "ON CONFLICT (tenant_id, integration_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", "))
)
_PROBE = (
    "UPDATE integration_circuit SET probing_until = ? WHERE tenant_id = ? AND integration_id = ? AND open_until <= ? "
    "AND (probing_until IS NULL OR probing_until <= ?)"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Health:
    """A foreign system's state: `open_until` is when it is tried again (epoch ms), `reason` the last of `failures` in a row."""

    state: State = "closed"
    failures: int = 0
    reason: str = ""
    open_until: int | None = None
    held_until: int | None = None


def health(scope: TenantScope, slug: str) -> Health:
    """The current state of the integration's foreign system."""
    circuit, now = _read(scope, slug), clock.now_ms()
    held_until = circuit.held_until if circuit.is_rate_limited(now) else None
    return Health(circuit.state(now), circuit.failures, circuit.reason, circuit.open_until, held_until)


def list_failing(scope: TenantScope) -> list[str]:
    """The slugs of integrations whose circuit is not closed."""
    query = scope.select(CircuitRow, CircuitRow.integration_id).where(CircuitRow.open_until.is_null(False))
    return [row.integration_id for row in query.order_by(CircuitRow.integration_id)]


def reset_circuit(scope: TenantScope, slug: str) -> None:
    """Inside a write: reset the circuit, because settings changed or a person tested the system successfully."""
    scope.delete(CircuitRow).where(CircuitRow.integration_id == slug).execute()


def open_circuits() -> int:
    """The number of circuits of all tenants that are not closed."""
    ((count,),) = db.rows("SELECT COUNT(*) FROM integration_circuit WHERE open_until IS NOT NULL")
    return int(count)


def waiting_in_queue(older_than_ms: int) -> list[tuple[str, str]]:
    """(tenant, call) of queued calls of every tenant whose wake-up may be lost and whose foreign system may be called."""
    sql = (
        "SELECT tenant_id, id FROM integration_call AS waits WHERE status = 'queued' AND created_at < ? AND NOT EXISTS "  # noqa: S608
        "(SELECT 1 FROM integration_circuit AS held WHERE held.tenant_id = waits.tenant_id "
        "AND held.integration_id = waits.integration_id AND (held.open_until > ? OR held.held_until > ?)) "
        f"AND tenant_id NOT IN ({FENCED}) ORDER BY id LIMIT 500"
    )
    now = clock.now_ms()
    return [(str(t), str(i)) for t, i in db.rows(sql, (now - older_than_ms, now, now))]


class Gate:
    """Admits calls; circuits are rows shared by all processes, and so are the slots of running calls on a server."""

    def __init__(self, slots: CallSlots | None = None) -> None:
        self._slots = slots or ProcessSlots()

    def run(self, scope: TenantScope, slug: str, seconds: float, call: Callable[[float], T], most: int = DEFAULT_CONCURRENCY) -> T:
        """Run `call` with the remaining seconds, as one of at most `most` at once; Withheld if nothing was sent."""
        began = clock.monotonic()
        try:
            with self._slots.hold(SlotRequest(scope, slug, seconds, most)):
                left = seconds - (clock.monotonic() - began)
                _admit(scope, slug, left)
                return _observed(scope, slug, lambda: call(left))
        except Withheld as refused:
            WITHHELD.inc(1, refused.why)
            raise


def _admit(scope: TenantScope, slug: str, seconds: float) -> None:
    """Withheld unless the call may be sent; a half-open circuit admits one."""
    now = clock.now_ms()
    circuit = _read(scope, slug)
    if circuit.open_until is not None and deciding.refusal(circuit, slug, now) is None:
        refused = db.write(lambda: _claim_probe(scope, slug, seconds))
    else:
        refused = deciding.refusal(circuit, slug, now)
    if refused is not None:
        raise refused


def _claim_probe(scope: TenantScope, slug: str, seconds: float) -> Withheld | None:
    """Inside a write: claim the probe of a half-open circuit, which only one caller of any process gets."""
    now = clock.now_ms()
    until = deciding.probing(_read(scope, slug), now, seconds).probing_until
    changed = db.execute(_PROBE, (until, scope.tenant_id, slug, now, now))
    return None if changed else deciding.refusal(_read(scope, slug), slug, now)


def _observed(scope: TenantScope, slug: str, call: Callable[[], T]) -> T:
    try:
        answer = call()
    except ConnectorError as error:
        _update_circuit(scope, slug, error)
        raise
    _update_circuit(scope, slug, None)
    return answer


def _update_circuit(scope: TenantScope, slug: str, error: ConnectorError | None) -> None:
    """Update the circuit after a call; writes nothing if its state does not change."""

    def after(circuit: Circuit) -> Circuit:
        return deciding.after_answer(circuit) if error is None else deciding.after_error(circuit, error, clock.now_ms())

    def update() -> None:
        before = _read(scope, slug)
        now_is = after(before)
        if now_is != before:
            _store(scope, slug, now_is)
            _log_change(scope, slug, before, now_is)

    circuit = _read(scope, slug)
    if after(circuit) != circuit:
        db.write(update)


def _log_change(scope: TenantScope, slug: str, before: Circuit, after: Circuit) -> None:
    """Inside a write: log a line when a circuit opens or closes."""
    now = clock.now_ms()
    if after.open_until == before.open_until:
        return
    if after.open_until is None:
        line = Line(now, "info", "integration", f"{slug} is responding again; its circuit is closed", {"circuit": "closed"})
    else:
        pause = round((after.open_until - now) / 1000)
        message = f"{slug} failed {after.failures} times in a row; calls to it are paused for {pause} s"
        line = Line(now, "warn", "integration", message, {"circuit": "open", "reason": after.reason})
    write_lines(scope, [line])
    state = "closed" if after.open_until is None else "open"
    db.after_commit(lambda: CIRCUITS.inc(1, state))


def _read(scope: TenantScope, slug: str) -> Circuit:
    row = scope.find(CircuitRow, integration_id=slug)
    if row is None:
        return Circuit()
    return Circuit(row.failures, row.openings, row.open_until, row.probing_until, row.held_until, row.reason)


def _store(scope: TenantScope, slug: str, circuit: Circuit) -> None:
    values = (
        circuit.failures, circuit.openings, circuit.open_until, circuit.probing_until, circuit.held_until,
        circuit.reason, clock.now_ms(), scope.tenant_id, slug,
    )  # fmt: skip
    db.execute(_UPSERT, values)

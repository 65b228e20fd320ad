"""Handles changes of the wall clock: running durations keep their length, points in time follow the new clock.

Every due time is stored as wall-clock time. A duration also names the machine that measures it (`measured_by`, its boot id).
Each machine has a row with the offset between its wall clock and its time since boot. The first of its processes that finds a
different offset updates the row and moves the machine's durations by the difference, in one transaction, so that it happens
once. After a reboot the machine has another id, and its earlier durations follow the wall clock. Machines that share a database
each move only what they measure and compare due times with their own clocks, so those must be synchronized.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.engine import store

log = logging.getLogger(__name__)
JUMP_MS = 2_000
"""Smaller changes have no effect until they add up to this; gradual adjustment of the clock is not a jump."""


class ClockJumps:
    """Tracks the clock of this machine for one process; thread-safe.

    Each of `move` shifts stored durations by a number of milliseconds, inside a write; `noticed` is called after every jump,
    whichever process found it.
    """

    def __init__(self, move: Sequence[Callable[[int], None]], on_jump: Callable[[], None]) -> None:
        self.offset_ms: int | None = None
        self._move = move
        self._on_jump = on_jump

    def now_ms(self) -> int:
        """The wall clock (epoch ms), after durations have been adjusted to it; use it to find due work.  Also inside a write."""
        offset = clock.apart_ms()
        if self.offset_ms is None or abs(offset - self.offset_ms) >= JUMP_MS:
            db.write(partial(self._store_offset, offset))
        return clock.since_boot_ms() + offset  # not the wall clock, which may have been set since the offset was read

    def refresh(self) -> int:
        """The same after comparing with the row; call it now and then, because another process may have changed the row."""
        if _read_offset() != self.offset_ms:
            db.write(lambda: self._store_offset(clock.apart_ms()))
        return self.now_ms()

    def _store_offset(self, offset: int) -> None:
        boot_id, stored = clock.boot_id(), _read_offset()
        if stored is None:
            sql = "INSERT INTO machine_clock (boot_id, apart_ms) VALUES (?, ?) ON CONFLICT (boot_id) DO NOTHING"
            db.execute(sql, (boot_id, offset))
        elif abs(offset - stored) >= JUMP_MS:
            sql = "UPDATE machine_clock SET apart_ms = ? WHERE boot_id = ? AND apart_ms = ?"
            if db.execute(sql, (offset, boot_id, stored)) == 1:
                for move in self._move:
                    move(offset - stored)
        current = _read_offset()
        db.after_commit(partial(self._apply_offset, offset if current is None else current))

    def _apply_offset(self, offset: int) -> None:
        before, self.offset_ms = self.offset_ms, offset
        by = 0 if before is None else offset - before
        if abs(by) < JUMP_MS:
            return
        directions = ("ahead", "sooner") if by > 0 else ("back", "later")
        text = "the clock was set %s by %d s: durations keep their length, points in time come so much %s"
        log.warning(text, directions[0], abs(by) // 1000, directions[1])
        self._on_jump()


def _read_offset() -> int | None:
    """The stored offset between this machine's wall clock and its time since boot; None without a row."""
    rows = db.rows("SELECT apart_ms FROM machine_clock WHERE boot_id = ?", (clock.boot_id(),))
    return int(rows[0][0]) if rows else None


_OF_OPEN = (
    "(tenant_id, execution_id) IN (SELECT tenant_id, id FROM execution WHERE status IN ('waiting', 'running', 'cancelling') "
    "AND finished_at IS NULL)"
)
_CALLS = (
    "FROM pending_call AS c WHERE c.tenant_id = step_run.tenant_id AND c.execution_id = step_run.execution_id "
    "AND c.path = step_run.path AND c.iteration = step_run.iteration AND c.attempt = step_run.attempt AND c.ok IS NULL"
)


def move_durations(by_ms: int) -> None:
    """Moves the durations measured by this machine, and all leases, by `by_ms`; inside a write.

    Leases of other machines are moved too, which is harmless: living owners renew them all the time.
    """
    boot_id = clock.boot_id()
    # A step waiting in calls is due with the first of them, or since one was answered; only the former moves.
    db.execute(
        f"UPDATE step_run SET next_run_at = (SELECT MIN(CASE WHEN c.measured_by = ? THEN c.due_at + ? ELSE c.due_at END) {_CALLS}) "  # noqa: S608 our own names
        f"WHERE status = 'waiting' AND {_OF_OPEN} AND next_run_at = (SELECT MIN(c.due_at) {_CALLS})",
        (boot_id, by_ms),
    )
    db.execute("UPDATE pending_call SET due_at = due_at + ? WHERE ok IS NULL AND measured_by = ?", (by_ms, boot_id))
    db.execute(
        "UPDATE step_run SET next_run_at = next_run_at + ? "  # noqa: S608 our own names
        f"WHERE status IN ('waiting', 'retrying') AND measured_by = ? AND {_OF_OPEN}",
        (by_ms, boot_id),
    )
    db.execute(
        "UPDATE execution SET next_run_at = (SELECT MIN(s.next_run_at) FROM step_run AS s WHERE s.tenant_id = execution.tenant_id "
        "AND s.execution_id = execution.id AND s.status IN ('waiting', 'retrying')) "
        "WHERE status = 'waiting' AND finished_at IS NULL AND next_run_at IS NOT NULL"
    )
    store.LEASES.shift(by_ms)
    _correct_waiting_for(boot_id)


def _correct_waiting_for(boot_id: str) -> None:
    """Corrects the due times in the `waiting_for` of executions, which callers see."""
    calls = db.rows(
        "SELECT tenant_id, execution_id, path, iteration, call, due_at FROM pending_call WHERE ok IS NULL AND measured_by = ?",
        (boot_id,),
    )
    dues = {tuple(row[:5]): row[5] for row in calls}
    waiting = db.rows(
        "SELECT tenant_id, id, next_run_at, waiting_for FROM execution "
        "WHERE status = 'waiting' AND finished_at IS NULL AND waiting_for IS NOT NULL AND next_run_at IS NOT NULL"
    )
    for tenant_id, execution_id, due, text in waiting:
        waits = json.loads(text)
        waits["until"] = clock.rfc3339(due)
        for each in waits.get("waits", ()):
            _correct_wait(each, dues.get((tenant_id, execution_id, each["path"], each.get("iteration", ""), each["call"])))
        corrected = db.dump_json(waits)
        if corrected != text:
            db.execute("UPDATE execution SET waiting_for = ? WHERE tenant_id = ? AND id = ?", (corrected, tenant_id, execution_id))


def _correct_wait(wait: dict[str, Any], due: int | None) -> None:
    if due is not None:
        wait["until"] = clock.rfc3339(due)

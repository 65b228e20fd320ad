"""Whether requests may use a tenant: looked up when they begin, and again by what they write.

A request belongs to the tenant as it was when it began.  Once that is reset or deleted, nothing of the request is written any more,
also when the reset is over or another tenant has the id.
"""

from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.database.write_guards import WriteGuard
from appliance.core.errors import ApplianceError, Overloaded, UnknownHost
from appliance.core.scope import APPLIANCE

RESET_RETRY_SECONDS = "5"
_CACHE_SECONDS = 1.0
_CHANGED = (
    "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM tenant WHERE id = ? AND created_at = ? AND closed_at IS NULL "
    "AND COALESCE(reset_at, 0) = ? AND COALESCE(reset_at, 0) <= 0)"
)


@dataclass(frozen=True, slots=True)
class _State:
    """When an existing tenant was looked up, and what changes if it is reset or another gets its id; `reset_at` as in its row."""

    at: float
    created_at: int
    reset_at: int


_states: Cache[str, _State] = Cache(1_000)


def tenant_exists(tenant_id: str) -> bool:
    """Whether the tenant exists; called for every request, so a positive result is cached for a second."""
    return _look_up(tenant_id) is not None


def is_stored(tenant_id: str) -> bool:
    """Whether the tenant exists now, which `tenant_exists` may notice a second later."""
    forget_state(tenant_id)
    return tenant_exists(tenant_id)


def forget_state(tenant_id: str) -> None:
    """Look the tenant up again for the next request of this process."""
    _states.pop(tenant_id, None)


def _look_up(tenant_id: str) -> _State | None:
    """The state of the tenant; None without such a tenant, which alone is not cached."""
    cached, now = _states.get(tenant_id), clock.monotonic()
    if cached is not None and now - cached.at < _CACHE_SECONDS:
        return cached
    sql = "SELECT created_at, reset_at FROM tenant WHERE id = ? AND closed_at IS NULL"  # peewee takes ten times as long
    if tenant_id != APPLIANCE and (rows := db.rows(sql, (tenant_id,))):
        state = _states[tenant_id] = _State(now, rows[0][0], rows[0][1] or 0)
        return state
    forget_state(tenant_id)
    return None


def refuse_reset(tenant_id: str) -> None:
    """Overloaded while the tenant is being reset; called for every request, so other processes learn of it a second later; until
    then, `guard_of` refuses what their requests write."""
    state = _look_up(tenant_id)
    if state is not None and state.reset_at > 0:
        raise being_reset()


def guard_of(tenant_id: str) -> WriteGuard | None:
    """Refuses the writes of a request that begins now, as soon as the tenant is not as this process knows it: it is reset or
    deleted, or was.  None for the appliance itself."""
    if tenant_id == APPLIANCE:
        return None
    state = _look_up(tenant_id)
    created_at, reset_at = (state.created_at, state.reset_at) if state is not None else (-1, 0)
    return WriteGuard(_CHANGED, (tenant_id, created_at, reset_at), partial(_explain, tenant_id, created_at))


def _explain(tenant_id: str, created_at: int) -> ApplianceError:
    """Why a write of a request to the tenant of that time is refused.  The next request looks the tenant up again."""
    forget_state(tenant_id)
    sql = "SELECT reset_at FROM tenant WHERE id = ? AND created_at = ? AND closed_at IS NULL"
    rows = db.rows(sql, (tenant_id, created_at))
    if not rows:
        return UnknownHost("this host name is not served here; check the address")
    if (rows[0][0] or 0) > 0:
        return being_reset()
    return Overloaded("this tenant was reset while your request was under way, so nothing of it was stored; try again", headers={
        "Retry-After": RESET_RETRY_SECONDS,
    })  # fmt: skip


def being_reset() -> Overloaded:
    """The refusal of a request to a tenant that is being reset."""
    return Overloaded("this tenant is being reset; try again when that is done", headers={"Retry-After": RESET_RETRY_SECONDS})


def is_being_reset(tenant_id: str) -> bool:
    """Whether the tenant is being reset now."""
    return bool(db.rows("SELECT 1 FROM tenant WHERE id = ? AND reset_at > 0", (tenant_id,)))

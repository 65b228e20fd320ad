"""Requests beside which their tenant is deleted or reset: a write that comes too late is answered like a request after it.

The database refuses such a write by whatever it misses first, a tenant, a parent row or a table, and each verb sees another fault.
So edges ask here, where they catch what has no code.
"""

from concurrent.futures import Executor

from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.database.write_guards import current_guard
from appliance.core.errors import ApplianceError, NotFound, UnknownHost
from appliance.tenants import service

from .threads import in_thread


def explain_fault(error: Exception, tenant_id: str) -> Exception:
    """The error, or if it is a fault or `NotFound`, why the request's tenant is not there any more: see `guard_of`.

    Without a guard it is UnknownHost if the tenant does not exist, and Overloaded while it is being reset.  Waits for the database.
    """
    if (isinstance(error, ApplianceError | ConnectionLost) and not isinstance(error, NotFound)) or not tenant_id:
        return error
    try:
        if (guard := current_guard()) is not None:
            return guard.refuse() if db.rows(guard.sql, guard.params) else error
        is_stored, is_reset = service.is_stored(tenant_id), service.is_being_reset(tenant_id)
    except Exception:  # noqa: BLE001  the database cannot say now, so the first error stays the answer
        return error
    if not is_stored:
        return UnknownHost("this host name is not served here; check the address")
    return service.being_reset() if is_reset else error


async def explain_fault_in_thread(threads: Executor, error: Exception, tenant_id: str) -> Exception:
    """The same on an event loop."""
    if isinstance(error, ApplianceError):
        return error
    return await in_thread(threads, explain_fault, error, tenant_id)

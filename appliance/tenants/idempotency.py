"""Idempotency records: the first response to a POST, kept for 24 hours per caller, key, method and path."""

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import IdempotencyInFlight, IdempotencyMismatch, Overloaded, StorageFull, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.monitor import delete_in_chunks

from .models import Idempotency

T = TypeVar("T")
RETENTION_MS = 24 * 3_600_000
PURGE_CHUNK = 500


@dataclass(frozen=True)
class RequestKey:
    """Identifies a repeated request, and by `claimed_at` (epoch ms) one of its repetitions."""

    key: str
    method: str
    path: str
    body: bytes
    claimed_at: int = field(default_factory=clock.now_ms, compare=False)

    def columns(self, scope: TenantScope) -> dict[str, str]:
        return {"caller": scope.actor, "key": self.key, "method": self.method, "path": self.path}

    def token(self, scope: TenantScope) -> str:
        """A token for this request, for rows that must exist once per request."""
        parts = f"{scope.actor}\0{self.key}\0{self.method}\0{self.path}"
        return hashlib.sha256(parts.encode()).hexdigest()


@dataclass(frozen=True)
class StoredResponse:
    """A stored response, for replay."""

    status: int
    headers: dict[str, str]
    body: str


def check_key(key: str) -> str:
    """Validate the header's value; ValidationFailed if it is empty, too long or not printable ASCII."""
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise ValidationFailed("Idempotency-Key must be 1 to 255 printable ASCII characters", pointer="/Idempotency-Key")
    return key


def begin(scope: TenantScope, request: RequestKey, owner: str, is_alive: Callable[[str], bool]) -> StoredResponse | None:
    """Inside a write, which may be a shared one: claim the request, or return the stored response.

    `owner` names this process.  IdempotencyMismatch if the body differs; IdempotencyInFlight while a live process, this or
    another, still handles the first request; a record of a dead process is taken over.
    """
    digest = hashlib.sha256(request.body).digest()
    row = scope.find(Idempotency, **request.columns(scope))
    now = clock.now_ms()
    if row is not None and now - row.created_at < RETENTION_MS:
        if bytes(row.body_digest) != digest:
            raise IdempotencyMismatch("this Idempotency-Key was used with a different body; use a new key for a new request")
        if row.state == "done":
            return StoredResponse(row.status, dict(row.headers or {}), row.answer or "")
        if row.owner == owner or is_alive(row.owner):
            raise IdempotencyInFlight("the first request with this Idempotency-Key is still running; try again shortly")
    if row is not None:  # Only this one: another request may have replaced it by now, which the insertion below then finds.
        outdated = (Idempotency.created_at == row.created_at) & (Idempotency.owner == row.owner)
        _where(scope.delete(Idempotency), scope, request).where(outdated).execute()
    columns = {"body_digest": digest, "state": "running", "owner": owner, "created_at": request.claimed_at}
    scope.insert(Idempotency, **request.columns(scope), **columns)
    return None


def finish(scope: TenantScope, request: RequestKey, answer: StoredResponse) -> None:
    """Inside a write: store the first response; 429 and 5xx are not stored, so that the caller may retry."""
    if answer.status == 429 or answer.status >= 500:
        _delete(scope, request)
        return
    changes: dict[str, Any] = {"state": "done", "status": answer.status, "headers": answer.headers, "answer": answer.body}
    _where(scope.update(Idempotency, **changes), scope, request).where(Idempotency.created_at == request.claimed_at).execute()


def release(scope: TenantScope, request: RequestKey) -> None:
    """Inside a write: delete the record of a request that failed without effect."""
    _delete(scope, request)


_AWAY = (Overloaded, StorageFull, ConnectionLost)
_unsettled: deque[Callable[[], Any]] = deque()


def settle(finish_or_release: Callable[[], T]) -> T:
    """Write how a claimed request ended; if the database is away or full, once more when it is back.

    Overloaded, StorageFull, ConnectionLost.  Otherwise its key would be in flight for as long as this process lives.
    """
    try:
        return db.write(finish_or_release, is_shared=True)
    except _AWAY:
        _unsettled.append(finish_or_release)
        raise


def settle_soon(finish_or_release: Callable[[], Any]) -> None:
    """As `settle`, without waiting."""

    def keep_if_lost(future: "Future[Any]") -> None:
        if isinstance(future.exception(), _AWAY):
            _unsettled.append(finish_or_release)

    db.submit(finish_or_release, is_shared=True).add_done_callback(keep_if_lost)


def is_any_unsettled() -> bool:
    """Whether an end could not be written yet."""
    return bool(_unsettled)


def settle_rest() -> None:
    """Write the ends that could not be written; those that still cannot are kept."""
    for _ in range(len(_unsettled)):
        settle(_unsettled.popleft())


def purge() -> int:
    """Delete expired records of every tenant; returns their number."""
    key = "tenant_id, caller, key, method, path"
    oldest = f"SELECT {key} FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?"  # noqa: S608  names of our own
    sql = f"DELETE FROM idempotency WHERE ({key}) IN ({oldest})"  # noqa: S608
    return delete_in_chunks(partial(db.execute, sql, (clock.now_ms() - RETENTION_MS, PURGE_CHUNK)))


def _delete(scope: TenantScope, request: RequestKey) -> None:
    """Delete this repetition's own record, unless it has its answer."""
    own = (Idempotency.created_at == request.claimed_at) & (Idempotency.state == "running")
    _where(scope.delete(Idempotency), scope, request).where(own).execute()


def _where(query: Any, scope: TenantScope, request: RequestKey) -> Any:
    for name, value in request.columns(scope).items():
        query = query.where(getattr(Idempotency, name) == value)
    return query

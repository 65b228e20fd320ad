"""Manages tenants and their secrets; keys, people and idempotency have their own modules."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from appliance.core import clock, ids, logs
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.write_guards import GuardedRequest, guarding
from appliance.core.errors import AlreadyExists, ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.leases.open_tenants import FENCED_ONE
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.quotas import expiry

from .models import ApiKey, Person, Secret, SecretBindingRow, Tenant
from .request_guards import (
    being_reset,
    forget_state,
    guard_of,
    is_being_reset,
    is_stored,
    refuse_reset,
    tenant_exists,
)
from .scopes import ALL_SCOPES
from .trails import record_for_appliance

__all__ = [
    "MAX_NAME",
    "SecretName",
    "Tenant",
    "begin_reset",
    "being_reset",
    "clear_tenant",
    "create_sandbox_tenant",
    "create_tenant",
    "delete_secret",
    "delete_tenant",
    "end_reset",
    "get_tenant",
    "guard_of",
    "has_any_account",
    "has_any_tenant",
    "insert_temporary",
    "is_being_reset",
    "is_stored",
    "list_secrets",
    "list_tenants",
    "lock_tenant",
    "page_tenants",
    "refuse_reset",
    "rename_tenant",
    "set_secret",
    "system_scope",
    "tenant_exists",
    "unseal_secret",
    "writing_into",
]  # fmt: skip
MAX_NAME = 200
_IS_OPEN = (Tenant.id != APPLIANCE) & Tenant.closed_at.is_null()


def system_scope(tenant_id: str, actor: str = "system") -> TenantScope:
    """A scope in which the appliance itself acts, with every permission."""
    return TenantScope(tenant_id, actor, ALL_SCOPES)


def create_tenant(
    tenant_id: str, name: str, *, kind: str = "standard", expires_at: int | None = None, actor: str = "system"
) -> Tenant:  # fmt: skip
    """Create a tenant, which expires at a time (epoch ms) if one is given; its id is a slug of at most 24 characters.

    AlreadyExists if it is taken.
    """
    ids.check_slug(tenant_id, pointer="/id", longest=24)
    _check_name(name)

    def insert() -> Tenant:
        check_free(tenant_id, pointer="/id")
        row: Tenant = Tenant.create(id=tenant_id, name=name.strip(), kind=kind, created_at=clock.now_ms())
        if expires_at is not None:
            expiry.set_expiry(system_scope(tenant_id), expires_at)
        fields = {"name": row.name, "kind": kind, "expires_at": clock.optional_rfc3339(expires_at)}
        record_for_appliance("tenant.create", tenant_id, fields, actor=actor)
        return row

    return db.write(insert)


def insert_temporary(scope: TenantScope) -> None:
    """Inside a `db.rehearsal`: let there be the tenant of the scope."""
    Tenant.create(id=scope.tenant_id, name=scope.tenant_id, kind="standard", created_at=clock.now_ms())


def check_free(tenant_id: str, *, pointer: str) -> None:
    """AlreadyExists if a tenant has this id, or one that is being deleted or imported."""
    row: Tenant | None = Tenant.get_or_none(Tenant.id == tenant_id)
    if row is not None and row.closed_at is not None:
        raise AlreadyExists(Sentence(
            "the tenant %(tenant_id)s is being deleted or imported; try again when that is done", tenant_id=repr(tenant_id)
        ), pointer=pointer)
    if row is not None:
        problem = Sentence("there is already a tenant %(tenant_id)s; choose another id", tenant_id=repr(tenant_id))
        raise AlreadyExists(problem, pointer=pointer, extra={"id": tenant_id})


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME:
        raise ValidationFailed(
            Sentence("name must have 1 to %(longest_name)s characters", longest_name=MAX_NAME), pointer="/name"
        )


def rename_tenant(scope: TenantScope, name: str) -> Tenant:
    """Rename the tenant; its id, and with it every address, stays the same."""
    _check_name(name)

    def rename() -> Tenant:
        before = get_tenant(scope.tenant_id)
        if before.name != name.strip():
            Tenant.update(name=name.strip()).where(Tenant.id == scope.tenant_id).execute()
            fields = {"from": before.name, "to": name.strip()}
            audit.record(scope, "tenant.rename", scope.tenant_id, fields)
            if scope.actor.startswith("appliance:"):
                record_for_appliance("tenant.rename", scope.tenant_id, fields, actor=scope.actor)
        return get_tenant(scope.tenant_id)

    return db.write(rename)


def create_sandbox_tenant(login: str) -> Tenant:
    """Create a sandbox tenant for a new user, named after their login."""
    stem = "".join(c for c in login.split("@", maxsplit=1)[0].lower() if c.isascii() and c.isalnum())[:12] or "user"
    if not stem[0].isalpha():
        stem = f"u{stem}"[:12]
    return create_tenant(f"sandbox-{stem}{secrets.token_hex(2)}", f"Sandbox of {login}", kind="sandbox")


def list_tenants() -> list[Tenant]:
    """Every tenant, by id."""
    return list(Tenant.select().where(_IS_OPEN).order_by(Tenant.id))


def page_tenants(page: PageRequest) -> Page[Tenant]:
    """A page of the tenants, by id unless another order is requested."""
    fields = {"id": Tenant.id, "name": Tenant.name, "created_at": Tenant.created_at}
    return paginate(Tenant.select().where(_IS_OPEN), page, fields, default="id")


def get_tenant(tenant_id: str) -> Tenant:
    """One tenant; NotFound."""
    row: Tenant | None = Tenant.get_or_none((Tenant.id == tenant_id) & _IS_OPEN)
    if row is None:
        raise NotFound(Sentence("there is no tenant %(tenant_id)s", tenant_id=repr(tenant_id[:80])))
    return row


def has_any_tenant() -> bool:
    """Whether there is a tenant; also in a database of an earlier release, before its migrations."""
    return bool(db.rows("SELECT 1 FROM tenant WHERE id <> ? LIMIT 1", (APPLIANCE,)))


def has_any_account() -> bool:
    """Whether anyone can sign in: there is an account, or an API key of any tenant."""
    return bool(Person.select().exists() or ApiKey.select().exists())


def lock_tenant(tenant_id: str) -> None:
    """Inside a write: let no other write lock the tenant before this one has ended; rows that refer to it can be written."""
    db.rows(f"SELECT id FROM tenant WHERE id = ?{db.row_lock()}", (tenant_id,))  # noqa: S608  our own words


def refuse_fenced(tenant_id: str) -> None:
    """Inside the write that begins something of a tenant: Overloaded while it is being reset, NotFound while it is deleted."""
    if db.rows(FENCED_ONE, (tenant_id,)):
        get_tenant(tenant_id)
        raise being_reset()


@contextmanager
def writing_into(tenant_id: str) -> Iterator[None]:
    """In the block, a command of whoever runs the appliance writes into the tenant: NotFound without it, Conflict while it is being
    reset.  The writes themselves are refused likewise, if that begins in between."""
    if get_tenant(tenant_id).is_being_reset:
        raise _reset_conflict(tenant_id)
    forget_state(tenant_id)
    guard = guard_of(tenant_id)
    with guarding(GuardedRequest(guard and replace(guard, refuse=partial(_refuse_command, tenant_id)))):
        yield


def _refuse_command(tenant_id: str) -> ApplianceError:
    """Inside a write: why a command no longer writes into the tenant that it has looked up."""
    try:
        get_tenant(tenant_id)
    except NotFound as error:
        return error
    return _reset_conflict(tenant_id)


def begin_reset(scope: TenantScope, *, force: bool) -> None:
    """Inside a write: from now on the tenant refuses requests.  Conflict while it is being reset; NotFound; retention rules can
    prevent it unless it is forced."""
    if get_tenant(scope.tenant_id).is_being_reset:
        raise _reset_conflict(scope.tenant_id)
    if not force:
        hub.publish(TenantDeletionStarted(scope))
    _set_reset(scope, clock.now_ms())


def end_reset(scope: TenantScope) -> None:
    """Inside a write: from now on the tenant accepts requests again, except for those that came before or meanwhile."""
    _set_reset(scope, -clock.now_ms())


def _set_reset(scope: TenantScope, at: int) -> None:
    Tenant.update(reset_at=at).where(Tenant.id == scope.tenant_id).execute()
    db.after_commit(partial(forget_state, scope.tenant_id))


def _reset_conflict(tenant_id: str) -> Conflict:
    return Conflict(Sentence("the tenant %(tenant_id)s is being reset; try again when that is done", tenant_id=repr(tenant_id)))


@dataclass(frozen=True)
class TenantDeletionStarted:
    """A tenant is about to be deleted without force.  Published inside the write; an error of a listener prevents it."""

    scope: TenantScope


@dataclass(frozen=True)
class TenantClosed:
    """A tenant is closed, to be deleted: end its work and all access to it.  Published inside the write."""

    scope: TenantScope


@dataclass(frozen=True)
class TenantEmptying:
    """A closed tenant is about to be deleted: delete its many rows in short writes.  Published outside of a write."""

    scope: TenantScope


@dataclass(frozen=True)
class TenantDeleted:
    """A tenant is being deleted: delete what no foreign key does, such as physical tables.  Published inside the write."""

    scope: TenantScope


def delete_tenant(tenant_id: str, *, force: bool = False, actor: str = "system") -> None:
    """Delete a tenant with all its data; retention rules can prevent that unless it is forced.

    It is closed first: from then on nobody sees it, and whoever is interrupted leaves the rest to `delete_closed`.
    """

    db.write(partial(close_tenant, system_scope(tenant_id, actor), force=force))
    delete_closed(tenant_id)


def close_tenant(scope: TenantScope, *, force: bool = False, details: Mapping[str, Any] | None = None) -> None:
    """Inside a write: end the work of a tenant and all access to it; from then on it is not there for anybody.

    The trail of the appliance tells of it, with `details`.  NotFound; Conflict while it is being reset; retention rules can
    prevent it unless it is forced.
    """
    row = get_tenant(scope.tenant_id)
    if row.is_being_reset:
        raise _reset_conflict(row.id)
    if not force:
        hub.publish(TenantDeletionStarted(scope))
    record_for_appliance("tenant.delete", row.id, {"name": row.name, "force": force, **(details or {})}, actor=scope.actor)
    hub.publish(TenantClosed(scope))
    Tenant.update(closed_at=clock.now_ms()).where(Tenant.id == scope.tenant_id).execute()
    db.after_commit(partial(forget_state, scope.tenant_id))


def list_closed() -> list[str]:
    """The ids of closed tenants, the first closed one first."""
    return [str(row.id) for row in Tenant.select().where(Tenant.closed_at.is_null(False)).order_by(Tenant.closed_at, Tenant.id)]


def delete_closed(tenant_id: str) -> None:
    """Delete a closed tenant with all its data; nothing if another process was faster."""
    hub.publish(TenantEmptying(system_scope(tenant_id)))
    db.write(partial(_delete_closed, tenant_id))


def _delete_closed(tenant_id: str) -> None:
    if tenant_id in list_closed():
        clear_tenant(system_scope(tenant_id), force=True)
        Tenant.delete().where(Tenant.id == tenant_id).execute()


def clear_tenant(scope: TenantScope, *, force: bool = False) -> None:
    """Inside a write: delete data without foreign keys; retention rules can prevent that unless it is forced."""
    if not force:
        hub.publish(TenantDeletionStarted(scope))
    hub.publish(TenantDeleted(scope))


@dataclass(frozen=True)
class SecretName:
    """A secret's name, without its value, which is never returned."""

    name: str
    updated_at: int


def _context(scope: TenantScope, name: str) -> str:
    return f"{scope.tenant_id}/secret/{name}"


def is_secret_name(name: str) -> bool:
    """Whether this is a valid name of a secret."""
    return name.isidentifier() and len(name) <= 63


def set_secret(scope: TenantScope, sealer: Sealer, name: str, value: str) -> SecretName:
    """Store a secret sealed, replacing an earlier value."""
    if not is_secret_name(name):
        raise ValidationFailed("a secret's name consists of at most 63 letters, digits and underscores", pointer="/name")
    if not 1 <= len(value) <= 65_536:
        raise ValidationFailed("a secret must have 1 to 65536 characters", pointer="/value")
    now = clock.now_ms()
    sealed = sealer.seal(value.encode(), _context(scope, name))

    def save() -> SecretName:
        scope.delete(Secret).where(Secret.name == name).execute()
        scope.insert(Secret, name=name, sealed=sealed, updated_at=now)
        audit.record(scope, "secret.set", name)
        return SecretName(name, now)

    return db.write(save)


def list_secrets(scope: TenantScope) -> list[SecretName]:
    """Names and times of the secrets, never values."""
    rows = scope.select(Secret, Secret.name, Secret.updated_at).order_by(Secret.name)
    return [SecretName(row.name, row.updated_at) for row in rows]


def delete_secret(scope: TenantScope, name: str) -> None:
    """Delete a secret and its bindings; NotFound."""

    def delete() -> None:
        scope.delete(SecretBindingRow).where(SecretBindingRow.name == name).execute()
        if not scope.delete(Secret).where(Secret.name == name).execute():
            raise NotFound(Sentence("there is no secret %(name)s in this tenant", name=repr(name[:80])))
        audit.record(scope, "secret.delete", name)

    db.write(delete)


def unseal_secret(scope: TenantScope, sealer: Sealer, name: str) -> str:
    """Unseal a secret for the appliance's own use; its value is redacted from logs from now on."""
    row = scope.get(Secret, name=name)
    value = sealer.open(bytes(row.sealed), _context(scope, name)).decode()
    logs.remember_secret(value)
    return value

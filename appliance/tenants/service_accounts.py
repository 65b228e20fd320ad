"""Service accounts: programs as members of a tenant.  Their API keys outlive every person, and do at most what the account may.

An account has scopes rather than a role, as keys do, so that no later release widens it.  Whoever gives it a scope must have that
scope at that moment; afterwards the account depends on nobody.  It has no password, session or e-mail address.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, PolicyDenied, ScopeMissing, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from . import people
from .keys import adoption, keys, lineage
from .keys.keys import KeySpec
from .models import ApiKey, ServiceAccountRow
from .scopes import validate_scopes

MAX_TITLE, MAX_DESCRIPTION = 200, 2_000
MAX_ACCOUNTS = 200
"""The maximum number of accounts of a tenant; deleted ones do not count."""
FORM = "new"
"""The last part of the address of the form for a new account, which no account can have as its name."""


@dataclass(frozen=True)
class ServiceAccount:
    """A service account; `responsible` is the login of the person, empty if nobody who is an enabled member is responsible."""

    id: str
    title: str
    description: str
    scopes: tuple[str, ...]
    responsible: str
    created_by: str
    created_at: int
    disabled_at: int | None

    @property
    def actor(self) -> str:
        """How trails name it: `service:<id>`."""
        return f"service:{self.id}"

    @property
    def state(self) -> str:
        """`active` or `disabled`."""
        return "active" if self.disabled_at is None else "disabled"


@dataclass(frozen=True)
class AccountSpec:
    """A new account; `responsible` is a member's login, by default that of the person who creates it."""

    id: str
    title: str
    scopes: Sequence[str]
    description: str = ""
    responsible: str | None = None


@dataclass(frozen=True)
class AccountChanges:
    """What to change; None leaves a property as it is."""

    title: str | None = None
    description: str | None = None
    scopes: Sequence[str] | None = None
    responsible: str | None = None
    is_disabled: bool | None = None


def create_account(scope: TenantScope, spec: AccountSpec) -> ServiceAccount:
    """Create an account.

    ValidationFailed; ScopeMissing for scopes that the actor lacks; AlreadyExists if an account has or had this name; Conflict if
    there are `MAX_ACCOUNTS` already.
    """
    ids.check_slug(spec.id, pointer="/id")
    if spec.id == FORM:
        raise ValidationFailed(Sentence("%(text)s is a reserved name; choose another", text=repr(FORM)), pointer="/id")
    scopes = validate_scopes(spec.scopes)
    _check_texts(spec.title, spec.description)

    def create() -> ServiceAccount:
        _check_may_give(scope, scopes)
        if (existing := scope.find(ServiceAccountRow, id=spec.id)) is not None:
            raise AlreadyExists(_why_taken(existing), pointer="/id")
        if scope.select(ServiceAccountRow).where(ServiceAccountRow.deleted_at.is_null()).count() >= MAX_ACCOUNTS:
            raise Conflict(Sentence(
                "a tenant can have at most %(most_accounts)s service accounts; delete one that is no longer used",
                most_accounts=MAX_ACCOUNTS,
            ))  # fmt: skip
        values = {
            "title": spec.title.strip(), "description": spec.description.strip(), "scopes": scopes,
            "responsible": _find_responsible(scope, spec.responsible),
        }  # fmt: skip
        scope.insert(ServiceAccountRow, id=spec.id, **values, created_by=scope.actor, created_at=clock.now_ms())
        audit.record(scope, "service_account.create", spec.id, _audited(_get(scope, spec.id)))
        return get_account(scope, spec.id)

    return db.write(create)


def _why_taken(existing: ServiceAccountRow) -> Sentence:
    if existing.deleted_at is None:
        return Sentence("there is already a service account %(name)s; choose another name", name=existing.id)
    return Sentence(
        "there was a service account %(name)s, and the audit trail names it for good; choose another name", name=existing.id
    )


def list_accounts(scope: TenantScope, page: PageRequest) -> Page[ServiceAccount]:
    """A page of the accounts that were not deleted, by name unless another order is requested."""
    query = scope.select(ServiceAccountRow).where(ServiceAccountRow.deleted_at.is_null())
    fields = {"id": ServiceAccountRow.id, "title": ServiceAccountRow.title, "created_at": ServiceAccountRow.created_at}
    logins = _logins(scope)
    return paginate(query, page, fields, default="id").map(lambda row: _to_account(row, logins))


def list_active(scope: TenantScope) -> list[tuple[str, str, frozenset[str]]]:
    """Name, title and scopes of each account that is neither disabled nor deleted, by title."""
    is_active = ServiceAccountRow.deleted_at.is_null() & ServiceAccountRow.disabled_at.is_null()
    rows = scope.select(ServiceAccountRow).where(is_active).order_by(ServiceAccountRow.title, ServiceAccountRow.id)
    return [(row.id, row.title, frozenset(row.scopes)) for row in rows]


def count_keys(scope: TenantScope) -> Counter[str]:
    """How many keys of each account, by its name, are neither revoked nor expired; keys below them are not counted."""
    theirs = (ApiKey.tenant_id == scope.tenant_id) & ApiKey.issuer.startswith("service:") & ApiKey.revoked_at.is_null()
    return Counter(row.issuer.removeprefix("service:") for row in ApiKey.select().where(theirs) if lineage.is_alive(row))


def list_without_responsible(scope: TenantScope) -> list[ServiceAccount]:
    """The accounts for which nobody who is an enabled member is responsible, by name."""
    logins = _logins(scope)
    rows = scope.select(ServiceAccountRow).where(ServiceAccountRow.deleted_at.is_null()).order_by(ServiceAccountRow.id)
    return [_to_account(row, logins) for row in rows if row.responsible not in logins]


def list_of_responsible(scope: TenantScope, user_id: str) -> list[str]:
    """The names of the accounts that this person is responsible for."""
    rows = scope.select(ServiceAccountRow).where(ServiceAccountRow.responsible == user_id, ServiceAccountRow.deleted_at.is_null())
    return [row.id for row in rows.order_by(ServiceAccountRow.id)]


def get_account(scope: TenantScope, account_id: str) -> ServiceAccount:
    """One account; NotFound, also if it was deleted."""
    return _to_account(_get(scope, account_id), _logins(scope))


def find_title(scope: TenantScope, account_id: str) -> str | None:
    """The title of an account, also of a deleted one; None if there never was one."""
    row = scope.find(ServiceAccountRow, id=account_id)
    return None if row is None else str(row.title)


def change_account(scope: TenantScope, account_id: str, changes: AccountChanges) -> ServiceAccount:
    """Change an account, with the values before and after in the audit trail; its keys follow within half a second.

    A disabled account's keys pause, and work again when it is enabled.  ScopeMissing for scopes that are new to the account and
    that the actor lacks, and for enabling one that may do more than the actor; PolicyDenied for a key of the account itself.
    """
    if changes == AccountChanges():
        raise ValidationFailed("nothing to change; send at least one member")
    scopes = None if changes.scopes is None else validate_scopes(changes.scopes)

    def change() -> ServiceAccount:
        _check_not_own(scope, account_id)
        row = _get(scope, account_id)
        _check_texts(changes.title if changes.title is not None else row.title, changes.description or "")
        before = _audited(row)
        if scopes is not None:
            _check_may_give(scope, set(scopes) - set(row.scopes))
            row.scopes = scopes
        if changes.responsible is not None:
            row.responsible = _find_responsible(scope, changes.responsible)
        row.title = row.title if changes.title is None else changes.title.strip()
        row.description = row.description if changes.description is None else changes.description.strip()
        if difference := audit.compare(before, _audited(row)):
            _store(scope, row)
            audit.record(scope, "service_account.change", account_id, difference)
        if changes.is_disabled is not None:
            _set_disabled(scope, row, is_disabled=changes.is_disabled)
        return get_account(scope, account_id)

    return db.write(change)


def _set_disabled(scope: TenantScope, row: ServiceAccountRow, *, is_disabled: bool) -> None:
    if is_disabled == (row.disabled_at is not None):
        return
    if not is_disabled:
        _check_may_give(scope, row.scopes)
    row.disabled_at = clock.now_ms() if is_disabled else None
    _store(scope, row)
    audit.record(scope, f"service_account.{'disable' if is_disabled else 'enable'}", row.id, {"title": row.title})


def delete_account(scope: TenantScope, account_id: str) -> None:
    """Delete an account and revoke its keys; its name stays taken, because trails name it.  NotFound; PolicyDenied for its keys."""

    def delete() -> None:
        _check_not_own(scope, account_id)
        row = _get(scope, account_id)
        theirs = (ApiKey.tenant_id == scope.tenant_id) & (ApiKey.issuer == f"service:{account_id}") & ApiKey.revoked_at.is_null()
        revoked = [keys.revoke_key(scope, key.id).id for key in ApiKey.select().where(theirs).order_by(ApiKey.id)]
        audit.record(scope, "service_account.delete", account_id, {**_audited(row), "keys": revoked})
        row.deleted_at, row.responsible, row.description = clock.now_ms(), None, ""
        _store(scope, row)

    db.write(delete)


def issue_key(
    scope: TenantScope, sealer: Sealer, account_id: str, spec: KeySpec, *, lifetime_ms: int | None = None
) -> tuple[ApiKey, str]:
    """Issue a key of an account: at most with the scopes that both the account and the actor have.

    As `keys.issue_key`, whose limits of an acting key apply; Conflict if the account is disabled, PolicyDenied for a key of the
    account itself.
    """

    def issue() -> tuple[ApiKey, str]:
        _check_may_have(scope, account_id, validate_scopes(spec.scopes))
        return keys.issue_key(scope, sealer, spec, lifetime_ms=lifetime_ms, account=f"service:{account_id}")

    return db.write(issue)


def adopt_key(scope: TenantScope, account_id: str, key_id: str) -> ApiKey:
    """Move a key of the tenant to an account, on which it depends from now on; its text and scopes stay.

    As `adoption.adopt_key` and `issue_key`: both the account and the actor must have the scopes of the key.
    """

    def adopt() -> ApiKey:
        _check_may_have(scope, account_id, keys.get_key(scope, key_id).scopes)
        return adoption.adopt_key(lineage.reload_scope(scope), key_id, f"service:{account_id}")

    return db.write(adopt)


def _check_may_have(scope: TenantScope, account_id: str, scopes: Iterable[str]) -> None:
    """Inside the write: check that the account may get a key with these scopes, from this actor; see `issue_key`."""
    _check_not_own(scope, account_id)
    row = _get(scope, account_id)
    if row.disabled_at is not None:
        raise Conflict("this service account is disabled; enable it before it gets keys")
    if excess := sorted(set(scopes) - set(row.scopes)):
        raise ValidationFailed(
            Sentence(
                "the service account does not have %(excess)s; choose among its scopes, or give it this one first",
                excess=", ".join(excess),
            ),
            pointer="/scopes",
        )


def _get(scope: TenantScope, account_id: str) -> ServiceAccountRow:
    row = scope.find(ServiceAccountRow, id=account_id)
    if row is None or row.deleted_at is not None:
        raise NotFound(Sentence("there is no service account %(account_id)s in this tenant", account_id=repr(account_id[:80])))
    return row


def _store(scope: TenantScope, row: ServiceAccountRow) -> None:
    values = {name: value for name, value in row.__data__.items() if name not in ("tenant_id", "id")}
    scope.update(ServiceAccountRow, **values).where(ServiceAccountRow.id == row.id).execute()
    db.after_commit(lineage.clear_cache)


def _audited(row: ServiceAccountRow) -> dict[str, object]:
    return {
        "title": row.title, "description": row.description, "scopes": list(row.scopes),
        "responsible": f"user:{row.responsible}" if row.responsible else None,
    }  # fmt: skip


def _to_account(row: ServiceAccountRow, logins: dict[str, str]) -> ServiceAccount:
    return ServiceAccount(
        id=row.id, title=row.title, description=row.description, scopes=tuple(row.scopes),
        responsible=logins.get(row.responsible or "", ""), created_by=row.created_by, created_at=row.created_at,
        disabled_at=row.disabled_at,
    )  # fmt: skip


def _logins(scope: TenantScope) -> dict[str, str]:
    """The login of every enabled member, by id."""
    return {each.user_id: each.login for each in people.list_members(scope)}


def _find_responsible(scope: TenantScope, login: str | None) -> str:
    """The id of the enabled member with this login, by default of the person who acts, also through their key; ValidationFailed."""
    members = _logins(scope)
    if login is None:
        user_id = lineage.root_of(scope).removeprefix("user:")
        if user_id not in members:
            raise ValidationFailed("name the responsible person, a member of this tenant, by their login", pointer="/responsible")
        return user_id
    normalized = people.normalize_login(login)
    match = next((user_id for user_id, each in members.items() if each == normalized), None)
    if match is None:
        raise ValidationFailed(
            Sentence(
                "%(login)s is not an enabled member of this tenant; name a member as the responsible person",
                login=repr(login[:80]),
            ),
            pointer="/responsible",
        )
    return match


def _check_texts(title: str, description: str) -> None:
    if not title.strip() or len(title) > MAX_TITLE or not title.isprintable():
        raise ValidationFailed("title must have 1 to 200 printable characters", pointer="/title")
    if len(description) > MAX_DESCRIPTION:
        raise ValidationFailed("description must have at most 2,000 characters", pointer="/description")
    if "\0" in description:
        raise ValidationFailed("a text contains a NUL character (U+0000), which is not allowed; remove it", pointer="/description")


def _check_may_give(scope: TenantScope, scopes: Iterable[str]) -> None:
    """Inside the write: ScopeMissing if the actor lacks one of these scopes now."""
    if excess := sorted(set(scopes) - lineage.reload_scope(scope).scopes):
        raise ScopeMissing(Sentence(
            "you cannot give a service account more than you may do yourself: you do not have %(excess)s; ask an owner to do it",
            excess=", ".join(excess[:5]),
        ))


def _check_not_own(scope: TenantScope, account_id: str) -> None:
    """PolicyDenied if the actor is a key of this account."""
    if lineage.find_account_of(scope, scope.actor) == f"service:{account_id}":
        raise PolicyDenied(
            "a service account cannot change itself or issue keys beside its own; ask an owner to do it, or issue a key below this "
            "one with POST /api/v1/keys"
        )

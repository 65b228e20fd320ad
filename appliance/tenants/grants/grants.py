"""Grants: what a process or a WebApp may access beyond its own data, and who allowed it.

The publisher must hold all scopes that the published thing uses, or an owner must have granted exactly this access to this
subject.  A grant covers a digest of the access, not of the code: changed code with the same access needs no new grant.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.db import JsonField, TenantModel
from appliance.core.errors import Detail, GrantRequired, NotFound, ScopeMissing
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.monitor import audit

from . import confirmations
from .confirmations import ConfirmationRequest, may_decide

MAX_LISTED = 3


class GrantRow(TenantModel):
    label = "grant"
    subject = peewee.TextField()  # process:<id> | webapp:<id>
    digest = peewee.TextField()
    reach = JsonField()
    granted_by = peewee.TextField()
    granted_at = peewee.BigIntegerField()
    withdrawn_by = peewee.TextField(null=True)
    withdrawn_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "authority_grant"
        primary_key = peewee.CompositeKey("tenant_id", "subject", "digest")


# The scope that each kind of access needs, and its description.  `*` stands for everything of that kind.
_DESCRIPTIONS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("integrations", ""): ("integrations.execute", mark("call %(detail)s of the integration %(name)s")),
    ("datapool", "read"): ("entities.read", mark("read the collection %(name)s")),
    ("datapool", "write"): ("entities.write", mark("change the collection %(name)s")),
    ("documents", "read"): ("documents.read", mark("read documents")),
    ("documents", "write"): ("documents.write", mark("store documents")),
    ("processes", ""): ("processflow.execute", mark("execute the process %(name)s")),
    ("agents", ""): ("agents.run", mark("run the agent %(name)s")),
    ("llm", ""): ("integrations.execute", mark("ask the language model %(name)s")),
    ("human", ""): ("approvals.request", mark("ask people")),
    ("secrets", ""): ("secrets.write", mark("read the secret %(name)s")),
    ("on_integrations", ""): ("integrations.execute", mark("poll %(detail)s of the integration %(name)s")),
    ("on_datapool", ""): ("entities.read", mark("follow changes of the collection %(name)s")),
    ("on_documents", ""): ("documents.read", mark("follow changes of documents")),
    ("on_processes", ""): ("processflow.read", mark("follow executions of the process %(name)s")),
    ("webhook_secrets", ""): ("secrets.write", mark("check webhooks with the secret %(name)s")),
}


@dataclass(frozen=True)
class Need:
    """One kind of access: the scope it needs and its description, where `text` is formatted with `names`."""

    scope: str
    pointer: str
    text: str
    names: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.text % self.names} ({self.scope})"


@dataclass(frozen=True)
class AccessSpec:
    """What something may access, as a canonical document: lists sorted, empty members omitted.

    `{"datapool": {"orders": ["read"]}, "integrations": {"erp": ["create_order"]}, "human": true, "secrets": ["token"]}`
    """

    document: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Each kind of access in the document."""
        return tuple(_needs_of(self.document))

    @property
    def scopes(self) -> frozenset[str]:
        """All scopes that the access needs."""
        return frozenset(need.scope for need in self.needs)

    def exceeding(self, scopes: Iterable[str]) -> list[Need]:
        """The access that these scopes do not cover, secrets first."""
        held_scopes = frozenset(scopes)
        excess = [need for need in self.needs if need.scope not in held_scopes]
        return sorted(excess, key=lambda need: need.scope != "secrets.write")  # the most sensitive first

    def covers(self, other: "AccessSpec") -> bool:
        """Whether this includes everything in `other`; `*` stands for every name or action."""
        own = self._members
        return all(any(_covers(each, item) for each in own) for item in other._members)

    @cached_property
    def _members(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_items_of(self.document))


def build_access_spec(members: Mapping[str, Any]) -> AccessSpec:
    """Build a canonical document: sets and mappings become sorted lists and objects, empty members are omitted."""
    return AccessSpec({name: canonical for name, each in sorted(members.items()) if (canonical := _canonical(each))})


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _canonical(each) for name, each in sorted(value.items())}
    return value if isinstance(value, bool) else sorted(set(value))


def _items_of(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Each item as a tuple of its member and, where present, name and detail."""
    for member, value in document.items():
        if value is True:
            yield (member,)
        elif isinstance(value, Mapping):
            yield from ((member, name, detail) for name, details in value.items() for detail in details or ("",))
        else:
            yield from ((member, name) for name in value)


def _covers(granted: tuple[str, ...], needed: tuple[str, ...]) -> bool:
    return len(granted) == len(needed) and all(own in (other, "*") for own, other in zip(granted, needed, strict=True))


def _needs_of(document: Mapping[str, Any]) -> Iterator[Need]:
    for member, value in document.items():
        at = f"/grants/{member}"
        if value is True:
            yield _need(member, "", at)
        elif isinstance(value, Mapping):
            for name, details in value.items():
                if member == "datapool":
                    yield from (_need(member, access, f"{at}/{name}", name) for access in details)
                else:
                    yield _need(member, "", f"{at}/{name}", name, ", ".join(details))
        elif member == "documents":
            yield from (_need(member, access, at) for access in value)
        else:
            yield from (_need(member, "", f"{at}/{name}", name) for name in value)


def _need(member: str, access: str, pointer: str, name: str = "", detail: str = "") -> Need:
    scope, text = _DESCRIPTIONS[member, access]
    return Need(scope, pointer, text, {"name": name, "detail": detail})


@dataclass(frozen=True)
class Grant:
    """Access that was granted to a subject; `withdrawn_at` is set once an owner withdraws it.  Times in epoch milliseconds."""

    subject: str
    digest: str
    access: AccessSpec
    granted_by: str
    granted_at: int
    withdrawn_by: str | None
    withdrawn_at: int | None

    @property
    def is_valid(self) -> bool:
        return self.withdrawn_at is None


def find_grant(scope: TenantScope, subject: str, digest: str) -> Grant | None:
    """The grant for exactly this digest, valid or withdrawn; None if there is none."""
    row = scope.find(GrantRow, subject=subject, digest=digest)
    return None if row is None else _from_row(row)


def list_grants(scope: TenantScope, subject: str) -> list[Grant]:
    """All grants of a subject, latest first."""
    rows = scope.select(GrantRow).where(GrantRow.subject == subject)
    return [_from_row(row) for row in rows.order_by(GrantRow.granted_at.desc(), GrantRow.digest)]


def list_valid(scope: TenantScope) -> dict[tuple[str, str], Grant]:
    """Every valid grant of the tenant, by subject and digest."""
    rows = scope.select(GrantRow).where(GrantRow.withdrawn_at.is_null())
    return {(row.subject, row.digest): _from_row(row) for row in rows}


def _from_row(row: GrantRow) -> Grant:
    return Grant(
        subject=row.subject, digest=row.digest, access=AccessSpec(row.reach), granted_by=row.granted_by, granted_at=row.granted_at,
        withdrawn_by=row.withdrawn_by, withdrawn_at=row.withdrawn_at,
    )  # fmt: skip


def is_granted(scope: TenantScope, subject: str, access: AccessSpec) -> bool:
    """Whether the subject may access this: it needs nothing, or there is a valid grant."""
    if not access.needs:
        return True
    grant = find_grant(scope, subject, access.digest)
    return grant is not None and grant.is_valid


def require_grant(scope: TenantScope, subject: str, access: AccessSpec) -> bool:
    """Inside a write: ensure the subject may access this; returns whether a grant was recorded.

    GrantRequired if the publisher lacks the scopes and there is no grant; the owners are then asked for one.  Access that an
    owner withdrew or refused can only be allowed by an owner, even as part of something larger.
    """
    if not access.needs:
        return False
    if is_granted(scope, subject, access):
        return False
    excess = access.exceeding(scope.scopes)
    if excess or is_blocked(scope, subject, access):
        db.always_write(partial(request_grant, scope, subject, access, excess))
        raise build_refusal(scope, subject, access, excess)
    give_grant(scope, subject, access)
    return True


def is_blocked(scope: TenantScope, subject: str, access: AccessSpec) -> bool:
    """Whether this includes access that an owner withdrew or refused, and the actor is not an owner who may decide."""
    if may_decide(scope):
        return False
    withdrawn = scope.select(GrantRow).where(GrantRow.subject == subject, GrantRow.withdrawn_at.is_null(False))
    refused = confirmations.list_refused(scope, "grant", subject)
    documents = [*(row.reach for row in withdrawn), *(each.details["reach"] for each in refused)]
    return any(access.covers(AccessSpec(document)) for document in documents)


def require_grants(scope: TenantScope, access_by_subject: Mapping[str, AccessSpec]) -> None:
    """Inside a write: GrantRequired naming all subjects that lack a grant; the owners are asked."""
    refusals: dict[str, GrantRequired] = {}
    for subject, access in access_by_subject.items():
        excess = access.exceeding(scope.scopes)
        if (excess or is_blocked(scope, subject, access)) and not is_granted(scope, subject, access):
            db.always_write(partial(request_grant, scope, subject, access, excess))
            refusals[subject] = build_refusal(scope, subject, access, excess)
    if len(refusals) == 1:
        raise next(iter(refusals.values()))
    if refusals:
        names = ", ".join(subject.replace(":", " ") for subject in refusals)
        details = [detail for refusal in refusals.values() for detail in refusal.details]
        raise GrantRequired(
            Sentence(
                "%(names)s would get more access than you have: %(asked_of_owner)s", names=names, asked_of_owner=_how_to_proceed()
            ),
            details=details,
        )


def build_refusal(scope: TenantScope, subject: str, access: AccessSpec, excess: list[Need]) -> GrantRequired:
    """The GrantRequired error: why, the excess access, and who can grant it."""
    kind, _, name = subject.partition(":")
    what = f"the {'WebApp' if kind == 'webapp' else kind} {name!r}"
    extra = {"digest": access.digest, "scopes": sorted({need.scope for need in excess})}
    confirmation = confirmations.find_confirmation(scope, "grant", subject, access.digest)
    if not excess:
        return GrantRequired(Sentence(
            "an owner withdrew or refused access that %(what)s needs; ask an owner to allow "
            "it in the console, under Confirmations, or reduce the access",
            what=what,
        ), extra=extra)  # fmt: skip
    details = [Detail(need.pointer, GrantRequired.code, str(need)) for need in excess]
    listed = ", ".join(str(need) for need in excess[:MAX_LISTED])
    more = f" and {len(excess) - MAX_LISTED} more" if len(excess) > MAX_LISTED else ""
    if confirmation is not None and confirmation.state == "refused":
        return GrantRequired(
            Sentence(
                "%(what)s would get more access than you have (%(told)s%(more)s), and an owner has refused it; ask an "
                "owner to allow it in the console, under Confirmations, or reduce the access",
                what=what, told=listed, more=more,
            ),
            details=details, extra=extra,
        )  # fmt: skip
    return GrantRequired(
        Sentence(
            "%(what)s would get more access than you have: %(told)s%(more)s; %(asked_of_owner)s",
            what=what, told=listed, more=more, asked_of_owner=_how_to_proceed(),
        ),
        details=details, extra=extra,
    )


def _how_to_proceed() -> str:
    return (
        "an owner can allow it in the console, under Confirmations, where a request has been added; then try again. Or use a key "
        "that has these scopes"
    )


def request_grant(
    scope: TenantScope, subject: str, access: AccessSpec, excess: Iterable[Need], deadline: int | None = None, **more: Any
) -> None:
    """Inside a write: request a confirmation by the owners; `more` adds context to its details."""
    details = {"reach": access.document, "scopes": sorted({need.scope for need in excess}), **more}
    confirmations.request_confirmation(scope, ConfirmationRequest("grant", subject, access.digest, details, deadline))


def give_grant(scope: TenantScope, subject: str, access: AccessSpec, by: str | None = None, at: int | None = None) -> None:
    """Inside a write: grant the access on behalf of `by` (default: the scope's actor) and delete confirmations about it."""
    record_grant(scope, subject, access, by, at)
    confirmations.delete_confirmations(scope, "grant", subject, access.digest)
    fields = {"digest": access.digest, "by": by or scope.actor, "scopes": sorted(access.scopes), "reach": access.document}
    audit.record(scope, "grant.given", subject, fields)


def record_grant(scope: TenantScope, subject: str, access: AccessSpec, by: str | None = None, at: int | None = None) -> None:
    """Inside a write: store a grant that is already in the audit trail."""
    scope.delete(GrantRow).where(GrantRow.subject == subject, GrantRow.digest == access.digest).execute()
    scope.insert(
        GrantRow, subject=subject, digest=access.digest, reach=access.document, granted_by=by or scope.actor,
        granted_at=at or clock.now_ms(), withdrawn_by=None, withdrawn_at=None,
    )  # fmt: skip


def withdraw_grant(scope: TenantScope, subject: str, digest: str) -> list[str]:
    """Inside a write: withdraw a grant, and the subject's other grants that include it; returns their digests.

    ScopeMissing unless the actor is a signed-in owner, NotFound if there is no such grant.
    """
    if not may_decide(scope):
        raise ScopeMissing("only an owner who is signed in to the console can withdraw this; ask one of them")
    grant = find_grant(scope, subject, digest)
    if grant is None or not grant.is_valid:
        raise NotFound("there is no such grant; it may have been withdrawn already")
    confirmations.delete_confirmations(scope, "grant", subject, digest)  # so that it can be requested again
    return _withdraw_covering(scope, subject, grant.access)


def _withdraw_covering(scope: TenantScope, subject: str, access: AccessSpec) -> list[str]:
    """Inside a write: withdraw every grant that includes this access; returns their digests."""
    digests = [grant.digest for grant in list_grants(scope, subject) if grant.is_valid and grant.access.covers(access)]
    changed = scope.update(GrantRow, withdrawn_by=scope.actor, withdrawn_at=clock.now_ms())
    changed.where(GrantRow.subject == subject, GrantRow.digest.in_(digests)).execute()
    for digest in digests:
        if digest != access.digest:
            confirmations.delete_confirmations(scope, "grant", subject, digest)
        audit.record(scope, "grant.withdrawn", subject, {"digest": digest})
    return digests


def apply_decision(scope: TenantScope, confirmation: confirmations.Confirmation) -> list[str]:
    """Inside the write of a decision about a grant: record or withdraw the grant; returns the digests that must stop running."""
    access = AccessSpec(confirmation.details["reach"])
    if confirmation.state == "confirmed":
        record_grant(scope, confirmation.subject, access)
        return []
    existing = find_grant(scope, confirmation.subject, access.digest)
    withdrawn = _withdraw_covering(scope, confirmation.subject, access) if existing is not None and existing.is_valid else []
    return sorted({access.digest, *withdrawn})


def delete_grants(scope: TenantScope, subject: str) -> None:
    """Inside the write that deletes the subject: delete its grants, so that a new subject of the same name does not inherit them.

    Access that owners withdrew or refused stays blocked for a new subject of that name.
    """
    scope.delete(GrantRow).where(GrantRow.subject == subject, GrantRow.withdrawn_at.is_null()).execute()
    confirmations.delete_unrefused(scope, "grant", subject)


def delete_all_grants(scope: TenantScope) -> None:
    """Inside the write that deletes every process and WebApp of the tenant: `delete_grants` for all of them."""
    scope.delete(GrantRow).where(GrantRow.withdrawn_at.is_null()).execute()
    confirmations.delete_unrefused(scope, "grant")

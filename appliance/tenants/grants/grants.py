"""Grants: what a process or a WebApp may reach beyond itself, and who allowed that.

Whoever publishes must hold the scopes that the published thing acts with, or an owner has granted exactly this reach to exactly
this subject before.  A grant is of a digest of what may be reached, not of code: changed code under the same grant needs none.
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
from .confirmations import Ask, may_decide

MOST_NAMED = 3


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


# What each member of a reach needs, and how it is told.  `*` names everything of its kind.
_WORDS: Mapping[tuple[str, str], tuple[str, str]] = {
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
    """One thing that is reached: the scope it takes, and what it is; `text` is to be filled with `names`."""

    scope: str
    pointer: str
    text: str
    names: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.text % self.names} ({self.scope})"


@dataclass(frozen=True)
class Reach:
    """What something may reach, as a canonical document: every list sorted, nothing empty.

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
        """Everything that is reached, one by one."""
        return tuple(_needs_of(self.document))

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that it acts with."""
        return frozenset(need.scope for need in self.needs)

    def beyond(self, scopes: Iterable[str]) -> list[Need]:
        """What is reached beyond these scopes."""
        held = frozenset(scopes)
        found = [need for need in self.needs if need.scope not in held]
        return sorted(found, key=lambda need: need.scope != "secrets.write")  # what weighs most is told first

    def covers(self, other: "Reach") -> bool:
        """Whether it reaches everything that the other one does; `*` stands for every name or action."""
        own = self._members
        return all(any(_fits(each, wanted) for each in own) for wanted in other._members)

    @cached_property
    def _members(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_members_of(self.document))


def make_reach(members: Mapping[str, Any]) -> Reach:
    """The reach of these members in canonical form: sets and mappings become sorted lists and objects, what is empty goes."""
    return Reach({name: told for name, each in sorted(members.items()) if (told := _canonical(each))})


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _canonical(each) for name, each in sorted(value.items())}
    return value if isinstance(value, bool) else sorted(set(value))


def _members_of(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Everything in a reach: its member, with the name and the detail where it has them."""
    for member, given in document.items():
        if given is True:
            yield (member,)
        elif isinstance(given, Mapping):
            yield from ((member, name, detail) for name, details in given.items() for detail in details or ("",))
        else:
            yield from ((member, name) for name in given)


def _fits(mine: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return len(mine) == len(wanted) and all(own in (other, "*") for own, other in zip(mine, wanted, strict=True))


def _needs_of(document: Mapping[str, Any]) -> Iterator[Need]:
    for member, given in document.items():
        at = f"/grants/{member}"
        if given is True:
            yield _need(member, "", at)
        elif isinstance(given, Mapping):
            for name, details in given.items():
                if member == "datapool":
                    yield from (_need(member, access, f"{at}/{name}", name) for access in details)
                else:
                    yield _need(member, "", f"{at}/{name}", name, ", ".join(details))
        elif member == "documents":
            yield from (_need(member, access, at) for access in given)
        else:
            yield from (_need(member, "", f"{at}/{name}", name) for name in given)


def _need(member: str, access: str, pointer: str, name: str = "", detail: str = "") -> Need:
    scope, text = _WORDS[member, access]
    return Need(scope, pointer, text, {"name": name, "detail": detail})


@dataclass(frozen=True)
class Grant:
    """A reach that a subject was allowed; `withdrawn_at` is set once an owner has taken it back.  Times in epoch milliseconds."""

    subject: str
    digest: str
    reach: Reach
    granted_by: str
    granted_at: int
    withdrawn_by: str | None
    withdrawn_at: int | None

    @property
    def is_valid(self) -> bool:
        return self.withdrawn_at is None


def find_grant(scope: TenantScope, subject: str, digest: str) -> Grant | None:
    """What was recorded for exactly this; None when nothing was."""
    row = scope.find(GrantRow, subject=subject, digest=digest)
    return None if row is None else _grant(row)


def list_grants(scope: TenantScope, subject: str) -> list[Grant]:
    """Everything that was recorded for a subject, the latest first."""
    rows = scope.select(GrantRow).where(GrantRow.subject == subject)
    return [_grant(row) for row in rows.order_by(GrantRow.granted_at.desc(), GrantRow.digest)]


def list_valid(scope: TenantScope) -> dict[tuple[str, str], Grant]:
    """Every grant of the tenant that holds, by subject and digest."""
    rows = scope.select(GrantRow).where(GrantRow.withdrawn_at.is_null())
    return {(row.subject, row.digest): _grant(row) for row in rows}


def _grant(row: GrantRow) -> Grant:
    return Grant(
        row.subject, row.digest, Reach(row.reach), row.granted_by, row.granted_at, row.withdrawn_by, row.withdrawn_at
    )  # fmt: skip


def is_granted(scope: TenantScope, subject: str, reach: Reach) -> bool:
    """Whether the subject may reach this: it reaches nothing, or an unwithdrawn grant says so."""
    if not reach.needs:
        return True
    found = find_grant(scope, subject, reach.digest)
    return found is not None and found.is_valid


def require_grant(scope: TenantScope, subject: str, reach: Reach) -> bool:
    """Inside a write: the subject may reach this from now on; answers whether a grant was recorded for it.

    GrantRequired, and the owners are asked, when there is no grant and whoever publishes does not hold what it takes.  What an
    owner has withdrawn or refused only an owner allows, also as part of something larger.
    """
    if not reach.needs:
        return False
    if is_granted(scope, subject, reach):
        return False
    excess = reach.beyond(scope.scopes)
    if excess or is_withheld(scope, subject, reach):
        db.in_any_case(partial(ask_for_grant, scope, subject, reach, excess))
        raise refusal_of(scope, subject, reach, excess)
    give_grant(scope, subject, reach)
    return True


def is_withheld(scope: TenantScope, subject: str, reach: Reach) -> bool:
    """Whether the reach contains what an owner has withdrawn from the subject or refused it, and nobody who may decide acts."""
    if may_decide(scope):
        return False
    withdrawn = scope.select(GrantRow).where(GrantRow.subject == subject, GrantRow.withdrawn_at.is_null(False))
    refused = confirmations.refused_about(scope, "grant", subject)
    documents = [*(row.reach for row in withdrawn), *(each.details["reach"] for each in refused)]
    return any(reach.covers(Reach(document)) for document in documents)


def refuse_ungranted(scope: TenantScope, wanted: Mapping[str, Reach]) -> None:
    """Inside a write: GrantRequired that names all of these subjects that may not reach what they would; the owners are asked."""
    refusals: dict[str, GrantRequired] = {}
    for subject, reach in wanted.items():
        excess = reach.beyond(scope.scopes)
        if (excess or is_withheld(scope, subject, reach)) and not is_granted(scope, subject, reach):
            db.in_any_case(partial(ask_for_grant, scope, subject, reach, excess))
            refusals[subject] = refusal_of(scope, subject, reach, excess)
    if len(refusals) == 1:
        raise next(iter(refusals.values()))
    if refusals:
        names = ", ".join(subject.replace(":", " ") for subject in refusals)
        details = [detail for refusal in refusals.values() for detail in refusal.details]
        raise GrantRequired(
            Sentence("%(names)s would reach more than you may: %(asked_of_owner)s", names=names, asked_of_owner=_asked_of_owner()),
            details=details,
        )


def refusal_of(scope: TenantScope, subject: str, reach: Reach, excess: list[Need]) -> GrantRequired:
    """Why it is refused, what exceeds, and who can grant it."""
    kind, _, name = subject.partition(":")
    what = f"the {'WebApp' if kind == 'webapp' else kind} {name!r}"
    extra = {"digest": reach.digest, "scopes": sorted({need.scope for need in excess})}
    asked = confirmations.find(scope, "grant", subject, reach.digest)
    if not excess:
        return GrantRequired(Sentence(
            "an owner has withdrawn or refused what %(what)s would reach, or part of it; ask an owner to allow "
            "it in the console, under Confirmations, or reach less",
            what=what,
        ), extra=extra)  # fmt: skip
    details = [Detail(need.pointer, GrantRequired.code, str(need)) for need in excess]
    told = ", ".join(str(need) for need in excess[:MOST_NAMED])
    more = f" and {len(excess) - MOST_NAMED} more" if len(excess) > MOST_NAMED else ""
    if asked is not None and asked.state == "refused":
        return GrantRequired(
            Sentence(
                "%(what)s would reach more than you may (%(told)s%(more)s), and an owner has refused it; ask an "
                "owner to allow it in the console, under Confirmations, or reach less",
                what=what, told=told, more=more,
            ),
            details=details, extra=extra,
        )  # fmt: skip
    return GrantRequired(
        Sentence(
            "%(what)s would reach more than you may: %(told)s%(more)s; %(asked_of_owner)s",
            what=what, told=told, more=more, asked_of_owner=_asked_of_owner(),
        ),
        details=details, extra=extra,
    )


def _asked_of_owner() -> str:
    return (
        "an owner can allow it in the console, under Confirmations, where it waits now, and then the same works; or use a key that "
        "holds these scopes"
    )


def ask_for_grant(
    scope: TenantScope, subject: str, reach: Reach, excess: Iterable[Need], deadline: int | None = None, **more: Any
) -> None:
    """Inside a write: have the owners decide about it; `more` says how it came to that."""
    details = {"reach": reach.document, "scopes": sorted({need.scope for need in excess}), **more}
    confirmations.ask(scope, Ask("grant", subject, reach.digest, details, deadline))


def give_grant(scope: TenantScope, subject: str, reach: Reach, by: str | None = None, at: int | None = None) -> None:
    """Inside a write: record that the subject may reach this, allowed by the scope's actor unless `by` is somebody else; what
    waits for an owner about it, or was refused, is settled."""
    record_grant(scope, subject, reach, by, at)
    confirmations.forget(scope, "grant", subject, reach.digest)
    fields = {"digest": reach.digest, "by": by or scope.actor, "scopes": sorted(reach.scopes), "reach": reach.document}
    audit.record(scope, "grant.given", subject, fields)


def record_grant(scope: TenantScope, subject: str, reach: Reach, by: str | None = None, at: int | None = None) -> None:
    """Inside a write: the row of a grant whose giving is in the audit trail already."""
    scope.delete(GrantRow).where(GrantRow.subject == subject, GrantRow.digest == reach.digest).execute()
    scope.insert(
        GrantRow, subject=subject, digest=reach.digest, reach=reach.document, granted_by=by or scope.actor,
        granted_at=at or clock.now_ms(), withdrawn_by=None, withdrawn_at=None,
    )  # fmt: skip


def withdraw_grant(scope: TenantScope, subject: str, digest: str) -> list[str]:
    """Inside a write: take a grant back, with those of the subject that contain it; answers their digests.

    ScopeMissing unless an owner is signed in, NotFound when there is none.
    """
    if not may_decide(scope):
        raise ScopeMissing("only an owner who is signed in to the console withdraws this; ask one of them")
    found = find_grant(scope, subject, digest)
    if found is None or not found.is_valid:
        raise NotFound("there is no such grant; it may have been withdrawn already")
    confirmations.forget(scope, "grant", subject, digest)  # whoever needs it again asks anew
    return _withdraw_covering(scope, subject, found.reach)


def _withdraw_covering(scope: TenantScope, subject: str, reach: Reach) -> list[str]:
    """Inside a write: withdraw every grant that contains this reach; answers their digests."""
    digests = [grant.digest for grant in list_grants(scope, subject) if grant.is_valid and grant.reach.covers(reach)]
    changed = scope.update(GrantRow, withdrawn_by=scope.actor, withdrawn_at=clock.now_ms())
    changed.where(GrantRow.subject == subject, GrantRow.digest.in_(digests)).execute()
    for digest in digests:
        if digest != reach.digest:
            confirmations.forget(scope, "grant", subject, digest)
        audit.record(scope, "grant.withdrawn", subject, {"digest": digest})
    return digests


def carry_out(scope: TenantScope, decided: confirmations.Confirmation) -> list[str]:
    """Inside the write that decides about a grant: record it, or take it back; answers the digests that may not run."""
    reach = Reach(decided.details["reach"])
    if decided.state == "confirmed":
        record_grant(scope, decided.subject, reach)
        return []
    known = find_grant(scope, decided.subject, reach.digest)
    withdrawn = _withdraw_covering(scope, decided.subject, reach) if known is not None and known.is_valid else []
    return sorted({reach.digest, *withdrawn})


def forget_subject(scope: TenantScope, subject: str) -> None:
    """Inside the write that deletes the subject: nothing of the same name inherits what it was allowed.

    What owners have withdrawn or refused holds for whatever gets the name, too.
    """
    scope.delete(GrantRow).where(GrantRow.subject == subject, GrantRow.withdrawn_at.is_null()).execute()
    confirmations.forget_undenied(scope, "grant", subject)


def forget_all(scope: TenantScope) -> None:
    """Inside the write that deletes every process and WebApp of the tenant: the same for each of them."""
    scope.delete(GrantRow).where(GrantRow.withdrawn_at.is_null()).execute()
    confirmations.forget_undenied(scope, "grant")

"""What depends on a member of the tenant (keys, sessions, published versions), and what happens to it when they leave."""

from collections.abc import Collection
from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.processes.definitions import Publication, publications
from appliance.processes.executions import pausing
from appliance.tenants import ApiKey, Member, people, scopes_of_role, service_accounts
from appliance.tenants.keys import Issuers, adoption, lineage
from appliance.tenants.sign_in import OpenSession, sessions


@dataclass(frozen=True)
class DependentKey:
    """An active key that descends from the member, `depth` keys below them, with its current scopes and those it would lose."""

    row: ApiKey
    depth: int
    scopes: frozenset[str]
    loses: frozenset[str]


@dataclass(frozen=True)
class MemberAuthority:
    """Everything that depends on a member: a tree of keys, sessions in this tenant, and published versions (which keep running).

    `accounts` are the names of the service accounts that they are responsible for, which stay with their keys.
    """

    member: Member
    keys: tuple[DependentKey, ...]
    sessions: tuple[OpenSession, ...]
    publications: tuple[Publication, ...]
    accounts: tuple[str, ...] = ()

    @property
    def shrinking(self) -> tuple[DependentKey, ...]:
        """The keys that would lose scopes."""
        return tuple(key for key in self.keys if key.loses)


def read_authority(scope: TenantScope, user_id: str, role: str | None = None) -> MemberAuthority:
    """What depends on a member, and what keys would lose if the member had this role (None: no role at all).  NotFound."""
    member = people.find_member(scope, user_id, with_disabled=True)
    if member is None:
        raise NotFound(Sentence("there is no member %(user_id)s here", user_id=repr(user_id[:80])))
    remaining = scopes_of_role(role) if role is not None else frozenset()
    issuers = lineage.load_issuers(scope, as_enabled=user_id)  # keys of a disabled account can be adopted, too
    tree = [_to_dependent_key(row, depth, remaining, issuers) for depth, row in lineage.descendants_of(scope, f"user:{user_id}")]
    keys = tuple(key for key in tree if key.scopes)  # ended keys have nothing to lose
    responsible = [(each, each.granted_by or each.published_by) for each in publications.list_publications(scope)]
    people_by_actor = {actor: lineage.people_behind(scope, actor) for _publication, actor in responsible}
    theirs = [each for each, actor in responsible if user_id in people_by_actor[actor]]
    accounts = tuple(service_accounts.list_of_responsible(scope, user_id))
    return MemberAuthority(member, keys, tuple(sessions.list_sessions_in(scope, user_id)), tuple(theirs), accounts)


def _to_dependent_key(row: ApiKey, depth: int, remaining: frozenset[str], issuers: Issuers) -> DependentKey:
    scopes = lineage.build_authority(row, issuers).scopes
    return DependentKey(row, depth, scopes, scopes - remaining)


@dataclass(frozen=True)
class Handover:
    """What the person who removes a member takes over or stops.  Other keys end, other published versions keep running."""

    adopt_keys: Collection[str] = ()
    adopt_processes: Collection[str] = ()
    stop_processes: Collection[str] = ()


@dataclass(frozen=True)
class Departure:
    """What happened to the keys and processes of a removed member: ids in the order in which they were listed."""

    adopted_keys: tuple[str, ...]
    ended_keys: tuple[str, ...]
    adopted_processes: tuple[str, ...]
    stopped_processes: tuple[str, ...]


def remove_member(scope: TenantScope, user_id: str, handover: Handover) -> Departure:
    """Remove a member and hand over their keys and processes in one write; see `people.remove_member` for its errors.

    ValidationFailed for a key or a process that does not depend on the member; an error of one adoption undoes everything.
    """

    def remove() -> Departure:
        authority = read_authority(scope, user_id)
        keys = [key.row.id for key in authority.keys]
        processes = [each.process_id for each in authority.publications]
        _check_chosen(handover.adopt_keys, keys, "adopt_keys", "API key")
        _check_chosen(handover.adopt_processes, processes, "adopt_processes", "published process")
        _check_chosen(handover.stop_processes, processes, "stop_processes", "published process")
        adopted = [adoption.adopt_key(scope, key_id).id for key_id in keys if key_id in handover.adopt_keys]
        people.remove_member(scope, user_id)
        for process_id in handover.adopt_processes:
            publications.adopt_publication(scope, process_id)
        for process_id in handover.stop_processes:
            pausing.pause_rows(scope, process_id)
        adopted_tree = {key_id for each in adopted for key_id in (each, *_descendants(scope, each))}
        departure = Departure(
            tuple(each for each in keys if each in adopted_tree), tuple(each for each in keys if each not in adopted_tree),
            tuple(each for each in processes if each in handover.adopt_processes),
            tuple(each for each in processes if each in handover.stop_processes),
        )  # fmt: skip
        audit.record(scope, "member.handover", user_id, {name: list(ids) for name, ids in vars(departure).items()})
        return departure

    return db.write(remove)


def _descendants(scope: TenantScope, key_id: str) -> list[str]:
    return [row.id for _, row in lineage.descendants_of(scope, f"key:{key_id}")]


def _check_chosen(chosen: Collection[str], available: Collection[str], name: str, kind: str) -> None:
    for each in chosen:
        if each not in available:
            raise ValidationFailed(
                Sentence(
                    "this member has no %(kind)s %(each)s; GET /api/v1/members/{id}/authority lists them",
                    each=repr(each[:80]), kind=kind,
                ),
                pointer=f"/{name}",
            )

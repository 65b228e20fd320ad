"""Under which grant a version runs: recorded when it is published, looked at when it begins, taken back by an owner.

`process_version.grant_digest` names the grant, `allowed_until` (epoch ms) is when the version may begin no more; null: it may.
A version of before grants were recorded has no digest until it is looked at, which happens once.
"""

from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import PolicyDenied, ScopeMissing
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.executions import service as executions
from appliance.processes.models import Execution, Process, ProcessVersion
from appliance.tenants import service as tenants
from appliance.tenants.grants import Assessor, Grace, Published, Reach, confirmations, grant_assessment, grants

from .authority import reach_of_draft, subject_of


def require(scope: TenantScope, row: ProcessVersion) -> None:
    """Inside the write that publishes or goes back to this version: GrantRequired unless it may reach what it does."""
    reach = reach_of_draft(row.definition, row.files)
    is_new = grants.require_grant(scope, subject_of(row.process_id), reach)
    mine = (ProcessVersion.process_id == row.process_id) & (ProcessVersion.version == row.version)
    scope.update(ProcessVersion, grant_digest=reach.digest, allowed_until=None).where(mine).execute()
    if is_new:
        _allow(scope, row.process_id, reach.digest)


def _allow(scope: TenantScope, process_id: str, digest: str) -> None:
    """Inside a write: every version with this reach may begin."""
    same = (ProcessVersion.process_id == process_id) & (ProcessVersion.grant_digest == digest)
    scope.update(ProcessVersion, allowed_until=None).where(same).execute()


def refuse_suspended(process_id: str, version: int, allowed_until: int | None) -> None:
    """PolicyDenied once the version may begin no more."""
    if allowed_until is not None and allowed_until <= clock.now_ms():
        raise PolicyDenied(
            Sentence(
                "version %(version)s of %(process_id)s may not run: no owner allows what it reaches; ask an owner to "
                "allow it in the console, under Confirmations",
                version=version, process_id=repr(process_id),
            ),
            extra={"reason": "grant_required"},
        )  # fmt: skip


def refuse_suspended_process(scope: TenantScope, process_id: str) -> None:
    """PolicyDenied while the published version of this process may begin nothing."""
    process = scope.find(Process, id=process_id)
    if process is not None and process.published_version is not None:
        version = scope.get(ProcessVersion, process_id=process_id, version=process.published_version)
        refuse_suspended(process_id, version.version, version.allowed_until)


# -- decisions of owners


def carry_out(scope: TenantScope, process_id: str, decided: confirmations.Confirmation) -> None:
    """Inside the write that decides about the grant of a process."""
    stopped = grants.carry_out(scope, decided)
    if decided.state == "confirmed":
        _allow(scope, process_id, decided.digest)
    else:
        _stop(scope, process_id, stopped)


def withdraw(scope: TenantScope, process_id: str, digest: str) -> None:
    """Take back what a process may reach: its versions with this reach begin no more, what is at work ends at its next step.

    What waits or is queued fails with `policy_denied` when its turn comes, unless it is allowed again before.
    """

    def write() -> None:
        _stop(scope, process_id, grants.withdraw_grant(scope, subject_of(process_id), digest))

    db.write(write)


def _stop(scope: TenantScope, process_id: str, digests: list[str]) -> None:
    same = (ProcessVersion.process_id == process_id) & ProcessVersion.grant_digest.in_(digests)
    numbers = [row.version for row in scope.select(ProcessVersion, ProcessVersion.version).where(same)]
    scope.update(ProcessVersion, allowed_until=0).where(same).execute()
    if numbers:
        at_work = (Execution.process_id == process_id) & (Execution.status == "running") & Execution.version.in_(numbers)
        for row in scope.select(Execution, Execution.id).where(at_work):
            executions.cancel_rows(scope, row.id, process_id)


def adopt(scope: TenantScope, process_id: str, version: int) -> None:
    """Inside a write: answer for what a version reaches from now on, which is granted anew in the actor's name.

    ScopeMissing unless the actor holds what that takes; GrantRequired where an owner has withdrawn it and none acts.
    """
    row = scope.get(ProcessVersion, process_id=process_id, version=version)
    subject, reach = subject_of(process_id), reach_of_draft(row.definition, row.files)
    if excess := reach.beyond(scope.scopes):
        told = ", ".join(str(need) for need in excess[: grants.MOST_NAMED])
        raise ScopeMissing(Sentence(
            "you cannot answer for the process %(process_id)s, which may do more than you: %(told)s; ask an owner to",
            process_id=repr(process_id), told=told,
        ))
    if not grants.is_granted(scope, subject, reach) and grants.is_withheld(scope, subject, reach):
        raise grants.refusal_of(scope, subject, reach, [])
    if reach.needs:
        grants.give_grant(scope, subject, reach)
    mine = (ProcessVersion.process_id == process_id) & (ProcessVersion.version == version)
    scope.update(ProcessVersion, grant_digest=reach.digest).where(mine).execute()
    _allow(scope, process_id, reach.digest)


# -- what a draft may reach that is only tried out


def held_by(scope: TenantScope, process_id: str, reach: Reach) -> frozenset[str]:
    """The scopes within which somebody may try out a draft: their own, and all it needs once that is granted to the process."""
    return scope.scopes | (reach.scopes if grants.is_granted(scope, subject_of(process_id), reach) else frozenset())


# -- what was published before grants were recorded


def assess(scope: TenantScope, process_id: str, version: int, grace: Grace) -> int | None:
    """Note once what a version of before the upgrade reaches, and until when it may begin; answers the latter."""
    return db.write(partial(_assess, tenants.system_scope(scope.tenant_id), process_id, version, grace))


def make_assessor(grace: Grace) -> Assessor[tuple[str, str, int]]:
    """Does so for the published versions of every tenant."""

    def find() -> list[tuple[str, str, int]]:
        rows = db.rows(
            "SELECT v.tenant_id, v.process_id, v.version FROM process_version v JOIN process p ON p.tenant_id = v.tenant_id "
            "AND p.id = v.process_id AND p.published_version = v.version WHERE v.grant_digest IS NULL"
        )
        return [(str(tenant_id), str(process_id), int(version)) for tenant_id, process_id, version in rows]

    return Assessor(find, lambda key: assess(tenants.system_scope(key[0]), key[1], key[2], grace))


def _assess(scope: TenantScope, process_id: str, version: int, grace: Grace) -> int | None:
    row = scope.get(ProcessVersion, process_id=process_id, version=version)
    if row.grant_digest is not None:  # somebody was quicker
        known: int | None = row.allowed_until
        return known
    reach = reach_of_draft(row.definition, row.files)
    published = Published(subject_of(process_id), version, reach, row.created_by, row.created_at)
    until = grant_assessment.assess(scope, published, grace)
    mine = (ProcessVersion.process_id == process_id) & (ProcessVersion.version == version)
    scope.update(ProcessVersion, grant_digest=reach.digest, allowed_until=until).where(mine).execute()
    return until

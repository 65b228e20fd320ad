"""The grant under which a version runs: recorded on publication, checked at the start, withdrawn by an owner.

`process_version.grant_digest` identifies the grant; from `allowed_until` (epoch ms; null: no limit) the version can no
longer start.  A version published before grants were recorded has no digest until it is assessed, before it first runs.
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
from appliance.tenants.grants import AccessSpec, GracePeriods, PublishedVersion, confirmations, grant_assessment, grants

from .authority import required_access_of_draft, subject_of


def require_grant(scope: TenantScope, row: ProcessVersion) -> None:
    """Raises GrantRequired unless the version's access is granted; inside the write that publishes or restores it."""
    access = required_access_of_draft(row.definition, row.files)
    is_new = grants.require_grant(scope, subject_of(row.process_id), access)
    mine = (ProcessVersion.process_id == row.process_id) & (ProcessVersion.version == row.version)
    scope.update(ProcessVersion, grant_digest=access.digest, allowed_until=None).where(mine).execute()
    if is_new:
        _allow(scope, row.process_id, access.digest)


def _allow(scope: TenantScope, process_id: str, digest: str) -> None:
    """Allows every version with this access to start; inside a write."""
    same = (ProcessVersion.process_id == process_id) & (ProcessVersion.grant_digest == digest)
    scope.update(ProcessVersion, allowed_until=None).where(same).execute()


def refuse_suspended(process_id: str, version: int, allowed_until: int | None) -> None:
    """Raises PolicyDenied when the version can no longer start."""
    if allowed_until is not None and allowed_until <= clock.now_ms():
        raise PolicyDenied(
            Sentence(
                "version %(version)s of %(process_id)s may not run: no owner has allowed its access; ask an owner to "
                "allow it in the console, under Confirmations",
                version=version, process_id=repr(process_id),
            ),
            extra={"reason": "grant_required"},
        )  # fmt: skip


def refuse_suspended_process(scope: TenantScope, process_id: str) -> None:
    """Raises PolicyDenied while the published version of this process may not start."""
    process = scope.find(Process, id=process_id)
    if process is not None and process.published_version is not None:
        version = scope.get(ProcessVersion, process_id=process_id, version=process.published_version)
        refuse_suspended(process_id, version.version, version.allowed_until)


# -- decisions of owners


def apply_decision(scope: TenantScope, process_id: str, confirmation: confirmations.Confirmation) -> None:
    """Applies an owner's decision about the grant of a process; inside the write that records it."""
    stopped = grants.apply_decision(scope, confirmation)
    if confirmation.state == "confirmed":
        _allow(scope, process_id, confirmation.digest)
    else:
        _stop(scope, process_id, stopped)


def withdraw(scope: TenantScope, process_id: str, digest: str) -> None:
    """Withdraws a grant: versions with this access no longer start, running executions are cancelled at their next step.

    Waiting and queued executions fail with `policy_denied` when they continue, unless the grant is given again before.
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
    """Makes the actor responsible for a version's access by granting it again in their name; inside a write.

    Raises ScopeMissing unless the actor has every scope of that access, GrantRequired if an owner withdrew the grant and
    the actor is not an owner.
    """
    row = scope.get(ProcessVersion, process_id=process_id, version=version)
    subject, access = subject_of(process_id), required_access_of_draft(row.definition, row.files)
    if excess := access.exceeding(scope.scopes):
        missing = ", ".join(str(need) for need in excess[: grants.MAX_LISTED])
        raise ScopeMissing(Sentence(
            "you cannot take responsibility for the process %(process_id)s, because it needs permissions that you do not "
            "have: %(missing)s; ask an owner to do it",
            process_id=repr(process_id), missing=missing,
        ))
    if not grants.is_granted(scope, subject, access) and grants.is_blocked(scope, subject, access):
        raise grants.build_refusal(scope, subject, access, [])
    if access.needs:
        grants.give_grant(scope, subject, access)
    mine = (ProcessVersion.process_id == process_id) & (ProcessVersion.version == version)
    scope.update(ProcessVersion, grant_digest=access.digest).where(mine).execute()
    _allow(scope, process_id, access.digest)


# -- trying out a draft


def trial_scopes(scope: TenantScope, process_id: str, access: AccessSpec) -> frozenset[str]:
    """The scopes for trying out a draft: the actor's own, plus those of the draft's access if the process has that grant."""
    return scope.scopes | (access.scopes if grants.is_granted(scope, subject_of(process_id), access) else frozenset())


# -- versions published before grants were recorded


def assess(scope: TenantScope, process_id: str, version: int, grace: GracePeriods) -> int | None:
    """Records the access of a version published before grants were; returns until when it may start (epoch ms), or None."""
    return db.write(partial(_assess, tenants.system_scope(scope.tenant_id), process_id, version, grace))


def _assess(scope: TenantScope, process_id: str, version: int, grace: GracePeriods) -> int | None:
    row = scope.get(ProcessVersion, process_id=process_id, version=version)
    if row.grant_digest is not None:  # assessed concurrently
        allowed_until: int | None = row.allowed_until
        return allowed_until
    access = required_access_of_draft(row.definition, row.files)
    published = PublishedVersion(subject_of(process_id), version, access, row.created_by, row.created_at)
    until = grant_assessment.assess(scope, published, grace)
    mine = (ProcessVersion.process_id == process_id) & (ProcessVersion.version == version)
    scope.update(ProcessVersion, grant_digest=access.digest, allowed_until=until).where(mine).execute()
    return until

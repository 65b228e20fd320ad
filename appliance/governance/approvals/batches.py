"""Decides an explicit list of requests in one act, each checked and audited by itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, Decision
from appliance.tenants import SignedIn

MOST = 100


@dataclass(frozen=True)
class Outcome:
    """What became of one request of the list: as it is now, or why it was not decided."""

    approval_id: str
    decided: Approval | None = None
    error: ApplianceError | None = None


def decide_approvals(scope: TenantScope, person: SignedIn, approval_ids: Sequence[str], decision: Decision) -> list[Outcome]:
    """Decide each of these in its own write, in the name of a signed-in person; one that fails stops no other.

    ValidationFailed unless there are 1 to 100 of them.
    """
    wanted = list(dict.fromkeys(approval_ids))
    if not 1 <= len(wanted) <= MOST:
        raise ValidationFailed(Sentence("choose 1 to %(most)s requests to decide together", most=MOST), pointer="/approval")
    return [_decide(scope, person, approval_id, decision) for approval_id in wanted]


def _decide(scope: TenantScope, person: SignedIn, approval_id: str, decision: Decision) -> Outcome:
    try:
        return Outcome(approval_id, approvals.decide_approval(scope, person, approval_id, decision))
    except ApplianceError as error:
        return Outcome(approval_id, error=error)

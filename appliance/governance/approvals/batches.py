"""Decides several requests at once, each checked and audited separately."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, Decision
from appliance.tenants import SignedIn

MAX_REQUESTS = 100


@dataclass(frozen=True)
class BatchResult:
    """The result for one request of the list: its new state, or the error."""

    approval_id: str
    decided: Approval | None = None
    error: ApplianceError | None = None


def decide_approvals(scope: TenantScope, person: SignedIn, approval_ids: Sequence[str], decision: Decision) -> list[BatchResult]:
    """Decide each request in its own write, in the name of a signed-in person; a failure does not stop the others.

    ValidationFailed unless there are 1 to 100 requests.
    """
    unique_ids = list(dict.fromkeys(approval_ids))
    if not 1 <= len(unique_ids) <= MAX_REQUESTS:
        raise ValidationFailed(Sentence("select 1 to %(most)s requests to decide together", most=MAX_REQUESTS), pointer="/approval")
    return [_decide(scope, person, approval_id, decision) for approval_id in unique_ids]


def _decide(scope: TenantScope, person: SignedIn, approval_id: str, decision: Decision) -> BatchResult:
    try:
        return BatchResult(approval_id, approvals.decide_approval(scope, person, approval_id, decision))
    except ApplianceError as error:
        return BatchResult(approval_id, error=error)

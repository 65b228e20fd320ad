"""The register of personal data: every kind, and the columns that look as if they named a person and do not.

A test compares it with the columns of all tables.
"""

from collections.abc import Mapping

from .account_kinds import ACCOUNT_KINDS
from .kinds import Kind
from .work_kinds import WORK_KINDS

KINDS: tuple[Kind, ...] = (*ACCOUNT_KINDS, *WORK_KINDS)

NOT_PERSONAL: Mapping[str, str] = {
    **dict.fromkeys(
        ("agent_run.tainted_by", "execution.tainted_by"), "the tools whose answers the work has read",
    ),
    **dict.fromkeys(
        ("agent_run.measured_by", "pending_call.measured_by", "step_run.measured_by"), "the clock of a machine",
    ),
    **dict.fromkeys(("integration_consent.audience", "integration_token.audience"), "a digest of where a token may be sent"),
    **dict.fromkeys(
        ("webapp_request.address", "webapp_request.agent", "webapp_request.visitor"),
        "leads to nobody: an address shortened by default, a family of browsers, a number that changes every day",
    ),
    "approval.agent": "an agent of the tenant",
    "certificate.issuer": "a certificate authority",
    "domain_tombstone.released_by": "a tenant",
    "logout_token.issuer": "an identity provider",
    "step_up.proven_by": "the method of a proof",
}  # fmt: skip


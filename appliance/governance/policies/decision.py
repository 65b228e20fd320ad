"""What a policy evaluates, and its decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.connectors import SentRequest
from appliance.connectors.contract import Effect
from appliance.governance.subjects import Subject

Verdict = Literal["allow", "require_approval", "deny"]
Mode = Literal["observe", "enforce"]


@dataclass(frozen=True)
class ToolAction:
    """An action to be evaluated, whichever tool performs it.

    `tool` is a name of docs/contract.md § 12 (`execute_tenant_integration` for every integration action, from any edge);
    `integration`, `operation`, `connector` (name and version), `host` (the address that would be called) and `credential`
    (a reference, never a secret) are empty for tools that stay inside the appliance.  `sent` is the HTTP request, None for other
    protocols or if no rule inspects it; `kin` names the integrations that share the credential.
    """

    tool: str
    effect: Effect
    input: Mapping[str, Any]
    integration: str = ""
    operation: str = ""
    connector: str = ""
    host: str = ""
    credential: str = ""
    sent: SentRequest | None = None
    kin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that rules can inspect.

    `account` is the service account (`service:…`) that the subject's key belongs to, `account_behind` that one or the one whose
    key has started the execution or run that acts; both are empty without one.
    """

    subject: Subject
    action: ToolAction
    account: str = ""
    account_behind: str = ""


@dataclass(frozen=True)
class Obligations:
    """Conditions attached to a permission.

    `approvers` are `role:owner` or `user:ann` as in requests to people; `needed` of them must approve within `ttl_seconds`;
    `redact` are JSON pointers removed from the result; `calls_per_hour` and `calls_per_run` cap the rule's own calls,
    `cost_per_run` the cost of the run's model calls so far; `dry_run_first` requires an earlier preview of the same action.
    """

    approvers: tuple[str, ...] = ()
    needed: int = 1
    ttl_seconds: int = 86_400
    redact: tuple[str, ...] = ()
    calls_per_hour: int | None = None
    calls_per_run: int | None = None
    cost_per_run: float | None = None
    dry_run_first: bool = False


@dataclass(frozen=True)
class RuleCaps:
    """The call caps of one rule (`policy/rule`), counted separately for each rule; None means no cap."""

    rule: str
    calls_per_hour: int | None = None
    calls_per_run: int | None = None


@dataclass(frozen=True)
class Decision:
    """The verdict, its reasons, and the rules it comes from (`policy/rule`).

    `version` names the set of policy versions that was evaluated; `would_be` is the verdict if policies in observe mode were
    enforced, where it differs, with their rules in `would_be_rules`; `caps` are those of every matching rule, including one
    that allows what another rule requires approval for.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    version: str
    rules: tuple[str, ...] = ()
    obligations: Obligations = Obligations()
    would_be: Verdict | None = None
    would_be_rules: tuple[str, ...] = ()
    caps: tuple[RuleCaps, ...] = ()


@dataclass(frozen=True)
class InspectedDetails:
    """What rules inspect: the request an action sends, and which integrations share a credential."""

    requests: bool = False
    kin: bool = False

"""What a policy judges, and what it says."""

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
    """Something that is about to be done, whichever tool does it.

    `tool` is a name of CONTRACT § 12 (`execute_tenant_integration` for every integration action, by whatever road);
    `integration`, `operation`, `connector` (name and version), `host` (the address that would be called) and `credential`
    (a reference, never a secret) are empty for tools that stay inside the appliance.  `sent` is what it sends over HTTP, None
    where that is not HTTP or no rule asks for it; `kin` names the integrations that use the same credential.
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
    """All that rules may look at."""

    subject: Subject
    action: ToolAction


@dataclass(frozen=True)
class Obligations:
    """What comes with permission.

    `approvers` are names as requests to people have them (`role:owner`, `user:ann`), `needed` of them must agree within
    `ttl_seconds`; `redact` are JSON pointers hidden from the result; `calls_per_hour` and `calls_per_run` cap the rule's own
    calls, `cost_per_run` what the models of the run cost before one; `dry_run_first` wants a preview of the same action before.
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
    """How many calls one rule (`policy/rule`) allows, counted for itself; None is no bound."""

    rule: str
    calls_per_hour: int | None = None
    calls_per_run: int | None = None


@dataclass(frozen=True)
class Decision:
    """What holds, why, and by which rules (`policy/rule`).

    `version` names the set of policy versions that judged; `would_be` is what policies in observe mode would have said
    when that differs, with their rules in `would_be_rules`; `caps` are those of every rule that holds, also of one that allows
    what another wants approved.
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
class Looks:
    """What rules look at: what an action sends, and which integrations share a credential."""

    requests: bool = False
    kin: bool = False

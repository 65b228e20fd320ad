"""What is carried out when an owner confirms or refuses, and what looks at authority that was given before it was recorded."""

from functools import partial

from appliance.core.config import Config
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.processes import version_grants
from appliance.tenants import adoption, grants, secret_bindings
from appliance.tenants.confirmations import Confirmation, ConfirmationDecisions

from .secret_adoption import decide_secret


def make_confirmations() -> ConfirmationDecisions:
    """Every kind's handler, registered here."""
    decisions = ConfirmationDecisions()
    decisions.register("grant", _carry_out_grant)
    decisions.register("secret", decide_secret)
    decisions.register("key", adoption.decide_key)
    return decisions


def _carry_out_grant(scope: TenantScope, decided: Confirmation) -> None:
    kind, _, name = decided.subject.partition(":")
    if kind == "process":
        version_grants.carry_out(scope, name, decided)
        if decided.state == "confirmed":
            reach = decided.details["reach"]
            secret_bindings.bind_process(scope, name, reach.get("secrets", ()), reach.get("webhook_secrets", ()))
    else:
        grants.carry_out(scope, decided)


def authority_upkeep(config: Config) -> list[Periodic]:
    """Versions that were published before grants were recorded, or elsewhere, are looked at soon, a few at a time."""
    return [Periodic("grants", 5.0, partial(version_grants.assess_some, version_grants.grace_of(config)))]

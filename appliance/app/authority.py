"""What is carried out when an owner confirms or refuses, and what looks at authority that was given before it was recorded."""

from functools import partial

from appliance.core.config import Config
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.processes.host import version_grants
from appliance.tenants.grants import Confirmation, ConfirmationDecisions, grace_of, secret_bindings
from appliance.tenants.keys import adoption
from appliance.webapps import WebApps
from appliance.webapps.publishing import served_grants

from .secret_adoption import decide_secret


def make_confirmations(webapps: WebApps) -> ConfirmationDecisions:
    """Every kind's handler, registered here."""
    decisions = ConfirmationDecisions()
    decisions.register("grant", partial(_carry_out_grant, webapps))
    decisions.register("secret", decide_secret)
    decisions.register("key", adoption.decide_key)
    return decisions


def _carry_out_grant(webapps: WebApps, scope: TenantScope, decided: Confirmation) -> None:
    kind, _, name = decided.subject.partition(":")
    if kind == "process":
        version_grants.carry_out(scope, name, decided)
        if decided.state == "confirmed":
            reach = decided.details["reach"]
            secret_bindings.bind_process(scope, name, reach.get("secrets", ()), reach.get("webhook_secrets", ()))
    else:
        served_grants.carry_out(scope, webapps, name, decided)


def authority_upkeep(config: Config) -> list[Periodic]:
    """What was published before grants were recorded, or elsewhere, is looked at soon, a few at a time."""
    grace = grace_of(config)
    processes, webapps = version_grants.make_assessor(grace), served_grants.make_assessor(grace)
    return [Periodic("grants", 5.0, processes.assess_some), Periodic("webapp-grants", 5.0, webapps.assess_some)]

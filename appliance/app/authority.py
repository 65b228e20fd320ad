"""Carries out owners' confirmations, and assesses grants from before they were recorded."""

from functools import partial

from appliance.core.config import Config
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.processes.host import version_grants
from appliance.tenants.grants import Confirmation, ConfirmationDecisions, grace_periods, secret_bindings
from appliance.tenants.keys import adoption
from appliance.webapps import WebApps
from appliance.webapps.publishing import served_grants

from .secret_adoption import decide_secret


def make_confirmations(webapps: WebApps) -> ConfirmationDecisions:
    """Register the handler for each kind of confirmation."""
    decisions = ConfirmationDecisions()
    decisions.register("grant", partial(_apply_grant_decision, webapps))
    decisions.register("secret", decide_secret)
    decisions.register("key", adoption.decide_key)
    return decisions


def _apply_grant_decision(webapps: WebApps, scope: TenantScope, confirmation: Confirmation) -> None:
    kind, _, name = confirmation.subject.partition(":")
    if kind == "process":
        version_grants.apply_decision(scope, name, confirmation)
        if confirmation.state == "confirmed":
            access = confirmation.details["reach"]
            secret_bindings.bind_process(scope, name, access.get("secrets", ()), access.get("webhook_secrets", ()))
    else:
        served_grants.apply_decision(scope, webapps, name, confirmation)


def authority_upkeep(config: Config) -> list[Periodic]:
    """The jobs that assess what was published before grants were recorded, or on another appliance, a few at a time."""
    grace = grace_periods(config)
    processes, webapps = version_grants.make_assessor(grace), served_grants.build_assessor(grace)
    return [Periodic("grants", 5.0, processes.assess_some), Periodic("webapp-grants", 5.0, webapps.assess_some)]

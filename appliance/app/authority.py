"""Carries out owners' confirmations, and assesses what published WebApps have access to."""

from functools import partial

from appliance.core.config import Config
from appliance.core.scheduling import SLOW, PeriodicJob
from appliance.core.scope import TenantScope
from appliance.processes.host import version_grants
from appliance.tenants.grants import Confirmation, ConfirmationDecisions, SecretDestination, grace_periods, secret_bindings
from appliance.tenants.keys import adoption
from appliance.webapps import WebApps
from appliance.webapps.publishing import served_grants


def make_confirmations(webapps: WebApps) -> ConfirmationDecisions:
    """Register the handler for each kind of confirmation."""
    decisions = ConfirmationDecisions()
    decisions.register("grant", partial(_apply_grant_decision, webapps))
    decisions.register("secret", _apply_secret_decision)
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


def _apply_secret_decision(scope: TenantScope, confirmation: Confirmation) -> None:
    """Bind the secret to its destination, or unbind it; development versions before 0.1.0 requested such decisions."""
    details = confirmation.details
    place = SecretDestination(details["kind"], details["target"], details["digest"], details["hosts"])
    if confirmation.state == "confirmed":
        secret_bindings.bind(scope, details["secret"], place)
    else:
        secret_bindings.unbind_place(scope, details["secret"], place)


def authority_upkeep(config: Config) -> list[PeriodicJob]:
    """The job that assesses WebApps that were published lately, a few at a time."""
    return [PeriodicJob("webapp-grants", 5.0, served_grants.build_assessor(grace_periods(config)).assess_some, SLOW)]

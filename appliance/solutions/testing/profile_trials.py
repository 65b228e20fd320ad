"""Tries out an LLM profile for all edges, unless the tenant is switched off."""

from concurrent.futures import Future
from functools import partial

from appliance.core.scope import TenantScope
from appliance.governance import kill_switches, subject_of
from appliance.llm import Trial
from appliance.solutions.services import Services


def try_profile(services: Services, scope: TenantScope, slug: str) -> "Future[Trial]":
    """Send one short question to the profile's model.  PolicyDenied (switched off), ConcurrencyLimited; NotFound in the Future."""
    kill_switches.check_not_switched_off(scope, subject_of(scope))
    return services.executor.submit(scope, partial(services.llm.try_profile, scope, slug))

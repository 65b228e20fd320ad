"""Tries out an LLM profile for all edges, unless the tenant is switched off."""

from concurrent.futures import Future
from functools import partial

from appliance.core.scope import TenantScope
from appliance.governance import kill_switches, subject_of
from appliance.governance.executor import GovernedExecutor
from appliance.llm import LanguageModels, Trial


def try_profile(scope: TenantScope, slug: str, models: LanguageModels, executor: GovernedExecutor) -> "Future[Trial]":
    """Send one short question to the profile's model.  PolicyDenied (switched off), ConcurrencyLimited; NotFound in the Future."""
    kill_switches.check_not_switched_off(scope, subject_of(scope))
    return executor.submit(scope, partial(models.try_profile, scope, slug))

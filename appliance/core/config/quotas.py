"""The sections of the configuration about quotas of tenants, and about tenants that expire."""

from dataclasses import dataclass

from .sections import setting


@dataclass(frozen=True)
class Quotas:
    """What each tenant may use unless `gos tenant quota` or an administrator sets something else (0: no limit); storage is
    `limits.tenant_storage_mb`."""

    entities: int = setting(0, "Entities in all collections.")
    executions_per_day: int = setting(0, "Executions that start on a day (UTC), with those that others start.")
    concurrent_executions: int = setting(0, "Executions that run at once; others wait in the queue.")
    llm_tokens_per_day: int = setting(0, "Tokens of all language models on a day (UTC).")
    llm_tokens_per_month: int = setting(0, "Tokens of all language models in a month (UTC).")
    llm_cost_per_day: int = setting(0, "Cost of all language models on a day (UTC), in the currency of the profiles' prices.")
    llm_cost_per_month: int = setting(0, "The same in a month (UTC).")
    requests_per_day: int = setting(0, "Requests with API keys, over REST and MCP, on a day (UTC).")


@dataclass(frozen=True)
class SandboxTenants:
    """Tenants made by `gos tenant add --sandbox`: small, and deleted some time after they expire. Their quotas (0: no limit)
    apply until `gos tenant quota` or an administrator sets something else."""

    days: int = setting(14, "Days until a sandbox tenant expires, from 1 to 3650.")
    warn_days: int = setting(3, "How many days before that its people are warned.")
    grace_days: int = setting(
        7, "Days between its expiry, from which on nothing can be added or started, and its deletion; from 1 to 3650."
    )
    storage_mb: int = setting(200, "Storage (content, entities and their history).")
    entities: int = setting(10_000, "Entities in all collections.")
    executions_per_day: int = setting(1_000, "Executions that start on a day (UTC).")
    concurrent_executions: int = setting(4, "Executions that run at once; others wait in the queue.")
    llm_tokens_per_day: int = setting(100_000, "Tokens of all language models on a day (UTC).")
    llm_tokens_per_month: int = setting(500_000, "Tokens of all language models in a month (UTC).")
    llm_cost_per_day: int = setting(0, "Cost of all language models on a day (UTC), in the currency of the profiles' prices.")
    llm_cost_per_month: int = setting(0, "The same in a month (UTC).")
    requests_per_day: int = setting(20_000, "Requests with API keys, over REST and MCP, on a day (UTC).")

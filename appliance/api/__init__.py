"""REST under /api/v1/: one file per domain; each parses, calls one verb and renders."""

from . import (
    actions,
    agent_runs,
    agents,
    alerts,
    approvals,
    bulk,
    calls,
    certificates,
    datapool,
    delivery,
    document_uploads,
    documents,
    domains,
    dry_runs,
    executions,
    integrations,
    invitations,
    keys,
    kill_switches,
    llm,
    logs,
    oauth,
    policies,
    policy_replay,
    previews,
    processes,
    publishing,
    replay,
    retention,
    retry_plan,
    reviews,
    secrets,
    shares,
    skills,
    solutions,
    tenants,
    traffic,
    triggers,
    version_diff,
    visits,
    webapps,
    webhooks,
)
from .dispatch import make_blueprint
from .docs import make_docs
from .routing import ROUTES
from .spent_keys import refuse_spent_keys

DOMAINS = (
    actions, agent_runs, agents, alerts, approvals, bulk, calls, certificates, datapool, delivery, document_uploads, documents,
    domains, dry_runs, executions, integrations, invitations, keys, kill_switches, llm, logs, oauth, policies, policy_replay,
    previews, processes, publishing, replay, retention, retry_plan, reviews, secrets, shares, skills, solutions, tenants, traffic,
    triggers, version_diff, visits, webapps, webhooks,
)  # fmt: skip

__all__ = ["DOMAINS", "ROUTES", "make_blueprint", "make_docs", "refuse_spent_keys"]

"""REST routes under /api/v1/, one module per resource: each parses the request, calls one domain function and renders a view."""

from . import datapool, solutions
from .agents import agent_runs, agents, llm, skills
from .documents import delivery, document_uploads, documents, previews, retention, reviews, shares
from .frame.direct_routes import answer_routes
from .frame.dispatch import make_blueprint
from .frame.docs import make_docs
from .frame.routing import ROUTES
from .governance import approvals, kill_switches, policies, policy_replay
from .integrations import actions, calls, integrations, oauth
from .monitor import alerts, logs, webhooks
from .processes import bulk, dry_runs, executions, processes, replay, retry_plan, triggers, version_diff
from .shapes import make_shapes
from .tenants import invitations, keys, secrets, tenants
from .webapps import certificates, domains, publishing, traffic, visits, webapps

DOMAINS = (
    actions, agent_runs, agents, alerts, approvals, bulk, calls, certificates, datapool, delivery, document_uploads, documents,
    domains, dry_runs, executions, integrations, invitations, keys, kill_switches, llm, logs, oauth, policies, policy_replay,
    previews, processes, publishing, replay, retention, retry_plan, reviews, secrets, shares, skills, solutions, tenants, traffic,
    triggers, version_diff, visits, webapps, webhooks,
)  # fmt: skip

__all__ = ["DOMAINS", "ROUTES", "answer_routes", "make_blueprint", "make_docs", "make_shapes"]

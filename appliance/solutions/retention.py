"""Deletes expired data of every domain, by the retention settings."""

from appliance.agents import runs
from appliance.core import clock
from appliance.core.config import Config
from appliance.datapool import delete_expired_imports
from appliance.datapool import service as datapool
from appliance.documents.sharing import downloads, shares
from appliance.governance.approvals import expiry as requests_to_people
from appliance.integrations import history
from appliance.llm import usage as llm_usage
from appliance.monitor import audit, failures, rollup, tally, webhooks
from appliance.monitor import logs as log_lines
from appliance.monitor.alerts import service as alerts
from appliance.processes.executions import service as executions
from appliance.processes.triggers import service as triggers
from appliance.tenants import idempotency, invitations
from appliance.tenants.keys import key_addresses, key_requests
from appliance.tenants.sign_in import email_codes
from appliance.webapps.access import visits as webapp_visits
from appliance.webapps.traffic import request_log as traffic


def delete_expired(config: Config) -> None:
    """Delete everything that has exceeded its retention period."""
    now, day = clock.now_ms(), 86_400_000
    keep = config.retention
    idempotency.purge()
    delete_expired_imports()
    webapp_visits.purge(now)
    email_codes.purge(now)
    key_requests.purge(now - keep.key_requests_days * day)
    key_addresses.purge(now - keep.key_addresses_days * day)
    invitations.purge(now)
    executions.purge(now - keep.executions_days * day)
    runs.purge(now - keep.executions_days * day)
    triggers.purge(now - keep.executions_days * day)
    history.purge_calls(keep.executions_days * day)
    failures.purge(now - keep.executions_days * day)
    log_lines.purge(now - keep.logs_days * day)
    traffic.purge(now - keep.logs_days * day)
    webhooks.purge(now - keep.logs_days * day)
    datapool.delete_history_before(now - keep.audit_days * day)
    llm_usage.settle_lost()
    llm_usage.purge(now - keep.audit_days * day)
    alerts.purge(now - keep.audit_days * day)
    audit.purge(now - keep.audit_days * day)
    tally.purge(now - keep.audit_days * day)
    rollup.purge(now - keep.audit_days * day)
    tally.compact()
    downloads.purge(now - keep.audit_days * day)
    shares.purge(now - keep.audit_days * day)
    requests_to_people.purge(now - keep.audit_days * day)

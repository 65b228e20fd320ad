"""The tables with tenant data, and whether exports contain them; a test fails for a table that is not listed here."""

from collections.abc import Mapping
from typing import Any

# Tables that are exported, with replacements for columns that contain sealed secrets.
EXPORTED: Mapping[str, Mapping[str, Any]] = {
    **{table: {} for table in (
        "agent", "agent_journal", "agent_run", "agent_version", "alert", "alert_event", "approval_told",
        "approval_vote", "audit_chain", "audit_entry", "authority_grant", "blob", "collection", "tally_late",
        "tally_mark", "tally_wide",
        "document", "document_download", "document_keeping", "document_key_check", "document_metadata", "document_preview",
        "document_publication", "document_review", "document_revision", "document_scan", "document_tag", "document_text",
        "document_vote", "entity_change", "execution", "execution_event", "execution_input", "failure", "failure_occurrence",
        "firing", "folder_rule", "governed_use", "integration_action", "integration_discovery", "journal", "llm_execution_usage",
        "llm_run_usage", "llm_usage", "log_line", "policy", "policy_set", "policy_version", "process", "process_sample",
        "process_version", "secret_binding",
        "skill", "skill_file", "skill_version", "solution_item", "step_run", "switched_off", "tally",
        "trigger_source", "trigger_state", "webapp", "webapp_file", "webapp_form", "webapp_publication", "webapp_request",
        "webapp_traffic", "webapp_version", "webhook_delivery",
    )},
    "approval": {"sealed": None},
    "integration": {"sealed": b""},
    "integration_call": {"pending": None},
    "llm_profile": {"sealed": None, "key_at": None},
    "webhook": {"sealed": b"", "sealed_old": None, "old_until": None},
}  # fmt: skip

# Tables that are not exported, and why.
NOT_EXPORTED: Mapping[str, str] = {
    "secret": "secrets are never exported; the manifest lists their names",
    "membership": "people belong to the appliance; the manifest lists their logins and roles",
    "domain": "a domain must be verified again; the manifest lists its name",
    **dict.fromkeys(("domain_name", "certificate", "certificate_order"), "belongs to a domain"),
    **dict.fromkeys(("key_address", "key_request", "key_usage"), "belongs to an API key"),
    **dict.fromkeys(("api_key", "document_share", "invitation"), "gives access; must be issued again"),
    "service_account": "owners of this appliance gave it its scopes; create it again, and issue keys",
    "confirmation": "applies to this appliance only; must be requested again",
    **dict.fromkeys(("session", "email_code", "step_up", "webapp_sign_in", "webapp_visit"), "gives access temporarily"),
    **dict.fromkeys(("integration_token", "integration_consent"), "contains sealed secrets; connect again"),
    **dict.fromkeys(
        ("action_preview", "document_upload", "document_upload_part", "file_import", "idempotency", "integration_slot",
         "llm_reservation", "pending_call", "suspended_step", "tenant_job"), "is unfinished work",
    ),
    **dict.fromkeys(("quota_notice", "quota_use", "tenant_expiry", "tenant_quota"), "is set by whoever runs the appliance"),
    "audit_forward": "applies to the destinations of this appliance",
    **dict.fromkeys(("integration_circuit", "step_cache"), "is rebuilt"),
}  # fmt: skip

# Columns with numbers assigned by the database across tenants: an import assigns new ones in the same order.
RENUMBERED: Mapping[str, str] = {
    "document_text": "id", "entity_change": "number", "execution_event": "id", "log_line": "id", "webapp_request": "id",
}  # fmt: skip

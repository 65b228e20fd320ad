"""The kinds that concern what a person did for a tenant: it stays with the tenant, under an id."""

from appliance.core.texts import mark

from .account_kinds import A_DAY, ID, LISTED, PSEUDONYMISE
from .kinds import Kind, Table

_WORK = mark("It is the tenant's work. It keeps an id, which leads to a name in the audit trail only.")
_DECISION = mark("Others rely on the decision. It keeps an id, and the login in it is replaced.")
_AUTHORITY = mark("It says by whose authority something runs. It keeps an id.")
_OBJECT = mark("as long as the thing itself")
_EXECUTIONS, _AUDIT = "retention.executions_days", "retention.audit_days"
_ID_AND_TIME = ("id", "created_at")

WORK_KINDS = (
    Kind("invitations-sent", mark("Invitations they sent"), PSEUDONYMISE, (
        Table("invitation", {"invited_by": ID}, ("role", "state", "created_at", "expires_at")),
    ), reason=_WORK, period=mark("until they are accepted, withdrawn or expire")),
    Kind("authority", mark("Grants and confirmations"), PSEUDONYMISE, (
        Table("authority_grant", {"granted_by": ID, "withdrawn_by": ID}, ("subject", "granted_at", "withdrawn_at")),
        Table("confirmation", {"requested_by": ID, "decided_by": ID}, (
            "id", "kind", "subject", "state", "created_at", "decided_at",
        )),
        Table("secret_binding", {"bound_by": ID}, ("name", "kind", "target", "created_at")),
    ), reason=_AUTHORITY, period=_OBJECT),
    Kind("approvals", mark("Approvals: requests, decisions, comments"), PSEUDONYMISE, (
        Table(
            "approval",
            {"requested_by": ID, "asked_by": ID, "used_by": ID, "decided_by": ID, "approvers": LISTED},
            ("id", "kind", "title", "status", "answer", "comment", "created_at", "closed_at"),
            copies={"decided_login": "decided_by"},
        ),
        Table("approval_vote", {"user_id": ID}, ("approval_id", "verdict", "comment", "at"), copies={"login": "user_id"}),
        Table("approval_told", {"user_id": ID}, ("approval_id", "at")),
    ), reason=_DECISION, setting=_AUDIT),
    Kind("policies", mark("Policies and kill switches"), PSEUDONYMISE, (
        Table("policy", {"created_by": ID, "updated_by": ID}, ("id", "created_at", "updated_at")),
        Table("policy_version", {"created_by": ID, "activated_by": ID}, (
            "policy_id", "number", "message", "created_at", "activated_at",
        )),
        Table("switched_off", {"set_by": ID}, ("kind", "name", "reason", "set_at")),
    ), reason=_WORK, period=_OBJECT),
    Kind("executions", mark("Executions they started"), PSEUDONYMISE, (
        Table("execution", {"actor": ID}, (
            "id", "process_id", "version", "status", "label", "created_at", "started_at", "finished_at",
        ), paged_by="id"),
    ), reason=_WORK, setting=_EXECUTIONS),
    Kind("agent-runs", mark("Runs of agents, with what they asked"), PSEUDONYMISE, (
        Table("agent_run", {"actor": ID}, (
            "id", "agent_id", "version", "status", "input", "output", "created_at", "finished_at",
        ), paged_by="id"),
    ), reason=_WORK, setting=_EXECUTIONS),
    Kind("integration-calls", mark("Calls of foreign systems they made"), PSEUDONYMISE, (
        Table("integration_call", {"actor": ID}, (
            "id", "integration_id", "action", "status", "created_at", "finished_at",
        ), paged_by="id"),
        Table("action_preview", {"actor": ID}, ("at",)),
    ), reason=_WORK, setting=_EXECUTIONS),
    Kind("connections", mark("Connections to foreign systems they made"), PSEUDONYMISE, (
        Table("integration_token", {"connected_by": ID}, ("integration_id", "connected_at", "renewed_at")),
    ), reason=_AUTHORITY, period=mark("until the integration is disconnected")),
    Kind("datapool", mark("Changes of entities"), PSEUDONYMISE, (
        Table("entity_change", {"actor": ID}, ("number", "collection", "entity_id", "version", "event", "at"), paged_by="number"),
    ), reason=_WORK, setting=_AUDIT),
    Kind("imports", mark("Imports of files"), PSEUDONYMISE, (
        Table("file_import", {"actor": ID}, ("id", "collection", "name", "state", "accessed_at")),
    ), reason=_WORK, period=mark("an hour after the last use")),
    Kind("documents", mark("Documents, revisions, shares, publications"), PSEUDONYMISE, (
        Table("document", {"created_by": ID}, ("id", "name", "folder", "media_type", "size", "created_at"), paged_by="id"),
        Table("document_revision", {"created_by": ID}, (
            "document_id", "number", "comment", "media_type", "size", "created_at",
        )),
        Table("document_publication", {"created_by": ID}, ("document_id", "path", "created_at")),
        Table("document_share", {"created_by": ID}, ("id", "document_id", "note", "created_at", "expires_at", "revoked_at")),
        Table("document_upload", {"created_by": ID}, ("id", "name", "folder", "size", "created_at", "expires_at")),
        Table("document_keeping", {"held_by": ID}, ("document_id", "hold_reason", "held_at")),
        Table("folder_rule", {"updated_by": ID}, ("folder", "updated_at")),
    ), reason=_WORK, period=_OBJECT),
    Kind("reviews", mark("Reviews of documents: requests, votes, comments"), PSEUDONYMISE, (
        Table("document_review", {"requested_by": ID, "reviewers": LISTED}, (
            "id", "document_id", "revision", "status", "note", "created_at", "closed_at",
        )),
        Table("document_vote", {"user_id": ID}, ("review_id", "decision", "comment", "at"), copies={"login": "user_id"}),
    ), reason=_DECISION, period=_OBJECT),
    Kind("processes", mark("Versions of processes, agents and skills"), PSEUDONYMISE, (
        Table("process_version", {"created_by": ID}, ("process_id", "version", "message", "created_at")),
        Table("agent_version", {"created_by": ID}, ("agent_id", "version", "created_at")),
        Table(
            "skill", {"updated_by": ID, "granted_by": ID}, ("name", "updated_at", "granted_at"),
            copies={"granted_login": "granted_by"},
        ),
        Table("skill_version", {"created_by": ID}, ("name", "created_at")),
    ), reason=_WORK, period=_OBJECT),
    Kind("webapps", mark("Versions and domains of WebApps"), PSEUDONYMISE, (
        Table("webapp_version", {"created_by": ID}, ("app_id", "number", "message", "created_at")),
        Table("webapp_publication", {"started_by": ID}, ("app_id", "number", "state", "started_at", "ended_at")),
        Table("domain", {"created_by": ID}, ("host", "app_id", "created_at")),
    ), reason=_WORK, period=_OBJECT),
    Kind("monitoring", mark("Alerts, webhooks and handled failures"), PSEUDONYMISE, (
        Table("alert", {"created_by": ID, "actions": LISTED}, ("id", "name", "created_at", "updated_at")),
        Table("alert_event", {"told_to": LISTED}, ("id", "alert_id", "kind", "at")),
        Table("webhook", {"created_by": ID}, _ID_AND_TIME),
        Table("failure", {"changed_by": ID}, ("id", "process_id", "state", "changed_at")),
    ), reason=_WORK, period=_OBJECT),
    Kind("tenant-jobs", mark("Exports, imports and resets of tenants"), PSEUDONYMISE, (
        Table("tenant_job", {"actor": ID}, ("id", "kind", "state", "started_at", "ended_at")),
    ), reason=_WORK, period=A_DAY),
)  # fmt: skip

"""Tables of governance."""

import peewee

from appliance.core.db import JsonField, TenantModel


class ApprovalRow(TenantModel):
    """What an execution asks of people; `path`, `iteration`, `host_call` and `attempt` say where in it."""

    label = "approval"
    id = peewee.TextField()
    kind = peewee.TextField()  # approval | input | choice
    title = peewee.TextField()
    reason = peewee.TextField()
    details = JsonField(null=True)
    answer_schema = JsonField(null=True)
    choices = JsonField()
    approvers = JsonField()
    digest = peewee.TextField()  # SHA-256 of what is asked: the audit trail says what a decision was about
    status = peewee.TextField()  # pending | approved | rejected | answered | expired | cancelled
    execution_id = peewee.TextField()
    process_id = peewee.TextField()
    step = peewee.TextField()
    path = peewee.TextField()
    iteration = peewee.TextField()
    host_call = peewee.IntegerField()
    attempt = peewee.IntegerField()
    requested_by = peewee.TextField()  # the actor that started the execution, never an execution itself
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField(null=True)
    closed_at = peewee.BigIntegerField(null=True)
    decided_by = peewee.TextField(null=True)
    decided_login = peewee.TextField(null=True)
    answer = JsonField(null=True)
    comment = peewee.TextField()

    class Meta:
        table_name = "approval"
        primary_key = peewee.CompositeKey("tenant_id", "id")

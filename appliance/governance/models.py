"""Tables of governance."""

import peewee

from appliance.core.database.db import JsonField, TenantModel


class ApprovalRow(TenantModel):
    """What is asked of people; `path`, `iteration`, `host_call` and `attempt` say where in the execution that asks, if one does."""

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
    status = peewee.TextField()  # pending | approved | used | rejected | answered | expired | cancelled
    execution_id = peewee.TextField(null=True)
    process_id = peewee.TextField()
    step = peewee.TextField()
    path = peewee.TextField()
    iteration = peewee.TextField()
    host_call = peewee.IntegerField()
    attempt = peewee.IntegerField()
    requested_by = peewee.TextField()  # the actor that began it all, never an execution or a run itself
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField(null=True)
    closed_at = peewee.BigIntegerField(null=True)
    decided_by = peewee.TextField(null=True)
    decided_login = peewee.TextField(null=True)
    answer = JsonField(null=True)
    comment = peewee.TextField()
    asked_by = peewee.TextField(default="")  # the actor that asked
    agent = peewee.TextField(default="")
    run_id = peewee.TextField(default="")
    needed = peewee.IntegerField(default=1)  # so many different people
    heading = peewee.TextField(default="")  # what is to be done, in our words
    summary = peewee.TextField(default="")
    action_digest = peewee.TextField(null=True)  # SHA-256 of the canonical action
    sealed = peewee.BlobField(null=True)  # the action
    policy = JsonField(null=True)  # what the policies said when it was asked
    idempotency_key = peewee.TextField(null=True)
    used_at = peewee.BigIntegerField(null=True)
    used_by = peewee.TextField(null=True)
    notified_at = peewee.BigIntegerField(null=True)  # when whoever may decide was told by e-mail

    class Meta:
        table_name = "approval"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class ApprovalVoteRow(TenantModel):
    """What one person decided."""

    label = "decision"
    approval_id = peewee.TextField()
    user_id = peewee.TextField()
    login = peewee.TextField()
    verdict = peewee.TextField()  # approve | reject | answer
    comment = peewee.TextField()
    at = peewee.BigIntegerField()

    class Meta:
        table_name = "approval_vote"
        primary_key = peewee.CompositeKey("tenant_id", "approval_id", "user_id")

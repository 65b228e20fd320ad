"""Tables of governance."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import SentenceField


class ApprovalRow(TenantModel):
    """A request to people; `path`, `iteration`, `host_call` and `attempt` locate the request within its execution, if any."""

    label = "approval"
    id = peewee.TextField()
    kind = peewee.TextField()  # approval | input | choice
    title = peewee.TextField()
    reason = SentenceField()
    details = JsonField(null=True)
    answer_schema = JsonField(null=True)
    choices = JsonField()
    approvers = JsonField()
    digest = peewee.TextField()  # SHA-256 of the request, so that the audit trail proves what a decision was about
    status = peewee.TextField()  # pending | approved | used | rejected | answered | expired | cancelled
    execution_id = peewee.TextField(null=True)
    process_id = peewee.TextField()
    step = peewee.TextField()
    path = peewee.TextField()
    iteration = peewee.TextField()
    host_call = peewee.IntegerField()
    attempt = peewee.IntegerField()
    requested_by = peewee.TextField()  # the actor that started the execution or run, never the execution or run itself
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField(null=True)
    closed_at = peewee.BigIntegerField(null=True)
    decided_by = peewee.TextField(null=True)
    decided_login = peewee.TextField(null=True)
    answer = JsonField(null=True)
    comment = peewee.TextField()
    asked_by = peewee.TextField(default="")  # the actor that made the request
    agent = peewee.TextField(default="")
    run_id = peewee.TextField(default="")
    needed = peewee.IntegerField(default=1)  # number of different people who must approve
    heading = peewee.TextField(default="")  # the action in the appliance's words
    summary = peewee.TextField(default="")
    action_digest = peewee.TextField(null=True)  # SHA-256 of the canonical action
    sealed = peewee.BlobField(null=True)  # the action
    policy = JsonField(null=True)  # the policies' decision at the time of the request
    idempotency_key = peewee.TextField(null=True)
    used_at = peewee.BigIntegerField(null=True)
    used_by = peewee.TextField(null=True)
    notified_at = peewee.BigIntegerField(null=True)  # when the people who may decide were notified by e-mail

    class Meta:
        table_name = "approval"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class ApprovalVoteRow(TenantModel):
    """One person's decision."""

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

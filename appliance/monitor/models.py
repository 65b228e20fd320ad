"""Database tables of the monitor."""

import peewee

from appliance.core.database.db import JsonField, PlatformModel, TenantModel
from appliance.core.database.sentence_fields import SentenceField


class LogLine(TenantModel):
    label = "log line"
    id = peewee.BigAutoField()
    at = peewee.BigIntegerField()
    level = peewee.IntegerField()  # a number, so that "warn and above" is a comparison
    source = peewee.TextField()
    message = peewee.TextField()
    fields = JsonField()
    execution_id = peewee.TextField(null=True)
    process_id = peewee.TextField(null=True)
    step = peewee.TextField(null=True)
    request_id = peewee.TextField(null=True)
    words = peewee.TextField(null=True)  # see core.full_text; None until the line is indexed


class FailureGroup(TenantModel):
    label = "failure"
    id = peewee.TextField()
    fingerprint = peewee.TextField()
    process_id = peewee.TextField()
    step = peewee.TextField()
    failure_class = peewee.TextField()
    code = peewee.TextField()
    message = SentenceField()
    state = peewee.TextField()  # open | acknowledged | resolved
    count = peewee.BigIntegerField()
    first_seen = peewee.BigIntegerField()
    last_seen = peewee.BigIntegerField()
    sample_execution_id = peewee.TextField()
    changed_at = peewee.BigIntegerField(null=True)
    changed_by = peewee.TextField(null=True)
    settled_at = peewee.BigIntegerField(null=True)  # failures until this time are resolved and not retried
    settled_before = peewee.BigIntegerField(null=True)  # the value before the last resolution, to undo it

    class Meta:
        table_name = "failure"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class FailureOccurrence(TenantModel):
    """A failed execution of a group; `retried_at` is set once it was retried from the group, or skipped as retried or deleted;
    `recovered_at` once a retry of it succeeded, or it was deleted."""

    label = "failed execution"
    failure_id = peewee.TextField()
    execution_id = peewee.TextField()
    at = peewee.BigIntegerField()
    retried_at = peewee.BigIntegerField(null=True)
    recovered_at = peewee.BigIntegerField(null=True)

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "failure_id", "execution_id")


class AuditEntry(TenantModel):
    """One link of the chain; `fields` is the exact text that was hashed."""

    label = "audit entry"
    seq = peewee.BigIntegerField()
    at = peewee.BigIntegerField()
    actor = peewee.TextField()
    action = peewee.TextField()
    subject = peewee.TextField()
    fields = peewee.TextField()
    previous_hash = peewee.TextField()
    hash = peewee.TextField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "seq")


class AuditChain(TenantModel):
    """Both ends of a tenant's chain: the point where retention cut it off, and its newest link."""

    label = "audit chain"
    base_seq = peewee.BigIntegerField()
    base_hash = peewee.TextField()
    last_seq = peewee.BigIntegerField()
    last_hash = peewee.TextField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id")


class AuditForwardRow(TenantModel):
    """How far a tenant's trail has been sent to a destination; the lease's holder sends it now."""

    label = "forwarded audit trail"
    destination = peewee.TextField()  # syslog | otlp
    seq = peewee.BigIntegerField()
    fence = peewee.IntegerField()
    lease_until = peewee.BigIntegerField()
    checkpoint_seq = peewee.BigIntegerField()  # the last entry that a checkpoint sent there vouches for
    checkpoint_at = peewee.BigIntegerField()
    rejected = peewee.BigIntegerField()  # records that it has refused for good
    rejected_first = peewee.BigIntegerField(default=0)  # unless all are acknowledged: they are among the entries from this one
    rejected_last = peewee.BigIntegerField(default=0)  # to this one
    rejected_at = peewee.BigIntegerField(default=0)  # when the last of them was refused
    rejected_reason = peewee.TextField(default="")  # what the destination said about it
    acknowledged = peewee.BigIntegerField(default=0)  # so many of them, an administrator has acknowledged

    class Meta:
        table_name = "audit_forward"
        primary_key = peewee.CompositeKey("tenant_id", "destination")


class AuditKeyRow(PlatformModel):
    """A key that signs audit trails; the newest signs now, an earlier one has only its public part."""

    number = peewee.IntegerField(primary_key=True)
    fingerprint = peewee.TextField()
    public_key = peewee.TextField()
    sealed = peewee.BlobField(null=True)
    made_at = peewee.BigIntegerField()

    class Meta:
        table_name = "audit_key"


class WebhookRow(TenantModel):
    """A webhook; `sealed` is the signing secret, `sealed_old` the previous one, which also signs until `old_until`."""

    label = "webhook"
    id = peewee.TextField()
    url = peewee.TextField()
    events = JsonField()
    description = peewee.TextField()
    state = peewee.TextField()  # active | disabled
    disabled_reason = peewee.TextField(null=True)
    sealed = peewee.BlobField()
    sealed_old = peewee.BlobField(null=True)
    old_until = peewee.BigIntegerField(null=True)
    failed_in_row = peewee.IntegerField()
    failing_since = peewee.BigIntegerField(null=True)
    last_success_at = peewee.BigIntegerField(null=True)
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        table_name = "webhook"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class DeliveryRow(TenantModel):
    """One message to one webhook; its id is the `webhook-id` of every attempt.

    `next_try_at` is set while it is pending; during an attempt it is the time after which the attempt counts as lost.
    """

    label = "delivery"
    id = peewee.TextField()
    webhook_id = peewee.TextField()
    event = peewee.TextField()
    payload = peewee.TextField()  # the exact text that is signed
    status = peewee.TextField()  # pending | succeeded | failed
    tries = peewee.IntegerField()
    attempts = JsonField()
    next_try_at = peewee.BigIntegerField(null=True)
    give_up_at = peewee.BigIntegerField()
    created_at = peewee.BigIntegerField()
    finished_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "webhook_delivery"
        primary_key = peewee.CompositeKey("tenant_id", "id")

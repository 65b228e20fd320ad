"""Tables of triggers: their state and their events."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField


class TriggerState(TenantModel):
    """One trigger of the published version; schedules and polls have a `next_due`, polls also a `cursor`."""

    label = "trigger"
    process_id = peewee.TextField()
    trigger_id = peewee.TextField()
    position = peewee.IntegerField()
    kind = peewee.TextField()
    settings = JsonField()
    digest = peewee.TextField()
    next_due = peewee.BigIntegerField(null=True)
    cursor = JsonField(null=True)
    failed_in_row = peewee.IntegerField()
    last_fired_at = peewee.BigIntegerField(null=True)
    last_execution_id = peewee.TextField(null=True)
    last_error = ErrorField(null=True)
    last_error_at = peewee.BigIntegerField(null=True)
    created_at = peewee.BigIntegerField()

    class Meta:
        table_name = "trigger_state"
        primary_key = peewee.CompositeKey("tenant_id", "process_id", "trigger_id")


class Firing(TenantModel):
    """One event of a trigger: `pending` until its execution is recorded (`started`), or `failed`, or `skipped`."""

    label = "firing"
    id = peewee.TextField()
    process_id = peewee.TextField()
    trigger_id = peewee.TextField()
    kind = peewee.TextField()
    event_key = peewee.TextField()
    status = peewee.TextField()
    at = peewee.BigIntegerField()
    due_at = peewee.BigIntegerField(null=True)
    event = JsonField(null=True)
    content = peewee.TextField(null=True)
    depth = peewee.IntegerField()
    attempts = peewee.IntegerField()
    next_try_at = peewee.BigIntegerField(null=True)
    execution_id = peewee.TextField(null=True)
    error = ErrorField(null=True)

    class Meta:
        table_name = "firing"
        primary_key = peewee.CompositeKey("tenant_id", "id")

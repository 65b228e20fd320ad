"""Tables of processes and executions; `store` writes step runs, the journal and events in plain SQL."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField


class Process(TenantModel):
    label = "process"
    id = peewee.TextField()
    name = peewee.TextField()
    definition = JsonField()
    files = JsonField()
    source = peewee.TextField()
    draft_digest = peewee.TextField()
    published_version = peewee.IntegerField(null=True)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()
    paused_at = peewee.BigIntegerField(null=True)

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "id")


class ProcessVersion(TenantModel):
    label = "version"
    process_id = peewee.TextField()
    version = peewee.IntegerField()
    definition = JsonField()
    files = JsonField()
    draft_digest = peewee.TextField()
    message = peewee.TextField()
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()
    grant_digest = peewee.TextField(null=True)
    allowed_until = peewee.BigIntegerField(null=True)

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "process_id", "version")


class Execution(TenantModel):
    label = "execution"
    id = peewee.TextField()
    process_id = peewee.TextField()
    version = peewee.IntegerField()
    status = peewee.TextField()
    wait_reason = peewee.TextField(null=True)
    waiting_for = JsonField(null=True)
    input = JsonField()
    output = JsonField(null=True)
    error = ErrorField(null=True)
    failure_class = peewee.TextField(null=True)
    failure_code = peewee.TextField(null=True)
    failed_step = peewee.TextField(null=True)
    label_text = peewee.TextField(null=True, column_name="label")
    first_label = peewee.TextField(null=True)
    retry_of = peewee.TextField(null=True)
    priority = peewee.IntegerField()
    idempotency = peewee.TextField(null=True)
    created_at = peewee.BigIntegerField()
    enqueued_at = peewee.BigIntegerField()
    started_at = peewee.BigIntegerField(null=True)
    finished_at = peewee.BigIntegerField(null=True)
    next_run_at = peewee.BigIntegerField(null=True)
    active_ms = peewee.BigIntegerField()
    owner = peewee.TextField(null=True)
    lease_until = peewee.BigIntegerField()
    fence = peewee.IntegerField()
    claims = peewee.IntegerField()
    cancel_requested = peewee.BooleanField()
    actor = peewee.TextField()
    request_id = peewee.TextField()
    parent = peewee.TextField(null=True)
    root = peewee.TextField(null=True)
    depth = peewee.IntegerField()
    aftermath = JsonField(null=True)
    handles = peewee.TextField(null=True)
    rank = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField(null=True)
    slot = peewee.TextField(null=True)
    slot_limit = peewee.IntegerField(null=True)
    slot_behaviour = peewee.TextField(null=True)
    tainted_by = JsonField(null=True)
    trace = peewee.TextField(null=True)

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "id")


class StepRunRow(TenantModel):
    label = "step run"
    execution_id = peewee.TextField()
    path = peewee.TextField()
    iteration = peewee.TextField()
    step = peewee.TextField()
    kind = peewee.TextField()
    status = peewee.TextField()
    attempt = peewee.IntegerField()
    result_source = peewee.TextField()
    state = JsonField(null=True)
    input = JsonField(null=True)
    output = JsonField(null=True)
    error = ErrorField(null=True)
    started_at = peewee.BigIntegerField(null=True)
    finished_at = peewee.BigIntegerField(null=True)
    next_run_at = peewee.BigIntegerField(null=True)
    undo_order = peewee.BigIntegerField(null=True)
    measured_by = peewee.TextField(null=True)

    class Meta:
        table_name = "step_run"
        primary_key = peewee.CompositeKey("tenant_id", "execution_id", "path", "iteration")


class JournalRow(TenantModel):
    label = "journal entry"
    execution_id = peewee.TextField()
    path = peewee.TextField()
    iteration = peewee.TextField()
    attempt = peewee.IntegerField()
    call = peewee.IntegerField()
    position = peewee.IntegerField()
    method = peewee.TextField()
    args = JsonField()
    ok = peewee.BooleanField()
    answer = JsonField(null=True)
    clock = JsonField()
    at = peewee.BigIntegerField()

    class Meta:
        table_name = "journal"
        primary_key = peewee.CompositeKey("tenant_id", "execution_id", "path", "iteration", "attempt", "call")


class EventRow(TenantModel):
    label = "event"
    id = peewee.AutoField()
    execution_id = peewee.TextField()
    at = peewee.BigIntegerField()
    type = peewee.TextField()
    data = JsonField()

    class Meta:
        table_name = "execution_event"


class SampleRow(TenantModel):
    label = "sample"
    process_id = peewee.TextField()
    name = peewee.TextField()
    input = JsonField()
    steps = JsonField()
    from_execution = peewee.TextField(null=True)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        table_name = "process_sample"
        primary_key = peewee.CompositeKey("tenant_id", "process_id", "name")


class InputValueRow(TenantModel):
    label = "value"
    execution_id = peewee.TextField()
    number = peewee.IntegerField()
    path = peewee.TextField()
    value = peewee.TextField()

    class Meta:
        table_name = "execution_input"
        primary_key = peewee.CompositeKey("tenant_id", "execution_id", "number")

"""Database tables of agents and their runs."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField


class AgentRow(TenantModel):
    label = "agent"
    id = peewee.TextField()
    name = peewee.TextField()
    version = peewee.IntegerField()
    digest = peewee.TextField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        table_name = "agent"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class AgentVersionRow(TenantModel):
    label = "version"
    agent_id = peewee.TextField()
    version = peewee.IntegerField()
    definition = JsonField()
    digest = peewee.TextField()
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()

    class Meta:
        table_name = "agent_version"
        primary_key = peewee.CompositeKey("tenant_id", "agent_id", "version")


class AgentRunRow(TenantModel):
    """A run of an agent; `actor` and `scopes` are those of its starter and bound everything it does.

    For a run that a step started, the columns from `execution_id` to `attempt` are its unique place in the execution, and
    `granted` holds the grants it is limited to.
    """

    label = "run"
    id = peewee.TextField()
    agent_id = peewee.TextField()
    version = peewee.IntegerField()
    status = peewee.TextField()  # queued | running | waiting | succeeded | failed | cancelled
    waiting_for = JsonField(null=True)
    input = JsonField()
    output = JsonField(null=True)
    error = ErrorField(null=True)
    turns = peewee.IntegerField()
    tool_calls = peewee.IntegerField()
    input_tokens = peewee.BigIntegerField()
    output_tokens = peewee.BigIntegerField()
    cost_nano = peewee.BigIntegerField()
    skills = JsonField()
    tainted_by = JsonField()
    idempotency = peewee.TextField(null=True)
    created_at = peewee.BigIntegerField()
    started_at = peewee.BigIntegerField(null=True)
    finished_at = peewee.BigIntegerField(null=True)
    next_run_at = peewee.BigIntegerField(null=True)
    measured_by = peewee.TextField(null=True)
    active_ms = peewee.BigIntegerField()
    owner = peewee.TextField(null=True)
    lease_until = peewee.BigIntegerField()
    fence = peewee.IntegerField()
    claims = peewee.IntegerField()
    cancel_requested = peewee.BooleanField()
    actor = peewee.TextField()
    scopes = JsonField()
    request_id = peewee.TextField()
    execution_id = peewee.TextField(null=True)
    process_id = peewee.TextField(null=True)
    step = peewee.TextField(null=True)
    path = peewee.TextField(null=True)
    iteration = peewee.TextField(null=True)
    attempt = peewee.IntegerField(null=True)
    granted = JsonField(null=True)

    class Meta:
        table_name = "agent_run"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class AgentJournalRow(TenantModel):
    """One entry of a run's journal; `call` counts the tool calls of a turn from 1, and is 0 for the turn itself."""

    label = "entry"
    run_id = peewee.TextField()
    number = peewee.IntegerField()
    kind = peewee.TextField()
    turn = peewee.IntegerField()
    call = peewee.IntegerField()
    data = JsonField()
    at = peewee.BigIntegerField()

    class Meta:
        table_name = "agent_journal"
        primary_key = peewee.CompositeKey("tenant_id", "run_id", "number")

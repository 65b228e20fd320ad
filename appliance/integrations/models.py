"""Database tables of integrations and their calls."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class IntegrationRow(TenantModel):
    label = "integration"
    id = peewee.TextField()  # the slug
    name = peewee.TextField()
    connector = peewee.TextField()
    settings = JsonField()  # secrets replaced by markers
    sealed = peewee.BlobField()  # the secrets by pointer, sealed together
    version = peewee.IntegerField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()
    checked_at = peewee.BigIntegerField(null=True)
    check_ok = peewee.IntegerField(null=True)
    check_message = peewee.TextField(null=True)
    concurrency = peewee.IntegerField()  # calls that run at once

    class Meta:
        table_name = "integration"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class SlotRow(TenantModel):
    """A call that has a slot of its integration, or waits for one until it is `granted`; free again at `until` at the latest."""

    label = "call slot"
    id = peewee.TextField()
    integration_id = peewee.TextField()
    granted = peewee.IntegerField()
    created_at = peewee.BigIntegerField()
    owner = peewee.TextField()  # the process
    until = peewee.BigIntegerField()

    class Meta:
        table_name = "integration_slot"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class CallRow(TenantModel):
    """One call; `sent_key` is the idempotency key sent to the foreign system, `pending` the sealed input while queued."""

    label = "integration call"
    id = peewee.TextField()
    integration_id = peewee.TextField()
    connector = peewee.TextField()
    action = peewee.TextField()
    effect = peewee.TextField()
    status = peewee.TextField()  # queued | running | waiting (for a person: outcome unknown) | succeeded | failed
    outcome = peewee.TextField(null=True)  # done | not_done | unknown
    input = JsonField(null=True)
    output = JsonField(null=True)
    output_kept = peewee.IntegerField()  # 0 if the output was too large to store
    error = ErrorField(null=True)
    idempotency_key = peewee.TextField(null=True)
    request_digest = peewee.TextField()
    sent_key = peewee.TextField()
    pending = peewee.BlobField(null=True)
    actor = peewee.TextField()
    request_id = peewee.TextField()
    execution_id = peewee.TextField(null=True)
    path = peewee.TextField(null=True)
    iteration = peewee.TextField(null=True)
    attempt = peewee.IntegerField(null=True)
    host_call = peewee.IntegerField(null=True)
    tries = peewee.IntegerField()
    owner = peewee.TextField()
    approval_id = peewee.TextField(null=True)  # the approval used for it
    decision = JsonField(null=True)  # the policies' decision, with its subject
    retry_of = peewee.TextField(null=True)  # the call that this one retries
    traffic = JsonField(null=True)  # {hosts, requests?, sent_bytes?, received_bytes?}
    deadline_at = peewee.BigIntegerField()
    created_at = peewee.BigIntegerField()
    started_at = peewee.BigIntegerField(null=True)
    finished_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "integration_call"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class CircuitRow(TenantModel):
    """The circuit of an integration's foreign system; no row in its initial state.  Times in epoch ms."""

    label = "integration circuit"
    integration_id = peewee.TextField()
    failures = peewee.IntegerField()
    openings = peewee.IntegerField()
    open_until = peewee.BigIntegerField(null=True)
    probing_until = peewee.BigIntegerField(null=True)
    held_until = peewee.BigIntegerField(null=True)
    reason = SentenceField()
    changed_at = peewee.BigIntegerField()

    class Meta:
        table_name = "integration_circuit"
        primary_key = peewee.CompositeKey("tenant_id", "integration_id")


class DiscoveryRow(TenantModel):
    """The latest discovery of an integration's actions; `basis` is the digest of connector and settings."""

    label = "discovery"
    integration_id = peewee.TextField()
    basis = peewee.TextField()
    digest = peewee.TextField()
    discovered_at = peewee.BigIntegerField()

    class Meta:
        table_name = "integration_discovery"
        primary_key = peewee.CompositeKey("tenant_id", "integration_id")


class ActionRow(TenantModel):
    """One discovered action; `packed` is compressed JSON of its schemas, sample and plan, `withheld` the reason if not offered."""

    label = "action"
    integration_id = peewee.TextField()
    name = peewee.TextField()
    summary = peewee.TextField()
    effect = peewee.TextField()
    packed = peewee.BlobField()
    withheld = peewee.TextField(default="")

    class Meta:
        table_name = "integration_action"
        primary_key = peewee.CompositeKey("tenant_id", "integration_id", "name")


class TokenRow(TenantModel):
    """OAuth 2 tokens of an integration; `generation` counts renewals, the lease's owner may renew them."""

    label = "integration token"
    integration_id = peewee.TextField()
    audience = peewee.TextField()  # digest of the audience of the tokens
    sealed = peewee.BlobField()
    renew_at = peewee.BigIntegerField(null=True)
    generation = peewee.IntegerField()
    problem = SentenceField()
    lease_owner = peewee.TextField()
    lease_until = peewee.BigIntegerField()
    connected_by = peewee.TextField()
    connected_at = peewee.BigIntegerField(null=True)
    renewed_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "integration_token"
        primary_key = peewee.CompositeKey("tenant_id", "integration_id")


class ConsentRow(TenantModel):
    """A pending consent; `digest` is that of the state, `session` that of the browser's session, if bound."""

    label = "consent"
    digest = peewee.TextField()
    integration_id = peewee.TextField()
    audience = peewee.TextField()
    sealed = peewee.BlobField()  # the code verifier
    redirect_uri = peewee.TextField()
    session = peewee.TextField()
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "integration_consent"
        primary_key = peewee.CompositeKey("tenant_id", "digest")

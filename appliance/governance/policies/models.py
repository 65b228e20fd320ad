"""Tables of policies."""

import peewee

from appliance.core.database.db import JsonField, TenantModel


class PolicyRow(TenantModel):
    """A policy: its draft, and the number of its active version."""

    label = "policy"
    id = peewee.TextField()  # the name
    draft = JsonField()
    draft_digest = peewee.TextField()
    active_version = peewee.IntegerField(null=True)
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()
    updated_at = peewee.BigIntegerField()
    updated_by = peewee.TextField()

    class Meta:
        table_name = "policy"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class PolicyVersionRow(TenantModel):
    """A version: its content never changes; `activated_at` is when it was last activated."""

    label = "policy version"
    policy_id = peewee.TextField()
    number = peewee.IntegerField()
    document = JsonField()
    digest = peewee.TextField()
    mode = peewee.TextField()
    message = peewee.TextField()
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()
    activated_at = peewee.BigIntegerField(null=True)
    activated_by = peewee.TextField(null=True)

    class Meta:
        table_name = "policy_version"
        primary_key = peewee.CompositeKey("tenant_id", "policy_id", "number")

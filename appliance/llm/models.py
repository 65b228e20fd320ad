"""The table of LLM profiles."""

import peewee

from appliance.core.database.db import JsonField, TenantModel


class ProfileRow(TenantModel):
    """`settings` is the profile without its key; `sealed` is the key, or `reference` the name of the secret to use as the key."""

    label = "LLM profile"
    id = peewee.TextField()  # the slug
    settings = JsonField()
    sealed = peewee.BlobField(null=True)
    reference = peewee.TextField(null=True)
    key_at = peewee.BigIntegerField(null=True)
    version = peewee.IntegerField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        table_name = "llm_profile"
        primary_key = peewee.CompositeKey("tenant_id", "id")

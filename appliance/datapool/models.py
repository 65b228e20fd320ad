"""The database model of collections."""

from peewee import BigIntegerField, CompositeKey, TextField

from appliance.core.database.db import JsonField, TenantModel


class Collection(TenantModel):
    """A collection: its definition and the name of the table with its entities."""

    label = "collection"
    name = TextField()
    definition = JsonField()
    table_name = TextField()
    stamp = TextField()
    version = BigIntegerField()
    created_at = BigIntegerField()
    updated_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "name")
        table_name = "collection"

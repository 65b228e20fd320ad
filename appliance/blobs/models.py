"""The row of a blob."""

from peewee import BigIntegerField, CompositeKey, TextField

from appliance.core.database.db import TenantModel


class Blob(TenantModel):
    """A stored content: `place` is its path in the store, `touched_at` when it was last stored or held."""

    label = "blob"
    sha256 = TextField()
    size = BigIntegerField()
    place = TextField()
    touched_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "sha256")
        table_name = "blob"

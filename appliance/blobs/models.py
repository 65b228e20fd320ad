"""The rows of blobs."""

from peewee import BigIntegerField, CompositeKey, TextField

from appliance.core.database.db import PlatformModel, TenantModel


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


class DeletedPlace(PlatformModel):
    """A place in the store that no row names since `deleted_at`, kept for `blobs.keep_deleted`."""

    place = TextField(primary_key=True)
    deleted_at = BigIntegerField()

    class Meta:
        table_name = "blob_deleted"

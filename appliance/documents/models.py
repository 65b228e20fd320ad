"""The rows of documents."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.db import TenantModel


class DocumentRow(TenantModel):
    """A document with what its newest revision holds; `version` counts every change of it."""

    label = "document"
    id = TextField()
    name = TextField()
    folder = TextField()
    media_type = TextField()
    size = BigIntegerField()
    sha256 = TextField()
    revision = IntegerField()
    version = IntegerField()
    created_at = BigIntegerField()
    created_by = TextField()
    updated_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "document"


class DocumentTag(TenantModel):
    label = "tag"
    document_id = TextField()
    tag = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id", "tag")
        table_name = "document_tag"


class DocumentRevision(TenantModel):
    """One content of a document; never changed."""

    label = "revision"
    document_id = TextField()
    number = IntegerField()
    sha256 = TextField()
    size = BigIntegerField()
    media_type = TextField()
    comment = TextField()
    created_at = BigIntegerField()
    created_by = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id", "number")
        table_name = "document_revision"

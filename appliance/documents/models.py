"""Database rows of documents."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class DocumentRow(TenantModel):
    """A document with the data of its newest revision; `version` counts every change."""

    label = "document"
    id = TextField()
    name = TextField()
    folder = TextField()
    media_type = TextField()
    size = BigIntegerField()
    sha256 = TextField()
    revision = IntegerField()
    version = IntegerField()
    metadata = JsonField()
    created_at = BigIntegerField()
    created_by = TextField()
    updated_at = BigIntegerField()
    number = BigIntegerField()  # unique across tenants; the index of names has it

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
    """One revision of a document's content; never changed, apart from its media type."""

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


class DocumentMetadata(TenantModel):
    """A metadata field that can be used as a filter; `value` is its canonical JSON."""

    label = "metadata"
    document_id = TextField()
    name = TextField()
    value = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id", "name")
        table_name = "document_metadata"


class UploadRow(TenantModel):
    """A resumable upload; `document_id` is the document it continues, or the one it created once `state` is done."""

    label = "upload"
    id = TextField()
    document_id = TextField(null=True)
    name = TextField()
    folder = TextField()
    tags = JsonField()
    metadata = JsonField()
    media_type = TextField(null=True)
    comment = TextField()
    size = BigIntegerField()
    sha256 = TextField(null=True)
    received = BigIntegerField()
    state = TextField()  # open | done | refused
    revision = IntegerField(null=True)
    created_at = BigIntegerField()
    created_by = TextField()
    expires_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "document_upload"


class UploadPart(TenantModel):
    """A part of an upload, starting at the byte `begins`."""

    label = "part"
    upload_id = TextField()
    begins = BigIntegerField()
    sha256 = TextField()
    size = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "upload_id", "begins")
        table_name = "document_upload_part"

"""The rows of documents."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


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
    metadata = JsonField()
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


class DocumentMetadata(TenantModel):
    """A member of a document's metadata that can be asked for; `value` is its JSON."""

    label = "metadata"
    document_id = TextField()
    name = TextField()
    value = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id", "name")
        table_name = "document_metadata"


class UploadRow(TenantModel):
    """An upload in parts: `document_id` is the document it continues, or has become once `state` is done."""

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
    """Bytes of an upload from `begins` on."""

    label = "part"
    upload_id = TextField()
    begins = BigIntegerField()
    sha256 = TextField()
    size = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "upload_id", "begins")
        table_name = "document_upload_part"

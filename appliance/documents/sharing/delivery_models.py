"""The rows of what leaves, and of what keeps a document from leaving."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class PublicationRow(TenantModel):
    """Where a document is public; `revision` is a number, `latest` or `latest_approved`."""

    label = "publication"
    document_id = TextField()
    path = TextField()
    revision = TextField()
    cache = TextField()
    created_at = BigIntegerField()
    created_by = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id")
        table_name = "document_publication"


class ShareRow(TenantModel):
    """A governed link; `digest` stands for its token, which is not kept, `audience_number` counts the changes of its audience."""

    label = "share"
    id = TextField()
    document_id = TextField()
    digest = BlobField()
    revision = TextField()
    expires_at = BigIntegerField()
    password_hash = TextField(null=True)
    max_downloads = IntegerField(null=True)
    downloads = IntegerField()
    note = TextField()
    created_at = BigIntegerField()
    created_by = TextField()
    revoked_at = BigIntegerField(null=True)
    audience = JsonField(null=True)
    audience_number = IntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "document_share"


class DownloadRow(TenantModel):
    """One download through a share; without a share, the public deliveries of one minute together."""

    label = "download"
    id = TextField()
    document_id = TextField()
    share_id = TextField(null=True)
    at = BigIntegerField()
    revision = IntegerField()
    count = IntegerField()
    bytes = BigIntegerField()
    address = TextField()
    agent = TextField()
    outcome = TextField()
    person = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "document_download"


class FolderRuleRow(TenantModel):
    """What holds for a folder and all below it; the root is empty."""

    label = "folder rule"
    folder = TextField()
    review = TextField()
    delete_after_days = IntegerField(null=True)
    updated_at = BigIntegerField()
    updated_by = TextField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "folder")
        table_name = "folder_rule"


class KeepingRow(TenantModel):
    """Until when a document stays, and the legal hold it is under."""

    label = "retention"
    document_id = TextField()
    retain_until = BigIntegerField(null=True)
    hold_reason = TextField(null=True)
    held_at = BigIntegerField(null=True)
    held_by = TextField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "document_id")
        table_name = "document_keeping"


class ScanRow(TenantModel):
    """What the scanner said of a content: `clean`, `quarantined` (it could not say) or `infected`."""

    label = "scan"
    sha256 = TextField()
    state = TextField()
    finding = TextField()
    scanned_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "sha256")
        table_name = "document_scan"

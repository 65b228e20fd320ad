"""Database rows of delivery, folder rules, retention and malware scans."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class PublicationRow(TenantModel):
    """The public path of a document; `revision` is a number, `latest` or `latest_approved`."""

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
    """A share link. `digest` is the keyed hash of its token, which is not stored; `audience_number` counts changes of the
    audience."""

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
    """A download through a share, or the public deliveries of a document in one minute."""

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
    """The rule of a folder and everything below it; the root is empty."""

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
    """The retention date of a document, and its legal hold."""

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
    """The scan state of a content: `clean`, `quarantined` (result unknown) or `infected`."""

    label = "scan"
    sha256 = TextField()
    state = TextField()
    finding = TextField()
    scanned_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "sha256")
        table_name = "document_scan"

"""Database rows of WebApps."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class WebAppRow(TenantModel):
    """A WebApp. `last_version` is the last number assigned, `published_version` the one served; `grant_digest` and
    `allowed_until` are described in `served_grants`; `forms` counts how often encoded forms were added."""

    label = "WebApp"
    id = TextField()
    name = TextField()
    description = TextField()
    published_version = IntegerField(null=True)
    last_version = IntegerField()
    grant_digest = TextField(null=True)
    allowed_until = BigIntegerField(null=True)
    forms = IntegerField(default=0)
    created_at = BigIntegerField()
    updated_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "webapp"


class VersionRow(TenantModel):
    """One version; `state` is uploading, ready or failed. Published and superseded follow from what is published."""

    label = "version"
    app_id = TextField()
    number = IntegerField()
    state = TextField()
    message = TextField()
    source = JsonField()
    settings = JsonField()
    rules = JsonField()
    files = IntegerField()
    bytes = BigIntegerField()
    reason = SentenceField(null=True)
    created_at = BigIntegerField()
    created_by = TextField()
    published_at = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "app_id", "number")
        table_name = "webapp_version"


class PublicationRow(TenantModel):
    """The latest publication of a version with its checks. `before_at` is when the version was published before, `fence` counts
    the claims."""

    label = "publication"
    app_id = TextField()
    number = IntegerField()
    state = TextField()
    previous = IntegerField()
    before_at = BigIntegerField(null=True)
    checks = ErrorField()
    reason = SentenceField(null=True)
    started_by = TextField()
    owner = TextField()
    fence = IntegerField()
    claims = IntegerField()
    lease_until = BigIntegerField()
    started_at = BigIntegerField()
    ended_at = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "app_id", "number")
        table_name = "webapp_publication"


class FileRow(TenantModel):
    """One file of a version."""

    label = "file"
    app_id = TextField()
    number = IntegerField()
    path = TextField()
    sha256 = TextField()
    size = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "app_id", "number", "path")
        table_name = "webapp_file"


class FormRow(TenantModel):
    """An encoding of a content. The row `identity` means that the content was checked; `pending` 1 means that strong
    compression is still to be done."""

    label = "form"
    app_id = TextField()
    content = TextField()
    encoding = TextField()
    sha256 = TextField()
    size = BigIntegerField()
    pending = IntegerField(default=0)

    class Meta:
        primary_key = CompositeKey("tenant_id", "app_id", "content", "encoding")
        table_name = "webapp_form"


class VisitRow(TenantModel):
    """One browser session of an app; `grounds` is the digest of what was proven, so that the session ends when that changes."""

    label = "visit"
    id = TextField()
    app_id = TextField()
    digest = BlobField()
    kind = TextField()  # password | member | user
    subject = TextField()
    email = TextField()
    grounds = TextField()
    created_at = BigIntegerField()
    seen_at = BigIntegerField()
    expires_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "webapp_visit"


class SignInRow(TenantModel):
    """The one-time code with which a member opens an app, issued by the base host."""

    label = "sign-in"
    id = TextField()
    app_id = TextField()
    kind = TextField()  # member
    subject = TextField()
    digest = BlobField()
    state = TextField()  # given
    tries = IntegerField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "webapp_sign_in"

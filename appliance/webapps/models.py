"""The rows of WebApps."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class WebAppRow(TenantModel):
    """A WebApp; `last_version` is the number given last, `published_version` the one that is served, under which grant and until
    when `served_grants` says, `forms` how often further forms of its contents came."""

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
    """One set of files; `state` is uploading, ready or failed, the rest follows from what is published."""

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
    reason = TextField(null=True)
    created_at = BigIntegerField()
    created_by = TextField()
    published_at = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "app_id", "number")
        table_name = "webapp_version"


class PublicationRow(TenantModel):
    """The latest publishing of a version with its checks; `before_at` is when the version had been published before, `fence`
    counts the claims."""

    label = "publication"
    app_id = TextField()
    number = IntegerField()
    state = TextField()
    previous = IntegerField()
    before_at = BigIntegerField(null=True)
    checks = JsonField()
    reason = TextField(null=True)
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
    """A content as it is sent: itself (`identity`), which says that it has been looked at, and with `pending` 1 that it is still to
    be compressed as small as can be; or compressed."""

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
    """One browser's way into an app; `grounds` are what was proven, so that a visit ends when that no longer counts."""

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
    """What a member must bring to get in: the code that the base host gave."""

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

"""Database tables of tenants, people and credentials."""

import peewee

from appliance.core.database.db import JsonField, PlatformModel, TenantModel
from appliance.core.database.sentence_fields import SentenceField


class Tenant(PlatformModel):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField()
    kind = peewee.TextField()  # standard | sandbox
    created_at = peewee.BigIntegerField()


class Person(PlatformModel):
    id = peewee.TextField(primary_key=True)
    login = peewee.TextField(unique=True)
    password_hash = peewee.TextField()
    created_at = peewee.BigIntegerField()
    language = peewee.TextField()  # empty: the browser's preference


class Membership(PlatformModel):
    tenant_id = peewee.TextField()
    user_id = peewee.TextField()
    role = peewee.TextField()
    approver = peewee.BooleanField()
    created_at = peewee.BigIntegerField()
    steps_hidden_at = peewee.BigIntegerField(null=True)

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "user_id")


class InvitationRow(PlatformModel):
    """Looked up by its digest before the tenant is known; every other access filters by tenant."""

    id = peewee.TextField(primary_key=True)
    tenant_id = peewee.TextField()
    login = peewee.TextField()
    role = peewee.TextField()
    approver = peewee.BooleanField()
    digest = peewee.BlobField()
    state = peewee.TextField()  # link | sending | sent | failed
    problem = SentenceField()
    invited_by = peewee.TextField()
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "invitation"


class Session(PlatformModel):
    """A browser's session on one host (`kind` is `session`), or a one-time code, whose `kind` is its `sessions.Purpose`."""

    digest = peewee.BlobField(primary_key=True)
    user_id = peewee.TextField()
    tenant_id = peewee.TextField(null=True)
    kind = peewee.TextField()
    root = peewee.TextField()  # the sign-in it belongs to; empty in rows older than this column
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()


class ApiKey(PlatformModel):
    """Looked up by its digest before the tenant is known; every other access filters by tenant."""

    id = peewee.TextField(primary_key=True)
    tenant_id = peewee.TextField()
    digest = peewee.BlobField()
    name = peewee.TextField()
    environment = peewee.TextField()
    prefix = peewee.TextField()
    last4 = peewee.TextField()
    scopes = JsonField()
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()
    rate_requests = peewee.IntegerField()
    rate_window_s = peewee.IntegerField()
    allowed_ips = JsonField()
    created_by = peewee.TextField()
    issuer = peewee.TextField()  # whose permissions limit it
    orphaned_at = peewee.BigIntegerField(null=True)  # when the issuer was removed
    orphan_until = peewee.BigIntegerField(null=True)  # how long it works without an issuer
    last_used_at = peewee.BigIntegerField(null=True)
    rotated_from = peewee.TextField(null=True)
    grace_until = peewee.BigIntegerField(null=True)
    revoked_at = peewee.BigIntegerField(null=True)
    kind = peewee.TextField(default="service")  # service | agent


class Secret(TenantModel):
    label = "secret"
    name = peewee.TextField()
    sealed = peewee.BlobField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "name")


class SecretBindingRow(TenantModel):
    """A place a secret may be used; without a `digest`, the integration as long as it calls exactly these `hosts`."""

    label = "destination"
    name = peewee.TextField()  # of the secret, which need not be set yet
    kind = peewee.TextField()
    target = peewee.TextField()
    digest = peewee.TextField()
    hosts = peewee.TextField()
    bound_by = peewee.TextField()
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "secret_binding"
        primary_key = peewee.CompositeKey("tenant_id", "name", "kind", "target", "digest", "hosts")


class Idempotency(TenantModel):
    label = "idempotency record"
    caller = peewee.TextField()
    key = peewee.TextField()
    method = peewee.TextField()
    path = peewee.TextField()
    body_digest = peewee.BlobField()
    state = peewee.TextField()  # running | done
    owner = peewee.TextField()
    status = peewee.IntegerField(null=True)
    headers = JsonField(null=True)
    answer = peewee.TextField(null=True)
    created_at = peewee.BigIntegerField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "caller", "key", "method", "path")


class ConfirmationRow(TenantModel):
    label = "confirmation"
    id = peewee.TextField()
    kind = peewee.TextField()  # key | grant | secret
    subject = peewee.TextField()
    digest = peewee.TextField()
    details = JsonField()
    requested_by = peewee.TextField()
    requested_root = peewee.TextField()
    created_at = peewee.BigIntegerField()
    deadline = peewee.BigIntegerField(null=True)
    state = peewee.TextField()  # open | confirmed | refused
    decided_by = peewee.TextField(null=True)
    decided_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "confirmation"
        primary_key = peewee.CompositeKey("tenant_id", "id")

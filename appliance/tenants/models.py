"""Tables of tenants, people and credentials."""

import peewee

from appliance.core.db import JsonField, PlatformModel, TenantModel


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
    failed_count = peewee.IntegerField()
    locked_until = peewee.BigIntegerField()
    language = peewee.TextField()  # empty: what the browser asks for


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
    """Found by its digest before the tenant is known; every other access filters by tenant."""

    id = peewee.TextField(primary_key=True)
    tenant_id = peewee.TextField()
    login = peewee.TextField()
    role = peewee.TextField()
    approver = peewee.BooleanField()
    digest = peewee.BlobField()
    state = peewee.TextField()  # link | sending | sent | failed
    problem = peewee.TextField()
    invited_by = peewee.TextField()
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "invitation"


class Session(PlatformModel):
    """A browser's session on one host (`kind` session) or a one-time code on the way to a tenant host (`code`)."""

    digest = peewee.BlobField(primary_key=True)
    user_id = peewee.TextField()
    tenant_id = peewee.TextField(null=True)
    kind = peewee.TextField()
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()


class ApiKey(PlatformModel):
    """Found by its digest before the tenant is known; every other access filters by tenant."""

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
    last_used_at = peewee.BigIntegerField(null=True)
    rotated_from = peewee.TextField(null=True)
    grace_until = peewee.BigIntegerField(null=True)
    revoked_at = peewee.BigIntegerField(null=True)


class Secret(TenantModel):
    label = "secret"
    name = peewee.TextField()
    sealed = peewee.BlobField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "name")


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

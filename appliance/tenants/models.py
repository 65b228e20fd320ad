"""Database tables of tenants, people and credentials."""

import peewee

from appliance.core.database.db import JsonField, PlatformModel, TenantModel
from appliance.core.database.sentence_fields import SentenceField


class Tenant(PlatformModel):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField()
    kind = peewee.TextField()  # standard | sandbox
    created_at = peewee.BigIntegerField()
    closed_at = peewee.BigIntegerField(null=True)  # it is being deleted or imported
    reset_at = peewee.BigIntegerField(null=True)  # it is being reset, since then; negative: its last reset ended then

    @property
    def is_being_reset(self) -> bool:
        return (self.reset_at or 0) > 0


class Person(PlatformModel):
    id = peewee.TextField(primary_key=True)
    login = peewee.TextField(unique=True)
    password_hash = peewee.TextField()
    created_at = peewee.BigIntegerField()
    language = peewee.TextField()  # empty: the browser's preference
    disabled_at = peewee.BigIntegerField(null=True)
    password_expires_at = peewee.BigIntegerField(null=True)  # of a temporary password, which the first sign-in replaces


class DeletedPerson(PlatformModel):
    """The login that a deleted account had; another account may have it now, under another id."""

    id = peewee.TextField(primary_key=True)
    login = peewee.TextField()
    deleted_at = peewee.BigIntegerField()

    class Meta:
        table_name = "deleted_person"


class Membership(PlatformModel):
    tenant_id = peewee.TextField()
    user_id = peewee.TextField()
    role = peewee.TextField()
    approver = peewee.BooleanField()
    created_at = peewee.BigIntegerField()
    steps_hidden_at = peewee.BigIntegerField(null=True)
    source = peewee.TextField(default="")  # the identity provider whose groups gave it; empty: given by hand

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "user_id")


class PersonIdentity(PlatformModel):
    """An account at an identity provider, and the person that it identifies."""

    issuer = peewee.TextField()
    subject = peewee.TextField()
    user_id = peewee.TextField()
    provider = peewee.TextField()  # its id in the configuration at the last sign-in
    created_at = peewee.BigIntegerField()
    used_at = peewee.BigIntegerField()
    disabled_at = peewee.BigIntegerField(null=True)  # that of the account, if a directory disabled it

    class Meta:
        primary_key = peewee.CompositeKey("issuer", "subject")


class DirectoryCheckRow(PlatformModel):
    """When the people of a directory are looked up next, and what was wrong the last time."""

    directory = peewee.TextField(primary_key=True)
    due_at = peewee.BigIntegerField()
    problem = peewee.TextField()

    class Meta:
        table_name = "directory_check"


class ProviderSignIn(PlatformModel):
    """A sign-in with an identity provider, which the provider can end; `sid` is its id there, or empty."""

    root = peewee.TextField(primary_key=True)  # that of the sessions
    user_id = peewee.TextField()
    issuer = peewee.TextField()
    subject = peewee.TextField()
    sid = peewee.TextField()
    strong = peewee.BooleanField()  # whether it counts for `second_factor.required_for`
    created_at = peewee.BigIntegerField()


class LogoutTokenRow(PlatformModel):
    """A logout token that was used, and must not be used again."""

    issuer = peewee.TextField()
    token_id = peewee.TextField()
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "logout_token"
        primary_key = peewee.CompositeKey("issuer", "token_id")


class ScimToken(PlatformModel):
    """What an identity provider authenticates with when it provisions people."""

    id = peewee.TextField(primary_key=True)
    provider = peewee.TextField()
    digest = peewee.BlobField()
    last4 = peewee.TextField()
    created_at = peewee.BigIntegerField()
    last_used_at = peewee.BigIntegerField(null=True)
    revoked_at = peewee.BigIntegerField(null=True)
    expires_at = peewee.BigIntegerField(null=True)
    rotated_from = peewee.TextField(null=True)


class ScimUser(PlatformModel):
    """A person whom an identity provider has provisioned; their login is `user_name` in lower case."""

    user_id = peewee.TextField(primary_key=True)
    provider = peewee.TextField()
    user_name = peewee.TextField()
    external_id = peewee.TextField(null=True)
    active = peewee.BooleanField()
    attributes = JsonField()  # what else the provider may read again, by its name in the schema
    disabled_at = peewee.BigIntegerField(null=True)  # that of the account, if the provider disabled it
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()
    version = peewee.IntegerField()


class ScimGroup(PlatformModel):
    """A group that an identity provider has provisioned; `name_key` is its name without regard to case."""

    id = peewee.TextField(primary_key=True)
    provider = peewee.TextField()
    display_name = peewee.TextField()
    name_key = peewee.TextField()
    external_id = peewee.TextField(null=True)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()
    version = peewee.IntegerField()


class ScimMember(PlatformModel):
    """A person in a provisioned group."""

    group_id = peewee.TextField()
    user_id = peewee.TextField()

    class Meta:
        primary_key = peewee.CompositeKey("group_id", "user_id")


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
    browser = peewee.TextField(default="")
    system = peewee.TextField(default="")
    address = peewee.TextField(default="")  # at the sign-in, or at the hand-over to a tenant's host
    used_address = peewee.TextField(default="")
    used_at = peewee.BigIntegerField(default=0)  # 0 in rows older than this column
    proven_at = peewee.BigIntegerField(default=0)  # the last proof of who it is in this sign-in; 0: none that counts


class SecondFactorRow(PlatformModel):
    """A passkey, or an app that shows codes, which is `sealed`."""

    id = peewee.TextField(primary_key=True)
    user_id = peewee.TextField()
    kind = peewee.TextField()  # passkey | totp
    name = peewee.TextField()
    credential_id = peewee.BlobField(null=True)  # of a passkey
    public_key = peewee.BlobField(null=True)  # of a passkey, as COSE
    sealed = peewee.BlobField(null=True)  # the secret of an app
    counter = peewee.BigIntegerField()  # of signatures; of an app, the time step of the last code that was used
    created_at = peewee.BigIntegerField()
    used_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "second_factor"


class RecoveryCodeRow(PlatformModel):
    """The keyed digest of a code that signs in once, in place of a factor."""

    digest = peewee.BlobField(primary_key=True)
    user_id = peewee.TextField()
    created_at = peewee.BigIntegerField()
    used_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "recovery_code"


class UsedChallengeRow(PlatformModel):
    """A challenge that a passkey has signed, and that must not be accepted again."""

    digest = peewee.BlobField(primary_key=True)
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "used_challenge"


class StepUpRow(PlatformModel):
    """A form that waits until its sender has proven who they are; without a tenant, a page of the base host."""

    digest = peewee.BlobField(primary_key=True)
    user_id = peewee.TextField()
    root = peewee.TextField()  # the sign-in that sent it
    tenant_id = peewee.TextField(null=True)
    target = peewee.TextField()  # its path and query
    form = peewee.TextField()  # sealed; empty for a page without a form
    proven_by = peewee.TextField(default="")  # the method of the proof that came back for it
    created_at = peewee.BigIntegerField()
    expires_at = peewee.BigIntegerField()
    sent_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "step_up"


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
    daily_requests = peewee.BigIntegerField(null=True)  # the quota of requests a day
    records_requests = peewee.BooleanField(default=False)
    counted_as = peewee.TextField(null=True)  # after a rotation: the first key, whose count a quota uses
    limits = JsonField(null=True)  # see keys.resource_limits; None does not limit


class ServiceAccountRow(TenantModel):
    """A program as a member of the tenant.  The row of a deleted one stays: trails name it, so no other may have its name."""

    label = "service account"
    id = peewee.TextField()  # its slug
    title = peewee.TextField()
    description = peewee.TextField()
    scopes = JsonField()
    responsible = peewee.TextField(null=True)  # the id of a person
    created_by = peewee.TextField()
    created_at = peewee.BigIntegerField()
    disabled_at = peewee.BigIntegerField(null=True)
    deleted_at = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "service_account"
        primary_key = peewee.CompositeKey("tenant_id", "id")


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

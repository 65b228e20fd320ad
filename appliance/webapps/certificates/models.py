"""Database rows of certificates. They belong to the appliance, not to a tenant, because a TLS handshake knows only the host."""

from peewee import BigIntegerField, BlobField, IntegerField, TextField

from appliance.core.database.db import JsonField, PlatformModel
from appliance.core.database.sentence_fields import ErrorField


class CertificateRow(PlatformModel):
    """The certificate of a host; `tenant_id` is null for the appliance's own hosts."""

    host = TextField(primary_key=True)
    tenant_id = TextField(null=True)
    origin = TextField()
    names = JsonField()
    chain = TextField()
    private_key = BlobField()
    key_kind = TextField()
    issuer = TextField()
    fingerprint = TextField()
    not_before = BigIntegerField()
    not_after = BigIntegerField()
    since = BigIntegerField(null=True)
    renew_at = BigIntegerField(null=True)
    asked_at = BigIntegerField(null=True)
    updated_at = BigIntegerField()

    class Meta:
        table_name = "certificate"


class OrderRow(PlatformModel):
    """A running order (with `order_url`), or one to start at `due_at`; `owner` is the process that works on it."""

    host = TextField(primary_key=True)
    tenant_id = TextField(null=True)
    names = JsonField()
    owner = TextField(null=True)
    order_url = TextField(null=True)
    private_key = BlobField(null=True)
    answered = JsonField()
    began_at = BigIntegerField(null=True)
    due_at = BigIntegerField()
    tries = JsonField()
    failures = IntegerField()
    problem = ErrorField(null=True)

    class Meta:
        table_name = "certificate_order"


class AccountRow(PlatformModel):
    """The appliance's account with an ACME authority."""

    directory = TextField(primary_key=True)
    private_key = BlobField()
    uri = TextField(null=True)
    created_at = BigIntegerField()

    class Meta:
        table_name = "acme_account"


class ChallengeRow(PlatformModel):
    """The answer to an HTTP-01 challenge, kept until the order ends."""

    token = TextField(primary_key=True)
    host = TextField()
    order_host = TextField()
    answer = TextField()

    class Meta:
        table_name = "acme_challenge"

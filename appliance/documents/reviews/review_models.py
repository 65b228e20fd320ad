"""Database rows of reviews."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class ReviewRow(TenantModel):
    """A review of one content; `reviewers` are pairs of user id and login at the time of the request."""

    label = "review"
    id = TextField()
    document_id = TextField()
    revision = IntegerField()
    sha256 = TextField()
    needed = IntegerField()
    reviewers = JsonField()
    note = TextField()
    status = TextField()  # pending | approved | rejected | expired | withdrawn
    due_at = BigIntegerField()
    requested_by = TextField()
    created_at = BigIntegerField()
    closed_at = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "document_review"


class VoteRow(TenantModel):
    """The decision of one reviewer."""

    label = "vote"
    review_id = TextField()
    user_id = TextField()
    login = TextField()
    decision = TextField()  # approve | reject
    comment = TextField()
    at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "review_id", "user_id")
        table_name = "document_vote"

"""The row of a job on a whole tenant."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField


class TenantJobRow(TenantModel):
    """An export, import or reset; `sealed` is the passphrase of its file, `place` names that, `task` is what runs or ran last.

    `fence` counts the claims, `claims` those since the job was last left to any process.
    """

    label = "job"
    id = TextField()
    kind = TextField()
    actor = TextField()
    scopes = JsonField()
    request_id = TextField()
    state = TextField()
    task = TextField()
    options = JsonField()
    sealed = BlobField(null=True)
    name = TextField()
    place = TextField(null=True)
    size = BigIntegerField()
    stage = TextField()
    done = BigIntegerField()
    total = BigIntegerField()
    result = JsonField()
    problem = ErrorField(null=True)
    started_at = BigIntegerField()
    ended_at = BigIntegerField()
    expires_at = BigIntegerField()
    owner = TextField(null=True)
    fence = IntegerField()
    claims = IntegerField()
    lease_until = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "tenant_job"

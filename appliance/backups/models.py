"""The rows of jobs: on a whole tenant, and backups of the whole appliance."""

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, PlatformModel, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class TenantJobRow(TenantModel):
    """An export, import or reset; `sealed` is the passphrase of its file, `place` names that, `task` is what runs or ran last.

    `archive` is the solution of a reset, in a row of its own (`jobs.records.SOLUTION`); a reset without one applies the starter.

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
    archive = BlobField(null=True)
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


class BackupJobRow(PlatformModel):
    """A backup of the whole appliance; `machine` and `path` say where its file is, `problem` why it is not complete.

    `fence` counts the claims, `claims` those since the backup was last left to any process.
    """

    number = IntegerField(primary_key=True)
    kind = TextField()
    state = TextField()
    sealed = BlobField(null=True)
    stage = TextField()
    done = BigIntegerField()
    total = BigIntegerField()
    machine = TextField()
    path = TextField()
    size = BigIntegerField()
    row_count = BigIntegerField()
    contents = BigIntegerField()
    encrypted = IntegerField()
    problem = SentenceField(null=True)
    started_at = BigIntegerField()
    owner = TextField(null=True)
    fence = IntegerField()
    claims = IntegerField()
    lease_until = BigIntegerField()

    class Meta:
        table_name = "backup_job"


class BackupRehearsalRow(PlatformModel):
    """A rehearsal of the restore of the backup `source`, which was made at `made_at`; `problem` says why it failed."""

    number = IntegerField(primary_key=True)
    state = TextField()
    source = TextField()
    made_at = TextField()
    machine = TextField()
    row_count = BigIntegerField()
    contents = BigIntegerField()
    sampled = IntegerField()
    trails = IntegerField()
    restore_ms = BigIntegerField()
    start_ms = BigIntegerField()
    problem = SentenceField(null=True)
    started_at = BigIntegerField()
    owner = TextField(null=True)
    fence = IntegerField()
    claims = IntegerField()
    lease_until = BigIntegerField()

    class Meta:
        table_name = "backup_rehearsal"

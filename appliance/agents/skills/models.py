"""The rows of skills."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class SkillRow(TenantModel):
    """A skill as it is now; what begins with `granted` is of `approved_digest`, which need not be the present one."""

    label = "skill"
    name = TextField()
    digest = TextField()
    created_at = BigIntegerField()
    updated_at = BigIntegerField()
    updated_by = TextField()
    approved_digest = TextField(null=True)
    granted_tools = JsonField(null=True)
    granted_by = TextField(null=True)
    granted_login = TextField(null=True)
    granted_at = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "name")
        table_name = "skill"


class SkillVersionRow(TenantModel):
    """One set of files of a skill; `front` is what its SKILL.md says of it, `used_at` when it was last put."""

    label = "version"
    name = TextField()
    digest = TextField()
    front = JsonField()
    files = IntegerField()
    bytes = BigIntegerField()
    created_at = BigIntegerField()
    created_by = TextField()
    used_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "name", "digest")
        table_name = "skill_version"


class SkillFileRow(TenantModel):
    """One file of a version."""

    label = "file"
    name = TextField()
    digest = TextField()
    path = TextField()
    sha256 = TextField()
    size = BigIntegerField()
    is_text = IntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "name", "digest", "path")
        table_name = "skill_file"

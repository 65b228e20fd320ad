"""Database tables of skills."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel


class SkillRow(TenantModel):
    """A skill; the `granted_*` columns belong to `approved_digest`, which may be older than the current `digest`."""

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
    """One version of a skill; `front` is the front matter of its SKILL.md, `used_at` the time it was last uploaded."""

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
    """One file of a skill version."""

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

"""The row of a content's text."""

from peewee import AutoField, BigIntegerField, IntegerField, TextField

from appliance.core.database.db import TenantModel


class TextRow(TenantModel):
    """What was read from `content`: all of it is the blob `sha256`; its beginning and the words of that are for searching."""

    label = "text"
    id = AutoField()
    content = TextField()
    media_type = TextField()
    state = TextField()  # none | pending | ready | failed
    reason = TextField()
    code = TextField(default="")  # of a failure
    is_scan = IntegerField(default=0)  # 1: has to be recognised, which takes long
    sha256 = TextField(null=True)
    size = BigIntegerField()
    beginning = TextField(null=True)
    words = TextField(null=True)
    tries = IntegerField()
    next_try_at = BigIntegerField()

    class Meta:
        table_name = "document_text"

"""The database row of a content's text."""

from peewee import AutoField, BigIntegerField, IntegerField, TextField

from appliance.core.database.db import TenantModel
from appliance.core.database.sentence_fields import SentenceField


class TextRow(TenantModel):
    """The text of `content`: the full text is the blob `sha256`; `beginning` and its `words` are used for search."""

    label = "text"
    id = AutoField()
    content = TextField()
    media_type = TextField()
    state = TextField()  # none | pending | ready | failed
    reason = SentenceField()
    code = TextField(default="")  # error code of a failure
    is_scan = IntegerField(default=0)  # 1: needs OCR, which is slow
    sha256 = TextField(null=True)
    size = BigIntegerField()
    beginning = TextField(null=True)
    words = TextField(null=True)
    tries = IntegerField()
    next_try_at = BigIntegerField()

    class Meta:
        table_name = "document_text"

"""The database models of collections, and of imports of files into them."""

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class Collection(TenantModel):
    """A collection: its definition and the name of the table with its entities."""

    label = "collection"
    name = TextField()
    definition = JsonField()
    table_name = TextField()
    stamp = TextField()
    version = BigIntegerField()
    created_at = BigIntegerField()
    updated_at = BigIntegerField()
    removal_lease = BigIntegerField(null=True)  # it is deleted, and until then a process removes its entities

    class Meta:
        primary_key = CompositeKey("tenant_id", "name")
        table_name = "collection"


class FileImportRow(TenantModel):
    """An uploaded file and its import.  `report` has the counts, `errors` its errors; `fence` counts the claims, `claims` those
    since the last progress."""

    label = "import"
    id = TextField()
    actor = TextField()
    scopes = JsonField()
    request_id = TextField()
    collection = TextField()
    name = TextField()
    sha256 = TextField(null=True)
    form = TextField()
    delimiter = TextField()
    encoding = TextField()
    columns = JsonField()
    sample = JsonField()
    state = TextField()
    options = JsonField()
    report = JsonField(null=True)
    errors = ErrorField()
    problem = SentenceField()
    accessed_at = BigIntegerField()
    owner = TextField(null=True)
    fence = IntegerField()
    claims = IntegerField()
    lease_until = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "file_import"

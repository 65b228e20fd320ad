"""Tables of alerts."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class AlertRow(TenantModel):
    """`turn` counts every change that is kept as an event; `told` whether anybody heard that it fires now.

    `since` is when `state` began, `armed_at` from when on things are expected to happen, `revision` changes with every write.
    """

    label = "alert"
    id = peewee.TextField()
    name = peewee.TextField()
    condition = JsonField()
    actions = JsonField()
    for_ms = peewee.BigIntegerField()
    repeat_ms = peewee.BigIntegerField()
    enabled = peewee.BooleanField()
    silenced_until = peewee.BigIntegerField(null=True)
    state = peewee.TextField()  # ok | pending | firing
    since = peewee.BigIntegerField()
    turn = peewee.IntegerField()
    told = peewee.BooleanField()
    next_notice_at = peewee.BigIntegerField(null=True)
    problem = SentenceField(null=True)
    armed_at = peewee.BigIntegerField()
    revision = peewee.IntegerField()
    created_at = peewee.BigIntegerField()
    created_by = peewee.TextField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        table_name = "alert"
        primary_key = peewee.CompositeKey("tenant_id", "id")


class AlertEventRow(TenantModel):
    """A turn of an alert; `told_at` is empty until everybody was told who is to be."""

    label = "alert event"
    id = peewee.TextField()
    alert_id = peewee.TextField()
    turn = peewee.IntegerField()
    kind = peewee.TextField()  # firing | repeated | resolved | test
    at = peewee.BigIntegerField()
    text = SentenceField()
    silenced = peewee.BooleanField()
    told_at = peewee.BigIntegerField(null=True)
    problems = ErrorField()
    told_to = JsonField(null=True)  # see hearers; members become sign-in names once they were written to

    class Meta:
        table_name = "alert_event"
        primary_key = peewee.CompositeKey("tenant_id", "id")

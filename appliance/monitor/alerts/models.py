"""Database tables of alerts."""

import peewee

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import ErrorField, SentenceField


class AlertRow(TenantModel):
    """An alert; `turn` counts its recorded events, `told` says whether anyone was notified of the current firing.

    `since` is when `state` began, `armed_at` when monitoring for missing executions began, `revision` changes with every write.
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
    """An event of an alert; `told_at` is empty until everyone has been notified."""

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
    told_to = JsonField(null=True)  # see hearers; holds sign-in names of members once they were notified

    class Meta:
        table_name = "alert_event"
        primary_key = peewee.CompositeKey("tenant_id", "id")

"""Database rows of requests to WebApps."""

from peewee import BigAutoField, BigIntegerField, DoubleField, IntegerField, TextField

from appliance.core.database.db import TenantModel


class RequestRow(TenantModel):
    label = "request"
    id = BigAutoField()
    app_id = TextField()
    at = BigIntegerField()
    method = TextField()
    path = TextField()
    status = IntegerField()
    bytes = BigIntegerField()
    ms = DoubleField()
    address = TextField()
    agent = TextField()
    referrer = TextField()
    visitor_kind = TextField()
    visitor = TextField()
    route = TextField(null=True)
    execution_id = TextField(null=True)

    class Meta:
        table_name = "webapp_request"

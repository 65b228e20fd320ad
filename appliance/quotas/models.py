"""Database tables of quotas: they belong to the appliance, so no tenant's export contains them."""

import peewee

from appliance.core.database.db import TenantModel


class QuotaRow(TenantModel):
    """A quota that was set for a tenant, in place of the default; without an amount, there is no limit."""

    label = "quota"
    name = peewee.TextField()
    amount = peewee.BigIntegerField(null=True)
    set_at = peewee.BigIntegerField()

    class Meta:
        table_name = "tenant_quota"
        primary_key = peewee.CompositeKey("tenant_id", "name")


class QuotaUseRow(TenantModel):
    """What was used on a day (its start in epoch ms); `stripe` keeps writers from waiting for each other's row."""

    label = "use of a quota"
    name = peewee.TextField()
    day = peewee.BigIntegerField()
    stripe = peewee.IntegerField()
    used = peewee.BigIntegerField()

    class Meta:
        table_name = "quota_use"
        primary_key = peewee.CompositeKey("tenant_id", "name", "day", "stripe")


class QuotaNoticeRow(TenantModel):
    """A warning that was given: of a quota in a period (its start in epoch ms), or about the expiry of a sandbox tenant."""

    label = "notice"
    name = peewee.TextField()
    period = peewee.BigIntegerField()
    at = peewee.BigIntegerField()

    class Meta:
        table_name = "quota_notice"
        primary_key = peewee.CompositeKey("tenant_id", "name", "period")


class TenantExpiryRow(TenantModel):
    """When a sandbox tenant expires; a tenant without this row never does."""

    label = "expiry"
    expires_at = peewee.BigIntegerField()

    class Meta:
        table_name = "tenant_expiry"
        primary_key = peewee.CompositeKey("tenant_id")

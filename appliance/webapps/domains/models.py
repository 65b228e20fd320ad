"""Database rows of domains."""

from peewee import BigIntegerField, BooleanField, CompositeKey, IntegerField, TextField

from appliance.core.database.db import JsonField, TenantModel
from appliance.core.database.sentence_fields import SentenceField

from .names import names_of


class DomainRow(TenantModel):
    """A tenant's claim to a host name; the tenant holds the name once it is in the table `domain_name`.

    `checks` counts the probes that were started: only the latest may store its result. `tries` counts the probes since the last
    change of state, for the backoff.
    """

    label = "domain"
    host = TextField()
    app_id = TextField()
    state = TextField()
    method = TextField()
    token = TextField()
    redirect_from = TextField(null=True)
    is_primary = BooleanField()
    records = JsonField()
    error = SentenceField(null=True)
    created_at = BigIntegerField()
    created_by = TextField()
    verified_at = BigIntegerField(null=True)
    leads_here = BooleanField(null=True)
    failing_since = BigIntegerField(null=True)
    told_at = BigIntegerField(null=True)
    checks = IntegerField()
    tries = IntegerField()
    checked_at = BigIntegerField(null=True)
    next_check_at = BigIntegerField(null=True)
    certificate_state = TextField(null=True)
    certificate_error = TextField(null=True)
    certificate_next_try = BigIntegerField(null=True)
    certificate_not_after = BigIntegerField(null=True)

    @property
    def names(self) -> list[str]:
        """The host, and the name that redirects to it."""
        return names_of(self.host, self.redirect_from)

    class Meta:
        primary_key = CompositeKey("tenant_id", "host")
        table_name = "domain"

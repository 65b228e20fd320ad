"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("audit_key", "sealed", ("number",), "appliance/audit-key/{number}".format_map),
    SealedColumn("webhook", "sealed", ("tenant_id", "id"), "{tenant_id}/webhook/{id}".format_map),
    SealedColumn("webhook", "sealed_old", ("tenant_id", "id"), "{tenant_id}/webhook/{id}".format_map),
)

"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("tenant_job", "sealed", ("tenant_id", "id"), "{tenant_id}/job/{id}".format_map),
    SealedColumn("backup_job", "sealed", ("number",), "appliance/backup/{number}".format_map),
)

"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("approval", "sealed", ("tenant_id", "id"), "{tenant_id}/approval/{id}".format_map),
)

"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("certificate", "private_key", ("host",), "certificate/{host}".format_map),
    SealedColumn("certificate_order", "private_key", ("host",), "certificate/{host}".format_map),
    SealedColumn("acme_account", "private_key", ("directory",), "certificate/{directory}".format_map),
)

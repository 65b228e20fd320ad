"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("integration", "sealed", ("tenant_id", "id"), "{tenant_id}/integration/{id}".format_map),
    SealedColumn(
        "integration_token", "sealed", ("tenant_id", "integration_id"), "{tenant_id}/integration/{integration_id}/token".format_map
    ),
    SealedColumn("integration_consent", "sealed", ("tenant_id", "digest"), "{tenant_id}/consent/{digest}".format_map),
    SealedColumn("integration_call", "pending", ("tenant_id", "id"), "{tenant_id}/integration-call/{id}".format_map),
)

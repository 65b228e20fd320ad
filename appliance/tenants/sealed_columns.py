"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

SEALED_COLUMNS = (
    SealedColumn("secret", "sealed", ("tenant_id", "name"), "{tenant_id}/secret/{name}".format_map),
    SealedColumn("second_factor", "sealed", ("id",), "second factor/{user_id}/totp".format_map, more=("user_id",)),
    SealedColumn(
        "step_up", "form", ("digest",), lambda row: f"{row['tenant_id']}/kept-form{row['target'].partition('?')[0]}",
        more=("tenant_id", "target"), encoding="base64url",
    ),
)  # fmt: skip

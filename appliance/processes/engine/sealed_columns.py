"""The columns of this package with sealed values, for their sealing with another master key."""

from appliance.core.crypto import SealedColumn

_STEP = ("tenant_id", "execution_id", "path", "iteration")
SEALED_COLUMNS = (
    SealedColumn(
        "suspended_step", "sealed", _STEP, "{tenant_id}/vm/{execution_id}/{path}/{iteration}/{attempt}".format_map,
        more=("attempt",),
    ),
    SealedColumn(  # what `host/vault.py` seals
        "journal", "answer", (*_STEP, "attempt", "call"),
        "{tenant_id}/journal/{execution_id}/{path}/{iteration}/{attempt}/{call}".format_map, encoding="member",
        where="method IN ('secrets.get', 'llm.generate') AND ok = 1 AND substr(answer, 1, 11) = '{\"sealed\":\"'",
    ),
)  # fmt: skip

"""Refuses an export that has more than the new tenant may have."""

import sqlite3

from appliance.core.errors import StorageFull
from appliance.core.texts import mark_error
from appliance.datapool import measure_file
from appliance.quotas import KINDS, Amounts, find_new_limit, format_amount, round_up

_SENTENCES = {
    "storage": mark_error(
        "the export needs %(needed)s of storage, and the new tenant may have %(limit)s; nothing was imported; give the tenant a "
        "quota of its own with the import (--quota storage=%(needed)s), or raise the default of all tenants "
        "(limits.tenant_storage_mb)"
    ),
    "entities": mark_error(
        "the export has %(needed)s entities, and the new tenant may have %(limit)s; nothing was imported; give the tenant a quota "
        "of its own with the import (--quota entities=%(needed)s), or raise the default of all tenants (quotas.entities)"
    ),
}


def refuse_over_quota(file: sqlite3.Connection, own: Amounts) -> None:
    """StorageFull if the unpacked export has more storage or entities than a tenant with these quotas of its own may have."""
    usage = measure_file(file.execute)
    ((contents,),) = file.execute("SELECT coalesce(sum(size), 0) FROM blob")
    for name, needed in (("storage", int(contents) + usage.bytes), ("entities", usage.entities)):
        limit, kind = find_new_limit(name, own), KINDS[name]
        if limit is not None and needed > limit:
            text = format_amount(kind, round_up(needed) if kind.unit == "bytes" else needed)
            amounts = {"needed": text, "limit": format_amount(kind, limit)}
            extra = {"quota": name, "used": 0, "needed": needed, "limit": limit, "retryable": False}
            raise StorageFull(_SENTENCES[name] % amounts, extra=extra)

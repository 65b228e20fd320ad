"""Tables of solutions."""

import peewee

from appliance.core.database.db import TenantModel


class SolutionItem(TenantModel):
    """An item created by a solution; `born_at` distinguishes it from a later one with the same name."""

    label = "item of a solution"
    solution = peewee.TextField()
    kind = peewee.TextField()  # collection | integration | process | webapp | agent | skill | policy
    item_id = peewee.TextField()
    born_at = peewee.TextField()

    class Meta:
        table_name = "solution_item"
        primary_key = peewee.CompositeKey("tenant_id", "solution", "kind", "item_id")

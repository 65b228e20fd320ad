"""Counts the rows of a database before and after its migrations."""

from collections import Counter
from collections.abc import Iterator

from appliance.backups.copying import Source
from appliance.core.scope import APPLIANCE
from appliance.core.sentences import Sentence

from .problems import UpgradeFailed

Counts = dict[tuple[str, str], int]
"""The number of rows by table and tenant; the tenant is empty in tables of the whole appliance."""
_CHANGED = frozenset({"migration"})


def count_rows(source: Source) -> Counts:
    """Count the rows of every table, and those of each tenant in it."""
    return dict(_count(source))


def _count(source: Source) -> Iterator[tuple[tuple[str, str], int]]:
    for table in source.tables():
        if "tenant_id" in source.columns(table):
            sql = f'SELECT tenant_id, count(*) FROM "{table}" GROUP BY tenant_id'  # noqa: S608  # names of our own
            for tenant_id, count in source.rows(sql):
                yield (table, str(tenant_id or "")), int(count)
        else:
            # The row of the appliance itself came with a migration.
            condition, params = ("WHERE id <> ?", (APPLIANCE,)) if table == "tenant" else ("", ())
            ((count,),) = source.rows(f'SELECT count(*) FROM "{table}" {condition}', params)  # noqa: S608
            yield (table, ""), int(count)


def compare_counts(before: Counts, after: Counts, tables: set[str]) -> None:
    """UpgradeFailed if a tenant has fewer rows in one of these tables than before; migrations may add some, and drop tables."""
    for (table, tenant_id), count in sorted(before.items()):
        now = after.get((table, tenant_id), 0)
        if table in tables - _CHANGED and now < count:
            raise UpgradeFailed(Sentence(
                "the table %(table)s has %(now)s rows of the tenant %(tenant)s after the migrations, and had %(count)s before",
                table=table, now=now, tenant=tenant_id or "(none)", count=count,
            ))


def describe_counts(counts: Counts) -> str:
    """The number of rows, and of tenants that have any."""
    tenants = Counter(tenant_id for _, tenant_id in counts if tenant_id)
    return f"{sum(counts.values())} rows of {len(tenants)} tenants"

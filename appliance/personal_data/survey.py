"""How many rows of each kind name a person, before an export or an erasure."""

from collections import Counter
from dataclasses import dataclass

from appliance.core.database import db

from . import rows
from .kinds import Kind
from .register import KINDS
from .subjects import Subject


@dataclass(frozen=True)
class Count:
    """A kind, how many rows of it name the person, and in which tenants."""

    kind: Kind
    rows: int
    tenants: frozenset[str]


def select_kinds(tenant_id: str | None) -> list[Kind]:
    """The kinds that an export or an erasure covers: in one tenant, those of its visitors."""
    return [kind for kind in KINDS if tenant_id is None or kind.is_of_visitors]


def count_rows(subject: Subject, tenant_id: str | None = None) -> list[Count]:
    """The kinds of which there are rows, in the order of the register."""
    with db.snapshot():
        counts = [_count(kind, subject, tenant_id) for kind in select_kinds(tenant_id)]
    return [each for each in counts if each.rows]


def _count(kind: Kind, subject: Subject, tenant_id: str | None) -> Count:
    numbers: Counter[str] = Counter()
    for table in kind.tables:
        numbers.update(rows.count_by_tenant(table, subject, tenant_id))
    return Count(kind, numbers.total(), frozenset(each for each in numbers if each))

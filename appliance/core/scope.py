"""Tenant scopes: the actor and tenant of an operation, and the only way to query rows of a tenant."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from peewee import ModelDelete, ModelInsert, ModelUpdate

from appliance.core.sentences import Sentence

from .database import db
from .database.db import TenantModel
from .database.row_select import RowSelect
from .errors import NotFound, ScopeMissing

M = TypeVar("M", bound=TenantModel)
ResourceNames: TypeAlias = Mapping[str, frozenset[str]]
"""By kind of resource, such as `process`, the names of those that an actor may reach."""
APPLIANCE = "@appliance"
"""Owns the keys and the audit trail of the appliance itself, in place of a tenant; no tenant can have this id."""


@dataclass(frozen=True)
class TenantScope:
    """The first argument of every domain operation; creates queries that are filtered by tenant.

    `actor` is `key:<id>`, `appliance:<id>` for a key of the appliance, `user:<id>`, `execution:<id>` or `system`; `scopes` are the
    permissions of docs/contract.md § 4.
    `request_id` appears in logs; `trace` is the parent span, as a `traceparent`.  `has_agent_key`: the actor is a key that
    belongs to an agent.  `limits`: the only resources that a limited key may reach; None does not limit.  `started_by`: the actor
    that started the execution or run that acts, if whoever made the scope knew it.
    """

    tenant_id: str
    actor: str
    scopes: frozenset[str] = field(default_factory=frozenset)
    request_id: str = ""
    trace: str = field(default="", compare=False)
    has_agent_key: bool = field(default=False, compare=False)
    limits: ResourceNames | None = field(default=None, compare=False)
    started_by: str = field(default="", compare=False)

    def require(self, name: str) -> None:
        """Raise ScopeMissing unless the actor has the scope `name`."""
        if name not in self.scopes:
            raise ScopeMissing(
                Sentence("this needs the scope %(name)s; use a key that has it, or ask an owner to issue one", name=name),
                extra={"scope": name},
            )

    def can_reach(self, kind: str, name: str) -> bool:
        """Whether the limits of the actor's key, if it has any, include the resource."""
        return self.limits is None or name in self.limits.get(kind, ())

    def check_reach(self, kind: str, name: str) -> None:
        """NotFound, as for an unknown name, if the actor is limited to other resources."""
        if not self.can_reach(kind, name):
            raise NotFound(Sentence("there is no %(label)s %(wanted)s here", label=kind, wanted=repr(str(name)[:80])))

    def narrow(self, query: Any, kind: str, column: Any) -> Any:
        """The query without rows of resources that the limits exclude; `column` has the names of those of this kind."""
        return query if self.limits is None else query.where(column.in_(sorted(self.limits.get(kind, ()))))

    def with_actor(self, actor: str) -> "TenantScope":
        """A scope with the same tenant and permissions for another actor."""
        return replace(self, actor=actor, started_by="")

    def select(self, model: type[M], *fields: Any) -> Any:
        """A SELECT of these fields (default: all), filtered by tenant."""
        return RowSelect(model, fields).where(model.tenant_id == self.tenant_id)

    def insert(self, model: type[M], **values: Any) -> None:
        """Insert a row of this tenant."""
        values["tenant_id"] = self.tenant_id
        ModelInsert(model, model._normalize_data(None, values)).execute()

    def update(self, model: type[M], **changes: Any) -> Any:
        """An UPDATE, filtered by tenant; add `.where(…)` and `.execute()`."""
        return ModelUpdate(model, model._normalize_data(None, changes)).where(model.tenant_id == self.tenant_id)

    def delete(self, model: type[M]) -> Any:
        """A DELETE, filtered by tenant; add `.where(…)` and `.execute()`."""
        return ModelDelete(model).where(model.tenant_id == self.tenant_id)

    def find(self, model: type[M], **equals: Any) -> M | None:
        """The row whose fields equal `equals`, or None."""
        db_values = {name: model._meta.fields[name].db_value(value) for name, value in equals.items()}
        values = {name: value for name, value in db_values.items() if value is not None}
        empty = tuple(name for name in db_values if name not in values)
        rows = db.rows(_find_sql(cast(Hashable, model), tuple(values), empty), (self.tenant_id, *values.values()))
        if not rows:
            return None
        row = model(__no_default__=1)
        fields = model._meta.sorted_fields
        row.__data__.update((each.name, each.python_value(value)) for each, value in zip(fields, rows[0], strict=True))
        return row

    def get(self, model: type[M], **equals: Any) -> M:
        """The row whose fields equal `equals`; NotFound does not tell a foreign tenant's row from a missing one."""
        row = self.find(model, **equals)
        if row is None:
            key = next(reversed(equals.values()))
            raise NotFound(Sentence("there is no %(label)s %(wanted)s here", label=model.label, wanted=repr(str(key)[:80])))
        return row


def tenant_ids() -> list[str]:
    """The id of every tenant, sorted; for work on the whole appliance in rooms below `tenants`, which owns the table."""
    sql = "SELECT id FROM tenant WHERE id <> ? AND closed_at IS NULL ORDER BY id"
    return [str(row[0]) for row in db.rows(sql, (APPLIANCE,))]


@cache
def _find_sql(model: Any, equal: tuple[str, ...], empty: tuple[str, ...]) -> str:
    """The SQL of `find`, cached because peewee takes longer to build it than the database to run it."""
    meta = model._meta
    columns = ", ".join(f'"{each.column_name}"' for each in meta.sorted_fields)
    conditions = [f'"{meta.fields[name].column_name}" = ?' for name in ("tenant_id", *equal)]
    conditions += [f'"{meta.fields[name].column_name}" IS NULL' for name in empty]
    return f'SELECT {columns} FROM "{meta.table_name}" WHERE {" AND ".join(conditions)} LIMIT 1'  # noqa: S608  names of our models

"""Who is asking and for which tenant; the only door to tenant rows."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from peewee import ModelDelete, ModelInsert, ModelSelect, ModelUpdate

from .db import TenantModel
from .errors import NotFound, ScopeMissing

M = TypeVar("M", bound=TenantModel)


@dataclass(frozen=True)
class TenantScope:
    """First argument of every verb: hands out queries that are already filtered by tenant.

    `actor` is `key:<id>`, `user:<id>`, `execution:<id>` or `system`; `scopes` are the grants of CONTRACT § 4;
    `request_id` follows the work into logs, `trace` into spans: the one around it, as a `traceparent`.
    """

    tenant_id: str
    actor: str
    scopes: frozenset[str] = field(default_factory=frozenset)
    request_id: str = ""
    trace: str = field(default="", compare=False)

    def require(self, name: str) -> None:
        """ScopeMissing unless this actor holds the scope `name`."""
        if name not in self.scopes:
            raise ScopeMissing(
                f"this needs the scope {name}; use a key that has it, or ask an owner to issue one",
                extra={"scope": name},
            )

    def acting(self, actor: str) -> "TenantScope":
        """The same tenant and grants under another actor's name."""
        return replace(self, actor=actor)

    def select(self, model: type[M], *fields: Any) -> Any:
        """A SELECT of `fields` (default: all), filtered by tenant."""
        meta = model._meta
        return ModelSelect(model, fields or meta.sorted_fields).where(model.tenant_id == self.tenant_id)

    def insert(self, model: type[M], **values: Any) -> None:
        """INSERT one row of this tenant."""
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
        query = self.select(model)
        for name, value in equals.items():
            query = query.where(getattr(model, name) == value)
        found: M | None = query.get_or_none()
        return found

    def get(self, model: type[M], **equals: Any) -> M:
        """The row whose fields equal `equals`; NotFound, the same for a foreign tenant's and for an unknown one."""
        row = self.find(model, **equals)
        if row is None:
            wanted = next(reversed(equals.values()))
            raise NotFound(f"there is no {model.label} {str(wanted)[:80]!r} here")
        return row

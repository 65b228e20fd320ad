"""What a tenant uses of each quota, read from the parts of the appliance that know it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.scope import TenantScope

from .kinds import KINDS, SHARE, QuotaKind
from .limits import limits_of

Reader = Callable[[TenantScope], int]


@dataclass(frozen=True)
class QuotaState:
    """A quota with its use; `limit` is None without one, `resets_at` (epoch ms) without a period."""

    kind: QuotaKind
    used: int
    limit: int | None
    resets_at: int | None
    is_own: bool

    @property
    def percent(self) -> float | None:
        """The percentage in use; None without a limit, 100 of a quota of nothing."""
        if self.limit is None:
            return None
        return 100 * self.used / self.limit if self.limit else 100.0

    @property
    def is_near(self) -> bool:
        """Whether the tenant is warned."""
        return self.limit is not None and self.used >= self.limit * SHARE


class QuotaUsage:
    """Reads what is used of each quota."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers

    def list_states(self, scope: TenantScope) -> list[QuotaState]:
        """Every quota of the tenant."""
        return [self.read_state(scope, name) for name in KINDS]

    def read_state(self, scope: TenantScope, name: str) -> QuotaState:
        """One quota of the tenant."""
        limits, kind = limits_of(scope.tenant_id), KINDS[name]
        resets_at = kind.period_of(clock.now_ms())[1]
        return QuotaState(kind, self._readers[name](scope), limits.find(name), resets_at, name in limits.own)

"""The service account behind an action: its key acts, or has started the execution or agent's run that acts."""

from appliance.core.database.caches import Cache
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.tenants import starters
from appliance.tenants.keys import lineage

_STARTED = ("execution", "run")
"""Actors that somebody has started."""


def find_account_behind(scope: TenantScope, actor: str) -> str | None:
    """The service account (`service:…`) whose key acts, or has started this execution or run, or the one that has started it.

    Empty if it is none, such as for what a person, a trigger or a visitor has started.  None if the execution or run is not stored.
    """
    starter = _find_first_starter(scope, actor)
    return None if starter is None else lineage.find_account_of(scope, starter)


def _find_first_starter(scope: TenantScope, actor: str) -> str | None:
    while (kind := actor.partition(":")[0]) in _STARTED:
        try:
            starter = starters.find_starter(scope, kind, actor.partition(":")[2])
        except NotFound:
            return None
        if starter is None:
            return None
        actor = starter
    return actor


class AccountFinder:
    """Remembers who has started an execution, which never changes; which account a key belongs to can change."""

    def __init__(self) -> None:
        self._starters: Cache[tuple[str, str], str] = Cache(4096)

    def find(self, scope: TenantScope, actor: str) -> str:
        """As `find_account_behind`; LookupError, by which the action is denied, if the execution or run is not stored."""
        if actor.partition(":")[0] not in _STARTED:
            return lineage.find_account_of(scope, actor)
        key = (scope.tenant_id, actor)
        starter = self._starters.get(key)
        if starter is None:
            # The scope knows who has started the execution that acts, also before its row is stored.
            known = scope.started_by if scope.actor == actor else ""
            starter = _find_first_starter(scope, known or actor)
            if starter is None:
                raise LookupError(f"{actor} is not stored, so it is not known who has started it")
            self._starters[key] = starter
        return lineage.find_account_of(scope, starter)

"""Who started the execution or run that requests an approval: people may not approve what they started themselves."""

from collections.abc import Callable

from appliance.core.database import db
from appliance.core.errors import NotFound, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

Starter = Callable[[TenantScope, str], str]
_starters: dict[str, Starter] = {}
_RUNS = ("agent", "run")


def register_starter(kind: str, find: Starter) -> Callable[[], None]:
    """Register `find(scope, name)`, which returns the actor that started `<kind>:<name>`; returns the function that removes it."""
    _starters[kind] = find

    def unregister() -> None:
        del _starters[kind]

    return unregister


def find_starter(scope: TenantScope, actor: str) -> str:
    """The actor that started this one's work: the starter of the execution, of its chain of parents, or of the run.

    NotFound if there is no such execution; PolicyDenied if the starter of a run is unknown, because it could be anyone.
    """
    while True:
        kind, _, name = actor.partition(":")
        if kind in _starters:
            actor = _starters[kind](scope, name)
        elif kind in _RUNS:
            raise PolicyDenied("it is not known who started this run, so an approver could be that person; start it again")
        elif kind != "execution":
            return actor
        else:
            actor = _starter_of_execution(scope, name)


def _starter_of_execution(scope: TenantScope, execution_id: str) -> str:
    # Plain SQL: executions belong to a higher layer, and the requesting code must not name its own starter.
    rows = db.rows("SELECT actor FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    if not rows:
        raise NotFound(Sentence("there is no execution %(execution_id)s here", execution_id=execution_id))
    return str(rows[0][0])

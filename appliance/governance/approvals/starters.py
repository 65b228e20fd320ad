"""Who began what asks for an approval: nobody approves what they have started themselves."""

from collections.abc import Callable

from appliance.core.database import db
from appliance.core.errors import NotFound, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

Starter = Callable[[TenantScope, str], str]
_starters: dict[str, Starter] = {}
_RUNS = ("agent", "run")


def on_starter(kind: str, find: Starter) -> Callable[[], None]:
    """Have `find(scope, name)` say which actor began what acts as `<kind>:<name>`; answers what takes it away again."""
    _starters[kind] = find

    def forget() -> None:
        del _starters[kind]

    return forget


def find_starter(scope: TenantScope, actor: str) -> str:
    """The actor that began what this one does: whoever started the execution, or the chain of child executions, or the run.

    NotFound when there is no such execution; PolicyDenied when nobody knows who started a run, for then anybody could be it.
    """
    while True:
        kind, _, name = actor.partition(":")
        if kind in _starters:
            actor = _starters[kind](scope, name)
        elif kind in _RUNS:
            raise PolicyDenied("nobody knows who started this run, so nobody could be told from them; start it anew")
        elif kind != "execution":
            return actor
        else:
            actor = _starter_of_execution(scope, name)


def _starter_of_execution(scope: TenantScope, execution_id: str) -> str:
    # Plain SQL: executions belong to the layer above, and who asked is not for the asking code to say.
    found = db.rows("SELECT actor FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    if not found:
        raise NotFound(Sentence("there is no execution %(execution_id)s here", execution_id=execution_id))
    return str(found[0][0])

"""Who started the execution or run that requests an approval: people may not approve what they started themselves."""

from appliance.core.errors import NotFound, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants import starters

_STARTED = ("execution", "agent", "run")
"""Actors that someone has started; all others act for themselves."""


def find_starter(scope: TenantScope, actor: str) -> str:
    """The actor that started this one's work: the starter of the execution, of its chain of parents, or of the run.

    NotFound if there is no such execution; PolicyDenied if the starter is unknown, because it could be anyone.
    """
    while True:
        kind, _, name = actor.partition(":")
        if not starters.knows_starters_of(kind):
            if kind in _STARTED:
                raise PolicyDenied("it is not known who started this run, so an approver could be that person; start it again")
            return actor
        starter = starters.find_starter(scope, kind, name)
        if starter is None:
            raise NotFound(Sentence("there is no execution %(execution_id)s here", execution_id=name))
        actor = starter

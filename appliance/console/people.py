"""Names of actors: who started, made or changed something, as people know them."""

from appliance.core.errors import NotFound
from appliance.tenants import keys, people

from .routing import Visit


class Names:
    """Looks up what `user:…`, `key:…` and the like are called; each once per page."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._known: dict[str, str] = {f"user:{visit.person.user_id}": visit.person.login, "system": "the appliance"}
        self._members_read = False

    def of(self, actor: str) -> str:
        """The login of a user, the name of an API key, or the actor's own text."""
        if actor not in self._known and actor.startswith("user:"):
            self._read_members()
        if actor not in self._known:
            self._known[actor] = self._look_up(actor)
        return self._known[actor]

    def _read_members(self) -> None:
        if not self._members_read:
            self._members_read = True
            self._known |= {f"user:{m.user_id}": m.login for m in people.list_members(self._visit.scope)}

    def _look_up(self, actor: str) -> str:
        kind, _, name = actor.partition(":")
        if kind == "key":
            try:
                return f"API key {keys.get_key(self._visit.scope, name).name}"
            except NotFound:
                return "a deleted API key"
        return {"user": "a former member", "execution": "an execution", "run": "an agent's run"}.get(kind, actor)

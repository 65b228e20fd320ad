"""Display names of actors: users, API keys, executions and agent runs."""

from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.texts import gettext as _
from appliance.tenants import accounts, appliance_scope, people, service_accounts
from appliance.tenants.keys import keys

from .routing import Visit


class Names:
    """Resolves actors such as `user:…`, `key:…` and `service:…` to display names; each is looked up once per page.

    `scope` is whose they are, by default the visitor's tenant; in that of the appliance, people need no membership.
    """

    def __init__(self, visit: Visit, scope: TenantScope | None = None) -> None:
        self._visit, self._scope = visit, scope or visit.scope
        self._names: dict[str, str] = {f"user:{visit.person.user_id}": visit.person.login, "system": _("the appliance")}
        self._members_read = False

    def of(self, actor: str) -> str:
        """The login of a user, the name of an API key, or the actor as stored when there is no better name."""
        if actor not in self._names and actor.startswith("user:"):
            self._read_members()
        if actor not in self._names:
            self._names[actor] = self._look_up(actor)
        return self._names[actor]

    def _read_members(self) -> None:
        if not self._members_read:
            self._members_read = True
            self._names |= {f"user:{m.user_id}": m.login for m in people.list_members(self._visit.scope, with_disabled=True)}

    def _look_up(self, actor: str) -> str:
        kind, _colon, name = actor.partition(":")
        if kind == "appliance":
            return _("API key %(name)s of the appliance", name=keys.find_name(appliance_scope(), name) or name)
        if kind == "key":
            key = keys.find_name(self._scope, name)
            return _("a deleted API key") if key is None else _("API key %(name)s", name=key)
        if kind == "service" and (title := service_accounts.find_title(self._scope, name)):
            return _("%(title)s (service account)", title=title)
        if kind == "user" and (former := accounts.find_former_name(name)):
            if former.is_deleted:
                return _("%(login)s (deleted user)", login=former.login)
            if self._scope.tenant_id == APPLIANCE:
                return former.login
            return _("%(login)s (former member)", login=former.login)
        return {"user": _("a former member"), "execution": _("an execution"), "run": _("an agent's run")}.get(kind, actor)

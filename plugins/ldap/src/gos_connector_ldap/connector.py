"""The connector class; each call opens one connection, signs in, searches and disconnects."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Peer, Rejected
from gos_connector_ldap.declaration import ACTIONS, SETTINGS, USUAL_ENTRIES, USUAL_PAGE
from gos_connector_ldap.filter import encode_conditions, encode_filter, match_all
from gos_connector_ldap.result import NO_SUCH_OBJECT
from gos_connector_ldap.session import Search, SearchResult, Session
from gos_connector_ldap.value import to_json

_ROOT_ATTRIBUTES = (
    "namingContexts", "defaultNamingContext", "vendorName", "vendorVersion", "supportedLDAPVersion", "supportedControl",
    "supportedExtension", "supportedSASLMechanisms", "dnsHostName", "subschemaSubentry",
)  # fmt: skip


class LdapConnector(Connector):
    """Searches one directory."""

    contract_version = 1
    name = "ldap"
    title = "LDAP"
    version = "0.1.0"
    tested_against = "OpenLDAP 2.5"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        tls = settings.get("tls", "tls")
        self._peer = Peer("LDAP", settings["host"], settings.get("port", 636 if tls == "tls" else 389), tls, settings.get("ca"))
        self.verbs = {
            "search": self._search, "get": self._get, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        base, user = self.settings.get("base_dn", ""), self.settings.get("bind_dn")
        with self._session(ctx) as session:
            if base or not user:  # a user that may read nothing can still sign in
                session.search(Search(base, "base", match_all(), ("1.1",)), 1, 1)
        sign_in = f"Signed in to {self._peer} as {user}" if user else f"{self._peer} answers without a sign-in"
        return f"{sign_in}{f'; {base} is visible' if base else ''}."

    # -- the actions

    def _search(self, params: Json, ctx: Context) -> dict[str, Any]:
        base = params.get("base", self.settings.get("base_dn"))
        if base is None:
            raise ConfigError("The search has no base; set `base`, or `base_dn` in the settings.")
        if "where" in params and "filter" in params:
            raise ConfigError("Use either `where` or `filter`, not both.")
        conditions = match_all()
        if params.get("where"):
            conditions = encode_conditions(params["where"])
        elif "filter" in params:
            conditions = encode_filter(params["filter"])
        search = Search(base, params.get("scope", "sub"), conditions, params.get("attributes", ()))
        limit = params.get("limit", USUAL_ENTRIES)
        with self._session(ctx) as session:
            result = session.search(search, limit, self.settings.get("page_size", USUAL_PAGE))
        output = {"entries": _entries_to_json(result, params), "truncated": result.truncated}
        return {**output, "referrals": result.referrals} if result.referrals else output

    def _get(self, params: Json, ctx: Context) -> dict[str, Any]:
        with self._session(ctx) as session:
            try:
                result = session.search(Search(params["dn"], "base", match_all(), params.get("attributes", ())), 1, 1)
            except Rejected as refusal:
                if refusal.details.get("code") == NO_SUCH_OBJECT:
                    return {"entry": None}
                raise
        return {"entry": next(iter(_entries_to_json(result, params)), None)}

    def _describe(self, params: Json, ctx: Context) -> dict[str, Any]:
        with self._session(ctx) as session:
            result = session.search(Search("", "base", match_all(), _ROOT_ATTRIBUTES), 1, 1)
        entries = _entries_to_json(result, {"attributes": _ROOT_ATTRIBUTES})
        return {"root": entries[0]["attributes"] if entries else {}}

    @contextmanager
    def _session(self, ctx: Context) -> Iterator[Session]:
        password = self.settings.get("password", "")
        if password and self._peer.tls == "off":
            raise ConfigError("Passwords are not sent in clear text; set `tls` to tls or starttls, or remove `bind_dn`.")
        session = Session(self._peer, ctx, self.settings.get("bind_dn", ""), password)
        try:
            yield session
        finally:
            session.close()


def _entries_to_json(result: SearchResult, params: Json) -> list[dict[str, Any]]:
    return [to_json(entry, params.get("attributes", ()), params.get("binary", ())) for entry in result.entries]

"""Credentials in settings: the schema of the `auth` block, and the headers and parameters it adds to a request.

Plugins use these instead of handling credentials themselves.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from appliance.connectors.contract import Context, Http, HttpAnswer, HttpRequest

AuthKind = Literal["none", "basic", "bearer", "header", "query", "oauth2"]
Grant = Literal["client_credentials", "authorization_code"]

Block = Mapping[str, Any]
Pairs = Sequence[tuple[str, str]]

_ADDRESS = r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$"
_NEEDS: Mapping[AuthKind, tuple[str, ...]] = {
    "basic": ("username", "password"),
    "bearer": ("token",),
    "header": ("name", "value"),
    "query": ("name", "value"),
    "oauth2": ("client_id",),
}


@dataclass(frozen=True)
class OAuthProfile:
    """Preset endpoints of one OAuth 2 provider; `{directory}` in a URL is replaced by the setting of that name."""

    authorize_url: str
    token_url: str
    scope: str = ""
    authorize_params: Mapping[str, str] = field(default_factory=dict)


PROFILES: Mapping[str, OAuthProfile] = MappingProxyType(
    {
        # Google issues a refresh token only for offline access, and only after a consent prompt.
        "google": OAuthProfile(
            "https://accounts.google.com/o/oauth2/v2/auth",
            "https://oauth2.googleapis.com/token",
            authorize_params={"access_type": "offline", "prompt": "consent"},
        ),
        # Microsoft issues one only for the scope offline_access, so it is added to any configured scopes.
        "microsoft": OAuthProfile(
            "https://login.microsoftonline.com/{directory}/oauth2/v2.0/authorize",
            "https://login.microsoftonline.com/{directory}/oauth2/v2.0/token",
            scope="offline_access",
        ),
    }
)


@dataclass(frozen=True)
class OAuth:
    """An `auth` block of kind `oauth2`, completed with the presets of its profile."""

    grant: Grant
    token_url: str
    authorize_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    client_auth: Literal["basic", "post"]
    authorize_params: Mapping[str, str]
    token_params: Mapping[str, str]


def oauth_of(auth: Block) -> OAuth | None:
    """Return the OAuth 2 configuration of a block; None when the block is of another kind."""
    if auth.get("kind") != "oauth2":
        return None
    profile = PROFILES.get(auth.get("profile", ""), OAuthProfile("", ""))
    directory = auth.get("directory", "common")
    grant = auth.get("grant", "client_credentials")
    usual = profile.scope if grant == "authorization_code" else ""
    scopes = [*usual.split(), *auth.get("scope", "").split()]
    return OAuth(
        grant=grant,
        token_url=auth.get("token_url") or profile.token_url.replace("{directory}", directory),
        authorize_url=auth.get("authorize_url") or profile.authorize_url.replace("{directory}", directory),
        client_id=auth["client_id"],
        client_secret=auth.get("client_secret", ""),
        scope=" ".join(dict.fromkeys(scopes)),
        client_auth=auth.get("client_auth", "post"),
        authorize_params={**profile.authorize_params, **auth.get("authorize_params", {})},
        token_params=auth.get("token_params", {}),
    )


def auth_settings(
    *kinds: AuthKind,
    grants: Sequence[Grant] = ("client_credentials", "authorization_code"),
    endpoints: bool = True,
) -> dict[str, Any]:
    """Build the JSON Schema of an `auth` block that offers these kinds.

    `endpoints=False` omits the provider's URLs: a connector for one vendor supplies them in `Connector.auth_of`.
    """
    usual = {"default": "none"} if "none" in kinds else {}
    members: dict[str, Any] = {"kind": {"enum": list(kinds), "title": "Kind", **usual}}
    for kind in kinds:
        for name, member in _members(kind).items():
            of_kinds = members.get(name, {}).get("only_for", {}).get("kind", [])
            members[name] = {**member, "only_for": {"kind": [*of_kinds, kind]}}
    rules = [_when({"kind": kind}, required=list(_NEEDS[kind])) for kind in kinds if kind in _NEEDS]
    if "oauth2" in kinds:
        members.update(_only_oauth(_oauth_members(grants, endpoints)))
        rules += _oauth_rules(grants, endpoints)
    return {
        "type": "object",
        "title": "Credentials",
        "required": ["kind"],
        "additionalProperties": False,
        "properties": members,
        "allOf": rules,
    }


def _text(title: str, description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "string", "title": title, **({"description": description} if description else {}), **more}


def _members(kind: AuthKind) -> dict[str, Any]:
    match kind:
        case "basic":
            return {"username": _text("User name", "For basic."), "password": _text("Password", "For basic.", secret=True)}
        case "bearer":
            return {"token": _text("Token", "For bearer.", secret=True)}
        case "header" | "query":
            name = _text("Name", "Of the header or query parameter that carries the key.", pattern=r"^[^\r\n]+$")
            return {"name": name, "value": _text("Key", "For header and query.", secret=True)}
    return {}


def _oauth_members(grants: Sequence[Grant], endpoints: bool) -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    members: dict[str, Any] = {
        "grant": {"enum": list(grants), "default": grants[0], "title": "How tokens are granted"},
        "client_id": _text("Client", "For oauth2.", minLength=1),
        "client_secret": _text("Client's secret", "For oauth2.", secret=True),
        "scope": _text("Scopes", "For oauth2, divided by spaces."),
        "client_auth": {"enum": ["post", "basic"], "default": "post", "title": "How the client proves itself"},
        "authorize_params": {**texts, "title": "Further parameters of the page that asks for consent"},
        "token_params": {**texts, "title": "Further parameters of requests for tokens"},
    }
    if endpoints:
        members |= {
            "profile": {"enum": ["generic", *PROFILES], "default": "generic", "title": "Provider", "secret_target": True},
            "directory": _text("Directory (tenant)", "For Microsoft.", pattern=r"^[A-Za-z0-9.-]{1,100}$", secret_target=True),
            "authorize_url": _text("Address that asks for consent", pattern=_ADDRESS),
            "token_url": _text("Address that gives tokens", pattern=_ADDRESS, secret_target=True),
        }
    return members


def _only_oauth(members: Mapping[str, Any]) -> dict[str, Any]:
    further = {
        "authorize_url": {"grant": ["authorization_code"]}, "authorize_params": {"grant": ["authorization_code"]},
        "directory": {"profile": ["microsoft"]},
    }  # fmt: skip
    return {name: {**member, "only_for": {"kind": ["oauth2"], **further.get(name, {})}} for name, member in members.items()}


def _oauth_rules(grants: Sequence[Grant], endpoints: bool) -> list[dict[str, Any]]:
    by_code = {"kind": "oauth2", "grant": "authorization_code"}
    rules = [_unless({"kind": "oauth2"}, {"grant": "authorization_code"}, ["client_secret"])]
    if grants[0] == "authorization_code":
        rules = [_when({"kind": "oauth2", "grant": "client_credentials"}, required=["client_secret"])]
    if endpoints:
        rules.append(_unless({"kind": "oauth2"}, {"profile": list(PROFILES)}, ["token_url"]))
        rules.append(_unless(by_code, {"profile": list(PROFILES)}, ["authorize_url"]))
    return rules


def _is(values: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: {"enum": value} if isinstance(value, list) else {"const": value} for name, value in values.items()}
    return {"required": list(values), "properties": properties}


def _when(values: Mapping[str, Any], *, required: list[str]) -> dict[str, Any]:
    return {"if": _is(values), "then": {"required": required}}


def _unless(values: Mapping[str, Any], but: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"if": {"allOf": [_is(values), {"not": _is(but)}]}, "then": {"required": required}}


@dataclass(frozen=True)
class Authorized:
    """An `Http` that adds the credentials of one block to every request, replacing headers and parameters of the same name.

    When an OAuth 2 token is refused with 401, it is renewed once and the request sent again; a 401 means it was not performed.
    """

    ctx: "Context"
    auth: Block

    def send(self, request: "HttpRequest") -> "HttpAnswer":
        """Send like `Http.send`; also raises AuthError when no token is available."""
        if self.auth.get("kind") != "oauth2":
            return self.ctx.http.send(_with(request, *credentials(self.auth)))
        token = self.ctx.access_token()
        answer = self.ctx.http.send(_with(request, _bearer(token), ()))
        if answer.status == 401:
            answer = self.ctx.http.send(_with(request, _bearer(self.ctx.access_token(token)), ()))
        return answer


def authorized(ctx: "Context", auth: Block) -> "Http":
    """Return the call's HTTP client with the credentials of an `auth` block, as returned by `Connector.auth_of`."""
    return Authorized(ctx, auth)


def credentials(auth: Block) -> tuple[Pairs, Pairs]:
    """Return the headers and query parameters of a block with static credentials; both are empty for OAuth 2."""
    match auth.get("kind", "none"):
        case "basic":
            login = base64.b64encode(f"{auth['username']}:{auth['password']}".encode()).decode("ascii")
            return [("Authorization", f"Basic {login}")], ()
        case "bearer":
            return _bearer(auth["token"]), ()
        case "header":
            return [(auth["name"], auth["value"])], ()
        case "query":
            return (), [(auth["name"], auth["value"])]
    return (), ()


def _bearer(token: str) -> Pairs:
    return [("Authorization", f"Bearer {token}")]


def _with(request: "HttpRequest", headers: Pairs, params: Pairs) -> "HttpRequest":
    return replace(
        request,
        headers=[*_without(request.headers, headers, str.lower), *headers],
        params=[*_without(request.params, params, str), *params],
    )


def _without(pairs: Pairs, others: Pairs, fold: Callable[[str], str]) -> Iterable[tuple[str, str]]:
    names = {fold(name) for name, _ in others}
    return [pair for pair in pairs if fold(pair[0]) not in names]

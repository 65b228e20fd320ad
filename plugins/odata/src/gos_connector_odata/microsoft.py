"""Settings shared by Microsoft's business products: application tokens from Entra ID."""

from typing import Any

from appliance.connectors.contract import Json

DIRECTORY: dict[str, Any] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9.-]{1,100}$",
    "title": "Directory (tenant)",
    "description": "The id or domain of the directory in Entra ID.",
    "secret_target": True,
}
TOKEN_URL: dict[str, Any] = {
    "type": "string",
    "pattern": r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$",
    "title": "Token address",
    "description": "Only for sovereign clouds, such as a government cloud.",
    "secret_target": True,
}
# OAuth 2 needs to know where to request tokens.
NEEDS_DIRECTORY: dict[str, Any] = {
    "if": {"properties": {"auth": {"properties": {"kind": {"const": "oauth2"}}}}},
    "then": {"anyOf": [{"required": ["directory"]}, {"required": ["token_url"]}]},
}


def entra_auth(settings: Json, resource: str) -> Json:
    """The `auth` block completed for Microsoft: the token endpoint and the scope of `resource`."""
    auth: Json = settings["auth"]
    if auth["kind"] != "oauth2":
        return auth
    endpoint = {"token_url": settings["token_url"]} if "token_url" in settings else {"directory": settings["directory"]}
    return {"scope": f"{resource}/.default", **auth, "profile": "microsoft", **endpoint}

"""What Microsoft's business products share: tokens of Entra ID for an application."""

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
    "description": "For clouds of their own, such as a government's.",
    "secret_target": True,
}
# With OAuth 2 it must be known who gives the tokens.
NEEDS_DIRECTORY: dict[str, Any] = {
    "if": {"properties": {"auth": {"properties": {"kind": {"const": "oauth2"}}}}},
    "then": {"anyOf": [{"required": ["directory"]}, {"required": ["token_url"]}]},
}


def entra_block(settings: Json, resource: str) -> Json:
    """The `auth` block with what Microsoft fixes: where tokens come from, and for which resource."""
    auth: Json = settings["auth"]
    if auth["kind"] != "oauth2":
        return auth
    where = {"token_url": settings["token_url"]} if "token_url" in settings else {"directory": settings["directory"]}
    return {"scope": f"{resource}/.default", **auth, "profile": "microsoft", **where}

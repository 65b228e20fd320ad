"""Security schemes of a document: which credentials an operation requires, and where they are sent."""

import base64
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConfigError
from gos_connector_openapi.document import Document

Pairs = list[tuple[str, str]]


def security_plan(document: Document, operation: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    """The alternatives, each a list of schemes that are all sent; an empty one means that no credentials are needed."""
    requirements = operation.get("security", document.root.get("security"))
    schemes = document.mapping(document.mapping(document.root.get("components")).get("securitySchemes"))
    alternatives = [each for each in requirements if isinstance(each, Mapping)] if isinstance(requirements, list) else []
    return [[_scheme(str(name), document.mapping(schemes.get(name))) for name in each] for each in alternatives]


def _scheme(name: str, scheme: Mapping[str, Any]) -> dict[str, str]:
    kind, how = str(scheme.get("type", "")), str(scheme.get("scheme", "")).lower()
    if kind == "apiKey" and scheme.get("in") in ("header", "query", "cookie"):
        return {"scheme": name, "kind": str(scheme["in"]), "name": str(scheme.get("name", ""))}
    if kind == "http" and how == "basic":
        return {"scheme": name, "kind": "basic"}
    if (kind == "http" and how == "bearer") or kind in ("oauth2", "openIdConnect"):
        return {"scheme": name, "kind": "bearer"}
    return {"scheme": name, "kind": "other"}


def choose_schemes(security: list[list[dict[str, str]]], settings: Mapping[str, Any]) -> list[dict[str, str]] | None:
    """The schemes of the first alternative for which the settings have credentials.

    None when the setting `auth` applies or no credentials are required.  ConfigError names what is missing.
    """
    configured = settings.get("credentials", {})
    for alternative in security:
        if alternative and all(each["scheme"] in configured and each["kind"] != "other" for each in alternative):
            return alternative
    if not security or any(not each for each in security) or settings.get("auth", {}).get("kind", "none") != "none":
        return None
    names = " or ".join(" with ".join(each["scheme"] for each in alternative) for alternative in security)
    raise ConfigError(f"This action requires credentials: set `credentials` for {names[:300]}, or `auth`.")


def credentials(schemes: list[dict[str, str]], settings: Mapping[str, Any]) -> tuple[Pairs, Pairs, Pairs]:
    """Headers, query parameters and cookies that carry the credentials."""
    headers: Pairs = []
    params: Pairs = []
    cookies: Pairs = []
    for each in schemes:
        secret = str(settings["credentials"][each["scheme"]])
        match each["kind"]:
            case "header":
                headers.append((each["name"], secret))
            case "query":
                params.append((each["name"], secret))
            case "cookie":
                cookies.append((each["name"], secret))
            case "basic":
                login = base64.b64encode(secret.encode()).decode("ascii")
                headers.append(("Authorization", f"Basic {login}"))
            case _:
                headers.append(("Authorization", f"Bearer {secret}"))
    return headers, params, cookies

"""Errors in the format of SCIM (RFC 7644 § 3.12); what is not an answer to the provider is logged and answered with 500."""

from pydantic import ValidationError
from scim2_models import Error, SCIMException

from appliance.core.errors import (
    AlreadyExists,
    ApplianceError,
    InvalidApiKey,
    InvalidFilter,
    InvalidJson,
    MissingApiKey,
    RevokedApiKey,
    ValidationFailed,
    http_status,
)
from appliance.web import Response, as_coded

CONTENT_TYPE = "application/scim+json"
_TYPES: dict[type[ApplianceError], tuple[int, str]] = {
    AlreadyExists: (409, "uniqueness"), ValidationFailed: (400, "invalidValue"), InvalidFilter: (400, "invalidFilter"),
    InvalidJson: (400, "invalidSyntax"),
}
_UNAUTHENTICATED = (MissingApiKey, InvalidApiKey, RevokedApiKey)


def render_error(error: BaseException) -> Response:
    """The response for an error of any kind."""
    if isinstance(error, ValidationError):
        return _respond(Error.from_validation_errors(error)[0])
    if isinstance(error, SCIMException):
        return _respond(error.to_error())
    coded = as_coded(error)
    status, scim_type = _TYPES.get(type(coded), (http_status(coded), None))
    headers = dict(coded.headers)
    if isinstance(coded, _UNAUTHENTICATED):
        headers["WWW-Authenticate"] = 'Bearer realm="scim"'
    return _respond(Error(status=status, scim_type=scim_type, detail=str(coded.message)), headers)


def _respond(error: Error, headers: dict[str, str] | None = None) -> Response:
    text = error.model_dump_json().encode("utf8", "replace")
    return Response(error.status or 400, text, {**(headers or {}), "Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

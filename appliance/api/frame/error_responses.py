"""The error responses of each operation: derived from what its route declares, plus the errors that its handler raises."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.api import limited_keys
from appliance.core.errors import ConnectorFailed, error_classes, http_status

from .examples import RecordedExample
from .routing import Json, Route

MEANINGS: Mapping[str, str] = {
    "action_withheld": "the foreign system now offers the action differently from the version that was approved",
    "address_not_allowed": "the key does not work from this IP address",
    "already_exists": "another resource has this name or place already",
    "answer_invalid": "the language model's answer has not the requested format, even after a retry",
    "answer_refused": "the language model declined to answer",
    "api_key_leaked": "the content contains a valid API key of this appliance",
    "approval_required": "a policy requires a person's approval; `approval_id` names the request, sent back in `Approval-Id`",
    "backup_invalid": "the passphrase is too short",
    "browser_call_refused": "a web page sent the key, which belongs on servers only",
    "budget_exceeded": "the money or number of calls allowed is used up",
    "concurrency_limited": "too many calls of this kind run at once; `Retry-After` says when to try again",
    "conflict": "the state of the resource does not allow this; the message says what does",
    "connector_failed": "a foreign system failed, or could not be reached",
    "definition_invalid": "a definition in the body is not valid; `details` lists each problem with its pointer",
    "document_kept": "the document is retained or under a legal hold",
    "draining": "the appliance is stopping; try again in a moment",
    "execution_finished": "it has ended already",
    "expired_api_key": "the key's time is over",
    "gone": "the content no longer exists",
    "grant_required": "this needs permissions that the caller lacks; an owner can grant them",
    "idempotency_in_flight": "the first request with this Idempotency-Key still runs",
    "idempotency_mismatch": "the Idempotency-Key was used for another request",
    "infected": "the malware scanner found something in the content",
    "internal": "a fault of the appliance; its log has more under `request_id`",
    "invalid_api_key": "the key is unknown, malformed or of another tenant",
    "invalid_cursor": "`cursor` belongs to another list or order",
    "invalid_filter": "the filter cannot be parsed, or compares what cannot be compared",
    "invalid_json": "the body is not JSON, has a member twice or is nested too deeply",
    "invalid_request": "a query parameter or the body cannot be parsed, or is not known",
    "key_limited": "the key is limited to some processes, collections and integrations, and the operation could reach others",
    "missing_api_key": "the header `X-API-Key` is missing",
    "not_found": "the resource does not exist, or belongs to another tenant",
    "not_published": "no version is published",
    "outcome_unknown": "the connection to the database was lost during a commit, so nobody knows whether the change was stored",
    "overloaded": "the appliance is too busy; `Retry-After` says when to try again",
    "payload_too_large": "the body is longer than the appliance accepts",
    "policy_denied": "a policy forbids this to agents, or a rule of the tenant to everyone",
    "preview_failed": "the content cannot be shown as a picture; `reason` says why",
    "quarantined": "the malware scanner has put the content into quarantine",
    "range_not_satisfiable": "the content has no bytes in the requested range",
    "rate_limited": "the key has used up its requests; `Retry-After` says when the window ends",
    "revoked_api_key": "the key was revoked, or ended with its issuer",
    "scan_failed": "the malware scanner did not answer, so the content was not accepted",
    "scope_missing": "the key lacks the scope named in `scope`",
    "storage_full": "the disk or the tenant's quota is full; reading goes on",
    "text_failed": "the text cannot be extracted; `reason` says why",
    "timed_out": "the call took longer than it may",
    "unknown_host": "this host name is not served here",
    "unsupported_media_type": "the `Content-Type` is not one that the operation takes",
    "validation_failed": "the body or a header has invalid members; `details` lists each with its pointer",
    "version_conflict": "the resource has changed since the version in `If-Match`",
}
_SERVER_ERRORS = "5XX"
"""One response for all statuses that say that the appliance, its disk or a foreign system is at fault."""
_ALWAYS = (
    "invalid_request", "missing_api_key", "invalid_api_key", "expired_api_key", "revoked_api_key", "address_not_allowed",
    "browser_call_refused", "unknown_host", "rate_limited", "internal", "overloaded", "timed_out",
)  # fmt: skip


_REJECTED = http_status(ConnectorFailed("", rejected=True))
"""The status when a foreign system rejects a request, which is the caller's error."""


def declared_codes(route: Route) -> dict[int, list[str]]:
    """The error codes of an operation by status: of its declaration, and those of its handler named in `errors`."""
    statuses = {each.code: each.status for each in error_classes()} | {"internal": 500}
    pairs = {(statuses[code], code) for code in (*_ALWAYS, *_derived_codes(route))}
    pairs |= {(each.status, each.code) for each in route.errors}
    if ConnectorFailed in route.errors:
        pairs.add((_REJECTED, ConnectorFailed.code))
    codes: dict[int, list[str]] = {}
    for status, code in sorted(pairs):
        codes.setdefault(status, []).append(code)
    return codes


def _derived_codes(route: Route) -> Iterator[str]:
    if route.name not in limited_keys.REACHABLE and not route.is_of_appliance:
        yield "key_limited"
    if route.scope is not None:
        yield "scope_missing"
    if route.parameters:
        yield "not_found"
    if route.query is not None and "cursor" in route.query.model_fields:
        yield "invalid_cursor"
    if route.query is not None and "filter" in route.query.model_fields:
        yield from ("invalid_filter", "payload_too_large")
    if not route.acts.is_governed:
        yield "policy_denied"
    if route.media == "text/event-stream":
        yield "concurrency_limited"
    if route.method != "GET":
        yield from _codes_of_write(route)


def _codes_of_write(route: Route) -> Iterator[str]:
    """Every write may have a body, which is refused where none is taken, and the headers If-Match and Approval-Id."""
    yield from ("payload_too_large", "validation_failed", "storage_full")
    if not route.acts.is_governed and route.acts.effect != "read":
        yield "approval_required"
    if route.method == "POST":
        yield from ("idempotency_in_flight", "idempotency_mismatch")
    if takes_if_match(route):
        yield "version_conflict"
    if route.body is not None and not (isinstance(route.body, Json) and (route.body.is_upload or route.takes_stream)):
        yield from ("invalid_json", "unsupported_media_type")


def takes_if_match(route: Route) -> bool:
    """Whether the operation honours the header If-Match, which its documentation then says."""
    return "If-Match" in (route.description + route.summary)


def error_responses(route: Route, components: dict[str, Any], example: RecordedExample) -> dict[str, Any]:
    """The error responses of an operation by status, as references to components, which are added where they are missing.

    The recorded refusal stands in the operation itself, because a reference has no example.
    """
    ranges: dict[str, list[str]] = {}
    for status, codes in declared_codes(route).items():
        ranges.setdefault(_SERVER_ERRORS if status >= 500 else str(status), []).extend(codes)
    responses: dict[str, Any] = {}
    for key, codes in ranges.items():
        response = _response("\n".join(f"- `{code}`: {MEANINGS[code]}" for code in codes))
        if key == str(example.refusal_status):
            response["content"]["application/json"]["example"] = example.refusal
            responses[key] = response
            continue
        name = f"Error{key}" + "".join(code.title().replace("_", "") for code in codes if code not in _ALWAYS)
        components.setdefault(name, response)
        responses[key] = {"$ref": f"#/components/responses/{name}"}
    return responses


def _response(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
        },
    }


_CODE = {"type": "string", "enum": sorted(MEANINGS), "description": "Which error it is; stable, for programs to decide by."}


def error_schema() -> dict[str, Any]:
    """The schema of the envelope around an error."""
    error = {
        "type": "object",
        "required": ["code", "message", "status", "request_id", "details"],
        "properties": {
            "code": _CODE,
            "message": {"type": "string", "description": "What is wrong and what to do next."},
            "status": {"type": "integer", "description": "HTTP status of the response, 400 to 507."},
            "request_id": {"type": "string", "description": "Identifies the request in the appliance's log, as `X-Request-Id`."},
            "details": {
                "type": "array",
                "items": _detail_schema(),
                "description": "Each problem with its place in the request; empty where there is only the message.",
            },
            "scope": {"type": "string", "description": "The scope that the key lacks; only with `scope_missing`."},
            "approval_id": {"type": "string", "description": "The request to people; only with `approval_required`."},
            "reason": {"type": "string", "description": "Which of several causes it has; only with codes that have several."},
        },
        "additionalProperties": True,
    }
    return {
        "type": "object",
        "required": ["success", "error"],
        "properties": {
            "success": {"const": False, "description": "Always false: nothing was done."},
            "error": {**error, "description": "Why the call was refused or failed; some codes add members."},
        },
    }


def problem_schema() -> dict[str, Any]:
    """The schema of an error in the form of RFC 9457, for callers that accept `application/problem+json`."""
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "instance", "code", "request_id", "errors"],
        "properties": {
            "type": {"type": "string", "description": "The code as a URN, `urn:gos:error:…`."},
            "title": {"type": "string", "description": "The words of the code."},
            "status": {"type": "integer", "description": "HTTP status of the response, 400 to 507."},
            "detail": {"type": "string", "description": "What is wrong and what to do next."},
            "instance": {"type": "string", "description": "The request as a URN, `urn:gos:request:…`."},
            "code": _CODE,
            "request_id": {"type": "string", "description": "Identifies the request in the appliance's log, as `X-Request-Id`."},
            "errors": {
                "type": "array",
                "items": _detail_schema(),
                "description": "Each problem with its place in the request; empty where there is only the detail.",
            },
        },
    }


def _detail_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["pointer", "code", "message"],
        "properties": {
            "pointer": {
                "type": "string",
                "description": "JSON pointer (RFC 6901) into the body, or `/` and the name of a parameter or header.",
            },
            "code": {"type": "string", "description": "What kind of problem it is, such as `required` or `unknown_member`."},
            "message": {"type": "string", "description": "What is wrong at this place, as a sentence."},
        },
    }

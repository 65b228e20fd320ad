"""Retention and legal hold of a document."""

from collections.abc import Callable
from functools import partial

from appliance.console.frame.routing import Answer, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.documents import retention

from .documents import document_page

_AT = "/documents/<document_id>"


@page("POST", f"{_AT}/retention", scope="documents.retain")
def retain_document(visit: Visit, document_id: str) -> Answer:
    """Retain the document until the end of a day (UTC)."""

    def retain() -> None:
        until = clock.parse_rfc3339(f"{_day(visit.request.field('until'))}T23:59:59Z", pointer="/retain_until")
        retention.set_retention(visit.scope, document_id, until)

    return _run_and_redirect(visit, document_id, retain)


def _day(text: str) -> str:
    if not text:
        raise ValidationFailed("choose the last day of the retention", pointer="/retain_until")
    return text


@page("POST", f"{_AT}/retention/end", scope="documents.retain")
def end_retention(visit: Visit, document_id: str) -> Answer:
    """End the retention of the document."""
    return _run_and_redirect(visit, document_id, partial(retention.set_retention, visit.scope, document_id, None))


@page("POST", f"{_AT}/legal-hold", scope="documents.retain")
def hold_document(visit: Visit, document_id: str) -> Answer:
    """Put the document under a legal hold, or change the reason of the current one."""
    reason = visit.request.field("reason").replace("\r\n", "\n")
    return _run_and_redirect(visit, document_id, partial(retention.set_hold, visit.scope, document_id, reason))


@page("POST", f"{_AT}/legal-hold/release", scope="documents.retain")
def release_document(visit: Visit, document_id: str) -> Answer:
    """End the legal hold."""
    return _run_and_redirect(visit, document_id, partial(retention.release_hold, visit.scope, document_id))


def _run_and_redirect(visit: Visit, document_id: str, work: Callable[[], object]) -> Answer:
    try:
        work()
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal, of_form="keeping")
    return Redirect(f"/console/documents/{document_id}#keeping-title")

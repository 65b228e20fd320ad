"""Quarantine of contents: downloads, texts, search, previews, shares and public delivery all ask here."""

from collections.abc import Iterable
from typing import Any

from appliance.core.database.id_lists import is_listed
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.sharing.delivery_models import ScanRow

CLEAN = "clean"
# The same condition as `quarantined`, for a table with the columns tenant_id and content, in queries across tenants.
SQL_NOT_QUARANTINED = (
    "NOT EXISTS (SELECT 1 FROM document_scan s WHERE s.tenant_id = {table}.tenant_id AND s.sha256 = {table}.content "
    "AND s.state <> 'clean')"
)


class Quarantined(ApplianceError):
    """The content is stored, but not delivered until the scanner has found it clean."""

    code, status = "quarantined", 409


def quarantined(scope: TenantScope) -> Any:
    """The sha256 of every quarantined or infected content, as a subquery."""
    return scope.select(ScanRow, ScanRow.sha256).where(ScanRow.state != CLEAN)


def is_quarantined(scope: TenantScope, sha256: str) -> bool:
    """Whether the content is quarantined or infected."""
    return bool(quarantined(scope).where(ScanRow.sha256 == sha256).exists())


def list_quarantined(scope: TenantScope, contents: Iterable[str]) -> set[str]:
    """Those of the contents that are quarantined or infected."""
    return {row.sha256 for row in quarantined(scope).where(is_listed("sha256", sorted(set(contents))))}


def check_not_quarantined(scope: TenantScope, sha256: str) -> None:
    """Quarantined when the content is quarantined or infected."""
    row = scope.find(ScanRow, sha256=sha256)
    if row is not None and row.state != CLEAN:
        why = "is malware" if row.state == "infected" else "could not be scanned for malware yet"
        raise Quarantined(Sentence("the content %(why)s and is not delivered; delete the document, or ask the operator", why=why))

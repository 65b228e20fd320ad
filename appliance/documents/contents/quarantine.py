"""Which contents nobody gets: the one place that says so, to downloads, texts, search, pictures, shares and public delivery."""

from collections.abc import Iterable
from typing import Any

from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.sharing.delivery_models import ScanRow

CLEAN = "clean"
# The same of a table whose rows name a tenant and a content, in a query over every tenant.
SQL_NOT_KEPT_BACK = (
    "NOT EXISTS (SELECT 1 FROM document_scan s WHERE s.tenant_id = {table}.tenant_id AND s.sha256 = {table}.content "
    "AND s.state <> 'clean')"
)


class Quarantined(ApplianceError):
    """The content is kept and given to nobody until the scanner has found it clean."""

    code, status = "quarantined", 409


def kept_back(scope: TenantScope) -> Any:
    """The sha256 of every content that a scanner holds back, as a part of a query."""
    return scope.select(ScanRow, ScanRow.sha256).where(ScanRow.state != CLEAN)


def is_kept_back(scope: TenantScope, sha256: str) -> bool:
    """Whether a scanner holds the content back."""
    return bool(kept_back(scope).where(ScanRow.sha256 == sha256).exists())


def kept_back_of(scope: TenantScope, contents: Iterable[str]) -> set[str]:
    """Those of the contents that a scanner holds back."""
    return {row.sha256 for row in kept_back(scope).where(ScanRow.sha256.in_(sorted(set(contents))))}


def refuse_kept_back(scope: TenantScope, sha256: str) -> None:
    """Quarantined when a scanner holds the content back."""
    row = scope.find(ScanRow, sha256=sha256)
    if row is not None and row.state != CLEAN:
        why = "is malware" if row.state == "infected" else "could not be scanned for malware yet"
        raise Quarantined(Sentence("the content %(why)s and is given to nobody; delete the document, or ask the operator", why=why))

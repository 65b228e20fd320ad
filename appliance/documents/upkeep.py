"""What is done with documents again and again: those past the time of their folder go, what is in quarantine is scanned."""

import logging

from appliance.core import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .keeping import overdue_documents
from .service import Documents

log = logging.getLogger(__name__)


def delete_overdue(documents: Documents) -> int:
    """Delete what the rules of its folders allow no longer; answers how many."""
    count = 0
    for scope, document_id, days in list(overdue_documents()):
        try:
            db.write(lambda scope=scope, document_id=document_id, days=days: _delete(documents, scope, document_id, days))  # type: ignore[misc]
            count += 1
        except ApplianceError as error:  # held, deleted or moved meanwhile: the next round looks again
            log.info("a document past its time stays: %s", error.message)
    return count


def _delete(documents: Documents, scope: TenantScope, document_id: str, days: int) -> None:
    documents.delete_document(scope, document_id)
    audit.record(scope, "document.expire", document_id, {"delete_after_days": days})

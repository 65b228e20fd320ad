"""What is done with documents again and again: those past the time of their folder go, what is in quarantine is scanned."""

import logging
from functools import partial

from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .keeping import Overdue, overdue_documents, refuse_unruled
from .service import Documents

log = logging.getLogger(__name__)


def delete_overdue(documents: Documents) -> int:
    """Delete what the rules of its folders allow no longer; answers how many."""
    count = 0
    for scope, overdue in list(overdue_documents()):
        try:
            db.write(partial(_delete, documents, scope, overdue))
            count += 1
        except ApplianceError as error:  # held, changed, deleted or moved meanwhile: the next round looks again
            log.info("a document past its time stays: %s", error.message)
    return count


def _delete(documents: Documents, scope: TenantScope, overdue: Overdue) -> None:
    """Inside a write: what was found before must still be so."""
    refuse_unruled(scope, overdue, documents.get_document(scope, overdue.document_id).folder)
    documents.delete_document(scope, overdue.document_id, if_version=overdue.version)
    audit.record(scope, "document.expire", overdue.document_id, {"delete_after_days": overdue.days})

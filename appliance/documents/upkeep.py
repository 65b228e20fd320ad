"""Periodic tasks: deletes documents that their folder's rule no longer allows."""

import logging
from functools import partial

from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .retention import Overdue, check_still_overdue, list_overdue
from .service import Documents

log = logging.getLogger(__name__)


def delete_overdue(documents: Documents) -> int:
    """Delete documents that the rules of their folders no longer allow; returns how many."""
    count = 0
    for scope, overdue in list(list_overdue()):
        try:
            db.write(partial(_delete, documents, scope, overdue))
            count += 1
        except ApplianceError as error:  # retained, changed, deleted or moved in the meantime; the next round tries again
            log.info("an overdue document was not deleted: %s", error.message)
    return count


def _delete(documents: Documents, scope: TenantScope, overdue: Overdue) -> None:
    """Inside a write: check again that the document is still overdue, then delete it."""
    check_still_overdue(scope, overdue, documents.get_document(scope, overdue.document_id).folder)
    documents.delete_document(scope, overdue.document_id, if_version=overdue.version)
    audit.record(scope, "document.expire", overdue.document_id, {"delete_after_days": overdue.days})

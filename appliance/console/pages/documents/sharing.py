"""Values that the pages of shares and of downloads have in common."""

from appliance.console.frame.routing import Visit
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.texts import mark

SHARE_DAYS = (
    ("1", mark("in 1 day")), ("7", mark("in 7 days")), ("14", mark("in 14 days")), ("30", mark("in 30 days")),
    ("90", mark("in 90 days")), ("365", mark("in a year")),
)  # fmt: skip


def names_of_shares(visit: Visit, document_id: str) -> dict[str, str]:
    """Display names of the latest shares by id: the first line of their note, or the id."""
    shares = visit.services.documents.shares.list_shares(visit.scope, document_id, PageRequest(MAX_LIMIT)).items
    return {share.id: share.note.split("\n")[0][:80] or share.id for share in shares}

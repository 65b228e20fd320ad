"""The version that an execution starts with, and all that decides whether it may start, in one query."""

from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import NotFound, NotPublished
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence


@dataclass(frozen=True, slots=True)
class StartableVersion:
    """A version of a process, as it was read: the digests of its draft and of its grant, and until when it may start."""

    version: int
    draft_digest: str
    grant_digest: str | None
    allowed_until: int | None
    is_paused: bool


# Plain SQL: this runs before every execution, and building the query took longer than running it.
_FIND = (
    "SELECT p.published_version, p.paused_at, v.version, v.draft_digest, v.grant_digest, v.allowed_until FROM process p "
    "LEFT JOIN process_version v ON v.tenant_id = p.tenant_id AND v.process_id = p.id AND v.version = {version} "
    "WHERE p.tenant_id = ? AND p.id = ?"
)
_FIND_PUBLISHED, _FIND_REQUESTED = _FIND.format(version="p.published_version"), _FIND.format(version="?")


def find_startable(scope: TenantScope, process_id: str, requested: int | None) -> StartableVersion:
    """The requested version, or the published one; NotFound, NotPublished."""
    mine = (scope.tenant_id, process_id)
    rows = db.rows(_FIND_PUBLISHED, mine) if requested is None else db.rows(_FIND_REQUESTED, (requested, *mine))
    if not rows:
        raise NotFound(Sentence("there is no process %(process_id)s here", process_id=repr(process_id[:80])))
    published, paused_at, version, draft_digest, grant_digest, allowed_until = rows[0]
    if version is not None:
        return StartableVersion(version, draft_digest, grant_digest, allowed_until, paused_at is not None)
    if requested is not None:
        raise no_such_version(process_id, requested)
    if published is None:
        raise NotPublished(
            Sentence("%(process_id)s has no published version; publish its draft first", process_id=repr(process_id))
        )
    raise no_such_version(process_id, published)


def no_such_version(process_id: str, version: int) -> NotFound:
    """The error for a version that a process does not have."""
    return NotFound(
        Sentence("the process %(process_id)s has no version %(wanted)s", process_id=repr(process_id), wanted=version)
    )

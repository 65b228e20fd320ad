"""Public documents: one path of the tenant's CDN host each, and which revision is delivered there."""

from dataclasses import dataclass

from peewee import IntegrityError

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.models import DocumentRow
from appliance.documents.naming import LONGEST_FOLDER, clean_name
from appliance.monitor import audit

from .delivery_models import PublicationRow
from .downloads import PublicDeliveries
from .leaving import Exits, Leaving, Wanted, parse_wanted

FOREVER, CHECKED = "immutable", "revalidate"
LONGEST_CACHE_S = 31_536_000
RESERVED = ("s", "_gos")  # first parts that the CDN host uses itself


@dataclass(frozen=True)
class NewPublication:
    """Where and how: `cache` is `immutable` (of a numbered revision only), `revalidate`, or seconds."""

    path: str
    revision: Wanted = "latest"
    cache: str | int = CHECKED


@dataclass(frozen=True)
class Publication:
    """A public document; `serves` is the revision that is delivered now, None when none may be."""

    document_id: str
    path: str
    revision: Wanted
    cache: str | int
    serves: int | None
    created_at: int
    created_by: str


class Publications:
    """What every tenant has made public."""

    def __init__(self, exits: Exits) -> None:
        self._exits = exits
        self.deliveries = PublicDeliveries()

    def publish(self, scope: TenantScope, document_id: str, new: NewPublication) -> Publication:
        """Make the document public at this path, and at no other from now on.

        AlreadyExists when another document is there; ValidationFailed, Conflict, ApiKeyLeaked.
        """
        path = check_path(new.path)
        _check_cache(new)
        self._exits.check(scope, document_id, new.revision)
        values = {"path": path, "revision": str(new.revision), "cache": str(new.cache)}

        def put() -> PublicationRow:
            scope.get(DocumentRow, id=document_id)
            told = {**values, "created_at": clock.now_ms(), "created_by": scope.actor}
            try:
                with db.savepoint():
                    here = scope.update(PublicationRow, **told).where(PublicationRow.document_id == document_id)
                    if not here.execute():
                        scope.insert(PublicationRow, document_id=document_id, **told)
            except IntegrityError as error:
                raise AlreadyExists(
                    Sentence("another document is at %(path)s; choose another path", path=repr(path[:100])), pointer="/path"
                ) from error
            audit.record(scope, "document.publish", document_id, values)
            return scope.get(PublicationRow, document_id=document_id)

        return self._shown(scope, db.write(put))  # which may read a content: not inside the write

    def unpublish(self, scope: TenantScope, document_id: str) -> None:
        """Deliver the document in public no longer; nothing happens when it was not."""

        def delete() -> None:
            scope.get(DocumentRow, id=document_id)
            if scope.delete(PublicationRow).where(PublicationRow.document_id == document_id).execute():
                audit.record(scope, "document.unpublish", document_id)

        db.write(delete)

    def get_publication(self, scope: TenantScope, document_id: str) -> Publication:
        """Where the document is public; NotFound."""
        return self._shown(scope, scope.get(PublicationRow, document_id=document_id))

    def find_public(self, scope: TenantScope, path: str) -> tuple[Leaving, str | int] | None:
        """What is delivered at a path, and for how long others may keep it; None for nothing."""
        row = None if "\0" in path else scope.find(PublicationRow, path=path)  # which a server takes in no text
        found = None if row is None else self._exits.find(scope, row.document_id, parse_wanted(row.revision))
        return None if row is None or found is None else (found, _cache(row.cache))

    def _shown(self, scope: TenantScope, row: PublicationRow) -> Publication:
        wanted = parse_wanted(row.revision)
        found = self._exits.find(scope, row.document_id, wanted)
        serves = None if found is None else found.revision
        return Publication(row.document_id, row.path, wanted, _cache(row.cache), serves, row.created_at, row.created_by)


def check_path(path: str) -> str:
    """The path without its first slash; ValidationFailed unless it is one that every browser leaves as it is."""
    plain = path.removeprefix("/")
    parts = plain.split("/")
    if not plain or len(plain) > LONGEST_FOLDER or any(not part or clean_name(part) != part for part in parts):
        raise ValidationFailed(
            Sentence(
                "%(path)s is not a path; write it like reports/2026/summary.pdf, at most %(longest_folder)s characters",
                path=repr(path[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer="/path",
        )
    if parts[0] in RESERVED:
        raise ValidationFailed(
            Sentence("paths below /%(parts)s/ are the appliance's own; choose another", parts=parts[0]), pointer="/path"
        )
    return plain


def _check_cache(new: NewPublication) -> None:
    if isinstance(new.cache, int):
        if not 0 <= new.cache <= LONGEST_CACHE_S:
            raise ValidationFailed(
                Sentence("cache is between 0 and %(longest_cache_s)s seconds", longest_cache_s=LONGEST_CACHE_S), pointer="/cache"
            )
    elif new.cache not in (FOREVER, CHECKED):
        raise ValidationFailed(
            Sentence("cache is %(forever)s, %(checked)s or a number of seconds", forever=FOREVER, checked=CHECKED), pointer="/cache"
        )
    elif new.cache == FOREVER and not isinstance(new.revision, int):
        raise ValidationFailed(
            "what is kept for ever must not change: name the number of a revision, or another cache", pointer="/cache"
        )


def _cache(text: str) -> str | int:
    return text if text in (FOREVER, CHECKED) else int(text)

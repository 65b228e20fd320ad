"""Public documents: each has one path on the tenant's CDN host, where one of its revisions is delivered."""

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

from .delivery import DeliverableContent, DeliveryPolicy, RevisionChoice, parse_choice
from .delivery_models import PublicationRow
from .downloads import PublicDeliveries

FOREVER, CHECKED = "immutable", "revalidate"
LONGEST_CACHE_S = 31_536_000
RESERVED = ("s", "_gos")  # first path segments that the CDN host uses itself


@dataclass(frozen=True)
class NewPublication:
    """A publication to create: `cache` is `immutable` (for a numbered revision only), `revalidate`, or seconds."""

    path: str
    revision: RevisionChoice = "latest"
    cache: str | int = CHECKED


@dataclass(frozen=True)
class Publication:
    """A public document; `serves` is the revision delivered now, None when none may be."""

    document_id: str
    path: str
    revision: RevisionChoice
    cache: str | int
    serves: int | None
    created_at: int
    created_by: str


class Publications:
    """The public documents of every tenant."""

    def __init__(self, policy: DeliveryPolicy) -> None:
        self._policy = policy
        self.deliveries = PublicDeliveries()

    def publish(self, scope: TenantScope, document_id: str, new: NewPublication) -> Publication:
        """Publish the document at this path, replacing any earlier path of it.

        AlreadyExists when the path belongs to another document; ValidationFailed, Conflict, ApiKeyLeaked.
        """
        path = check_path(new.path)
        _check_cache(new)
        self._policy.check(scope, document_id, new.revision)
        values = {"path": path, "revision": str(new.revision), "cache": str(new.cache)}

        def save() -> PublicationRow:
            scope.get(DocumentRow, id=document_id)
            fields = {**values, "created_at": clock.now_ms(), "created_by": scope.actor}
            try:
                with db.savepoint():
                    query = scope.update(PublicationRow, **fields).where(PublicationRow.document_id == document_id)
                    if not query.execute():
                        scope.insert(PublicationRow, document_id=document_id, **fields)
            except IntegrityError as error:
                raise AlreadyExists(
                    Sentence("the path %(path)s belongs to another document; choose another path", path=repr(path[:100])),
                    pointer="/path",
                ) from error
            audit.record(scope, "document.publish", document_id, values)
            return scope.get(PublicationRow, document_id=document_id)

        return self._to_publication(scope, db.write(save))  # may read a content, so not inside the write

    def unpublish(self, scope: TenantScope, document_id: str) -> None:
        """Stop publishing the document; does nothing when it is not public."""

        def delete() -> None:
            scope.get(DocumentRow, id=document_id)
            if scope.delete(PublicationRow).where(PublicationRow.document_id == document_id).execute():
                audit.record(scope, "document.unpublish", document_id)

        db.write(delete)

    def get_publication(self, scope: TenantScope, document_id: str) -> Publication:
        """The publication of the document; NotFound."""
        return self._to_publication(scope, scope.get(PublicationRow, document_id=document_id))

    def find_public(self, scope: TenantScope, path: str) -> tuple[DeliverableContent, str | int] | None:
        """The content delivered at a path, and its cache setting; None when there is none."""
        row = None if "\0" in path else scope.find(PublicationRow, path=path)  # PostgreSQL refuses NUL in text
        content = None if row is None else self._policy.find(scope, row.document_id, parse_choice(row.revision))
        return None if row is None or content is None else (content, _parse_cache(row.cache))

    def _to_publication(self, scope: TenantScope, row: PublicationRow) -> Publication:
        choice = parse_choice(row.revision)
        content = self._policy.find(scope, row.document_id, choice)
        serves = None if content is None else content.revision
        return Publication(
            document_id=row.document_id, path=row.path, revision=choice, cache=_parse_cache(row.cache), serves=serves,
            created_at=row.created_at, created_by=row.created_by,
        )


def check_path(path: str) -> str:
    """The path without its leading slash; ValidationFailed unless browsers request it unchanged."""
    relative_path = path.removeprefix("/")
    parts = relative_path.split("/")
    if not relative_path or len(relative_path) > LONGEST_FOLDER or any(not part or clean_name(part) != part for part in parts):
        raise ValidationFailed(
            Sentence(
                "%(path)s is not a path; use one such as reports/2026/summary.pdf, at most %(longest_folder)s characters",
                path=repr(path[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer="/path",
        )
    if parts[0] in RESERVED:
        raise ValidationFailed(
            Sentence("paths below /%(parts)s/ are reserved for the appliance; choose another", parts=parts[0]), pointer="/path"
        )
    return relative_path


def _check_cache(new: NewPublication) -> None:
    if isinstance(new.cache, int):
        if not 0 <= new.cache <= LONGEST_CACHE_S:
            raise ValidationFailed(
                Sentence("cache is between 0 and %(longest_cache_s)s seconds", longest_cache_s=LONGEST_CACHE_S), pointer="/cache"
            )
    elif new.cache not in (FOREVER, CHECKED):
        raise ValidationFailed(
            Sentence("cache must be %(forever)s, %(checked)s or a number of seconds", forever=FOREVER, checked=CHECKED),
            pointer="/cache",
        )
    elif new.cache == FOREVER and not isinstance(new.revision, int):
        raise ValidationFailed(
            "immutable needs a fixed content: choose a numbered revision, or another cache setting", pointer="/cache"
        )


def _parse_cache(text: str) -> str | int:
    return text if text in (FOREVER, CHECKED) else int(text)

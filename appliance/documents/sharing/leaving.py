"""Which revision of a document may leave the appliance now, and whether one may at all."""

from dataclasses import dataclass
from typing import Literal, Protocol

from appliance.blobs import Blobs
from appliance.core.database import db
from appliance.core.errors import ApiKeyLeaked, Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.contents.key_checks import KeyChecks
from appliance.documents.contents.quarantine import is_kept_back
from appliance.documents.folder_rules import demands_review
from appliance.documents.models import DocumentRevision, DocumentRow

Wanted = int | Literal["latest", "latest_approved"]


class Reviews(Protocol):
    """What was approved.  A review approves one sha256, so that a later revision is not approved by it."""

    def latest_approved(self, scope: TenantScope, document_id: str) -> int | None:
        """The newest revision that was approved; None when none was."""

    def is_approved(self, scope: TenantScope, document_id: str, revision: int) -> bool:
        """Whether this revision was approved."""


@dataclass(frozen=True)
class Leaving:
    """One content on its way out."""

    document_id: str
    revision: int
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int


class Exits:
    """Decides what leaves.  Everything that is delivered in public or by a share has come past here."""

    def __init__(self, blobs: Blobs, reviews: Reviews) -> None:
        self._reviews = reviews
        self._key_checks = KeyChecks(blobs)

    def find(self, scope: TenantScope, document_id: str, wanted: Wanted) -> Leaving | None:
        """What leaves now; None when nothing may: nothing is approved, it is in quarantine, or it holds an API key.

        Not inside a write: a content that nobody has looked at yet is read.
        """
        with db.snapshot():
            row = scope.find(DocumentRow, id=document_id)
            number = None if row is None else self._number(scope, row, wanted)
            found = None if number is None else scope.find(DocumentRevision, document_id=document_id, number=number)
            if row is None or found is None or is_kept_back(scope, found.sha256):
                return None
        if self._key_checks.holds_key(scope, found.sha256):
            return None
        return Leaving(document_id, found.number, row.name, found.media_type, found.size, found.sha256, found.created_at)

    def check(self, scope: TenantScope, document_id: str, wanted: Wanted) -> None:
        """Before something is published or shared: ValidationFailed for a revision that is not there, Conflict for one that
        would have to be approved, ApiKeyLeaked.  What is to be approved later may be prepared today."""
        with db.snapshot():
            row = scope.get(DocumentRow, id=document_id)
            if isinstance(wanted, int):
                if scope.find(DocumentRevision, document_id=document_id, number=wanted) is None:
                    raise ValidationFailed(
                        Sentence(
                            "the document has no revision %(wanted)s; it has %(revision)s", wanted=wanted, revision=row.revision
                        ),
                        pointer="/revision",
                    )
                if demands_review(scope, row.folder) and not self._reviews.is_approved(scope, document_id, wanted):
                    raise Conflict(Sentence(
                        "revision %(wanted)s is not approved, which its folder demands; have it reviewed, or name "
                        "latest_approved",
                        wanted=wanted,
                    ))
            number = self._number(scope, row, wanted)
            found = None if number is None else scope.get(DocumentRevision, document_id=document_id, number=number)
        if found is not None and self._key_checks.holds_key(scope, found.sha256):
            raise ApiKeyLeaked(Sentence(
                "revision %(number)s holds an API key, which others could read: revoke the key and upload the file without it",
                number=found.number,
            ))

    def _number(self, scope: TenantScope, row: DocumentRow, wanted: Wanted) -> int | None:
        demanded = demands_review(scope, row.folder)
        if isinstance(wanted, int):
            return None if demanded and not self._reviews.is_approved(scope, row.id, wanted) else wanted
        if demanded or wanted == "latest_approved":
            return self._reviews.latest_approved(scope, row.id)
        return int(row.revision)


def parse_wanted(text: str) -> Wanted:
    """A stored wish again."""
    if text == "latest":
        return "latest"
    return "latest_approved" if text == "latest_approved" else int(text)

"""Decides which revision of a document may be delivered, if any."""

from dataclasses import dataclass
from typing import Literal, Protocol

from appliance.blobs import Blobs
from appliance.core.database import db
from appliance.core.errors import ApiKeyLeaked, Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.contents.key_checks import KeyChecks
from appliance.documents.contents.quarantine import is_quarantined
from appliance.documents.folder_rules import requires_review
from appliance.documents.models import DocumentRevision, DocumentRow

RevisionChoice = int | Literal["latest", "latest_approved"]


class Reviews(Protocol):
    """Which revisions are approved. A review approves one sha256, so a later revision with other content is not approved by it."""

    def latest_approved(self, scope: TenantScope, document_id: str) -> int | None:
        """The newest approved revision; None when there is none."""

    def is_approved(self, scope: TenantScope, document_id: str, revision: int) -> bool:
        """Whether this revision is approved."""


@dataclass(frozen=True)
class DeliverableContent:
    """A content that may be delivered."""

    document_id: str
    revision: int
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int


class DeliveryPolicy:
    """Decides what may be delivered; every public delivery and every share asks here."""

    def __init__(self, blobs: Blobs, reviews: Reviews) -> None:
        self._reviews = reviews
        self._key_checks = KeyChecks(blobs)

    def find(self, scope: TenantScope, document_id: str, choice: RevisionChoice) -> DeliverableContent | None:
        """The content to deliver now; None when nothing may be delivered: not approved, quarantined, or containing an API key.

        Not inside a write, because a new content is read to check it for keys.
        """
        with db.snapshot():
            row = scope.find(DocumentRow, id=document_id)
            number = None if row is None else self._number(scope, row, choice)
            revision = None if number is None else scope.find(DocumentRevision, document_id=document_id, number=number)
            if row is None or revision is None or is_quarantined(scope, revision.sha256):
                return None
        if self._key_checks.holds_key(scope, revision.sha256):
            return None
        return DeliverableContent(
            document_id=document_id, revision=revision.number, name=row.name, media_type=revision.media_type, size=revision.size,
            sha256=revision.sha256, created_at=revision.created_at,
        )

    def check(self, scope: TenantScope, document_id: str, choice: RevisionChoice) -> None:
        """Check a publication or share before it is created: ValidationFailed for a missing revision, Conflict for one that
        needs approval, ApiKeyLeaked. `latest_approved` is allowed before anything is approved."""
        with db.snapshot():
            row = scope.get(DocumentRow, id=document_id)
            if isinstance(choice, int):
                if scope.find(DocumentRevision, document_id=document_id, number=choice) is None:
                    raise ValidationFailed(
                        Sentence(
                            "the document has no revision %(wanted)s; it has %(revision)s", wanted=choice, revision=row.revision
                        ),
                        pointer="/revision",
                    )
                if requires_review(scope, row.folder) and not self._reviews.is_approved(scope, document_id, choice):
                    raise Conflict(Sentence(
                        "revision %(wanted)s is not approved, as its folder requires; have it reviewed, or choose "
                        "latest_approved",
                        wanted=choice,
                    ))
            number = self._number(scope, row, choice)
            revision = None if number is None else scope.get(DocumentRevision, document_id=document_id, number=number)
        if revision is not None and self._key_checks.holds_key(scope, revision.sha256):
            raise ApiKeyLeaked(Sentence(
                "revision %(number)s contains an API key that others could read: revoke the key and upload the file without it",
                number=revision.number,
            ))

    def _number(self, scope: TenantScope, row: DocumentRow, choice: RevisionChoice) -> int | None:
        is_review_required = requires_review(scope, row.folder)
        if isinstance(choice, int):
            return None if is_review_required and not self._reviews.is_approved(scope, row.id, choice) else choice
        if is_review_required or choice == "latest_approved":
            return self._reviews.latest_approved(scope, row.id)
        return int(row.revision)


def parse_choice(text: str) -> RevisionChoice:
    """Parse the stored form."""
    if text == "latest":
        return "latest"
    return "latest_approved" if text == "latest_approved" else int(text)

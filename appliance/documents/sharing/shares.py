"""Shares: governed links to one document that expire, can have a password, and count every download.

The token of a link has 192 random bits and is shown once; only its keyed hash is stored.
"""

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.bounded_work import BoundedWork
from appliance.documents.models import DocumentRow
from appliance.monitor import audit, delete_older

from . import audiences, downloads
from .audiences import Audience, AudienceChange
from .delivery import DeliverableContent, DeliveryPolicy, RevisionChoice, parse_choice
from .delivery_models import DownloadRow, ShareRow
from .downloads import Origin

DAY = 86_400_000
DEFAULT_DAYS, LONGEST_DAYS = 14, 366
MOST_SHARES = 1_000
LONGEST_NOTE = 1_000
VISIT_MS = 24 * 3_600_000  # how long a download can be continued
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)  # OWASP's recommendation for argon2id
_hashing = BoundedWork("password hashing", 4, 8, 5.0)


@dataclass(frozen=True)
class NewShare:
    """A share to create; times in milliseconds."""

    revision: RevisionChoice = "latest"
    expires_at: int | None = None
    password: str | None = None
    max_downloads: int | None = None
    note: str = ""
    audience: AudienceChange | None = None


@dataclass(frozen=True)
class Share:
    """A share link without its token."""

    id: str
    document_id: str
    revision: RevisionChoice
    expires_at: int
    has_password: bool
    max_downloads: int | None
    downloads: int
    note: str
    created_at: int
    created_by: str
    revoked_at: int | None
    state: Literal["active", "expired", "used_up", "revoked"]
    audience: Audience | None = None
    audience_number: int = 0


@dataclass(frozen=True)
class OpenShare:
    """A followed share link that is still valid, with its content."""

    share: Share
    content: DeliverableContent


class Shares:
    """The shares of every tenant."""

    def __init__(self, policy: DeliveryPolicy, sealer: Sealer) -> None:
        self._policy = policy
        self._sealer = sealer

    # -- for members

    def create_share(self, scope: TenantScope, document_id: str, new: NewShare) -> tuple[Share, str]:
        """Create a share; returns it with its token, which is not shown again. ValidationFailed, Conflict, ApiKeyLeaked,
        NotFound, Overloaded."""
        now = clock.now_ms()
        expires_at = now + DEFAULT_DAYS * DAY if new.expires_at is None else new.expires_at
        _validate(new, expires_at, now)
        self._policy.check(scope, document_id, new.revision)
        token = secrets.token_urlsafe(24)
        password_hash = None if new.password is None else _hash_password(new.password)
        audience = None if new.audience is None else new.audience.applied(None)

        def insert() -> Share:
            scope.get(DocumentRow, id=document_id)
            live = scope.select(ShareRow).where(ShareRow.document_id == document_id, ShareRow.revoked_at.is_null())
            if live.where(ShareRow.expires_at > now).count() >= MOST_SHARES:
                raise Conflict(Sentence(
                    "a document has at most %(most_shares)s shares at a time; revoke one that is not used",
                    most_shares=MOST_SHARES,
                ))
            share_id = ids.new("shr")
            scope.insert(
                ShareRow, id=share_id, document_id=document_id, digest=self._digest(token), revision=str(new.revision),
                expires_at=expires_at, password_hash=password_hash, max_downloads=new.max_downloads, downloads=0, note=new.note,
                created_at=now, created_by=scope.actor, audience=audiences.to_json(audience), audience_number=0,
            )  # fmt: skip
            data = {
                "document": document_id, "revision": str(new.revision), "expires_at": clock.rfc3339(expires_at),
                "password": password_hash is not None, "max_downloads": new.max_downloads, **audiences.audit_data(audience),
            }  # fmt: skip
            audit.record(scope, "share.create", share_id, data)
            return _to_share(scope.get(ShareRow, id=share_id))

        return db.write(insert), token

    def list_shares(self, scope: TenantScope, document_id: str, request: PageRequest) -> Page[Share]:
        """The shares of a document, newest first, including ended ones; NotFound."""
        scope.get(DocumentRow, id=document_id)
        query = scope.select(ShareRow).where(ShareRow.document_id == document_id)
        fields = {"created_at": ShareRow.created_at, "expires_at": ShareRow.expires_at, "id": ShareRow.id}
        return paginate(query, request, fields).map(_to_share)

    def get_share(self, scope: TenantScope, document_id: str, share_id: str) -> Share:
        """One share; NotFound."""
        return _to_share(scope.get(ShareRow, document_id=document_id, id=share_id))

    def change_audience(self, scope: TenantScope, document_id: str, share_id: str, change: AudienceChange) -> Share:
        """Change the audience; this ends every visit of the share, even of people who remain. NotFound, ValidationFailed."""

        def update() -> Share:
            row = scope.get(ShareRow, document_id=document_id, id=share_id)
            audience = change.applied(audiences.from_json(row.audience))
            fields = {"audience": audiences.to_json(audience), "audience_number": row.audience_number + 1}
            scope.update(ShareRow, **fields).where(ShareRow.id == share_id).execute()
            audit.record(scope, "share.change", share_id, {"document": document_id, **audiences.audit_data(audience)})
            return _to_share(scope.get(ShareRow, id=share_id))

        return db.write(update)

    def revoke_share(self, scope: TenantScope, document_id: str, share_id: str) -> None:
        """Revoke a share at once; can be repeated. NotFound."""

        def revoke() -> None:
            row = scope.get(ShareRow, document_id=document_id, id=share_id)
            if row.revoked_at is None:
                scope.update(ShareRow, revoked_at=clock.now_ms()).where(ShareRow.id == share_id).execute()
                audit.record(scope, "share.revoke", share_id, {"document": document_id})

        db.write(revoke)

    # -- for visitors

    def open_share(self, scope: TenantScope, token: str) -> OpenShare | None:
        """The share of a token; None when it is unknown, expired, revoked or has no content to deliver.

        A used-up share is still returned, because its last download can be continued.
        """
        row = scope.find(ShareRow, digest=self._digest(token)) if len(token) <= 100 else None
        if row is None or row.revoked_at is not None or row.expires_at <= clock.now_ms():
            return None
        content = self._policy.find(scope, row.document_id, parse_choice(row.revision))
        return None if content is None else OpenShare(_to_share(row), content)

    def verify_password(self, scope: TenantScope, opened: OpenShare, password: str, origin: Origin) -> bool:
        """Whether the password is correct; a wrong one is logged. Callers must limit the rate and concurrency, because a check
        takes 19 MiB and noticeable CPU time."""
        password_hash = scope.get(ShareRow, id=opened.share.id).password_hash
        try:
            _hasher.verify(password_hash or "", password[:1000])
        except (VerificationError, InvalidHashError):
            self.note_failure(scope, opened, "wrong_password", origin)
            return False
        return True

    def note_failure(self, scope: TenantScope, opened: OpenShare, outcome: str, origin: Origin) -> None:
        """Log a failed attempt to open the share."""
        result = (opened.content.revision, outcome)
        db.write(partial(downloads.record, scope, opened.share.document_id, opened.share.id, result, origin))

    def start_download(self, scope: TenantScope, opened: OpenShare, origin: Origin) -> str | None:
        """Count and log a download; returns its id, or None when no downloads are left, or the share has ended or its audience
        changed."""

        def start() -> str | None:
            now = clock.now_ms()
            query = scope.update(ShareRow, downloads=ShareRow.downloads + 1).where(
                ShareRow.id == opened.share.id, ShareRow.revoked_at.is_null(), ShareRow.expires_at > now,
                ShareRow.audience_number == opened.share.audience_number,
                ShareRow.max_downloads.is_null() | (ShareRow.downloads < ShareRow.max_downloads),
            )  # fmt: skip
            if not query.execute():
                return None
            result = (opened.content.revision, "started")
            return downloads.record(scope, opened.share.document_id, opened.share.id, result, origin)

        return db.write(start)

    def may_continue(self, scope: TenantScope, opened: OpenShare, download_id: str, person: str = "") -> bool:
        """Whether a counted download can be continued: by the same person, with the same revision, within a day."""
        row = scope.find(DownloadRow, share_id=opened.share.id, id=download_id, person=person)
        return row is not None and row.revision == opened.content.revision and row.at > clock.now_ms() - VISIT_MS

    def end_download(self, scope: TenantScope, download_id: str, size: int, *, complete: bool) -> None:
        """Log the end of a download, or of a further part of it."""
        outcome = "complete" if complete else "broken_off"

        def save() -> None:
            query = scope.update(DownloadRow, bytes=DownloadRow.bytes + size, outcome=outcome)
            query.where(DownloadRow.id == download_id).execute()

        db.write(save)

    def uncount_download(self, scope: TenantScope, download_id: str) -> None:
        """Undo the counting of a download that failed before its first byte, and log it as failed."""

        def uncount() -> None:
            row = scope.find(DownloadRow, id=download_id, outcome="started")
            if row is not None:
                scope.update(DownloadRow, outcome="failed").where(DownloadRow.id == download_id).execute()
                query = scope.update(ShareRow, downloads=ShareRow.downloads - 1)
                query.where(ShareRow.id == row.share_id, ShareRow.downloads > 0).execute()

        db.write(uncount)

    def seal_ticket(self, opened: OpenShare, content: str) -> str:
        """Sign `content` for this share and its current audience; the browser stores the ticket."""
        return f"{content}.{self._sign(opened, content)}"

    def read_ticket(self, opened: OpenShare, ticket: str) -> str | None:
        """The content of a ticket signed for this share and its current audience; None for anything else."""
        content, _, signature = ticket.rpartition(".")
        return content if secrets.compare_digest(signature.encode(), self._sign(opened, content).encode()) else None

    def _sign(self, opened: OpenShare, content: str) -> str:
        share = opened.share
        audience = "" if share.audience is None else f"\0audience {share.audience_number}"
        return self._sealer.digest(f"ticket of a share\0{share.id}\0{content}{audience}".encode()).hex()

    def _digest(self, token: str) -> bytes:
        return self._sealer.digest(b"token of a share\0" + token.encode())


def purge(before_ms: int) -> int:
    """Delete shares that expired before this time, revoked ones too; returns how many."""
    return delete_older("document_share", "id", "expires_at", before_ms)


def _hash_password(password: str) -> str:
    with _hashing.slot():
        return _hasher.hash(password)


def _validate(new: NewShare, expires_at: int, now: int) -> None:
    if not now < expires_at <= now + LONGEST_DAYS * DAY:
        raise ValidationFailed("expires_at must be in the future, at most 366 days ahead", pointer="/expires_at")
    if new.password is not None and not 8 <= len(new.password) <= 200:
        raise ValidationFailed("a password has 8 to 200 characters", pointer="/password")
    if new.max_downloads is not None and not 1 <= new.max_downloads <= 1_000_000:
        raise ValidationFailed("max_downloads is between 1 and 1,000,000", pointer="/max_downloads")
    if len(new.note) > LONGEST_NOTE or "\0" in new.note:
        raise ValidationFailed(
            Sentence("a note has at most %(longest_note)s characters", longest_note=LONGEST_NOTE), pointer="/note"
        )


def _to_share(row: ShareRow) -> Share:
    return Share(
        id=row.id, document_id=row.document_id, revision=parse_choice(row.revision), expires_at=row.expires_at,
        has_password=row.password_hash is not None, max_downloads=row.max_downloads, downloads=row.downloads, note=row.note,
        created_at=row.created_at, created_by=row.created_by, revoked_at=row.revoked_at, state=_state(row),
        audience=audiences.from_json(row.audience), audience_number=row.audience_number,
    )  # fmt: skip


def _state(row: ShareRow) -> Literal["active", "expired", "used_up", "revoked"]:
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at <= clock.now_ms():
        return "expired"
    return "used_up" if row.max_downloads is not None and row.downloads >= row.max_downloads else "active"

"""Shares: governed links to one document, which end, may ask for a password, and count every download.

The token of a link has 192 random bits and is told once; what is kept is its keyed hash.
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
from appliance.documents.models import DocumentRow
from appliance.documents.turns import Turns
from appliance.monitor import audit, delete_older

from . import audiences, downloads
from .audiences import Audience, AudienceChange
from .delivery_models import DownloadRow, ShareRow
from .downloads import Origin
from .leaving import Exits, Leaving, Wanted, parse_wanted

DAY = 86_400_000
DEFAULT_DAYS, LONGEST_DAYS = 14, 366
MOST_SHARES = 1_000
LONGEST_NOTE = 1_000
VISIT_MS = 24 * 3_600_000  # how long one download may be continued
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)  # OWASP's recommendation for argon2id
_hashing = Turns("a password to be kept", 4, 8, 5.0)


@dataclass(frozen=True)
class NewShare:
    """What may be fetched, by whom and for how long; times in milliseconds."""

    revision: Wanted = "latest"
    expires_at: int | None = None
    password: str | None = None
    max_downloads: int | None = None
    note: str = ""
    audience: AudienceChange | None = None


@dataclass(frozen=True)
class Share:
    """A governed link without its token."""

    id: str
    document_id: str
    revision: Wanted
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
    """A link that somebody has followed and that still leads somewhere."""

    share: Share
    leaving: Leaving


class Shares:
    """The shares of every tenant."""

    def __init__(self, exits: Exits, sealer: Sealer) -> None:
        self._exits = exits
        self._sealer = sealer

    # -- whoever shares

    def create_share(self, scope: TenantScope, document_id: str, new: NewShare) -> tuple[Share, str]:
        """A new link and, this once, its token; ValidationFailed, Conflict, ApiKeyLeaked, NotFound, Overloaded."""
        now = clock.now_ms()
        expires_at = now + DEFAULT_DAYS * DAY if new.expires_at is None else new.expires_at
        _check(new, expires_at, now)
        self._exits.check(scope, document_id, new.revision)
        token = secrets.token_urlsafe(24)
        hashed = None if new.password is None else _hashed(new.password)
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
                expires_at=expires_at, password_hash=hashed, max_downloads=new.max_downloads, downloads=0, note=new.note,
                created_at=now, created_by=scope.actor, audience=audiences.stored(audience), audience_number=0,
            )  # fmt: skip
            told = {
                "document": document_id, "revision": str(new.revision), "expires_at": clock.rfc3339(expires_at),
                "password": hashed is not None, "max_downloads": new.max_downloads, **audiences.told(audience),
            }  # fmt: skip
            audit.record(scope, "share.create", share_id, told)
            return _share(scope.get(ShareRow, id=share_id))

        return db.write(insert), token

    def list_shares(self, scope: TenantScope, document_id: str, request: PageRequest) -> Page[Share]:
        """The shares of a document, newest first, ended ones too; NotFound."""
        scope.get(DocumentRow, id=document_id)
        query = scope.select(ShareRow).where(ShareRow.document_id == document_id)
        fields = {"created_at": ShareRow.created_at, "expires_at": ShareRow.expires_at, "id": ShareRow.id}
        return paginate(query, request, fields).map(_share)

    def get_share(self, scope: TenantScope, document_id: str, share_id: str) -> Share:
        """One share; NotFound."""
        return _share(scope.get(ShareRow, document_id=document_id, id=share_id))

    def change_audience(self, scope: TenantScope, document_id: str, share_id: str, change: AudienceChange) -> Share:
        """Name other people: every visit of the share ends at once, also of those who stay; NotFound, ValidationFailed."""

        def update() -> Share:
            row = scope.get(ShareRow, document_id=document_id, id=share_id)
            audience = change.applied(audiences.read_stored(row.audience))
            fields = {"audience": audiences.stored(audience), "audience_number": row.audience_number + 1}
            scope.update(ShareRow, **fields).where(ShareRow.id == share_id).execute()
            audit.record(scope, "share.change", share_id, {"document": document_id, **audiences.told(audience)})
            return _share(scope.get(ShareRow, id=share_id))

        return db.write(update)

    def revoke_share(self, scope: TenantScope, document_id: str, share_id: str) -> None:
        """End a share at once, again if need be; NotFound."""

        def revoke() -> None:
            row = scope.get(ShareRow, document_id=document_id, id=share_id)
            if row.revoked_at is None:
                scope.update(ShareRow, revoked_at=clock.now_ms()).where(ShareRow.id == share_id).execute()
                audit.record(scope, "share.revoke", share_id, {"document": document_id})

        db.write(revoke)

    # -- whoever follows the link

    def open_share(self, scope: TenantScope, token: str) -> OpenShare | None:
        """What a token leads to; None for one that is unknown, expired, revoked or leads to nothing that may leave.

        A share that is used up is still found: its last download may be continued.
        """
        row = scope.find(ShareRow, digest=self._digest(token)) if len(token) <= 100 else None
        if row is None or row.revoked_at is not None or row.expires_at <= clock.now_ms():
            return None
        found = self._exits.find(scope, row.document_id, parse_wanted(row.revision))
        return None if found is None else OpenShare(_share(row), found)

    def is_password(self, scope: TenantScope, opened: OpenShare, password: str, origin: Origin) -> bool:
        """Whether the password is that of the share; a wrong one is noted.  Whoever calls limits how often, and how many at once:
        it takes 19 MiB and some time of a processor."""
        hashed = scope.get(ShareRow, id=opened.share.id).password_hash
        try:
            _hasher.verify(hashed or "", password[:1000])
        except (VerificationError, InvalidHashError):
            self.note_failure(scope, opened, "wrong_password", origin)
            return False
        return True

    def note_failure(self, scope: TenantScope, opened: OpenShare, outcome: str, origin: Origin) -> None:
        """A line of the log about somebody who did not come in."""
        what = (opened.leaving.revision, outcome)
        db.write(partial(downloads.note, scope, opened.share.document_id, opened.share.id, what, origin))

    def begin_download(self, scope: TenantScope, opened: OpenShare, origin: Origin) -> str | None:
        """Count a download and note it; its id, or None when the share has none left, or ended or has another audience
        meanwhile."""

        def begin() -> str | None:
            now = clock.now_ms()
            counted = scope.update(ShareRow, downloads=ShareRow.downloads + 1).where(
                ShareRow.id == opened.share.id, ShareRow.revoked_at.is_null(), ShareRow.expires_at > now,
                ShareRow.audience_number == opened.share.audience_number,
                ShareRow.max_downloads.is_null() | (ShareRow.downloads < ShareRow.max_downloads),
            )  # fmt: skip
            if not counted.execute():
                return None
            what = (opened.leaving.revision, "started")
            return downloads.note(scope, opened.share.document_id, opened.share.id, what, origin)

        return db.write(begin)

    def may_continue(self, scope: TenantScope, opened: OpenShare, download_id: str, person: str = "") -> bool:
        """Whether a download that was counted may be continued: of the same revision, by the same person, within a day."""
        row = scope.find(DownloadRow, share_id=opened.share.id, id=download_id, person=person)
        return row is not None and row.revision == opened.leaving.revision and row.at > clock.now_ms() - VISIT_MS

    def end_download(self, scope: TenantScope, download_id: str, size: int, *, complete: bool) -> None:
        """Note what became of a download, or of a further part of it."""
        outcome = "complete" if complete else "broken_off"

        def end() -> None:
            changed = scope.update(DownloadRow, bytes=DownloadRow.bytes + size, outcome=outcome)
            changed.where(DownloadRow.id == download_id).execute()

        db.write(end)

    def give_back(self, scope: TenantScope, download_id: str) -> None:
        """Count a download no longer that failed before its first byte; the log says so."""

        def give() -> None:
            row = scope.find(DownloadRow, id=download_id, outcome="started")
            if row is not None:
                scope.update(DownloadRow, outcome="failed").where(DownloadRow.id == download_id).execute()
                counted = scope.update(ShareRow, downloads=ShareRow.downloads - 1)
                counted.where(ShareRow.id == row.share_id, ShareRow.downloads > 0).execute()

        db.write(give)

    def seal_ticket(self, opened: OpenShare, content: str) -> str:
        """`content` signed for this share and its audience as it is, to be kept by the browser that shows it again."""
        return f"{content}.{self._sign(opened, content)}"

    def read_ticket(self, opened: OpenShare, ticket: str) -> str | None:
        """What was signed for this share, since its audience was changed last; None for anything else."""
        content, _, given = ticket.rpartition(".")
        return content if secrets.compare_digest(given.encode(), self._sign(opened, content).encode()) else None

    def _sign(self, opened: OpenShare, content: str) -> str:
        share = opened.share
        audience = "" if share.audience is None else f"\0audience {share.audience_number}"
        return self._sealer.digest(f"ticket of a share\0{share.id}\0{content}{audience}".encode()).hex()

    def _digest(self, token: str) -> bytes:
        return self._sealer.digest(b"token of a share\0" + token.encode())


def purge(before_ms: int) -> int:
    """Delete the shares that were over before this moment; a revoked one is once it would have expired.  Answers how many."""
    return delete_older("document_share", "id", "expires_at", before_ms)


def _hashed(password: str) -> str:
    with _hashing.taken():
        return _hasher.hash(password)


def _check(new: NewShare, expires_at: int, now: int) -> None:
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


def _share(row: ShareRow) -> Share:
    return Share(
        row.id, row.document_id, parse_wanted(row.revision), row.expires_at, row.password_hash is not None, row.max_downloads,
        row.downloads, row.note, row.created_at, row.created_by, row.revoked_at, _state(row),
        audiences.read_stored(row.audience), row.audience_number,
    )  # fmt: skip


def _state(row: ShareRow) -> Literal["active", "expired", "used_up", "revoked"]:
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at <= clock.now_ms():
        return "expired"
    return "used_up" if row.max_downloads is not None and row.downloads >= row.max_downloads else "active"

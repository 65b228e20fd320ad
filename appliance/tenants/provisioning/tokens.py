"""Tokens with which identity providers authenticate: each belongs to one provider, is stored as a digest and shown once.

A token may have an end, and is rotated: a new one with as long a life replaces it, and both work for a while.
"""

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock, ids
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, ExpiredApiKey, InvalidApiKey, NotFound, RevokedApiKey, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.sentences import Sentence
from appliance.tenants.keys.keys import LAST_USED_MS, make_key_text
from appliance.tenants.models import ScimToken

from .trail import record_token

log = logging.getLogger(__name__)
LONGEST = 200
DAY_MS = 86_400_000
LONGEST_DAYS, LONGEST_OVERLAP_SECONDS = 3650, 30 * 86_400
WARNING_MS = 14 * DAY_MS

FindProvider = Callable[[str], IdentityProvider | None]
TokenState = Literal["active", "replaced", "expired", "revoked"]


@dataclass(frozen=True)
class ProviderToken:
    """A token without its text, of which the last four characters are kept; times in epoch milliseconds."""

    id: str
    provider: str
    last4: str
    created_at: int
    last_used_at: int | None
    revoked_at: int | None
    expires_at: int | None = None
    rotated_from: str | None = None
    replaced_by: str | None = None

    def works_at(self, moment: int) -> bool:
        """Whether it is accepted at this moment."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > moment)

    def state_at(self, moment: int) -> TokenState:
        """`active` and `replaced` tokens are accepted; a replaced one was rotated and ends soon."""
        if self.works_at(moment):
            return "active" if self.replaced_by is None else "replaced"
        return "expired" if self.revoked_at is None else "revoked"


def require_scim(provider: IdentityProvider) -> None:
    """ValidationFailed unless the provider is configured to add and remove people itself."""
    if not provider.scim:
        raise ValidationFailed(
            Sentence(
                "the provider %(provider)s has no `scim: true` in sign_in.providers; set it, and restart the appliance",
                provider=provider.id,
            ),
            pointer="/provider",
        )


def create_token(
    sealer: Sealer, provider: IdentityProvider, *, days: int | None = None, actor: str = "system"
) -> tuple[ProviderToken, str]:
    """Create a token of a provider, for `days` or without an end; returns it with its text, which is shown only now."""
    if days is not None and not 1 <= days <= LONGEST_DAYS:
        raise ValidationFailed(
            Sentence("days is %(days)s; it must be from 1 to %(most)s", days=days, most=LONGEST_DAYS), pointer="/days"
        )
    row, text = _make_row(sealer, provider.id, None if days is None else days * DAY_MS)

    def create() -> None:
        row.save(force_insert=True)
        fields = {"provider": provider.id, "last4": row.last4, "expires_at": row.expires_at}
        record_token(provider, "scim_token.create", row.id, fields, actor=actor)

    db.write(create)
    return _to_token(row), text


def _make_row(sealer: Sealer, provider_id: str, lifetime_ms: int | None) -> tuple[ScimToken, str]:
    text, now = make_key_text("scim"), clock.now_ms()
    row = ScimToken(
        id=ids.new("sct"), provider=provider_id, digest=sealer.digest(text.encode()), last4=text[-4:], created_at=now,
        expires_at=None if lifetime_ms is None else now + lifetime_ms,
    )  # fmt: skip
    return row, text


def rotate_token(
    sealer: Sealer, token_id: str, find_provider: FindProvider, overlap_seconds: int, *, actor: str = "system"
) -> tuple[ProviderToken, str]:
    """Replace a token by a new one, which lasts as long as the old one was meant to; returns it with its text.

    The old one works for `overlap_seconds` more, or until it expires.  NotFound, ValidationFailed; Conflict if it works no more,
    was replaced already, or belongs to a provider that `find_provider` does not know or that does not use SCIM any more.
    """
    if not 0 <= overlap_seconds <= LONGEST_OVERLAP_SECONDS:
        raise ValidationFailed("overlap_seconds must be between 0 and 2592000 (30 days)", pointer="/overlap_seconds")

    def rotate() -> tuple[ProviderToken, str]:
        old, now = _get_row(token_id), clock.now_ms()
        if not _to_token(old).works_at(now):
            raise Conflict("this SCIM token works no more; create another one with `gos scim token PROVIDER`")
        if (newer := ScimToken.get_or_none(ScimToken.rotated_from == old.id)) is not None:
            raise Conflict(Sentence("this SCIM token was replaced by %(newer)s already; rotate that one", newer=newer.id))
        provider = find_provider(old.provider)
        if provider is None or not provider.scim:
            raise Conflict(Sentence(
                "the provider %(provider)s of this SCIM token is not in sign_in.providers with `scim: true`; add it there and "
                "restart the appliance, or revoke the token", provider=old.provider,
            ))  # fmt: skip
        row, text = _make_row(sealer, old.provider, None if old.expires_at is None else old.expires_at - old.created_at)
        row.rotated_from = old.id
        row.save(force_insert=True)
        end = min(now + overlap_seconds * 1000, old.expires_at or now + overlap_seconds * 1000)
        ScimToken.update(expires_at=end).where(ScimToken.id == old.id).execute()
        fields = {
            "provider": row.provider, "new": row.id, "overlap_seconds": overlap_seconds, "expires_at": row.expires_at,
        }  # fmt: skip
        record_token(provider, "scim_token.rotate", old.id, fields, actor=actor)
        return _to_token(row), text

    return db.write(rotate)


def find_last_token(provider_id: str) -> ProviderToken | None:
    """The token of a provider that works longest; None if none works."""
    now = clock.now_ms()
    working = [each for each in list_tokens() if each.provider == provider_id and each.works_at(now)]
    return max(working, key=lambda each: each.expires_at or now + LONGEST_DAYS * DAY_MS, default=None)


def list_tokens() -> list[ProviderToken]:
    """Every token, the newest first."""
    return _to_tokens(list(ScimToken.select().order_by(ScimToken.id.desc())))


def page_tokens(page: PageRequest, provider: str | None = None) -> Page[ProviderToken]:
    """A page of the tokens, the newest first unless another order is requested; with a provider only its own."""
    query = ScimToken.select()
    if provider is not None:
        query = query.where(ScimToken.provider == provider)
    rows = paginate(query, page, {"created_at": ScimToken.created_at, "provider": ScimToken.provider, "id": ScimToken.id})
    return Page(_to_tokens(rows.items), rows.next_cursor, rows.total)


def get_token(token_id: str) -> ProviderToken:
    """One token; NotFound."""
    return _to_tokens([_get_row(token_id)])[0]


def revoke_token(token_id: str, find_provider: FindProvider, *, actor: str = "system") -> ProviderToken:
    """End a token at once, also an expired one; a revoked one stays as it is.  `find_provider` knows the configured.  NotFound."""

    def revoke() -> ProviderToken:
        row = _get_row(token_id)
        if row.revoked_at is None:
            row.revoked_at = clock.now_ms()
            ScimToken.update(revoked_at=row.revoked_at).where(ScimToken.id == token_id).execute()
            fields = {"provider": row.provider, "last4": row.last4}
            record_token(find_provider(row.provider), "scim_token.revoke", token_id, fields, actor=actor)
        return _to_tokens([row])[0]

    return db.write(revoke)


def _get_row(token_id: str) -> ScimToken:
    row: ScimToken | None = ScimToken.get_or_none(ScimToken.id == token_id)
    if row is None:
        raise NotFound(Sentence("there is no SCIM token %(token_id)s", token_id=repr(token_id[:80])))
    return row


def find_token(sealer: Sealer, text: str) -> ProviderToken:
    """The token with this text, whose use is noted to the minute; InvalidApiKey, RevokedApiKey, ExpiredApiKey."""
    digest = sealer.digest(text[:LONGEST].encode("utf8", "replace"))
    row = ScimToken.get_or_none(ScimToken.digest == digest)
    if row is None or not hmac.compare_digest(bytes(row.digest), digest):
        raise InvalidApiKey("the SCIM token is not valid; create one with `gos scim token PROVIDER`")
    if row.revoked_at is not None:
        log.warning("the revoked SCIM token %s of the provider %s was used", row.id, row.provider)
        raise RevokedApiKey("the SCIM token was revoked; create another one with `gos scim token PROVIDER`")
    now = clock.now_ms()
    if not _to_token(row).works_at(now):
        log.warning("the expired SCIM token %s of the provider %s was used", row.id, row.provider)
        raise ExpiredApiKey("the SCIM token has expired; create another one with `gos scim token PROVIDER`")
    if now - (row.last_used_at or 0) > LAST_USED_MS:
        used = ScimToken.update(last_used_at=now).where(ScimToken.digest == digest)
        db.submit(used.execute, is_shared=True)
    return _to_token(row)


def _to_tokens(rows: Sequence[ScimToken]) -> list[ProviderToken]:
    """The tokens of these rows, each with the one that replaced it."""
    newer = ScimToken.select(ScimToken.id, ScimToken.rotated_from).where(ScimToken.rotated_from.in_([row.id for row in rows]))
    replaced_by = {each.rotated_from: each.id for each in newer}
    return [_to_token(row, replaced_by) for row in rows]


def _to_token(row: ScimToken, replaced_by: Mapping[str, str] | None = None) -> ProviderToken:
    return ProviderToken(
        row.id, row.provider, row.last4, row.created_at, last_used_at=row.last_used_at, revoked_at=row.revoked_at,
        expires_at=row.expires_at, rotated_from=row.rotated_from, replaced_by=(replaced_by or {}).get(row.id),
    )  # fmt: skip

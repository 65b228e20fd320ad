"""Tokens with which identity providers authenticate: each belongs to one provider, is stored as a digest and shown once."""

import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock, ids
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import InvalidApiKey, NotFound, RevokedApiKey
from appliance.core.sentences import Sentence
from appliance.tenants.keys.keys import LAST_USED_MS, make_key_text
from appliance.tenants.models import ScimToken

from .trail import record_for_provider

log = logging.getLogger(__name__)
LONGEST = 200


@dataclass(frozen=True)
class ProviderToken:
    """A token without its text, of which the last four characters are kept; times in epoch milliseconds."""

    id: str
    provider: str
    last4: str
    created_at: int
    last_used_at: int | None
    revoked_at: int | None


def create_token(sealer: Sealer, provider: IdentityProvider) -> tuple[ProviderToken, str]:
    """Create a token of a provider; returns it with its text, which is shown only now."""
    text = make_key_text("scim")
    row = ScimToken(
        id=ids.new("sct"), provider=provider.id, digest=sealer.digest(text.encode()), last4=text[-4:], created_at=clock.now_ms()
    )

    def create() -> None:
        row.save(force_insert=True)
        record_for_provider(provider, "scim_token.create", row.id, {"last4": row.last4})

    db.write(create)
    return _to_token(row), text


def list_tokens() -> list[ProviderToken]:
    """Every token, the newest first."""
    return [_to_token(row) for row in ScimToken.select().order_by(ScimToken.id.desc())]


def revoke_token(token_id: str, find_provider: Callable[[str], IdentityProvider | None]) -> ProviderToken:
    """End a token at once; one that has ended stays as it is.  `find_provider` knows the configured ones.  NotFound."""

    def revoke() -> ProviderToken:
        row = ScimToken.get_or_none(ScimToken.id == token_id)
        if row is None:
            raise NotFound(Sentence("there is no SCIM token %(token_id)s", token_id=repr(token_id[:80])))
        if row.revoked_at is None:
            row.revoked_at = clock.now_ms()
            ScimToken.update(revoked_at=row.revoked_at).where(ScimToken.id == token_id).execute()
            if (provider := find_provider(row.provider)) is not None:
                record_for_provider(provider, "scim_token.revoke", token_id, {"last4": row.last4})
        return _to_token(row)

    return db.write(revoke)


def find_token(sealer: Sealer, text: str) -> ProviderToken:
    """The token with this text, whose use is noted to the minute; InvalidApiKey, RevokedApiKey."""
    digest = sealer.digest(text[:LONGEST].encode("utf8", "replace"))
    row = ScimToken.get_or_none(ScimToken.digest == digest)
    if row is None or not hmac.compare_digest(bytes(row.digest), digest):
        raise InvalidApiKey("the SCIM token is not valid; create one with `gos scim token PROVIDER`")
    if row.revoked_at is not None:
        log.warning("the revoked SCIM token %s of the provider %s was used", row.id, row.provider)
        raise RevokedApiKey("the SCIM token was revoked; create another one with `gos scim token PROVIDER`")
    now = clock.now_ms()
    if now - (row.last_used_at or 0) > LAST_USED_MS:
        used = ScimToken.update(last_used_at=now).where(ScimToken.digest == digest)
        db.submit(used.execute, is_shared=True)
    return _to_token(row)


def _to_token(row: ScimToken) -> ProviderToken:
    return ProviderToken(row.id, row.provider, row.last4, row.created_at, row.last_used_at, row.revoked_at)

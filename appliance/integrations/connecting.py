"""Connects an integration by OAuth: a person allows access at the provider, whose code is exchanged for tokens.

The state is random, stored as a digest, valid once and for ten minutes.  It is bound to the integration, to the audience of
its settings, and to the browser session that started it; if a program started it, it is bound to none, and the person who
returns with it must confirm first.
"""

import hmac
import secrets
from dataclasses import dataclass, field

from appliance.connectors import OAuth
from appliance.connectors.contract import ConnectorError
from appliance.connectors.oauth import consent_address, make_verifier
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, ConnectorFailed, Detail
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import gate
from appliance.integrations.connections import OpenedIntegration
from appliance.integrations.models import ConsentRow
from appliance.integrations.service import Integrations
from appliance.integrations.tokens import Connection
from appliance.monitor import audit

CONSENT_MS = 600_000
CALLBACK = "/console/oauth/callback"


@dataclass(frozen=True)
class Consent:
    """The address where a person allows access, its expiry (epoch ms), and the redirect URI."""

    url: str = field(repr=False)
    expires_at: int
    redirect_uri: str


@dataclass(frozen=True)
class ProviderReply:
    """The provider's reply through a browser; `session` is the digest of that browser's session, `confirmed` that its person
    confirmed a connection started by a program."""

    state: str = field(repr=False)
    code: str = field(repr=False)
    error: str
    session: str
    confirmed: bool = False


def connection(integrations: Integrations, scope: TenantScope, slug: str) -> Connection | None:
    """The integration's connection to its provider; None unless a person has to connect it."""
    try:
        ready = integrations.ready(scope, slug)
        oauth = integrations.calls.oauth_of(ready)
    except (ApplianceError, ConnectorError):
        return None  # its settings are invalid, which its pages show anyway
    by_person = oauth is not None and oauth.grant == "authorization_code"
    return integrations.calls.tokens.connection(scope, ready) if by_person else None


def start_consent(integrations: Integrations, scope: TenantScope, slug: str, redirect_uri: str, session: str = "") -> Consent:
    """Start connecting; Conflict if no consent is needed, ConnectorFailed if the settings are incomplete."""
    ready = integrations.ready(scope, slug)
    oauth = _oauth(integrations, ready)
    state, verifier, until = secrets.token_urlsafe(32), make_verifier(), clock.now_ms() + CONSENT_MS
    digest = _digest(integrations, state)
    audience = integrations.calls.tokens.audience(ready)
    sealed = integrations.sealer.seal(verifier.encode(), _context(scope, digest))

    def begin() -> None:
        scope.delete(ConsentRow).where(ConsentRow.expires_at < clock.now_ms()).execute()
        scope.insert(
            ConsentRow, digest=digest, integration_id=slug, audience=audience, sealed=sealed, redirect_uri=redirect_uri,
            session=session, expires_at=until,
        )  # fmt: skip

    db.write(begin)
    return Consent(consent_address(oauth, redirect_uri, state, verifier), until, redirect_uri)


def needs_confirmation(integrations: Integrations, scope: TenantScope, state: str) -> str | None:
    """The integration to connect if the state is bound to no session; None otherwise."""
    row = scope.find(ConsentRow, digest=_digest(integrations, state))
    return row.integration_id if row is not None and row.session == "" and row.expires_at > clock.now_ms() else None


def finish(integrations: Integrations, scope: TenantScope, reply: ProviderReply) -> str:
    """Exchange the code for tokens and store them; returns the integration's slug.  Conflict, ConnectorFailed."""
    row = db.write(lambda: _use_consent(integrations, scope, reply))
    if row is None:
        raise Conflict("this consent was already used, has expired or belongs to another browser; connect the integration again")
    slug = str(row.integration_id)
    if reply.error or not reply.code:
        raise Conflict(Sentence(
            "the provider did not allow access (%(error)s); connect %(slug)s again",
            error=_safe_code(reply.error) or "no code", slug=slug,
        ))
    ready = integrations.ready(scope, slug)
    oauth = _oauth(integrations, ready)
    if not hmac.compare_digest(row.audience, integrations.calls.tokens.audience(ready)):
        raise Conflict(Sentence("the settings of %(slug)s have changed in the meantime; connect it again", slug=slug))
    verifier = integrations.sealer.open(bytes(row.sealed), _context(scope, row.digest)).decode()
    try:
        answer = integrations.calls.exchange_code(ready, oauth, (reply.code, verifier, row.redirect_uri))
    except ConnectorError as error:
        raise _failed(error) from error

    def store() -> None:
        integrations.calls.tokens.store_granted(scope, ready, answer)
        gate.reset_circuit(scope, slug)
        audit.record(scope, "integration.connect", slug, {"scope": answer.scope})

    db.write(store)
    return slug


def disconnect(integrations: Integrations, scope: TenantScope, slug: str) -> None:
    """Delete the integration's tokens; the grant at the provider must be revoked there."""
    integrations.get_integration(scope, slug)

    def forget() -> None:
        if integrations.calls.tokens.forget(scope, slug):
            audit.record(scope, "integration.disconnect", slug)

    db.write(forget)


def session_digest(integrations: Integrations, cookie: str) -> str:
    """The digest of a session stored with a consent."""
    return integrations.sealer.digest(f"consent session {cookie}".encode()).hex()


def _use_consent(integrations: Integrations, scope: TenantScope, reply: ProviderReply) -> ConsentRow | None:
    """Inside a write: the consent this reply belongs to, which can be used only once."""
    row = scope.find(ConsentRow, digest=_digest(integrations, reply.state))
    if row is None:
        return None
    scope.delete(ConsentRow).where(ConsentRow.digest == row.digest).execute()
    is_own = reply.confirmed if row.session == "" else hmac.compare_digest(row.session, reply.session)
    return row if is_own and row.expires_at > clock.now_ms() else None


def _oauth(integrations: Integrations, ready: OpenedIntegration) -> OAuth:
    try:
        oauth = integrations.calls.oauth_of(ready)
    except ConnectorError as error:
        raise _failed(error) from error
    if oauth is None or oauth.grant != "authorization_code":
        raise Conflict(Sentence("the credentials of %(slug)s need no consent; test the integration instead", slug=ready.slug))
    return oauth


def _failed(error: ConnectorError) -> ConnectorFailed:
    failed = ConnectorFailed(error.message, details=[Detail("", error.error_class, error.message)])
    failed.extra = {"error_class": error.error_class, "outcome": "not_done", "foreign": error.details}
    return failed


def _safe_code(text: str) -> str:
    """A provider's error code reduced to characters that are safe to show."""
    return "".join(each for each in text[:60] if each.isascii() and (each.isalnum() or each in "_-"))


def _digest(integrations: Integrations, state: str) -> str:
    return integrations.sealer.digest(f"consent {state[:200]}".encode()).hex()


def _context(scope: TenantScope, digest: str) -> str:
    return f"{scope.tenant_id}/consent/{digest}"

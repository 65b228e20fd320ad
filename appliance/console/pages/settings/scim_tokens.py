"""Page for administrators: the SCIM tokens with which identity providers add and remove people."""

from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.tenants.provisioning import (
    LONGEST_DAYS,
    WARNING_MS,
    ProviderToken,
    create_token,
    find_last_token,
    list_tokens,
    require_scim,
    revoke_token,
    rotate_token,
)

from .appliance import require_administrator
from .keys import LIFETIMES, OVERLAPS

HERE = "/console/appliance/scim"
WITHOUT_END = "endless"
TOKEN_LIFETIMES = (*LIFETIMES, (WITHOUT_END, mark("when it is revoked")))


@dataclass(frozen=True)
class TokenLine:
    """A token on the page; `can_rotate` is false for one that was replaced already, or whose provider is not configured."""

    token: ProviderToken
    state: str
    can_rotate: bool


@dataclass(frozen=True)
class ProviderPanel:
    """A provider with its tokens; `problem` is `none` if none works, `soon` if the last one ends soon, `former` without SCIM."""

    id: str
    name: str
    lines: list[TokenLine]
    problem: str
    last_end: int | None


@page("GET", "/appliance/scim", scope=None)
def list_scim_tokens(visit: Visit) -> Answer:
    """The tokens of each provider with their states, and the form to issue one."""
    require_administrator(visit)
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    tokens, providers = list_tokens(), [each for each in visit.services.single_sign_on.providers if each.scim]
    names = {each.id: each.label for each in providers}
    former = sorted({each.provider for each in tokens} - names.keys())
    panels = [_panel_of(each, names.get(each, ""), tokens) for each in (*names, *former)]
    values = {
        "panels": panels, "providers": providers, "lifetimes": TOKEN_LIFETIMES, "overlaps": OVERLAPS, "problem": problem,
        "provider": visit.request.field("provider"), "days": visit.request.field("days") or "365",
        "url": _url(visit), "now": clock.now_ms(),
    }  # fmt: skip
    return Page("scim_tokens.html", values, problem.status if problem else 200)


def _url(visit: Visit) -> str:
    return f"{visit.services.config.base_url}/scim/v2"


def _panel_of(provider_id: str, name: str, tokens: list[ProviderToken]) -> ProviderPanel:
    lines = [_line_of(each, is_configured=bool(name)) for each in tokens if each.provider == provider_id]
    last = find_last_token(provider_id)
    is_ending = last is not None and last.expires_at is not None and last.expires_at < clock.now_ms() + WARNING_MS
    problem = "former" if not name else "none" if last is None else "soon" if is_ending else ""
    return ProviderPanel(provider_id, name or provider_id, lines, problem, last_end=last.expires_at if last else None)


def _line_of(token: ProviderToken, *, is_configured: bool) -> TokenLine:
    state = token.state_at(clock.now_ms())
    return TokenLine(token, state, can_rotate=state == "active" and is_configured)


@page("POST", "/appliance/scim", scope=None, step_up=True, asks_password=True)
def issue_scim_token(visit: Visit) -> Answer:
    """Create a token of a provider and show its text, which cannot be shown again."""
    require_administrator(visit)
    try:
        provider, days = _read_provider(visit), _read_days(visit)
        token, text = create_token(visit.services.sealer, provider, days=days, actor=visit.scope.actor)
    except ApplianceError as error:
        return _page(visit, error)
    return _show_text(visit, token, text)


def _read_provider(visit: Visit) -> IdentityProvider:
    provider = visit.services.single_sign_on.find_provider(visit.request.field("provider"))
    require_scim(provider)
    return provider


def _read_days(visit: Visit) -> int | None:
    """The lifetime in the form in days; None for a token without an end."""
    text = visit.request.field("days")
    if text == WITHOUT_END:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise ValidationFailed(
            Sentence("days is %(days)s; it must be from 1 to %(most)s", days=repr(text[:20]), most=LONGEST_DAYS), pointer="/days"
        )
    return int(text)


def _show_text(visit: Visit, token: ProviderToken, text: str) -> Page:
    return Page("scim_token_shown.html", {"token": token, "text": text, "url": _url(visit), "back": HERE}, 201)


@page("POST", "/appliance/scim/<token_id>/rotate", scope=None, step_up=True, asks_password=True)
def rotate_scim_token(visit: Visit, token_id: str) -> Answer:
    """Replace a token by a new one, whose text is shown; the old one works for the chosen overlap."""
    require_administrator(visit)
    try:
        overlap = visit.request.field("overlap")
        if overlap not in dict(OVERLAPS):
            raise ValidationFailed("choose when the old token ends", pointer="/overlap")
        configured = {each.id: each for each in visit.services.single_sign_on.providers}
        token, text = rotate_token(visit.services.sealer, token_id, configured.get, int(overlap), actor=visit.scope.actor)
    except ApplianceError as error:
        return _page(visit, error)
    return _show_text(visit, token, text)


@page("POST", "/appliance/scim/<token_id>/revoke", scope=None, step_up=True, asks_password=True)
def revoke_scim_token(visit: Visit, token_id: str) -> Answer:
    """End a token at once."""
    require_administrator(visit)
    configured = {each.id: each for each in visit.services.single_sign_on.providers}
    try:
        revoke_token(token_id, configured.get, actor=visit.scope.actor)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)

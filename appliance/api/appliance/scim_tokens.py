"""/api/v1/appliance/scim-tokens: tokens with which identity providers add, change and remove people themselves."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.fields import CreatedAt
from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.tenants.provisioning import (
    LONGEST_DAYS,
    ProviderToken,
    TokenState,
    create_token,
    get_token,
    page_tokens,
    require_scim,
    revoke_token,
    rotate_token,
)

from .acting import actor_of

DEFAULT_DAYS = 365
ProviderId = Annotated[str, Field(description="Id of the identity provider in `sign_in.providers`.")]


class ScimTokenView(View):
    """A token with which an identity provider sends SCIM requests, without its text."""

    id: Annotated[str, Field(description="Identifies the token; `sct_…`. It is not the token's text.")]
    provider: ProviderId
    state: Annotated[
        TokenState,
        Field(description="`active`; `replaced`: rotated, and it works until `expires_at`; `expired`; `revoked`."),
    ]
    url: Annotated[str, Field(description="Address of SCIM, which the provider needs beside the token.")]
    last4: Annotated[str, Field(description="The last four characters of the token's text.")]
    created_at: CreatedAt
    expires_at: Annotated[
        str | None, Field(description="When the token ends by itself, RFC 3339 in UTC; absent if it lasts until it is revoked.")
    ] = None
    last_used_at: Annotated[
        str | None, Field(description="When it was last used, exact to a minute, RFC 3339 in UTC; absent if never.")
    ] = None
    revoked_at: Annotated[str | None, Field(description="When it was revoked, RFC 3339 in UTC; absent if it was not.")] = None
    rotated_from: Annotated[str | None, Field(description="Id of the token it replaced; absent for a first one.")] = None
    replaced_by: Annotated[str | None, Field(description="Id of the token that replaced it; absent if none did.")] = None
    token: Annotated[
        str | None, Field(description="Text to enter at the provider; only in the answer that issued it, and never again.")
    ] = None


class ScimTokenQuery(ListQuery):
    provider: Annotated[ProviderId | None, Field(max_length=64, description="Only the tokens of this provider.")] = None


class IssueScimToken(Body):
    provider: Annotated[ProviderId, Field(min_length=1, max_length=64)]
    days: Annotated[
        int | None,
        Field(ge=1, le=LONGEST_DAYS, description="In how many days the token ends; null for one that lasts until it is revoked."),
    ] = DEFAULT_DAYS


class RotateScimToken(Body):
    overlap_seconds: Annotated[
        int,
        Field(
            ge=0, le=2_592_000, description="For how many seconds the old token still works, at most 30 days; 0 ends it at once."
        ),
    ] = 0


def _token_view(call: Call, token: ProviderToken, text: str | None = None) -> ScimTokenView:
    return ScimTokenView(
        id=token.id, provider=token.provider, state=token.state_at(clock.now_ms()), url=f"{call.services.config.base_url}/scim/v2",
        last4=token.last4, created_at=clock.rfc3339(token.created_at), expires_at=clock.optional_rfc3339(token.expires_at),
        last_used_at=clock.optional_rfc3339(token.last_used_at), revoked_at=clock.optional_rfc3339(token.revoked_at),
        rotated_from=token.rotated_from, replaced_by=token.replaced_by, token=text,
    )  # fmt: skip


def _answer_new_token(call: Call, token: ProviderToken, text: str) -> Answer:
    """The answer with the token's text; one that is repeated for the same request is without it."""
    headers = {"Location": f"/api/v1/appliance/scim-tokens/{token.id}"}
    return Answer(_token_view(call, token, text), headers=headers, replay=_token_view(call, token))


def _find_provider(call: Call, provider_id: str) -> IdentityProvider | None:
    return next((each for each in call.services.single_sign_on.providers if each.id == provider_id), None)


@route("GET", "/appliance/scim-tokens", scope="appliance.read", returns=ScimTokenView, listed=True, query=ScimTokenQuery)
def list_scim_tokens(call: Call) -> Page[ScimTokenView]:
    """List the SCIM tokens of identity providers.

    The newest come first, with revoked and expired ones among them. The text of a token is shown only when it is issued.
    """
    query: ScimTokenQuery = call.query
    return page_tokens(query.page, query.provider).map(lambda token: _token_view(call, token))


@route(
    "POST", "/appliance/scim-tokens", scope="appliance.scim", body=IssueScimToken, returns=ScimTokenView, status=201,
)  # fmt: skip
def issue_scim_token(call: Call) -> Answer:
    """Issue a SCIM token of an identity provider.

    Its text is shown only in this answer. The provider must be in `sign_in.providers` with `scim: true`.
    """
    body: IssueScimToken = call.body
    provider = _find_provider(call, body.provider)
    if provider is None:
        raise ValidationFailed(
            Sentence("there is no identity provider %(provider_id)s", provider_id=repr(body.provider[:40])), pointer="/provider"
        )
    require_scim(provider)
    return _answer_new_token(call, *create_token(call.services.sealer, provider, days=body.days, actor=actor_of(call)))


@route("GET", "/appliance/scim-tokens/{token_id}", scope="appliance.read", returns=ScimTokenView)
def get_scim_token(call: Call, token_id: str) -> ScimTokenView:
    """Show one SCIM token.

    Whether it works, when it was last used and when it ends.
    """
    return _token_view(call, get_token(token_id))


@route(
    "POST", "/appliance/scim-tokens/{token_id}/rotate", scope="appliance.scim", body=RotateScimToken, returns=ScimTokenView,
    status=201, errors=(Conflict,),
)  # fmt: skip
def rotate_scim_token(call: Call, token_id: str) -> Answer:
    """Replace a SCIM token by a new one.

    The new one lasts as long as the old one was meant to, which works for `overlap_seconds` more. A token is rotated once; 409
    if it works no more.
    """
    find, overlap = (lambda provider_id: _find_provider(call, provider_id)), call.body.overlap_seconds
    return _answer_new_token(call, *rotate_token(call.services.sealer, token_id, find, overlap, actor=actor_of(call)))


@route("DELETE", "/appliance/scim-tokens/{token_id}", scope="appliance.scim", returns=ScimTokenView)
def revoke_scim_token(call: Call, token_id: str) -> ScimTokenView:
    """Revoke a SCIM token.

    The provider is refused with it at once. It stays in the list; a token that was revoked already stays as it is.
    """
    return _token_view(call, revoke_token(token_id, lambda provider_id: _find_provider(call, provider_id), actor=actor_of(call)))

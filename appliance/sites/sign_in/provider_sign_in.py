"""Sign-in at an OpenID Connect provider: redirecting there, and handling the response."""

from collections.abc import Callable
from typing import Any

from appliance.connectors.oauth import make_verifier
from appliance.core.crypto import Sealer
from appliance.core.texts import mark_error
from appliance.tenants.oidc import AuthorizationResponse, OidcClient
from appliance.webapps.access import Visitor, may_enter, open_access

from .visiting import (
    EXPIRED_SIGN_IN,
    ExternalCall,
    Page,
    Redirect,
    SignInCookie,
    SignInRequest,
    SignInResponse,
    is_equal,
    new_state,
)

BACK = "/_gos/oidc"


class ProviderSignIn:
    """Every step that contacts the provider is a `Foreign`, so that a slow provider holds up nobody else."""

    def __init__(self, client: OidcClient, sealer: Sealer) -> None:
        self._client = client
        self._sealer = sealer
        self._cookie = SignInCookie(sealer)

    def start(self, request: SignInRequest) -> SignInResponse:
        """Redirect to the provider; state, nonce and verifier are kept in a cookie."""

        def redirect() -> Redirect:
            state, nonce, verifier = new_state(), new_state(), make_verifier()
            url = self._client.build_sign_in_url(request.access, f"{request.http.origin}{BACK}", state, (nonce, verifier))
            values = {"state": state, "nonce": nonce, "verifier": verifier, "to": request.target}
            return Redirect(url, self._cookie.create(request, "oidc", values))

        return ExternalCall(redirect)

    def finish(self, request: SignInRequest, enter: Callable[[Visitor, str], Redirect]) -> SignInResponse:
        """Handle the provider's response: identify the user and check the access."""
        values = self._cookie.read(request, "oidc") if request.access.kind == "oidc" else None
        if values is None or not is_equal(values["state"], request.http.arg("state")):
            return Page("problem.html", EXPIRED_SIGN_IN, 400)
        if "code" not in request.http.args:
            return Page("refused.html", {"who": "", "why": mark_error("the provider did not sign you in")}, 403)
        return ExternalCall(lambda: self._identify(request, values, enter))

    def _identify(self, request: SignInRequest, values: Any, enter: Callable[[Visitor, str], Redirect]) -> Page | Redirect:
        secret = open_access(request.scope, self._sealer, request.app, request.access)
        redirect_uri = f"{request.http.origin}{BACK}"
        response = AuthorizationResponse(
            request.http.arg("code"), request.http.arg("iss"), values["nonce"], values["verifier"], redirect_uri
        )
        identity = self._client.identify(request.access, secret, response)
        visitor = Visitor("user", identity.subject, identity.email)
        if not may_enter(request.scope, request.access, visitor):
            reason = mark_error("this account may not open the app")
            if not visitor.email:
                reason = mark_error("the provider has no verified e-mail address of yours")
            return Page("refused.html", {"who": visitor.email, "why": reason}, 403)
        return enter(visitor, values["to"])

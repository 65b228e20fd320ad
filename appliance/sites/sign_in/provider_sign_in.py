"""Sign-in at an OpenID Connect provider: the way there and the way back."""

from collections.abc import Callable
from typing import Any

from appliance.connectors.oauth import make_verifier
from appliance.core.crypto import Sealer
from appliance.core.texts import mark_error
from appliance.webapps.access import OidcClient, Returned, Visitor, may_enter, open_access

from .visiting import NOT_HERE, Answer, AskCookie, Asked, Foreign, Page, Redirect, new_state, same

BACK = "/_gos/oidc"


class ProviderSignIn:
    """Every step that asks the provider is `Foreign`: it may take its time, and holds up nobody else."""

    def __init__(self, client: OidcClient, sealer: Sealer) -> None:
        self._client = client
        self._sealer = sealer
        self._cookie = AskCookie(sealer)

    def begin(self, asked: Asked) -> Answer:
        """To the provider; what must come back stays with the browser."""

        def leave() -> Redirect:
            state, nonce, verifier = new_state(), new_state(), make_verifier()
            url = self._client.address(asked.access, f"{asked.origin}{BACK}", state, (nonce, verifier))
            kept = {"state": state, "nonce": nonce, "verifier": verifier, "to": asked.target}
            return Redirect(url, self._cookie.make(asked, "oidc", kept))

        return Foreign(leave)

    def finish(self, asked: Asked, enter: Callable[[Visitor, str], Redirect]) -> Answer:
        """Back from the provider: who it is, and whether they may enter."""
        told = self._cookie.read(asked, "oidc") if asked.access.kind == "oidc" else None
        if told is None or not same(told["state"], asked.args.get("state", "")):
            return Page("problem.html", NOT_HERE, 400)
        if "code" not in asked.args:
            return Page("refused.html", {"who": "", "why": mark_error("the provider did not sign you in")}, 403)
        return Foreign(lambda: self._identify(asked, told, enter))

    def _identify(self, asked: Asked, told: Any, enter: Callable[[Visitor, str], Redirect]) -> Page | Redirect:
        secret = open_access(asked.scope, self._sealer, asked.app, asked.access)
        redirect_uri = f"{asked.origin}{BACK}"
        back = Returned(asked.args["code"], asked.args.get("iss", ""), told["nonce"], told["verifier"], redirect_uri)
        identity = self._client.identify(asked.access, secret, back)
        who = Visitor("user", identity.subject, identity.email)
        if not may_enter(asked.scope, asked.access, who):
            why = mark_error("this account may not open the app")
            if not who.email:
                why = mark_error("the provider has no verified e-mail address of yours")
            return Page("refused.html", {"who": who.email, "why": why}, 403)
        return enter(who, told["to"])

"""One call of a route, shared by the modules that serve it."""

from dataclasses import dataclass
from functools import cached_property

from appliance.core.errors import PolicyDenied, SignInRequired
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.core.texts import ENGLISH, Language
from appliance.web import Exchange, Request
from appliance.webapps.access import Visitor
from appliance.webapps.routes import Access

from .tickets import browser_of, holder_of


@dataclass(frozen=True)
class RouteCall:
    """A request by `visitor`, who reads `language`, to the app `app`; `tenant` is the scope in the name of the app."""

    exchange: Exchange
    tenant: TenantScope
    app: str
    visitor: Visitor
    language: Language = ENGLISH

    @property
    def request(self) -> Request:
        return self.exchange.request

    @cached_property
    def browser(self) -> str:
        return browser_of(self.request.headers.get("cookie", ""))

    @property
    def holder(self) -> str:
        """See `tickets.holder_of`."""
        return holder_of(self.visitor, self.browser)

    @property
    def address(self) -> str:
        return network_of(self.request.address)

    def wants(self, media: str) -> bool:
        return media in self.request.accept

    @property
    def wants_page(self) -> bool:
        """Whether a browser displays the response, after a plain form or a link."""
        return self.wants("text/html") and not self.request.headers.get("content-type", "").startswith("application/json")


def check_access(visitor: Visitor, access: Access) -> None:
    """SignInRequired for anonymous visitors, PolicyDenied for signed-in visitors without access."""
    signed_in = visitor.kind in ("member", "user")
    if access != "public" and not signed_in:
        raise SignInRequired("sign in to this app first, then try again")
    if access == "member" and visitor.kind != "member":
        raise PolicyDenied("only members of the app's tenant can do this")

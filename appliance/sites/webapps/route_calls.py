"""One call of a route, shared by the modules that serve it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from appliance.core.errors import PolicyDenied, SignInRequired
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.sites.front.answers import Exchange
from appliance.webapps.access import Visitor
from appliance.webapps.routes import Access

from .tickets import browser_of, holder_of


@dataclass(frozen=True)
class RouteCall:
    """A request by `visitor` to the app `app`; `tenant` is the scope in the name of the app."""

    exchange: Exchange
    tenant: TenantScope
    app: str
    visitor: Visitor

    @property
    def method(self) -> str:
        return str(self.exchange.scope["method"])

    @property
    def path(self) -> str:
        return str(self.exchange.scope["path"])

    @property
    def request_id(self) -> str:
        return str(self.exchange.scope["gos.request_id"])

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name; several Cookie headers are joined."""
        headers: dict[str, str] = {}
        for raw, value in self.exchange.scope["headers"]:
            name, text = raw.decode("latin1").lower(), value.decode("latin1")
            headers[name] = f"{headers[name]}; {text}" if name == "cookie" and name in headers else text
        return headers

    @property
    def origin(self) -> str:
        """The app's own origin in this request; the host table has validated the host."""
        return f"{self.exchange.scope['scheme']}://{self.headers.get('host', '')}"

    @cached_property
    def browser(self) -> str:
        return browser_of(self.headers.get("cookie", ""))

    @property
    def holder(self) -> str:
        """See `tickets.holder_of`."""
        return holder_of(self.visitor, self.browser)

    @property
    def address(self) -> str:
        return network_of(str(self.exchange.scope["gos.address"]))

    def wants(self, media: str) -> bool:
        return media in self.headers.get("accept", "")

    @property
    def wants_page(self) -> bool:
        """Whether a browser displays the response, after a plain form or a link."""
        return self.wants("text/html") and not self.headers.get("content-type", "").startswith("application/json")


def check_access(visitor: Visitor, access: Access) -> None:
    """SignInRequired for anonymous visitors, PolicyDenied for signed-in visitors without access."""
    signed_in = visitor.kind in ("member", "user")
    if access != "public" and not signed_in:
        raise SignInRequired("sign in to this app first, then try again")
    if access == "member" and visitor.kind != "member":
        raise PolicyDenied("only members of the app's tenant can do this")

"""One call of a route, as every part of serving it sees it."""

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
    """A request of `visitor` to the app `app`; `tenant` acts as the app."""

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
        """By lower-case name; cookies of several headers together."""
        found: dict[str, str] = {}
        for raw, value in self.exchange.scope["headers"]:
            name, text = raw.decode("latin1").lower(), value.decode("latin1")
            found[name] = f"{found[name]}; {text}" if name == "cookie" and name in found else text
        return found

    @property
    def origin(self) -> str:
        """The app's own origin, as this request names it; the host table has let the host through."""
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
        """Whether a browser will show the answer: a plain form was sent, or a link followed."""
        return self.wants("text/html") and not self.headers.get("content-type", "").startswith("application/json")


def refuse_strangers(visitor: Visitor, access: Access) -> None:
    """SignInRequired, or PolicyDenied for whoever has signed in as somebody who may not."""
    signed_in = visitor.kind in ("member", "user")
    if access != "public" and not signed_in:
        raise SignInRequired("sign in to this app first, then try again")
    if access == "member" and visitor.kind != "member":
        raise PolicyDenied("this is for members of the app's tenant only")

"""Where a visitor of the base host continues: at the tenant or WebApp that they came from."""

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from appliance.console.frame.routing import Arrival, Redirect
from appliance.tenants import split_host

from . import provision, visiting

OWN_PATH = "/sign-in/password"  # where a temporary password is replaced by an own one


def canonical_url(arrival: Arrival) -> str | None:
    """The base host's configured URL if the visitor used another name for it, such as its IP address; else None."""
    base = arrival.services.config.base_url
    return base if split_host(arrival.request.host) != urlsplit(base).hostname else None


def onward_of(arrival: Arrival) -> dict[str, str]:
    """The URL parameters that say where to continue after sign-in: a tenant's host, or the host of a WebApp."""
    args = arrival.request.args
    return {name: args[name] for name in ("tenant", "host", "state", "to") if args.get(name)}


def continue_onward(
    arrival: Arrival, person: tuple[str, str], onward: Mapping[str, str], cookies: Mapping[str, str]
) -> Redirect:
    """Continue after a sign-in: to the tenant or WebApp that the visitor came from, or to the choice of tenants.

    `person` has the id and the login.
    """
    services = arrival.services
    if provision.is_offered(services):
        provision.provide_tenant(services, *person)
    if "host" in onward:
        return Redirect(f"{visiting.SIGNED_IN}?{urlencode(onward)}", cookies)
    return Redirect(f"/hand-over?{urlencode(onward)}" if "tenant" in onward else "/", cookies)

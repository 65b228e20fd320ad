"""Signs members in to WebApps: the base host, which knows them, gives the app's host a one-time code that identifies them."""

from urllib.parse import urlencode

from appliance.console.frame.routing import Answer, Arrival, Page, Redirect, base_page
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.core.texts import mark
from appliance.tenants import match_host, people, split_host
from appliance.webapps.access import SignIns, SignInTarget

VISIT, SIGNED_IN = "/visit", "/visit/signed-in"
LONGEST_STATE = 100


@base_page("GET", VISIT, gives_access=True)
def go_to_webapp(arrival: Arrival) -> Answer:
    """Continue from the host of a members-only WebApp: to the sign-in form, or back to the app with a one-time code."""
    args, services = arrival.request.args, arrival.services
    host, state = split_host(args.get("host", "")), args.get("state", "")[:LONGEST_STATE]
    if arrival.person is None:
        return Redirect(f"/sign-in?{urlencode({'host': host, 'state': state})}")
    try:
        match = match_host(host, services.config.domains)
        if match.kind != "webapp" or match.tenant is None or match.app is None or not state:
            raise NotFound("this link does not lead to an app; open the app directly")
        scope = TenantScope(match.tenant, f"user:{arrival.person.user_id}")
        if people.find_member(scope, arrival.person.user_id) is None:
            raise NotFound("you cannot open this app with your account; sign in with another one")
        code = SignIns(services.sealer).create_member_code(SignInTarget(scope, match.app, host), state, arrival.person.user_id)
    except NotFound as error:
        return Page("base/problem.html", {"person": arrival.person, "title": mark("No such app"), "problem": error}, 404)
    config = services.config
    return Redirect(f"{config.scheme}://{host}{config.port_suffix}/_gos/enter?{urlencode({'code': code})}")


@base_page("GET", SIGNED_IN)
def go_on(arrival: Arrival) -> Answer:
    """The page between sign-in and the app: forms may redirect only to our own hosts, so a link leads to the app's host."""
    args = arrival.request.args
    host = split_host(args.get("host", ""))
    onward = f"{VISIT}?{urlencode({'host': host, 'state': args.get('state', '')[:LONGEST_STATE]})}"
    return Page("base/signed_in.html", {"host": host, "onward": onward})

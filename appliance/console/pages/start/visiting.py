"""Members on their way to a WebApp: the base host knows them, and gives the app's host a code that says who they are."""

from urllib.parse import urlencode

from appliance.console.frame.routing import Answer, Arrival, Page, Redirect, base_page
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.core.texts import mark
from appliance.tenants import match_host, people, split_host
from appliance.webapps.access import Place, SignIns

VISIT, SIGNED_IN = "/visit", "/visit/signed-in"
LONGEST_STATE = 100


@base_page("GET", VISIT)
def go_to_webapp(arrival: Arrival) -> Answer:
    """From the host of an app for members: sign in first, or straight back with a code for that host."""
    args, services = arrival.asked.args, arrival.services
    host, state = split_host(args.get("host", "")), args.get("state", "")[:LONGEST_STATE]
    if arrival.person is None:
        return Redirect(f"/sign-in?{urlencode({'host': host, 'state': state})}")
    try:
        match = match_host(host, services.config.domains)
        if match.kind != "webapp" or match.tenant is None or match.app is None or not state:
            raise NotFound("this address leads to no app; open the app itself")
        scope = TenantScope(match.tenant, f"user:{arrival.person.user_id}")
        if people.find_member(scope, arrival.person.user_id) is None:
            raise NotFound("this address leads to no app that you may open; sign in as somebody else")
        code = SignIns(services.sealer).give_member_code(Place(scope, match.app, host), state, arrival.person.user_id)
    except NotFound as error:
        return Page("base/problem.html", {"person": arrival.person, "title": mark("No such app"), "problem": error}, 404)
    config = services.config
    return Redirect(f"{config.scheme}://{host}{config.port_suffix}/_gos/enter?{urlencode({'code': code})}")


@base_page("GET", SIGNED_IN)
def go_on(arrival: Arrival) -> Answer:
    """Between a sign-in and the app: a form may lead to our own hosts only, a page may lead anywhere."""
    args = arrival.asked.args
    host = split_host(args.get("host", ""))
    onward = f"{VISIT}?{urlencode({'host': host, 'state': args.get('state', '')[:LONGEST_STATE]})}"
    return Page("base/signed_in.html", {"host": host, "onward": onward})

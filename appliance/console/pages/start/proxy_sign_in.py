"""Sign-in of people whom a trusted proxy has signed in already, and the page after they sign out here."""

import logging

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Page, Redirect, base_page
from appliance.core.errors import ApplianceError
from appliance.core.texts import mark
from appliance.tenants.single_sign_on import ProxyLogin

from .onward import continue_onward, onward_of

log = logging.getLogger(__name__)
SIGNED_OUT = "/signed-out"


def enter(arrival: Arrival, sent: ProxyLogin) -> Answer:
    """Open a session for the person whose login the proxy sends, and continue as after a password."""
    services, request = arrival.services, arrival.request
    try:
        user_id, login, token = services.proxy_sign_in.sign_in(sent, session.client_of(request))
    except ApplianceError as error:
        log.warning("the proxy %s signed somebody in who was refused: %s", sent.proxy, error.message)
        values = {"title": mark("Not signed in"), "problem": error, "local": "/sign-in?local=1"}
        return Page("base/sign_in_problem.html", values, error.status)
    session.close_previous(services, request)
    return continue_onward(arrival, (user_id, login), onward_of(arrival), {session.COOKIE: token})


@base_page("GET", SIGNED_OUT)
def show_signed_out(arrival: Arrival) -> Answer:
    """What signing out means behind a proxy, which signs the person in again."""
    sent = arrival.request.http.proxy_login
    if sent is None or arrival.person is not None:
        return Redirect("/sign-in" if arrival.person is None else "/")
    proxy = arrival.services.proxy_sign_in.find_proxy(sent)
    return Page("base/proxy_signed_out.html", {"name": proxy.label, "user": sent.user, "logout_url": proxy.logout_url})

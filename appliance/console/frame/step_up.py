"""Asks for a fresh proof before a form is accepted, and for a second factor before anything else.

The form is stored, sealed, while its sender proves on the base host who they are; then it is sent to its page again.
"""

from urllib.parse import urlencode

from appliance.tenants.second_factors import step_ups

from . import saved_forms
from .routing import ConsoleRequest, Redirect, Visit

CONFIRM, ADD = "/confirm", "/factors/new"


def confirm_path(token: str) -> str:
    """The page of the base host where somebody proves who they are for this request."""
    return f"{CONFIRM}?{urlencode({'request': token})}"


def add_factor_path(request: ConsoleRequest) -> str:
    """The page of the base host where a factor is added; it continues where the request leads."""
    return f"{ADD}?{request.query}".rstrip("?")


def hold_form(visit: Visit) -> Redirect:
    """Store the form, and redirect to the page for a proof."""
    services, request = visit.services, visit.request
    form = saved_forms.save_form(services.sealer, request, visit.person.user_id)
    target = f"{request.path}?{request.query}".rstrip("?")
    token = step_ups.store_request(services.sealer, visit.person, target, form)
    return Redirect(f"{services.config.base_url}{confirm_path(token)}")


def require_factor(visit: Visit) -> Redirect:
    """Redirect somebody who needs a second factor to where it is added; a form is stored meanwhile."""
    if visit.request.method == "POST":
        return hold_form(visit)
    query = urlencode({"tenant": visit.scope.tenant_id})
    return Redirect(f"{visit.services.config.base_url}{ADD}?{query}")

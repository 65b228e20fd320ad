"""The second factors of the visitor's own account, and the form that continues after a proof."""

from appliance.console.frame import recovery_codes, saved_forms
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, Gone
from appliance.core.texts import mark, mark_error
from appliance.tenants.second_factors import factors, step_ups

from . import account

UNPROVEN = mark_error("this proof was made in another browser, or was used already; go back, and do it again")


@page("POST", "/account/factors/<factor_id>/rename", scope=None)
def rename_factor(visit: Visit, factor_id: str) -> Answer:
    """Give a factor another name."""
    try:
        factors.rename_factor(visit.person.user_id, factor_id, visit.request.field("name"))
    except ApplianceError as error:
        return account.account_page(visit, error)
    return Redirect(account.HERE)


@page("POST", "/account/factors/<factor_id>/remove", scope=None, step_up=True)
def remove_factor(visit: Visit, factor_id: str) -> Answer:
    """Remove a factor; with the last one, the recovery codes end."""
    try:
        factors.remove_factor(visit.person.user_id, factor_id)
    except ApplianceError as error:
        return account.account_page(visit, error)
    return Redirect(account.HERE)


@page("POST", "/account/recovery-codes", scope=None, step_up=True)
def reset_codes(visit: Visit) -> Answer:
    """Ten new recovery codes, shown once; the earlier ones end."""
    try:
        codes = visit.services.second_factors.replace_recovery_codes(visit.person.user_id)
    except ApplianceError as error:
        return account.account_page(visit, error)
    sealed = recovery_codes.seal_codes(visit.services.sealer, visit.person.user_id, codes)
    return Page("recovery_codes.html", {"codes": codes, "sealed": sealed, "action": f"{account.HERE}/recovery-codes/file"}, 201)


@page("POST", "/account/recovery-codes/file", scope=None)
def download_codes(visit: Visit) -> Answer:
    """The recovery codes of the page as a text file."""
    return recovery_codes.make_file(visit.services, visit.person, visit.request.field("codes"))


@page("GET", "/proven", scope=None)
def continue_form(visit: Visit) -> Answer:
    """Continue with the form that waited for a proof: it is sent to its page, by itself the first time."""
    services, args, person = visit.services, visit.request.args, visit.person
    token = args.get("request", "")
    waiting = step_ups.find_request(services.sealer, token)
    if waiting is None or (waiting.user_id, waiting.tenant_id) != (person.user_id, visit.scope.tenant_id):
        return Redirect("/console/")
    has_proof = waiting.is_of(person) and "code" in args and step_ups.redeem_code(services.sealer, args["code"], waiting)
    if not has_proof and services.second_factors.find_due(person):
        problem = Gone(UNPROVEN)
        return Page("problem.html", {"title": mark("Not possible"), "message": problem.message}, problem.status)
    if not waiting.is_sent:
        step_ups.mark_sent(services.sealer, token)
    values = {"action": waiting.target, "field": saved_forms.FIELD, "form": waiting.form, "sends_itself": not waiting.is_sent}
    return Page("base/proven.html", values)

"""The settings of the tenant: its name, the rules of its document folders, and its usage and limits."""

from collections.abc import Callable

from appliance.backups import counting
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import mark
from appliance.documents import FolderRule, folder_rules
from appliance.tenants import service

from .appliance import is_administrator

HERE = "/console/settings"
# Label and console section of each kind of resource.
KINDS = {
    "execution": (mark("Executions"), "executions"), "entity": (mark("Entities"), "datapool"),
    "document": (mark("Documents"), "documents"), "process": (mark("Processes"), "processes"),
    "integration": (mark("Integrations"), "integrations"), "agent": (mark("Agents"), "agents"),
    "agent_run": (mark("Runs of agents"), "agents"), "membership": (mark("People"), "people"),
    "api_key": (mark("API keys"), "keys"), "secret": (mark("Secrets"), "secrets"),
    "approval": (mark("Open requests to people"), "approvals"), "invitation": (mark("Open invitations"), "people"),
    "collection": (mark("Collections"), "datapool"), "webapp": (mark("WebApps"), "webapps"), "skill": (mark("Skills"), "skills"),
    "policy": (mark("Policies"), "policies"), "alert": (mark("Alerts"), "alerts"), "webhook": (mark("Webhooks"), ""),
    "folder_rule": (mark("Folder rules"), ""), "service_account": (mark("Service accounts"), "service-accounts"),
}  # fmt: skip


@page("GET", "/settings", scope=None)
def show_settings(visit: Visit) -> Answer:
    """All settings of this tenant, with forms for those who may change them."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None, *, of_form: str = "") -> Page:
    services, scope, request = visit.services, visit.scope, visit.request
    config, row = services.config, service.get_tenant(scope.tenant_id)
    email_integration = config.approvals.email_integration
    values = {
        "row": row, "name": request.field("name") if of_form == "name" else row.name, "problem": problem, "of_form": of_form,
        "form": {name: request.field(name) for name in ("folder", "review", "days")}, "config": config, "kinds": KINDS,
        "addresses": {"url": config.tenant_url(row.id), "cdn": config.cdn_url(row.id), "app": config.webapp_url(row.id, "APP")},
        "rules": folder_rules.list_rules(scope) if visit.may("documents.read") else [], "names": Names(visit),
        "bounded": counting.count_bounded(scope), "unbounded": counting.count_unbounded(scope) + counting.count_credentials(scope),
        "stored": services.blobs.usage(scope), "email_integration": email_integration,
        "can_send_email": services.governance.invitations.can_send_email(scope),
        "language": services.languages.get(config.console.language), "runs_it": is_administrator(visit),
    }  # fmt: skip
    return Page("settings.html", values, problem.status if problem else 200)


def _apply(visit: Visit, form: str, work: Callable[[], object]) -> Answer:
    try:
        work()
    except ApplianceError as error:
        return _page(visit, error, of_form=form)
    return Redirect(HERE)


@page("POST", "/settings/name", scope="keys.write")
def rename_tenant(visit: Visit) -> Answer:
    """Rename the tenant."""
    return _apply(visit, "name", lambda: service.rename_tenant(visit.scope, visit.request.field("name")))


@page("POST", "/settings/folders", scope="documents.retain")
def set_folder_rule(visit: Visit) -> Answer:
    """Set the rule of a folder and its subfolders."""
    request = visit.request

    def save_rule() -> None:
        days, review = request.field("days").strip(), bool(request.field("review"))
        if days and not (days.isascii() and days.isdigit() and len(days) < 10):
            raise ValidationFailed(
                "enter a whole number of days, or leave it empty to keep documents", pointer="/delete_after_days"
            )
        if not days and not review:
            raise ValidationFailed(
                "require an approval or enter a number of days; otherwise the rule has no effect", pointer="/review"
            )
        folder = request.field("folder").strip().strip("/")
        rule = FolderRule(folder, "required" if review else "none", int(days) if days else None)
        folder_rules.put_rule(visit.scope, rule)

    return _apply(visit, "folder", save_rule)


@page("POST", "/settings/folders/remove", scope="documents.retain")
def remove_folder_rule(visit: Visit) -> Answer:
    """Remove the rule of a folder; the rules of its parent folders still apply."""
    return _apply(visit, "removal", lambda: folder_rules.delete_rule(visit.scope, visit.request.field("folder")))

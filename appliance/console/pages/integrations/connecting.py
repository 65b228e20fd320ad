"""Connecting an integration through OAuth in the browser: consent at the provider, the callback, and disconnecting."""

from urllib.parse import urlsplit

from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.console.frame.session import COOKIE
from appliance.governance import kill_switches, subject_of
from appliance.integrations import CALLBACK, ProviderReply, connecting


@page("POST", "/integrations/<slug>/connect", scope="integrations.write")
def ask_consent(visit: Visit, slug: str) -> Answer:
    """Show a page with the link to the provider; the content policy does not let a form redirect to another site."""
    redirect_uri = f"{visit.services.config.tenant_url(visit.scope.tenant_id)}{CALLBACK}"
    consent = connecting.start_consent(visit.services.integrations, visit.scope, slug, redirect_uri, _session(visit))
    integration = visit.services.integrations.get_integration(visit.scope, slug)
    return Page("connect.html", {"integration": integration, "url": consent.url, "host": urlsplit(consent.url).netloc})


@page("GET", CALLBACK.removeprefix("/console"), scope="integrations.write")
def come_back(visit: Visit) -> Answer:
    """The callback from the provider; if the flow was started in another session, the person confirms first."""
    args = visit.request.args
    slug = connecting.needs_confirmation(visit.services.integrations, visit.scope, args.get("state", ""))
    if slug is None:
        return _finish(visit, ProviderReply(args.get("state", ""), args.get("code", ""), args.get("error", ""), _session(visit)))
    integration = visit.services.integrations.get_integration(visit.scope, slug)
    reply = {name: args.get(name, "") for name in ("state", "code", "error")}
    return Page("connect.html", {"integration": integration, "url": "", "reply": reply})


@page("POST", "/oauth/finish", scope="integrations.write")
def confirm(visit: Visit) -> Answer:
    """Finish a flow that was started in another session, after the person has confirmed it."""
    state, code, error = (visit.request.field(name) for name in ("state", "code", "error"))
    return _finish(visit, ProviderReply(state, code, error, _session(visit), confirmed=True))


@page("POST", "/integrations/<slug>/disconnect", scope="integrations.write")
def disconnect(visit: Visit, slug: str) -> Answer:
    """Delete the integration's tokens."""
    connecting.disconnect(visit.services.integrations, visit.scope, slug)
    return Redirect(f"/console/integrations/{slug}")


def _finish(visit: Visit, reply: ProviderReply) -> Answer:
    integrations = visit.services.integrations
    kill_switches.check_not_switched_off(visit.scope, subject_of(visit.scope))
    work = visit.services.governance.executor.submit(visit.scope, lambda: connecting.finish(integrations, visit.scope, reply))
    return Deferred(work, lambda: Redirect(f"/console/integrations/{work.result()}"))


def _session(visit: Visit) -> str:
    return connecting.session_digest(visit.services.integrations, visit.request.cookies.get(COOKIE, ""))

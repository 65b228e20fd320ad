"""Every page of the console with addresses that show it; a page without an entry fails `tests/architecture/test_screens.py`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Routes of pages on a tenant's host, with addresses that show them; `{name}` is an id of the example data.
ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "/console/": ("/console/",),
    "/console/about": ("/console/about",),
    "/console/account": ("/console/account",),
    "/console/agents": ("/console/agents",),
    "/console/agents/<agent_id>": ("/console/agents/clerk",),
    "/console/agents/<agent_id>/runs/<run_id>": ("/console/agents/clerk/runs/{run}", "/console/agents/clerk/runs/{waiting_run}"),
    "/console/alerts": ("/console/alerts",),
    "/console/alerts/<alert_id>": ("/console/alerts/{alert}",),
    "/console/alerts/<alert_id>/edit": ("/console/alerts/{alert}/edit",),
    "/console/alerts/new": ("/console/alerts/new", "/console/alerts/new?kind=failures", "/console/alerts/new?kind=quota"),
    "/console/appliance": ("/console/appliance",),
    "/console/appliance/audit": ("/console/appliance/audit", "/console/appliance/audit?text=nothing-like-it"),
    "/console/appliance/backups": ("/console/appliance/backups",),
    "/console/appliance/configuration": ("/console/appliance/configuration",),
    "/console/appliance/keys": ("/console/appliance/keys",),
    "/console/appliance/master-key": ("/console/appliance/master-key",),
    "/console/appliance/people": ("/console/appliance/people", "/console/appliance/people?login=eve@northgate.test"),
    "/console/appliance/scim": ("/console/appliance/scim",),
    "/console/appliance/tenants": ("/console/appliance/tenants",),
    "/console/approvals": ("/console/approvals", "/console/approvals?state=all"),
    "/console/approvals/<approval_id>": ("/console/approvals/{approval}",),
    "/console/audit": ("/console/audit", "/console/audit?text=key"),
    "/console/authority": ("/console/authority",),
    "/console/confirmations": ("/console/confirmations",),
    "/console/datapool": ("/console/datapool",),
    "/console/datapool/-/new": ("/console/datapool/-/new", "/console/datapool/-/new?as=yaml"),
    "/console/datapool/<collection>": ("/console/datapool/orders",),
    "/console/datapool/<collection>/<entity_id>": ("/console/datapool/orders/{order}",),
    "/console/datapool/<collection>/<entity_id>/edit": ("/console/datapool/orders/{order}/edit",),
    "/console/datapool/<collection>/import": ("/console/datapool/orders/import",),
    "/console/datapool/<collection>/schema": ("/console/datapool/orders/schema",),
    "/console/datapool/<collection>/schema/edit": (
        "/console/datapool/orders/schema/edit", "/console/datapool/orders/schema/edit?as=yaml",
    ),
    "/console/datapool/<collection>/new": ("/console/datapool/orders/new",),
    "/console/documents": (
        "/console/documents", "/console/documents?folder=contracts/2026", "/console/documents?folder=contracts&search=discount",
        "/console/documents?folder=contracts/2030",
    ),
    "/console/documents/<document_id>": ("/console/documents/{document}",),
    "/console/documents/<document_id>/downloads": ("/console/documents/{document}/downloads",),
    "/console/executions": ("/console/executions", "/console/executions?state=failed", "/console/executions?step=weigh&span=24h"),
    "/console/executions/<execution_id>": (
        "/console/executions/{succeeded}", "/console/executions/{failed}", "/console/executions/{asking}",
    ),
    "/console/executions/<execution_id>/journal": ("/console/executions/{failed}/journal?path=weigh",),
    "/console/executions/<execution_id>/runs": (
        "/console/executions/{wide}/runs?path=each%2Fline", "/console/executions/{wide}/runs?path=each%2Fline&item=7",
    ),
    "/console/executions/<execution_id>/retry": ("/console/executions/{failed}/retry",),
    "/console/failures": ("/console/failures",),
    "/console/integrations": ("/console/integrations",),
    "/console/integrations/<slug>": ("/console/integrations/order-system",),
    "/console/integrations/<slug>/actions/<action>": ("/console/integrations/order-system/actions/get",),
    "/console/integrations/<slug>/calls": ("/console/integrations/order-system/calls",),
    "/console/integrations/<slug>/calls/<call_id>": ("/console/integrations/order-system/calls/{call}",),
    "/console/integrations/<slug>/settings": ("/console/integrations/order-system/settings",),
    "/console/integrations/-/new": ("/console/integrations/-/new?connector=http", "/console/integrations/-/new?connector=email"),
    "/console/integrations/catalogue": ("/console/integrations/catalogue",),
    "/console/keys": ("/console/keys",),
    "/console/keys/<key_id>": ("/console/keys/{key}",),
    "/console/keys/new": ("/console/keys/new",),
    "/console/kill-switches": ("/console/kill-switches",),
    "/console/llm-profiles": ("/console/llm-profiles",),
    "/console/llm-profiles/<slug>": ("/console/llm-profiles/default",),
    "/console/llm-profiles/<slug>/settings": ("/console/llm-profiles/default/settings",),
    "/console/llm-profiles/-/new": ("/console/llm-profiles/-/new",),
    "/console/logs": ("/console/logs", "/console/logs?follow=1&level=warn"),
    "/console/monitor": ("/console/monitor", "/console/monitor?span=30d", "/console/monitor?by=process"),
    "/console/people": ("/console/people",),
    "/console/people/<user_id>/remove": ("/console/people/{member}/remove",),
    "/console/policies": ("/console/policies",),
    "/console/policies/-/decide": ("/console/policies/-/decide",),
    "/console/policies/-/new": ("/console/policies/-/new",),
    "/console/policies/<name>": ("/console/policies/large-orders",),
    "/console/policies/<name>/draft": ("/console/policies/large-orders/draft",),
    "/console/policies/<name>/versions/<number>": ("/console/policies/large-orders/versions/1",),
    "/console/processes": ("/console/processes",),
    "/console/processes/<process_id>": ("/console/processes/order-intake",),
    "/console/processes/-/new": ("/console/processes/-/new",),
    "/console/processes/<process_id>/edit": (
        "/console/processes/order-intake/edit", "/console/processes/order-intake/edit?file=steps/check.ts",
    ),
    "/console/processes/<process_id>/diff": (
        "/console/processes/order-intake/diff", "/console/processes/order-intake/diff?from=0&to=1",
    ),
    "/console/processes/<process_id>/test": (
        "/console/processes/order-intake/test", "/console/processes/order-intake/test?step=check",
    ),
    "/console/processes/<process_id>/versions": ("/console/processes/order-intake/versions",),
    "/console/quotas": ("/console/quotas",),
    "/console/secrets": ("/console/secrets",),
    "/console/secrets/<name>": ("/console/secrets/order_token",),
    "/console/service-accounts": ("/console/service-accounts",),
    "/console/service-accounts/new": ("/console/service-accounts/new",),
    "/console/service-accounts/<account_id>": ("/console/service-accounts/{account}",),
    "/console/service-accounts/<account_id>/keys/new": ("/console/service-accounts/{account}/keys/new",),
    "/console/settings": ("/console/settings",),
    "/console/settings/export": ("/console/settings/export",),
    "/console/settings/reset": ("/console/settings/reset",),
    "/console/settings/visitors": ("/console/settings/visitors", "/console/settings/visitors?login=guest@example.com"),
    "/console/skills": ("/console/skills",),
    "/console/skills/<name>": ("/console/skills/returns",),
    "/console/skills/<name>/file": ("/console/skills/returns/file?path=SKILL.md",),
    "/console/webapps": ("/console/webapps",),
    "/console/webapps/<app>": ("/console/webapps/shop",),
    "/console/webapps/<app>/domains": ("/console/webapps/shop/domains",),
    "/console/webapps/<app>/versions/<number>": ("/console/webapps/shop/versions/2",),
    "/console/webapps/<app>/requests": ("/console/webapps/shop/requests",),
}  # fmt: skip

# Addresses of the base host, for signed-in users and for visitors.
BASE_ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "/": ("/",),
    "/factors/app": ("/factors/app?tenant={tenant}",),
    "/factors/new": ("/factors/new?tenant={tenant}",),
    "/hand-over": ("/hand-over?tenant=nobody",),
    "/visit": ("/visit?host=nobody",),
}
SIGNED_OUT: Mapping[str, tuple[str, ...]] = {
    "/confirm": ("/confirm?request={step_up}", "/confirm?request=nobody"),
    "/invitation": ("/invitation?token={invitation}", "/invitation?token=nobody"),
    "/password/forgotten": ("/password/forgotten",),
    "/password/new": ("/password/new?token={password}", "/password/new?token=nobody"),
    "/sign-in": ("/sign-in", "/sign-in?tenant={tenant}"),
}

# Picture names of a refused form: submitted in an expired session (False), and in a session of another user (True).
SENT = "/console/processes/-/new"
REFUSED_FORMS: Mapping[bool, str] = {False: "kept-form", True: "kept-form-of-somebody-else"}

# Routes that return no page, and what they return.
NOT_PAGES: Mapping[str, str] = {
    "/console/appliance/audit/export": "a file",
    "/console/appliance/backups/<name>": "a file",
    "/console/appliance/tenants/import/<arrival_id>": "a page of a file that was sent a moment ago",
    "/console/audit/export": "a file",
    "/console/datapool/<collection>/export": "a file",
    "/console/datapool/<collection>/import/<import_id>": "a page of a file that was sent a moment ago",
    "/console/datapool/<collection>/import/<import_id>/errors": "a file",
    "/console/documents/<document_id>/content": "a file",
    "/console/documents/<document_id>/downloads/export": "a file",
    "/console/documents/<document_id>/preview": "a picture",
    "/console/enter": "a redirect with a session",
    "/console/executions/<execution_id>/value": "a file",
    "/console/joined": "a redirect, which may end a session",
    "/console/logs/live": "a stream of events",
    "/console/oauth/callback": "a form that sends itself on, with what a provider answered",
    "/console/proven": "a form that sends itself on, after a proof",
    "/console/settings/export/<name>": "a file",
    "/confirm/options": "data for a script",
    "/factors/passkey/options": "data for a script",
    "/oidc/<provider>/callback": "what a provider answered, with a session or a problem",
    "/oidc/<provider>/start": "a redirect to a provider",
    "/signed-out": "a page behind a trusted proxy only; tests/console/sign_in/test_trusted_header.py shows what it says",
    "/sign-in/factor": "a page for somebody who entered a password a moment ago; looks like /confirm",
    "/sign-in/factor/options": "data for a script",
    "/sign-in/password": "a page after a temporary password; tests/journeys/test_first_day.py looks at it",
    "/sign-in/passkey/options": "data for a script",
    "/sign-out": "a redirect",
    "/visit/signed-in": "a page that leads on at once",
}


@dataclass(frozen=True)
class Screen:
    """One page on the tenant's host or the base host; its pictures are named `name`."""

    path: str
    name: str = ""
    is_on_base: bool = False
    is_signed_in: bool = True

    @property
    def is_absent(self) -> bool:
        """Whether the page shows a "not found"."""
        return self.path.endswith("nobody")


def screens(things: Mapping[str, str]) -> Iterator[Screen]:
    """Every page, with the ids of the example data in its addresses."""
    for listed, is_on_base, is_signed_in in ((ADDRESSES, False, True), (BASE_ADDRESSES, True, True), (SIGNED_OUT, True, False)):
        for path in (path for paths in listed.values() for path in paths):
            yield Screen(path.format_map(things), _name_of(path, is_on_base), is_on_base, is_signed_in)


def _name_of(path: str, is_on_base: bool) -> str:
    words = re.findall(r"[A-Za-z0-9_]+", path.removeprefix("/console/"))
    return "-".join([*(["base"] if is_on_base else []), *(words or ["home"])])

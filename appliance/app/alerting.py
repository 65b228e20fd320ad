"""What alerts ask of the rest of the appliance, and how they reach it."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import (
    ApplianceError,
    Draining,
    IdempotencyMismatch,
    NotFound,
    Overloaded,
    StorageFull,
    ValidationFailed,
)
from appliance.core.scope import TenantScope
from appliance.governance.executor import GovernedExecutor
from appliance.governance.requests import ActionRequest
from appliance.integrations import gate
from appliance.integrations.service import Integrations
from appliance.monitor.alerts.actions import OWNERS, Action, Letters, Notice, Reach
from appliance.monitor.alerts.measuring import Facts
from appliance.monitor.alerts.service import Alerts
from appliance.monitor.disk import DiskGauge
from appliance.monitor.webhooks import Webhooks
from appliance.processes import executions
from appliance.processes.executions import StartRequest
from appliance.processes.service import ProcessFlow
from appliance.tenants import keys, people
from appliance.tenants import service as tenants
from appliance.tenants.email_addresses import as_email
from appliance.tenants.people import Member
from appliance.tenants.scopes import ROLES
from appliance.webapps.certificates.service import expiring_hosts

SECONDS = 30.0
MOST_READERS = 50
_LATER = (Draining, Overloaded, StorageFull)
_NAMED = {"email": "integration", "webhook": "webhook", "process": "process"}
_HEADINGS = {"firing": "fires", "repeated": "still fires", "resolved": "is over", "test": "is tried out"}


@dataclass(frozen=True)
class Reached:
    """What actions may name, and what conditions look at beside them."""

    integrations: Integrations
    webhooks: Webhooks
    disk: DiskGauge


def make_alerts(config: Config, flow: ProcessFlow, executor: GovernedExecutor, reached: Reached) -> Alerts:
    """Alerts over the parts they look at and act through."""
    facts = Facts(
        queue_age_ms=lambda scope: flow.queue_state(scope)["oldest_age_ms"], last_execution=executions.last_created,
        failing=gate.failing, expiring=find_expiring, disk_used=lambda: reached.disk.read().used_percent,
    )  # fmt: skip
    telling = _Telling(config, flow, executor, reached)
    return Alerts(facts, Reach(telling.check, telling.send_letters, telling.start_process))


def find_expiring(scope: TenantScope, until: int) -> list[str]:
    """API keys nobody has rotated yet and certificates of domains that end before `until`."""
    found = [f"the API key {key.name}" for key in keys.expiring_keys(scope, until)]
    return found + [f"the certificate of {host}" for host in expiring_hosts(scope, until)]


class _Telling:
    def __init__(self, config: Config, flow: ProcessFlow, executor: GovernedExecutor, reached: Reached) -> None:
        self._config, self._flow, self._executor, self._reached = config, flow, executor, reached

    def check(self, scope: TenantScope, action: Action) -> None:
        """ValidationFailed for what is not there to act through."""
        try:
            self._find(scope, action)
        except ApplianceError as error:
            raise ValidationFailed(error.message, pointer=f"/{_NAMED[action.kind]}") from error
        for index, name in enumerate(action.members):
            if name not in {f"role:{role}" for role in ROLES} and not _is_member(scope, name):
                told = f"{name[:80]!r} is no member; write a sign-in name, or role:owner, role:operator"
                raise ValidationFailed(told, pointer=f"/members/{index}")

    def _find(self, scope: TenantScope, action: Action) -> None:
        if action.kind == "webhook" and action.webhook:
            self._reached.webhooks.get_webhook(scope, action.webhook)
        if action.kind == "process" and action.process:
            executions.version_to_run(scope, action.process, None)
        if action.kind == "email":
            slug = action.integration or ""
            if "send" not in (self._reached.integrations.find_actions(scope, slug) or ()):
                raise NotFound(f"there is no integration {slug[:80]!r} with an action send; make one of the connector email")

    def send_letters(self, scope: TenantScope, action: Action, notice: Notice) -> Letters:
        """Queue a letter to every member meant; a letter that was queued before is not queued again."""
        scope, problems = tenants.system_scope(scope.tenant_id), list[str]()
        found = [each for each in people.list_members(scope) if _is_meant(each, action.members or OWNERS)]
        readers = [(each, email) for each in found if (email := as_email(each.login))][:MOST_READERS]
        if not readers:
            problems.append("nobody was written to: no member who is meant signs in with an e-mail address")
        for member, email in readers:
            request = ActionRequest(
                action.integration or "", "send", self._letter(scope, notice, email),
                idempotency_key=f"{notice.key}/{action.integration}/{member.user_id}", seconds=SECONDS,
            )  # fmt: skip
            try:
                self._executor.enqueue(scope, request)
            except _LATER:
                raise
            except ApplianceError as error:
                problems.append(f"a letter could not be sent by {action.integration}: {error.message}")
        return Letters([member.login for member, _ in readers], problems)

    def start_process(self, scope: TenantScope, action: Action, notice: Notice) -> list[str]:
        """Start the published version, once for a notice."""
        scope, process = tenants.system_scope(scope.tenant_id), action.process or ""
        request = StartRequest({"alert": notice.data()}, label=f"alert {notice.alert_id}", token=f"{notice.key}/{process}")
        try:
            self._flow.start_execution(scope, process, request)
        except _LATER:
            raise
        except IdempotencyMismatch:  # it was started before the alert got another name
            return []
        except ApplianceError as error:
            return [f"{process} was not started: {error.message}"]
        return []

    def _letter(self, scope: TenantScope, notice: Notice, email: str) -> dict[str, object]:
        tenant, turn = tenants.get_tenant(scope.tenant_id).name, _HEADINGS[notice.turn]
        text = (
            f'The alert "{notice.name}" of {tenant} {turn}, since {clock.rfc3339(notice.at)}.\n\n{notice.text}.\n\n'
            f"It looks at: {notice.condition}.\n\nIts history, and how to silence it:\n\n"
            f"    {self._config.tenant_url(scope.tenant_id)}/console/alerts/{notice.alert_id}\n"
        )
        return {"to": [email], "subject": f"{tenant}: {notice.name} {turn}", "text": text}


def _is_member(scope: TenantScope, login: str) -> bool:
    return any(each.login == login for each in people.list_members(scope))


def _is_meant(member: Member, names: tuple[str, ...]) -> bool:
    """By the sign-in name, or a role that is this one or a higher one."""
    roles = [name.removeprefix("role:") for name in names if name.startswith("role:")]
    return member.login in names or any(ROLES.index(member.role) >= ROLES.index(role) for role in roles if role in ROLES)

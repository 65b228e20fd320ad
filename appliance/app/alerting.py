"""Connects alerts to the rest of the appliance: the facts that conditions check, and the actions that they trigger."""

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
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, mark_error, translate, use_language
from appliance.governance.approvals import EmailDependencies
from appliance.governance.executor import ActionRequest
from appliance.integrations import gate
from appliance.monitor import DiskGauge, Webhooks
from appliance.monitor.alerts import OWNERS, Action, Alerts, DataSources, EmailResult, Notice, Notifier
from appliance.processes import ProcessFlow
from appliance.processes.executions import StartRequest
from appliance.processes.executions import service as executions
from appliance.tenants import ROLES, Member, people
from appliance.tenants import service as tenants
from appliance.tenants.keys import keys
from appliance.tenants.sign_in import parse_email
from appliance.webapps.certificates import expiring_hosts

from .quotas import make_usage

SECONDS = 30.0
MOST_READERS = 50
_RETRY_LATER = (Draining, Overloaded, StorageFull)
_TARGET_FIELDS = {"email": "integration", "webhook": "webhook", "process": "process"}
_EXPIRING_KEY, _EXPIRING_CERTIFICATE = mark_error("the API key %(name)s"), mark_error("the certificate of %(host)s")
_SUBJECTS = {
    "firing": mark("%(tenant)s: %(alert)s is firing"),
    "repeated": mark("%(tenant)s: %(alert)s is still firing"),
    "resolved": mark("%(tenant)s: %(alert)s resolved"),
    "test": mark("%(tenant)s: test of %(alert)s"),
}
_INTRODUCTIONS = {
    "firing": mark('The alert "%(alert)s" in %(tenant)s has been firing since %(time)s.'),
    "repeated": mark('The alert "%(alert)s" in %(tenant)s is still firing, as of %(time)s.'),
    "resolved": mark('The alert "%(alert)s" in %(tenant)s resolved, as of %(time)s.'),
    "test": mark('This is a test of the alert "%(alert)s" in %(tenant)s, sent %(time)s.'),
}


@dataclass(frozen=True)
class AlertDependencies:
    """Further parts that alerts use: webhooks for actions, the disk gauge for conditions."""

    webhooks: Webhooks
    disk: DiskGauge


def make_alerts(config: Config, flow: ProcessFlow, email: EmailDependencies, dependencies: AlertDependencies) -> Alerts:
    """Build the alerts with the facts they check and the actions they can trigger."""
    facts = DataSources(
        queue_age_ms=lambda scope: flow.queue_state(scope)["oldest_age_ms"], last_execution=executions.last_created,
        failing_integrations=gate.list_failing, expiring=find_expiring, quota_state=make_usage().read_state,
        disk_used=lambda: dependencies.disk.read().used_percent,
    )  # fmt: skip
    delivery = _AlertDelivery(config, flow, email, dependencies)
    return Alerts(facts, Notifier(delivery.check, delivery.send_emails, delivery.start_process))


def find_expiring(scope: TenantScope, until: int) -> list[str]:
    """The API keys that have not been rotated and the domain certificates that expire before `until` (epoch ms)."""
    expiring: list[str] = [_EXPIRING_KEY % {"name": key.name} for key in keys.expiring_keys(scope, until)]
    return expiring + [_EXPIRING_CERTIFICATE % {"host": host} for host in expiring_hosts(scope, until)]


class _AlertDelivery:
    def __init__(self, config: Config, flow: ProcessFlow, email: EmailDependencies, dependencies: AlertDependencies) -> None:
        self._config, self._flow, self._email, self._dependencies = config, flow, email, dependencies

    def check(self, scope: TenantScope, action: Action) -> None:
        """ValidationFailed when the action names an integration, webhook, process or member that does not exist."""
        try:
            self._find(scope, action)
        except ApplianceError as error:
            raise ValidationFailed(error.message, pointer=f"/{_TARGET_FIELDS[action.kind]}") from error
        for index, name in enumerate(action.members):
            if name not in {f"role:{role}" for role in ROLES} and not _is_member(scope, name):
                message = Sentence(
                    "%(name)s is not a member; enter a login, or a role such as role:owner or role:operator", name=repr(name[:80])
                )
                raise ValidationFailed(message, pointer=f"/members/{index}")

    def _find(self, scope: TenantScope, action: Action) -> None:
        if action.kind == "webhook" and action.webhook:
            self._dependencies.webhooks.get_webhook(scope, action.webhook)
        if action.kind == "process" and action.process:
            executions.resolve_version(scope, action.process, None)
        if action.kind == "email":
            slug = action.integration or ""
            if "send" not in (self._email.integrations.find_actions(scope, slug) or ()):
                raise NotFound(Sentence(
                    "there is no integration %(slug)s with the action `send`; create one with the connector `email`",
                    slug=repr(slug[:80]),
                ))

    def send_emails(self, scope: TenantScope, action: Action, notice: Notice) -> EmailResult:
        """Queue an e-mail to every recipient of the action; each notice is sent to a recipient only once."""
        scope, problems = tenants.system_scope(scope.tenant_id), list[str]()
        recipients = [each for each in people.list_members(scope) if _is_recipient(each, action.members or OWNERS)]
        addressed = [(each, email) for each in recipients if (email := parse_email(each.login))][:MOST_READERS]
        if not addressed:
            problems.append("no e-mail was sent: none of the recipients has an e-mail address as login")
        for member, email in addressed:
            with use_language(self._email.languages.choose(member.language)):
                email_input = self._build_email(scope, notice, email)
            request = ActionRequest(
                action.integration or "", "send", email_input,
                idempotency_key=f"{notice.key}/{action.integration}/{member.user_id}", seconds=SECONDS,
            )  # fmt: skip
            try:
                self._email.executor.enqueue(scope, request)
            except _RETRY_LATER:
                raise
            except IdempotencyMismatch:  # Already queued, before the alert was renamed or the recipient changed the language.
                continue
            except ApplianceError as error:
                problems.append(f"an e-mail could not be sent by {action.integration}: {error.message}")
        return EmailResult([member.login for member, _ in addressed], problems)

    def start_process(self, scope: TenantScope, action: Action, notice: Notice) -> list[str]:
        """Start the published version of the process, once per notice."""
        scope, process = tenants.system_scope(scope.tenant_id), action.process or ""
        request = StartRequest({"alert": notice.data()}, label=f"alert {notice.alert_id}", token=f"{notice.key}/{process}")
        try:
            self._flow.start_execution(scope, process, request)
        except _RETRY_LATER:
            raise
        except IdempotencyMismatch:  # Already started, before the alert was renamed.
            return []
        except ApplianceError as error:
            return [f"{process} was not started: {error.message}"]
        return []

    def _build_email(self, scope: TenantScope, notice: Notice, email: str) -> dict[str, object]:
        """The e-mail's recipient, subject and text, in the current language."""
        tenant = tenants.get_tenant(scope.tenant_id).name
        at = f"    {self._config.tenant_url(scope.tenant_id)}/console/alerts/{notice.alert_id}"
        text = "\n".join([
            _(_INTRODUCTIONS[notice.turn], alert=notice.name, tenant=tenant, time=clock.minute(notice.at)), "",
            f"{translate(notice.text)}.", "", _("Condition: %(condition)s.", condition=translate(notice.condition)), "",
            _("View its history or silence it:"), "", at, "",
        ])  # fmt: skip
        return {"to": [email], "subject": _(_SUBJECTS[notice.turn], tenant=tenant, alert=notice.name), "text": text}


def _is_member(scope: TenantScope, login: str) -> bool:
    return any(each.login == login for each in people.list_members(scope, with_disabled=True))


def _is_recipient(member: Member, names: tuple[str, ...]) -> bool:
    """Whether one of the names is the member's login, or a role that the member holds or exceeds."""
    roles = [name.removeprefix("role:") for name in names if name.startswith("role:")]
    return member.login in names or any(ROLES.index(member.role) >= ROLES.index(role) for role in roles if role in ROLES)

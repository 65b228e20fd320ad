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
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, mark_error, speaking, tell
from appliance.governance.approvals import Writing
from appliance.governance.executor import ActionRequest
from appliance.integrations import gate
from appliance.monitor import DiskGauge, Webhooks
from appliance.monitor.alerts import OWNERS, Action, Alerts, Facts, Letters, Notice, Reach
from appliance.processes import ProcessFlow
from appliance.processes.executions import StartRequest
from appliance.processes.executions import service as executions
from appliance.tenants import ROLES, Member, people
from appliance.tenants import service as tenants
from appliance.tenants.keys import keys
from appliance.tenants.sign_in import as_email
from appliance.webapps.certificates import expiring_hosts

SECONDS = 30.0
MOST_READERS = 50
_LATER = (Draining, Overloaded, StorageFull)
_NAMED = {"email": "integration", "webhook": "webhook", "process": "process"}
_ENDING_KEY, _ENDING_CERTIFICATE = mark_error("the API key %(name)s"), mark_error("the certificate of %(host)s")
_SUBJECTS = {
    "firing": mark("%(tenant)s: %(alert)s is firing"),
    "repeated": mark("%(tenant)s: %(alert)s is still firing"),
    "resolved": mark("%(tenant)s: %(alert)s resolved"),
    "test": mark("%(tenant)s: test of %(alert)s"),
}
_TURNS = {
    "firing": mark('The alert "%(alert)s" in %(tenant)s has been firing since %(time)s.'),
    "repeated": mark('The alert "%(alert)s" in %(tenant)s is still firing, as of %(time)s.'),
    "resolved": mark('The alert "%(alert)s" in %(tenant)s resolved, as of %(time)s.'),
    "test": mark('This is a test of the alert "%(alert)s" in %(tenant)s, sent %(time)s.'),
}


@dataclass(frozen=True)
class Reached:
    """What actions may name, and what conditions look at beside them."""

    webhooks: Webhooks
    disk: DiskGauge


def make_alerts(config: Config, flow: ProcessFlow, writing: Writing, reached: Reached) -> Alerts:
    """Alerts over the parts they look at and act through."""
    facts = Facts(
        queue_age_ms=lambda scope: flow.queue_state(scope)["oldest_age_ms"], last_execution=executions.last_created,
        failing=gate.failing, expiring=find_expiring, disk_used=lambda: reached.disk.read().used_percent,
    )  # fmt: skip
    telling = _Telling(config, flow, writing, reached)
    return Alerts(facts, Reach(telling.check, telling.send_letters, telling.start_process))


def find_expiring(scope: TenantScope, until: int) -> list[str]:
    """API keys nobody has rotated yet and certificates of domains that end before `until`."""
    found: list[str] = [_ENDING_KEY % {"name": key.name} for key in keys.expiring_keys(scope, until)]
    return found + [_ENDING_CERTIFICATE % {"host": host} for host in expiring_hosts(scope, until)]


class _Telling:
    def __init__(self, config: Config, flow: ProcessFlow, writing: Writing, reached: Reached) -> None:
        self._config, self._flow, self._writing, self._reached = config, flow, writing, reached

    def check(self, scope: TenantScope, action: Action) -> None:
        """ValidationFailed for what is not there to act through."""
        try:
            self._find(scope, action)
        except ApplianceError as error:
            raise ValidationFailed(error.message, pointer=f"/{_NAMED[action.kind]}") from error
        for index, name in enumerate(action.members):
            if name not in {f"role:{role}" for role in ROLES} and not _is_member(scope, name):
                told = Sentence("%(name)s is no member; write a sign-in name, or role:owner, role:operator", name=repr(name[:80]))
                raise ValidationFailed(told, pointer=f"/members/{index}")

    def _find(self, scope: TenantScope, action: Action) -> None:
        if action.kind == "webhook" and action.webhook:
            self._reached.webhooks.get_webhook(scope, action.webhook)
        if action.kind == "process" and action.process:
            executions.version_to_run(scope, action.process, None)
        if action.kind == "email":
            slug = action.integration or ""
            if "send" not in (self._writing.integrations.find_actions(scope, slug) or ()):
                raise NotFound(Sentence(
                    "there is no integration %(slug)s with an action send; make one of the connector email",
                    slug=repr(slug[:80]),
                ))

    def send_letters(self, scope: TenantScope, action: Action, notice: Notice) -> Letters:
        """Queue a letter to every member meant; a letter that was queued before is not queued again."""
        scope, problems = tenants.system_scope(scope.tenant_id), list[str]()
        found = [each for each in people.list_members(scope) if _is_meant(each, action.members or OWNERS)]
        readers = [(each, email) for each in found if (email := as_email(each.login))][:MOST_READERS]
        if not readers:
            problems.append("nobody was written to: no member who is meant signs in with an e-mail address")
        for member, email in readers:
            with speaking(self._writing.languages.choose(member.language)):
                given = self._letter(scope, notice, email)
            request = ActionRequest(
                action.integration or "", "send", given,
                idempotency_key=f"{notice.key}/{action.integration}/{member.user_id}", seconds=SECONDS,
            )  # fmt: skip
            try:
                self._writing.executor.enqueue(scope, request)
            except _LATER:
                raise
            except IdempotencyMismatch:  # it was queued before the alert got another name, or its reader another language
                continue
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
        """The e-mail, in the language spoken now."""
        tenant = tenants.get_tenant(scope.tenant_id).name
        at = f"    {self._config.tenant_url(scope.tenant_id)}/console/alerts/{notice.alert_id}"
        text = "\n".join([
            _(_TURNS[notice.turn], alert=notice.name, tenant=tenant, time=clock.minute(notice.at)), "",
            f"{tell(notice.text)}.", "", _("Condition: %(condition)s.", condition=tell(notice.condition)), "",
            _("View its history or silence it:"), "", at, "",
        ])  # fmt: skip
        return {"to": [email], "subject": _(_SUBJECTS[notice.turn], tenant=tenant, alert=notice.name), "text": text}


def _is_member(scope: TenantScope, login: str) -> bool:
    return any(each.login == login for each in people.list_members(scope))


def _is_meant(member: Member, names: tuple[str, ...]) -> bool:
    """By the sign-in name, or a role that is this one or a higher one."""
    roles = [name.removeprefix("role:") for name in names if name.startswith("role:")]
    return member.login in names or any(ROLES.index(member.role) >= ROLES.index(role) for role in roles if role in ROLES)

"""Alert actions: notify members by e-mail, call webhooks, or start a process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from appliance.core import clock
from appliance.core.errors import Detail, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .transitions import Turn

Kind = Literal["email", "webhook", "process"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_ACTIONS = 10
MAX_MEMBERS = 20
OWNERS = ("role:owner",)
# The scope that each kind of action needs, the same as for doing it without an alert.
SCOPES: Mapping[Kind, str] = {
    "email": "integrations.execute", "webhook": "integrations.write", "process": "processflow.execute",
}  # fmt: skip


@dataclass(frozen=True)
class Action:
    """One way of notifying.

    `email`: by `integration` to `members`, each a sign-in name or `role:<least role>`.  `webhook`: to the webhook with this id, or
    to all that subscribe to `alert.firing` and `alert.resolved`.  `process`: starts the process's published version.
    """

    kind: Kind
    integration: str | None = None
    members: tuple[str, ...] = ()
    webhook: str | None = None
    process: str | None = None

    def to_stored(self) -> dict[str, Any]:
        fields = {"integration": self.integration, "webhook": self.webhook, "process": self.process, "members": list(self.members)}
        return {"kind": self.kind, **{name: value for name, value in fields.items() if value}}


def load_action(stored: Mapping[str, Any]) -> Action:
    """Restore a stored action."""
    return Action(**{**stored, "members": tuple(stored.get("members", ()))})


@dataclass(frozen=True)
class Notice:
    """A notification; a repeated attempt has the same `key`."""

    key: str
    alert_id: str
    name: str
    turn: Turn
    text: str
    condition: str
    at: int

    def data(self) -> dict[str, Any]:
        """The payload for webhooks and processes."""
        return {
            "alert_id": self.alert_id, "name": self.name, "turn": self.turn, "text": self.text, "condition": self.condition,
            "at": clock.rfc3339(self.at),
        }  # fmt: skip


@dataclass(frozen=True)
class EmailResult:
    """The result of sending e-mails: the recipients' sign-in names, and the problems."""

    recipients: Sequence[str]
    problems: Sequence[str]


@dataclass(frozen=True)
class Notifier:
    """Functions by which alerts use the rest of the appliance.

    `check` raises ValidationFailed for an action that cannot work; `start_process` returns problems.  Both `start_process` and
    `send_emails` do nothing when repeated with the same notice key.
    """

    check: Callable[[TenantScope, Action], None]
    send_emails: Callable[[TenantScope, Action, Notice], EmailResult]
    start_process: Callable[[TenantScope, Action, Notice], list[str]]


def validate_actions(scope: TenantScope, actions: Sequence[Action], notifier: Notifier, existing: Sequence[Action] = ()) -> None:
    """ValidationFailed, with a pointer, for actions that cannot work; ScopeMissing for those the actor could not do directly.

    The alert's existing actions are `known` and stay valid even if what they name was deleted.
    """
    if len(actions) > MAX_ACTIONS:
        raise ValidationFailed(
            Sentence("an alert can have at most %(most_actions)s actions", most_actions=MAX_ACTIONS), pointer="/actions"
        )
    if sum(each.kind == "webhook" for each in actions) > 1 and any(each.kind == "webhook" and not each.webhook for each in actions):
        raise ValidationFailed(
            "name a webhook in each action, or use one without a name for all that subscribe", pointer="/actions"
        )
    for index, action in enumerate(actions):
        at = f"/actions/{index}"
        needed = {"email": action.integration, "process": action.process, "webhook": "-"}.get(action.kind)
        if not needed:
            name = "integration" if action.kind == "email" else "process"
            raise ValidationFailed(
                Sentence("an action of kind %(kind)s needs %(name)s", kind=action.kind, name=name), pointer=f"{at}/{name}"
            )
        if len(action.members) > MAX_MEMBERS:
            raise ValidationFailed(
                Sentence("name at most %(most_members)s members, or a role", most_members=MAX_MEMBERS), pointer=f"{at}/members"
            )
        scope.require(SCOPES[action.kind])
        if action in existing:
            continue
        try:
            notifier.check(scope, action)
        except ValidationFailed as error:
            details = [Detail(at + each.pointer, each.code, each.message) for each in error.details]
            raise ValidationFailed(error.message, details=details) from error

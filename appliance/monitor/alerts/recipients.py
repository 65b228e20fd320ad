"""Recipients of an alert event: when it fires those its alert names, when it resolves those who were notified of the firing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.scope import TenantScope

from .actions import Action, load_action
from .models import AlertEventRow, AlertRow


@dataclass(frozen=True)
class Recipients:
    """`actions` name recipients; `webhook_ids` are the ids of webhooks notified by subscription, None for all that subscribe."""

    actions: tuple[Action, ...]
    webhook_ids: frozenset[str] | None = frozenset()

    def to_stored(self) -> dict[str, Any]:
        subscribed = {} if self.webhook_ids is None else {"asked": sorted(self.webhook_ids)}
        return {"actions": [each.to_stored() for each in self.actions], **subscribed}

    @property
    def needs_notifying(self) -> bool:
        """Whether anyone must be notified by other means than a webhook."""
        return any(each.kind != "webhook" for each in self.actions)


def named_recipients(row: AlertRow) -> Recipients:
    """The recipients an alert names now."""
    actions = [load_action(each) for each in row.actions]
    includes_all = any(each.kind == "webhook" and each.webhook is None for each in actions)
    actions_with_target = tuple(each for each in actions if each.kind != "webhook" or each.webhook)
    return Recipients(actions_with_target, None if includes_all else frozenset())


def load_recipients(stored: Mapping[str, Any]) -> Recipients:
    """Restore stored recipients."""
    subscribed = stored.get("asked")
    return Recipients(tuple(load_action(each) for each in stored["actions"]), None if subscribed is None else frozenset(subscribed))


def notified_recipients(scope: TenantScope, row: AlertRow) -> Recipients:
    """Everyone notified since the alert fired; for events from before this was stored, the recipients named now."""
    notified: list[Recipients] = []
    query = scope.select(AlertEventRow).where(AlertEventRow.alert_id == row.id, AlertEventRow.kind != "test")
    for event in query.order_by(AlertEventRow.turn.desc()).iterator():
        if event.kind == "resolved":
            break
        if not event.silenced:
            notified.append(named_recipients(row) if event.told_to is None else load_recipients(event.told_to))
    subscribed: frozenset[str] | None = frozenset()
    for each in notified:
        subscribed = None if subscribed is None or each.webhook_ids is None else subscribed | each.webhook_ids
    return Recipients(_merge_actions(action for each in notified for action in each.actions), subscribed)


def _merge_actions(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Actions without duplicates; e-mails by one integration are merged to all of its recipients."""
    merged: dict[tuple[object, ...], Action] = {}
    for each in actions:
        key = (each.kind, each.integration, each.webhook, each.process)
        existing = merged.get(key, each)
        merged[key] = replace(existing, members=tuple(dict.fromkeys((*existing.members, *each.members))))
    return tuple(merged.values())

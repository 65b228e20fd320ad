"""Recipients of an alert event: when it fires those its alert names, when it resolves those who were notified of the firing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.scope import TenantScope

from .actions import Action, read_action
from .models import AlertEventRow, AlertRow


@dataclass(frozen=True)
class Hearers:
    """`actions` name recipients; `asked` are the ids of webhooks notified by subscription, None for all that subscribe."""

    actions: tuple[Action, ...]
    asked: frozenset[str] | None = frozenset()

    def stored(self) -> dict[str, Any]:
        asked = {} if self.asked is None else {"asked": sorted(self.asked)}
        return {"actions": [each.stored() for each in self.actions], **asked}

    @property
    def needs_telling(self) -> bool:
        """Whether anyone must be notified by other means than a webhook."""
        return any(each.kind != "webhook" for each in self.actions)


def named_by(row: AlertRow) -> Hearers:
    """The recipients an alert names now."""
    actions = [read_action(each) for each in row.actions]
    asks = any(each.kind == "webhook" and each.webhook is None for each in actions)
    named = tuple(each for each in actions if each.kind != "webhook" or each.webhook)
    return Hearers(named, None if asks else frozenset())


def read_hearers(stored: Mapping[str, Any]) -> Hearers:
    """Restore stored recipients."""
    asked = stored.get("asked")
    return Hearers(tuple(read_action(each) for each in stored["actions"]), None if asked is None else frozenset(asked))


def who_heard(scope: TenantScope, row: AlertRow) -> Hearers:
    """Everyone notified since the alert fired; for events from before this was stored, the recipients named now."""
    heard: list[Hearers] = []
    query = scope.select(AlertEventRow).where(AlertEventRow.alert_id == row.id, AlertEventRow.kind != "test")
    for event in query.order_by(AlertEventRow.turn.desc()).iterator():
        if event.kind == "resolved":
            break
        if not event.silenced:
            heard.append(named_by(row) if event.told_to is None else read_hearers(event.told_to))
    asked: frozenset[str] | None = frozenset()
    for each in heard:
        asked = None if asked is None or each.asked is None else asked | each.asked
    return Hearers(_merged(action for each in heard for action in each.actions), asked)


def _merged(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Actions without duplicates; e-mails by one integration are merged to all of its recipients."""
    merged: dict[tuple[object, ...], Action] = {}
    for each in actions:
        key = (each.kind, each.integration, each.webhook, each.process)
        known = merged.get(key, each)
        merged[key] = replace(known, members=tuple(dict.fromkeys((*known.members, *each.members))))
    return tuple(merged.values())
